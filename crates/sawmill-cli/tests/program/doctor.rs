//! `sawmill doctor` reports problems, and nothing on a healthy store.

use std::os::unix::fs::FileExt;

use crate::support::{Place, until};
use rustix::process::Signal;

#[test]
fn a_healthy_store_has_nothing_to_report() {
    let place = Place::new();
    assert_eq!(place.ok(&["doctor"]), "");
    place.ok(&["push", "emails", "x"]);
    // The TTL is longer than a busy machine stalls the worker; otherwise the worker would count as silent.
    let worker = place.start(&["work", "emails", "--ttl", "10s", "--", "sleep", "600"]);
    until("it works", || place.json(&["status", "--sample", "0s"])[0]["claimed"] == 1);
    let ended = place.run(&["doctor"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{ended:?}");
    assert!(ended.stderr.contains("Nothing is wrong."), "{ended:?}");
    assert!(place.json(&["doctor", "--wait", "1s"]).is_empty());
    drop(worker);
}

#[test]
fn what_a_killed_worker_holds_is_stuck_until_another_comes() {
    let place = Place::new();
    place.ok(&["push", "emails", "x"]);
    let worker = place.start(&["work", "emails", "--ttl", "1s", "--", "sleep", "600"]);
    until("it works", || place.json(&["status", "--sample", "0s"])[0]["claimed"] == 1);
    worker.signal(Signal::KILL);
    worker.wait();
    let found = place.run(&["--json", "doctor"]).fails(1, &["1 problem"]);
    let finding: serde_json::Value = serde_json::from_str(found.stdout.trim()).unwrap();
    let names: Vec<&String> = finding.as_object().unwrap().keys().collect();
    assert_eq!(names, ["check", "group", "topic", "what", "what_to_do"], "as JSON.md says");
    assert_eq!((&finding["check"], &finding["topic"]), (&"stuck-claim".into(), &"emails".into()));
    let told = place.run(&["doctor"]).fails(1, &[]);
    assert!(told.stdout.starts_with("stuck claim, topic emails, group default: 1 message"), "{told:?}");
    assert!(told.stdout.contains("to do: start a worker"), "{told:?}");
    place.ok(&["work", "emails", "--ttl", "1s", "--limit", "1", "--quiet", "--", "true"]);
    assert_eq!(place.ok(&["doctor"]), "");
}

#[test]
fn a_group_that_nobody_works_holds_back_the_trim() {
    let place = Place::new();
    place.ok(&["topic", "create", "emails", "--retention", "0s"]);
    place.ok(&["work", "emails", "--drain", "--quiet", "--", "true"]);
    assert_eq!(place.ok(&["doctor"]), "");
    place.ok(&["push", "emails", "x"]);
    let told = place.run(&["doctor"]).fails(1, &["1 problem"]);
    assert!(told.stdout.contains("held back trim") && told.stdout.contains("to do:"), "{told:?}");
}

/// Overwrites a page of the store's file that belongs to a table not needed for opening the store.
fn damage(place: &Place) {
    let database = rusqlite::Connection::open(place.path("sawmill.db")).unwrap();
    let number = |sql: &str| database.query_row(sql, [], |row| row.get::<_, u32>(0).map(u64::from)).unwrap();
    let size = number("SELECT page_size FROM pragma_page_size");
    let page = number("SELECT rootpage FROM sqlite_schema WHERE name = 'message'");
    database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(database);
    let file = std::fs::File::options().write(true).open(place.path("sawmill.db")).unwrap();
    file.write_all_at(&vec![0xff; size as usize], (page - 1) * size).unwrap();
}

#[test]
fn a_damaged_file_is_named() {
    let place = Place::new();
    place.ok(&["push", "emails", "x"]);
    assert_eq!(place.ok(&["doctor"]), "");
    damage(&place);
    let told = place.run(&["doctor"]).fails(1, &["1 problem"]);
    assert!(told.stdout.contains("durability: ") && told.stdout.contains("is damaged"), "{told:?}");
    assert!(told.stdout.contains("to do: stop all workers") && told.stdout.contains("backup"), "{told:?}");
}

#[test]
fn a_store_that_cannot_be_opened_is_told_of_with_what_to_do() {
    let place = Place::new();
    place.ok(&["push", "emails", "x"]);
    let database = rusqlite::Connection::open(place.path("sawmill.db")).unwrap();
    database.pragma_update(None, "user_version", 999).unwrap();
    let told = place.run(&["doctor"]).fails(1, &["schema version 999", "upgrade the program"]);
    assert_eq!(told.stdout, "");
    place.write("sawmill.db", "this is a letter, and no database, however long it gets to be");
    place.run(&["doctor"]).fails(1, &["sawmill.db"]);
    place.run(&["doctor", "--store", "sqlite:nowhere/sawmill.db"]).fails(2, &["nowhere"]);
}

#[cfg(feature = "postgres")]
mod on_postgres {
    use std::io::Write;
    use std::process::{Child, Command, Stdio};

    use crate::support::{Ended, Place, until};

    /// A database for one test, whose owner is not an administrator.
    struct Database {
        place: Place,
        server: String,
        name: String,
        psql: String,
    }

    impl Database {
        /// Creates the database. Without a server or a client for it the test is skipped with a notice.
        fn of(test: &str) -> Option<Self> {
            let skip = |why: &str| {
                assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
                sawmill_conformance::skipped(test, why);
            };
            let server = std::env::var("SAWMILL_TEST_POSTGRES").unwrap_or_default();
            if server.is_empty() {
                skip("SAWMILL_TEST_POSTGRES names no server; `cargo xtask engines up` starts one");
                return None;
            }
            let there = |program: &String| Command::new(program).arg("--version").output().is_ok();
            let of_debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
            let of_debian = of_debian.map(|entry| entry.path().join("bin/psql").display().to_string());
            let Some(psql) = std::iter::once("psql".to_owned()).chain(of_debian).find(there) else {
                skip("psql is not there; Debian has it in postgresql-client");
                return None;
            };
            let name = format!("doctor_{:016x}", sawmill::engine::runtime::Env::system().rng().next_u64());
            let database = Self { place: Place::new(), server, name, psql };
            let name = &database.name;
            database.admin(&format!("CREATE ROLE {name} LOGIN PASSWORD 'secret'"));
            database.admin(&format!("CREATE DATABASE {name} OWNER {name} TEMPLATE template0"));
            Some(database)
        }

        fn url(&self, password: &str) -> String {
            let host = self.server.rsplit_once('@').unwrap().1.rsplit_once('/').unwrap().0;
            format!("postgres://{0}:{password}@{host}/{0}", self.name)
        }

        fn admin(&self, sql: &str) {
            self.psql(&self.server, sql);
        }

        /// Runs a statement as the owner of the database.
        fn admin_within(&self, sql: &str) {
            self.psql(&self.url("secret"), sql);
        }

        fn psql(&self, url: &str, sql: &str) {
            let done = Command::new(&self.psql).args([url, "-c", sql]).output().unwrap();
            assert!(done.status.success(), "{done:?}");
        }

        fn run(&self, args: &[&str]) -> Ended {
            self.run_at(&self.url("secret"), args)
        }

        fn run_at(&self, url: &str, args: &[&str]) -> Ended {
            let ended = self.place.run(&[args, &["--store", url]].concat());
            for text in [&ended.stdout, &ended.stderr] {
                assert!(!text.contains(":secret@") && !text.contains("guess"), "a password: {text}");
            }
            ended
        }

        /// Starts a session with a transaction that is never ended.
        fn forgetful(&self) -> Child {
            let mut psql = Command::new(&self.psql);
            psql.arg(self.url("secret"))
                .args(["-q", "-A", "-t"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            let mut child = psql.spawn().unwrap();
            let stdin = child.stdin.as_mut().unwrap();
            stdin.write_all(b"BEGIN; SELECT pg_current_xact_id();\n").unwrap();
            stdin.flush().unwrap();
            child
        }
    }

    #[test]
    fn each_planted_problem_is_found_and_nothing_else() {
        let Some(database) = Database::of("each_planted_problem_is_found_and_nothing_else") else { return };
        // The doctor's own transactions are never open for that long, even on a busy machine.
        let doctor = || database.run(&["doctor", "--wait", "10s"]);
        database.run(&["push", "emails", "x"]).ok();
        assert_eq!(doctor().ok(), "");

        let name = &database.name;
        database.admin(&format!("ALTER ROLE {name} SET synchronous_commit = off"));
        let told = doctor().fails(1, &["1 problem"]);
        assert!(told.stdout.starts_with("durability: synchronous_commit is off"), "{told:?}");
        assert!(told.stdout.contains("to do: set synchronous_commit = on"), "{told:?}");
        database.admin(&format!("ALTER ROLE {name} RESET ALL"));

        let mut forgetful = database.forgetful();
        until("it is held for long enough to be found", || doctor().code == Some(1));
        let told = doctor().fails(1, &["1 problem"]);
        assert!(told.stdout.starts_with("held transaction: session "), "{told:?}");
        assert!(told.stdout.contains("pg_terminate_backend"), "{told:?}");
        forgetful.kill().unwrap();
        forgetful.wait().unwrap();
        until("the server has noticed its end", || doctor().code == Some(0));

        database.admin_within("REVOKE INSERT ON sawmill.entry FROM CURRENT_ROLE");
        let told = doctor().fails(1, &["1 problem"]);
        assert!(told.stdout.starts_with("rights: ") && told.stdout.contains("GRANT"), "{told:?}");
        database.admin_within("GRANT INSERT ON sawmill.entry TO CURRENT_ROLE");

        // Use a clock that is an hour ahead, as the server shares the clock of this machine.
        database.admin_within(
            "CREATE SCHEMA skewed; CREATE FUNCTION skewed.clock_timestamp() RETURNS timestamptz LANGUAGE sql
             AS $$ SELECT pg_catalog.clock_timestamp() + interval '1 hour' $$",
        );
        database.admin(&format!("ALTER ROLE {name} SET search_path = skewed, pg_catalog"));
        let told = doctor().fails(1, &["1 problem"]);
        assert!(told.stdout.starts_with("clock skew: "), "{told:?}");
        database.admin(&format!("ALTER ROLE {name} RESET ALL"));

        let silent = doctor();
        assert!(silent.stdout.is_empty() && silent.stderr.contains("Nothing is wrong."), "{silent:?}");
    }

    #[test]
    fn who_is_not_let_in_or_finds_nobody_is_told_so() {
        let Some(database) = Database::of("who_is_not_let_in_or_finds_nobody_is_told_so") else { return };
        database.run_at(&database.url("guess"), &["doctor"]).fails(2, &["password", "***"]);
        let nobody = "postgres://mill:secret@127.0.0.1:1/mill";
        let told = database.run_at(nobody, &["doctor"]).fails(3, &["127.0.0.1:1"]);
        assert_eq!(told.stdout, "", "no problem of a store that nobody has seen");
    }
}
