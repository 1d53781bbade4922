//! Checks of a log: reading after a position.

use std::collections::HashSet;

use sawmill::engine::storage::{Position, ReadRequest};

use crate::Place;
use crate::reader::{Reader, assert_says};
use crate::sample::{now, numbered, record, records, texts};

/// Read from the beginning in blocks of any size, every message comes exactly once and in order.
pub async fn blocks_of_all_sizes_give_everything_once_in_order(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    for (first, last) in [(0, 1), (1, 20), (20, 23), (23, 60)] {
        log.append(&topic, now(), records(0, "m", first..last)).await.expect("messages are appended");
    }
    for limit in [1, 2, 3, 7, 19, 20, 59, 60, 61, 1000] {
        let mut reader = Reader::new(&place, &log, &topic, 0);
        reader.until(60, limit).await;
        assert_eq!(texts(&reader.seen), numbered("m", 0..60), "read in blocks of {limit}");
        reader.assert_at_end().await;
    }
}

/// From every position that a read returned, reading gives exactly what lies after it.
pub async fn every_position_divides_the_shard(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    log.append(&topic, now(), records(0, "m", 0..20)).await.expect("messages are appended");
    let mut reader = Reader::new(&place, &log, &topic, 0);
    reader.until(20, 1).await;
    for (before, block) in reader.blocks.iter().enumerate() {
        let mut rest = Reader::new(&place, &log, &topic, 0).at(&block.end);
        rest.until(19 - before, 100).await;
        assert_eq!(texts(&rest.seen), numbered("m", before + 1..20));
        rest.assert_at_end().await;
    }
}

/// The end of a fully read shard is a position to continue from: later appends come after it.
pub async fn reading_goes_on_where_it_ended(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    let mut reader = Reader::new(&place, &log, &topic, 0);
    reader.assert_at_end().await;
    for call in 0..10 {
        log.append(&topic, now(), records(0, "m", call * 2..call * 2 + 2))
            .await
            .expect("messages are appended");
        reader.until(call * 2 + 2, 10).await;
        reader.assert_at_end().await;
    }
    assert_eq!(texts(&reader.seen), numbered("m", 0..20));
}

/// Reading does not consume: every reader is given everything.
pub async fn reading_does_not_consume(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    log.append(&topic, now(), records(0, "m", 0..10)).await.expect("messages are appended");
    for handle in [log.clone(), log, place.log().await] {
        assert_says(&place, &handle, &topic, 0, &numbered("m", 0..10)).await;
    }
}

/// A block says when there is more to read; at the end, reading eventually says that there is no more.
pub async fn more_is_said_while_there_is_more(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    log.append(&topic, now(), records(0, "m", 0..10)).await.expect("messages are appended");
    // From here on all ten are known to be readable.
    Reader::new(&place, &log, &topic, 0).until(10, 10).await;
    for limit in 0..10 {
        let mut reader = Reader::new(&place, &log, &topic, 0);
        assert!(reader.step(limit).await.more, "{limit} of 10 were wanted, and there is more");
    }
    for limit in [10, 11, 100] {
        // With exactly as many wanted as there are, the engine may not know that there is no more.
        let mut reader = Reader::new(&place, &log, &topic, 0);
        while reader.seen.len() < 10 {
            let block = reader.step(limit).await;
            assert!(block.more || reader.seen.len() == 10, "{} of 10 were given", reader.seen.len());
        }
        reader.assert_at_end().await;
    }
    // The earlier messages are cached by now; those acknowledged later must still appear.
    log.append(&topic, now(), records(0, "m", 10..11)).await.expect("a message is appended");
    let mut reader = Reader::new(&place, &log, &topic, 0);
    while reader.step(100).await.more {}
    assert_eq!(reader.seen.len(), 11, "it is said that there is no more");
}

/// A read with limit 0 succeeds: its block is empty and ends where it began.
pub async fn a_limit_of_zero_gives_an_empty_block(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    let mut reader = Reader::new(&place, &log, &topic, 0);
    assert!(reader.step(0).await.messages.is_empty());
    log.append(&topic, now(), records(0, "m", 0..3)).await.expect("messages are appended");
    reader.until(1, 1).await;
    let block = reader.step(0).await;
    let again = log.reread(&topic, 0, &block.span).await.expect("an empty block is read again");
    assert_eq!(again, []);
    reader.until(3, 10).await;
    assert_eq!(texts(&reader.seen), numbered("m", 0..3));
}

/// Several wants are answered in one call, in the order of the wants, each with its own limit and position.
pub async fn several_wants_are_answered_in_their_order(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 4).await;
    let batch = (0..40).map(|i| record((i % 4) as u16, format!("s{}-{}", i % 4, i / 4))).collect();
    log.append(&topic, now(), batch).await.expect("messages are appended");
    let mut middle = Reader::new(&place, &log, &topic, 2);
    middle.until(6, 6).await;
    for shard in 0..4 {
        Reader::new(&place, &log, &topic, shard).until(10, 10).await;
    }

    let beginning = Position::default;
    let want = |shard, after, limit| ReadRequest { shard, after, limit };
    let wants = [
        want(3, beginning(), 2),
        want(2, middle.position.clone(), 3),
        want(0, beginning(), 100),
        want(2, beginning(), 1),
        want(1, beginning(), 0),
    ];
    let blocks = log.read(&topic, &wants).await.expect("several shards are read");
    let came: Vec<Vec<String>> = blocks.iter().map(|block| texts(&block.messages)).collect();
    let expected = [
        numbered("s3-", 0..2),
        numbered("s2-", 6..9),
        numbered("s0-", 0..10),
        numbered("s2-", 0..1),
        numbered("s1-", 0..0),
    ];
    for ((came, expected), block) in came.iter().zip(&expected).zip(&blocks) {
        // A block may be shorter than its limit if it says that there is more.
        assert_eq!(came, &expected[..came.len().min(expected.len())]);
        assert!(came.len() == expected.len() || block.more, "{came:?} is all that came of {expected:?}");
    }
    assert_eq!(blocks.len(), wants.len());
    for (block, want) in blocks.iter().zip(&wants) {
        let again = log.reread(&topic, want.shard, &block.span).await.expect("each block is read again");
        assert_eq!(again, block.messages);
        let mut rest = Reader::new(&place, &log, &topic, want.shard).at(&block.end);
        rest.step(100).await;
        let both: HashSet<_> = rest.seen.iter().chain(&block.messages).map(|message| message.id).collect();
        assert_eq!(both.len(), rest.seen.len() + block.messages.len(), "each block has an end of its own");
    }
    assert!(log.read(&topic, &[]).await.expect("no shards are read").is_empty());
}

/// A position survives a round trip through text, also for another handle.
pub async fn positions_can_be_written_down(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    log.append(&topic, now(), records(0, "m", 0..9)).await.expect("messages are appended");
    let mut reader = Reader::new(&place, &log, &topic, 0);
    reader.until(9, 2).await;
    for handle in [log, place.log().await] {
        let mut done = 0;
        for block in &reader.blocks {
            let written = serde_json::to_string(&block.end).expect("a position can be written as JSON");
            let position: Position =
                serde_json::from_str(&written).expect("a position is read back from JSON");
            assert_eq!(position, block.end);
            done += block.messages.len();
            let mut rest = Reader::new(&place, &handle, &topic, 0).at(&position);
            rest.until(9 - done, 100).await;
            assert_eq!(texts(&rest.seen), numbered("m", done..9));
        }
    }
}

/// A handle that read a shard once, and returns when others have read far ahead, continues where they are: it
/// reads new messages, and reads one of their blocks again.
pub async fn a_handle_that_was_left_behind_goes_on_where_others_are(place: Place) {
    const MANY: usize = 200;
    let (log, topic) = place.log_and_topic("orders", 1).await;
    let left = place.log().await;
    log.append(&topic, now(), records(0, "m", 0..1)).await.expect("a message is appended");
    Reader::new(&place, &left, &topic, 0).until(1, 1).await;

    let mut reader = Reader::new(&place, &log, &topic, 0);
    for n in 0..MANY {
        if n > 0 {
            log.append(&topic, now(), records(0, "m", n..n + 1)).await.expect("a message is appended");
        }
        reader.until(n + 1, 1).await;
    }
    log.append(&topic, now(), records(0, "m", MANY..MANY + 1)).await.expect("a message is appended");
    let mut other = Reader::new(&place, &left, &topic, 0).at(&reader.position);
    other.until(1, 10).await;
    other.assert_at_end().await;
    assert_eq!(texts(&other.seen), numbered("m", MANY..MANY + 1));
    for block in [&reader.blocks[MANY - 1], &reader.blocks[MANY / 2]] {
        let again =
            left.reread(&topic, 0, &block.span).await.expect("a block of another handle is read again");
        assert_eq!(again, block.messages);
    }
}
