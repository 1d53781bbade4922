//! Opening: what is created, and what is refused unchanged with advice.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use crate::support::{Mount, NOW, Place, ids, later, records, topic};
use rusqlite::Connection;
use sawmill::admin::ReplayFrom;
use sawmill::{Error, ErrorKind};
use sawmill_engine::storage::{Commit, Engine, EntryKey, Ledger, Log, Write};
use sawmill_sqlite::{Sqlite, SqliteEngine};

fn refused(path: impl AsRef<Path>) -> Error {
    let error = Sqlite::open(path.as_ref(), &Default::default()).unwrap_err();
    assert!(error.to_string().contains(path.as_ref().to_str().unwrap()), "{error}");
    error
}

#[tokio::test]
async fn a_store_is_opened_by_url() {
    let place = Place::new();
    let url = format!("sqlite:{}", place.path().display()).parse().unwrap();
    let store = SqliteEngine.open(&url, &Default::default()).await.unwrap();
    assert!(store.log.is_some() && store.ledger.is_some());
    let url = "sqlite::memory:".parse().unwrap();
    let error = SqliteEngine.open(&url, &Default::default()).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_may_read_what_is_created() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let log = place.open();
    topic(&log, "emails", 1).await;
    for suffix in ["", "-wal", "-shm"] {
        let path = format!("{}{suffix}", place.path().display());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{path}");
    }
}

#[tokio::test]
async fn a_closed_database_is_one_file_with_everything_in_it() {
    let place = Place::new();
    let log = place.open();
    let topic = topic(&log, "emails", 1).await;
    log.append(&topic, NOW, records(0, [1])).await.unwrap();
    drop(log);
    let files: Vec<_> =
        fs::read_dir(place.folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, ["jobs.db"]);
    assert_eq!(ids(&place.open(), &topic, 0).await, [1]);
}

#[test]
fn paths_that_cannot_be_databases_are_refused() {
    let place = Place::new();
    let missing = place.folder.path().join("nowhere").join("jobs.db");
    let error = Sqlite::open(&missing, &Default::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("create it first"), "{error}");
    assert_eq!(refused(place.folder.path()).kind(), ErrorKind::Invalid);
    for odd in ["", ":memory:", "file:x.db"] {
        assert_eq!(Sqlite::open(odd, &Default::default()).unwrap_err().kind(), ErrorKind::Invalid, "{odd}");
    }
    assert!(!Path::new(":memory:").exists());
}

#[test]
fn what_is_no_database_is_refused_untouched() {
    let place = Place::new();
    let magic = b"SQLite format 3\0".to_vec();
    for content in [b"x".to_vec(), b"garbage ".repeat(1000), [magic, b"garbage ".repeat(1000)].concat()] {
        fs::write(place.path(), &content).unwrap();
        assert_eq!(refused(place.path()).kind(), ErrorKind::Corrupt);
        assert_eq!(fs::read(place.path()).unwrap(), content);
    }
}

#[test]
fn another_programs_database_is_refused_untouched() {
    for setup in [
        "CREATE TABLE song (title TEXT);",
        "PRAGMA application_id = 77; CREATE TABLE song (title TEXT);",
        "PRAGMA application_id = 77;",
        "PRAGMA journal_mode = wal; CREATE TABLE song (title TEXT);",
    ] {
        let place = Place::new();
        let owner = Connection::open(place.path()).unwrap();
        owner.execute_batch(setup).unwrap();
        // Once while its owner has it open, before a checkpoint, and once after it is closed.
        let content = fs::read(place.path()).unwrap();
        assert_eq!(refused(place.path()).kind(), ErrorKind::Corrupt, "{setup}");
        assert_eq!(fs::read(place.path()).unwrap(), content, "{setup}");
        drop(owner);
        let content = fs::read(place.path()).unwrap();
        let error = refused(place.path());
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{setup}");
        assert!(error.to_string().contains("another program's"), "{error}");
        assert_eq!(fs::read(place.path()).unwrap(), content, "{setup}");
    }
}

#[test]
fn an_empty_database_is_taken() {
    let place = Place::new();
    Connection::open(place.path()).unwrap().execute_batch("PRAGMA journal_mode = wal").unwrap();
    place.open();
}

#[test]
fn the_schema_version_is_told_without_changing_it() {
    let place = Place::new();
    assert_eq!(sawmill_sqlite::schema_version(&place.path()).unwrap(), None);
    assert!(!place.path().exists(), "reading the version creates no file");
    drop(place.open());
    assert!(sawmill_sqlite::schema_version(&place.path()).unwrap() >= Some(2));
    let raw = Connection::open(place.path()).unwrap();
    raw.execute_batch("PRAGMA user_version = 1").unwrap();
    for _ in 0..2 {
        assert_eq!(sawmill_sqlite::schema_version(&place.path()).unwrap(), Some(1));
    }
    raw.execute_batch("PRAGMA application_id = 7").unwrap();
    assert_eq!(sawmill_sqlite::schema_version(&place.path()).unwrap(), None, "another program's");
}

#[test]
fn a_newer_schema_is_refused_untouched() {
    let place = Place::new();
    drop(place.open());
    let raw = Connection::open(place.path()).unwrap();
    raw.execute_batch("PRAGMA user_version = 1000").unwrap();
    drop(raw);
    let content = fs::read(place.path()).unwrap();
    let error = refused(place.path());
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("upgrade the program"), "{error}");
    assert_eq!(fs::read(place.path()).unwrap(), content);
}

#[test]
fn g12_many_may_open_a_new_database_at_once() {
    for _ in 0..5 {
        let place = Arc::new(Place::new());
        let start = Arc::new(Barrier::new(8));
        let open = |_| {
            let (place, start) = (place.clone(), start.clone());
            thread::spawn(move || {
                start.wait();
                place.open()
            })
        };
        let threads: Vec<_> = (0..8).map(open).collect();
        for thread in threads {
            thread.join().unwrap();
        }
    }
}

#[tokio::test]
async fn what_can_only_be_read_is_refused() {
    let Some(mount) = Mount::new("what_can_only_be_read_is_refused", "size=4m") else { return };
    let path = mount.path().join("jobs.db");
    drop(Sqlite::open(&path, &Default::default()).unwrap());
    mount.remount("ro").await;
    let error = refused(&path);
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("writ"), "{error}");
    assert_eq!(refused(mount.path().join("new.db")).kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn rows_that_make_no_sense_are_reported_as_such() {
    for (harm, said) in [
        ("UPDATE message SET id = x'00' WHERE pos & 1", "id"),
        ("UPDATE message SET created_ms = -5", "creation time"),
        ("UPDATE message SET due_ms = 'soon'", "due time"),
        ("UPDATE message SET headers = x'00000009'", "headers"),
        ("UPDATE message SET key = 3.5", "key"),
        ("UPDATE message SET payload = 'text'", "payload"),
        ("UPDATE shard SET last = -1", "shard 0"),
        ("UPDATE topic SET shards = 0", "0 shards"),
        ("DROP TABLE message", "no such table"),
    ] {
        let place = Place::new();
        let log = place.open();
        let topic = topic(&log, "emails", 1).await;
        log.append(&topic, NOW, records(0, [1, 2])).await.unwrap();
        // A reader that has not appended the messages reads them from the file.
        let reader = place.open();
        Connection::open(place.path()).unwrap().execute_batch(harm).unwrap();
        let wants = [sawmill_engine::storage::ReadRequest { shard: 0, after: Default::default(), limit: 9 }];
        let error = reader.read(&topic, &wants).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{harm}: {error}");
        assert!(error.to_string().contains(said), "{harm}: {error}");
    }
}

#[tokio::test]
async fn a_message_kept_aside_that_makes_no_sense_is_reported_as_such() {
    for harm in ["SET shard = 1", "SET shard = -1", "SET due_ms = -1", "SET shard = 'one'"] {
        let place = Place::new();
        let log = place.open();
        let topic = topic(&log, "emails", 1).await;
        log.append(&topic, NOW, vec![later(1, 10), later(2, 20)]).await.unwrap();
        let raw = Connection::open(place.path()).unwrap();
        raw.execute_batch(&format!("UPDATE aside {harm} WHERE seq = 2")).unwrap();
        let error = log.promote(&topic, NOW + Duration::from_secs(1), 9).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{harm}: {error}");
        assert_eq!(ids(&log, &topic, 0).await, [], "{harm}: nothing was moved");
    }
}

#[tokio::test]
async fn a_damaged_shard_row_stops_its_topic_and_no_other() {
    let place = Place::new();
    let log = place.open();
    let (broken, sound) = (topic(&log, "broken", 1).await, topic(&log, "sound", 1).await);
    log.append(&broken, NOW, records(0, [1, 2])).await.unwrap();
    // The counter is behind the stored messages: the next number is taken.
    Connection::open(place.path())
        .unwrap()
        .execute_batch("UPDATE shard SET last = 1, kept = 1 WHERE topic = 1")
        .unwrap();
    let (one, other) =
        tokio::join!(log.append(&broken, NOW, records(0, [3])), log.append(&sound, NOW, records(0, [3])));
    assert_eq!(one.unwrap_err().kind(), ErrorKind::Corrupt);
    other.unwrap();
    assert_eq!(ids(&log, &broken, 0).await, [1, 2]);
    assert_eq!(ids(&log, &sound, 0).await, [3]);
}

#[tokio::test]
async fn a_store_of_a_newer_format_is_refused_and_left_as_it_is() {
    let place = Place::new();
    let url = format!("sqlite:{}", place.path().display());
    let mill = sawmill::Sawmill::open(&url).await.unwrap();
    mill.create_topic("emails").await.unwrap();
    mill.push("emails", "Hello").await.unwrap();
    let worker = mill.worker("emails").start(async || ()).await.unwrap();
    worker.drained().await;
    worker.stop().await;

    // A newer program writes while this one has the store open.
    let store = place.open();
    let shards = EntryKey::raw("shards/");
    for entry in store.list(&shards).await.unwrap() {
        let value = Some(r#"{"format":99,"state":{"anything":[]}}"#.into());
        let write = Write { key: entry.key, expect: Some(entry.version), value };
        assert!(matches!(store.commit(write).await.unwrap(), Commit::Done(_)));
    }
    let newer = store.list(&shards).await.unwrap();
    let error = mill.admin().replay("emails", "default", ReplayFrom::Start).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Outdated);
    assert!(error.to_string().contains("format 99"), "{error}");

    // After this, the store cannot be opened.
    let write = Write { key: EntryKey::format(), expect: None, value: Some(r#"{"format":99}"#.into()) };
    store.commit(write).await.unwrap();
    let error = sawmill::Sawmill::open(&url).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Outdated);
    assert!(error.to_string().contains("the store has format 99"), "{error}");
    let error = mill.worker("emails").start(async || ()).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Outdated);
    assert_eq!(store.list(&EntryKey::all_members()).await.unwrap(), []);
    // The replay may have reached other shards before it was refused.
    let after = store.list(&shards).await.unwrap();
    assert!(!newer.is_empty() && newer.iter().all(|entry| after.contains(entry)), "{after:?}");
}
