//! Within a transaction of the user's own: pushing, and finishing a message.
//!
//! Each is one statement as text, which any driver can run: so those that are not named here can be used as well.

use std::sync::atomic::{AtomicI64, Ordering};

use sawmill::log::Record;
use sawmill::{Context, Draft, Error, ErrorKind, Result};
use tokio_postgres::Transaction;

use crate::append::{COLUMNS, xid};
#[cfg(feature = "sqlx")]
use crate::error::explain_state;
use crate::error::{Effect, Failure};
use crate::ledger::{hexadecimal, quoted};
use crate::row::{from_shard, from_time};
use crate::store::Postgres;
use crate::topics::{aside_table, message_tables, topic_id};

/// Pushes messages within a transaction on the database that Sawmill has open: they exist when it is committed, and do not
/// when it is rolled back. However long that takes, nobody waits for it.
///
/// ```no_run
/// # async fn example(mill: sawmill::Sawmill, client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let email = mill.draft("emails", ["Thank you for the saw"]).await?;
/// let order = client.transaction().await?;
/// order.execute("INSERT INTO orders VALUES ('a saw')", &[]).await?;
/// sawmill_postgres::push_within(&order, &email).await?;
/// order.commit().await?;
/// email.announce();
/// # Ok(()) }
/// ```
pub async fn push_within(transaction: &Transaction<'_>, draft: &Draft) -> Result<()> {
    match push_statement(draft).await? {
        Some(sql) => transaction.batch_execute(&sql).await.map_err(explain),
        None => Ok(()),
    }
}

/// Finishes the message of a handler within the transaction in which the handler makes its own writes. False if it was finished
/// before, by an earlier run whose worker died or woke up late: then make no writes, roll back, and say that it is done. If
/// such a run is still in the middle of its transaction, this waits for its end.
///
/// For groups with [`Delivery::ExactlyOnce`](sawmill::Delivery::ExactlyOnce).
pub async fn finish_within(transaction: &Transaction<'_>, message: &Context) -> Result<bool> {
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
pub async fn finish_within_sqlx(connection: &mut sqlx::PgConnection, message: &Context) -> Result<bool> {
    let added = run(connection, finish_statement(message)?).await?;
    message.finished();
    Ok(added > 0)
}

/// Runs one of our statements, and says how many rows it added.
#[cfg(feature = "sqlx")]
async fn run(connection: &mut sqlx::PgConnection, sql: String) -> Result<u64> {
    // All that is not ours stands in it as hexadecimal digits, or as a number.
    let done = sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(connection).await;
    done.map(|done| done.rows_affected()).map_err(explain_sqlx)
}

/// As [`explain`] does it for our own driver.
#[cfg(feature = "sqlx")]
fn explain_sqlx(error: sqlx::Error) -> Error {
    use tokio_postgres::error::SqlState;
    let code = error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned());
    let explained = match (code.as_deref(), error.as_database_error()) {
        (Some(code), Some(error)) if !code.starts_with("08") => {
            let state = SqlState::from_code(code);
            if state == SqlState::UNDEFINED_TABLE {
                elsewhere()
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

/// For other drivers: the statement by which a draft is pushed, to be run within a transaction; none if the draft is empty.
pub async fn push_statement(draft: &Draft) -> Result<Option<String>> {
    let (store, topic): (&Postgres, _) = (draft.log()?, draft.topic());
    let (schema, id) = (store.schema(), topic_id(topic)?);
    let turn = store.turn(topic).await?;
    let is_later = |record: &&Record| record.message.due.is_some_and(|due| due > draft.now());
    let (later, ready): (Vec<&Record>, Vec<&Record>) = draft.records().iter().partition(is_later);
    let ready = (!ready.is_empty()).then(|| {
        let table = &message_tables(schema, id)[turn];
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

/// For other drivers: the statement by which a message is finished, to be run within the handler's transaction. It adds one row, or,
/// if the message was finished before, none. Call [`Context::finished`] then.
pub fn finish_statement(message: &Context) -> Result<String> {
    let schema = message.log::<Postgres>()?.schema();
    let (id, group) = (uuid(message.id()), quoted(&message.group().to_string()));
    Ok(format!("INSERT INTO {schema}.finished (id, reader) VALUES ({id}, {group}) ON CONFLICT DO NOTHING"))
}

impl Postgres {
    /// Forgets what was finished long ago: longer than a worker may sleep and then go on.
    pub(crate) async fn forget_finished(&self) -> Result<()> {
        let sql = format!("DELETE FROM {}.finished WHERE at < now() - interval '7 days'", self.schema());
        self.query(Effect::Writes, &sql, &[]).await.map(|_| ())
    }
}

/// The numbers of messages within one transaction, which may push several drafts: each number is given out once.
fn next_number() -> i64 {
    static NEXT: AtomicI64 = AtomicI64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn rows(records: &[&Record], row: impl Fn(&Record) -> String) -> String {
    let rows: Vec<String> = records.iter().map(|record| format!("({})", row(record))).collect();
    rows.join(", ")
}

/// What stands in the columns of a record.
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

fn uuid(id: sawmill::MessageId) -> String {
    format!("'{:032x}'::uuid", id.as_u128())
}

fn bytes(bytes: Option<&[u8]>) -> String {
    // Whatever the session says of backslashes.
    bytes.map_or("NULL::bytea".to_owned(), |bytes| format!("decode('{}', 'hex')", hexadecimal(bytes)))
}

/// Nothing is committed before the user does: so nothing is uncertain.
fn explain(error: tokio_postgres::Error) -> Error {
    let failure = Failure::from(error);
    if failure.is_missing() { elsewhere() } else { failure.explain(Effect::Reads) }
}

fn elsewhere() -> Error {
    Error::new(
        ErrorKind::NotFound,
        "the topic's tables are not there: it was deleted, or the transaction is on another database than Sawmill",
    )
}
