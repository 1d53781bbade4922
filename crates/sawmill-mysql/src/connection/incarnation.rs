//! Detects restarts of the server. InnoDB shows commits before they are on disk. After a crash, data that
//! somebody has read may be lost, and its numbers and versions may be assigned again.
//!
//! A lost message itself does no harm: its push was never acknowledged. But a worker that has read it would
//! claim its number, and so hide the message that is pushed under that number later. So nothing that was read
//! in one incarnation of a server may be acted upon in the next. The first client to connect to a new
//! incarnation increases the versions of all entries, and every write that expects an old version is refused.
//! A connection does not outlive its server, so one check per connection is enough.
//!
//! Each incarnation has a number, stored in a table on disk and in a table that the server keeps only in
//! memory.

use crate::connection::connections::Connection;
use crate::connection::sql::Sql;
use crate::error::{Failure, corrupt};
use crate::log::row::{field, only};
use crate::schema::Tables;

/// The increase of the versions. It exceeds the number of changes that can be seen in one incarnation and be
/// lost with it, so no lost version is assigned again.
pub(crate) const STRIDE: u64 = 1 << 20;

/// Registers the incarnation of the server before anything else is done on a new connection. `new` is a
/// number that no incarnation has had.
pub(crate) async fn begin(connection: &mut Connection, tables: &Tables, new: u64) -> Result<(), Failure> {
    if is_known(connection, tables, "").await? {
        return Ok(());
    }
    let done = start_incarnation(connection, tables, new).await;
    connection.roll_back_on_error(done).await
}

/// Returns whether the numbers in memory and on disk are equal. `hold` can lock the row.
async fn is_known(connection: &mut Connection, tables: &Tables, hold: &str) -> Result<bool, Failure> {
    let mut sql = Sql::new(format_args!("SELECT life FROM {} WHERE id = 1 {hold}", tables.server));
    sql.then(format_args!("SELECT life FROM {} WHERE id = 1", tables.memory));
    let mut answers = connection.ask(&sql).await?;
    let mut next = || -> Result<Option<u64>, Failure> {
        let row = answers.pop().and_then(|answer| only(answer.rows));
        row.map(|mut row| field(&mut row, 0)).transpose()
    };
    let (memory, disk) = (next()?, next()?);
    let disk = disk.ok_or_else(|| corrupt(format!("no row in table {}", tables.server)))?;
    Ok(memory == Some(disk))
}

/// Increases all versions, unless another client has done so for this incarnation.
async fn start_incarnation(connection: &mut Connection, tables: &Tables, new: u64) -> Result<(), Failure> {
    connection.begin(&mut Sql::new("START TRANSACTION")).await?;
    if is_known(connection, tables, "FOR UPDATE").await? {
        connection.roll_back().await;
        return Ok(());
    }
    let mut sql = Sql::new(format_args!("UPDATE {} SET version = version + {STRIDE}", tables.entry));
    sql.then(format_args!("UPDATE {} SET life = {new} WHERE id = 1", tables.server));
    connection.commit(sql).await?;
    copy_to_memory(connection, tables).await?;
    tracing::info!(
        namespace = tables.namespace,
        "the server was started anew; what was read before is read again"
    );
    Ok(())
}

/// Copies the number on disk to the server's memory, but only after it was committed. If this client dies in
/// between, the next one repeats everything, which does no harm.
///
/// The row is locked, so concurrent clients never write a number that is no longer on disk. The memory table
/// is not transactional: servers that replicate by transaction ids refuse to change both kinds of tables in
/// one transaction.
async fn copy_to_memory(connection: &mut Connection, tables: &Tables) -> Result<(), Failure> {
    let mut hold = Sql::new("START TRANSACTION");
    hold.then(format_args!("SELECT life FROM {} WHERE id = 1 FOR UPDATE", tables.server));
    connection.begin(&mut hold).await?;
    let sql = Sql::new(format_args!(
        "REPLACE INTO {} SELECT id, life FROM {} WHERE id = 1",
        tables.memory, tables.server
    ));
    connection.commit(sql).await.map(|_| ())
}
