//! `sawmill trim`: drops what nobody needs any more, now.

use clap::Args;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::note;
use crate::session::Session;
use crate::{text, topic};

#[derive(Debug, Args)]
#[command(after_help = "\
Workers do so by themselves, about once a minute. Dropped is what is older than the topic's
retention and what every group is past; of a topic that was created with --drops-unread also what
is not read.

Examples:
  sawmill trim emails")]
pub(crate) struct TrimArgs {
    /// The topic
    topic: String,
}

/// How much was dropped, as it is printed.
#[derive(Debug, Serialize)]
struct Trimmed {
    topic: String,
    dropped: u64,
}

pub(crate) async fn run(args: TrimArgs, session: &Session) -> Result<(), Failure> {
    let mill = session.open().await?;
    let found = topic::find(&mill, &args.topic).await?;
    let dropped = mill.trim(&args.topic).await?;
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
