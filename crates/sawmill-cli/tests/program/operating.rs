//! The commands for operators: `status`, `workers`, `pause`, `dead`, `replay`, `trim`, `migrate`.

use std::time::Duration;

use crate::support::library::Library;
use crate::support::{Place, until};
use sawmill::{Push, TopicSpec};
use serde_json::Value;

fn status(place: &Place, topic: &str) -> Value {
    place.json(&["status", topic, "--sample", "0s"])[0].clone()
}

#[test]
fn q17_status_says_whether_we_are_behind() {
    let place = Place::new();
    let nothing = place.run(&["status"]);
    assert!(nothing.stdout.is_empty() && nothing.stderr.contains("no topics"), "{nothing:?}");
    let library = Library::open(&place);
    for n in 0..3 {
        library.pushed("emails", format!("letter {n}"));
    }
    library.pushed("emails", Push::new("later").after(Duration::from_secs(3600)));
    let now = status(&place, "emails");
    assert_eq!((&now["verdict"], &now["group"]), (&"no-groups".into(), &Value::Null));
    assert_eq!((&now["waiting"], &now["scheduled"]), (&3.into(), &1.into()));
    assert!(place.ok(&["status", "--sample", "0s"]).contains("emails: no groups yet; 3 messages wait"));

    place.ok(&["work", "emails", "--drain", "--", "true"]);
    let now = status(&place, "emails");
    assert_eq!((&now["verdict"], &now["done"]), (&"no-workers".into(), &3.into()), "one is still to come");
    library.pushed("emails", "letter 3");
    assert!(place.ok(&["status", "--sample", "0s"]).contains("group default: no workers; 1 message waits"));

    let worker = place.start(&["work", "emails", "--", "sleep", "0.05"]);
    until("all is done", || status(&place, "emails")["verdict"] == "idle");
    assert_eq!(
        (&status(&place, "emails")["workers"], &status(&place, "emails")["done"]),
        (&1.into(), &4.into())
    );
    let sampled = &place.json(&["status", "emails"])[0];
    assert_eq!(sampled["finished_per_second"], 0.0);
    // Work that is in progress has a rate.
    library.run(async |mill| mill.push_many("emails", vec!["x"; 2000]).await.unwrap());
    until("it has a rate", || {
        place.json(&["status", "emails"])[0]["finished_per_second"].as_f64().unwrap() > 0.0
    });
    drop(worker);
}

#[test]
fn q17_old_messages_that_nobody_gets_to_are_a_backlog() {
    let place = Place::new();
    let library = Library::open(&place);
    place.ok(&["topic", "create", "emails"]);
    let worker = place.start(&["work", "emails", "--concurrency", "1", "--", "sleep", "600"]);
    for _ in 0..5 {
        library.pushed("emails", "x");
    }
    until("one is behind", || status(&place, "emails")["verdict"] == "behind");
    let table = place.ok(&["status", "--sample", "100ms"]);
    assert!(table.contains("emails, group default: behind by "), "{table}");
    // On a busy machine there is more time than asked for between the two samples.
    assert!(table.contains("nothing was finished in "), "{table}");
    drop(worker);
}

#[test]
fn q17_workers_are_listed_with_what_they_hold_and_what_they_noted() {
    let place = Place::new();
    assert!(place.run(&["workers"]).stderr.contains("no workers"));
    let library = Library::open(&place);
    let id = library.pushed("emails", "x");
    let (tell, told) = std::sync::mpsc::channel();
    let worker = library.run(async |mill| {
        let handler = move |context: sawmill::Context| {
            context.note("page 3 of 7");
            let _ = tell.send(());
            std::future::pending::<()>()
        };
        mill.worker("emails").group("press").name("anna").concurrency(2).start(handler).await.unwrap()
    });
    told.recv().unwrap();
    until("the note is there", || place.ok(&["workers"]).contains("page 3 of 7"));
    let seen = &place.json(&["workers", "emails", "--group", "press"])[0];
    assert!(seen["worker"].as_str().unwrap().starts_with("anna-"));
    assert_eq!(
        (&seen["concurrency"], &seen["claimed"], &seen["group"]),
        (&2.into(), &1.into(), &"press".into())
    );
    assert_eq!(seen["running"][0]["id"], id.as_str());
    place.run(&["workers", "emails", "--group", "other"]).fails(4, &["no group other", "press"]);
    place.run(&["workers", "nothing"]).fails(4, &["nothing"]);
    library.run(async |_| worker.abort().await);
    assert!(place.json(&["workers"]).is_empty());
}

#[test]
fn q22_a_paused_group_starts_nothing_and_moves_nothing() {
    let place = Place::new();
    let library = Library::open(&place);
    place.ok(&["topic", "create", "emails"]);
    let note = place.script("note.sh", "cat >> ran.txt; while [ ! -e go ]; do sleep 0.05; done");
    let first = place.start(&["work", "emails", "--concurrency", "1", "--name", "one", "--", &note]);
    let id = library.pushed("emails", "a");
    until("it runs", || place.read("ran.txt") == "a");
    let holder = || place.json(&["show", &id])[0]["groups"][0]["worker"].clone();
    let (held_by, worker_id) = (holder(), place.json(&["workers"])[0]["worker"].clone());

    assert!(place.run(&["pause", "emails"]).stderr.contains("within a few seconds"));
    assert!(place.run(&["pause", "emails"]).stderr.contains("already"));
    assert_eq!(status(&place, "emails")["verdict"], "paused");
    let gate = library.pushed("emails", "b");
    // Wait for two heartbeats: the worker of a paused group sends them and does nothing else.
    let heartbeat = || place.json(&["workers"])[0]["last_heartbeat_at"].clone();
    for _ in 0..2 {
        let before = heartbeat();
        until("the worker sends a heartbeat", || heartbeat() != before);
    }
    assert_eq!(holder(), held_by, "what is in hand stays there");
    place.write("go", "");
    until("what runs ends", || place.json(&["show", &id])[0]["groups"][0]["state"] == "done");
    let before = heartbeat();
    until("the worker sends a heartbeat", || heartbeat() != before);
    assert_eq!(place.read("ran.txt"), "a", "nothing is started");
    assert_eq!(place.json(&["workers"])[0]["worker"], worker_id, "the same worker, with the same shards");

    assert!(place.run(&["resume", "emails"]).stderr.contains("Resumed"));
    until("it goes on", || place.json(&["show", &gate])[0]["groups"][0]["state"] == "done");
    assert_eq!(place.read("ran.txt"), "ab");
    assert!(place.run(&["resume", "emails"]).stderr.contains("was not paused"));
    drop(first);
}

#[test]
fn a_group_may_be_paused_before_it_begins() {
    let place = Place::new();
    Library::open(&place).pushed("emails", "x");
    place.run(&["resume", "emails"]).fails(4, &["no group default"]);
    assert!(place.run(&["pause", "emails"]).stderr.contains("no worker yet"));
    assert_eq!(status(&place, "emails")["verdict"], "paused");
    assert_eq!(place.json(&["resume", "emails"])[0]["changed"], true);
    place.run(&["pause", "nothing"]).fails(4, &["nothing"]);
}

#[test]
fn g11_resend_of_a_dead_message_by_a_person() {
    let place = Place::new();
    let library = Library::open(&place);
    let ids = ["a", "b", "c"].map(|payload| library.pushed("emails", Push::new(payload).key("k")));
    let fail = place.script("fail.sh", "echo out of paper >&2; echo and ink >&2; exit 65");
    place.ok(&["work", "emails", "--drain", "--", &fail]);

    let table = place.ok(&["dead", "list", "emails"]);
    assert_eq!(table.lines().count(), 4, "{table}");
    assert!(table.starts_with("ID  ") && table.contains("ago") || table.contains("now"), "{table}");
    let letters = place.json(&["dead", "list", "emails"]);
    let mut listed: Vec<&str> = letters.iter().map(|letter| letter["id"].as_str().unwrap()).collect();
    listed.sort_unstable();
    assert_eq!(listed, ids);
    assert_eq!(place.json(&["dead", "list", "emails", "--limit", "2"]).len(), 2);
    assert!(place.run(&["dead", "list", "emails", "--limit", "2"]).stderr.contains("2 of 3 dead letters"));
    let shown = place.ok(&["dead", "show", "emails", &ids[0]]);
    assert!(shown.contains("out of paper") && shown.contains("and ink"), "{shown}");
    assert_eq!(place.json(&["dead", "show", "emails", "--all"]).len(), 3);
    assert_eq!(place.json(&["show", &ids[0]])[0]["groups"][0]["state"], "dead");

    assert_eq!(place.json(&["dead", "retry", "emails", &ids[0]])[0]["retried"], 1);
    place.ok(&["work", "emails", "--drain", "--", "tee", "-a", "ran.txt"]);
    assert_eq!(place.read("ran.txt"), "a");
    assert_eq!(place.json(&["show", &ids[0]])[0]["groups"][0]["state"], "done");
    place.run(&["dead", "retry", "emails", &ids[0]]).fails(4, &[&ids[0]]);

    place.run(&["dead", "drop", "emails", &ids[1]]).fails(2, &["--yes"]);
    assert!(place.run(&["dead", "drop", "emails", &ids[1], "--yes"]).stderr.contains("1 dead letter"));
    assert!(place.run(&["dead", "retry", "emails", "--all"]).stderr.contains("Retried 1 dead letter"));
    place.ok(&["work", "emails", "--drain", "--", "tee", "-a", "ran.txt"]);
    assert_eq!(place.read("ran.txt"), "ac");
    let empty = place.run(&["dead", "list", "emails"]);
    assert!(empty.stdout.is_empty() && empty.stderr.contains("no dead letters"), "{empty:?}");
    assert_eq!(place.json(&["dead", "retry", "emails", "--all"])[0]["retried"], 0);
}

#[test]
fn g11_resend_of_a_message_that_was_lost_with_its_worker() {
    let place = Place::new();
    let id = Library::open(&place).pushed("orders", "a");
    let stuck = place.script("stuck.sh", "echo started > started.txt; sleep 600");
    let once = ["work", "orders", "--delivery", "at-most-once"];
    let doomed = place.start(&[&once[..], &["--ttl", "2s", "--", &stuck]].concat());
    until("it has started", || place.read("started.txt").contains("started"));
    doomed.signal(rustix::process::Signal::KILL);
    let ended = doomed.wait();
    assert_eq!(ended.code, None, "{ended:?}");

    let next = place.start(&[&once[..], &["--", "tee", "-a", "ran.txt"]].concat());
    let state = || place.json(&["show", &id])[0]["groups"][0].clone();
    until("it is given up", || state()["state"] == "dead");
    assert!(state()["reason"].as_str().unwrap().contains("lost"), "{}", state());
    assert_eq!(place.read("ran.txt"), "", "it may have been done: nobody starts it again by himself");
    place.ok(&["dead", "retry", "orders", &id]);
    until("it is done", || state()["state"] == "done");
    assert_eq!(place.read("ran.txt"), "a");
    drop(next);
}

#[test]
fn dead_letters_need_a_choice_and_a_group() {
    let place = Place::new();
    Library::open(&place).pushed("emails", "x");
    for command in ["show", "retry", "drop"] {
        place.run(&["dead", command, "emails"]).fails(2, &["ID", "--all"]);
        place.run(&["dead", command, "emails", "nonsense"]).fails(2, &["nonsense"]);
        place.run(&["dead", command, "emails", "--all", "--group", "g"]).fails(4, &["no group g"]);
    }
    place.run(&["dead", "list", "nothing"]).fails(4, &["nothing"]);
}

#[test]
fn g17_replay_of_the_stream_from_a_place() {
    let place = Place::new();
    let library = Library::open(&place);
    let ids: Vec<String> = library.run(async |mill| {
        let spec = TopicSpec { shards: 1, ..TopicSpec::new("orders".parse().unwrap()) };
        mill.create_topic_with(&spec).await.unwrap();
        let ids = mill.push_many("orders", ["1", "2", "3"]).await.unwrap();
        ids.iter().map(ToString::to_string).collect()
    });
    let work = |file: &str| {
        let group = ["work", "orders", "--group", "totals", "--ordered", "--concurrency", "1", "--drain"];
        place.ok(&[&group[..], &["--", "tee", "-a", file]].concat());
        place.read(file)
    };
    assert_eq!(work("first.txt"), "123");
    let replay = ["replay", "orders", "--group", "totals"];
    let from = |from: &str| place.json(&[&replay[..], &["--yes", "--from", from]].concat())[0].clone();

    place.run(&[&replay[..], &["--from", "start"]].concat()).fails(2, &["--yes"]);
    assert_eq!(work("none.txt"), "", "nothing is replayed without a yes");
    assert_eq!(from(&ids[1])["waiting"], 2);
    assert_eq!(work("id.txt"), "23");
    assert_eq!(from("start")["waiting"], 3);
    assert_eq!(from("now")["waiting"], 0);
    assert_eq!(work("skipped.txt"), "");
    assert_eq!(from("2020-01-01T00:00:00Z")["waiting"], 3);
    assert_eq!(work("all.txt"), "123");
    assert_eq!(place.json(&["status", "orders", "--sample", "0s"])[0]["done"], 8);

    place.run(&["replay", "orders", "--from", "start"]).fails(2, &["--group"]);
    place.run(&[&replay[..], &["--from", "soon"]].concat()).fails(2, &["soon", "start"]);
    place.run(&["replay", "orders", "--group", "x", "--from", "start", "--yes"]).fails(4, &["no group x"]);
    let nobody = "01KA5WZJ2M8Q4T6V8X0Y2A4C6E";
    place.run(&[&replay[..], &["--from", nobody, "--yes"]].concat()).fails(4, &[nobody]);
}

#[test]
fn what_nobody_needs_is_dropped_on_demand() {
    let place = Place::new();
    let library = Library::open(&place);
    place.ok(&["topic", "create", "clicks", "--retention", "1ms"]);
    for _ in 0..4 {
        library.pushed("clicks", "x");
    }
    assert!(place.run(&["trim", "clicks"]).stderr.contains("Nothing to drop"), "no group is past them");
    place.ok(&["work", "clicks", "--drain", "--", "true"]);
    let dropped = |place: &Place| place.json(&["trim", "clicks"])[0]["dropped"].as_u64().unwrap();
    // The worker may have trimmed them already.
    let count = dropped(&place);
    assert!(count <= 4);
    assert_eq!(dropped(&place), 0);
    // The process that has just pushed them may still see them for a moment.
    until("they are gone", || {
        library.run(async |mill| mill.admin().peek("clicks", "new", 10).await.unwrap()).is_empty()
    });
    place.run(&["trim", "nothing"]).fails(4, &["nothing"]);
}

#[test]
fn a_store_is_created_and_migrated_by_itself() {
    let place = Place::new();
    assert!(place.run(&["migrate"]).stderr.contains("sqlite:sawmill.db was created"));
    assert!(place.run(&["migrate"]).stderr.contains("up to date"));
    let migrated = &place.json(&["migrate"])[0];
    assert_eq!(migrated["schema"], migrated["schema_before"]);

    // Recreate the schema of the first version.
    let raw = rusqlite::Connection::open(place.path("sawmill.db")).unwrap();
    let first = "DROP INDEX message_id; CREATE UNIQUE INDEX message_id ON message (topic, id);
        ALTER TABLE message DROP COLUMN repeatable; ALTER TABLE aside DROP COLUMN repeatable;
        ALTER TABLE topic DROP COLUMN drops_unread; DROP TABLE finished; PRAGMA user_version = 1;";
    raw.execute_batch(first).unwrap();
    let migrated = place.run(&["migrate"]);
    assert!(migrated.stderr.contains("migrated from schema version 1 to "), "{migrated:?}");
    Library::open(&place).pushed("emails", "x");

    place.run(&["migrate", "--store", "nonsense:x"]).fails(2, &["nonsense:x", "sqlite:"]);
    place.write("text.db", "no database at all, but long enough to be taken for one by a careless program");
    place.run(&["migrate", "--store", "sqlite:text.db"]).fails(1, &["text.db"]);
}
