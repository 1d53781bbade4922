//! Checks of a log: reading a past block again gives the same messages.

use sawmill::engine::storage::{Block, Span};

use crate::Place;
use crate::reader::Reader;
use crate::sample::{now, record_due, records, seconds_after};

/// A block read again has the same messages in the same order, regardless of later appends and promotions,
/// through every handle, and from a span that was stored as text.
pub async fn a_block_read_again_is_the_same(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 2).await;
    let due = seconds_after(now(), 600);
    log.append(&topic, now(), vec![record_due(0, "aside", due)]).await.expect("a message is kept aside");
    log.append(&topic, now(), records(0, "m", 0..10)).await.expect("messages are appended");
    let mut reader = Reader::new(&place, &log, &topic, 0);
    for limit in [1, 4, 3, 2] {
        let goal = reader.seen.len() + limit;
        reader.until(goal, limit).await;
    }
    let blocks: Vec<Block> = reader.blocks.clone();

    log.append(&topic, now(), records(0, "later", 0..50)).await.expect("messages are appended");
    log.append(&topic, now(), records(1, "other", 0..50)).await.expect("messages are appended");
    log.promote(&topic, due, 10).await.expect("what is due is promoted");
    for handle in [log, place.log().await] {
        for block in blocks.iter().rev() {
            let written = serde_json::to_string(&block.span).expect("a span can be written as JSON");
            let span: Span = serde_json::from_str(&written).expect("a span is read back from JSON");
            assert_eq!(span, block.span);
            let again = handle.reread(&topic, 0, &span).await.expect("a block is read again");
            assert_eq!(again, block.messages);
        }
    }
}

/// A block that ended with the shard stays as it was when the shard grows.
pub async fn a_short_block_does_not_grow(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    log.append(&topic, now(), records(0, "m", 0..3)).await.expect("messages are appended");
    // From here on all three are known to be readable.
    Reader::new(&place, &log, &topic, 0).until(3, 3).await;
    let mut reader = Reader::new(&place, &log, &topic, 0);
    while reader.seen.len() < 3 {
        reader.step(100).await;
    }
    log.append(&topic, now(), records(0, "m", 3..6)).await.expect("messages are appended");
    for block in &reader.blocks {
        let again = log.reread(&topic, 0, &block.span).await.expect("a block is read again");
        assert_eq!(again, block.messages);
    }
}

/// An empty block read again is empty, at the beginning and the end of a shard, also when the shard has
/// grown.
pub async fn an_empty_block_read_again_is_empty(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    let mut reader = Reader::new(&place, &log, &topic, 0);
    let mut empty = vec![reader.step(10).await];
    log.append(&topic, now(), records(0, "m", 0..5)).await.expect("messages are appended");
    reader.until(5, 10).await;
    empty.push(reader.step(10).await);
    log.append(&topic, now(), records(0, "m", 5..9)).await.expect("messages are appended");
    reader.until(9, 10).await;
    for block in empty {
        assert!(block.messages.is_empty());
        let again = log.reread(&topic, 0, &block.span).await.expect("an empty block is read again");
        assert_eq!(again, []);
    }
}
