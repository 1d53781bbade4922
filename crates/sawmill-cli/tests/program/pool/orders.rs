//! Orders as command lines, and messages that are not orders: K8.

use super::fixture::{Pool, TTL};
use crate::support::Running;

#[test]
fn k8_an_order_is_a_command_line() {
    let test = "k8_an_order_is_a_command_line";
    let Some(pool) = Pool::of(test) else { return };
    pool.place.script("note", "echo \"$#|$1|$2|$SIZE|${SAWMILL_ID:+id}\" >> notes");
    pool.send(&[
        "./note 'a b' $HOME",
        r#"{"command": "./note c;d *", "env": {"SIZE": "5 0", "SAWMILL_ID": ""}}"#,
        r#"{"command": ["./note", "e f", ""], "env": ["SIZE=1=2"]}"#,
    ]);
    for _ in 0..3 {
        pool.work(1);
    }
    let mut notes: Vec<String> = pool.place.read("notes").lines().map(str::to_owned).collect();
    notes.sort();
    assert_eq!(notes, ["2|a b|$HOME||id", "2|c;d|*|5 0|id", "2|e f||1=2|id"]);
}

#[test]
fn k8_what_is_no_order_is_a_dead_letter_and_what_fails_is_tried_again() {
    let test = "k8_what_is_no_order_is_a_dead_letter_and_what_fails_is_tried_again";
    let Some(pool) = Pool::of(test) else { return };
    pool.send(&[r#"{"comand": "x"}"#]);
    pool.work(1);
    pool.send(&[r#"{"image": "--privileged"}"#]);
    pool.work(1);
    let dead = pool.dead();
    assert!(dead.contains("this is no order") && dead.contains("comand"), "{dead}");
    assert!(dead.contains("no name of an image"), "{dead}");

    pool.place.script("once", "[ -e tried ] || { touch tried; echo not yet >&2; exit 1; }");
    pool.send(&["./once"]);
    pool.work(1);
    assert!(pool.place.path("tried").exists());
    let status = pool.status();
    assert_eq!((status["done"].as_u64(), status["retrying"].as_u64()), (Some(0), Some(1)), "{status}");
    // The next start runs the second attempt.
    pool.work(1);
    assert_eq!(pool.status()["done"].as_u64(), Some(1));
    pool.send(&["./not-there"]);
    pool.work(1);
    let status = pool.status();
    assert_eq!(status["retrying"].as_u64(), Some(1), "another machine may have it: {status}");
}

#[test]
fn k8_kinds_can_be_left_out() {
    let test = "k8_kinds_can_be_left_out";
    let Some(pool) = Pool::of(test) else { return };
    pool.send(&["touch here"]);
    let args = ["--accept", "image,url", "--ttl", TTL];
    Running::start(&mut pool.instance(1, &args)).wait().ok();
    let dead = pool.dead();
    assert!(dead.contains("`command` are not accepted"), "{dead}");
    assert!(!pool.place.path("here").exists());
}

#[test]
fn k8_a_command_of_the_instance_gets_the_order_on_stdin() {
    let test = "k8_a_command_of_the_instance_gets_the_order_on_stdin";
    let Some(pool) = Pool::of(test) else { return };
    pool.send(&["{any thing}"]);
    let args = ["--ttl", TTL, "--", "sh", "-c", "cat > order"];
    Running::start(&mut pool.instance(1, &args)).wait().ok();
    assert_eq!(pool.place.read("order"), "{any thing}");
}
