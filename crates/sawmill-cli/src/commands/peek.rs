//! `sawmill peek`: shows waiting messages without claiming them.

use clap::Args;

use crate::failure::Failure;
use crate::group;
use crate::message::MessageShown;
use crate::session::Session;
use crate::terminal::output::note;
use crate::terminal::table::Table;
use crate::terminal::text;

#[derive(Debug, Args)]
#[command(after_help = "\
Messages that are not due yet and messages that a worker has claimed are not shown.

Examples:
  sawmill peek emails
  sawmill peek orders --group totals --limit 100 --json")]
pub(crate) struct PeekArgs {
    /// The topic
    topic: String,
    /// The largest number of messages to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,
    /// The group for which the messages wait [default: default]
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
}

pub(crate) async fn run(args: PeekArgs, session: &Session) -> Result<(), Failure> {
    let mill = session.open().await?;
    let groups = group::names(&mill, &args.topic).await?;
    let group = args.group.as_deref().unwrap_or(group::DEFAULT);
    // Without --group the topic may have no group yet. Then all its messages wait for the first one.
    if args.group.is_some() || !groups.is_empty() {
        group::find(&mill, &args.topic, group).await?;
    }
    let messages = mill.admin().peek(&args.topic, group, args.limit).await?;
    let messages: Vec<MessageShown> =
        messages.into_iter().map(|message| MessageShown::new(&args.topic, message)).collect();
    if session.out.is_json() {
        return session.out.list(&messages, |_| Table::new([]));
    }
    let status = mill.admin().status(&args.topic, group).await?;
    if messages.is_empty() {
        let scheduled = match status.scheduled {
            0 => String::new(),
            scheduled => format!("; {} not due yet", text::counted(scheduled, "message")),
        };
        note(&format!("Nothing waits in topic {} for group {group}{scheduled}.", args.topic));
        return Ok(());
    }
    let now = session.now();
    session.out.list(&messages, |messages| {
        let mut table = Table::new(["ID", "KEY", "PUSHED", ">SIZE", "PAYLOAD"]);
        for message in messages {
            table.row([
                message.id.as_str().into(),
                message.key_preview(20).into(),
                text::ago(message.pushed(), now).into(),
                text::size(message.payload_bytes).into(),
                message.payload_preview(50).into(),
            ]);
        }
        table
    })?;
    let shown = messages.len() as u64;
    if status.waiting > shown {
        note(&format!("{} of {} that wait.", text::count(shown), text::counted(status.waiting, "message")));
    }
    Ok(())
}
