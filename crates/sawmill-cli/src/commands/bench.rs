//! `sawmill bench`: measures the program and the library on this store and this machine.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use clap::Args;
use sawmill::engine::runtime::Moment;
use sawmill::{Context, Sawmill};
use serde::Serialize;
use tokio::process::Command;
use tokio::sync::mpsc;

use crate::failure::Failure;
use crate::session::Session;
use crate::settings::StoreSettings;
use crate::terminal::output::note;
use crate::terminal::table::{Cell, Table};
use crate::terminal::text;

/// Messages per push, in the library and in `push --lines`.
const BATCH: u64 = 1_000;
const PAYLOAD_BYTES: usize = 100;

#[derive(Debug, Args)]
#[command(after_help = "\
The benchmark creates its own topics in the store and deletes them at the end.

Examples:
  sawmill bench
  sawmill bench --messages 1000000 --json
  sawmill bench --store sqlite:/mnt/disk/trial.db")]
pub(crate) struct BenchArgs {
    /// The number of messages to push and to work
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    messages: u64,
    /// The number of messages to run in a process each
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    processes: u64,
    /// How long to measure the latency from push to start, at 50 pushes a second
    #[arg(long, value_name = "DURATION", value_parser = text::duration, default_value = "5s")]
    latency: Duration,
}

/// One measurement.
#[derive(Debug, Serialize)]
struct Measure {
    measure: &'static str,
    messages: u64,
    seconds: f64,
    per_second: f64,
    /// The rate relative to the measurement that `against` names, in the same run.
    ratio: Option<f64>,
    against: Option<&'static str>,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
}

impl Measure {
    fn new(measure: &'static str, messages: u64, took: Duration) -> Self {
        let seconds = took.as_secs_f64();
        let per_second = messages as f64 / seconds.max(f64::EPSILON);
        Self {
            measure,
            messages,
            seconds,
            per_second,
            ratio: None,
            against: None,
            p50_ms: None,
            p99_ms: None,
        }
    }

    fn against(mut self, other: &Measure) -> Self {
        self.ratio = Some(self.per_second / other.per_second.max(f64::EPSILON));
        self.against = Some(other.measure);
        self
    }
}

pub(crate) async fn run(args: BenchArgs, session: &Session) -> Result<(), Failure> {
    if args.messages == 0 || args.processes == 0 {
        return Err(Failure::usage("there is nothing to measure with 0 messages: give 1 at least"));
    }
    let bench = Bench {
        mill: session.open().await?,
        session,
        name: format!("bench-{:016x}", session.env.rng().next_u64()),
    };
    let measured = tokio::select! {
        measured = bench.measure(&args) => measured,
        () = crate::commands::demo::interrupted() => Err(Failure::failed("interrupted")),
    };
    bench.delete_topics().await?;
    session.out.list(&measured?, table)
}

fn table(measures: &[Measure]) -> Table {
    let mut table = Table::new(["MEASURE", ">MESSAGES", ">TIME", ">PER SECOND", "COMPARED"]);
    for measure in measures {
        let compared = match (measure.ratio, measure.against, measure.p50_ms, measure.p99_ms) {
            (Some(ratio), Some(against), ..) => format!("{ratio:.2} × {against}"),
            (_, _, Some(p50), Some(p99)) => format!("p50 {p50:.2} ms, p99 {p99:.2} ms"),
            _ => String::new(),
        };
        table.row([
            measure.measure.into(),
            text::count(measure.messages).into(),
            format!("{:.2} s", measure.seconds).into(),
            text::count(measure.per_second.round() as u64).into(),
            Cell::from(compared),
        ]);
    }
    table
}

struct Bench<'a> {
    mill: Sawmill,
    session: &'a Session,
    name: String,
}

impl Bench<'_> {
    async fn measure(&self, args: &BenchArgs) -> Result<Vec<Measure>, Failure> {
        let push = self.push(args.messages).await?;
        let work = self.work(args.messages).await?;
        let lines = self.push_lines(args.messages).await?.against(&push);
        let latency = self.latency(args.latency).await?;
        let processes = self.program("a process per message", args.processes, &["--", "true"]).await?;
        let program = std::env::current_exe()
            .map_err(|error| Failure::failed(format!("the path of this program is unknown: {error}")))?;
        let answer = ["--stream", "--", &program.to_string_lossy(), "bench-answer"];
        let stream = self.program("--stream", args.processes * 20, &answer).await?.against(&processes);
        Ok(vec![push, work, lines, latency, processes, stream])
    }

    fn now(&self) -> Moment {
        self.session.env.now()
    }

    /// Creates a topic for one measurement.
    async fn topic(&self, of: &str) -> Result<String, Failure> {
        note(&format!("measuring: {of} …"));
        let name = format!("{}-{}", self.name, of.trim_start_matches('-').replace(' ', "-"));
        self.mill.create_topic(&name).await?;
        Ok(name)
    }

    async fn fill(&self, topic: &str, count: u64) -> Result<(), Failure> {
        let payload = "x".repeat(PAYLOAD_BYTES);
        let mut left = count;
        while left > 0 {
            let batch = left.min(BATCH);
            self.mill.push_many(topic, (0..batch).map(|_| payload.clone())).await?;
            left -= batch;
        }
        Ok(())
    }

    async fn push(&self, count: u64) -> Result<Measure, Failure> {
        let topic = self.topic("push").await?;
        let began = self.now();
        self.fill(&topic, count).await?;
        Ok(Measure::new("library: push in batches", count, self.now().since(began)))
    }

    async fn work(&self, count: u64) -> Result<Measure, Failure> {
        let topic = format!("{}-push", self.name);
        note("measuring: work …");
        let began = self.now();
        let worker = self.mill.worker(&topic).concurrency(1_000).start(|_message: Context| async {}).await?;
        worker.drained().await;
        worker.stop().await;
        Ok(Measure::new("library: work", count, self.now().since(began)))
    }

    /// Measures `sawmill push --lines` with a file.
    async fn push_lines(&self, count: u64) -> Result<Measure, Failure> {
        let topic = self.topic("lines").await?;
        let mut file = tempfile::tempfile()?;
        let line = "x".repeat(PAYLOAD_BYTES) + "\n";
        for _ in 0..count {
            file.write_all(line.as_bytes())?;
        }
        std::io::Seek::rewind(&mut file)?;
        let began = self.now();
        self.run(&["push", &topic, "--lines"], file.into()).await?;
        Ok(Measure::new("push --lines", count, self.now().since(began)))
    }

    /// Measures `sawmill work`.
    async fn program(&self, measure: &'static str, count: u64, how: &[&str]) -> Result<Measure, Failure> {
        let topic = self.topic(measure).await?;
        self.fill(&topic, count).await?;
        let began = self.now();
        self.run(&[&["work", &topic, "--drain", "--quiet"], how].concat(), Stdio::null()).await?;
        let measured = Measure::new(measure, count, self.now().since(began));
        let status = self.mill.admin().status(&topic, "default").await?;
        match status.done == count {
            true => Ok(measured),
            false => {
                Err(Failure::failed(format!("{measure}: of {count} messages only {} are done", status.done)))
            }
        }
    }

    /// Runs `sawmill` on the same store.
    async fn run(&self, args: &[&str], stdin: Stdio) -> Result<(), Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::failed(format!("the path of this program is unknown: {error}")))?;
        let settings = StoreSettings::of(&self.session.globals, &self.session.file);
        let mut command = Command::new(program);
        // URLs may hold passwords, and every user of the machine can read arguments.
        command.env("SAWMILL_STORE", settings.store);
        for (name, value) in [("SAWMILL_LEDGER", settings.ledger), ("SAWMILL_NAMESPACE", settings.namespace)]
        {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        let status = command
            .args(args)
            .env_remove("SAWMILL_CONFIG")
            .stdin(stdin)
            .stdout(Stdio::null())
            .kill_on_drop(true);
        let status =
            status.status().await.map_err(|error| Failure::failed(format!("cannot be started: {error}")))?;
        match status.success() {
            true => Ok(()),
            false => Err(Failure::failed(format!("`sawmill {}` failed: {status}", args.join(" ")))),
        }
    }

    /// Measures the time from a push to the start of its handler, at 50 pushes a second.
    async fn latency(&self, lasting: Duration) -> Result<Measure, Failure> {
        let topic = self.topic("latency").await?;
        let (started, mut starts) = mpsc::unbounded_channel();
        let env = self.session.env.clone();
        let worker = self.mill.worker(&topic).start(move |_message: Context| {
            // The receiver is gone when the measurement is over.
            let _ = started.send(env.now());
            async {}
        });
        let worker = worker.await?;
        worker.drained().await;
        let pause = Duration::from_millis(20);
        let count = (lasting.as_millis() / pause.as_millis()).max(1) as u64;
        let mut latencies = Vec::new();
        let mut next = self.now();
        for _ in 0..count {
            next = next + pause;
            self.session.env.sleep(next.since(self.now())).await;
            let began = self.now();
            self.mill.push(&topic, "x").await?;
            let start = starts.recv().await.ok_or_else(|| Failure::failed("the worker has stopped"))?;
            latencies.push(start.since(began));
        }
        worker.stop().await;
        latencies.sort_unstable();
        let percentile =
            |hundredth: usize| latencies[(latencies.len() - 1) * hundredth / 100].as_secs_f64() * 1e3;
        let measure = Measure::new("library: push to start", count, lasting);
        Ok(Measure { p50_ms: Some(percentile(50)), p99_ms: Some(percentile(99)), ..measure })
    }

    async fn delete_topics(&self) -> Result<(), Failure> {
        for topic in self.mill.admin().topics().await? {
            if topic.name.to_string().starts_with(&self.name) {
                self.mill.admin().delete_topic(&topic.name.to_string()).await?;
            }
        }
        Ok(())
    }
}

/// Answers every message of a stream at once. This is the command that `bench` runs with `--stream`.
pub(crate) fn answer() -> Result<(), Failure> {
    #[derive(serde::Deserialize)]
    struct Asked {
        id: String,
    }
    #[derive(Serialize)]
    struct Answered {
        id: String,
        ok: bool,
    }
    for line in std::io::stdin().lines() {
        let line = line.map_err(|error| Failure::failed(format!("stdin cannot be read: {error}")))?;
        let asked: Asked = serde_json::from_str(&line).map_err(|error| Failure::usage(error.to_string()))?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", crate::terminal::output::json(&Answered { id: asked.id, ok: true }))?;
        out.flush()?;
    }
    Ok(())
}
