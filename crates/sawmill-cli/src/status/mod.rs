//! `sawmill status`: where every group stands, and whether it is behind.

mod verdict;

use std::io::{self, IsTerminal};
use std::time::Duration;

use clap::Args;
use sawmill::clock::Moment;
use sawmill::{GroupStatus, MemberInfo, Sawmill, Timestamp};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::note;
use crate::session::Session;
use crate::table::{Cell, Table};
use crate::{group, text, topic};
use verdict::{Outlook, Rates, Sample, Verdict, judge};

/// How often the picture is drawn anew.
const WATCH_EVERY: Duration = Duration::from_secs(2);
/// Clears the terminal and goes to its top.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

#[derive(Debug, Args)]
#[command(after_help = "\
Rates are what happened between two looks. Of jobs that take long, look for longer: --sample 30s.
Verdicts: idle, keeping-up, behind, paused, no-workers, no-groups.

Examples:
  sawmill status
  sawmill status emails --sample 10s
  sawmill status --watch
  sawmill status --json | jq -r 'select(.verdict == \"behind\") | .topic'")]
pub(crate) struct StatusArgs {
    /// Only this topic
    topic: Option<String>,
    /// The time between the two looks that rates are told from; 0s for one look, without rates
    #[arg(long, value_name = "DURATION", value_parser = text::duration, default_value = "1s")]
    sample: Duration,
    /// Draw it anew every two seconds, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

/// A group, looked at once.
struct Look {
    topic: String,
    group: Option<String>,
    status: GroupStatus,
    workers: u64,
    slots: u64,
    at: Moment,
}

/// A group as it is printed.
#[derive(Debug, Serialize)]
struct Shown {
    topic: String,
    group: Option<String>,
    waiting: u64,
    oldest_at: Option<String>,
    oldest_seconds: Option<f64>,
    scheduled: u64,
    claimed: u64,
    retrying: u64,
    done: u64,
    dead: u64,
    dropped: u64,
    cancelled: u64,
    workers: u64,
    slots: u64,
    paused: bool,
    finished_per_second: Option<f64>,
    growth_per_second: Option<f64>,
    verdict: &'static str,
    detail: String,
    done_in_seconds: Option<f64>,
    more_workers: Option<u64>,
}

pub(crate) async fn run(args: StatusArgs, session: &Session) -> Result<(), Failure> {
    let mill = session.open().await?;
    if let Some(name) = &args.topic {
        topic::find(&mill, name).await?;
    }
    if !args.watch {
        let before = look(&mill, &args, session).await?;
        if before.is_empty() || args.sample.is_zero() {
            return print(session, &shown(&before, &[], session.now()), "");
        }
        session.env.sleep(args.sample).await;
        let now = look(&mill, &args, session).await?;
        return print(session, &shown(&now, &before, session.now()), "");
    }
    if !session.out.is_json() && !io::stdout().is_terminal() {
        return Err(Failure::usage("--watch draws on a terminal: leave it out, or use it with --json"));
    }
    let mut before = Vec::new();
    loop {
        let now = look(&mill, &args, session).await?;
        print(session, &shown(&now, &before, session.now()), CLEAR)?;
        before = now;
        session.env.sleep(WATCH_EVERY).await;
    }
}

/// Looks at all groups of all topics that are meant.
async fn look(mill: &Sawmill, args: &StatusArgs, session: &Session) -> Result<Vec<Look>, Failure> {
    let members = mill.all_members().await?;
    let mut looks = Vec::new();
    for topic in mill.topics().await? {
        let name = topic.name.to_string();
        if args.topic.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        let groups = group::names(mill, &name).await?;
        if groups.is_empty() {
            // All there is waits for whichever group comes first.
            let status = mill.status(&name, group::DEFAULT).await?;
            looks.push(Look::new(&name, None, status, &members, session.env.now()));
        }
        for group in groups {
            let status = mill.status(&name, &group).await?;
            looks.push(Look::new(&name, Some(group), status, &members, session.env.now()));
        }
    }
    Ok(looks)
}

impl Look {
    fn new(
        topic: &str,
        group: Option<String>,
        status: GroupStatus,
        members: &[MemberInfo],
        at: Moment,
    ) -> Self {
        let works = |member: &&MemberInfo| {
            Some(member.group.to_string()) == group && member.topics.iter().any(|name| name == topic)
        };
        let workers: Vec<&MemberInfo> = members.iter().filter(works).collect();
        Self {
            topic: topic.to_owned(),
            workers: workers.len() as u64,
            slots: workers.iter().map(|worker| u64::from(worker.slots)).sum(),
            group,
            status,
            at,
        }
    }

    fn sample(&self, now: Timestamp) -> Sample {
        let status = &self.status;
        Sample {
            waiting: status.waiting,
            oldest: status.lag(now),
            scheduled: status.scheduled,
            claimed: status.claimed,
            retrying: status.retrying,
            finished: status.done + status.dead + status.dropped + status.cancelled,
            workers: self.workers,
            paused: status.paused,
        }
    }

    fn shown(&self, before: Option<&Look>, now: Timestamp) -> Shown {
        let (sample, status) = (self.sample(now), &self.status);
        let rates =
            before.and_then(|before| Rates::between(&before.sample(now), &sample, self.at.since(before.at)));
        let verdict = match &self.group {
            Some(_) => judge(&sample, rates),
            None => Verdict::NoGroups { waiting: sample.waiting },
        };
        let (done_in, more_workers) = match verdict.outlook() {
            Outlook::DoneIn(time) => (Some(time.as_secs_f64()), None),
            Outlook::Never { more_workers } => (None, Some(more_workers)),
            Outlook::Unknown | Outlook::NothingFinished => (None, None),
        };
        Shown {
            topic: self.topic.clone(),
            group: self.group.clone(),
            waiting: status.waiting,
            oldest_at: status.oldest.map(text::rfc3339),
            oldest_seconds: status.oldest.map(|_| sample.oldest.as_secs_f64()),
            scheduled: status.scheduled,
            claimed: status.claimed,
            retrying: status.retrying,
            done: status.done,
            dead: status.dead,
            dropped: status.dropped,
            cancelled: status.cancelled,
            workers: self.workers,
            slots: self.slots,
            paused: status.paused,
            finished_per_second: rates.map(|rates| rates.finished),
            growth_per_second: rates.map(|rates| rates.growth),
            verdict: verdict.name(),
            detail: verdict.to_string(),
            done_in_seconds: done_in,
            more_workers,
        }
    }
}

/// Each group beside what it was before, if it was there.
fn shown(looks: &[Look], before: &[Look], now: Timestamp) -> Vec<Shown> {
    let earlier =
        |look: &Look| before.iter().find(|other| (&other.topic, &other.group) == (&look.topic, &look.group));
    looks.iter().map(|look| look.shown(earlier(look), now)).collect()
}

fn print(session: &Session, groups: &[Shown], before: &str) -> Result<(), Failure> {
    if session.out.is_json() {
        return session.out.list(groups, table);
    }
    if groups.is_empty() {
        note("There are no topics yet: `sawmill push TOPIC PAYLOAD` makes one.");
        return Ok(());
    }
    let mut picture = format!("{before}{}", table(groups));
    // Sentences are too long for a table.
    for sentence in groups.iter().filter_map(Shown::sentence) {
        picture += &format!("\n{sentence}");
    }
    session.out.print(picture.trim_end())
}

impl Shown {
    /// The verdict, if there is more to it than the table says.
    fn sentence(&self) -> Option<String> {
        let group = self.group.as_ref().map_or_else(String::new, |group| format!(", group {group}"));
        let says_more = self.detail.contains(';');
        says_more.then(|| format!("{}{group}: {}", self.topic, self.detail))
    }

    fn verdict_cell(&self) -> Cell {
        let words = self.verdict.replace('-', " ");
        match self.verdict {
            "behind" | "no-workers" => Cell::bad(words),
            "paused" | "no-groups" => Cell::worrying(words),
            _ => Cell::good(words),
        }
    }
}

fn table(groups: &[Shown]) -> Table {
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
            group.verdict_cell(),
        ]);
    }
    table
}
