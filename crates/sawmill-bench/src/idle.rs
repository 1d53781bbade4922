//! The cost of an idle worker, measured in its own process.

use crate::Failure;
use crate::child;
use crate::report::{Figure, Report, Wanted, progress};
use crate::settings::Settings;
use crate::subject::Subject;

pub(crate) async fn measure(
    subject: &dyn Subject,
    settings: &Settings,
    report: &mut Report,
) -> Result<(), Failure> {
    let seconds = settings.idle_seconds;
    progress(&format!("an idle worker, {seconds} s after it has come to rest"));
    let store = subject.store("idle");
    let output = child::start(&["idle", &store, &seconds.to_string()])?;
    subject.remove(&store).await?;
    let each = |name: &str| output.number(name).map(|count| count / seconds as f64);
    let mut timers = Figure::new("idle_wakeups", "idle worker: timers that went off", "/s", each("timers")?);
    timers.wanted = subject.goals().idle_timers.map(Wanted::AtMost);
    report.add(timers);
    let (reads, writes) = (each("reads")?, each("writes")?);
    // An engine without counters reports 0; a counted worker has at least the writes of its heartbeats.
    if writes > 0.0 {
        report.add(Figure::new("idle_reads", "idle worker: reads of the store", "/s", reads));
        report.add(Figure::new("idle_writes", "idle worker: writes to the store", "/s", writes));
    }
    let switches = "idle worker: context switches, all threads";
    report.add(Figure::new("idle_switches", switches, "/s", each("switches")?));
    let cpu = Figure::new("idle_cpu", "idle worker: processor time", "ms/s", each("cpu_ns")? / 1e6);
    report.add(cpu);
    Ok(())
}
