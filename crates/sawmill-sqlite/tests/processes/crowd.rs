//! Concurrency of processes: workers that share the shards and stay busy, and processes that open a new file
//! at the same moment.

use std::time::Duration;

use rusqlite::Connection;
use sawmill_conformance::history::{Event, History};
use sawmill_conformance::processes::job::{Job, Role};
use sawmill_conformance::processes::parent::{ChildProcesses, finished_by, play, play_alone};
use sawmill_conformance::processes::record::{self, assert_none};

use crate::{database, subject};

const PROCESSES: usize = 4;
const WORKERS_EACH: usize = 16;
const WORKERS: usize = PROCESSES * WORKERS_EACH;
const WORK: Duration = Duration::from_millis(200);
/// Six seconds of work for all workers.
const MESSAGES: usize = WORKERS * 5 * 6;
/// The minimum that each worker starts: a third of its share.
const LEAST: usize = MESSAGES / WORKERS / 3;
/// The maximum of commits per message, conflicts included. Without conflicts there are two: the claim and the
/// report.
const MOST_COMMITS: u64 = 6;
const TRIES: usize = 3;
/// The percentage of the ideal throughput that is required. It depends on the load of the machine, so only
/// `cargo xtask soak` sets it.
const PERCENT: &str = "SAWMILL_TEST_BUSY_PERCENT";

#[test]
fn sixty_four_workers_share_sixteen_shards_and_stay_busy() {
    play_alone(async {
        let wanted: f64 = std::env::var(PERCENT).map_or(0.0, |text| text.parse().unwrap());
        let mut best: f64 = 0.0;
        for _ in 0..TRIES {
            best = best.max(busy_percent().await);
            if best >= wanted {
                return;
            }
        }
        panic!("{WORKERS} workers reached only {best:.1} % of the ideal throughput");
    });
}

/// Returns the percentage of the ideal throughput, from when all workers were running until the backlog was
/// gone.
async fn busy_percent() -> f64 {
    let mut processes = ChildProcesses::new(subject());
    let mill = processes.open_with_topic(16).await;
    let job = Job {
        workers: WORKERS_EACH,
        slots: 1,
        work: WORK,
        // No worker may be declared dead, however busy the machine is.
        ttl: Duration::from_secs(60),
        ..Job::new("", processes.folder())
    };
    let names: Vec<String> = (0..PROCESSES).map(|nth| format!("c{nth}")).collect();
    for name in &names {
        processes.start(&Job { name: name.clone(), ..job.clone() });
    }
    let workers: Vec<String> =
        names.iter().flat_map(|name| (0..WORKERS_EACH).map(move |nth| format!("{name}.{nth}"))).collect();
    processes.joined(&workers.iter().map(String::as_str).collect::<Vec<_>>()).await;
    processes.push(&mill, MESSAGES, MESSAGES, 0).await;
    let status = processes.drained(&mill).await;
    assert_eq!((status.done, status.dead), (MESSAGES as u64, 0), "{status:?}");
    processes.stop().await;
    let history = processes.history();
    assert_none("lost", &history.check_nothing_lost());
    assert_none("started twice", &history.check_at_most_once());
    let finished = finished_by(&history);
    let idle: Vec<_> =
        workers.iter().filter(|name| finished.get(*name).is_none_or(|count| *count < LEAST)).collect();
    // On a busy machine some processes may only run near the end.
    assert!(idle.is_empty(), "test timed out: {LEAST} messages are done by each; fewer by {idle:?}");
    let counts: Vec<String> = names.iter().map(|name| processes.counts(name)).collect();
    let sum = |count: &str| counts.iter().map(|counts| sum(counts, count)).sum::<u64>();
    let words = ["started", "reads", "commits", "conflicts", "rebalances", "adopted", "rejoined"];
    eprintln!("{}", words.map(|name| format!("{name} {}", sum(name))).join(", "));
    assert!(sum("commits") <= MOST_COMMITS * MESSAGES as u64, "{} commits", sum("commits"));
    let (done, steady) = steady(&history);
    let ideal = WORKERS as f64 * steady.as_secs_f64() / WORK.as_secs_f64();
    let percent = 100.0 * done as f64 / ideal;
    eprintln!("{WORKERS} workers: {done} of ideally {ideal:.0} messages in {steady:.2?}: {percent:.1} %");
    percent
}

/// Returns how many messages were started between the first moment when all workers were running and the last
/// start, and how long that was.
fn steady(history: &History) -> (usize, Duration) {
    let (mut running, mut began, mut last, mut count) = (0, None, 0, 0);
    for recorded in history.events() {
        match recorded.event {
            Event::Started { .. } => {
                running += 1;
                last = recorded.at;
                count += usize::from(began.is_some());
                if running == WORKERS {
                    began.get_or_insert(recorded.at);
                }
            }
            Event::Finished { .. } => running -= 1,
            _ => {}
        }
    }
    (count, Duration::from_nanos(last - began.unwrap_or(last)))
}

/// Sums a count over all workers of a process.
fn sum(counts: &str, name: &str) -> u64 {
    let values = counts.lines().filter_map(|line| line.split_once(&format!(" {name}: ")));
    values.filter_map(|(_, rest)| rest.split(',').next()?.parse::<u64>().ok()).sum()
}

#[test]
fn ten_processes_may_open_a_new_file_at_the_same_moment() {
    const OPENERS: usize = 10;
    play(async {
        for _ in 0..5 {
            let mut processes = ChildProcesses::new(subject());
            let at = record::now() + Duration::from_millis(300).as_nanos() as u64;
            for nth in 0..OPENERS {
                let job = Job::new(&format!("o{nth}"), processes.folder());
                processes.start(&Job { role: Role::OpenAt(at), ..job });
            }
            processes.ended().await;
            let file = Connection::open(database(&processes)).unwrap();
            let count = |sql: &str| -> i64 { file.query_row(sql, [], |row| row.get(0)).unwrap() };
            assert_eq!(count("SELECT count(*) FROM topic"), 1);
            assert_eq!(count("SELECT count(*) FROM message"), OPENERS as i64);
            let fresh = ChildProcesses::new(subject());
            drop(fresh.open().await);
            assert_eq!(schema(&processes), schema(&fresh));
        }
    });
}

/// Returns everything that defines the schema of the database.
fn schema(processes: &ChildProcesses) -> (i64, Vec<String>) {
    let file = Connection::open(database(processes)).unwrap();
    let version = file.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    let mut statement = file.prepare("SELECT coalesce(sql, name) FROM sqlite_schema ORDER BY name").unwrap();
    let lines = statement.query_map([], |row| row.get(0)).unwrap();
    (version, lines.map(|line| line.unwrap()).collect())
}
