//! Checks of a log: trimming drops unneeded messages and nothing else.

use std::collections::HashSet;
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use sawmill::engine::model::Topic;
use sawmill::engine::storage::{Log, Position, Record};
use sawmill::{ErrorKind, Message, Timestamp};

use crate::Place;
use crate::reader::{Reader, assert_says};
use crate::sample::{message, now, numbered, record_due, records, seconds_after, text, texts};

/// Appends ten messages `m0` to `m9` to shard 0, created at these numbers of seconds before `base`, and reads
/// them.
async fn ten(place: &Place, base: Timestamp, ages: [u64; 10]) -> (Arc<dyn Log>, Topic, Reader) {
    let (log, topic) = place.log_and_topic("orders", 2).await;
    let batch = ages.iter().enumerate().map(|(n, age)| {
        let created = base - Duration::from_secs(*age);
        Record::once(0, Message { created, ..message(format!("m{n}")) })
    });
    log.append(&topic, base, batch.collect()).await.expect("messages are appended");
    let mut reader = Reader::new(place, &log, &topic, 0);
    reader.until(10, 1).await;
    (log, topic, reader)
}

/// Trims one shard, and nothing of the others.
async fn trim(log: &Arc<dyn Log>, topic: &Topic, shard: u16, upto: &[Position], before: Timestamp) -> u64 {
    let mut all = vec![Vec::new(); usize::from(shard)];
    all.push(upto.to_vec());
    let dropped = log.trim(topic, &all, before).await.expect("a shard is trimmed");
    assert_eq!(dropped.len(), all.len(), "it is said of each shard how many were dropped");
    assert_eq!(
        dropped[..usize::from(shard)],
        vec![0; usize::from(shard)],
        "of other shards nothing is dropped"
    );
    dropped[usize::from(shard)]
}

/// Returns the messages left after a trim that may have dropped those in `may_go`, and asserts that no others
/// went.
async fn left(
    place: &Place,
    log: &Arc<dyn Log>,
    topic: &Topic,
    may_go: &[usize],
    dropped: u64,
) -> Vec<String> {
    let may_go: HashSet<String> = may_go.iter().map(|n| format!("m{n}")).collect();
    let mut reader = Reader::new(place, log, topic, 0);
    reader.rest().await;
    let left = texts(&reader.seen);
    let expected: Vec<String> =
        numbered("m", 0..10).into_iter().filter(|m| left.contains(m) || !may_go.contains(m)).collect();
    assert_eq!(left, expected, "only {may_go:?} may be dropped");
    let gone = 10 - left.len() as u64;
    assert!(dropped <= may_go.len() as u64, "{dropped} are said to be dropped, and {may_go:?} may be");
    assert!(gone >= dropped, "{dropped} are said to be dropped, and {gone} are gone");
    left
}

/// Messages after the position stay, however old they are.
pub async fn nothing_after_the_position_is_trimmed(place: Place) {
    let base = now();
    let (log, topic, reader) = ten(&place, base, [100; 10]).await;
    log.append(&topic, base, records(1, "other", 0..3)).await.expect("messages are appended");
    let dropped = trim(&log, &topic, 0, &[Position::default()], base).await;
    assert_eq!(dropped, 0, "nothing lies before the beginning");
    left(&place, &log, &topic, &[], dropped).await;
    let dropped = trim(&log, &topic, 0, &[reader.blocks[3].end.clone()], base).await;
    left(&place, &log, &topic, &[0, 1, 2, 3], dropped).await;
    assert_says(&place, &log, &topic, 1, &numbered("other", 0..3)).await;
}

/// Of several positions the least decides, in any order; without a position nothing is dropped.
pub async fn only_what_lies_before_every_position_is_trimmed(place: Place) {
    let base = now();
    let (log, topic, reader) = ten(&place, base, [100; 10]).await;
    let dropped = trim(&log, &topic, 0, &[], base).await;
    assert_eq!(dropped, 0, "without a position nothing is dropped");
    left(&place, &log, &topic, &[], dropped).await;
    let end = |block: usize| reader.blocks[block].end.clone();
    let mut dropped = 0;
    for (upto, may_go) in [
        (vec![end(9), Position::default()], 0),
        (vec![end(2), end(9), end(5)], 3),
        (vec![end(9), end(4), end(4)], 5),
        (vec![end(8), end(6)], 7),
    ] {
        dropped += trim(&log, &topic, 0, &upto, base).await;
        let may_go: Vec<usize> = (0..may_go).collect();
        left(&place, &log, &topic, &may_go, dropped).await;
    }
}

/// Messages created at the time or later stay, even before the position.
pub async fn nothing_young_is_trimmed(place: Place) {
    let base = now();
    let (log, topic, reader) = ten(&place, base, [90, 50, 80, 10, 50, 49, 51, 0, 99, 98]).await;
    let before = base - Duration::from_secs(50);
    let dropped = trim(&log, &topic, 0, &[reader.blocks[7].end.clone()], before).await;
    left(&place, &log, &topic, &[0, 2, 6], dropped).await;
    let dropped = trim(&log, &topic, 0, from_ref(&reader.position), Timestamp::from_millis(0)).await;
    assert_eq!(dropped, 0, "nothing was created before the beginning of time");
    left(&place, &log, &topic, &[0, 2, 6], 0).await;
}

/// Messages kept aside are not trimmed.
pub async fn what_is_kept_aside_is_not_trimmed(place: Place) {
    let base = now();
    let (log, topic, reader) = ten(&place, base, [100; 10]).await;
    let due = seconds_after(base, 600);
    let mut aside = record_due(0, "aside", due);
    aside.message.created = base - Duration::from_secs(100);
    log.append(&topic, base, vec![aside]).await.expect("a message is kept aside");
    trim(&log, &topic, 0, from_ref(&reader.position), seconds_after(base, 1000)).await;
    assert_eq!(log.promote(&topic, due, 10).await.expect("what is due is promoted").moved, 1);
    let mut reader = reader;
    reader.until(11, 10).await;
    assert_eq!(reader.seen.last().map(text).as_deref(), Some("aside"));
}

/// A block that lost messages to a trim cannot be read again; an untouched one can.
pub async fn a_trimmed_block_is_gone(place: Place) {
    let base = now();
    let (log, topic, one_by_one) = ten(&place, base, [100; 10]).await;
    let mut reader = Reader::new(&place, &log, &topic, 0);
    reader.until(10, 5).await;
    let upto = &one_by_one.blocks[2].end;
    trim(&log, &topic, 0, from_ref(upto), base).await;
    let left = left(&place, &log, &topic, &[0, 1, 2], 0).await;
    for handle in [log, place.log().await] {
        for block in reader.blocks.iter().chain(&one_by_one.blocks) {
            let again = handle.reread(&topic, 0, &block.span).await;
            let whole = texts(&block.messages).iter().all(|message| left.contains(message));
            match again {
                Ok(again) if whole => assert_eq!(again, block.messages),
                Err(error) if !whole => assert_eq!(error.kind(), ErrorKind::Gone, "{error:?}"),
                Ok(again) => panic!(
                    "of {:?} only {:?} is left in the log, and reading it again gave {:?}",
                    texts(&block.messages),
                    left,
                    texts(&again)
                ),
                Err(error) => panic!("{:?} is all there, and is refused: {error:?}", texts(&block.messages)),
            }
        }
    }
}

/// After everything was trimmed, new messages come after every position returned before, also through a
/// handle that was opened since.
pub async fn positions_outlive_a_full_trim(place: Place) {
    let base = now();
    let (log, topic, mut reader) = ten(&place, base, [100; 10]).await;
    for round in 0..3 {
        trim(&log, &topic, 0, from_ref(&reader.position), seconds_after(base, 3600)).await;
        let positions: Vec<Position> = reader.blocks.iter().map(|block| block.end.clone()).collect();
        let count = reader.seen.len();
        let fresh = place.log().await;
        fresh.append(&topic, base, records(0, "new", round..round + 1)).await.expect("a message is appended");
        reader.until(count + 1, 10).await;
        assert_eq!(reader.seen.last().map(text), Some(format!("new{round}")));
        for position in &positions[positions.len() - 1..] {
            let mut late = Reader::new(&place, &fresh, &topic, 0).at(position);
            late.until(1, 10).await;
            assert_eq!(texts(&late.seen), [format!("new{round}")]);
        }
        // From an older position, only the untrimmed messages come, with the new one last.
        let mut late = Reader::new(&place, &fresh, &topic, 0).at(&positions[0]);
        late.rest().await;
        assert_eq!(late.seen.last().map(text), Some(format!("new{round}")));
    }
}

/// Trimming again is no error, and drops nothing twice.
pub async fn trimming_again_is_no_error(place: Place) {
    let base = now();
    let (log, topic, reader) = ten(&place, base, [100; 10]).await;
    let mut dropped = 0;
    for _ in 0..3 {
        dropped += trim(&log, &topic, 0, from_ref(&reader.position), base).await;
    }
    left(&place, &log, &topic, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], dropped).await;
}

/// Trimming another shard leaves the needed messages of this one, even if an earlier trim said that nothing
/// of it is needed: a group may have joined since, or gone back.
pub async fn what_is_needed_again_stays_when_other_shards_are_trimmed(place: Place) {
    let base = now();
    let (log, topic, reader) = ten(&place, base, [100; 10]).await;
    let old = (0..10).map(|n| {
        let created = base - Duration::from_secs(100);
        Record::once(1, Message { created, ..message(format!("other{n}")) })
    });
    log.append(&topic, base, old.collect()).await.expect("messages are appended");
    let mut other = Reader::new(&place, &log, &topic, 1);
    other.until(10, 10).await;
    let half = reader.blocks[4].end.clone();
    trim(&log, &topic, 0, from_ref(&half), base).await;
    trim(&log, &topic, 1, from_ref(&other.position), base).await;
    let mut left = Reader::new(&place, &log, &topic, 1);
    left.rest().await;
    let upto = [vec![reader.position.clone()], vec![other.position.clone(), Position::default()]];
    let dropped = log.trim(&topic, &upto, base).await.expect("a topic is trimmed");
    assert_eq!(dropped[1], 0, "all of the shard is needed");
    trim(&log, &topic, 0, from_ref(&reader.position), base).await;
    assert_says(&place, &log, &topic, 1, &texts(&left.seen)).await;
}
