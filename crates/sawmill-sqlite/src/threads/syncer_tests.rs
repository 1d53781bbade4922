use std::path::PathBuf;
use std::sync::Mutex;

use sawmill::Sawmill;
use sawmill_engine::ErrorKind;
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{Commit, EntryKey, Ledger, Write};

use crate::Sqlite;

/// The logs whose sync fails.
pub(super) static BROKEN_DISKS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Makes the sync of a database's write-ahead log fail while this value exists.
struct BrokenDisk(std::path::PathBuf);

impl BrokenDisk {
    fn under(path: &std::path::Path) -> Self {
        let wal = path.canonicalize().unwrap().with_file_name("a.db-wal");
        BROKEN_DISKS.lock().unwrap().push(wal.clone());
        Self(wal)
    }
}

impl Drop for BrokenDisk {
    fn drop(&mut self) {
        BROKEN_DISKS.lock().unwrap().retain(|path| *path != self.0);
    }
}

fn write(name: &str) -> Write {
    Write { key: EntryKey::raw(name), expect: None, value: Some("x".into()) }
}

#[tokio::test]
async fn what_the_log_does_not_keep_the_database_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let sqlite = Sqlite::open(&path, &Default::default()).unwrap();
    assert!(matches!(sqlite.commit(write("one")).await, Ok(Commit::Done(_))), "the ledger is here");
    let _broken = BrokenDisk::under(&path);
    assert!(matches!(sqlite.commit(write("two")).await, Ok(Commit::Done(_))));
    assert_eq!(
        std::fs::metadata(folder.path().join("a.db-wal")).unwrap().len(),
        0,
        "the log was checkpointed"
    );
}

#[tokio::test]
async fn while_nobody_keeps_what_was_written_nothing_is_decided_by_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let sqlite = Sqlite::open(&path, &Default::default()).unwrap();
    let mill = Sawmill::from_parts(
        std::sync::Arc::new(sqlite.clone()),
        std::sync::Arc::new(sqlite.clone()),
        Env::system(),
    );
    mill.create_topic("t").await.unwrap();
    assert!(matches!(sqlite.commit(write("one")).await, Ok(Commit::Done(_))), "the ledger is here");

    // A reader prevents the checkpoint.
    let reader = rusqlite::Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN; SELECT * FROM sqlite_schema").unwrap();
    assert!(
        reader.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0)).unwrap() > 0
    );
    let broken = BrokenDisk::under(&path);
    let two = write("two");
    assert!(matches!(sqlite.commit(two.clone()).await, Ok(Commit::Unknown)));
    assert_eq!(sqlite.get(&two.key).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(mill.push("t", "x").await.unwrap_err().kind(), ErrorKind::Unavailable);

    reader.execute_batch("COMMIT").unwrap();
    mill.push("t", "x").await.unwrap();
    assert!(sqlite.get(&two.key).await.unwrap().is_some(), "the second write was kept");
    drop(broken);
    assert!(matches!(sqlite.commit(write("three")).await, Ok(Commit::Done(_))));
}
