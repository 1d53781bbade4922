//! `sawmill deliver forward`.

use std::collections::BTreeMap;

use rustix::process::Signal;
use sawmill::{Message, Push, Sawmill};

use crate::support::library::Library;
use crate::support::{Place, until};

/// Opens a second store in the folder of the test.
fn other(library: &Library, place: &Place) -> Sawmill {
    let url = format!("sqlite:{}", place.path("other.db").display());
    let options = Sawmill::options().engine(sawmill_sqlite::SqliteEngine);
    library.block_on(options.open(&url)).unwrap()
}

fn waiting(library: &Library, mill: &Sawmill, topic: &str) -> Vec<Message> {
    library.block_on(mill.admin().peek(topic, "default", 100_000)).unwrap()
}

#[test]
fn g19_a_message_is_forwarded_as_it_is() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    let push =
        Push::new(&b"\xff\0payload"[..]).key(&b"\xfekey"[..]).header("lang", "en").header("lang", "de");
    let id = library.push("t", push);
    place.ok(&["deliver", "forward", "t", "--to", "copy", "--drain"]);
    place.ok(&["deliver", "forward", "copy", "--to-store", "sqlite:other.db", "--drain"]);
    let there = other(&library, &place);
    let copies = waiting(&library, &there, "copy");
    assert_eq!(copies.len(), 1);
    let copy = &copies[0];
    assert_eq!((&copy.payload[..], copy.key.as_deref()), (&b"\xff\0payload"[..], Some(&b"\xfekey"[..])));
    let headers: Vec<(String, String)> = copy
        .headers
        .iter()
        .map(|(name, value)| (name.to_owned(), String::from_utf8(value.to_vec()).unwrap()))
        .collect();
    let between = library.block_on(library.mill.admin().peek("copy", "nobody", 10)).unwrap()[0].id;
    let expected = [
        ("lang", "en".to_owned()),
        ("lang", "de".to_owned()),
        ("forwarded-from", format!("t {id}")),
        ("forwarded-from", format!("copy {between}")),
    ];
    assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value)));
}

#[test]
fn g19_what_is_forwarded_to_two_topics_is_two_messages() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push("t", "x");
    let copies = ["audit", "billing"].map(|to| {
        place.ok(&["deliver", "forward", "t", "--to", to, "--group", to, "--drain"]);
        waiting(&library, &library.mill, to)[0].id
    });
    assert_ne!(copies[0], copies[1]);
    // Each copy can be shown and cancelled by itself.
    for (topic, id) in ["audit", "billing"].iter().zip(copies) {
        assert_eq!(place.json(&["cancel", &id.to_string()])[0]["topic"], *topic);
    }
}

#[test]
fn g19_workers_that_are_killed_lose_nothing_and_double_nothing() {
    const MESSAGES: usize = 10_000;
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    let there = other(&library, &place);
    library.block_on(there.create_topic("t")).unwrap();
    library.push_many("t", (0..MESSAGES).map(|number| Push::new(number.to_string())));
    let args =
        ["deliver", "forward", "t", "--to-store", "sqlite:other.db", "--ttl", "2s", "--concurrency", "8"];
    let arrived = || library.block_on(there.admin().status("t", "default")).unwrap().waiting as usize;
    for part in [300, 1000] {
        let worker = place.start(&args);
        until("some have arrived", || arrived() > part);
        worker.signal(Signal::KILL);
        drop(worker);
        assert!(arrived() < MESSAGES, "it was killed in the middle");
    }
    let worker = place.start(&args);
    library.until_settled("t", MESSAGES as u64);
    worker.signal(Signal::INT);
    worker.wait().ok();

    let mut times: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for message in waiting(&library, &there, "t") {
        *times.entry(message.payload.to_vec()).or_default() += 1;
    }
    assert_eq!(times.len(), MESSAGES, "nothing is lost");
    let doubled: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
    assert!(doubled.is_empty(), "forwarded twice: {doubled:?}");
    assert_eq!(library.status("t").dead, 0, "given up: {:?}", library.dead("t"));
}

#[test]
fn g19_a_ring_comes_to_an_end() {
    let place = Place::new();
    let library = Library::with_topic(&place, "a");
    let there = place.start(&["deliver", "forward", "a", "--to", "b"]);
    let back = place.start(&["deliver", "forward", "b", "--to", "a"]);
    library.push("a", "round and round");
    until("it is given up", || library.status("a").dead == 1);
    let reason = library.dead("a")[0].reason().to_owned();
    assert!(reason.contains("forwarded 16 times") && reason.contains("loop"), "{reason}");
    for worker in [there, back] {
        worker.signal(Signal::INT);
        worker.wait().ok();
    }
}
