//! The program on database servers: the same commands, and connection errors.

#![cfg(all(feature = "postgres", feature = "mysql"))]

use crate::support::{Ended, Place};

/// A server given to the tests, with a namespace for this test. Without one the test is skipped with a
/// notice.
struct Server {
    place: Place,
    url: String,
    namespace: String,
}

impl Server {
    fn of(test: &str, variable: &str) -> Option<Self> {
        let Some(url) = std::env::var(variable).ok().filter(|url| !url.is_empty()) else {
            let why = format!("{variable} names no server; `cargo xtask engines up` starts one");
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

    fn run_at(&self, url: &str, args: &[&str]) -> Ended {
        let store = ["--store", url, "--namespace", &self.namespace];
        let args: Vec<&str> = args.iter().chain(&store).copied().collect();
        let ended = self.place.run(&args);
        for text in [&ended.stdout, &ended.stderr] {
            assert!(
                !text.contains("sawmill:sawmill@") && !text.contains("wrong-password"),
                "a password: {text}"
            );
        }
        ended
    }
}

/// Runs a message through its life with the program alone.
fn a_message_is_pushed_worked_failed_and_resent(server: &Server) {
    let run = |args: &[&str]| server.run(args).ok();
    let id = run(&["push", "emails", "Dear Alice", "--key", "alice"]);
    let status = run(&["status", "emails"]);
    assert!(status.contains("emails"), "{status}");
    let mut work = vec!["work", "emails", "--drain", "--retries", "0"];
    // The store options must come before `--` and the command.
    let store = ["--store", &server.url, "--namespace", &server.namespace];
    work.extend(store);
    let worked = |command: &str| {
        let args: Vec<&str> = work.iter().copied().chain(["--", "sh", "-c", command]).collect();
        server.place.run(&args)
    };
    worked("echo nobody there >&2; exit 1").ok();
    let dead = run(&["dead", "list", "emails"]);
    assert!(dead.contains(id.trim()) && dead.contains("nobody there"), "{dead}");
    run(&["dead", "retry", "emails", "--all"]);
    assert_eq!(worked("cat").ok(), "Dear Alice");
    let shown = run(&["show", id.trim()]);
    assert!(shown.contains("done"), "{shown}");
    run(&["topic", "delete", "emails", "--yes"]);
    server.run(&["push", "emails", "x", "--no-create"]).fails(4, &["emails"]);
}

#[test]
fn postgres_is_a_store() {
    let Some(server) = Server::of("postgres_is_a_store", "SAWMILL_TEST_POSTGRES") else { return };
    a_message_is_pushed_worked_failed_and_resent(&server);
    wrong_ways(&server, "postgres");
}

#[test]
fn mysql_is_a_store() {
    let Some(server) = Server::of("mysql_is_a_store", "SAWMILL_TEST_MYSQL") else { return };
    a_message_is_pushed_worked_failed_and_resent(&server);
    wrong_ways(&server, "mysql");
}

#[cfg(feature = "cassandra")]
#[test]
fn cassandra_is_a_store() {
    let Some(server) = Server::of("cassandra_is_a_store", "SAWMILL_TEST_CASSANDRA") else { return };
    a_message_is_pushed_worked_failed_and_resent(&server);
    let push = ["push", "emails", "x"];
    let way = server.url.split('?').next().unwrap().rsplit_once('/').unwrap().0.to_owned();
    server.run_at(&format!("{way}/nowhere"), &push).fails(2, &["nowhere", "replication"]);
    server.run_at("cassandra://127.0.0.1:1/sawmill", &push).fails(3, &["127.0.0.1:1"]);
    server.run_at("cassandra:jobs", &push).fails(2, &["cassandra://"]);
}

/// Checks the errors for a wrong password, a missing database, an unreachable server and an invalid URL.
fn wrong_ways(server: &Server, scheme: &str) {
    let push = ["push", "emails", "x"];
    let wrong = server.url.replace(":sawmill@", ":wrong-password@");
    assert_ne!(wrong, server.url);
    server.run_at(&wrong, &push).fails(2, &["password", "***"]);
    let (way, _) = server.url.rsplit_once('/').unwrap();
    server.run_at(&format!("{way}/nowhere"), &push).fails(2, &["nowhere"]);
    let closed = format!("{scheme}://sawmill:sawmill@127.0.0.1:1/sawmill");
    server.run_at(&closed, &push).fails(3, &["127.0.0.1:1"]);
    server.run_at(&format!("{scheme}:jobs"), &push).fails(2, &[&format!("{scheme}://")]);
}
