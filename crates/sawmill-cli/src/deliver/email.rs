//! `sawmill deliver email`: each message is sent by SMTP.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::TlsParameters;
use sawmill::env::Env;
use sawmill::{Context, Outcome};

use super::WorkArgs;
use super::letter::Letters;
use super::mailbox::mailboxes;
use super::postman::{Postman, Refusal, Way};
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

Answers of the server: 4xx and trouble on the way are tried again; 5xx to a recipient or to the
text makes it a dead letter with what was said, and so does an address that is not ASCII where the
server cannot take such (SMTPUTF8). If it refuses us before that (our address, user and password,
whom e-mails are from), or cannot encrypt (STARTTLS), no message is at fault: the worker stops, and
all messages stay; but with at-most-once, those that it had begun become dead letters. Some servers
refuse us only at the recipient, and then the message is a dead letter.

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

/// How messages are sent.
pub(crate) struct Email {
    letters: Letters,
    postman: Postman,
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
        Ok(Self { letters, postman: postman(args)? })
    }

    /// Sends a message.
    pub(super) async fn deliver(&self, env: &Env, context: &Context) -> Outcome {
        let letter = match self.letters.compose(context.message()) {
            Ok(letter) => letter,
            Err(reason) => return Outcome::dead(reason),
        };
        match self.postman.send(env, &letter).await {
            Ok(()) => Outcome::Done,
            Err(Refusal::Later(why)) => Outcome::retry(format!("the SMTP server did not take it: {why}")),
            Err(Refusal::OfLetter(why)) => Outcome::dead(format!("the SMTP server refuses it: {why}")),
            Err(Refusal::Foreign) => {
                let why = "this SMTP server takes no addresses that are not ASCII (SMTPUTF8)";
                if self.letters.have_foreign_addresses() { Outcome::stop(why) } else { Outcome::dead(why) }
            }
            Err(Refusal::OfUs(why)) => Outcome::stop(format!(
                "this SMTP server takes no e-mail from us (check user and password, --tls and --from): {why}"
            )),
        }
    }
}

fn postman(args: &EmailArgs) -> Result<Postman, Failure> {
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
    let (way, port) = match args.tls {
        Encryption::Starttls => (Way::Starttls(parameters()?), 587),
        Encryption::Implicit => (Way::Implicit(parameters()?), 465),
        Encryption::None => (Way::Open, 25),
    };
    Ok(Postman::new(args.server.clone(), args.port.unwrap_or(port), way, credentials))
}

/// True if this host is this machine.
fn is_near(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
