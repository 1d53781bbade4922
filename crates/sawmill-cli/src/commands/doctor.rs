//! `sawmill doctor`: reports problems of the store and how to fix them.

use std::time::Duration;

use clap::Args;
use sawmill::engine::storage::Finding;

use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::output::note;
use crate::terminal::table::Table;
use crate::terminal::text;

#[derive(Debug, Args)]
#[command(after_help = "\
The doctor takes two samples, one worker TTL apart. If other workers might take over from silent
ones, it takes a third sample five seconds later.

It finds claims without a live worker, keys that a failing message blocks, keys that most messages
share, wrong clocks, and groups that keep a topic from being trimmed. In the database it finds
settings under which a crash loses messages, transactions held open, missing rights, and
notifications that do not arrive. It also reports checks that it has no rights for.

The exit code is 0 if no problem was found, and 1 otherwise.

Examples:
  sawmill doctor
  sawmill doctor --wait 1m
  sawmill doctor --json | jq -r .what_to_do")]
pub(crate) struct DoctorArgs {
    /// The longest total time to wait. Workers with a longer TTL count as alive, transactions that are open
    /// for longer as forgotten
    #[arg(long, value_name = "DURATION", value_parser = text::duration, default_value = "15s")]
    wait: Duration,
}

pub(crate) async fn run(args: DoctorArgs, session: &Session) -> Result<(), Failure> {
    let mill = session.open().await?;
    let findings = mill.admin().doctor(args.wait).await?;
    if session.out.is_json() {
        session.out.list(&findings, |_| Table::new([]))?;
    } else {
        session.out.print(&findings.iter().map(describe).collect::<Vec<_>>().join("\n\n"))?;
    }
    match findings.iter().filter(|finding| finding.is_problem()).count() as u64 {
        0 if session.out.is_json() => Ok(()),
        0 => {
            note(match findings.is_empty() {
                true => "Nothing is wrong.",
                false => "Nothing is wrong, as far as can be seen.",
            });
            Ok(())
        }
        count => Err(Failure::failed(format!("the doctor has found {}", text::counted(count, "problem")))),
    }
}

/// Formats a finding for people. Text that comes from messages is escaped.
fn describe(finding: &Finding) -> String {
    let mut place = String::new();
    if let Some(topic) = &finding.topic {
        place = format!(", topic {topic}");
    }
    if let Some(group) = &finding.group {
        place += &format!(", group {group}");
    }
    let name = finding.check.replace('-', " ");
    format!("{name}{place}: {}\n  to do: {}", text::printable(&finding.what), finding.what_to_do)
}
