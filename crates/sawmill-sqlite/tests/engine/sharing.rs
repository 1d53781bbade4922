//! Concurrency: one file opened twice, as by two processes, and many callers of one opening.
#![allow(clippy::disallowed_methods, reason = "many tasks are what is tested")]

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

#[cfg(target_os = "linux")]
use futures_util::FutureExt;

use crate::support::{NOW, Place, id_list, ids, message, read, records, soon, topic};
use sawmill::ErrorKind;
#[cfg(target_os = "linux")]
use sawmill_engine::storage::Notifications;
use sawmill_engine::storage::{Commit, EntryKey, Ledger, Version, Write};
use sawmill_engine::storage::{Log, Position, ReadRequest, Record};
use sawmill_sqlite::Sqlite;

#[tokio::test]
async fn two_openings_see_what_the_other_writes_and_hear_of_it() {
    let place = Place::new();
    let (one, two) = (place.open(), place.open());
    let topic = topic(&one, "emails", 1).await;
    assert_eq!(two.topic(&topic.name).await.unwrap(), Some(topic.clone()));
    let (mut new_messages, mut new_entries, mut own) =
        (two.message_notifications(&topic), two.entry_notifications(), one.message_notifications(&topic));
    for id in 1..=20 {
        one.append(&topic, NOW, records(0, [id])).await.unwrap();
        soon("the notification of one's own append", own.next()).await;
        // A notification may be spurious, but one must come after the append.
        while ids(&two, &topic, 0).await.len() < id as usize {
            soon("a notification of the other's append", new_messages.next()).await;
        }
    }
    two.append(&topic, NOW, records(0, [100])).await.unwrap();
    assert_eq!(ids(&one, &topic, 0).await.last(), Some(&100));
    let mut later = two.entry_notifications();
    soon("the first notification", new_entries.next()).await;
    let write = Write { key: EntryKey::raw("a"), expect: None, value: Some("v".into()) };
    assert_eq!(one.commit(write).await.unwrap(), Commit::Done(Version(1)));
    soon("a notification of the other's commit", later.next()).await;
    assert!(two.get(&EntryKey::raw("a")).await.unwrap().is_some());
}

#[tokio::test]
async fn what_was_just_appended_here_is_read_with_what_others_appended_in_between() {
    let place = Place::new();
    let (one, two) = (place.open(), place.open());
    let topic = topic(&one, "emails", 2).await;
    for id in (1..=30).step_by(3) {
        one.append(&topic, NOW, records(0, [id])).await.unwrap();
        two.append(&topic, NOW, records(0, [id + 1])).await.unwrap();
        one.append(&topic, NOW, records(0, [id + 2])).await.unwrap();
        for log in [&one, &two] {
            assert_eq!(ids(log, &topic, 0).await, (1..=id + 2).collect::<Vec<_>>());
        }
    }
    // A shard left out in favour of messages in memory is read on the next request.
    two.append(&topic, NOW, records(1, [100])).await.unwrap();
    let last = Position::from_number(29);
    let wants =
        [(1, Position::default()), (0, last)].map(|(shard, after)| ReadRequest { shard, after, limit: 9 });
    let blocks = one.read(&topic, &wants).await.unwrap();
    assert_eq!(id_list(&blocks[1].messages), [30]);
    assert!(blocks[0].more || id_list(&blocks[0].messages) == [100]);
    assert_eq!(ids(&one, &topic, 1).await, [100]);
    // Trimmed messages and deleted topics are gone.
    let end = read(&two, &topic, 1, &Position::default(), 9).await.end;
    assert_eq!(
        one.trim(&topic, &[vec![Position::from_number(30)]], NOW + Duration::from_secs(1)).await.unwrap(),
        [30]
    );
    assert_eq!(ids(&one, &topic, 0).await, []);
    one.append(&topic, NOW, records(1, [101])).await.unwrap();
    assert_eq!(id_list(&read(&one, &topic, 1, &end, 9).await.messages), [101]);
    assert!(one.delete_topic(&topic).await.unwrap());
    let want = ReadRequest { shard: 1, after: end, limit: 9 };
    assert_eq!(one.read(&topic, &[want]).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn others_are_heard_without_asking_and_a_closed_store_hears_no_more() {
    let place = Place::new();
    let (one, two) = (place.open(), place.open());
    let topic = topic(&one, "emails", 1).await;
    let (mut new_messages, mut new_entries) = (two.message_notifications(&topic), two.entry_notifications());
    for id in 1..=5 {
        one.append(&topic, NOW, records(0, [id])).await.unwrap();
        soon("a notification of the other's append", new_messages.next()).await;
    }
    // Notifications of earlier writes may come late, and all come in order. When the last of these entry
    // notifications has come, no message notification is outstanding.
    commit_five(&one, "a", &mut new_entries).await;
    while new_messages.next().now_or_never().is_some() {}
    commit_five(&one, "b", &mut new_entries).await;
    assert!(new_messages.next().now_or_never().is_none(), "an entry commit notified message subscribers");
    assert_eq!(two.activity().looks, 0, "all changes were notified, none was polled");
    let closed = tokio::task::spawn_blocking(move || drop(two));
    soon("the threads have ended", closed).await.unwrap();
    one.append(&topic, NOW, records(0, [6])).await.unwrap();
}

/// Commits five entries and waits for a notification of each. A notification may belong to an earlier write,
/// but there are fewer than five of those.
#[cfg(target_os = "linux")]
async fn commit_five(log: &Sqlite, name: &str, notifications: &mut Notifications) {
    for number in 0..5 {
        let key = EntryKey::raw(format!("{name}/{number}"));
        log.commit(Write { key, expect: None, value: Some("v".into()) }).await.unwrap();
        soon("a notification of the other's commit", notifications.next()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_append_while_one_reads_and_nothing_is_lost_or_out_of_order() {
    const EACH: u128 = 200;
    let place = Place::new();
    let logs = [place.open(), place.open()];
    let topic = topic(&logs[0], "emails", 4).await;
    let appenders: Vec<_> = (0..16u128)
        .map(|appender| {
            let (log, topic) = (logs[appender as usize % 2].clone(), topic.clone());
            tokio::task::spawn(async move {
                for i in (0..EACH).step_by(4) {
                    let shard = (appender % 4) as u16;
                    let batch = records(shard, (i..i + 4).map(|i| appender << 32 | i));
                    log.append(&topic, NOW, batch).await.unwrap();
                }
            })
        })
        .collect();
    let mut last: BTreeMap<u128, u128> = BTreeMap::new();
    let mut positions = vec![Position::default(); 4];
    let mut count = 0;
    let mut new_messages = logs[1].message_notifications(&topic);
    while count < 16 * EACH {
        let mut found = 0;
        for shard in 0..4 {
            let block = read(&logs[1], &topic, shard, &positions[usize::from(shard)], 37).await;
            for id in id_list(&block.messages) {
                let (appender, i) = (id >> 32, id & 0xffff_ffff);
                assert_eq!(i, last.get(&appender).map_or(0, |last| last + 1), "appender {appender}");
                last.insert(appender, i);
            }
            found += block.messages.len();
            positions[usize::from(shard)] = block.end;
        }
        count += found as u128;
        if found == 0 {
            soon("a notification while messages are missing", new_messages.next()).await;
        }
    }
    for appender in appenders {
        appender.await.unwrap();
    }
    assert_eq!(count, 16 * EACH);
    for (shard, position) in positions.iter().enumerate() {
        assert_eq!(read(&logs[0], &topic, shard as u16, position, 1).await.messages, []);
    }
}

#[tokio::test]
async fn a_refused_append_takes_no_other_down() {
    let place = Place::new();
    let log = place.open();
    let topic = topic(&log, "emails", 1).await;
    let all = (0..50).map(|id| {
        let (log, topic) = (log.clone(), topic.clone());
        let shard = if id % 5 == 0 { 9 } else { 0 };
        tokio::task::spawn(async move { log.append(&topic, NOW, records(shard, [id])).await })
    });
    for (id, ended) in all.collect::<Vec<_>>().into_iter().enumerate() {
        match ended.await.unwrap() {
            Ok(()) => assert_ne!(id % 5, 0),
            Err(error) => assert_eq!((error.kind(), id % 5), (ErrorKind::Invalid, 0)),
        }
    }
    assert_eq!(ids(&log, &topic, 0).await.len(), 40);
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_killed_process() {
    let place = Place::new();
    if let Ok(path) = std::env::var("SAWMILL_TEST_KILLED") {
        // The child: appends until it is killed and prints what is acknowledged.
        let log = Sqlite::open(path, &Default::default()).unwrap();
        let topic = topic(&log, "emails", 1).await;
        for id in 0.. {
            log.append(&topic, NOW, records(0, [id])).await.unwrap();
            println!("acknowledged {id}");
        }
    }
    use std::io::BufRead;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "sharing::what_was_acknowledged_survives_a_killed_process"])
        .env("SAWMILL_TEST_KILLED", place.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = 0;
    for line in lines {
        if let Some(id) = line.unwrap().strip_prefix("acknowledged ") {
            acknowledged = id.parse().unwrap();
            if acknowledged == 300 {
                child.kill().unwrap();
            }
        }
    }
    child.wait().unwrap();
    assert!(acknowledged >= 300);
    let log = place.open();
    let topic = topic(&log, "emails", 1).await;
    let there = ids(&log, &topic, 0).await;
    assert!(there.len() as u128 > acknowledged, "{} of {acknowledged}", there.len());
    assert_eq!(there, (0..there.len() as u128).collect::<Vec<_>>());
    assert_eq!(read(&log, &topic, 0, &Position::default(), 1).await.messages, [message(0)]);
}

#[tokio::test]
async fn a_check_up_finds_who_reads_for_ever_and_is_silent_otherwise() {
    let place = Place::new();
    let (log, reader) = (place.open(), rusqlite::Connection::open(place.path()).unwrap());
    let found = async || Log::diagnose(&log, Duration::from_secs(1)).await.unwrap();
    let topic = topic(&log, "emails", 1).await;
    log.append(&topic, NOW, records(0, [1])).await.unwrap();
    assert!(found().await.is_empty());
    reader.execute_batch("BEGIN; SELECT count(*) FROM topic").unwrap();
    for id in 2..100 {
        let mut large = message(id);
        large.payload = vec![7; 1 << 20].into();
        log.append(&topic, NOW, vec![Record::once(0, large)]).await.unwrap();
    }
    let held = found().await;
    assert_eq!(held.iter().map(|finding| finding.check).collect::<Vec<_>>(), ["held-transaction"]);
    reader.execute_batch("COMMIT").unwrap();
    assert!(found().await.is_empty());
}
