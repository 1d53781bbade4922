//! `sawmill deliver forward`: pushes each message to another topic or store.

use clap::ArgGroup;
use sawmill::engine::storage::StoreUrl;
use sawmill::{Context, ErrorKind, Outcome, Push, Sawmill};

use super::WorkArgs;
use crate::commands::topic;
use crate::failure::Failure;
use crate::session::Session;
use crate::settings::StoreSettings;

pub(super) const USAGE: &str = "\
sawmill deliver forward [OPTIONS] --to <TOPIC> <TOPIC>...
       sawmill deliver forward [OPTIONS] --to-store <URL> [--to <TOPIC>] <TOPIC>...";
pub(super) const HELP: &str = "\
Payload, key and headers are kept. Each time a message is forwarded, it gets another forwarded-from
header with the old topic and id. After 16 of them it becomes a dead letter, as the topics probably
form a loop.

The id of the new message is derived from the old id and the target topic. If a worker dies and
another one forwards the message again, the target has it only once, as long as its retention keeps
it. Kafka cannot detect such duplicates.

Examples:
  sawmill deliver forward orders --to audit --group audit
  sawmill deliver forward orders --to-store postgres://mill@db.example.org/mill
  sawmill deliver forward clicks views --to events --to-store sqlite:events.db --concurrency 64";

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("target").required(true).multiple(true).args(["to", "to_store", "to_namespace"]))]
pub(crate) struct Args {
    /// The topics to deliver. The first has the highest priority
    #[arg(required = true, value_name = "TOPIC")]
    pub(super) topics: Vec<String>,
    #[command(flatten)]
    forward: ForwardArgs,
    #[command(flatten)]
    pub(super) work: WorkArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Forward")]
struct ForwardArgs {
    /// The topic to push to [default: the topic of the same name]
    #[arg(long, value_name = "TOPIC")]
    to: Option<String>,
    /// The URL of the store to push to [default: the same store]
    #[arg(long, value_name = "URL", env = "SAWMILL_TO_STORE", hide_env_values = true)]
    to_store: Option<String>,
    /// The namespace to push to [default: the same namespace]
    #[arg(long, value_name = "NAME")]
    to_namespace: Option<String>,
}

/// The header with the origin of a forwarded message.
const FROM: &str = "forwarded-from";
/// The largest number of times that a message may be forwarded.
const MOST: usize = 16;

/// Forwards messages.
pub(crate) struct Forward {
    target: Sawmill,
    /// The target topic; none means the topic of the same name.
    to: Option<String>,
}

impl Forward {
    /// Opens the target store, and creates missing topics if `creates` is set.
    pub(super) async fn open(args: &Args, session: &Session, creates: bool) -> Result<Self, Failure> {
        let (topics, args) = (&args.topics, &args.forward);
        let here = StoreSettings::of(&session.globals, &session.file);
        let there = StoreSettings {
            store: args.to_store.clone().unwrap_or_else(|| here.store.clone()),
            // The same store has the same ledger.
            ledger: here.ledger.clone().filter(|_| args.to_store.is_none()),
            namespace: args.to_namespace.clone().or_else(|| here.namespace.clone()),
        };
        if let Some(topic) =
            topics.iter().find(|topic| args.to.as_ref().unwrap_or(topic) == *topic && here == there)
        {
            return Err(Failure::usage(format!(
                "topic {topic} would be forwarded to itself, for ever: name another with --to, or another --to-store"
            )));
        }
        let shown = there.store.parse::<StoreUrl>().map(|url| url.to_string());
        let shown = format!("--to-store {}", shown.unwrap_or_else(|_| "(not shown)".to_owned()));
        let wrong = |failure: Failure| match args.to_store {
            Some(_) => failure.of_other_store(&shown),
            None => failure,
        };
        let target = session.open_at(there).await.map_err(wrong)?;
        let mut wanted: Vec<&String> =
            args.to.as_ref().map_or_else(|| topics.iter().collect(), |to| vec![to]);
        wanted.dedup();
        for name in wanted {
            topic::ensure(&target, name, creates).await.map_err(wrong)?;
        }
        Ok(Self { target, to: args.to.clone() })
    }

    /// Pushes a message to the target and returns its outcome.
    pub(super) async fn deliver(&self, context: &Context) -> Outcome {
        let headers = context.headers();
        if headers.iter().filter(|(name, _)| *name == FROM).count() >= MOST {
            return Outcome::dead(format!(
                "it was forwarded {MOST} times: its {FROM} headers list the topics; check whether they form a loop"
            ));
        }
        let to = self.to.as_deref().unwrap_or(context.topic());
        // The topic is part of the derived id, as a message may be forwarded to several topics of one store.
        // Each copy needs its own id.
        let mut push =
            Push::new(context.payload().clone()).follows(context.id(), &format!("forward to {to}"));
        if let Some(key) = context.key() {
            push = push.key(key.clone());
        }
        for (name, value) in headers.iter() {
            push = push.header(name, value.clone());
        }
        push = push.header(FROM, format!("{} {}", context.topic(), context.id()));
        match self.target.push(to, push).await {
            Ok(_) => Outcome::Done,
            // A retry cannot help: the target engine has other limits.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::TooLarge | ErrorKind::Invalid | ErrorKind::Unsupported
                ) =>
            {
                Outcome::dead(format!("topic {to} cannot take it: {error}"))
            }
            Err(error) => Outcome::retry(format!("it could not be pushed to topic {to}: {error}")),
        }
    }
}
