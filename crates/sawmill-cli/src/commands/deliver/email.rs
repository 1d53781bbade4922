//! `sawmill deliver email`: sends each message as an e-mail by SMTP.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::TlsParameters;
use sawmill::engine::runtime::Env;
use sawmill::{Context, Outcome};

use super::WorkArgs;
use super::composer::Composer;
use super::mailbox::mailboxes;
use super::secret::Secret;
use super::smtp::{SendError, SmtpSender, TlsMode};
use crate::failure::Failure;

pub(super) const HELP: &str = "\
The payload is the text of the e-mail, in UTF-8. These headers of the message are used:
  to                 the recipients, as a@example.org, Bea <b@example.org>; required without --to
  subject            the subject; required without --subject
With --json-payload the payload is an object, whose fields take precedence over the headers:
  {\"to\": \"a@example.org\" or [...], \"subject\": \"...\", \"text\": \"...\", \"html\": \"...\"}
With both text and html, the mail program of the recipient chooses.

With --to all e-mails go to these addresses, whatever the messages name. Without it, anybody who can
push can send e-mail to anybody in your name.

The Message-ID is <ID@DOMAIN>, with the id of the message and the domain of --from. It stays
the same if an e-mail is sent again. That happens if a worker dies after the server has accepted an
e-mail and before the worker has recorded that.

4xx replies and connection failures are retried. A 5xx reply to a recipient or to the text makes the
message a dead letter with the reply as its reason. So does an address that is not ASCII, if the
server does not support SMTPUTF8.

If the server refuses the client before that (its address, user, password or sender) or does not
support STARTTLS, no message is at fault: the worker stops, and all messages stay. With at-most-once
the messages that it had started become dead letters. Some servers refuse the client only at the
recipient; then the message becomes a dead letter.

Examples:
  sawmill deliver email mails --server smtp.example.org --from 'Mill <mill@example.org>' \\
      --user mill --password-file smtp.key
  sawmill deliver email alerts --server smtp.example.org --tls implicit --from mill@example.org \\
      --user mill --password-env SMTP_PASSWORD --to ops@example.org --subject 'Look at this'
  sawmill deliver email mails --server localhost --tls none --from mill@example.org --json-payload";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The topics to deliver. The first has the highest priority
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
    /// The port of the SMTP server [default: 587 for starttls, 465 for implicit, 25 for none]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// The encryption of the connection
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Encryption::Starttls)]
    tls: Encryption,
    /// The user name for the server
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The environment variable with the password
    #[arg(long, value_name = "VARIABLE", conflicts_with = "password_file")]
    password_env: Option<String>,
    /// The file with the password
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// The sender, as mill@example.org or 'Mill <mill@example.org>'
    #[arg(long, value_name = "ADDRESS")]
    from: String,
    /// The recipients of all e-mails [default: those that each message names]
    #[arg(long, value_name = "ADDRESSES")]
    to: Option<String>,
    /// The subject of messages without one
    #[arg(long, value_name = "TEXT")]
    subject: Option<String>,
    /// Parse payloads as JSON objects with to, subject, text and html
    #[arg(long)]
    json_payload: bool,
}

/// The encryption of the connection to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Encryption {
    /// Connect unencrypted and encrypt before anything else is sent (STARTTLS)
    Starttls,
    /// Connect encrypted
    Implicit,
    /// Do not encrypt
    None,
}

/// Sends messages as e-mails.
pub(crate) struct Email {
    composer: Composer,
    sender: SmtpSender,
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
        let composer = Composer {
            from: args.from.parse().map_err(of("--from"))?,
            to: args.to.as_deref().map(mailboxes).transpose().map_err(of("--to"))?,
            subject,
            json: args.json_payload,
        };
        Ok(Self { composer, sender: sender(args)? })
    }

    /// Sends a message and returns its outcome.
    pub(super) async fn deliver(&self, env: &Env, context: &Context) -> Outcome {
        let mail = match self.composer.compose(context.message()) {
            Ok(mail) => mail,
            Err(reason) => return Outcome::dead(reason),
        };
        match self.sender.send(env, &mail).await {
            Ok(()) => Outcome::Done,
            Err(SendError::Temporary(why)) => {
                Outcome::retry(format!("the SMTP server did not take it: {why}"))
            }
            Err(SendError::Message(why)) => Outcome::dead(format!("the SMTP server refuses it: {why}")),
            Err(SendError::NeedsSmtpUtf8) => {
                let why = "this SMTP server takes no addresses that are not ASCII (SMTPUTF8)";
                if self.composer.needs_smtputf8() { Outcome::stop(why) } else { Outcome::dead(why) }
            }
            Err(SendError::Sender(why)) => Outcome::stop(format!(
                "this SMTP server takes no e-mail from us (check user and password, --tls and --from): {why}"
            )),
        }
    }
}

fn sender(args: &EmailArgs) -> Result<SmtpSender, Failure> {
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
        (None, Some(_)) => return Err(Failure::usage("a password needs a user: give --user")),
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
            "--tls none would send the password unencrypted: use starttls or implicit, or no --user",
        ));
    }
    let parameters = || {
        TlsParameters::new(args.server.clone())
            .map_err(|error| Failure::usage(format!("--server {}: {error}", args.server)))
    };
    let (tls, port) = match args.tls {
        Encryption::Starttls => (TlsMode::Starttls(parameters()?), 587),
        Encryption::Implicit => (TlsMode::Implicit(parameters()?), 465),
        Encryption::None => (TlsMode::Open, 25),
    };
    Ok(SmtpSender::new(args.server.clone(), args.port.unwrap_or(port), tls, credentials))
}

/// True if the host is this machine.
fn is_near(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
