//! `sawmill deliver email`: each message is sent by SMTP.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::{Address, AsyncSmtpTransport, AsyncTransport, Tokio1Executor};
use sawmill::{Context, Outcome};

use super::WorkArgs;
use super::letter::{Letter, Letters};
use super::mailbox::mailboxes;
use super::secret::Secret;
use crate::failure::Failure;

pub(super) const HELP: &str = "\
The payload is the text of the e-mail, in UTF-8. Headers of the message:
  to                 to whom it goes, as a@example.org, Bea <b@example.org>; needed without --to
  subject            its subject; needed without --subject
With --json-payload the payload is an object, whose fields are stronger than the headers:
  {\"to\": \"a@example.org\" or [...], \"subject\": \"...\", \"text\": \"...\", \"html\": \"...\"}
With text and html both, the reader's program chooses.

With --to all e-mails go there, whatever a message says. Without it, whoever may push may write to
anybody in your name.

The Message-ID is <ID@DOMAIN>, with the id of the message and the domain of --from: the same if it
is sent again, which happens if a worker dies between the server's answer and its own note of it.

Answers of the server: 4xx and trouble on the way are tried again; 5xx makes it a dead letter with
what was said, and so does an address that is not ASCII where the server cannot take such
(SMTPUTF8). If it does not take user and password, knows no common way to be given them, or cannot
encrypt (STARTTLS), no message is at fault: the worker stops, and all messages stay; but with
at-most-once, those that it had begun become dead letters.

Examples:
  sawmill deliver email mails --server smtp.example.org --from 'Mill <mill@example.org>' \\
      --user mill --password-file smtp.key
  sawmill deliver email alerts --server smtp.example.org --tls implicit --from mill@example.org \\
      --user mill --password-env SMTP_PASSWORD --to ops@example.org --subject 'Look at this'
  sawmill deliver email mails --server localhost --tls none --from mill@example.org --json-payload";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The topics to deliver, the first one having priority
    #[arg(required = true, value_name = "TOPIC")]
    pub(super) topics: Vec<String>,
    #[command(flatten)]
    email: EmailArgs,
    #[command(flatten)]
    pub(super) work: WorkArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "E-mail")]
struct EmailArgs {
    /// The host of the SMTP server
    #[arg(long, value_name = "HOST")]
    server: String,
    /// Its port [default: 587 for starttls, 465 for implicit, 25 for none]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// How the way to it is encrypted
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Encryption::Starttls)]
    tls: Encryption,
    /// The user at the server
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The variable of the environment with the user's password
    #[arg(long, value_name = "VARIABLE", conflicts_with = "password_file")]
    password_env: Option<String>,
    /// The file with the user's password
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Whom e-mails are from, as mill@example.org or 'Mill <mill@example.org>'
    #[arg(long, value_name = "ADDRESS")]
    from: String,
    /// To whom all e-mails go [default: as each message says]
    #[arg(long, value_name = "ADDRESSES")]
    to: Option<String>,
    /// The subject of messages that have none
    #[arg(long, value_name = "TEXT")]
    subject: Option<String>,
    /// Payloads are JSON objects with to, subject, text and html
    #[arg(long)]
    json_payload: bool,
}

/// How the way to a server is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Encryption {
    /// It begins in the clear, and nothing is said before it is encrypted (STARTTLS)
    Starttls,
    /// From the beginning
    Implicit,
    /// Not at all
    None,
}

/// Codes by which a server refuses who sends, and not what is sent (RFC 4954).
const OF_USERS: [u16; 4] = [530, 534, 535, 538];

/// How messages are sent.
pub(crate) struct Email {
    letters: Letters,
    // Each letter has a connection of its own. One that is shared would be given on in the middle of a conversation if a delivery
    // is dropped, and the next letter would hear the answers to it.
    transport: AsyncSmtpTransport<Tokio1Executor>,
}

impl Email {
    pub(super) fn new(args: &Args) -> Result<Self, Failure> {
        let args = &args.email;
        let of = |option: &'static str| move |what: String| Failure::usage(format!("{option}: {what}"));
        let subject = args.subject.clone();
        if subject.iter().any(|subject| subject.chars().any(char::is_control)) {
            return Err(Failure::usage(
                "--subject has a line break or another sign in it that no header may have",
            ));
        }
        let letters = Letters {
            from: args.from.parse().map_err(of("--from"))?,
            to: args.to.as_deref().map(mailboxes).transpose().map_err(of("--to"))?,
            subject,
            json: args.json_payload,
        };
        Ok(Self { letters, transport: transport(args)? })
    }

    /// Sends a message.
    pub(super) async fn deliver(&self, context: &Context) -> Outcome {
        let letter = match self.letters.compose(context.message()) {
            Ok(letter) => letter,
            Err(reason) => return Outcome::dead(reason),
        };
        let Err(error) = self.transport.send_raw(&letter.envelope, letter.text.as_bytes()).await else {
            return Outcome::Done;
        };
        let code: Option<u16> = error.status().map(u16::from);
        match code {
            Some(code) if OF_USERS.contains(&code) => {
                Outcome::stop(format!("the SMTP server does not take user and password: {error}"))
            }
            Some(500..) => Outcome::dead(format!("the SMTP server refuses it: {error}")),
            None if error.is_client() && self.asks_too_much(&letter, &error) => {
                Outcome::dead(format!("this SMTP server cannot send it: {error}"))
            }
            // It was not asked for this letter yet, or cannot do what all of them need.
            None if error.is_client() => {
                Outcome::stop(format!("this SMTP server can send no e-mail for us: {error}"))
            }
            _ => Outcome::retry(format!("the SMTP server did not take it: {error}")),
        }
    }

    /// True if a letter needs something that not all of them do, and that was the trouble. The driver has only words for it: if they
    /// should change, the worker stops, and nothing is lost.
    fn asks_too_much(&self, letter: &Letter, error: &lettre::transport::smtp::Error) -> bool {
        let is_foreign = |address: &Address| !AsRef::<str>::as_ref(address).is_ascii();
        let is_of_all = self.letters.to.is_some() || is_foreign(&self.letters.from.address);
        let said = error.to_string();
        !is_of_all
            && letter.envelope.to().iter().any(is_foreign)
            && ["SMTPUTF8", "8BITMIME"].iter().any(|skill| said.contains(skill))
    }
}

fn transport(args: &EmailArgs) -> Result<AsyncSmtpTransport<Tokio1Executor>, Failure> {
    let password = Secret {
        name: "password",
        variable: args.password_env.as_deref(),
        file: args.password_file.as_ref(),
    };
    let credentials = match (&args.user, password.read()?) {
        (Some(user), Some(password)) => Some(Credentials::new(user.clone(), password)),
        (None, None) => None,
        (Some(_), None) => {
            return Err(Failure::usage("--user needs its password: give --password-file or --password-env"));
        }
        (None, Some(_)) => return Err(Failure::usage("whose is the password? give --user")),
    };
    if args.server.is_empty()
        || args.server.contains(|sign: char| sign.is_whitespace() || "/@".contains(sign))
    {
        return Err(Failure::usage(format!(
            "--server {:?} is no host: write it like smtp.example.org, and its port with --port",
            args.server
        )));
    }
    if args.tls == Encryption::None && credentials.is_some() && !is_near(&args.server) {
        return Err(Failure::usage(
            "--tls none would send the password for all to read: use starttls or implicit, or no --user",
        ));
    }
    let parameters = || {
        TlsParameters::new(args.server.clone())
            .map_err(|error| Failure::usage(format!("--server {}: {error}", args.server)))
    };
    let (tls, port) = match args.tls {
        Encryption::Starttls => (Tls::Required(parameters()?), 587),
        Encryption::Implicit => (Tls::Wrapper(parameters()?), 465),
        Encryption::None => (Tls::None, 25),
    };
    let mut builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&args.server)
        .port(args.port.unwrap_or(port))
        .tls(tls)
        // A delivery has its time as a whole.
        .timeout(None);
    if let Some(credentials) = credentials {
        builder = builder.credentials(credentials);
    }
    Ok(builder.build())
}

/// True if this host is this machine.
fn is_near(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
