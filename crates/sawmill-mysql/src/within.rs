//! Within a transaction of the user's own: pushing, and finishing a message.
//!
//! Both are statements as text, which any driver can run: so those that are not named here can be used as well. All that is
//! not ours stands in them as hexadecimal digits, or as a number.

use std::collections::BTreeMap;
use std::fmt::Write;

use sawmill::log::Record;
use sawmill::{Context, Draft, Error, ErrorKind, MessageId, Result};

use crate::connections::Line;
use crate::error::Failure;
#[cfg(feature = "sqlx")]
use crate::error::{code, explain};
use crate::row::{STORED, size, topic_id};
use crate::schema::Tables;
use crate::sql::Sql;
use crate::store::Mysql;

/// Pushes messages within a transaction of sqlx on the database that Sawmill has open: they exist when it is committed, and do
/// not when it is rolled back.
///
/// Until then it holds the counters of the shards it pushes to, and others who push to these wait for it: push last, and commit
/// soon.
///
/// ```no_run
/// # async fn example(mill: sawmill::Sawmill, pool: sqlx::MySqlPool) -> Result<(), Box<dyn std::error::Error>> {
/// let email = mill.draft("emails", ["Thank you for the saw"]).await?;
/// let mut order = pool.begin().await?;
/// sqlx::query("INSERT INTO orders VALUES ('a saw')").execute(&mut *order).await?;
/// sawmill_mysql::push_within_sqlx(&mut order, &email).await?;
/// order.commit().await?;
/// email.announce();
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

/// Finishes the message of a handler within the transaction of sqlx in which the handler makes its own writes. False if it was finished
/// before, by an earlier run whose worker died or woke up late: then make no writes, roll back, and say that it is done. If
/// such a run is still in the middle of its transaction, this waits for its end.
///
/// For groups with [`Delivery::ExactlyOnce`](sawmill::Delivery::ExactlyOnce).
#[cfg(feature = "sqlx")]
pub async fn finish_within_sqlx(connection: &mut sqlx::MySqlConnection, message: &Context) -> Result<bool> {
    let added = run(connection, finish_statement(message)?).await?;
    message.finished();
    Ok(added > 0)
}

/// Runs one of our statements, and says how many rows it touched.
#[cfg(feature = "sqlx")]
async fn run(connection: &mut sqlx::MySqlConnection, sql: String) -> Result<u64> {
    let done = sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(connection).await;
    done.map(|done| done.rows_affected()).map_err(explain_sqlx)
}

/// As [`explain`](crate::error::explain) does it for our own driver. Nothing is committed before the user does: so nothing is uncertain.
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

/// For other drivers: the statements by which a draft is pushed, to be run one after the other within a transaction. Each
/// touches one row; one that touches none means that the topic is not there any more, and that the transaction must be rolled back.
pub fn push_statements(draft: &Draft) -> Result<Vec<String>> {
    let tables = draft.log::<Mysql>()?.tables();
    let topic = topic_id(draft.topic())?;
    // In ascending order, as everybody takes them, so that no two wait for one another.
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

/// For other drivers: the statement by which a message is finished, to be run within the handler's transaction. It adds one row, or,
/// if the message was finished before, none. Call [`Context::finished`] then.
pub fn finish_statement(message: &Context) -> Result<String> {
    let store: &Mysql = message.log()?;
    if !store.able().exactly_once {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "this is a Galera cluster, on which a commit may be undone after it was seen: exactly-once is not to be had",
        ));
    }
    // What else could go wrong than that the row is there, goes wrong nevertheless: its values fit.
    Ok(format!(
        "INSERT IGNORE INTO {} (id, reader) VALUES ({}, {})",
        store.tables().finished,
        id(message.id()),
        bytes(message.group().to_string().as_bytes())
    ))
}

/// How many rows are forgotten in one transaction.
const FORGOTTEN: u64 = 1_000;

/// Forgets some of what was finished long ago: longer than a worker may sleep and then go on. True if there may be more.
pub(crate) async fn forget(line: &mut Line, tables: &Tables) -> Result<bool, Failure> {
    let sql = Sql::new(format_args!(
        "DELETE FROM {} WHERE at < NOW() - INTERVAL 7 DAY ORDER BY at LIMIT {FORGOTTEN}",
        tables.finished
    ));
    Ok(line.write(&sql).await?.changed == FORGOTTEN)
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

/// Whatever the session says of backslashes and characters.
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
