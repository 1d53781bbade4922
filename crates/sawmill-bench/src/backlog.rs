//! A long backlog: the rate of a worker over the first 100,000 messages with millions waiting, compared with
//! only these. Pushing and working run in separate processes, so that the memory is the worker's alone. Each
//! round uses a new group, which starts at the beginning.

use crate::Failure;
use crate::child;
use crate::report::{Figure, Report, Wanted, progress};
use crate::settings::Settings;
use crate::subject::Subject;

/// Messages that are worked, and the size of the smaller backlog.
const WORKED: usize = 100_000;
/// Extra rounds, because a round is short.
const MORE_ROUNDS: usize = 2;

pub(crate) async fn measure(
    subject: &dyn Subject,
    settings: &Settings,
    report: &mut Report,
) -> Result<(), Failure> {
    let sizes = [WORKED, settings.backlog.max(WORKED)];
    let stores = sizes.map(|size| subject.store(&format!("backlog{size}")));
    for (size, store) in sizes.iter().zip(&stores) {
        progress(&format!("backlog: pushing {size} messages"));
        child::start(&["push", store, &size.to_string()])?;
    }
    let (mut rates, mut memory) = ([0f64; 2], [0f64; 2]);
    for round in 1..=settings.rounds + MORE_ROUNDS {
        for (at, store) in stores.iter().enumerate() {
            let output = child::start(&["work", store, &format!("round-{round}"), &WORKED.to_string()])?;
            rates[at] = rates[at].max(WORKED as f64 / output.number("seconds")?);
            memory[at] = memory[at].max(output.number("peak_kib")? / 1024.0);
        }
        let [few, many] = rates;
        progress(&format!(
            "backlog, round {round}: {few:.0}/s with the smaller one, {many:.0}/s with the larger one"
        ));
    }
    for store in &stores {
        subject.remove(store).await?;
    }
    let what = format!("work rate with {} waiting; base: with {WORKED}", sizes[1]);
    report.add(Figure::new("backlog", what, "/s", rates[1]).base(rates[0]).wanted(Wanted::Times(0.9)));
    for (key, size, memory) in [("memory_small", sizes[0], memory[0]), ("memory_large", sizes[1], memory[1])]
    {
        let what = format!("peak memory of the worker with {size} waiting");
        report.add(Figure::new(key, what, "MiB", memory).wanted(Wanted::AtMost(64.0)));
    }
    Ok(())
}
