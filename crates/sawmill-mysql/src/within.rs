//! Pushes and finishes messages within a transaction of the user's own.
//!
//! Each operation is plain text, so any driver can run it, including drivers that this module does not know.
//! All foreign values in the statements are hexadecimal digits or numbers.

use std::collections::BTreeMap;
use std::fmt::Write;

use sawmill_engine::model::MessageId;
use sawmill_engine::storage::{Draft, Finishable, Record, downcast_log};
use sawmill_engine::{Error, ErrorKind, Result};

use crate::connection::connections::Connection;
use crate::connection::sql::Sql;
use crate::error::Failure;
#[cfg(feature = "sqlx")]
use crate::error::{code, explain};
use crate::log::row::{STORED, size, topic_id};
use crate::schema::Tables;
use crate::store::Mysql;

/// Pushes messages within a transaction of sqlx on the database that Sawmill uses. They exist once it
/// commits, and never if it rolls back.
///
/// Until then it holds the counters of its shards, and other pushes to these shards wait: push last, and
/// commit soon.
///
/// ```no_run
/// # async fn example(mill: sawmill::Sawmill, pool: sqlx::MySqlPool) -> Result<(), Box<dyn std::error::Error>> {
/// let email = mill.draft("emails", ["Thank you for the saw"]).await?;
/// let mut order = pool.begin().await?;
/// sqlx::query("INSERT INTO orders VALUES ('a saw')").execute(&mut *order).await?;
/// sawmill_mysql::push_within_sqlx(&mut order, &email).await?;
/// order.commit().await?;
/// email.notify();
/// # Ok(()) }
/// ```
#[cfg(feature = "sqlx")]
pub async fn push_within_sqlx(connection: &mut sqlx::MySqlConnection, draft: &Draft) -> Result<()> {
    for sql in push_statements(draft)? {
        if run(connection, sql).await? == 0 {
            return Err(draft.topic().missing());
        }
    }
    Ok(())
}

/// Finishes a handler's message within the sqlx transaction of the handler's own writes. Returns false if an
/// earlier run finished it, whose worker died or woke up late: then make no writes, roll back, and report
/// success. Waits for the end of such a run if its transaction is still open.
///
/// For groups with `Delivery::ExactlyOnce`.
#[cfg(feature = "sqlx")]
pub async fn finish_within_sqlx(
    connection: &mut sqlx::MySqlConnection,
    message: &impl Finishable,
) -> Result<bool> {
    let added = run(connection, finish_statement(message)?).await?;
    message.finished();
    Ok(added > 0)
}

/// Runs one of our statements. Returns the number of rows that it touched.
#[cfg(feature = "sqlx")]
async fn run(connection: &mut sqlx::MySqlConnection, sql: String) -> Result<u64> {
    let done = sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(connection).await;
    done.map(|done| done.rows_affected()).map_err(explain_sqlx)
}

/// Does what [`explain`](crate::error::explain) does for our own driver. Nothing is committed before the user
/// commits, so the outcome is never unknown.
#[cfg(feature = "sqlx")]
fn explain_sqlx(error: sqlx::Error) -> Error {
    use sqlx::mysql::MySqlDatabaseError;
    let said = error.as_database_error().and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>());
    let explained = match said {
        Some(said) if said.number() == code::NO_SUCH_TABLE => Error::new(
            ErrorKind::NotFound,
            "Sawmill's tables are not there: the transaction is on another database than Sawmill",
        ),
        Some(said) => explain(&mysql_async::ServerError {
            code: said.number(),
            message: said.message().to_owned(),
            state: said.code().unwrap_or_default().to_owned(),
        }),
        None => Error::new(
            ErrorKind::Unavailable,
            "nothing was written within the transaction, which must be rolled back",
        ),
    };
    explained.caused_by(error)
}

/// Returns the statements that push a draft, for other drivers. Run them one after the other within a
/// transaction. Each one touches one row. If one touches none, the topic was deleted, and the transaction
/// must be rolled back.
pub fn push_statements(draft: &Draft) -> Result<Vec<String>> {
    let tables = draft.log::<Mysql>()?.tables();
    let topic = topic_id(draft.topic())?;
    // In ascending order, as everywhere, to avoid deadlocks.
    let mut shards: BTreeMap<u16, Vec<&Record>> = BTreeMap::new();
    for record in draft.records() {
        shards.entry(record.shard).or_default().push(record);
    }
    let mut statements = Vec::new();
    for (shard, records) in shards {
        let from = format!("FROM {} WHERE topic = {topic} AND number = {shard}", tables.shard);
        let is_later = |record: &&Record| record.message.due.is_some_and(|due| due > draft.now());
        let (later, ready): (Vec<&Record>, Vec<&Record>) = records.into_iter().partition(is_later);
        if let Some(largest) = ready.iter().map(|record| size(&record.message)).max() {
            let count = ready.len();
            statements.push(format!(
                "UPDATE {} SET last = last + {count}, kept = kept + {count}, largest = GREATEST(largest, {largest}) \
                 WHERE topic = {topic} AND number = {shard}",
                tables.shard
            ));
        }
        for (left, record) in (0..ready.len()).rev().zip(ready) {
            statements.push(format!(
                "INSERT INTO {} (topic, shard, number, {STORED}) SELECT topic, number, last - {left}, {} {from}",
                tables.message,
                values(record)
            ));
        }
        for record in later {
            statements.push(format!(
                "INSERT INTO {} (topic, shard, {STORED}) SELECT topic, number, {} {from}",
                tables.aside,
                values(record)
            ));
        }
    }
    Ok(statements)
}

/// Returns the statement that finishes a message, for other drivers. Run it within the handler's transaction.
/// It adds one row, or none if the message was finished before. Call [`Finishable::finished`] afterwards.
pub fn finish_statement(message: &impl Finishable) -> Result<String> {
    let store: &Mysql = downcast_log(message.log())?;
    if !store.server_capabilities().exactly_once {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "this is a Galera cluster, on which a commit may be undone after it was seen: exactly-once is not to be had",
        ));
    }
    // IGNORE hides only a duplicate row: all values fit, and other errors are still reported.
    Ok(format!(
        "INSERT IGNORE INTO {} (id, reader) VALUES ({}, {})",
        store.tables().finished,
        id(message.id()),
        bytes(message.group().to_string().as_bytes())
    ))
}

/// The maximum number of records deleted in one transaction.
const MAX_FORGOTTEN: u64 = 1_000;

/// Deletes some records of messages that were finished longer ago than a worker may sleep and then continue.
/// Returns true if there may be more.
pub(crate) async fn forget(connection: &mut Connection, tables: &Tables) -> Result<bool, Failure> {
    let sql = Sql::new(format_args!(
        "DELETE FROM {} WHERE at < NOW() - INTERVAL 7 DAY ORDER BY at LIMIT {MAX_FORGOTTEN}",
        tables.finished
    ));
    Ok(connection.write(&sql).await?.changed == MAX_FORGOTTEN)
}

/// The values of [`STORED`].
fn values(record: &Record) -> String {
    let message = &record.message;
    let headers = (!message.headers.is_empty()).then(|| message.headers.encode());
    let maybe = |value: Option<&[u8]>| value.map_or("NULL".to_owned(), bytes);
    format!(
        "{}, {}, {}, {}, {}, {}, {}, {}",
        id(message.id),
        message.created.as_millis(),
        message.due.map_or("NULL".to_owned(), |due| due.as_millis().to_string()),
        u8::from(record.repeatable),
        size(message),
        maybe(message.key.as_deref()),
        maybe(headers.as_deref()),
        bytes(&message.payload)
    )
}

fn id(id: MessageId) -> String {
    bytes(&id.as_u128().to_be_bytes())
}

/// Writes a hexadecimal literal, which does not depend on the session's settings for backslashes and
/// character sets.
fn bytes(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len() + 3);
    text.push_str("x'");
    for byte in bytes {
        // Writing into memory cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\'');
    text
}
