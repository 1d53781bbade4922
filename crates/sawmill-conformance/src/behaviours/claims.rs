//! Claims: taken in one conditional step, cheap, fenced, and without a lock while a handler runs.

use std::time::Duration;

use sawmill::engine::model::{Fate, Report, Rules, ShardState, WorkerId};
use sawmill::engine::storage::{Commit, Position, Write};

use super::desk::Desk;
use super::support::{LONG_TTL, POLL, Peek, Subject, eventually, numbered, soon, topic};
use super::tap::history;

pub async fn f2_a_grab_records_the_messages_and_moves_the_head_in_one_step(on: Subject) {
    let place = on.place();
    let tap = place.tap();
    let mill = tap.mill();
    let topic = topic(&mill, "orders", 1).await;
    let peek = Peek::new(&place, &topic, "default");
    mill.push_many("orders", numbered(0..40)).await.unwrap();
    let desk = Desk::closed();
    let worker =
        mill.worker("orders").concurrency(8).ttl(LONG_TTL).poll(POLL).start(desk.seat("one")).await.unwrap();
    desk.started(8).await;
    // Messages are recorded as claimed before they run.
    let (_, state) = peek.shard(0).await;
    assert_eq!(state.claimed(), 8, "{state:?}");
    let after = async |cursor: &Position| {
        peek.store.log.backlog(&topic, &[(0, cursor.clone())]).await.unwrap().ready[0] as usize
    };
    assert_eq!(after(&state.cursor).await, 32, "{state:?}");
    assert!(state.claims.iter().all(|claim| claim.owner == worker.state().id));
    desk.release_all();
    desk.ended(40).await;
    worker.drained().await;
    worker.stop().await;

    // Every version of the entry has both changes or neither.
    let mut before = ShardState::default();
    let mut grabs = 0;
    for state in history(&[&tap], &peek.key(0)) {
        let new: Vec<_> = state.claims.iter().filter(|claim| claim.token > before.token).collect();
        if state.cursor == before.cursor {
            assert!(new.is_empty(), "claimed without moving the head: {before:?} {state:?}");
        } else {
            let [claim] = new.as_slice() else { panic!("moved without a claim: {before:?} {state:?}") };
            let moved = after(&before.cursor).await - after(&state.cursor).await;
            let claimed = peek.store.log.reread(&topic, 0, &claim.span).await.unwrap();
            assert_eq!((&claim.from, claimed.len()), (&before.cursor, moved));
            grabs += 1;
        }
        before = state;
    }
    assert!(grabs > 1);
    assert_eq!((after(&before.cursor).await, before.claimed(), before.tally.done), (0, 0, 40));
}

pub async fn f14_a_worker_that_was_superseded_changes_nothing(on: Subject) {
    // In one case the handler ends before the worker can notice; in the other it notices while the handler
    // runs.
    for (poll, notices) in [(Duration::from_secs(600), false), (POLL, true)] {
        let place = on.place();
        let mill = place.mill().await;
        let topic = topic(&mill, "orders", 1).await;
        let peek = Peek::new(&place, &topic, "default");
        let desk = Desk::closed();
        let worker = mill
            .worker("orders")
            .concurrency(1)
            .ttl(LONG_TTL)
            .poll(poll)
            .start(desk.seat("first"))
            .await
            .unwrap();
        mill.push("orders", "0").await.unwrap();
        desk.started(1).await;
        let run = desk.runs().remove(0);

        let second = peek.join_silently("second").await;
        let claims = peek.take_over(0, &second, Rules::default()).await;
        let taken = peek.shard(0).await;
        assert!(claims[0].token > run.context.token(), "a system behind the handler can tell them apart");
        if notices {
            soon("the first notices", run.context.cancelled()).await;
        }
        desk.release_all();
        desk.ended(1).await;
        eventually("the first has nothing in hand", async || {
            worker.state().busy == 0 && worker.state().claimed == 0
        })
        .await;
        let counts = worker.stop().await;
        assert_eq!(counts.adopted, 0);
        assert_eq!(peek.shard(0).await, taken, "neither its claim nor its finish is in the ledger");

        // The new owner may report it as done.
        let (expect, mut state) = taken;
        let fates = [(Fate::Done, [0].into_iter().collect())].into();
        let report = Report { token: claims[0].token, fates, ..Report::default() };
        assert!(state.settle(&second, &report).unwrap());
        let write = Write { key: peek.key(0), expect, value: Some(state.encode()) };
        assert!(matches!(peek.store.ledger.commit(write).await.unwrap(), Commit::Done(_)));
        assert_eq!(mill.admin().status("orders", "default").await.unwrap().done, 1);
    }
}

/// Returns a rival's version of a worker's first grab of a shard: the same claim under another name.
fn same_but_faster(write: &Write, rival: &WorkerId) -> Option<Write> {
    let mut state = ShardState::decode(&write.key, write.value.as_ref()?).ok()?;
    state.claims.last_mut()?.owner = Some(rival.clone());
    Some(Write { value: Some(state.encode()), ..write.clone() })
}

pub async fn g4_claiming_is_conditional_and_the_second_drops_the_messages(on: Subject) {
    let place = on.place();
    let tap = place.tap();
    let mill = tap.mill();
    let topic = topic(&mill, "orders", 1).await;
    let peek = Peek::new(&place, &topic, "default");
    mill.push_many("orders", numbered(0..4)).await.unwrap();
    let rival = peek.join_silently("rival").await;
    let (key, mut faster) = (peek.key(0), true);
    tap.rival(move |write| {
        let first = write.key == key && std::mem::take(&mut faster);
        first.then(|| same_but_faster(write, &rival)).flatten()
    });
    let desk = Desk::open();
    let builder = mill.worker("orders").concurrency(8).ttl(LONG_TTL).poll(POLL);
    let worker = builder.start(desk.seat("slower")).await.unwrap();
    worker.drained().await;
    assert_eq!(desk.count(), 0, "it came second, and drops what it has read");
    assert_eq!(worker.counts().conflicts, 1);
    let claims = peek.claims().await;
    assert!(claims.iter().all(|claim| claim.owner == Some(WorkerId::new("rival"))), "{claims:?}");
    assert_eq!(claims.iter().map(|claim| claim.open()).sum::<u64>(), 4);

    // The next one is claimed normally.
    mill.push("orders", "4").await.unwrap();
    desk.ended(1).await;
    assert_eq!(desk.payloads(), ["4"]);
    worker.stop().await;
}

pub async fn g5_g20_a_claim_of_many_costs_one_write_and_a_conflict_one_more(on: Subject) {
    let place = on.place();
    let tap = place.tap();
    let mill = tap.mill();
    let topic = topic(&mill, "orders", 1).await;
    let peek = Peek::new(&place, &topic, "default");
    mill.push_many("orders", numbered(0..200)).await.unwrap();
    // A rival is faster once, and claims the same block.
    let rival = peek.join_silently("rival").await;
    let (key, mut faster) = (peek.key(0), true);
    tap.rival(move |write| {
        let first = write.key == key && std::mem::take(&mut faster);
        first.then(|| same_but_faster(write, &rival)).flatten()
    });
    let desk = Desk::closed();
    let worker = mill
        .worker("orders")
        .concurrency(150)
        .ttl(LONG_TTL)
        .poll(POLL)
        .start(desk.seat("one"))
        .await
        .unwrap();
    desk.started(1).await;
    let taken = peek.shard(0).await.1.claims[0].open() as usize;
    desk.started(200 - taken.max(50)).await;
    let states = history(&[&tap], &peek.key(0));
    let claims = states.last().unwrap().claims.len() - 1;
    let counts = worker.counts();
    assert!((1..=4).contains(&claims), "{claims} claims hold them all");
    assert_eq!(
        (counts.commits, counts.conflicts),
        (claims as u64 + 1, 1),
        "one write for each, one was lost"
    );
    assert!(counts.reads <= 2 * (claims as u64 + 3), "{counts:?}");

    desk.release_all();
    worker.drained().await;
    let counts = worker.stop().await;
    assert!(counts.done >= 100);
    assert!(counts.commits <= 20, "to report {} messages as done costs little: {counts:?}", counts.done);
}
