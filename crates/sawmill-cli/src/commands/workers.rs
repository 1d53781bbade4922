//! `sawmill workers`: lists the workers, what they have claimed, and what they run.

use clap::Args;
use sawmill::Timestamp;
use sawmill::admin::WorkerInfo;
use sawmill::engine::model::RunningMessage;
use serde::Serialize;

use crate::commands::topic;
use crate::failure::Failure;
use crate::group;
use crate::session::Session;
use crate::terminal::output::note;
use crate::terminal::table::{Cell, Table};
use crate::terminal::text;

#[derive(Debug, Args)]
#[command(after_help = "\
A dead worker stays listed until the other workers notice, which takes at most its TTL.

Examples:
  sawmill workers
  sawmill workers emails
  sawmill workers --group totals --json")]
pub(crate) struct WorkersArgs {
    /// Only workers of this topic
    topic: Option<String>,
    /// Only workers of this group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
}

/// A worker as it is printed.
#[derive(Debug, Serialize)]
struct Shown {
    worker: String,
    group: String,
    topics: Vec<String>,
    concurrency: u32,
    claimed: u64,
    last_heartbeat_at: Option<String>,
    ttl_seconds: f64,
    running: Vec<RunningShown>,
    #[serde(skip)]
    last_heartbeat: Option<Timestamp>,
}

/// A message that runs, with the note of its handler.
#[derive(Debug, Serialize)]
struct RunningShown {
    id: String,
    topic: String,
    since: String,
    note: String,
    #[serde(skip)]
    started: Timestamp,
}

impl From<RunningMessage> for RunningShown {
    fn from(running: RunningMessage) -> Self {
        Self {
            id: running.id.to_string(),
            topic: running.topic,
            since: text::rfc3339(running.since),
            note: running.note,
            started: running.since,
        }
    }
}

impl From<WorkerInfo> for Shown {
    fn from(member: WorkerInfo) -> Self {
        Self {
            worker: member.id.to_string(),
            group: member.group.to_string(),
            topics: member.topics,
            concurrency: member.concurrency,
            claimed: member.claimed,
            last_heartbeat_at: member.last_heartbeat.map(text::rfc3339),
            ttl_seconds: member.ttl.as_secs_f64(),
            running: member.running.into_iter().map(RunningShown::from).collect(),
            last_heartbeat: member.last_heartbeat,
        }
    }
}

impl Shown {
    /// The last heartbeat, by the worker's own clock, which may be wrong.
    fn heartbeat(&self, now: Timestamp) -> Cell {
        match self.last_heartbeat {
            None => "-".into(),
            Some(heartbeat) if now.since(heartbeat).as_secs_f64() > self.ttl_seconds => {
                Cell::bad(format!("{} (silent)", text::ago(heartbeat, now)))
            }
            Some(heartbeat) => text::ago(heartbeat, now).into(),
        }
    }
}

pub(crate) async fn run(args: WorkersArgs, session: &Session) -> Result<(), Failure> {
    let mill = session.open().await?;
    if let Some(name) = &args.topic {
        topic::find(&mill, name).await?;
        if let Some(group) = &args.group {
            group::find(&mill, name, group).await?;
        }
    }
    let mut members = match &args.group {
        Some(group) => mill.admin().workers(group).await?,
        None => mill.admin().all_workers().await?,
    };
    if let Some(name) = &args.topic {
        members.retain(|member| member.topics.contains(name));
    }
    let workers: Vec<Shown> = members.into_iter().map(Shown::from).collect();
    if workers.is_empty() && !session.out.is_json() {
        note("There are no workers: `sawmill work TOPIC -- COMMAND` starts one.");
        return Ok(());
    }
    let now = session.now();
    session.out.list(&workers, |workers| table(workers, now))?;
    if !session.out.is_json() && workers.iter().any(|worker| !worker.running.is_empty()) {
        session.out.print(&format!("\n{}", running(&workers, now).to_string().trim_end()))?;
    }
    Ok(())
}

fn table(workers: &[Shown], now: Timestamp) -> Table {
    let mut table = Table::new(["WORKER", "GROUP", "TOPICS", ">CONCURRENCY", ">CLAIMED", "LAST HEARTBEAT"]);
    for worker in workers {
        table.row([
            worker.worker.as_str().into(),
            worker.group.as_str().into(),
            worker.topics.join(", ").into(),
            worker.concurrency.to_string().into(),
            text::count(worker.claimed).into(),
            worker.heartbeat(now),
        ]);
    }
    table
}

/// The messages that run, with the notes of their handlers.
fn running(workers: &[Shown], now: Timestamp) -> Table {
    let mut table = Table::new(["RUNNING", "TOPIC", "WORKER", "STARTED", "NOTE"]);
    for worker in workers {
        for running in &worker.running {
            table.row([
                running.id.as_str().into(),
                running.topic.as_str().into(),
                worker.worker.as_str().into(),
                text::ago(running.started, now).into(),
                text::preview(running.note.as_bytes(), 80).into(),
            ]);
        }
    }
    table
}
