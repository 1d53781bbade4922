//! A child process: opens the store, works or pushes, and records its events. It ends when told to stop, or
//! when the test that started it is gone.

use std::fs;
use std::io::BufRead;
use std::thread;
use std::time::Duration;

use sawmill::engine::runtime::Env;
use sawmill::telemetry::Event;
use sawmill::{Context, Push, Sawmill, Worker};
use tokio::sync::oneshot;

use super::job::{GROUP, Job, Role, TOPIC, open};
use super::record::{self, Record};
use crate::behaviours::Subject;

/// Written to a child's standard input to stop it.
pub const STOP: &str = "stop";

/// Runs the job of this process, if it is a child.
pub fn run_job(on: Subject) {
    if let Some(job) = Job::of_this_process() {
        run(on, &job);
    }
}

fn run(on: Subject, job: &Job) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let told = listen();
    runtime.block_on(async {
        match job.role {
            Role::Worker => work(on, job, told).await,
            Role::PushAndWork => push_and_work(on, job).await,
            Role::OpenAt(at) => open_at(on, job, at).await,
        }
    });
}

/// Completes when the child is told to stop. If the test is gone, the input closes and the process exits.
fn listen() -> oneshot::Receiver<()> {
    let (tell, told) = oneshot::channel();
    thread::spawn(move || {
        let mut tell = Some(tell);
        for line in std::io::stdin().lock().lines() {
            if line.is_ok_and(|line| line == STOP)
                && let Some(tell) = tell.take()
            {
                let _ = tell.send(());
            }
        }
        std::process::exit(3);
    });
    told
}

async fn work(on: Subject, job: &Job, told: oneshot::Receiver<()>) {
    let mill = open(on, &job.folder).await;
    record_deaths(job, &mill);
    let mut workers = Vec::new();
    for nth in 0..job.workers {
        let name = if job.workers == 1 { job.name.clone() } else { format!("{}.{nth}", job.name) };
        workers.push(start(job, &mill, name).await);
    }
    told.await.unwrap();
    let mut report = String::new();
    for worker in workers {
        let counts = worker.stop().await;
        report.push_str(&format!("{counts:?}\n"));
    }
    fs::write(job.folder.join(format!("{}.counts", job.name)), report).unwrap();
}

/// Records which workers this process declares dead, and which of its own find themselves declared dead.
fn record_deaths(job: &Job, mill: &Sawmill) {
    let (record, mut events) = (Record::open(&job.folder, &format!("{}-deaths", job.name)), mill.events());
    Env::system().spawn(async move {
        while let Some(event) = events.next().await {
            if let Event::DeclaredDead { worker, .. } | Event::Evicted { worker, .. } = event {
                record.declared_dead(&worker);
            }
        }
    });
}

/// Starts a worker whose handler records its start and end.
async fn start(job: &Job, mill: &Sawmill, name: String) -> Worker {
    let record = Record::open(&job.folder, &name);
    let mut builder = mill
        .worker(TOPIC)
        .group(GROUP)
        .name(&name)
        .concurrency(job.slots)
        .ttl(job.ttl)
        .delivery(job.delivery);
    if job.ordered {
        builder = builder.ordered();
    }
    if let Some(most) = job.max_in_flight {
        builder = builder.max_in_flight(most);
    }
    if job.journal {
        builder = builder.journal(job.folder.join(format!("{name}.journal")));
    }
    let (work, stuck) = (job.work, job.stuck.clone());
    let handler = move |context: Context| {
        let (record, name) = (record.clone(), name.clone());
        let is_stuck = stuck.as_ref().is_some_and(|stuck| stuck.as_bytes() == context.payload());
        async move {
            record.started(&context, &name);
            if is_stuck {
                std::future::pending::<()>().await;
            }
            if !work.is_zero() {
                Env::system().sleep(work).await;
            }
            record.finished(&context, &name);
        }
    };
    builder.start(handler).await.unwrap()
}

/// Pushes at full speed, in batches of changing size, and handles the messages.
async fn push_and_work(on: Subject, job: &Job) {
    let mill = open(on, &job.folder).await;
    mill.create_topic(TOPIC).await.unwrap();
    record_deaths(job, &mill);
    let _worker = start(job, &mill, job.name.clone()).await;
    let record = Record::open(&job.folder, &format!("{}-pushes", job.name));
    for round in 0u64.. {
        let batch: Vec<Push> = (0..round % 7).map(|nth| Push::new(format!("{round} {nth}"))).collect();
        for id in mill.push_many(TOPIC, batch).await.unwrap() {
            record.pushed(id, None);
        }
        // Leaves time for its worker and the disk.
        Env::system().sleep(Duration::from_millis(1)).await;
    }
}

/// Spins without yielding the processor, so that all children open at the same moment.
async fn open_at(on: Subject, job: &Job, at: u64) {
    while record::now() < at {
        std::hint::spin_loop();
    }
    let mill = open(on, &job.folder).await;
    mill.create_topic(TOPIC).await.unwrap();
    let id = mill.push(TOPIC, job.name.clone()).await.unwrap();
    Record::open(&job.folder, &job.name).pushed(id, None);
}
