//! How fast the log is, beside SQLite itself with the same columns: `cargo run --release --example speed`.

use std::path::Path;

use rusqlite::{Connection, params};
use sawmill::clock::{Clock, SystemClock, Timestamp};
use sawmill::log::{Log, Position, Record, Want};
use sawmill::topic::{Topic, TopicSpec};
use sawmill::{Message, MessageId, Result};
use sawmill_sqlite::Sqlite;

const MESSAGES: u64 = 400_000;
const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

#[tokio::main]
async fn main() -> Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    for batch in [1_000, 100] {
        for index in [false, true] {
            let path = Path::new(&folder).join(format!("speed-raw-{batch}-{index}.db"));
            raw(&path, batch, index)
                .map_err(|error| sawmill::Error::new(sawmill::ErrorKind::Invalid, error.to_string()))?;
            remove(&path);
        }
        let path = Path::new(&folder).join(format!("speed-{batch}.db"));
        engine(&path, batch).await?;
        remove(&path);
    }
    Ok(())
}

fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
}

fn measured(what: &str, count: u64, work: impl FnOnce()) {
    let start = SystemClock.now();
    work();
    report(what, count, start);
}

fn report(what: &str, count: u64, start: sawmill::clock::Moment) {
    let took = SystemClock.now().since(start);
    println!("{what:<44} {:>9.0}/s", count as f64 / took.as_secs_f64());
}

fn raw(path: &Path, batch: u64, index: bool) -> rusqlite::Result<()> {
    let mut connection = Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA journal_mode = wal; PRAGMA synchronous = full;
         CREATE TABLE message (pos INTEGER PRIMARY KEY, topic INTEGER NOT NULL, id BLOB NOT NULL,
         created_ms INTEGER NOT NULL, due_ms INTEGER, key BLOB, headers BLOB, payload BLOB NOT NULL)",
    )?;
    if index {
        connection.execute_batch("CREATE UNIQUE INDEX message_id ON message (topic, id)")?;
    }
    let payload = [7u8; 100];
    let mut insert_all = || -> rusqlite::Result<()> {
        for first in (0..MESSAGES).step_by(batch as usize) {
            let transaction = connection.transaction()?;
            let mut insert = transaction
                .prepare_cached("INSERT INTO message VALUES (?1, 1, ?2, ?3, NULL, NULL, NULL, ?4)")?;
            for i in first..first + batch {
                let pos = ((1 + i as i64 % 16) << 40) | (i as i64 / 16);
                insert.execute(params![pos, u128::from(i).to_be_bytes(), NOW.as_millis() as i64, payload])?;
            }
            drop(insert);
            transaction.commit()?;
        }
        Ok(())
    };
    let with = if index { "with" } else { "no" };
    let mut ended = Ok(());
    measured(&format!("raw inserts, {with} index, by {batch}"), MESSAGES, || ended = insert_all());
    ended?;
    let mut read = 0;
    measured(&format!("raw reads, by {batch}"), MESSAGES, || {
        ended = (|| {
            let mut select = connection.prepare(
                "SELECT pos, id, created_ms, due_ms, key, headers, payload FROM message
                 WHERE pos > ?1 AND pos < ?2 ORDER BY pos LIMIT ?3",
            )?;
            for shard in 1..=16i64 {
                let mut after = (shard << 40) - 1;
                loop {
                    let before = read;
                    let mut rows = select.query(params![after, (shard + 1) << 40, batch as i64])?;
                    while let Some(row) = rows.next()? {
                        after = row.get(0)?;
                        read += row.get_ref(6)?.as_blob()?.len() / 100;
                    }
                    if read == before {
                        break;
                    }
                }
            }
            Ok(())
        })();
    });
    assert_eq!(read as u64, MESSAGES);
    ended
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
    Record { shard: (i % 16) as u16, message }
}

async fn engine(path: &Path, batch: u64) -> Result<()> {
    let log = Sqlite::open(path, &Default::default())?;
    let topic = log.create_topic(&TopicSpec::new("speed".parse()?)).await?;
    let batches: Vec<Vec<Record>> = (0..MESSAGES)
        .step_by(batch as usize)
        .map(|first| (first..first + batch).map(record).collect())
        .collect();
    let start = SystemClock.now();
    for records in batches {
        log.append(&topic, NOW, records).await?;
    }
    report(&format!("append by {batch}"), MESSAGES, start);
    let start = SystemClock.now();
    let read = read_all(&log, &topic, batch as usize).await?;
    assert_eq!(read, MESSAGES);
    report(&format!("read by {batch}"), MESSAGES, start);

    let topic = log.create_topic(&TopicSpec::new("together".parse()?)).await?;
    let start = SystemClock.now();
    let appenders: Vec<_> = (0..16)
        .map(|appender| {
            let (log, topic) = (log.clone(), topic.clone());
            tokio::task::spawn(async move {
                for i in 0..500 {
                    log.append(&topic, NOW, vec![record(appender << 32 | i)]).await?;
                }
                Result::Ok(())
            })
        })
        .collect();
    for appender in appenders {
        appender
            .await
            .map_err(|error| sawmill::Error::new(sawmill::ErrorKind::Invalid, error.to_string()))??;
    }
    report("append one at a time, 16 at once", 16 * 500, start);
    Ok(())
}

async fn read_all(log: &Sqlite, topic: &Topic, limit: usize) -> Result<u64> {
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
