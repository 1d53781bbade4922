//! `sawmill replay`: a group handles messages again, or skips them.

use std::str::FromStr;

use clap::Args;
use sawmill::{MessageId, Since};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{confirm, note};
use crate::session::Session;
use crate::{group, text};

#[derive(Debug, Args)]
#[command(after_help = "\
The group may be at work: what its workers have in hand is finished, then they go on from the new
place. Retries that wait, messages that are not due, and dead letters stay as they are. Messages
that the topic has dropped do not come back. Other groups notice nothing.

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
    /// From where on: start, a time, the id of a message, or now to skip all that waits
    #[arg(long, value_name = "start|TIME|ID|now")]
    from: From,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// From where on, as it was written.
#[derive(Debug, Clone)]
struct From {
    since: Since,
    text: String,
}

impl FromStr for From {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let since = match text {
            "start" => Since::Start,
            "now" => Since::Now,
            _ => match (text.parse::<MessageId>(), text::time(text)) {
                (Ok(id), _) => Since::Id(id),
                (_, Ok(time)) => Since::Time(time),
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

/// What lies before the group now, as it is printed.
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
            Since::Start => format!("Have group {group} of topic {topic} handle every message again?"),
            Since::Now => format!("Have group {group} of topic {topic} skip all that waits?"),
            _ => format!(
                "Have group {group} of topic {topic} handle everything again from {}, and skip what is before?",
                from.text
            ),
        },
    )?;
    mill.seek(&topic, &group, from.since).await?;
    let waiting = mill.status(&topic, &group).await?.waiting;
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
        assert_eq!(since("start"), Ok(Since::Start));
        assert_eq!(since("now"), Ok(Since::Now));
        assert_eq!(since(&id.to_string()), Ok(Since::Id(id)));
        assert_eq!(since("2026-11-15T08:00:00Z"), text::time("2026-11-15T08:00:00Z").map(Since::Time));
        assert!(since("yesterday").unwrap_err().contains("start"));
    }
}
