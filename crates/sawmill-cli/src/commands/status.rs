//! `sawmill status`: the backlog of each group, and whether the group keeps up.

use std::io::{self, IsTerminal};
use std::time::Duration;

use clap::Args;
use sawmill::admin::{GroupReport, GroupSnapshot};

use crate::commands::topic;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::output::note;
use crate::terminal::table::{Cell, Table};
use crate::terminal::text;

/// The interval of --watch.
const WATCH_EVERY: Duration = Duration::from_secs(2);
/// Clears the terminal and moves the cursor to its top.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

#[derive(Debug, Args)]
#[command(after_help = "\
Rates are measured between two samples. Use a longer interval for slow jobs, such as --sample 30s.
Verdicts: idle, keeping-up, behind, paused, no-workers, no-groups.

Examples:
  sawmill status
  sawmill status emails --sample 10s
  sawmill status --watch
  sawmill status --json | jq -r 'select(.verdict == \"behind\") | .topic'")]
pub(crate) struct StatusArgs {
    /// Only this topic
    topic: Option<String>,
    /// The time between the two samples that give the rates; 0s takes one sample, without rates
    #[arg(long, value_name = "DURATION", value_parser = text::duration, default_value = "1s")]
    sample: Duration,
    /// Refresh the output every two seconds until Ctrl-C
    #[arg(long)]
    watch: bool,
}

pub(crate) async fn run(args: StatusArgs, session: &Session) -> Result<(), Failure> {
    let mill = session.open().await?;
    if let Some(name) = &args.topic {
        topic::find(&mill, name).await?;
    }
    let only = args.topic.as_deref();
    if !args.watch {
        let before = mill.admin().snapshot(only).await?;
        if before.is_empty() || args.sample.is_zero() {
            return print(session, &GroupSnapshot::reports(&before, &[]), "");
        }
        session.env.sleep(args.sample).await;
        let now = mill.admin().snapshot(only).await?;
        return print(session, &GroupSnapshot::reports(&now, &before), "");
    }
    if !session.out.is_json() && !io::stdout().is_terminal() {
        return Err(Failure::usage("--watch draws on a terminal: leave it out, or use it with --json"));
    }
    let mut before = Vec::new();
    loop {
        let now = mill.admin().snapshot(only).await?;
        print(session, &GroupSnapshot::reports(&now, &before), CLEAR)?;
        before = now;
        session.env.sleep(WATCH_EVERY).await;
    }
}

fn print(session: &Session, groups: &[GroupReport], before: &str) -> Result<(), Failure> {
    if session.out.is_json() {
        return session.out.list(groups, table);
    }
    if groups.is_empty() {
        note("There are no topics yet: `sawmill push TOPIC PAYLOAD` makes one.");
        return Ok(());
    }
    let mut picture = format!("{before}{}", table(groups));
    // Verdicts with details do not fit into a table.
    for sentence in groups.iter().filter_map(sentence) {
        picture += &format!("\n{sentence}");
    }
    session.out.print(picture.trim_end())
}

/// The details of a verdict, if it has more than its name.
fn sentence(report: &GroupReport) -> Option<String> {
    let group = report.group.as_ref().map_or_else(String::new, |group| format!(", group {group}"));
    let says_more = report.detail.contains(';');
    says_more.then(|| format!("{}{group}: {}", report.topic, report.detail))
}

fn verdict_cell(report: &GroupReport) -> Cell {
    let words = report.verdict.replace('-', " ");
    match report.verdict {
        "behind" | "no-workers" => Cell::bad(words),
        "paused" | "no-groups" => Cell::worrying(words),
        _ => Cell::good(words),
    }
}

fn table(groups: &[GroupReport]) -> Table {
    let mut table = Table::new([
        "TOPIC",
        "GROUP",
        ">WAITING",
        ">OLDEST",
        ">SCHEDULED",
        ">CLAIMED",
        ">RETRYING",
        ">DEAD",
        ">RATE",
        ">WORKERS",
        "VERDICT",
    ]);
    for group in groups {
        let dead = text::count(group.dead);
        let oldest = |seconds| text::span(Duration::from_secs_f64(seconds));
        table.row([
            group.topic.as_str().into(),
            group.group.as_deref().unwrap_or("-").into(),
            text::count(group.waiting).into(),
            group.oldest_seconds.map_or_else(|| "-".to_owned(), oldest).into(),
            text::count(group.scheduled).into(),
            text::count(group.claimed).into(),
            text::count(group.retrying).into(),
            if group.dead > 0 { Cell::worrying(dead) } else { dead.into() },
            group.finished_per_second.map_or_else(|| "-".to_owned(), text::rate).into(),
            text::count(group.workers).into(),
            verdict_cell(group),
        ]);
    }
    table
}
