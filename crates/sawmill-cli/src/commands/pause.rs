//! `sawmill pause` and `sawmill resume`: a paused group starts no messages until it is resumed.

use clap::Args;
use serde::Serialize;

use crate::failure::Failure;
use crate::group::{self, GroupArg};
use crate::session::Session;
use crate::terminal::output::note;

#[derive(Debug, Args)]
#[command(after_help = "\
Workers notice within a few seconds. Running messages end normally. Workers keep their claims and
their shards, and pushing goes on. The pause lasts until `sawmill resume`, even if all workers are
replaced.

Examples:
  sawmill pause emails
  sawmill pause orders --group totals")]
pub(crate) struct PauseArgs {
    /// The topic
    topic: String,
    #[command(flatten)]
    group: GroupArg,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sawmill resume emails\n  sawmill resume orders --group totals")]
pub(crate) struct ResumeArgs {
    /// The topic
    topic: String,
    #[command(flatten)]
    group: GroupArg,
}

/// The new state, as it is printed.
#[derive(Debug, Serialize)]
struct Paused {
    topic: String,
    group: String,
    paused: bool,
    changed: bool,
}

pub(crate) async fn pause(args: PauseArgs, session: &Session) -> Result<(), Failure> {
    let (topic, group) = (args.topic, args.group.group);
    let mill = session.open().await?;
    let has_begun = group::names(&mill, &topic).await?.contains(&group);
    let changed = !mill.admin().status(&topic, &group).await?.paused;
    mill.admin().pause(&topic, &group).await?;
    let paused = Paused { topic, group, paused: true, changed };
    let Paused { topic, group, .. } = &paused;
    say(
        session,
        &paused,
        &match (changed, has_begun) {
            (false, _) => format!("Group {group} of topic {topic} was paused already."),
            (true, true) => format!(
                "Paused group {group} of topic {topic}: within a few seconds its workers start nothing more; what runs ends normally."
            ),
            (true, false) => {
                format!("Group {group} of topic {topic} has had no worker yet; when one comes, it is paused.")
            }
        },
    )
}

pub(crate) async fn resume(args: ResumeArgs, session: &Session) -> Result<(), Failure> {
    let (topic, group) = (args.topic, args.group.group);
    let mill = session.open().await?;
    group::find(&mill, &topic, &group).await?;
    let changed = mill.admin().status(&topic, &group).await?.paused;
    mill.admin().resume(&topic, &group).await?;
    let paused = Paused { topic, group, paused: false, changed };
    let Paused { topic, group, .. } = &paused;
    say(
        session,
        &paused,
        &match changed {
            true => {
                format!("Resumed group {group} of topic {topic}: its workers go on within a few seconds.")
            }
            false => format!("Group {group} of topic {topic} was not paused."),
        },
    )
}

fn say(session: &Session, paused: &Paused, words: &str) -> Result<(), Failure> {
    match session.out.is_json() {
        true => session.out.object(paused, |_| String::new()),
        false => {
            note(words);
            Ok(())
        }
    }
}
