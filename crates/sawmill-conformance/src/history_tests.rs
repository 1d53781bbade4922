//! Each check of a history finds its violations and accepts good runs.

use super::*;

/// Parses a history in short form: `p 1 a` pushed, `s 1 a w 1` started, `ok 1 w`, `bad 1 w`, `dead 1`, `kill
/// w`, `freeze w`, `out w-7`.
fn history(short: &[&str]) -> History {
    let id = |text: &str| MessageId::from_u128(text.parse().unwrap());
    let key = |text: &str| (text != "-").then(|| text.to_owned());
    let event = |line: &&str| match *line.split(' ').collect::<Vec<_>>() {
        ["p", i, k] => Event::Pushed { id: id(i), key: key(k) },
        ["s", i, k, worker, n] => {
            Event::Started { id: id(i), key: key(k), worker: worker.into(), attempt: n.parse().unwrap() }
        }
        ["ok", i, worker] => Event::Finished { id: id(i), worker: worker.into(), ok: true },
        ["bad", i, worker] => Event::Finished { id: id(i), worker: worker.into(), ok: false },
        ["dead", i] => Event::Dead { id: id(i) },
        ["kill", worker] => Event::WorkerKilled { worker: worker.into() },
        ["freeze", worker] => Event::WorkerFrozen { worker: worker.into() },
        ["out", member] => Event::DeclaredDead { member: member.into() },
        _ => panic!("{line}"),
    };
    let at = |(at, event)| Recorded { at: at as u64, event };
    History::new(short.iter().map(event).enumerate().map(at))
}

/// Two keys, a retry, a dead letter, and a killed worker: no violation.
fn good() -> History {
    history(&[
        "p 1 a",
        "p 2 a",
        "s 1 a w 1",
        "p 3 b",
        "s 3 b v 1",
        "bad 3 v",
        "kill w",
        "out w-7",
        "s 1 a v 2",
        "ok 1 v",
        "s 2 a v 1",
        "s 3 b v 2",
        "bad 3 v",
        "dead 3",
        "ok 2 v",
        "p 4 -",
        "s 4 - v 1",
        "freeze v",
        "s 4 - u 2",
        "ok 4 u",
        "ok 4 v",
    ])
}

fn one(violations: Vec<String>, says: &str) {
    assert_eq!(violations.len(), 1, "{violations:?}");
    assert!(violations[0].contains(says), "{violations:?}");
}

#[test]
fn a_good_run_has_no_violations() {
    let good = good();
    assert_eq!(good.check_nothing_lost(), [""; 0]);
    assert_eq!(good.check_nothing_invented(), [""; 0]);
    assert_eq!(good.check_second_starts_have_a_reason(), [""; 0]);
    assert_eq!(good.check_order_per_key(), [""; 0]);
    assert_eq!(good.check_deaths_have_a_reason(), [""; 0]);
    assert_eq!(history(&["p 1 a", "s 1 a w 1", "kill w", "dead 1"]).check_at_most_once(), [""; 0]);
}

#[test]
fn a_lost_message_is_found() {
    one(history(&["p 1 a", "p 2 -", "s 1 a w 1", "ok 1 w"]).check_nothing_lost(), "pushed and never done");
    one(history(&["p 1 a", "s 1 a w 1", "bad 1 w"]).check_nothing_lost(), "finished");
    one(history(&["p 1 a", "s 1 a w 1", "kill w"]).check_nothing_lost(), "started");
}

#[test]
fn an_invented_message_is_found() {
    one(history(&["p 1 a", "s 2 a w 1"]).check_nothing_invented(), "never pushed");
    one(history(&["p 1 a", "s 1 b w 1"]).check_nothing_invented(), "with key a");
}

#[test]
fn a_second_start_is_found() {
    one(history(&["p 1 a", "s 1 a w 1", "kill w", "s 1 a v 2"]).check_at_most_once(), "started twice");
    one(history(&["p 1 a", "s 1 a w 1", "bad 1 w", "s 1 a w 1"]).check_at_most_once(), "started twice");
}

#[test]
fn a_second_start_without_a_reason_is_found() {
    let check = |short: &[&str]| history(short).check_second_starts_have_a_reason();
    one(check(&["p 1 a", "s 1 a w 1", "s 1 a v 1"]), "started again");
    one(check(&["p 1 a", "s 1 a w 1", "ok 1 w", "s 1 a v 1"]), "started again");
    one(check(&["p 1 a", "s 1 a w 1", "s 1 a v 1", "kill w"]), "started again");
    one(check(&["p 1 a", "s 1 a w 1", "kill v", "s 1 a v 1"]), "started again");
    one(check(&["p 1 a", "s 1 a w 1", "bad 1 w", "s 1 a w 2", "s 1 a v 3"]), "started again");
}

#[test]
fn a_death_without_a_reason_is_found() {
    let check = |short: &[&str]| history(short).check_deaths_have_a_reason();
    one(check(&["kill w", "out w-7", "out v-8"]), "v-8");
    one(check(&["out w-7", "kill w"]), "had not fallen");
    one(check(&["freeze w", "out w-7", "out w-8"]), "w-8");
    assert_eq!(check(&["freeze w-1", "out w-1-7", "out w-1-7"]), [""; 0], "two may tell of one death");
    assert_eq!(check(&["freeze w", "out w-7", "kill w", "out w-8"]), [""; 0], "each life ends once");
}

#[test]
fn a_broken_order_is_found() {
    let check = |short: &[&str]| history(short).check_order_per_key();
    one(check(&["p 1 a", "p 2 a", "s 2 a w 1"]), "before");
    one(check(&["p 1 a", "p 2 a", "s 1 a w 1", "s 2 a w 1", "ok 1 w"]), "before");
    one(check(&["p 1 a", "p 2 a", "s 1 a w 1", "bad 1 w", "s 2 a w 1"]), "before");
    one(check(&["p 1 a", "s 1 a w 1", "ok 1 w", "s 1 a v 2"]), "was over");
    one(check(&["p 1 a", "s 1 a w 1", "dead 1", "s 1 a v 2"]), "was over");
    assert_eq!(check(&["p 1 a", "p 2 b", "s 2 b w 1"]), [""; 0], "keys do not wait for one another");
    assert_eq!(check(&["p 1 -", "p 2 -", "s 2 - w 1"]), [""; 0], "without a key there is no order");
}

#[test]
fn a_history_is_read_back_from_its_text() {
    let good = good();
    assert_eq!(History::parse([good.to_string().as_str()]), Ok(good));
    for key in [None, Some(""), Some("-"), Some("%"), Some("a b\nc"), Some("größe"), Some("%2d")] {
        let id = MessageId::from_u128(7);
        for event in [
            Event::Pushed { id, key: key.map(str::to_owned) },
            Event::Started { id, key: key.map(str::to_owned), worker: "w x".into(), attempt: 3 },
        ] {
            let recorded = Recorded { at: 9, event };
            assert_eq!(recorded.to_string().parse(), Ok(recorded));
        }
    }
}

#[test]
fn files_of_several_processes_are_one_history() {
    let good = good();
    let (mut one, mut other) = (String::new(), String::new());
    for (number, recorded) in good.events().iter().enumerate() {
        let file = if number % 3 == 0 { &mut one } else { &mut other };
        *file += &format!("{recorded}\n");
    }
    assert_eq!(History::parse([one.as_str(), other.as_str()]), Ok(good.clone()));
    // The last line of a killed process may be cut off.
    one += "17 finis";
    assert_eq!(History::parse([one.as_str(), other.as_str()]), Ok(good));
}

#[test]
fn what_is_no_event_is_refused_with_its_line() {
    for line in ["", "x", "1 pushed", "1 pushed zz a", "x dead 7", "1 finished 7 w maybe", "1 killed %zz"] {
        let error = History::parse([format!("1 killed w\n{line}\n").as_str()]).unwrap_err();
        assert!(error.contains("line 2"), "{error}");
    }
}
