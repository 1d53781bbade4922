//! `sawmill replay`: moves the position of a group, to handle messages again or to skip them.

use std::str::FromStr;

use clap::Args;
use sawmill::MessageId;
use sawmill::admin::ReplayFrom;
use serde::Serialize;

use crate::failure::Failure;
use crate::group;
use crate::session::Session;
use crate::terminal::output::{confirm, note};
use crate::terminal::text;

#[derive(Debug, Args)]
#[command(after_help = "\
The workers of the group may be running: they finish what they have claimed and go on from the new
position. Waiting retries, messages that are not due, and dead letters stay as they are. Messages
that the topic has dropped do not come back. Other groups are not affected.

Examples:
  sawmill replay orders --group totals --from start
  sawmill replay orders --group totals --from 2026-11-15T08:00:00Z
  sawmill replay orders --group totals --from 01KA5WZJ2M8Q4T6V8X0Y2A4C6E
  sawmill replay orders --group totals --from now --yes")]
pub(crate) struct ReplayArgs {
    /// The topic
    topic: String,
    /// The group
    #[arg(long, value_name = "GROUP")]
    group: String,
    /// The new position: start, a time, a message id, or now to skip everything that waits
    #[arg(long, value_name = "start|TIME|ID|now")]
    from: From,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

/// The new position, with its text as it was given.
#[derive(Debug, Clone)]
struct From {
    since: ReplayFrom,
    text: String,
}

impl FromStr for From {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let since = match text {
            "start" => ReplayFrom::Start,
            "now" => ReplayFrom::Now,
            _ => match (text.parse::<MessageId>(), text::time(text)) {
                (Ok(id), _) => ReplayFrom::Id(id),
                (_, Ok(time)) => ReplayFrom::Time(time),
                _ => {
                    return Err(format!(
                        "{text:?} is no place: write start, now, a time like 2026-11-15T08:00:00Z, or the id of a message"
                    ));
                }
            },
        };
        Ok(Self { since, text: text.to_owned() })
    }
}

/// The new position, as it is printed.
#[derive(Debug, Serialize)]
struct Replayed {
    topic: String,
    group: String,
    from: String,
    waiting: u64,
}

pub(crate) async fn run(args: ReplayArgs, session: &Session) -> Result<(), Failure> {
    let ReplayArgs { topic, group, from, yes } = args;
    let mill = session.open().await?;
    group::find(&mill, &topic, &group).await?;
    confirm(
        yes,
        &match from.since {
            ReplayFrom::Start => format!("Have group {group} of topic {topic} handle every message again?"),
            ReplayFrom::Now => format!("Have group {group} of topic {topic} skip all that waits?"),
            _ => format!(
                "Have group {group} of topic {topic} handle everything again from {}, and skip what is before?",
                from.text
            ),
        },
    )?;
    mill.admin().replay(&topic, &group, from.since).await?;
    let waiting = mill.admin().status(&topic, &group).await?.waiting;
    let replayed = Replayed { topic, group, from: from.text, waiting };
    if session.out.is_json() {
        return session.out.object(&replayed, |_| String::new());
    }
    let Replayed { topic, group, from, .. } = &replayed;
    let waiting = text::counted(waiting, "message");
    note(&format!("Group {group} of topic {topic} goes on from {from}: {waiting} before it."));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_word_a_time_or_an_id() {
        let since = |text: &str| text.parse::<From>().map(|from| from.since);
        let id = MessageId::from_u128(77);
        assert_eq!(since("start"), Ok(ReplayFrom::Start));
        assert_eq!(since("now"), Ok(ReplayFrom::Now));
        assert_eq!(since(&id.to_string()), Ok(ReplayFrom::Id(id)));
        assert_eq!(since("2026-11-15T08:00:00Z"), text::time("2026-11-15T08:00:00Z").map(ReplayFrom::Time));
        assert!(since("yesterday").unwrap_err().contains("start"));
    }
}
