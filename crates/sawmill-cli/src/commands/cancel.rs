//! `sawmill cancel`: cancels a message in all groups.

use clap::Args;
use sawmill::MessageId;
use sawmill::admin::MessageState;
use serde::Serialize;

use crate::commands::show::{InGroup, unknown};
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::output::note;

#[derive(Debug, Args)]
#[command(after_help = "\
A waiting message is never started. A running one is stopped within a few seconds. Groups that have
finished the message keep their result; if all of them have, the command fails.

Examples:
  sawmill cancel 01KA5WZJ2M8Q4T6V8X0Y2A4C6E")]
pub(crate) struct CancelArgs {
    /// The message id, as `sawmill push` printed it
    id: MessageId,
}

/// The cancelled message, as it is printed.
#[derive(Debug, Serialize)]
struct Cancelled {
    id: String,
    topic: String,
    groups: Vec<Before>,
}

/// The state of the message in a group before it was cancelled.
#[derive(Debug, Serialize)]
struct Before {
    group: String,
    state: &'static str,
}

pub(crate) async fn run(args: CancelArgs, session: &Session) -> Result<(), Failure> {
    let mill = session.open().await?;
    let found = mill.admin().show(args.id).await?.ok_or_else(|| unknown(args.id))?;
    let too_late = |status: &MessageState| status.is_settled() && *status != MessageState::Cancelled;
    let is_over = !found.groups.is_empty() && found.groups.iter().all(|(_, status)| too_late(status));
    let groups: Vec<Before> = found
        .groups
        .into_iter()
        .map(|(group, status)| InGroup::new(&group, status))
        .map(|shown| Before { group: shown.group, state: shown.state })
        .collect();
    let said = |group: &Before| format!("{} in group {}", group.state, group.group);
    let topic = found.topic.name.to_string();
    if is_over {
        let states = groups.iter().map(said).collect::<Vec<_>>().join(", ");
        return Err(Failure::failed(format!(
            "message {} is settled already ({states}): there is nothing left to cancel",
            args.id
        )));
    }
    let was_cancelled = !groups.is_empty() && groups.iter().all(|group| group.state == "cancelled");
    mill.cancel(&topic, args.id).await?;
    let cancelled = Cancelled { id: args.id.to_string(), topic, groups };
    if session.out.is_json() {
        return session.out.object(&cancelled, |_| String::new());
    }
    note(&match was_cancelled {
        true => format!("Message {} of topic {} was cancelled already.", cancelled.id, cancelled.topic),
        false => format!("Cancelled message {} of topic {}.", cancelled.id, cancelled.topic),
    });
    for group in &cancelled.groups {
        match group.state {
            "claimed" => note(&format!(
                "A worker of group {} has it in hand: it is told, and drops it within a few seconds.",
                group.group
            )),
            "done" | "past" | "dead" => note(&format!("Too late for one group: it is {}.", said(group))),
            _ => {}
        }
    }
    Ok(())
}
