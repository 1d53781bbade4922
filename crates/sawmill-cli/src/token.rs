//! `sawmill token`: who may use the store over HTTP, and for what.

use clap::{Args, Subcommand};
use sawmill::{Access, Grant, TopicName};
use sawmill_serve::secret;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::note;
use crate::session::Session;
use crate::table::Table;
use crate::text;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a token, and print it: it cannot be shown again
    Create(Create),
    /// List tokens, and what each is for
    #[command(after_help = "Examples:\n  sawmill token list\n  sawmill token list --json | jq -r .id")]
    List,
    /// Have a token not be accepted any more
    #[command(after_help = "\
A running server notices within two seconds.

Examples:
  sawmill token revoke 9f86d08188")]
    Revoke {
        /// The id of the token, as `sawmill token list` shows it
        id: String,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Access: r to see messages, groups and workers and to pull messages and answer them, w to push, rw
for both, admin for everything: also topics, pausing, replaying, and deciding on dead letters.
The store keeps a digest of the token, not the token itself.

Examples:
  sawmill token create --access admin
  sawmill token create --topic emails --access w --note 'the shop'
  SAWMILL_TOKEN=$(sawmill token create --topic sums --access r) python3 worker.py …")]
pub(crate) struct Create {
    /// The topic it is for [default: all]
    #[arg(long)]
    topic: Option<TopicName>,
    /// What it allows: r, w, rw or admin
    #[arg(long, value_name = "r|w|rw|admin")]
    access: Access,
    /// What it is for, in words
    #[arg(long, default_value = "")]
    note: String,
}

/// A token as it is printed.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    id: String,
    topic: Option<String>,
    access: &'static str,
    created_at: String,
    note: String,
}

impl Shown {
    fn new(grant: Grant, token: Option<String>) -> Self {
        Self {
            token,
            id: grant.id,
            topic: grant.topic.map(|topic| topic.to_string()),
            access: grant.access.name(),
            created_at: text::rfc3339(grant.created),
            note: grant.note,
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
            let (token, grant) = secret::create(&mill, &session.env, topic, access, &what).await?;
            note(&format!("Token {} is made. Keep it: it cannot be shown again.", grant.id));
            let shown = Shown::new(grant, Some(token));
            session.out.object(&shown, |shown| shown.token.clone().unwrap_or_default())
        }
        Command::List => {
            let tokens: Vec<Shown> =
                mill.grants().await?.into_iter().map(|grant| Shown::new(grant, None)).collect();
            if tokens.is_empty() && !session.out.is_json() {
                note("There are no tokens: `sawmill token create` makes one.");
                return Ok(());
            }
            session.out.list(&tokens, table)
        }
        Command::Revoke { id } => {
            mill.revoke_grant(&id).await?;
            if session.out.is_json() {
                return session.out.object(&Revoked { id }, |_| String::new());
            }
            note(&format!("Token {id} is revoked."));
            Ok(())
        }
    }
}

fn table(tokens: &[Shown]) -> Table {
    let mut table = Table::new(["ID", "TOPIC", "ACCESS", "CREATED", "NOTE"]);
    for token in tokens {
        table.row([
            token.id.as_str().into(),
            token.topic.as_deref().unwrap_or("all").into(),
            token.access.into(),
            token.created_at.as_str().into(),
            text::preview(token.note.as_bytes(), 60).into(),
        ]);
    }
    table
}
