use std::sync::Arc;
use std::time::Duration;

use sawmill_engine::ErrorKind;
use sawmill_engine::model::{NewClaim, Rules, Token, WorkerId};
use sawmill_engine::storage::{Ledger, Memory, Position, Span, Write};

use super::*;
use crate::Sawmill;
use crate::admin::ReplayFrom;
use crate::handler::Context;
use crate::testing::TestMill;

const TTL: Duration = Duration::from_millis(400);

/// A store opened by programs of two versions. It uses the kit's clock, so no worker is declared dead on a
/// busy machine.
struct Shared {
    kit: TestMill,
    memory: Memory,
    old: Sawmill,
    new: Sawmill,
}

impl Shared {
    async fn open() -> Self {
        let (kit, memory) = (TestMill::new(), Memory::new());
        let mill = |understood| {
            let (log, ledger) = (Arc::new(memory.clone()), Arc::new(memory.clone()));
            Sawmill::from_parts(log, ledger, kit.store().env().clone()).understanding(understood)
        };
        let (old, new) = (mill(Format::NEWEST), mill(Format::NEXT));
        old.create_topic("t").await.unwrap();
        Self { kit, memory, old, new }
    }

    async fn worker(&self, mill: &Sawmill, group: &str) -> Result<crate::worker::Worker> {
        let worker = mill.worker("t").group(group).concurrency(1).ttl(TTL).poll(Duration::from_millis(20));
        self.kit.wait_for(worker.start(|_: Context| async {})).await
    }

    async fn stop(&self, worker: crate::worker::Worker) {
        self.kit.wait_for(worker.stop()).await;
    }

    /// Waits until the format is raised.
    async fn is_raised(&self) {
        for _ in 0..500 {
            if stored(&self.new).await.format == Format::NEXT {
                return;
            }
            self.kit.advance(Duration::from_millis(20)).await;
        }
        panic!("the format is not raised");
    }
}

fn key() -> EntryKey {
    EntryKey::raw("shards/t1/g/0000")
}

/// A state with a claim, in this format.
fn state(format: Format) -> ShardState {
    let mut state = ShardState::default();
    let new = NewClaim { span: Span::from_range(0, 2, 2), end: Position::from_number(2), count: 2 };
    state.claim_block(&WorkerId::new("a"), Rules::default(), &new).unwrap();
    state.raise(format);
    state
}

fn text(state: &ShardState) -> String {
    String::from_utf8(state.encode().to_vec()).unwrap()
}

async fn stored(mill: &Sawmill) -> StoredFormat {
    mill.store().stored_format().await.unwrap().1
}

async fn announce(mill: &Sawmill, format: Format) {
    let mut announced = StoredFormat { format: Format::FIRST, next: Some(format) };
    assert!(matches!(mill.store().format_cell().replace(None, &mut announced).await, Ok(Commit::Done(_))));
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
    // The fields that such programs read: they ignore unknown ones.
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
    // Even if only the number is new.
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
    let there = Shared::open().await;
    let Shared { kit, memory, old, new } = &there;
    let first = there.worker(old, "g").await.unwrap();
    let other_group = there.worker(old, "h").await.unwrap();
    let second = there.worker(new, "g").await.unwrap();
    there.stop(first).await;
    kit.advance(20 * TTL).await;
    assert_eq!(stored(new).await, StoredFormat::default(), "another group still has an old worker");
    there.stop(other_group).await;
    there.is_raised().await;

    // New writes are in the new format.
    new.push("t", "one").await.unwrap();
    kit.wait_for(second.drained()).await;
    there.stop(second).await;
    let shards = memory.list(&EntryKey::raw("shards/")).await.unwrap();
    let newer = shards.iter().filter(|entry| entry.value.starts_with(br#"{"format":2,"#));
    assert_eq!(newer.count(), 1, "{shards:?}");
    let status = new.admin().status("t", "g").await.unwrap();
    assert_eq!((status.done, status.claimed), (1, 0));
}

#[tokio::test]
async fn an_old_program_is_refused_and_changes_nothing_of_what_it_cannot_read() {
    let there = Shared::open().await;
    let Shared { kit, memory, old, new } = &there;
    let raising = there.worker(new, "g").await.unwrap();
    there.is_raised().await;
    new.push_many("t", (0..50).map(|n| n.to_string())).await.unwrap();
    kit.wait_for(raising.drained()).await;
    there.stop(raising).await;

    let error = there.worker(old, "g").await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Outdated);
    assert!(error.to_string().contains("the store has format 2"), "{error}");
    assert!(error.to_string().contains("upgrade"), "{error}");
    assert_eq!(memory.list(&EntryKey::all_members()).await.unwrap(), [], "it has left");

    let before = memory.list(&EntryKey::raw("shards/")).await.unwrap();
    for refused in [
        old.admin().replay("t", "g", ReplayFrom::Start).await.err(),
        old.admin().status("t", "g").await.err(),
        old.store().check_format().await.err(),
    ] {
        assert_eq!(refused.unwrap().kind(), ErrorKind::Outdated);
    }
    assert_eq!(memory.list(&EntryKey::raw("shards/")).await.unwrap(), before);
}

#[tokio::test]
async fn an_old_worker_that_joins_takes_an_announcement_back() {
    let there = Shared::open().await;
    let Shared { old, new, .. } = &there;
    announce(new, Format::NEXT).await;
    let joined = there.worker(old, "g").await.unwrap();
    assert_eq!(stored(new).await, StoredFormat::default());
    new.store().raise_format(&mut LivenessTracker::default(), TTL).await.unwrap();
    assert_eq!(stored(new).await, StoredFormat::default());
    there.stop(joined).await;
    new.store().raise_format(&mut LivenessTracker::default(), TTL).await.unwrap();
    assert_eq!(stored(new).await, StoredFormat { format: Format::NEXT, next: None });
}

#[tokio::test]
async fn a_withdrawn_announcement_is_not_raised_by_an_earlier_reader() {
    let Shared { old, new, .. } = Shared::open().await;
    announce(&new, Format::NEXT).await;
    let (read, _) = new.store().stored_format().await.unwrap();
    old.store().check_member_format().await.unwrap();
    let mut raised = StoredFormat { format: Format::NEXT, next: None };
    let raised = new.store().format_cell().replace(read, &mut raised).await.unwrap();
    assert_eq!(raised, Commit::Conflict);
}

#[tokio::test]
async fn an_announcement_that_somebody_left_is_carried_out() {
    let there = Shared::open().await;
    announce(&there.new, Format::NEXT).await;
    let joined = there.worker(&there.new, "g").await.unwrap();
    there.is_raised().await;
    there.stop(joined).await;
}

#[tokio::test]
async fn an_old_member_that_is_dead_holds_nothing_up() {
    let there = Shared::open().await;
    let dead = Member { ttl_ms: 100, ..Member::default() };
    let key = EntryKey::member(&"lonely".parse().unwrap(), "dead-0");
    there.memory.commit(Write { key, expect: None, value: Some(dead.encode()) }).await.unwrap();
    let joined = there.worker(&there.new, "g").await.unwrap();
    there.is_raised().await;
    there.stop(joined).await;
}

#[tokio::test]
async fn a_format_that_cannot_be_decoded_is_an_error() {
    for (value, kind) in [
        ("{}", ErrorKind::Outdated),
        (r#"{"format":1,"a newer field":1}"#, ErrorKind::Outdated),
        ("{", ErrorKind::Corrupt),
    ] {
        let Shared { memory, old, .. } = Shared::open().await;
        memory
            .commit(Write { key: EntryKey::format(), expect: None, value: Some(value.into()) })
            .await
            .unwrap();
        let error = old.store().check_format().await.unwrap_err();
        assert_eq!(error.kind(), kind, "{value}");
        assert!(
            error.to_string().contains("store/format") && error.to_string().contains("upgrade"),
            "{error}"
        );
    }
}
