//! Checks of a log: many append while others read.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sawmill::engine::model::Topic;
use sawmill::engine::storage::{Log, Record};

use crate::Place;
use crate::place::together;
use crate::reader::Reader;
use crate::sample::{message, now, record_due, seconds_after, text};

const PRODUCERS: usize = 16;
const CALLS: usize = 25;
const PER_CALL: usize = 2;

/// Producer `p` appends `p/0`, `p/1`, … to one shard, each call acknowledged before the next.
async fn produce(log: Arc<dyn Log>, topic: Topic, producer: usize) {
    for call in 0..CALLS {
        let batch = (0..PER_CALL)
            .map(|i| Record::once(0, message(format!("{producer}/{}", call * PER_CALL + i))))
            .collect();
        log.append(&topic, now(), batch).await.expect("a batch is appended beside others");
    }
}

/// Asserts that nothing is missing or repeated, and that each producer's messages are in order.
fn assert_complete(seen: &[String]) {
    let mut next: HashMap<&str, usize> = HashMap::new();
    for text in seen {
        let (producer, number) = text.split_once('/').expect("producers say producer/number");
        let next = next.entry(producer).or_default();
        assert_eq!(number.parse(), Ok(*next), "producer {producer} is read in its order, each message once");
        *next += 1;
    }
    assert_eq!(next.len(), PRODUCERS, "every producer is read");
    assert!(next.values().all(|count| *count == CALLS * PER_CALL), "every message is read: {next:?}");
}

/// While many append at once, readers that follow by position lose nothing, get nothing twice, and see each
/// producer in order. Their blocks can be read again, and each of their positions divides the shard in two.
pub async fn c1_readers_that_follow_a_crowd_lose_nothing(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    let mut handles = vec![log.clone()];
    for _ in 0..3 {
        handles.push(place.log().await);
    }
    let producing = together((0..PRODUCERS).map(|p| produce(handles[p % 4].clone(), topic.clone(), p)));
    let total = PRODUCERS * CALLS * PER_CALL;
    let following = together([1, 3, 50, 1000].into_iter().enumerate().map(|(number, limit)| {
        let mut reader = Reader::new(&place, &handles[number], &topic, 0);
        async move {
            reader.until(total, limit).await;
            reader.assert_at_end().await;
            reader
        }
    }));
    let (_, readers) = futures_util::future::join(producing, following).await;

    let all: HashSet<String> = readers[0].seen.iter().map(text).collect();
    for reader in &readers {
        let seen: Vec<String> = reader.seen.iter().map(text).collect();
        assert_complete(&seen);
        for block in reader.blocks.iter().step_by(1 + reader.blocks.len() / 20) {
            let again = log.reread(&topic, 0, &block.span).await.expect("a block is read again");
            assert_eq!(again, block.messages, "a block that was read amid a crowd is the same afterwards");
        }
        for cut in (0..reader.blocks.len()).step_by(1 + reader.blocks.len() / 10) {
            let before = reader.blocks[..=cut].iter().flat_map(|block| &block.messages);
            let before: HashSet<String> = before.map(text).collect();
            let mut rest = Reader::new(&place, &log, &topic, 0).at(&reader.blocks[cut].end);
            rest.until(total - before.len(), 500).await;
            rest.assert_at_end().await;
            let after: HashSet<String> = rest.seen.iter().map(text).collect();
            assert!(before.is_disjoint(&after), "nothing lies on both sides of a position");
            assert_eq!(before.len() + after.len(), all.len(), "everything lies on one side of a position");
        }
    }
}

/// While some append and others promote, a reader that follows loses nothing and gets nothing twice.
pub async fn promotion_amid_appends_loses_nothing(place: Place) {
    const EACH: usize = 150;
    let (log, topic) = place.log_and_topic("orders", 1).await;
    let now = now();
    let end = seconds_after(now, 600);
    let aside = (0..EACH).map(|n| record_due(0, format!("aside{n}"), end)).collect();
    log.append(&topic, now, aside).await.expect("messages are kept aside");
    let other = place.log().await;

    let mut reader = Reader::new(&place, &log, &topic, 0);
    let following = together([async move {
        reader.until(2 * EACH, 7).await;
        reader.assert_at_end().await;
        reader.seen.iter().map(text).collect::<Vec<_>>()
    }]);
    let appending = together((0..3).map(|part| {
        let (log, topic) = (log.clone(), topic.clone());
        async move {
            for n in (part..EACH).step_by(3) {
                let batch = vec![Record::once(0, message(format!("ready{n}")))];
                log.append(&topic, now, batch).await.expect("a message is appended");
            }
        }
    }));
    let promoting = together([log.clone(), other].into_iter().map(|log| {
        let topic = topic.clone();
        async move {
            while log.promote(&topic, end, 5).await.expect("promoting is possible").next_due.is_some() {}
        }
    }));
    let (seen, _, _) = futures_util::future::join3(following, appending, promoting).await;
    let different: HashSet<&String> = seen[0].iter().collect();
    assert_eq!(different.len(), 2 * EACH, "every message came, none twice");
}
