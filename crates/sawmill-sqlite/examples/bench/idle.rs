//! What a worker costs that has nothing to do: a process of its own, left alone for a while.

use std::path::Path;

use crate::Failure;
use crate::child;
use crate::report::{Figure, Report, Wanted, progress};
use crate::settings::Settings;

pub(crate) fn measure(settings: &Settings, folder: &Path, report: &mut Report) -> Result<(), Failure> {
    let seconds = settings.idle_seconds;
    progress(&format!("an idle worker, {seconds} s after it has come to rest"));
    let path = folder.join("idle.db");
    let said = child::start(&["idle", &path.to_string_lossy(), &seconds.to_string()])?;
    let each = |name: &str| said.number(name).map(|count| count / seconds as f64);
    let timers = Figure::new("idle_wakeups", "idle worker: timers that went off", "/s", each("timers")?);
    report.add(timers.wanted(Wanted::AtMost(1.0)));
    let reads = Figure::new("idle_reads", "idle worker: reads of the store", "/s", each("reads")?);
    report.add(reads);
    report.add(Figure::new("idle_writes", "idle worker: writes to the store", "/s", each("writes")?));
    let switches = "idle worker: context switches, all threads";
    report.add(Figure::new("idle_switches", switches, "/s", each("switches")?));
    let cpu = Figure::new("idle_cpu", "idle worker: processor time", "ms/s", each("cpu_ns")? / 1e6);
    report.add(cpu);
    Ok(())
}
