//! The log on SQLite: topics, order, idempotence, due times, backlog and trimming.

use std::time::Duration;

use crate::support::{NOW, Place, id_list, ids, later, message, read, records, topic};
use sawmill::{ErrorKind, Message, Timestamp, TopicSpec};
use sawmill_engine::model::Topic;
use sawmill_engine::storage::{Log, Namespace, Position, Promoted, ReadRequest, Record, Span};
use sawmill_sqlite::Sqlite;

#[tokio::test]
async fn a_topic_is_created_once_and_keeps_its_shards() {
    let place = Place::new();
    let log = place.open();
    let made = topic(&log, "emails", 4).await;
    assert_eq!(topic(&log, "emails", 4).await, made);
    assert_eq!(log.topic(&made.name).await.unwrap(), Some(made.clone()));
    let spec = TopicSpec { shards: 5, ..TopicSpec::new(made.name.clone()) };
    assert_eq!(log.create_topic(&spec).await.unwrap_err().kind(), ErrorKind::Exists);
    let spec = TopicSpec { shards: 0, ..spec };
    assert_eq!(log.create_topic(&spec).await.unwrap_err().kind(), ErrorKind::Invalid);
    topic(&log, "emails@default.dead", 1).await;
    topic(&log, "emails-2", 1).await;
    topic(&log, "a", 1).await;
    let names: Vec<String> = log.topics().await.unwrap().iter().map(|topic| topic.name.to_string()).collect();
    assert_eq!(names, ["a", "emails", "emails@default.dead", "emails-2"]);
    drop(log);
    assert_eq!(place.open().topic(&made.name).await.unwrap(), Some(made));
}

#[tokio::test]
async fn a_deleted_topic_leaves_nothing_and_its_uid_is_not_used_again() {
    let place = Place::new();
    let log = place.open();
    let old = topic(&log, "emails", 2).await;
    log.append(&old, NOW, records(0, 1..5000)).await.unwrap();
    log.append(&old, NOW, vec![later(9000, 5)]).await.unwrap();
    assert!(log.delete_topic(&old).await.unwrap());
    assert!(!log.delete_topic(&old).await.unwrap());
    for error in [
        log.append(&old, NOW, records(0, [1])).await.unwrap_err(),
        log.read(&old, &[]).await.unwrap_err(),
        log.promote(&old, NOW, 1).await.unwrap_err(),
        log.backlog(&old, &[]).await.unwrap_err(),
        log.reread(&old, 0, &Span::from_range(0, 1, 1)).await.unwrap_err(),
        log.trim(&old, &[vec![Position::default()]], NOW).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
    let new = topic(&log, "emails", 2).await;
    assert_ne!(new.uid, old.uid);
    assert_eq!(ids(&log, &new, 0).await, []);
    log.append(&new, NOW, records(0, [1])).await.unwrap();
    drop(log);
    // Leftovers that remain at closing are removed after opening.
    let log = place.open();
    let raw = rusqlite::Connection::open(place.path()).unwrap();
    let left = || {
        raw.query_row("SELECT (SELECT count(*) FROM message) + (SELECT count(*) FROM aside), (SELECT count(*) FROM shard)", [], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
    })
    };
    while left().unwrap() != (1, 2) {
        tokio::task::yield_now().await;
    }
    assert_eq!(ids(&log, &new, 0).await, [1]);
}

#[tokio::test]
async fn messages_come_out_as_they_went_in() {
    let place = Place::new();
    let log = place.open();
    let topic = topic(&log, "emails", 1).await;
    let whole = Message {
        key: Some(vec![0, 255, 7].into()),
        payload: vec![0; 100_000].into(),
        headers: [("lang", "en"), ("lang", "")].into_iter().collect(),
        due: Some(NOW),
        ..message(u128::MAX)
    };
    let empty = Message {
        key: Some(Default::default()),
        payload: Default::default(),
        created: Timestamp::from_millis(0),
        ..message(0)
    };
    let sent = vec![whole, empty, message(7)];
    let appended = sent.iter().map(|message| Record::once(0, message.clone())).collect();
    log.append(&topic, NOW, appended).await.unwrap();
    assert_eq!(read(&log, &topic, 0, &Position::default(), 10).await.messages, sent);
}

#[tokio::test]
async fn a_shard_is_read_in_order_block_by_block() {
    let place = Place::new();
    let log = place.open();
    let topic = topic(&log, "emails", 3).await;
    log.append(&topic, NOW, records(1, [5, 3, 9])).await.unwrap();
    log.append(&topic, NOW, records(1, [1, 2])).await.unwrap();
    log.append(&topic, NOW, records(2, [100])).await.unwrap();
    // A reader that has not appended the messages reads them from the file.
    let log = place.open();
    let first = read(&log, &topic, 1, &Position::default(), 2).await;
    assert_eq!((id_list(&first.messages), first.more), (vec![5, 3], true));
    let second = read(&log, &topic, 1, &first.end, 3).await;
    assert_eq!((id_list(&second.messages), second.more), (vec![9, 1, 2], false));
    let third = read(&log, &topic, 1, &second.end, 3).await;
    assert_eq!((third.messages.len(), third.more, &third.end), (0, false, &second.end));
    assert_eq!(log.reread(&topic, 1, &first.span).await.unwrap(), first.messages);
    assert_eq!(log.reread(&topic, 1, &second.span).await.unwrap(), second.messages);
    assert_eq!(log.reread(&topic, 1, &third.span).await.unwrap(), []);
    let wants = [2, 0, 1].map(|shard| ReadRequest { shard, after: Position::default(), limit: 1 });
    let blocks = log.read(&topic, &wants).await.unwrap();
    let found: Vec<_> = blocks.iter().map(|block| (id_list(&block.messages), block.more)).collect();
    assert_eq!(found, [(vec![100], false), (vec![], false), (vec![5], true)]);
    let nothing = read(&log, &topic, 1, &Position::default(), 0).await;
    assert_eq!((nothing.messages.len(), nothing.more, nothing.end), (0, true, Position::default()));
    let far = read(&log, &topic, 1, &Position::from_number(u64::MAX), 9).await;
    assert_eq!((far.messages.len(), far.end), (0, Position::from_number(u64::MAX)));
}

#[tokio::test]
async fn what_cannot_be_is_refused_and_changes_nothing() {
    let place = Place::new();
    let log = place.open();
    let topic = topic(&log, "emails", 2).await;
    let mut mixed = records(0, [1]);
    mixed.extend(records(2, [2]));
    assert_eq!(log.append(&topic, NOW, mixed).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(ids(&log, &topic, 0).await, []);
    let want = ReadRequest { shard: 2, after: Position::default(), limit: 1 };
    assert_eq!(log.read(&topic, &[want]).await.unwrap_err().kind(), ErrorKind::Invalid);
    let want = ReadRequest { shard: 0, after: Position::new(vec![1]), limit: 1 };
    assert_eq!(log.read(&topic, &[want]).await.unwrap_err().kind(), ErrorKind::Corrupt);
    for uid in ["", "t", "t99", "t01", "x1", "t-1"] {
        let odd = Topic { uid: uid.to_owned(), ..topic.clone() };
        assert_eq!(log.append(&odd, NOW, vec![]).await.unwrap_err().kind(), ErrorKind::NotFound, "{uid}");
        assert!(!log.delete_topic(&odd).await.unwrap(), "{uid}");
    }
}

#[tokio::test]
async fn a_message_that_is_there_is_not_added_again() {
    let place = Place::new();
    let log = place.open();
    let again = |mut records: Vec<Record>| {
        records.iter_mut().for_each(|record| record.repeatable = true);
        records
    };
    let (one, two) = (topic(&log, "one", 2).await, topic(&log, "two", 1).await);
    log.append(&one, NOW, again(records(0, [1, 2, 1]))).await.unwrap();
    log.append(&one, NOW, again(records(0, [2, 3]))).await.unwrap();
    log.append(&one, NOW, again(records(1, [3, 4]))).await.unwrap();
    log.append(&two, NOW, again(records(0, [1]))).await.unwrap();
    assert_eq!(ids(&log, &one, 0).await, [1, 2, 3]);
    assert_eq!(ids(&log, &one, 1).await, [4]);
    assert_eq!(ids(&log, &two, 0).await, [1]);
    // Messages kept aside count as present, and readable messages are not kept aside again.
    log.append(&one, NOW, again(vec![later(10, 5), later(10, 6), later(1, 5)])).await.unwrap();
    log.append(&one, NOW, again(records(0, [10]))).await.unwrap();
    log.append(&one, NOW, again(vec![later(11, 5), records(0, [11]).remove(0)])).await.unwrap();
    assert_eq!(ids(&log, &one, 0).await, [1, 2, 3]);
    assert_eq!(log.backlog(&one, &[]).await.unwrap().aside, 2);
    log.promote(&one, NOW + Duration::from_secs(1), 10).await.unwrap();
    log.append(&one, NOW, again(vec![later(10, 5000), later(11, 5000)])).await.unwrap();
    assert_eq!(ids(&log, &one, 0).await, [1, 2, 3, 10, 11]);
    assert_eq!(log.backlog(&one, &[]).await.unwrap().aside, 0);
}

#[tokio::test]
async fn messages_are_kept_aside_until_they_are_due() {
    let place = Place::new();
    let log = place.open();
    let topic = topic(&log, "emails", 2).await;
    let at = |ms| NOW + Duration::from_millis(ms);
    let mut sent = vec![later(1, 30), later(2, 10), later(3, 20), later(4, 10), later(5, 0)];
    sent.push(Record::once(1, Message { due: Some(Timestamp::from_millis(u64::MAX)), ..message(6) }));
    log.append(&topic, NOW, sent.clone()).await.unwrap();
    assert_eq!(ids(&log, &topic, 0).await, [5]);
    assert_eq!(log.promote(&topic, at(9), 10).await.unwrap(), Promoted { moved: 0, next_due: Some(at(10)) });
    assert_eq!(log.promote(&topic, at(25), 2).await.unwrap(), Promoted { moved: 2, next_due: Some(at(20)) });
    assert_eq!(ids(&log, &topic, 0).await, [5, 2, 4]);
    assert_eq!(log.promote(&topic, at(30), 0).await.unwrap(), Promoted { moved: 0, next_due: Some(at(20)) });
    let end = Timestamp::from_millis(u64::MAX);
    assert_eq!(log.promote(&topic, at(30), 9).await.unwrap(), Promoted { moved: 2, next_due: Some(end) });
    assert_eq!(ids(&log, &topic, 0).await, [5, 2, 4, 3, 1]);
    assert_eq!(log.promote(&topic, end, 9).await.unwrap(), Promoted { moved: 1, next_due: None });
    assert_eq!(read(&log, &topic, 1, &Position::default(), 1).await.messages, [sent[5].message.clone()]);
}

#[tokio::test]
async fn many_due_messages_are_promoted_in_one_call() {
    let place = Place::new();
    let log = place.open();
    let topic = topic(&log, "emails", 1).await;
    log.append(&topic, NOW, (1..=5_000).map(|id| later(id, 1 + id as u64 % 7)).collect()).await.unwrap();
    let moved = log.promote(&topic, NOW + Duration::from_secs(1), 4_500).await.unwrap();
    assert_eq!(moved, Promoted { moved: 4_500, next_due: Some(NOW + Duration::from_millis(7)) });
    let moved = log.promote(&topic, NOW + Duration::from_secs(1), usize::MAX).await.unwrap();
    assert_eq!(moved, Promoted { moved: 500, next_due: None });
    let mut wanted: Vec<u128> = (1..=5_000).collect();
    wanted.sort_by_key(|id| (id % 7, *id));
    assert_eq!(ids(&log, &topic, 0).await, wanted);
}

#[tokio::test]
async fn the_backlog_counts_what_lies_after_a_position() {
    let place = Place::new();
    let log = place.open();
    let topic = topic(&log, "emails", 3).await;
    let mut sent = records(0, 1..=10);
    sent[4].message.created = NOW - Duration::from_secs(9);
    log.append(&topic, NOW, sent).await.unwrap();
    log.append(&topic, NOW, records(1, [20])).await.unwrap();
    log.append(&topic, NOW, vec![later(30, 1)]).await.unwrap();
    let four = read(&log, &topic, 0, &Position::default(), 4).await.end;
    let ten = read(&log, &topic, 0, &Position::default(), 10).await.end;
    let start = Position::default();
    let after =
        [(0, four.clone()), (1, start.clone()), (2, start.clone()), (0, ten.clone()), (0, start.clone())];
    let backlog = log.backlog(&topic, &after).await.unwrap();
    assert_eq!((backlog.ready, backlog.aside), (vec![6, 1, 0, 0, 10], 1));
    assert_eq!(backlog.oldest, Some(NOW - Duration::from_secs(9)));
    // Only the fifth is gone, which leaves a gap.
    assert_eq!(log.trim(&topic, &[vec![ten.clone()]], NOW).await.unwrap(), [1]);
    let backlog = log.backlog(&topic, &[(0, four.clone()), (0, start.clone())]).await.unwrap();
    assert_eq!((backlog.ready, backlog.oldest), (vec![5, 9], Some(NOW)));
    // Everything before the seventh is gone, so there is no gap any more.
    let six = read(&log, &topic, 0, &four, 1).await.end;
    assert_eq!(log.trim(&topic, &[vec![six.clone()]], NOW + Duration::from_secs(1)).await.unwrap(), [5]);
    let backlog = log.backlog(&topic, &[(0, start.clone()), (0, four), (0, ten)]).await.unwrap();
    assert_eq!(backlog.ready, [4, 4, 0]);
}

#[tokio::test]
async fn trimming_drops_what_is_old_and_done_and_numbers_are_not_used_again() {
    let place = Place::new();
    let log = place.open();
    let topic = topic(&log, "emails", 1).await;
    log.append(&topic, NOW, records(0, 1..=2_500)).await.unwrap();
    let block = read(&log, &topic, 0, &Position::default(), 2_500).await;
    let most = read(&log, &topic, 0, &Position::default(), 2_400).await;
    assert_eq!(
        log.trim(&topic, &[vec![most.end.clone()]], NOW).await.unwrap(),
        [0],
        "nothing was created before"
    );
    let after = NOW + Duration::from_millis(1);
    assert_eq!(log.trim(&topic, &[vec![Position::default()]], after).await.unwrap(), [0], "nothing is done");
    assert_eq!(log.trim(&topic, &[vec![most.end.clone()]], after).await.unwrap(), [2_400]);
    assert_eq!(ids(&log, &topic, 0).await, (2_401..=2_500).collect::<Vec<_>>());
    assert_eq!(log.reread(&topic, 0, &block.span).await.unwrap_err().kind(), ErrorKind::Gone);
    assert_eq!(log.trim(&topic, &[vec![block.end.clone()]], after).await.unwrap(), [100]);
    drop(log);
    let log = place.open();
    log.append(&topic, NOW, records(0, [1])).await.unwrap();
    assert_eq!(
        id_list(&read(&log, &topic, 0, &block.end, 9).await.messages),
        [1],
        "after all that was there"
    );
}

#[tokio::test]
async fn namespaces_see_nothing_of_one_another() {
    let place = Place::new();
    let (one, two): (Namespace, Namespace) = ("one".parse().unwrap(), "two".parse().unwrap());
    let one = Sqlite::open(place.path(), &one).unwrap();
    let two = Sqlite::open(place.path(), &two).unwrap();
    let (mine, yours) = (topic(&one, "emails", 1).await, topic(&two, "emails", 2).await);
    assert_ne!(mine.uid, yours.uid);
    one.append(&mine, NOW, records(0, [1])).await.unwrap();
    assert_eq!(ids(&two, &yours, 0).await, []);
    assert_eq!(two.topics().await.unwrap(), [yours]);
    assert_eq!(two.append(&mine, NOW, records(0, [2])).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert!(!two.delete_topic(&mine).await.unwrap());
    assert_eq!(ids(&one, &mine, 0).await, [1]);
}

#[tokio::test]
async fn large_messages_come_a_few_at_a_time() {
    let place = Place::new();
    let log = place.open();
    let topic = topic(&log, "films", 1).await;
    for id in 1..=5 {
        let message = Message { payload: vec![id as u8; 15 << 20].into(), ..message(id) };
        log.append(&topic, NOW, vec![Record::once(0, message)]).await.unwrap();
    }
    let first = read(&log, &topic, 0, &Position::default(), 100).await;
    assert_eq!((id_list(&first.messages), first.more), (vec![1, 2, 3], true));
    let second = read(&log, &topic, 0, &first.end, 100).await;
    assert_eq!((id_list(&second.messages), second.more), (vec![4, 5], false));
    assert_eq!(log.reread(&topic, 0, &first.span).await.unwrap(), first.messages);
}
