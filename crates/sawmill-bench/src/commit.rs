//! Latency of sequential commits to the ledger.

use std::time::Duration;

use bytes::Bytes;
use sawmill::engine::runtime::Env;
use sawmill::engine::storage::{Commit, EntryKey, Write};

use crate::Failure;
use crate::percentile;
use crate::report::{Figure, Report, Wanted, progress};
use crate::settings::Settings;
use crate::subject::{Subject, seconds};

/// The goal, in milliseconds.
const WANTED_P50: f64 = 2.0;
/// The size of a shard's entry with a few claims.
const VALUE: usize = 400;
const PAUSE: Duration = Duration::from_millis(5);

pub(crate) async fn measure(
    subject: &dyn Subject,
    settings: &Settings,
    report: &mut Report,
) -> Result<(), Failure> {
    let store = subject.store("commit");
    let opened = subject.open(&store, Env::system()).await?;
    if let Some(ledger) = opened.ledger() {
        progress("commits to the ledger");
        let commits = settings.latency_seconds as usize * 100;
        let mut took = Vec::with_capacity(commits);
        let mut version = None;
        for _ in 0..commits {
            let key = EntryKey::raw("shards/bench/group/0001");
            let write = Write { key, expect: version, value: Some(Bytes::from(vec![b'v'; VALUE])) };
            let (seconds, answer) = seconds(ledger.commit(write)).await?;
            let Commit::Done(done) = answer else {
                return Err(format!("a commit was answered {answer:?}").into());
            };
            version = Some(done);
            took.push(seconds * 1e3);
            Env::system().sleep(PAUSE).await;
        }
        took.sort_by(f64::total_cmp);
        let p50 = Figure::new("commit_p50", "one commit to the ledger, p50", "ms", percentile(&took, 0.5));
        report.add(p50.wanted(Wanted::AtMost(WANTED_P50)));
        report.add(Figure::new("commit_p99", "one commit to the ledger, p99", "ms", percentile(&took, 0.99)));
    }
    opened.close().await?;
    subject.remove(&store).await
}
