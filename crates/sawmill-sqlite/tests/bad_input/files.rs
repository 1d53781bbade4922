//! Wrong URLs, and files that are not valid databases.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use sawmill::{Context, Error, ErrorKind, Sawmill};
use sawmill_conformance::skipped;
use sawmill_engine::runtime::Env;

use crate::support::Mount;
use crate::{Store, refused};

async fn open(path: &Path) -> Result<Sawmill, Error> {
    sawmill::Sawmill::open(&format!("sqlite:{}", path.display())).await
}

#[tokio::test]
async fn wrong_urls_are_refused_with_an_example() {
    for (url, said) in [
        ("", ["does not begin with the name of an engine", "sqlite:"]),
        ("jobs.db", ["does not begin with the name of an engine", "sqlite:"]),
        ("/srv/jobs.db", ["does not begin with the name of an engine", "sqlite:"]),
        ("SQLITE:jobs.db", ["does not begin with the name of an engine", "sqlite:"]),
        ("sqlite:", ["path of the file is missing", "write sqlite:jobs.db"]),
        ("sqlite::memory:", ["for durable stores", "use memory:"]),
        ("sqlite:///srv/jobs.db", ["follows the colon directly", "sqlite:/srv/jobs.db"]),
        ("sqlite:jobs.db?mode=ro", ["no settings", "the path of the file alone"]),
        ("sqlite:file:jobs.db", ["SQLite's own URLs", "write the path of the file"]),
        ("sqlight:jobs.db", ["no engine here opens sqlight:jobs.db", "memory:, sqlite:"]),
    ] {
        refused(sawmill::Sawmill::open(url).await, ErrorKind::Invalid, &said);
    }
    let foreign = sawmill::Sawmill::open("redis://me:secret@host/db").await;
    let error = refused(foreign, ErrorKind::Invalid, &["no engine here opens", "me:***@host", "sqlite:"]);
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[tokio::test]
async fn paths_that_cannot_be_a_file_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().display().to_string();
    refused(open(folder.path()).await, ErrorKind::Invalid, &[&name, "is a folder", "name the file in it"]);
    let missing = folder.path().join("nowhere/jobs.db");
    refused(open(&missing).await, ErrorKind::Invalid, &["no folder", "nowhere", "create it first"]);
    assert!(!folder.path().join("nowhere").exists());
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    refused(open(&file.join("jobs.db")).await, ErrorKind::Invalid, &["no folder", "create it first"]);
}

#[tokio::test]
async fn files_of_others_are_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    fs::write(&path, "Dear Alice, this is no database.").unwrap();
    let said = ["jobs.db", "no SQLite database", "left as it is", "choose another path"];
    refused(open(&path).await, ErrorKind::Corrupt, &said);
    assert_eq!(fs::read(&path).unwrap(), b"Dear Alice, this is no database.");
    fs::remove_file(&path).unwrap();
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE song (title TEXT)").unwrap();
    let content = fs::read(&path).unwrap();
    let said = ["jobs.db", "another program's database", "choose another path"];
    refused(open(&path).await, ErrorKind::Corrupt, &said);
    assert_eq!(fs::read(&path).unwrap(), content);
}

#[tokio::test]
async fn a_newer_schema_asks_for_a_newer_program() {
    let Store { mill, folder } = Store::new().await;
    drop(mill);
    let path = folder.path().join("jobs.db");
    Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 1000").unwrap();
    refused(open(&path).await, ErrorKind::Corrupt, &["schema version 1000", "upgrade the program"]);
}

/// Overwrites or truncates a sound database in many ways. Every use then succeeds or is refused as damaged;
/// nothing panics or hangs.
#[tokio::test]
async fn a_broken_file_is_reported_as_broken() {
    let Store { mill, folder } = Store::new().await;
    mill.push_many("jobs", (0..500).map(|nth| format!("message {nth} {}", "x".repeat(200)))).await.unwrap();
    drop(mill);
    let sound = fs::read(folder.path().join("jobs.db")).unwrap();
    let page = 4096;
    let mut reported = 0;
    for harm in 0..12 {
        let path = folder.path().join(format!("broken{harm}.db"));
        let mut bytes = sound.clone();
        match harm {
            0 => bytes.truncate(sound.len() / 2),
            1 => bytes.truncate(page + 100),
            2 => bytes[..16].fill(0),
            3 => bytes[100..page].fill(0xff),
            _ => {
                let middle = page * (harm - 3);
                bytes[middle..middle + page].fill(0xa5);
            }
        }
        fs::write(&path, &bytes).unwrap();
        let used = Env::system().within(Duration::from_secs(20), use_it(&path)).await;
        match used.unwrap_or_else(|| panic!("test timed out: an answer, harm {harm}")) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "harm {harm}: {error}");
                assert!(error.to_string().contains("backup"), "harm {harm}: {error}");
                reported += 1;
            }
        }
    }
    assert!(reported >= 6, "only {reported} of 12 were noticed");
}

async fn use_it(path: &Path) -> Result<(), Error> {
    let mill = open(path).await?;
    mill.admin().topics().await?;
    mill.push("jobs", "one more").await?;
    mill.admin().status("jobs", "default").await?;
    Ok(())
}

#[cfg(unix)]
#[tokio::test]
async fn what_is_no_plain_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe.db");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    if !made.is_ok_and(|status| status.success()) {
        return skipped("what_is_no_plain_file_is_refused", "there is no mkfifo here");
    }
    let answer = Env::system().within(Duration::from_secs(20), open(&path)).await;
    refused(answer.unwrap(), ErrorKind::Invalid, &["pipe.db", "no plain file", "choose another path"]);
}

#[tokio::test]
async fn what_can_only_be_read_is_refused() {
    let Some(mount) = Mount::new("what_can_only_be_read_is_refused", "size=4m") else { return };
    let path = mount.path().join("jobs.db");
    let mill = open(&path).await.unwrap();
    mill.create_topic("jobs").await.unwrap();
    drop(mill);
    mount.remount("ro").await;
    refused(
        open(&path).await,
        ErrorKind::Invalid,
        &["jobs.db", "the file and its folder exist and may be written"],
    );
    refused(
        open(&mount.path().join("new.db")).await,
        ErrorKind::Invalid,
        &["new.db", "may be read and written"],
    );
}

#[tokio::test]
async fn a_worker_on_a_file_that_breaks_says_so_and_can_be_stopped() {
    let Store { mill, folder } = Store::new().await;
    let worker = mill.worker("jobs").ttl(Duration::from_secs(1)).start(|_: Context| async {}).await.unwrap();
    Connection::open(folder.path().join("jobs.db")).unwrap().execute_batch("DROP TABLE message").unwrap();
    refused(mill.push("jobs", "x").await, ErrorKind::Corrupt, &["no such table", "backup"]);
    let stopped = Env::system().within(Duration::from_secs(20), worker.stop()).await;
    assert!(stopped.is_some(), "test timed out: the worker stops");
}
