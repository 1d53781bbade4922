//! Tests the simulated log: each fault takes effect, and reads keep the contract of the interface.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::{World, follow, in_world, record};
use sawmill::engine::model::Topic;
use sawmill::engine::storage::{Log, Position, ReadRequest, Record};
use sawmill::{ErrorKind, Timestamp};
use sawmill_sim::{Chance, Delay, EngineBug, FaultKind, Faults, NodeId, Settings, Tally};

const CALM: Faults = Faults::calm();
const KAFKA: Settings = Settings { idempotent_append: false, undoes: false, bug: None };

fn plain() -> Settings {
    Settings::default()
}

/// Lets two nodes push at once, each in its own order, while a reader follows by position. Returns what was
/// read.
async fn push_and_follow(world: World) -> Vec<u128> {
    let topic = world.topic().await;
    for pusher in [1000, 2000] {
        let node = world.control.add_node("pusher");
        let (log, env, topic) = (world.store.log(node), world.control.env(node), topic.clone());
        world.control.spawn(node, async move {
            for id in pusher..pusher + 20 {
                log.append(&topic, env.wall(), vec![record(0, id)]).await.unwrap();
            }
        });
    }
    follow(world, topic, 40, Duration::from_secs(30)).await
}

fn late() -> Faults {
    let visible_by = Delay::millis(1, 300);
    Faults { late_visible: Chance::percent(30), held_back: Chance::percent(30), visible_by, ..CALM }
}

#[test]
fn late_messages_are_not_lost_to_a_reader_and_keep_each_pushers_order() {
    let mut struck = Tally::default();
    for seed in 0..20 {
        let (read, tally) = in_world(seed, plain(), late(), push_and_follow);
        assert_eq!(read.len(), 40, "each message once");
        assert_eq!(BTreeSet::from_iter(&read).len(), 40);
        for pusher in [1000, 2000] {
            let of = read.iter().filter(|id| (pusher..pusher + 20).contains(*id));
            assert!(of.is_sorted(), "what was acknowledged first is read first: {read:?}");
        }
        struck += &tally;
    }
    for kind in [FaultKind::LateVisibility, FaultKind::HeldBack, FaultKind::Overtaken] {
        assert!(struck.count(kind) > 20, "{struck}");
    }
}

#[test]
fn a_cursor_by_id_loses_late_messages() {
    let bug = Settings { bug: Some(EngineBug::CursorById), ..plain() };
    let lost = (0..5).filter(|seed| in_world(*seed, bug, late(), push_and_follow).0.len() < 40).count();
    assert_eq!(lost, 5);
}

#[test]
fn an_acknowledged_message_may_be_readable_later() {
    let late = Faults { late_visible: Chance::ALWAYS, visible_by: Delay::millis(500, 600), ..CALM };
    in_world(1, plain(), late, |world| async move {
        let topic = world.topic().await;
        world.append(&topic, &[1, 2]).await.unwrap();
        assert_eq!(world.readable(&topic), []);
        assert_eq!(world.store.hidden(&topic).len(), 2);
        world.store.set_faults(CALM);
        world.append(&topic, &[3]).await.unwrap();
        assert_eq!(world.readable(&topic), [], "what is sent after the acknowledgement lands after it");
        world.sleep(1000).await;
        assert_eq!(world.readable(&topic), [1, 2, 3]);
    });
}

#[test]
fn a_held_append_is_overtaken_and_acknowledged_when_it_is_readable() {
    let held = Faults { held_back: Chance::ALWAYS, visible_by: Delay::millis(500, 600), ..CALM };
    let (_, tally) = in_world(1, plain(), held, |world| async move {
        let topic = world.topic().await;
        let (here, of) = (world.clone(), topic.clone());
        world.control.spawn(world.node, async move {
            here.append(&of, &[1]).await.unwrap();
            assert_eq!(here.readable(&of), [2, 1]);
        });
        world.sleep(10).await;
        world.store.set_faults(CALM);
        world.append(&topic, &[2]).await.unwrap();
        assert_eq!(world.readable(&topic), [2]);
        world.sleep(1000).await;
        assert_eq!(world.readable(&topic), [2, 1]);
    });
    assert_eq!((tally.count(FaultKind::HeldBack), tally.count(FaultKind::Overtaken)), (1, 1));
}

/// Appends 1 to 6 with these faults. Returns what is readable at the answer and a while later.
fn unknown_append(seed: u64, settings: Settings, faults: Faults) -> (Vec<u128>, Vec<u128>) {
    let test = |world: World| async move {
        let topic = world.topic().await;
        world.store.set_faults(faults);
        let error = world.append(&topic, &[1, 2, 3, 4, 5, 6]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unknown);
        let at_once = world.readable(&topic);
        world.sleep(10_000).await;
        let later = world.readable(&topic);
        // Repeats the push after the unknown outcome.
        world.store.set_faults(CALM);
        world.append(&topic, &[1, 2, 3, 4, 5, 6]).await.unwrap();
        if settings.idempotent_append {
            assert_eq!(world.readable(&topic), [1, 2, 3, 4, 5, 6]);
        }
        (at_once, later)
    };
    in_world(seed, settings, CALM, test).0
}

#[test]
fn an_append_of_unknown_outcome_may_be_all_none_a_part_or_later() {
    let (none, all): (Vec<u128>, Vec<u128>) = (vec![], (1..=6).collect());
    let applied = Faults { unknown_applied: Chance::ALWAYS, ..CALM };
    assert_eq!(unknown_append(1, plain(), applied), (all.clone(), all.clone()));
    let lost = Faults { unknown_lost: Chance::ALWAYS, ..CALM };
    assert_eq!(unknown_append(1, plain(), lost), (none.clone(), none.clone()));
    let late = Faults { unknown_late: Chance::ALWAYS, ..CALM };
    assert_eq!(unknown_append(1, plain(), late), (none, all.clone()));
    let partial = Faults { unknown_partial: Chance::ALWAYS, ..CALM };
    let parts: BTreeSet<usize> = (0..50)
        .map(|seed| {
            let (at_once, later) = unknown_append(seed, plain(), partial.clone());
            assert_eq!(at_once, later);
            assert_eq!(at_once, all[..at_once.len()], "the first of a shard");
            at_once.len()
        })
        .collect();
    assert!(parts.len() > 3, "{parts:?}");
}

#[test]
fn appends_double_on_a_log_that_cannot_tell_and_on_no_other() {
    let doubled = Faults { doubled: Chance::ALWAYS, ..CALM };
    for (settings, expected, struck) in [(KAFKA, &[1, 1][..], 1), (plain(), &[1][..], 0)] {
        let (_, tally) = in_world(1, settings, doubled.clone(), |world| async move {
            let topic = world.topic().await;
            world.append(&topic, &[1]).await.unwrap();
            assert_eq!(world.readable(&topic), expected);
            assert_eq!(world.log.capabilities().idempotent_append, settings.idempotent_append);
        });
        assert_eq!(tally.count(FaultKind::DoubledAppend), struck);
    }
    let unknown = Faults { unknown_applied: Chance::ALWAYS, doubled_unknown: Chance::ALWAYS, ..CALM };
    let (read, _) = unknown_append(1, KAFKA, unknown);
    assert_eq!(read.len(), 12);
}

async fn append_due(world: &World, topic: &Topic) -> Timestamp {
    let due = world.env.wall() + Duration::from_secs(10);
    let mut record: Record = record(0, 1);
    record.message.due = Some(due);
    world.log.append(topic, world.env.wall(), vec![record]).await.unwrap();
    due
}

#[test]
fn a_message_is_kept_aside_until_it_is_promoted_at_its_time() {
    in_world(1, plain(), CALM, |world| async move {
        let topic = world.topic().await;
        let due = append_due(&world, &topic).await;
        assert_eq!(world.log.backlog(&topic, &[(0, Position::default())]).await.unwrap().aside, 1);
        let promoted = world.log.promote(&topic, world.env.wall(), 10).await.unwrap();
        assert_eq!((promoted.moved, promoted.next_due), (0, Some(due)));
        let promoted = world.log.promote(&topic, due, 10).await.unwrap();
        assert_eq!((promoted.moved, promoted.next_due), (1, None));
        assert_eq!(world.readable(&topic), [1]);
    });
}

#[test]
fn the_planted_early_promotion_is_early() {
    let bug = Settings { bug: Some(EngineBug::PromoteEarly), ..plain() };
    in_world(1, bug, CALM, |world| async move {
        let topic = world.topic().await;
        let due = append_due(&world, &topic).await;
        world.log.promote(&topic, due - Duration::from_secs(1), 10).await.unwrap();
        assert_eq!(world.readable(&topic), [1]);
    });
}

#[test]
fn a_block_is_read_again_until_it_is_trimmed() {
    in_world(1, plain(), CALM, |world| async move {
        let topic = world.topic().await;
        world.append(&topic, &[1, 2, 3]).await.unwrap();
        let want = ReadRequest { shard: 0, after: Position::default(), limit: 2 };
        let block = world.log.read(&topic, &[want]).await.unwrap().remove(0);
        assert!(block.more);
        assert_eq!(world.log.reread(&topic, 0, &block.span).await.unwrap(), block.messages);
        assert_eq!(world.log.backlog(&topic, &[(0, block.end.clone())]).await.unwrap().ready, [1]);
        assert_eq!(world.log.trim(&topic, &[vec![block.end.clone()]], world.env.wall()).await.unwrap(), [2]);
        let error = world.log.reread(&topic, 0, &block.span).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Gone);
        assert!(world.log.delete_topic(&topic).await.unwrap());
        assert_eq!(world.append(&topic, &[4]).await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(world.log.topics().await.unwrap(), []);
    });
}

#[test]
fn news_comes_when_a_message_becomes_readable() {
    let late = Faults { late_visible: Chance::ALWAYS, visible_by: Delay::millis(500, 500), ..CALM };
    in_world(1, plain(), late, |world| async move {
        let topic = world.topic().await;
        let mut handle = world.store.log(NodeId::WORLD);
        let mut notifications = handle.message_notifications(&topic);
        world.append(&topic, &[1]).await.unwrap();
        world.env.within(Duration::from_secs(2), notifications.next()).await.expect("news");
        assert_eq!(world.readable(&topic), [1]);
        // A new handle gets only later notifications.
        handle = world.store.log(NodeId::WORLD);
        assert!(
            world
                .env
                .within(Duration::from_secs(2), handle.message_notifications(&topic).next())
                .await
                .is_none()
        );
    });
}
