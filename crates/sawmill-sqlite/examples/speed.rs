//! How fast the log is, beside SQLite itself with the same columns:
//! `cargo run --release -p sawmill-sqlite --example speed -- FOLDER`.
#![allow(clippy::disallowed_methods, reason = "many tasks are what is measured")]

use std::error::Error;
use std::path::Path;

use rusqlite::{Connection, params};
use sawmill::clock::{Clock, Moment, SystemClock, Timestamp};
use sawmill::log::{Log, Position, Record, Want};
use sawmill::topic::{Topic, TopicSpec};
use sawmill::{Message, MessageId};
use sawmill_sqlite::Sqlite;

const MESSAGES: u64 = 400_000;
const SHARDS: u16 = 16;
const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

type Done<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Done<()> {
    let folder = tempfile::tempdir_in(std::env::args().nth(1).unwrap_or_else(|| ".".to_owned()))?;
    for batch in [1_000, 100] {
        for index in ["", "CREATE UNIQUE INDEX message_id ON message (topic, id)"] {
            let path = folder.path().join("raw.db");
            raw(&path, batch, index)?;
            std::fs::remove_file(path)?;
        }
        let path = folder.path().join("jobs.db");
        engine(&path, batch).await?;
        std::fs::remove_file(path)?;
    }
    Ok(())
}

fn report(what: &str, count: u64, start: Moment) {
    let took = SystemClock.now().since(start);
    println!("{what:<40} {:>9.0}/s", count as f64 / took.as_secs_f64());
}

/// What SQLite does by itself.
fn raw(path: &Path, batch: u64, index: &str) -> Done<()> {
    let mut connection = Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA journal_mode = wal; PRAGMA synchronous = full;
         CREATE TABLE message (pos INTEGER PRIMARY KEY, topic INTEGER NOT NULL, id BLOB NOT NULL,
         created_ms INTEGER NOT NULL, due_ms INTEGER, key BLOB, headers BLOB, payload BLOB NOT NULL)",
    )?;
    connection.execute_batch(index)?;
    let start = SystemClock.now();
    for first in (0..MESSAGES).step_by(batch as usize) {
        let transaction = connection.transaction()?;
        let mut insert =
            transaction.prepare_cached("INSERT INTO message VALUES (?1, 1, ?2, ?3, NULL, NULL, NULL, ?4)")?;
        for i in first..first + batch {
            let pos = ((1 + i as i64 % 16) << 40) | (i as i64 / 16);
            insert.execute(params![pos, u128::from(i).to_be_bytes(), NOW.as_millis() as i64, [7u8; 100]])?;
        }
        drop(insert);
        transaction.commit()?;
    }
    let with = if index.is_empty() { "without" } else { "with" };
    report(&format!("raw inserts {with} index, by {batch}"), MESSAGES, start);
    let start = SystemClock.now();
    let mut select = connection.prepare(
        "SELECT pos, id, created_ms, due_ms, key, headers, payload FROM message
         WHERE pos > ?1 AND pos < ?2 ORDER BY pos LIMIT ?3",
    )?;
    let mut bytes = 0;
    for shard in 1..=i64::from(SHARDS) {
        let mut after = (shard << 40) - 1;
        loop {
            let before = bytes;
            let mut rows = select.query(params![after, (shard + 1) << 40, batch as i64])?;
            while let Some(row) = rows.next()? {
                after = row.get(0)?;
                bytes += row.get_ref(6)?.as_blob()?.len() as u64;
            }
            if bytes == before {
                break;
            }
        }
    }
    assert_eq!(bytes, 100 * MESSAGES);
    report(&format!("raw reads by {batch}"), MESSAGES, start);
    Ok(())
}

/// What the engine makes of it.
async fn engine(path: &Path, batch: u64) -> Done<()> {
    let log = Sqlite::open(path, &Default::default())?;
    let topic = log.create_topic(&TopicSpec::new("speed".parse()?)).await?;
    let records = |first| (first..first + batch).map(record).collect();
    let batches: Vec<Vec<Record>> = (0..MESSAGES).step_by(batch as usize).map(records).collect();
    let start = SystemClock.now();
    for records in batches {
        log.append(&topic, NOW, records).await?;
    }
    report(&format!("append by {batch}"), MESSAGES, start);
    let start = SystemClock.now();
    assert_eq!(read_all(&log, &topic, batch as usize).await?, MESSAGES);
    report(&format!("read by {batch}"), MESSAGES, start);

    let topic = log.create_topic(&TopicSpec::new("together".parse()?)).await?;
    let start = SystemClock.now();
    let appenders: Vec<_> = (0..16)
        .map(|appender| {
            let (log, topic) = (log.clone(), topic.clone());
            tokio::task::spawn(async move {
                for i in 0..500 {
                    log.append(&topic, NOW, vec![record((appender << 32) | i)]).await?;
                }
                Done::Ok(())
            })
        })
        .collect();
    for appender in appenders {
        appender.await??;
    }
    report("append one by one, 16 at once", 16 * 500, start);
    Ok(())
}

fn record(i: u64) -> Record {
    let message = Message {
        id: MessageId::from_u128(u128::from(i)),
        key: None,
        payload: vec![7; 100].into(),
        headers: Default::default(),
        due: None,
        created: NOW,
    };
    Record { shard: (i % u64::from(SHARDS)) as u16, message }
}

async fn read_all(log: &Sqlite, topic: &Topic, limit: usize) -> Done<u64> {
    let mut read = 0;
    for shard in 0..topic.shards {
        let mut after = Position::default();
        loop {
            let block = log.read(topic, &[Want { shard, after, limit }]).await?.remove(0);
            read += block.messages.len() as u64;
            after = block.end;
            if !block.more {
                break;
            }
        }
    }
    Ok(read)
}
