use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::claim::{Token, WorkerId};
use crate::env::Env;
use crate::handler::Context;
use crate::ledger::Ledger;
use crate::log::{Position, Span};
use crate::memory::Memory;
use crate::seek::Since;
use crate::shard::{Grab, Rules};

const TTL: Duration = Duration::from_millis(400);

fn mill(memory: &Memory, understood: Format) -> Sawmill {
    let (log, ledger) = (Arc::new(memory.clone()), Arc::new(memory.clone()));
    Sawmill::from_parts(log, ledger, Env::system()).understanding(understood)
}

fn key() -> EntryKey {
    EntryKey::raw("shards/t1/g/0000")
}

/// A state with a claim, in this format.
fn state(format: Format) -> ShardState {
    let mut state = ShardState::default();
    let grab = Grab { span: Span::from_range(0, 2, 2), end: Position::from_number(2), count: 2 };
    state.grab(&WorkerId::new("a"), Rules::default(), &grab).unwrap();
    state.raise(format);
    state
}

fn text(state: &ShardState) -> String {
    String::from_utf8(state.encode().to_vec()).unwrap()
}

async fn worker(mill: &Sawmill, group: &str) -> Result<crate::Worker> {
    let worker = mill.worker("t").group(group).slots(1).ttl(TTL).poll(Duration::from_millis(20));
    worker.start(|_: Context| async {}).await
}

async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    for _ in 0..500 {
        if holds().await {
            return;
        }
        Env::system().sleep(Duration::from_millis(20)).await;
    }
    panic!("this did not happen: {what}");
}

async fn stored(mill: &Sawmill) -> Stored {
    mill.stored_format().await.unwrap().1
}

async fn announce(mill: &Sawmill, format: Format) {
    let write = Stored { format: Format::FIRST, next: Some(format) };
    assert!(matches!(mill.write_format(None, write).await, Ok(Commit::Done(_))));
}

async fn group_of_old_and_new() -> (Memory, Sawmill, Sawmill) {
    let memory = Memory::new();
    let (old, new) = (mill(&memory, Format::NEWEST), mill(&memory, Format::NEXT));
    old.create_topic("t").await.unwrap();
    (memory, old, new)
}

#[test]
fn an_entry_of_the_first_format_is_stored_as_ever() {
    let text = text(&state(Format::FIRST));
    assert!(
        text.starts_with(r#"{"cursor":"#) && !text.contains("format") && !text.contains("stamp"),
        "{text}"
    );
}

#[test]
fn an_entry_keeps_its_format_and_what_is_in_it() {
    let mut state = state(Format::NEXT);
    assert_eq!((state.format, state.writes, state.claims[0].stamp), (Format::NEXT, 1, Some(Token(1))));
    assert_eq!(ShardState::decode(&key(), &state.encode()).unwrap(), state);
    state.raise(Format::FIRST);
    assert_eq!((state.format, state.writes), (Format::NEXT, 2), "it is not written in an older one");
}

#[test]
fn a_program_that_knows_no_formats_cannot_read_a_newer_entry() {
    // What such programs need of an entry: they pass over the fields that they do not know.
    #[derive(Deserialize)]
    #[allow(dead_code)]
    struct Earlier {
        cursor: Position,
        token: Token,
        claims: Vec<serde_json::Value>,
        tally: serde_json::Value,
    }
    let parse = |format| serde_json::from_slice::<Earlier>(&state(format).encode()).map(|_| ());
    assert!(parse(Format::FIRST).is_ok());
    assert!(parse(Format::NEXT).unwrap_err().to_string().contains("missing field"));
}

#[test]
fn a_newer_format_is_refused_by_name() {
    // Also if nothing but its number is new.
    let like_today = format!(r#","state":{}}}"#, text(&state(Format::FIRST)));
    for rest in [r#","state":{}}"#, r#","state":7,"more":[]}"#, "}", &like_today] {
        let value = format!(r#"{{"format":99{rest}"#);
        let error = ShardState::decode(&key(), value.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Outdated);
        let said = error.to_string();
        for part in ["shards/t1/g/0000", "format 99", "formats up to 1", env!("CARGO_PKG_VERSION"), "upgrade"]
        {
            assert!(said.contains(part), "{said}");
        }
    }
}

#[test]
fn a_field_that_is_not_known_is_refused_wherever_it_is() {
    for format in [Format::FIRST, Format::NEXT] {
        for (before, after) in [
            (r#"{"cursor":"#, r#"{"more":1,"cursor":"#),
            (r#""claims":[{"#, r#""claims":[{"more":1,"#),
            (r#""tally":{"#, r#""tally":{"more":1,"#),
        ] {
            let known = text(&state(format));
            let value = known.replacen(before, after, 1);
            assert_ne!(value, known);
            let error = ShardState::decode(&key(), value.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            let said = error.to_string();
            for part in [&format!("in format {format}"), "formats up to 1", "upgrade", "unknown field `more`"]
            {
                assert!(said.contains(part), "{said}");
            }
        }
    }
}

#[test]
fn garbage_is_refused() {
    for value in [r#"{"format":"#, r#"{"format":-1,"state":{}}"#, r#"{"format":2}"#, r#"{"format":"x"}"#, "7"]
    {
        let error = ShardState::decode(&key(), value.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{value}");
    }
}

#[tokio::test]
async fn the_format_is_raised_when_the_last_old_worker_has_left() {
    let (memory, old, new) = group_of_old_and_new().await;
    let first = worker(&old, "g").await.unwrap();
    let other_group = worker(&old, "h").await.unwrap();
    let second = worker(&new, "g").await.unwrap();
    first.stop().await;
    Env::system().sleep(2 * TTL).await;
    assert_eq!(stored(&new).await, Stored::default(), "in another group there is an old one");
    other_group.stop().await;
    until("the format is raised", async || stored(&new).await.format == Format::NEXT).await;

    // What is written from now on is in the new format.
    new.push("t", "one").await.unwrap();
    second.drained().await;
    second.stop().await;
    let shards = memory.list(&EntryKey::raw("shards/")).await.unwrap();
    let newer = shards.iter().filter(|entry| entry.value.starts_with(br#"{"format":2,"#));
    assert_eq!(newer.count(), 1, "{shards:?}");
    let status = new.status("t", "g").await.unwrap();
    assert_eq!((status.done, status.claimed), (1, 0));
}

#[tokio::test]
async fn an_old_program_is_refused_and_changes_nothing_of_what_it_cannot_read() {
    let (memory, old, new) = group_of_old_and_new().await;
    let raising = worker(&new, "g").await.unwrap();
    until("the format is raised", async || stored(&new).await.format == Format::NEXT).await;
    new.push_many("t", (0..50).map(|n| n.to_string())).await.unwrap();
    raising.drained().await;
    raising.stop().await;

    let error = worker(&old, "g").await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Outdated);
    assert!(error.to_string().contains("the store has format 2"), "{error}");
    assert!(error.to_string().contains("upgrade"), "{error}");
    assert_eq!(memory.list(&EntryKey::all_members()).await.unwrap(), [], "it has left");

    let before = memory.list(&EntryKey::raw("shards/")).await.unwrap();
    for refused in [
        old.seek("t", "g", Since::Start).await.err(),
        old.status("t", "g").await.err(),
        old.check_format().await.err(),
    ] {
        assert_eq!(refused.unwrap().kind(), ErrorKind::Outdated);
    }
    assert_eq!(memory.list(&EntryKey::raw("shards/")).await.unwrap(), before);
}

#[tokio::test]
async fn an_old_worker_that_joins_takes_an_announcement_back() {
    let (_, old, new) = group_of_old_and_new().await;
    announce(&new, Format::NEXT).await;
    let joined = worker(&old, "g").await.unwrap();
    assert_eq!(stored(&new).await, Stored::default());
    new.raise_format(&mut Sightings::default(), TTL).await.unwrap();
    assert_eq!(stored(&new).await, Stored::default());
    joined.stop().await;
    new.raise_format(&mut Sightings::default(), TTL).await.unwrap();
    assert_eq!(stored(&new).await, Stored { format: Format::NEXT, next: None });
}

#[tokio::test]
async fn what_was_taken_back_is_not_raised_by_one_who_has_read_it_before() {
    let (_, old, new) = group_of_old_and_new().await;
    announce(&new, Format::NEXT).await;
    let (read, _) = new.stored_format().await.unwrap();
    old.check_member_format().await.unwrap();
    let raised = new.write_format(read, Stored { format: Format::NEXT, next: None }).await.unwrap();
    assert_eq!(raised, Commit::Conflict);
}

#[tokio::test]
async fn an_announcement_that_somebody_left_is_carried_out() {
    let (_, _, new) = group_of_old_and_new().await;
    announce(&new, Format::NEXT).await;
    let joined = worker(&new, "g").await.unwrap();
    until("the format is raised", async || stored(&new).await.format == Format::NEXT).await;
    joined.stop().await;
}

#[tokio::test]
async fn an_old_member_that_is_dead_holds_nothing_up() {
    let (memory, _, new) = group_of_old_and_new().await;
    let dead = Member { ttl_ms: 100, ..Member::default() };
    let key = EntryKey::member(&"lonely".parse().unwrap(), "dead-0");
    memory.commit(Write { key, expect: None, value: Some(dead.encode()) }).await.unwrap();
    let joined = worker(&new, "g").await.unwrap();
    until("the format is raised", async || stored(&new).await.format == Format::NEXT).await;
    joined.stop().await;
}

#[tokio::test]
async fn a_store_that_does_not_say_its_format_is_not_opened() {
    let (memory, old, _) = group_of_old_and_new().await;
    memory.commit(Write { key: EntryKey::format(), expect: None, value: Some("{}".into()) }).await.unwrap();
    let error = old.check_format().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("store/format"), "{error}");
}
