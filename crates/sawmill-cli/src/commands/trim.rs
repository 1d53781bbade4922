//! `sawmill trim`: drops messages that are no longer needed, now.

use clap::Args;
use serde::Serialize;

use crate::commands::topic;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::output::note;
use crate::terminal::text;

#[derive(Debug, Args)]
#[command(after_help = "\
Workers trim about once a minute by themselves. A message is dropped when it is older than the
retention of its topic and every group is past it. In a topic created with --drops-unread, messages
that no group has read are dropped too.

Examples:
  sawmill trim emails")]
pub(crate) struct TrimArgs {
    /// The topic
    topic: String,
}

/// The number of dropped messages, as it is printed.
#[derive(Debug, Serialize)]
struct Trimmed {
    topic: String,
    dropped: u64,
}

pub(crate) async fn run(args: TrimArgs, session: &Session) -> Result<(), Failure> {
    let mill = session.open().await?;
    let found = topic::find(&mill, &args.topic).await?;
    let dropped = mill.admin().trim(&args.topic).await?;
    if session.out.is_json() {
        return session.out.object(&Trimmed { topic: args.topic, dropped }, |_| String::new());
    }
    let retention = text::span(found.retention);
    note(&match dropped {
        0 => format!(
            "Nothing to drop from topic {}: it keeps messages for {retention}, and until every group is past them.",
            args.topic
        ),
        dropped => format!("Dropped {} from topic {}.", text::counted(dropped, "message"), args.topic),
    });
    Ok(())
}
