//! Runs this program again as a child process that does one job and prints its cost.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sawmill::engine::runtime::{Clock, Env, Moment, Spawn, SystemClock, SystemRng};
use sawmill::{Context, Timestamp};
use tokio::sync::oneshot;

use crate::Failure;
use crate::subject::Subject;
use crate::{serve, throughput};

type Task = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// The time in which a worker comes to rest.
const SETTLING: Duration = Duration::from_secs(10);

/// The numbers that a child printed, by name.
pub(crate) struct Output(BTreeMap<String, f64>);

impl Output {
    pub(crate) fn number(&self, name: &str) -> Result<f64, Failure> {
        Ok(self.0.get(name).copied().ok_or_else(|| format!("the child did not say {name}"))?)
    }
}

/// Starts a child for the same engine and waits until it ends.
pub(crate) fn start(job: &[&str]) -> Result<Output, Failure> {
    let engine = std::env::args().nth(1).unwrap_or_default();
    let mut child = Command::new(std::env::current_exe()?);
    let output = child.args([&engine, "child"]).args(job).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("the child that was to {} ended with {}", job[0], output.status).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let pair = |line: &str| {
        let (name, number) = line.split_once('=')?;
        Some((name.to_owned(), number.parse().ok()?))
    };
    Ok(Output(text.lines().filter_map(pair).collect()))
}

/// Runs the job of a child.
pub(crate) async fn run(subject: &dyn Subject, job: &[String]) -> Result<(), Failure> {
    let job: Vec<&str> = job.iter().map(String::as_str).collect();
    match job[..] {
        ["push", store, count] => push(subject, store, count.parse()?).await,
        ["work", store, group, count] => work(subject, store, group, count.parse()?).await,
        ["idle", store, seconds] => idle(subject, store, Duration::from_secs(seconds.parse()?)).await,
        ["serve", store] => serve::serve(subject, store).await,
        _ => Err("a child does not know what to do".into()),
    }
}

fn print(name: &str, number: impl std::fmt::Display) {
    println!("{name}={number}");
}

async fn push(subject: &dyn Subject, store: &str, count: usize) -> Result<(), Failure> {
    let opened = subject.open(store, Env::system()).await?;
    opened.mill().create_topic("bench").await?;
    throughput::push(opened.mill(), "bench", count).await
}

/// Works until this many messages were handled, and prints the time since the first one.
async fn work(subject: &dyn Subject, store: &str, group: &str, count: u64) -> Result<(), Failure> {
    let env = Env::system();
    let opened = subject.open(store, env.clone()).await?;
    let (first, begun) = oneshot::channel();
    let (last, ended) = oneshot::channel();
    let marks = std::sync::Mutex::new((Some(first), Some(last)));
    let (handled, clock) = (AtomicU64::new(0), env.clone());
    let handler = move |_: Context| {
        let nth = handled.fetch_add(1, Ordering::Relaxed) + 1;
        if nth == 1 || nth == count {
            let mut marks = marks.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let mark = if nth == 1 { marks.0.take() } else { marks.1.take() };
            // The receivers are alive until both have been sent.
            let _ = mark.map(|mark| mark.send(clock.now()));
        }
        async {}
    };
    let worker = opened.mill().worker("bench").group(group).start(handler).await?;
    let (begun, ended): (Moment, Moment) = (begun.await?, ended.await?);
    worker.stop().await;
    print("seconds", ended.since(begun).as_secs_f64());
    print("peak_kib", peak_kib()?);
    Ok(())
}

/// Leaves a worker idle, and prints what it did meanwhile.
async fn idle(subject: &dyn Subject, store: &str, time: Duration) -> Result<(), Failure> {
    let timers = Timers::default();
    let opened = subject.open(store, Env::new(timers.clone(), SystemRng, SystemSpawn)).await?;
    let mill = opened.mill();
    mill.create_topic("bench").await?;
    let worker = mill.worker("bench").start(|_: Context| async {}).await?;
    mill.push("bench", "the last one for a while").await?;
    worker.drained().await;
    SystemClock.sleep(SETTLING).await;
    let (fired, before) = (timers.fired(), opened.tally().await?);
    let (switched, used) = threads()?;
    SystemClock.sleep(time).await;
    let (switches, cpu_ns) = threads()?;
    let done = opened.tally().await?.since(before);
    // The timer that ends the measurement is not counted.
    print("timers", timers.fired() - fired + done.looks);
    print("reads", done.queries - done.commits);
    print("writes", done.commits);
    print("switches", switches - switched);
    print("cpu_ns", cpu_ns - used);
    worker.stop().await;
    Ok(())
}

/// A clock that counts completed sleeps.
#[derive(Clone, Default)]
struct Timers(Arc<AtomicU64>);

impl Timers {
    fn fired(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Clock for Timers {
    fn now(&self) -> Moment {
        SystemClock.now()
    }

    fn wall(&self) -> Timestamp {
        SystemClock.wall()
    }

    fn sleep(&self, duration: Duration) -> Task {
        let fired = self.0.clone();
        Box::pin(async move {
            SystemClock.sleep(duration).await;
            fired.fetch_add(1, Ordering::Relaxed);
        })
    }
}

struct SystemSpawn;

impl Spawn for SystemSpawn {
    fn spawn(&self, task: Task) {
        Env::system().spawn(task);
    }
}

/// Returns the peak memory of this process.
fn peak_kib() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    field(&status, "VmHWM:").ok_or_else(|| "this system does not say how much memory was used".into())
}

/// Returns the voluntary context switches of this process's threads and the nanoseconds that they ran.
fn threads() -> Result<(u64, u64), Failure> {
    let (mut switches, mut cpu_ns) = (0, 0);
    for thread in std::fs::read_dir("/proc/self/task")? {
        let thread = thread?.path();
        let status = std::fs::read_to_string(thread.join("status"))?;
        switches += field(&status, "voluntary_ctxt_switches:").unwrap_or_default();
        let ran = std::fs::read_to_string(thread.join("schedstat"))?;
        cpu_ns += ran.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
    }
    Ok((switches, cpu_ns))
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}
