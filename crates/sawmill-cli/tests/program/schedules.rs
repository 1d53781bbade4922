//! `sawmill cron`.

use crate::support::{Place, until};

#[test]
fn a_schedule_is_added_listed_changed_and_removed() {
    let place = Place::new();
    assert!(place.run(&["cron", "list"]).stderr.contains("no schedules"));
    let nightly = ["cron", "add", "reports", "nightly", "0 3 * * *", "--tz", "Europe/Berlin"];
    let added = place.run(&[&nightly[..], &["--payload", "all", "--key", "k", "--header", "a=b"]].concat());
    assert_eq!(added.code, Some(0), "{added:?}");
    for part in ["created topic reports (16 shards)", "nightly", "Europe/Berlin", "next 20", "no worker yet"]
    {
        assert!(added.stderr.contains(part), "{part}: {}", added.stderr);
    }
    assert_eq!(
        place.run_with(&["cron", "add", "reports", "ping", "--every", "30s", "--payload", "-"], b"\xff").code,
        Some(0)
    );
    let list = place.json(&["cron", "list"]);
    assert_eq!(
        (&list[0]["name"], &list[0]["payload"], &list[0]["key"]),
        (&"nightly".into(), &"all".into(), &"k".into())
    );
    assert!(list[0]["next_at"].as_str().unwrap().ends_with(":00:00.000Z"));
    assert_eq!((&list[1]["payload_base64"], &list[1]["missed"]), (&"/w==".into(), &"once".into()));
    let table = place.ok(&["cron", "list", "reports"]);
    assert!(table.lines().nth(1).unwrap().contains("UTC (in "), "{table}");

    place.ok(&["cron", "add", "reports", "nightly", "0 4 * * *", "--missed", "skip"]);
    let list = place.json(&["cron", "list", "reports"]);
    assert_eq!((list.len(), &list[0]["missed"]), (2, &"skip".into()));
    place.ok(&["cron", "remove", "reports", "nightly"]);
    place.run(&["cron", "remove", "reports", "nightly"]).fails(4, &["no schedule nightly"]);
    assert_eq!(place.json(&["cron", "list"]).len(), 1);
}

#[test]
fn a_tick_is_worked() {
    let place = Place::new();
    place.ok(&["cron", "add", "health", "ping", "--every", "1s", "--payload", "ping "]);
    let worker = place.start(&["work", "health", "--", "tee", "-a", "ran.txt"]);
    until("it ticks", || place.read("ran.txt").starts_with("ping ping "));
    drop(worker);
}

#[test]
fn what_is_wrong_with_a_schedule_is_said() {
    let place = Place::new();
    let add = ["cron", "add", "reports", "x"];
    let with = |more: &[&str]| place.run(&[&add[..], more].concat());
    with(&["0 3 * *"]).fails(2, &["0 3 * *", "0 3 * * *"]);
    with(&["0 3 * * *", "--tz", "Mars/Base"]).fails(2, &["Mars/Base"]);
    with(&["0 0 31 2 *"]).fails(2, &["no such time"]);
    with(&["--every", "0s"]).fails(2, &["one second"]);
    with(&[]).fails(2, &["EXPRESSION"]);
    with(&["0 3 * * *", "--every", "1h"]).fails(2, &["--every"]);
    with(&["0 3 * * *", "--header", "nonsense"]).fails(2, &["NAME=VALUE"]);
    with(&["0 3 * * *", "--missed", "perhaps"]).fails(2, &["perhaps", "skip"]);
    assert!(place.json(&["topic", "list"]).is_empty(), "no topic is made for what cannot be scheduled");
    with(&["0 3 * * *", "--no-create"]).fails(4, &["reports"]);
    place.run(&["cron", "list", "nothing"]).fails(4, &["nothing"]);
    place.run(&["cron", "remove", "nothing", "x"]).fails(4, &["nothing"]);
}
