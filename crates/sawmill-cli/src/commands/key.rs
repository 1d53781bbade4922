//! `sawmill key`: access keys for the HTTP server.

use clap::{Args, Subcommand};
use sawmill::admin::{Access, AccessKey};
use sawmill::engine::model::TopicName;
use sawmill_serve::secret;
use serde::Serialize;

use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::output::note;
use crate::terminal::table::Table;
use crate::terminal::text;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create an access key and print it. It cannot be shown again
    Create(Create),
    /// List the access keys and what they allow
    #[command(after_help = "Examples:\n  sawmill key list\n  sawmill key list --json | jq -r .id")]
    List,
    /// Revoke an access key
    #[command(after_help = "\
A running server refuses the key within two seconds.

Examples:
  sawmill key revoke 9f86d08188")]
    Revoke {
        /// The id of the key, as `sawmill key list` shows it
        id: String,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Access levels:
  r      see messages, groups and workers; pull messages and answer them
  w      push messages
  rw     both
  admin  everything, including topics, pausing, replays and dead letters
The store keeps a digest of the key, not the key itself.

Examples:
  sawmill key create --access admin
  sawmill key create --topic emails --access w --note 'the shop'
  SAWMILL_ACCESS_KEY=$(sawmill key create --topic sums --access r) python3 worker.py …")]
pub(crate) struct Create {
    /// The topic that the key gives access to [default: all]
    #[arg(long)]
    topic: Option<TopicName>,
    /// The access that the key gives
    #[arg(long, value_name = "r|w|rw|admin")]
    access: Access,
    /// A description of the key
    #[arg(long, default_value = "")]
    note: String,
}

/// An access key as it is printed.
#[derive(Debug, Serialize)]
struct Shown {
    /// The key itself, when it is created.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    id: String,
    topic: Option<String>,
    access: &'static str,
    created_at: String,
    note: String,
}

impl Shown {
    fn new(access_key: AccessKey, key: Option<String>) -> Self {
        Self {
            key,
            id: access_key.id,
            topic: access_key.topic.map(|topic| topic.to_string()),
            access: access_key.access.name(),
            created_at: text::rfc3339(access_key.created),
            note: access_key.note,
        }
    }
}

#[derive(Debug, Serialize)]
struct Revoked {
    id: String,
}

pub(crate) async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    let mill = session.open().await?;
    match command {
        Command::Create(Create { topic, access, note: what }) => {
            let (key, access_key) = secret::create(&mill, &session.env, topic, access, &what).await?;
            note(&format!("Access key {} is made. Keep it: it cannot be shown again.", access_key.id));
            let shown = Shown::new(access_key, Some(key));
            session.out.object(&shown, |shown| shown.key.clone().unwrap_or_default())
        }
        Command::List => {
            let keys: Vec<Shown> =
                mill.admin().access_keys().await?.into_iter().map(|key| Shown::new(key, None)).collect();
            if keys.is_empty() && !session.out.is_json() {
                note("There are no access keys: `sawmill key create` makes one.");
                return Ok(());
            }
            session.out.list(&keys, table)
        }
        Command::Revoke { id } => {
            mill.admin().revoke_access_key(&id).await?;
            if session.out.is_json() {
                return session.out.object(&Revoked { id }, |_| String::new());
            }
            note(&format!("Access key {id} is revoked."));
            Ok(())
        }
    }
}

fn table(keys: &[Shown]) -> Table {
    let mut table = Table::new(["ID", "TOPIC", "ACCESS", "CREATED", "NOTE"]);
    for key in keys {
        table.row([
            key.id.as_str().into(),
            key.topic.as_deref().unwrap_or("all").into(),
            key.access.into(),
            key.created_at.as_str().into(),
            text::preview(key.note.as_bytes(), 60).into(),
        ]);
    }
    table
}
