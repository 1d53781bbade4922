//! Claims: taken in one conditional step, cheap, fenced, and without a lock while a handler runs.

use std::time::Duration;

use sawmill::engine::model::{Fate, Report, Rules, ShardState, WorkerId};
use sawmill::engine::storage::{Commit, Position, Write};

use super::faulty_store::history;
use super::gated_handler::GatedHandler;
use super::support::{LONG_TTL, POLL, Peek, Subject, eventually, numbered, soon, topic};

pub async fn f2_a_claim_records_the_messages_and_moves_the_head_in_one_step(on: Subject) {
    let place = on.place();
    let faulty = place.faulty();
    let mill = faulty.mill();
    let topic = topic(&mill, "orders", 1).await;
    let peek = Peek::new(&place, &topic, "default");
    mill.push_many("orders", numbered(0..40)).await.unwrap();
    let gated = GatedHandler::closed();
    let worker =
        mill.worker("orders").concurrency(8).ttl(LONG_TTL).poll(POLL).start(gated.seat("one")).await.unwrap();
    gated.started(8).await;
    // Messages are recorded as claimed before they run.
    let (_, state) = peek.shard(0).await;
    assert_eq!(state.claimed(), 8, "{state:?}");
    let after = async |cursor: &Position| {
        peek.store.log.backlog(&topic, &[(0, cursor.clone())]).await.unwrap().ready[0] as usize
    };
    assert_eq!(after(&state.cursor).await, 32, "{state:?}");
    assert!(state.claims.iter().all(|claim| claim.owner == worker.state().id));
    gated.release_all();
    gated.ended(40).await;
    worker.drained().await;
    worker.stop().await;

    // Every version of the entry has both changes or neither.
    let mut before = ShardState::default();
    let mut claims = 0;
    for state in history(&[&faulty], &peek.key(0)) {
        let new: Vec<_> = state.claims.iter().filter(|claim| claim.token > before.token).collect();
        if state.cursor == before.cursor {
            assert!(new.is_empty(), "claimed without moving the head: {before:?} {state:?}");
        } else {
            let [claim] = new.as_slice() else { panic!("moved without a claim: {before:?} {state:?}") };
            let moved = after(&before.cursor).await - after(&state.cursor).await;
            let claimed = peek.store.log.reread(&topic, 0, &claim.span).await.unwrap();
            assert_eq!((&claim.from, claimed.len()), (&before.cursor, moved));
            claims += 1;
        }
        before = state;
    }
    assert!(claims > 1);
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
        let gated = GatedHandler::closed();
        let worker = mill
            .worker("orders")
            .concurrency(1)
            .ttl(LONG_TTL)
            .poll(poll)
            .start(gated.seat("first"))
            .await
            .unwrap();
        mill.push("orders", "0").await.unwrap();
        gated.started(1).await;
        let run = gated.runs().remove(0);

        let second = peek.join_silently("second").await;
        let claims = peek.take_over(0, &second, Rules::default()).await;
        let taken = peek.shard(0).await;
        assert!(claims[0].token > run.context.token(), "a system behind the handler can tell them apart");
        if notices {
            soon("the first notices", run.context.cancelled()).await;
        }
        gated.release_all();
        gated.ended(1).await;
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

/// Returns a rival's version of a worker's first claim of a shard: the same claim under another name.
fn same_but_faster(write: &Write, rival: &WorkerId) -> Option<Write> {
    let mut state = ShardState::decode(&write.key, write.value.as_ref()?).ok()?;
    state.claims.last_mut()?.owner = Some(rival.clone());
    Some(Write { value: Some(state.encode()), ..write.clone() })
}

pub async fn g4_claiming_is_conditional_and_the_second_drops_the_messages(on: Subject) {
    let place = on.place();
    let faulty = place.faulty();
    let mill = faulty.mill();
    let topic = topic(&mill, "orders", 1).await;
    let peek = Peek::new(&place, &topic, "default");
    mill.push_many("orders", numbered(0..4)).await.unwrap();
    let rival = peek.join_silently("rival").await;
    let (key, mut faster) = (peek.key(0), true);
    faulty.rival(move |write| {
        let first = write.key == key && std::mem::take(&mut faster);
        first.then(|| same_but_faster(write, &rival)).flatten()
    });
    let gated = GatedHandler::open();
    let builder = mill.worker("orders").concurrency(8).ttl(LONG_TTL).poll(POLL);
    let worker = builder.start(gated.seat("slower")).await.unwrap();
    worker.drained().await;
    assert_eq!(gated.count(), 0, "it came second, and drops what it has read");
    assert_eq!(worker.counts().conflicts, 1);
    let claims = peek.claims().await;
    assert!(claims.iter().all(|claim| claim.owner == Some(WorkerId::new("rival"))), "{claims:?}");
    assert_eq!(claims.iter().map(|claim| claim.open()).sum::<u64>(), 4);

    // The next one is claimed normally.
    mill.push("orders", "4").await.unwrap();
    gated.ended(1).await;
    assert_eq!(gated.payloads(), ["4"]);
    worker.stop().await;
}

pub async fn g5_g20_a_claim_of_many_costs_one_write_and_a_conflict_one_more(on: Subject) {
    let place = on.place();
    let faulty = place.faulty();
    let mill = faulty.mill();
    let topic = topic(&mill, "orders", 1).await;
    let peek = Peek::new(&place, &topic, "default");
    mill.push_many("orders", numbered(0..200)).await.unwrap();
    // A rival is faster once, and claims the same block.
    let rival = peek.join_silently("rival").await;
    let (key, mut faster) = (peek.key(0), true);
    faulty.rival(move |write| {
        let first = write.key == key && std::mem::take(&mut faster);
        first.then(|| same_but_faster(write, &rival)).flatten()
    });
    let gated = GatedHandler::closed();
    let worker = mill
        .worker("orders")
        .concurrency(150)
        .ttl(LONG_TTL)
        .poll(POLL)
        .start(gated.seat("one"))
        .await
        .unwrap();
    gated.started(1).await;
    // The store around the real one knows what the rival has taken. Asking the store takes time, in which an idle slot makes the
    // worker read more.
    let taken = history(&[&faulty], &peek.key(0))[0].claims[0].open() as usize;
    gated.started(200 - taken.max(50)).await;
    let states = history(&[&faulty], &peek.key(0));
    let claims = states.last().unwrap().claims.len() - 1;
    let counts = worker.counts();
    assert!((1..=4).contains(&claims), "{claims} claims hold them all");
    assert_eq!(
        (counts.commits, counts.conflicts),
        (claims as u64 + 1, 1),
        "one write for each, one was lost"
    );
    assert!(counts.reads <= 2 * (claims as u64 + 3), "{counts:?}");

    gated.release_all();
    worker.drained().await;
    let counts = worker.stop().await;
    assert!(counts.done >= 100);
    assert!(counts.commits <= 20, "to report {} messages as done costs little: {counts:?}", counts.done);
}
