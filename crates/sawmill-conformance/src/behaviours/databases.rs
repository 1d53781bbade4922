//! The same behaviour on every database: one scenario through the public API must give the same answers on
//! each engine, including the order of runs and the texts of errors.

use std::time::Duration;

use sawmill::admin::{DeadLetterSelection, GroupStatus, ReplayFrom};
use sawmill::{Context, Outcome, Push, RetryPolicy, Sawmill, Worker};

use super::gated_handler::GatedHandler;
use super::support::{LONG_TTL, POLL, Subject, engines, group_is, soon, topic};

/// The expected answers, line by line, on any engine.
const ANSWERS: &[&str] = &[
    "one message of a name: true",
    "waiting 7, scheduled 1, claimed 0, retrying 0, done 0, dead 0",
    "run of a: a0 a1 a2",
    "run of b: b0 b1 b1 b2",
    "run of none: report",
    "waiting 0, scheduled 1, claimed 0, retrying 0, done 6, dead 1",
    "dead: b1 (out of attempts after 2: jam) with lang=en",
    "resent: 1",
    "run of b: b1",
    "waiting 0, scheduled 1, claimed 0, retrying 0, done 7, dead 0",
    "another group: a0 a1 a2 b0 b1 b2 report",
    "read again: a0 a1 a2 b0 b1 b2 report",
    "refused: topic mails does not exist",
    "deleted: Ok, then topic orders does not exist",
];

/// Reports the runs of a group since the previous report: by key, because only messages of one key are
/// ordered.
struct RunReport {
    gated: GatedHandler,
    read: usize,
}

impl RunReport {
    fn new() -> Self {
        Self { gated: GatedHandler::open(), read: 0 }
    }

    fn of_keys(&mut self) -> Vec<String> {
        let runs = self.gated.runs();
        let new = &runs[self.read..];
        self.read = runs.len();
        let line = |key: &str| {
            let run: Vec<String> =
                new.iter().filter(|run| run.key() == key).map(|run| run.payload()).collect();
            let name = if key.is_empty() { "none" } else { key };
            (!run.is_empty()).then(|| format!("run of {name}: {}", run.join(" ")))
        };
        ["a", "b", ""].into_iter().filter_map(line).collect()
    }

    fn sorted(&mut self, what: &str) -> String {
        let mut run = self.gated.payloads().split_off(self.read);
        self.read += run.len();
        run.sort();
        format!("{what}: {}", run.join(" "))
    }
}

async fn worker(
    mill: &Sawmill,
    group: &str,
    run_report: &RunReport,
    says: fn(&Context) -> Outcome,
) -> Worker {
    let builder = mill.worker("orders").group(group).concurrency(4).ttl(LONG_TTL).poll(POLL).ordered();
    let builder = builder.retry(RetryPolicy::retries(1));
    builder.start(run_report.gated.seat_that(group, says)).await.unwrap()
}

async fn status_line(mill: &Sawmill) -> String {
    let now = mill.admin().status("orders", "default").await.unwrap();
    format!(
        "waiting {}, scheduled {}, claimed {}, retrying {}, done {}, dead {}",
        now.waiting, now.scheduled, now.claimed, now.retrying, now.done, now.dead
    )
}

async fn settled(mill: &Sawmill, done: u64, dead: u64) {
    let settled = |now: &GroupStatus| (now.done, now.dead, now.claimed) == (done, dead, 0);
    group_is(mill, "orders", "default", "all is settled", settled).await;
}

/// Returns the answer as text; of an error, the part before the advice.
fn answer_text<T>(answer: sawmill::Result<T>) -> String {
    match answer {
        Ok(_) => "Ok".to_owned(),
        Err(error) => error.to_string().split(':').next().unwrap_or_default().to_owned(),
    }
}

async fn story(mill: &Sawmill) -> Vec<String> {
    topic(mill, "orders", 4).await;
    let mut said = Vec::new();
    let keyed = |key: &'static str, n: usize| Push::new(format!("{key}{n}")).key(key).header("lang", "en");
    mill.push_many("orders", (0..3).flat_map(|n| [keyed("a", n), keyed("b", n)])).await.unwrap();
    let report = async || mill.push("orders", Push::new("report").unique("daily")).await.unwrap();
    said.push(format!("one message of a name: {}", report().await == report().await));
    mill.push("orders", Push::new("later").after(Duration::from_secs(3600))).await.unwrap();
    said.push(status_line(mill).await);

    let mut run_report = RunReport::new();
    let jams = |job: &Context| match &job.payload()[..] {
        b"b1" => Outcome::retry("jam"),
        _ => Outcome::Done,
    };
    let first = worker(mill, "default", &run_report, jams).await;
    settled(mill, 6, 1).await;
    first.stop().await;
    said.extend(run_report.of_keys());
    said.push(status_line(mill).await);

    let dead = mill.admin().dead_letters("orders", "default").await.unwrap();
    for letter in dead.list(10).await.unwrap() {
        let (message, reason) = (&letter.message, letter.reason());
        let lang = message.headers.text("lang").unwrap_or("none");
        said.push(format!("dead: {} ({reason}) with lang={lang}", String::from_utf8_lossy(&message.payload)));
    }
    said.push(format!("resent: {}", dead.retry(DeadLetterSelection::All).await.unwrap()));
    let second = worker(mill, "default", &run_report, |_| Outcome::Done).await;
    settled(mill, 7, 0).await;
    second.stop().await;
    said.extend(run_report.of_keys());
    said.push(status_line(mill).await);

    let mut others = RunReport::new();
    let other = worker(mill, "totals", &others, |_| Outcome::Done).await;
    soon("the other group reads all", other.drained()).await;
    said.push(others.sorted("another group"));
    mill.admin().replay("orders", "totals", ReplayFrom::Start).await.unwrap();
    soon("it reads all again", other.drained()).await;
    said.push(others.sorted("read again"));
    other.stop().await;

    said.push(format!("refused: {}", answer_text(mill.push("mails", "x").await)));
    let delete = async || answer_text(mill.admin().delete_topic("orders").await);
    said.push(format!("deleted: {}, then {}", delete().await, delete().await));
    said
}

pub async fn g13_every_database_gives_the_same_answers(on: Subject) {
    for (mill, place) in engines(on).await {
        let engine = if place.is_some() { on.engine } else { "memory" };
        assert_eq!(story(&mill).await, ANSWERS, "on {engine}");
    }
}
