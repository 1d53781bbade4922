//! `sawmill doctor`: what is wrong with the store, and what to do about it.

use std::time::Duration;

use clap::Args;
use sawmill::Finding;

use crate::failure::Failure;
use crate::output::note;
use crate::session::Session;
use crate::table::Table;
use crate::text;

#[derive(Debug, Args)]
#[command(after_help = "\
It looks twice, as far apart as the workers may be silent (their TTL), and five seconds later once
more if others might take over from the silent. It finds claims that nobody works, keys that a
failing message blocks or that most messages have, clocks that are wrong, and groups that keep a
topic from being trimmed. Of the store's engine it finds settings under which a crash loses
messages, transactions held open, rights that are missing, and notifications that do not arrive.
What it could not look at, for want of rights, it says. The exit code is 0 if nothing is wrong as
far as it can see, and 1 if something is.

Examples:
  sawmill doctor
  sawmill doctor --wait 1m
  sawmill doctor --json | jq -r .what_to_do")]
pub(crate) struct DoctorArgs {
    /// How long to look at most; who may be silent for longer is taken to be alive, and a transaction
    /// that is open for longer is taken to be forgotten
    #[arg(long, value_name = "DURATION", value_parser = text::duration, default_value = "15s")]
    wait: Duration,
}

pub(crate) async fn run(args: DoctorArgs, session: &Session) -> Result<(), Failure> {
    let mill = session.open().await?;
    let findings = mill.check_up(args.wait).await?;
    if session.out.is_json() {
        session.out.list(&findings, |_| Table::new([]))?;
    } else {
        session.out.print(&findings.iter().map(told).collect::<Vec<_>>().join("\n\n"))?;
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

/// A finding for people. What comes from messages is shown as it can be printed.
fn told(finding: &Finding) -> String {
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
