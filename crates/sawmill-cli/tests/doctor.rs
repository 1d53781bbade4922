//! `sawmill doctor` finds what is wrong, and is silent where nothing is.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use rustix::process::Signal;
use support::{Place, until};

#[test]
fn a_healthy_store_has_nothing_to_report() {
    let place = Place::new();
    assert_eq!(place.ok(&["doctor"]), "");
    place.ok(&["push", "emails", "x"]);
    let worker = place.start(&["work", "emails", "--ttl", "1s", "--", "sleep", "60"]);
    until("it works", || place.json(&["status", "--sample", "0s"])[0]["claimed"] == 1);
    let ended = place.run(&["doctor"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{ended:?}");
    assert!(ended.stderr.contains("Nothing is wrong."), "{ended:?}");
    assert!(place.json(&["doctor"]).is_empty());
    drop(worker);
}

#[test]
fn what_a_killed_worker_holds_is_stuck_until_another_comes() {
    let place = Place::new();
    place.ok(&["push", "emails", "x"]);
    let worker = place.start(&["work", "emails", "--ttl", "1s", "--", "sleep", "60"]);
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
