//! Pushes and finishes messages within a transaction of the user's own.
//!
//! Each operation is one statement of plain text, so any driver can run it, including drivers that this
//! module does not know.

use std::sync::atomic::{AtomicI64, Ordering};

use sawmill_engine::storage::{Draft, Finishable, Record, downcast_log};
use sawmill_engine::{Error, ErrorKind, Result};
use tokio_postgres::Transaction;

#[cfg(feature = "sqlx")]
use crate::error::explain_state;
use crate::error::{Effect, Failure};
use crate::ledger::{hexadecimal, quoted};
use crate::log::append::{COLUMNS, xid};
use crate::log::row::{from_shard, from_time};
use crate::log::topics::{aside_table, message_tables, topic_id};
use crate::store::Postgres;

/// Pushes messages within a transaction on the database that Sawmill uses. They exist once it commits, and
/// never if it rolls back. Nobody waits for the transaction, however long it takes.
///
/// ```no_run
/// # async fn example(mill: sawmill::Sawmill, client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let email = mill.draft("emails", ["Thank you for the saw"]).await?;
/// let order = client.transaction().await?;
/// order.execute("INSERT INTO orders VALUES ('a saw')", &[]).await?;
/// sawmill_postgres::push_within(&order, &email).await?;
/// order.commit().await?;
/// email.notify();
/// # Ok(()) }
/// ```
pub async fn push_within(transaction: &Transaction<'_>, draft: &Draft) -> Result<()> {
    match push_statement(draft).await? {
        Some(sql) => transaction.batch_execute(&sql).await.map_err(explain),
        None => Ok(()),
    }
}

/// Finishes a handler's message within the transaction of the handler's own writes. Returns false if an
/// earlier run finished it, whose worker died or woke up late: then make no writes, roll back, and report
/// success. Waits for the end of such a run if its transaction is still open.
///
/// For groups with `Delivery::ExactlyOnce`.
pub async fn finish_within(transaction: &Transaction<'_>, message: &impl Finishable) -> Result<bool> {
    let sql = finish_statement(message)?;
    let added = transaction.execute_typed(&sql, &[]).await.map_err(explain)?;
    message.finished();
    Ok(added > 0)
}

/// [`push_within`] for sqlx: `push_within_sqlx(&mut *transaction, &draft)`.
#[cfg(feature = "sqlx")]
pub async fn push_within_sqlx(connection: &mut sqlx::PgConnection, draft: &Draft) -> Result<()> {
    match push_statement(draft).await? {
        Some(sql) => run(connection, sql).await.map(|_| ()),
        None => Ok(()),
    }
}

/// [`finish_within`] for sqlx: `finish_within_sqlx(&mut *transaction, &message)`.
#[cfg(feature = "sqlx")]
pub async fn finish_within_sqlx(
    connection: &mut sqlx::PgConnection,
    message: &impl Finishable,
) -> Result<bool> {
    let added = run(connection, finish_statement(message)?).await?;
    message.finished();
    Ok(added > 0)
}

/// Runs one of our statements. Returns the number of rows that it added.
#[cfg(feature = "sqlx")]
async fn run(connection: &mut sqlx::PgConnection, sql: String) -> Result<u64> {
    // Safe: all foreign values in the statement are hexadecimal digits or numbers.
    let done = sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(connection).await;
    done.map(|done| done.rows_affected()).map_err(explain_sqlx)
}

/// Does what [`explain`] does for our own driver.
#[cfg(feature = "sqlx")]
fn explain_sqlx(error: sqlx::Error) -> Error {
    use tokio_postgres::error::SqlState;
    let code = error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned());
    let explained = match (code.as_deref(), error.as_database_error()) {
        (Some(code), Some(error)) if !code.starts_with("08") => {
            let state = SqlState::from_code(code);
            if state == SqlState::UNDEFINED_TABLE {
                missing_tables()
            } else {
                explain_state(&state, &format!("{} [{code}]", error.message()))
            }
        }
        _ => Error::new(
            ErrorKind::Unavailable,
            "nothing was written within the transaction, which must be rolled back",
        ),
    };
    explained.caused_by(error)
}

/// Returns the statement that pushes a draft, for other drivers. Run it within a transaction. `None` if the
/// draft is empty.
pub async fn push_statement(draft: &Draft) -> Result<Option<String>> {
    let (store, topic): (&Postgres, _) = (draft.log()?, draft.topic());
    let (schema, id) = (store.schema(), topic_id(topic)?);
    let current = store.current_table(topic).await?;
    let is_later = |record: &&Record| record.message.due.is_some_and(|due| due > draft.now());
    let (later, ready): (Vec<&Record>, Vec<&Record>) = draft.records().iter().partition(is_later);
    let ready = (!ready.is_empty()).then(|| {
        let table = &message_tables(schema, id)[current];
        format!(
            "INSERT INTO {table} (xid, n, {COLUMNS}) SELECT {}, * FROM (VALUES {}) AS v",
            xid(schema),
            rows(&ready, |record| format!("{}::int8, {}", next_number(), values(record)))
        )
    });
    let later = (!later.is_empty()).then(|| {
        let table = aside_table(schema, id);
        format!("INSERT INTO {table} ({COLUMNS}) VALUES {}", rows(&later, values))
    });
    Ok(match (ready, later) {
        (Some(ready), Some(later)) => Some(format!("WITH ready AS ({ready}) {later}")),
        (one, other) => one.or(other),
    })
}

/// Returns the statement that finishes a message, for other drivers. Run it within the handler's transaction.
/// It adds one row, or none if the message was finished before. Call [`Finishable::finished`] afterwards.
pub fn finish_statement(message: &impl Finishable) -> Result<String> {
    let schema = downcast_log::<Postgres>(message.log())?.schema();
    let (id, group) = (uuid(message.id()), quoted(&message.group().to_string()));
    Ok(format!("INSERT INTO {schema}.finished (id, reader) VALUES ({id}, {group}) ON CONFLICT DO NOTHING"))
}

impl Postgres {
    /// Deletes records of messages that were finished longer ago than a worker may sleep and then continue.
    pub(crate) async fn forget_finished(&self) -> Result<()> {
        let sql = format!("DELETE FROM {}.finished WHERE at < now() - interval '7 days'", self.schema());
        self.query(Effect::Writes, &sql, &[]).await.map(|_| ())
    }
}

/// Numbers for messages within one transaction. Each number is used once because a transaction may push
/// several drafts.
fn next_number() -> i64 {
    static NEXT: AtomicI64 = AtomicI64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn rows(records: &[&Record], row: impl Fn(&Record) -> String) -> String {
    let rows: Vec<String> = records.iter().map(|record| format!("({})", row(record))).collect();
    rows.join(", ")
}

/// The values of a record's columns.
fn values(record: &Record) -> String {
    let message = &record.message;
    let headers = (!message.headers.is_empty()).then(|| message.headers.encode());
    format!(
        "{}::int2, {}, {}::int8, {}::int8, {}, {}, {}, {}",
        from_shard(record.shard),
        uuid(message.id),
        from_time(message.created),
        message.due.map_or("NULL".to_owned(), |due| from_time(due).to_string()),
        record.repeatable,
        bytes(message.key.as_deref()),
        bytes(headers.as_deref()),
        bytes(Some(&message.payload))
    )
}

fn uuid(id: sawmill_engine::model::MessageId) -> String {
    format!("'{:032x}'::uuid", id.as_u128())
}

fn bytes(bytes: Option<&[u8]>) -> String {
    // Hexadecimal does not depend on the session's setting for backslashes.
    bytes.map_or("NULL::bytea".to_owned(), |bytes| format!("decode('{}', 'hex')", hexadecimal(bytes)))
}

/// Nothing is committed before the user commits, so the outcome is never unknown.
fn explain(error: tokio_postgres::Error) -> Error {
    let failure = Failure::from(error);
    if failure.is_missing() { missing_tables() } else { failure.explain(Effect::Reads) }
}

fn missing_tables() -> Error {
    Error::new(
        ErrorKind::NotFound,
        "the topic's tables are not there: it was deleted, or the transaction is on another database than Sawmill",
    )
}
