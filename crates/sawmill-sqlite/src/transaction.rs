//! Pushing and finishing messages within a user's own transaction on the same file.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, params};
use sawmill_engine::runtime::{Clock, SystemClock, Timestamp};
use sawmill_engine::storage::{Draft, Finishable, downcast_log};
use sawmill_engine::{Error, ErrorKind, Result};

use crate::Sqlite;
use crate::error::{Failure, explain};
use crate::log::append::append;
use crate::log::row::from_time;
use crate::threads::batch::Batch;

/// How long finished messages are remembered: longer than a suspended worker may take to resume.
const REMEMBERED: Duration = Duration::from_secs(7 * 24 * 3600);

/// Pushes messages within a transaction on the file that Sawmill has open. The file may also hold your own
/// tables. The messages exist once the transaction commits, and never if it rolls back.
///
/// While the transaction is open, nobody else can write to the file: keep it short. Begin it as `IMMEDIATE`,
/// so that it waits for other writers at the start, and set a `busy_timeout` on the connection. The
/// connection's `synchronous` setting decides how durable the commit is.
///
/// ```
/// use rusqlite::{Connection, TransactionBehavior};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("shop.db");
/// let mill = sawmill::Sawmill::open(&format!("sqlite:{}", path.display())).await?;
/// mill.create_topic("emails").await?;
/// let mut shop = Connection::open(&path)?;
/// shop.execute_batch("CREATE TABLE IF NOT EXISTS orders (what TEXT)")?;
///
/// let email = mill.draft("emails", ["Thank you for the saw"]).await?;
/// let order = shop.transaction_with_behavior(TransactionBehavior::Immediate)?;
/// order.execute("INSERT INTO orders VALUES ('a saw')", [])?;
/// sawmill_sqlite::push_within(&order, &email)?;
/// order.commit()?;
/// email.notify();
/// # assert_eq!(mill.admin().peek("emails", "default", 10).await?.len(), 1);
/// # Ok(()) }
/// ```
pub fn push_within(transaction: &Connection, draft: &Draft) -> Result<()> {
    let sqlite: &Sqlite = draft.log()?;
    check(transaction, sqlite)?;
    let namespace = sqlite.namespace();
    let mut batch = Batch::new(transaction, &namespace);
    append(&mut batch, draft.topic(), draft.now(), draft.records())?;
    batch.finish().map_err(|error| explain(&error))?;
    Ok(())
}

/// Finishes the message of a handler within the transaction of the handler's own writes. Returns false if an
/// earlier run, whose worker died or was suspended, has already finished it: then write nothing, roll back
/// and report success.
///
/// For groups with `Delivery::ExactlyOnce`.
pub fn finish_within(transaction: &Connection, message: &impl Finishable) -> Result<bool> {
    let sqlite: &Sqlite = downcast_log(message.log())?;
    check(transaction, sqlite)?;
    let insert = || -> rusqlite::Result<usize> {
        transaction
            .prepare_cached(
                "INSERT INTO finished (namespace, id, reader, at_ms) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (namespace, id, reader) DO NOTHING",
            )?
            .execute(params![
                &*sqlite.namespace(),
                message.id().as_u128().to_be_bytes(),
                message.group().to_string(),
                from_time(SystemClock.wall())
            ])
    };
    let added = insert().map_err(|error| explain(&error))?;
    message.finished();
    Ok(added > 0)
}

/// Deletes the records of messages finished long ago.
pub(crate) fn forget(batch: &mut Batch<'_>, now: Timestamp) -> Result<(), Failure> {
    batch
        .connection
        .prepare_cached("DELETE FROM finished WHERE at_ms < ?1")?
        .execute(params![from_time(now - REMEMBERED)])?;
    Ok(())
}

fn check(transaction: &Connection, sqlite: &Sqlite) -> Result<()> {
    let invalid = |said: String| Err(Error::new(ErrorKind::Invalid, said));
    let theirs = transaction.path().map(Path::new).and_then(|path| path.canonicalize().ok());
    if theirs.as_deref() != Some(sqlite.path()) {
        return invalid(format!(
            "the transaction is on another file than Sawmill's: open {} for it",
            sqlite.path().display()
        ));
    }
    if transaction.is_autocommit() {
        return invalid("no transaction is open on this connection: begin one first".to_owned());
    }
    Ok(())
}
