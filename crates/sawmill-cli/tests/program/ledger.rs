//! The program with its messages in SQLite and its ledger in ZooKeeper.

#![cfg(feature = "zookeeper")]

use crate::support::{Ended, Place};

struct Ledger {
    place: Place,
    url: String,
    namespace: String,
}

impl Ledger {
    fn of(test: &str) -> Option<Self> {
        let variable = "SAWMILL_TEST_ZOOKEEPER";
        let Some(url) = std::env::var(variable).ok().filter(|url| !url.is_empty()) else {
            let why = format!("{variable} names no server; `cargo xtask engines up zookeeper` starts one");
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
            sawmill_conformance::skipped(test, &why);
            return None;
        };
        let namespace = format!("cli-{:016x}", sawmill::engine::runtime::Env::system().rng().next_u64());
        Some(Self { place: Place::new(), url, namespace })
    }

    fn run(&self, args: &[&str]) -> Ended {
        self.run_at(&self.url, args)
    }

    /// The store options must come before `--` and the command.
    fn run_at(&self, ledger: &str, args: &[&str]) -> Ended {
        let settings = ["--store", "sqlite:jobs.db", "--ledger", ledger, "--namespace", &self.namespace];
        let command = args.iter().position(|arg| *arg == "--").unwrap_or(args.len());
        let (before, after) = args.split_at(command);
        let args: Vec<&str> = before.iter().chain(&settings).chain(after).copied().collect();
        let ended = self.place.run(&args);
        for text in [&ended.stdout, &ended.stderr] {
            assert!(!text.contains("secret"), "a password: {text}");
        }
        ended
    }
}

#[test]
fn a_message_is_pushed_worked_failed_and_resent() {
    let Some(ledger) = Ledger::of("a_message_is_pushed_worked_failed_and_resent") else { return };
    let run = |args: &[&str]| ledger.run(args).ok();
    let id = run(&["push", "emails", "Dear Alice", "--key", "alice"]);
    let work = ["work", "emails", "--drain", "--retries", "0", "--"];
    run(&[&work[..], &["sh", "-c", "echo nobody there >&2; exit 1"]].concat());
    let dead = run(&["dead", "list", "emails"]);
    assert!(dead.contains(id.trim()) && dead.contains("nobody there"), "{dead}");
    run(&["dead", "retry", "emails", "--all"]);
    assert_eq!(run(&[&work[..], &["cat"]].concat()), "Dear Alice");
    let shown = run(&["show", id.trim()]);
    assert!(shown.contains("done"), "{shown}");
    assert!(run(&["status", "emails"]).contains("emails"));
    run(&["topic", "delete", "emails", "--yes"]);
}

#[test]
fn q19_what_is_wrong_with_the_ledger_is_said_and_no_password() {
    let Some(ledger) = Ledger::of("q19_what_is_wrong_with_the_ledger_is_said_and_no_password") else {
        return;
    };
    let status = ["push", "emails", "x"];
    ledger.run(&status).ok();
    let host = ledger.url.trim_start_matches("zookeeper://");
    ledger.run_at(&format!("{}/nowhere", ledger.url), &status).fails(2, &["/nowhere", "create it"]);
    ledger.run_at("zookeeper://me:secret@127.0.0.1:1", &status).fails(3, &["127.0.0.1:1", "***"]);
    ledger.run_at(&format!("zookeeper://me:secret@{host}?colour=red"), &status).fails(2, &["colour", "***"]);
    ledger.run_at("zookeeper:jobs", &status).fails(2, &["zookeeper://"]);
    let mine = format!("zookeeper://me:secret@{host}");
    let other = Ledger { place: Place::new(), url: mine, namespace: format!("{}-mine", ledger.namespace) };
    other.run(&status).ok();
    let wrong = format!("zookeeper://me:wrong-secret@{host}");
    other.run_at(&wrong, &status).fails(2, &["password", "***"]);
    // ZooKeeper is only a ledger, not a store.
    let ended = ledger.place.run(&["push", "emails", "x", "--store", &ledger.url]);
    ended.fails(2, &["ledger"]);
}
