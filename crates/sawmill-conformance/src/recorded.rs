//! Stores that an earlier version has filled: they open, and everything in them goes on.
//!
//! A recording is a folder of files in an engine's `tests/recorded`, named after the commit whose program filled
//! the store. A stored format that changes gets a new recording, made with the program before the change; the
//! older recordings stay. To make one:
//!
//! ```text
//! SAWMILL_RECORD=/path/to/the/older/sawmill cargo test -p sawmill-sqlite --test engine recorded
//! ```
//!
//! [`check`] then fills a store with that program, and has it saved. Otherwise it loads the store, and compares
//! it with what the older program said of it.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use sawmill::admin::{DeadLetterSelection, MessageState};
use sawmill::engine::runtime::Env;
use sawmill::{Context, Delivery, OpenOptions, Outcome, Push, RetryPolicy, Sawmill, Worker};
use serde_json::Value;

use crate::waits::timeout_message;

/// Names the program that fills a new recording.
const VARIABLE: &str = "SAWMILL_RECORD";
/// The older program's account of the groups, and of the messages.
const STATUS: &str = "status.jsonl";
const PUSHED: &str = "pushed.jsonl";

const TOPIC: &str = "orders";
/// The only topic that has a schedule. No worker maintains it, so it never ticks.
const REPORTS: &str = "reports";
/// A time that no run of this test will see.
const FAR: &str = "2100-01-01T00:00:00Z";
/// 100 years: the retention of the topic, and the pause before a retry.
const CENTURY: Duration = Duration::from_secs(876_000 * 3600);
const UNIQUE: &str = "once a century";
/// The longest wait, unless something hangs.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// A store that can be saved and loaded by its database's own means, without the library. It is used by one
/// test alone, in the default namespace.
#[async_trait]
pub trait Recorded: Send + Sync {
    /// Returns the options to open it.
    fn options(&self) -> OpenOptions;

    /// Returns its URL.
    fn url(&self) -> String;

    /// Returns the URL of its ledger, if that is another store.
    fn ledger_url(&self) -> Option<String> {
        None
    }

    /// Returns whether messages can have unique names.
    fn has_unique_names(&self) -> bool {
        true
    }

    /// Writes everything that the store contains into this folder.
    async fn save(&self, folder: &Path);

    /// Fills this empty store from the folder.
    async fn load(&self, folder: &Path);
}

/// Loads a recording and checks it, or makes it anew if `SAWMILL_RECORD` names a program.
pub async fn check(store: &impl Recorded, folder: &Path) {
    match std::env::var(VARIABLE) {
        Ok(program) => {
            fs::create_dir_all(folder).unwrap();
            Recorder { store, program }.fill(folder).await;
            store.save(folder).await;
        }
        Err(_) => {
            store.load(folder).await;
            let options = store.options();
            let options = match store.ledger_url() {
                Some(ledger) => options.ledger(ledger),
                None => options,
            };
            let mill = options.open(&store.url()).await.unwrap();
            Loaded { mill, has_unique_names: store.has_unique_names() }.check(folder).await;
        }
    }
}

/// A store that the older program fills.
struct Recorder<'s, S> {
    store: &'s S,
    program: String,
}

impl<S: Recorded> Recorder<'_, S> {
    /// Brings messages and groups into every state that is kept in the store.
    async fn fill(&self, folder: &Path) {
        self.run(&["topic", "create", TOPIC, "--shards", "4", "--retention", "876000h"]);
        let mut pushed = Vec::new();
        let mut push = |payload: &str, more: &[&str]| {
            let id = self.run(&[&["push", TOPIC, payload], more].concat()).trim().to_owned();
            pushed.push(serde_json::json!({ "payload": payload, "id": id }).to_string());
            id
        };
        push("done", &["--key", "a", "--header", "kind=first"]);
        push("dead", &["--key", "b"]);
        push("failed", &["--key", "c"]);
        push("later", &["--key", "d", "--at", FAR]);
        let cancelled = push("cancelled", &["--at", FAR]);
        if self.store.has_unique_names() {
            push("unique", &["--at", FAR, "--unique", UNIQUE]);
        }
        // Four runs: each due message once, and `failed` once more.
        let handler = "case $(cat) in dead) exit 65;; failed) exit 1;; esac";
        self.work("default", &["--limit", "4"], handler);
        self.work("line", &["--limit", "4", "--ordered"], handler);
        self.work("again", &["--drain"], "true");
        self.run(&["replay", TOPIC, "--group", "again", "--from", "start", "--yes"]);
        self.kill("killed", &[]).await;
        self.kill("lost", &["--delivery", "at-most-once"]).await;
        self.run(&["cancel", &cancelled]);
        push("waiting", &[]);
        self.run(&["pause", TOPIC, "--group", "default"]);
        let timing = ["0 3 * * *", "--tz", "Europe/Berlin", "--payload", "all", "--key", "k"];
        self.run(&[&["cron", "add", REPORTS, "nightly"], &timing[..]].concat());
        self.run(&["token", "create", "--topic", TOPIC, "--access", "rw", "--note", "recorded"]);
        self.run(&["topic", "create", "gone"]);
        self.run(&["push", "gone", "x"]);
        self.run(&["topic", "delete", "gone", "--yes"]);
        fs::write(folder.join(STATUS), self.run(&["status", TOPIC, "--json"])).unwrap();
        fs::write(folder.join(PUSHED), pushed.join("\n")).unwrap();
    }

    /// Works with a shell command for each message until the worker ends by itself.
    fn work(&self, group: &str, options: &[&str], command: &str) {
        let worker = ["work", TOPIC, "--quiet", "--concurrency", "1", "--group", group];
        let retries = ["--retries", "5", "--backoff", "876000h..876000h"];
        self.run(&[&worker[..], &retries, options, &["--", "sh", "-c", command]].concat());
    }

    /// Kills a worker while it runs a message.
    async fn kill(&self, group: &str, options: &[&str]) {
        let folder = tempfile::tempdir().unwrap();
        let started = folder.path().join("started");
        let command = format!("touch {}; exec sleep 600", started.display());
        let worker = ["work", TOPIC, "--quiet", "--concurrency", "1", "--ttl", "3s", "--group", group];
        let arguments = [&worker[..], options, &["--", "sh", "-c", &command]].concat();
        let mut worker = self.command(&arguments).spawn().unwrap();
        while !started.exists() {
            assert!(worker.try_wait().unwrap().is_none(), "the worker of {group} has ended");
            Env::system().sleep(Duration::from_millis(10)).await;
        }
        worker.kill().unwrap();
        worker.wait().unwrap();
    }

    /// Runs the program, and returns what it prints.
    fn run(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["--store", &self.store.url()]);
        if let Some(ledger) = self.store.ledger_url() {
            command.args(["--ledger", &ledger]);
        }
        command.args(arguments);
        command
    }
}

/// A recorded store, opened by this version.
struct Loaded {
    mill: Sawmill,
    has_unique_names: bool,
}

/// The payloads that each group has run.
type Runs = Arc<Mutex<BTreeMap<&'static str, Vec<String>>>>;

impl Loaded {
    async fn check(&self, folder: &Path) {
        self.check_status(folder).await;
        self.check_operators_entries().await;
        let ids = pushed(folder);
        self.check_messages(&ids).await;
        self.check_work(&ids).await;
    }

    /// The groups stand where the older program saw them.
    async fn check_status(&self, folder: &Path) {
        let said: Vec<Value> = lines(folder, STATUS);
        assert_eq!(said.len(), 5, "each group that was filled");
        let snapshots = self.mill.admin().snapshot(Some(TOPIC)).await.unwrap();
        for old in said {
            let group = old["group"].as_str();
            let snapshot = snapshots.iter().find(|snapshot| snapshot.group.as_deref() == group).unwrap();
            let now = serde_json::to_value(snapshot.report(None)).unwrap();
            for field in COUNTS {
                assert!(!old[field].is_null(), "{field} of {old}");
                assert_eq!(now[field], old[field], "{field} of {group:?}");
            }
        }
    }

    /// Operators' entries are there: schedules, access keys, deletions.
    async fn check_operators_entries(&self) {
        let admin = self.mill.admin();
        let topics = admin.topics().await.unwrap();
        let names: Vec<String> = topics.iter().map(|topic| topic.name.to_string()).collect();
        assert!(!names.iter().any(|name| name.starts_with("gone")), "{names:?}");
        let orders = topics.iter().find(|topic| topic.name.to_string() == TOPIC).unwrap();
        assert_eq!((orders.shards, orders.retention), (4, CENTURY));
        let [nightly] = &self.mill.schedules(REPORTS).await.unwrap()[..] else { panic!("one schedule") };
        let message = &nightly.schedule.message;
        assert_eq!(nightly.schedule.name, "nightly");
        assert_eq!((&message.payload[..], message.key.as_deref()), (&b"all"[..], Some(&b"k"[..])));
        let ticks = nightly.next().unwrap().since(nightly.last);
        assert!(ticks <= Duration::from_secs(25 * 3600), "{nightly:?}");
        let [key] = &admin.access_keys().await.unwrap()[..] else { panic!("one access key") };
        assert_eq!((&*key.note, key.access.name()), ("recorded", "rw"));
    }

    /// Each message is found by its id, with its state in the groups.
    async fn check_messages(&self, ids: &BTreeMap<String, String>) {
        for (payload, id) in ids {
            let status = self.mill.admin().show(id.parse().unwrap()).await.unwrap().unwrap();
            assert_eq!(status.message.payload, payload.as_bytes());
            let cancelled = status.groups.iter().any(|(_, state)| *state == MessageState::Cancelled);
            assert_eq!(cancelled, payload == "cancelled", "{payload}");
        }
        let letters = self.mill.admin().dead_letters(TOPIC, "default").await.unwrap();
        let [dead] = &letters.list(usize::MAX).await.unwrap()[..] else { panic!("one dead letter") };
        assert_eq!((dead.id().to_string(), &dead.message.payload[..]), (ids["dead"].clone(), &b"dead"[..]));
        assert_eq!(dead.message.key.as_deref(), Some(&b"b"[..]));
        if self.has_unique_names {
            let again = self.mill.push(TOPIC, Push::new("unique").unique(UNIQUE)).await.unwrap();
            assert_eq!(again.to_string(), ids["unique"], "the name is taken");
        }
    }

    /// Every group goes on with what is left to it: nothing is lost, nothing that was done runs again.
    async fn check_work(&self, ids: &BTreeMap<String, String>) {
        let runs = Runs::default();
        let admin = self.mill.admin();
        admin.resume(TOPIC, "default").await.unwrap();
        let mut workers = Vec::new();
        for group in ["default", "line", "again", "killed", "lost", "new"] {
            workers.push(self.work(group, &runs).await);
        }
        let all = ["dead", "done", "failed", "waiting"];
        for (group, expected) in
            [("default", &all[3..]), ("line", &all[3..]), ("again", &all), ("killed", &all), ("new", &all)]
        {
            self.wait_for(group, &runs, &BTreeSet::from_iter(expected.iter().copied())).await;
        }
        let lost = self.wait_for_the_lost(&runs).await;
        assert!(!lost.is_empty(), "one was started by the killed worker");
        let letters = admin.dead_letters(TOPIC, "default").await.unwrap();
        let dead = ids["dead"].parse().unwrap();
        assert_eq!(letters.retry(DeadLetterSelection::Ids(vec![dead])).await.unwrap(), 1);
        self.wait_for("default", &runs, &BTreeSet::from(["dead", "waiting"])).await;
        for worker in workers {
            worker.stop().await;
        }
        let runs = runs.lock().unwrap();
        for (group, payloads) in runs.iter() {
            let once: BTreeSet<&String> = payloads.iter().collect();
            assert_eq!(once.len(), payloads.len(), "{group} ran a message twice: {payloads:?}");
            let ran_what_was_lost = payloads.iter().any(|payload| *group == "lost" && lost.contains(payload));
            assert!(!ran_what_was_lost, "{payloads:?}, and {lost:?} were lost");
        }
    }

    async fn work(&self, group: &'static str, runs: &Runs) -> Worker {
        let runs = runs.clone();
        let handler = move |context: Context| {
            let payload = String::from_utf8(context.payload().to_vec()).unwrap();
            if payload == "done" {
                assert_eq!(context.key().map(|key| &key[..]), Some(&b"a"[..]));
                assert_eq!(context.headers().get("kind").map(|kind| &kind[..]), Some(&b"first"[..]));
            }
            runs.lock().unwrap().entry(group).or_default().push(payload);
            async { Outcome::Done }
        };
        let far = RetryPolicy::retries(5).backoff(CENTURY, CENTURY);
        let builder = self.mill.worker(TOPIC).group(group).ttl(MAX_WAIT).retry(far);
        let builder = if group == "line" { builder.ordered() } else { builder };
        let builder = if group == "lost" { builder.delivery(Delivery::AtMostOnce) } else { builder };
        builder.start(handler).await.unwrap()
    }

    /// Waits until a group has run these, and nothing else.
    async fn wait_for(&self, group: &'static str, runs: &Runs, expected: &BTreeSet<&str>) {
        let ran = || BTreeSet::from_iter(runs.lock().unwrap().get(group).into_iter().flatten().cloned());
        let ended = async {
            while ran().len() < expected.len() {
                Env::system().sleep(Duration::from_millis(20)).await;
            }
        };
        if Env::system().within(MAX_WAIT, ended).await.is_none() {
            let missing = async || expected.len() - ran().len();
            panic!("{}", timeout_message("it runs what is left", &self.mill, TOPIC, group, missing).await);
        }
        assert!(ran().iter().map(String::as_str).eq(expected.iter().copied()), "{group}: {:?}", ran());
    }

    /// Waits until the group whose worker was killed has run or given up everything. Returns the payloads that
    /// it gave up.
    async fn wait_for_the_lost(&self, runs: &Runs) -> BTreeSet<String> {
        let ended = async {
            loop {
                let letters = self.mill.admin().dead_letters(TOPIC, "lost").await.unwrap();
                let letters = letters.list(usize::MAX).await.unwrap();
                let lost = letters.iter().map(|letter| {
                    assert!(letter.reason().starts_with("lost"), "{letter:?}");
                    String::from_utf8(letter.message.payload.to_vec()).unwrap()
                });
                let lost: BTreeSet<String> = lost.collect();
                if lost.len() + runs.lock().unwrap().get("lost").map_or(0, Vec::len) >= 4 {
                    return lost;
                }
                Env::system().sleep(Duration::from_millis(50)).await;
            }
        };
        let lost = Env::system().within(MAX_WAIT, ended).await;
        lost.unwrap_or_else(|| panic!("test timed out: a killed worker's messages are given up"))
    }
}

/// The counts that `status --json` has had from the beginning.
const COUNTS: [&str; 8] =
    ["waiting", "scheduled", "claimed", "retrying", "done", "dead", "dropped", "cancelled"];

/// The ids of the messages by their payloads.
fn pushed(folder: &Path) -> BTreeMap<String, String> {
    let text = |line: &Value, field| line[field].as_str().unwrap().to_owned();
    lines(folder, PUSHED).iter().map(|line| (text(line, "payload"), text(line, "id"))).collect()
}

/// Reads a file with a JSON value in each line.
pub fn lines(folder: &Path, name: &str) -> Vec<Value> {
    let file = folder.join(name);
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Writes bytes as hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads what [`to_hex`] wrote.
pub fn from_hex(digits: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}
