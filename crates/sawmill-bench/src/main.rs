//! Measures the speed and the cost of Sawmill. An engine alone and Sawmill on it are measured in one run on
//! the same disk, so that their ratio is meaningful on any machine.
//!
//! Run `cargo xtask bench ENGINE`; `cargo xtask help` lists the options. SQLite files are in a folder in the
//! current directory that is removed at the end. Other engines are found through `SAWMILL_TEST_POSTGRES`,
//! `SAWMILL_TEST_MYSQL`, `SAWMILL_TEST_KAFKA`, `SAWMILL_TEST_CASSANDRA` and `SAWMILL_TEST_ZOOKEEPER`. In
//! measurements with rounds, the engine alone and Sawmill alternate and the best round of each counts: other
//! load on the machine can only make a round slower.
#![allow(clippy::disallowed_methods, reason = "a benchmark runs in real time")]

mod backlog;
mod cassandra;
mod child;
mod commit;
mod idle;
mod kafka;
mod latency;
mod mysql;
mod pin;
mod postgres;
mod report;
mod serve;
mod settings;
mod single;
mod sqlite;
mod subject;
mod throughput;
mod zookeeper;

use report::Report;
use settings::{Part, Settings};
use subject::Subject;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Messages in one push, and in one transaction of the engine alone.
const BATCH: usize = 1000;
const PAYLOAD: [u8; 100] = [b'x'; 100];
/// The number of shards of a topic by default.
const SHARDS: usize = 16;

fn main() -> Result<(), Failure> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if arguments.is_empty() {
        return Err("say which engine: sqlite, postgres, mysql, kafka, cassandra or zookeeper".into());
    }
    let engine = arguments.remove(0);
    if let Some(job) = arguments.strip_prefix(&["child".to_owned()][..]) {
        // A child gets the name of a store, so it needs no folder for new ones.
        return runtime.block_on(child::run(&*subject(&engine, ".")?, job));
    }
    let settings = Settings::parse(arguments)?;
    if engine == "zookeeper" {
        let mut report = Report::default();
        runtime.block_on(zookeeper::measure(&settings, &mut report))?;
        return report.print_as(&settings);
    }
    let folder = tempfile::Builder::new().prefix("sawmill-bench-").tempdir_in(".")?;
    let subject = subject(&engine, &folder.path().to_string_lossy())?;
    let mut report = Report::default();
    for part in &settings.parts {
        runtime.block_on(measure(*part, &*subject, &settings, &mut report))?;
    }
    report.print_as(&settings)
}

fn subject(engine: &str, folder: &str) -> Result<Box<dyn Subject>, Failure> {
    match engine {
        "sqlite" => Ok(Box::new(sqlite::Sqlite::new(folder))),
        "postgres" => Ok(Box::new(postgres::Postgres::new()?)),
        "mysql" => Ok(Box::new(mysql::Mysql::new()?)),
        "kafka" => Ok(Box::new(kafka::Kafka::new()?)),
        "cassandra" => Ok(Box::new(cassandra::Cassandra::new()?)),
        other => Err(format!(
            "there is no engine {other:?}: use sqlite, postgres, mysql, kafka, cassandra or zookeeper"
        )
        .into()),
    }
}

/// Reads the URL of the engine's server from this variable.
fn url(variable: &str) -> Result<String, Failure> {
    std::env::var(variable).map_err(|_| format!("{variable} must say where the server is").into())
}

async fn measure(
    part: Part,
    subject: &dyn Subject,
    settings: &Settings,
    report: &mut Report,
) -> Result<(), Failure> {
    match part {
        Part::Throughput => throughput::measure(subject, settings, report).await,
        Part::Single => single::measure(subject, settings, report).await,
        Part::Latency => latency::measure(subject, settings, report).await,
        Part::Backlog => backlog::measure(subject, settings, report).await,
        Part::Idle => idle::measure(subject, settings, report).await,
        Part::Commit => commit::measure(subject, settings, report).await,
        Part::Pin => pin::measure(subject, settings, report).await,
        Part::Serve => serve::measure(subject, settings, report).await,
    }
}

/// Returns the value below which this fraction of the sorted values lies.
fn percentile(sorted: &[f64], part: f64) -> f64 {
    let at = (sorted.len() as f64 * part) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}
