//! A full disk: writes are refused as `Full`, acknowledged data is kept, and writes succeed once there is
//! room.

use crate::support::{Mount, NOW, ids, message, records, topic};
use bytes::Bytes;
use sawmill::{ErrorKind, Message};
use sawmill_engine::storage::{Commit, EntryKey, Ledger, Log, Record, Version, Write};
use sawmill_sqlite::Sqlite;

#[tokio::test]
async fn a_full_disk_loses_nothing_and_goes_on_when_there_is_room() {
    let Some(mount) = Mount::new("a_full_disk_loses_nothing_and_goes_on_when_there_is_room", "size=1m")
    else {
        return;
    };
    let path = mount.path().join("jobs.db");
    let log = Sqlite::open(&path, &Default::default()).unwrap();
    let topic = topic(&log, "emails", 1).await;
    let append = async |id: u128| {
        let message = Message { payload: Bytes::from(vec![id as u8; 3_000]), ..message(id) };
        log.append(&topic, NOW, vec![Record::once(0, message)]).await
    };
    let mut acknowledged = Vec::new();
    let error = loop {
        let id = acknowledged.len() as u128;
        match append(id).await {
            Ok(()) => acknowledged.push(id),
            Err(error) => break error,
        }
        assert!(id < 10_000, "the disk is never full");
    };
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert!(acknowledged.len() > 20, "{} fit", acknowledged.len());
    assert_eq!(ids(&log, &topic, 0).await, acknowledged);
    // Concurrent appends and ledger writes are refused the same way.
    let (one, other) = tokio::join!(append(5_000), append(5_001));
    assert_eq!(one.unwrap_err().kind(), ErrorKind::Full);
    assert_eq!(other.unwrap_err().kind(), ErrorKind::Full);
    let write = Write { key: EntryKey::raw("a"), expect: None, value: Some(vec![7; 200_000].into()) };
    assert_eq!(log.commit(write.clone()).await.unwrap_err().kind(), ErrorKind::Full);
    mount.remount("size=16m").await;
    assert_eq!(log.commit(write).await.unwrap(), Commit::Done(Version(1)));
    log.append(&topic, NOW, records(0, [9_000, 9_001])).await.unwrap();
    acknowledged.extend([9_000, 9_001]);
    assert_eq!(ids(&log, &topic, 0).await, acknowledged);
    drop(log);
    let log = Sqlite::open(&path, &Default::default()).unwrap();
    assert_eq!(ids(&log, &topic, 0).await, acknowledged);
}

#[test]
fn a_disk_without_room_for_a_database_is_reported_as_full() {
    let Some(mount) = Mount::new("a_disk_without_room_for_a_database_is_reported_as_full", "size=16k") else {
        return;
    };
    let error = Sqlite::open(mount.path().join("jobs.db"), &Default::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
}
