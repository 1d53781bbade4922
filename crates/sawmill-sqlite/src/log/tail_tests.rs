use sawmill_engine::model::MessageId;
use sawmill_engine::runtime::Timestamp;

use super::*;

const NOW: Moment = Moment::at(Duration::from_secs(7));

fn appended(topic: i64, shard: u16, number: u64) -> Appended {
    let message = Message {
        id: MessageId::from_u128(number.into()),
        key: None,
        payload: number.to_string().into(),
        headers: Default::default(),
        due: None,
        created: Timestamp::from_millis(1),
    };
    Appended { topic, shard, number, message }
}

/// Commits an append of these numbers to shard 0 of topic 1.
fn append(tail: &Tail, numbers: impl IntoIterator<Item = u64>) {
    let mut changes = Changes::default();
    numbers.into_iter().for_each(|number| changes.append(appended(1, 0, number)));
    tail.add(changes, NOW);
}

fn request(shard: u16, after: u64, limit: usize) -> ShardRequest {
    ShardRequest { shard, after, limit }
}

/// Reads as if the previous read had gone to the database.
fn blocks(tail: &Tail, topic: i64, requests: &[ShardRequest], now: Moment) -> Option<Vec<Block>> {
    tail.recent(now).answered.clear();
    tail.read(topic, requests, now)
}

/// Reads the numbers of the messages after this one in shard 0 of topic 1.
fn read(tail: &Tail, after: u64, limit: usize) -> Option<Vec<u128>> {
    let found = blocks(tail, 1, &[request(0, after, limit)], NOW)?;
    Some(found[0].messages.iter().map(|message| message.id.as_u128()).collect())
}

#[test]
fn what_follows_is_read_in_order_and_no_further_than_wanted() {
    let tail = Tail::default();
    assert_eq!(read(&tail, 0, 10), None, "nothing is known");
    append(&tail, [1, 2]);
    append(&tail, [3]);
    assert_eq!(read(&tail, 0, 10), Some(vec![1, 2, 3]));
    assert_eq!(read(&tail, 1, 1), Some(vec![2]));
    assert_eq!(read(&tail, 3, 10), None, "only the database can tell whether there is more");
    assert_eq!(read(&tail, 0, 0), None);
    assert_eq!(read(&tail, u64::MAX, 10), None);
    let block = blocks(&tail, 1, &[request(0, 1, 10)], NOW).unwrap().remove(0);
    assert_eq!((block.end, block.span), (Position::from_number(3), Span::from_range(1, 3, 2)));
    assert!(block.more, "others may have appended");
}

#[test]
fn what_another_process_has_appended_in_between_is_not_passed_over() {
    let tail = Tail::default();
    append(&tail, [1, 2]);
    append(&tail, [5, 6]);
    assert_eq!(read(&tail, 0, 10), Some(vec![1, 2]));
    assert_eq!(read(&tail, 2, 10), None, "another process has appended 3 and 4");
    assert_eq!(read(&tail, 3, 10), None);
    assert_eq!(read(&tail, 4, 10), Some(vec![5, 6]));
}

#[test]
fn a_shard_of_which_nothing_is_here_may_have_more() {
    let tail = Tail::default();
    append(&tail, [1]);
    assert!(blocks(&tail, 2, &[request(0, 0, 10)], NOW).is_none(), "another topic");
    let found = blocks(&tail, 1, &[request(3, 7, 10), request(0, 0, 10)], NOW).unwrap();
    assert!(found[0].messages.is_empty() && found[0].more);
    assert_eq!(found[0].end, Position::from_number(7));
    assert_eq!(found[1].messages.len(), 1);
}

#[test]
fn what_was_trimmed_or_deleted_is_not_read() {
    let tail = Tail::default();
    let fill = || {
        let mut changes = Changes::default();
        for (topic, shard) in [(1, 0), (1, 1), (2, 0)] {
            changes.append(appended(topic, shard, 1));
        }
        tail.add(changes, NOW);
    };
    let left = || {
        [(1, 0), (1, 1), (2, 0)]
            .map(|(topic, shard)| blocks(&tail, topic, &[request(shard, 0, 10)], NOW).is_some())
    };
    fill();
    let mut changes = Changes::default();
    changes.trim(1, 1);
    tail.add(changes, NOW);
    assert_eq!(left(), [true, false, true]);
    let mut changes = Changes::default();
    changes.append(appended(1, 0, 2));
    changes.delete(1);
    tail.add(changes, NOW);
    assert_eq!(left(), [false, false, true]);
}

#[test]
fn what_is_old_is_for_the_database_to_tell() {
    let tail = Tail::default();
    append(&tail, [1]);
    assert_eq!(read(&tail, 0, 10), Some(vec![1]));
    assert!(blocks(&tail, 1, &[request(0, 0, 10)], NOW + FRESH).is_some());
    assert!(
        blocks(&tail, 1, &[request(0, 0, 10)], NOW + FRESH + Duration::from_millis(1)).is_none(),
        "others may have trimmed it"
    );
}

#[test]
fn every_other_read_of_a_topic_is_the_databases() {
    let tail = Tail::default();
    append(&tail, 1..=9);
    let mut reads = (0..4).map(|_| tail.read(1, &[request(0, 0, 1)], NOW).is_some());
    assert_eq!([(); 4].map(|()| reads.next().unwrap()), [true, false, true, false]);
    assert!(tail.read(1, &[request(0, 0, 1)], NOW).is_some());
    assert!(tail.read(2, &[request(0, 0, 1)], NOW).is_none(), "another topic, with nothing here");
    assert!(tail.read(1, &[request(0, 0, 1)], NOW).is_none(), "still the database's turn");
}

#[test]
fn it_stays_small() {
    let tail = Tail::default();
    append(&tail, 1..=50);
    append(&tail, 51..=100);
    assert_eq!(tail.recent(NOW).appended.len(), MOST);
    assert_eq!(read(&tail, 0, 10), None);
    assert_eq!(read(&tail, 90, 100).unwrap().len(), 10);
    let mut large = appended(1, 0, 101);
    large.message.payload = vec![0; LARGEST + 1].into();
    let mut changes = Changes::default();
    changes.append(large);
    changes.append(appended(1, 0, 102));
    tail.add(changes, NOW);
    assert_eq!(read(&tail, 100, 10), None, "a gap, as if another had appended it");
    assert_eq!(read(&tail, 101, 10), Some(vec![102]));
    assert!(Changes::are_few(MOST) && !Changes::are_few(MOST + 1));
}
