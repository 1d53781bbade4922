//! Shards that belong to one worker at a time: spread over the workers, freed by a crash, never left alone.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::behaviours::Subject;
use crate::history::{Event, History};

use super::job::Job;
use super::parent::{ChildProcesses, play_alone};
use super::record::{assert_beats_are_in_time, assert_none};

const SHARDS: u16 = 6;
const KEYS: usize = 24;
/// The latest time after the TTL at which work on a shard must resume.
const GRACE: Duration = Duration::from_secs(5);

fn job(processes: &ChildProcesses) -> Job {
    Job {
        ordered: true,
        work: Duration::from_millis(40),
        max_in_flight: Some(20),
        ..Job::new("", processes.folder())
    }
}

/// Returns the longest time from `since` on in which nothing of a shard was started though messages were
/// left.
fn longest_pause(on: Subject, history: &History, since: u64) -> Duration {
    let mut keys = BTreeMap::new();
    for recorded in history.events() {
        if let Event::Pushed { id, key: Some(key), .. } = &recorded.event {
            keys.insert(*id, on.shard_of(key.as_bytes(), SHARDS));
        }
    }
    let (mut last, mut longest) = (BTreeMap::new(), 0);
    for recorded in history.events() {
        if let Event::Started { id, .. } = &recorded.event
            && let Some(shard) = keys.get(id)
        {
            let before = last.insert(*shard, recorded.at).unwrap_or(since).max(since);
            longest = longest.max(recorded.at.saturating_sub(before));
        }
    }
    assert_eq!(last.len(), usize::from(SHARDS), "every shard has messages: {last:?}");
    Duration::from_nanos(longest)
}

fn check(history: &History) {
    assert_none("lost", &history.check_nothing_lost());
    assert_none("invented", &history.check_nothing_invented());
    assert_beats_are_in_time(history);
    assert_none("started again without need", &history.check_second_starts_have_a_reason());
}

/// Returns the worker that started something last.
fn last_started(history: &History) -> Option<String> {
    let worker = |event: &Event| match event {
        Event::Started { worker, .. } => Some(worker.clone()),
        _ => None,
    };
    history.events().iter().rev().find_map(|recorded| worker(&recorded.event))
}

/// Runs this many workers; one of them is suspended for longer than its TTL, if there are others.
async fn spread(on: Subject, workers: usize, messages: usize) {
    let mut processes = ChildProcesses::new(on);
    let mill = processes.open_with_topic(SHARDS).await;
    let job = job(&processes);
    let names: Vec<String> = (1..=workers).map(|n| format!("w{n}")).collect();
    for name in &names {
        processes.start(&Job { name: name.clone(), ..job.clone() });
    }
    processes.joined(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    processes.push(&mill, messages, 60, KEYS).await;
    let since = super::record::now();
    if workers > 1 {
        // A worker with a running message: with more workers than shards, some have none.
        processes.until("that somebody works", |history| last_started(history).is_some()).await;
        let frozen = last_started(&processes.history()).unwrap();
        processes.freeze(&frozen).await;
        processes.declared_dead(&frozen, job.ttl).await;
        processes.thaw(&frozen);
    }
    let status = processes.drained(&mill).await;
    assert_eq!((status.done, status.dead), (messages as u64, 0), "{status:?}");
    processes.stop().await;
    let status = processes.drained(&mill).await;
    assert_eq!(status.done, messages as u64, "what the frozen one finished late changes nothing");
    let history = processes.history();
    check(&history);
    let pause = longest_pause(on, &history, since);
    eprintln!("{workers} workers on {SHARDS} shards: no shard stood still for longer than {pause:.2?}");
    assert_went_on(pause, &job);
}

/// Asserts that a shard whose worker fell resumes soon after the TTL, unless the machine is too busy.
fn assert_went_on(pause: Duration, job: &Job) {
    let most = job.ttl + GRACE;
    assert!(
        pause <= most,
        "test timed out: every shard goes on within {most:?}; one stood still for {pause:?}"
    );
}

pub fn c8_one_worker_alone_covers_all_shards(on: Subject) {
    play_alone(spread(on, 1, 240));
}

pub fn c8_c9_three_workers_share_six_shards_and_one_stands_still(on: Subject) {
    play_alone(spread(on, 3, 900));
}

pub fn c8_c9_nine_workers_share_six_shards_and_one_stands_still(on: Subject) {
    play_alone(spread(on, 9, 900));
}

pub fn c6_c7_a_crash_frees_the_shards_and_repeats_only_what_was_in_hand(on: Subject) {
    play_alone(async {
        let mut processes = ChildProcesses::new(on);
        let mill = processes.open_with_topic(SHARDS).await;
        let job = job(&processes);
        processes.start(&Job { name: "w1".to_owned(), ..job.clone() });
        processes.joined(&["w1"]).await;
        processes.push(&mill, 400, 50, KEYS).await;
        let starts = |history: &History| {
            history.events().iter().filter(|r| matches!(r.event, Event::Started { .. })).count()
        };
        processes.until("that some are done", |history| starts(history) > 60).await;
        processes.start(&Job { name: "w2".to_owned(), ..job.clone() });
        let killed = processes.kill("w1");
        let status = processes.drained(&mill).await;
        assert_eq!((status.done, status.dead), (400, 0), "{status:?}");
        processes.stop().await;
        let history = processes.history();
        check(&history);
        let again = starts(&history) - 400;
        let most = job.max_in_flight.unwrap() * 2;
        assert!(again <= most, "{again} were repeated, and {most} is the most");
        let pause = longest_pause(on, &history, killed);
        eprintln!(
            "after a crash {again} were repeated, and no shard stood still for longer than {pause:.2?}"
        );
        assert_went_on(pause, &job);
    });
}
