//! How fast it is, and what it costs: raw SQLite and Sawmill in one run, on the same disk, so that their ratio means
//! something on any machine.
//!
//! `cargo xtask bench sqlite`; `cargo xtask help` lists the options. Everything is written to a folder in the current
//! directory that is removed at the end. Where there are rounds, raw SQLite and Sawmill take turns and the best round of each
//! counts: what else the machine does can only make a round slower.

mod backlog;
mod child;
mod idle;
mod latency;
mod raw;
mod report;
mod settings;
mod single;
mod throughput;

use std::path::Path;

use report::Report;
use settings::{Part, Settings};

type Failure = Box<dyn std::error::Error>;

/// Messages in one push, and in one transaction of raw SQLite.
const BATCH: usize = 1000;
const PAYLOAD: [u8; 100] = [b'x'; 100];

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if let Some(job) = arguments.strip_prefix(&["child".to_owned()][..]) {
        return child::run(&runtime, job);
    }
    let settings = Settings::parse(arguments)?;
    let folder = tempfile::Builder::new().prefix("sawmill-bench-").tempdir_in(".")?;
    let mut report = Report::default();
    for part in &settings.parts {
        let path = folder.path().join(part.name());
        std::fs::create_dir(&path)?;
        measure(*part, &runtime, &settings, &path, &mut report)?;
        std::fs::remove_dir_all(&path)?;
    }
    if settings.json { report.print_json() } else { report.print() }
}

fn measure(
    part: Part,
    runtime: &tokio::runtime::Runtime,
    settings: &Settings,
    folder: &Path,
    report: &mut Report,
) -> Result<(), Failure> {
    match part {
        Part::Throughput => throughput::measure(runtime, settings, folder, report),
        Part::Single => single::measure(runtime, settings, folder, report),
        Part::Latency => latency::measure(runtime, settings, folder, report),
        Part::Backlog => backlog::measure(settings, folder, report),
        Part::Idle => idle::measure(settings, folder, report),
    }
}

fn url(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

/// The value below which this part of the sorted values lies.
fn percentile(sorted: &[f64], part: f64) -> f64 {
    let at = (sorted.len() as f64 * part) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}
