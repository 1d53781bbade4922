//! The lives of a server. InnoDB shows what was committed before it is on disk: what somebody has read may be gone after a
//! crash, and its number and its version be given out again.
//!
//! A message that is gone matters to nobody: who pushed it was not told that it is there. But a worker that has read it would claim
//! its number, and so hide whatever is pushed under that number later. So nothing that was read in one life of a
//! server is acted upon in the next: the first to connect in a new life moves the versions of all entries, and every write
//! that expects an old one is refused. A connection does not outlive its server, so that each is looked at once.
//!
//! A life has a number, which stands in a table on disk and in one that the server keeps in its memory alone.

use crate::connections::Line;
use crate::error::{Failure, corrupt};
use crate::row::{field, only};
use crate::schema::Tables;
use crate::sql::Sql;

/// By how much versions move: more than could be written and seen in one life and be lost with it, so that no version that was lost
/// is given out again.
pub(crate) const STRIDE: u64 = 1 << 20;

/// Sees to it that this life of the server is known, before anything else is done on a new connection. `new` is a number that no
/// life had.
pub(crate) async fn begin(line: &mut Line, tables: &Tables, new: u64) -> Result<(), Failure> {
    if is_known(line, tables, "").await? {
        return Ok(());
    }
    let done = note(line, tables, new).await;
    line.settle(done).await
}

/// Whether the memory of the server has the number that is on disk. `hold` may hold the row.
async fn is_known(line: &mut Line, tables: &Tables, hold: &str) -> Result<bool, Failure> {
    let mut sql = Sql::new(format_args!("SELECT life FROM {} WHERE id = 1 {hold}", tables.server));
    sql.then(format_args!("SELECT life FROM {} WHERE id = 1", tables.memory));
    let mut answers = line.ask(&sql).await?;
    let mut next = || -> Result<Option<u64>, Failure> {
        let row = answers.pop().and_then(|answer| only(answer.rows));
        row.map(|mut row| field(&mut row, 0)).transpose()
    };
    let (memory, disk) = (next()?, next()?);
    let disk = disk.ok_or_else(|| corrupt(format!("no row in table {}", tables.server)))?;
    Ok(memory == Some(disk))
}

/// Moves all versions, unless somebody else has done it for this life.
async fn note(line: &mut Line, tables: &Tables, new: u64) -> Result<(), Failure> {
    line.begin(&mut Sql::new("START TRANSACTION")).await?;
    if is_known(line, tables, "FOR UPDATE").await? {
        line.roll_back().await;
        return Ok(());
    }
    let mut sql = Sql::new(format_args!("UPDATE {} SET version = version + {STRIDE}", tables.entry));
    sql.then(format_args!("UPDATE {} SET life = {new} WHERE id = 1", tables.server));
    line.commit(sql).await?;
    remember(line, tables).await?;
    tracing::info!(
        namespace = tables.namespace,
        "the server was started anew; what was read before is read again"
    );
    Ok(())
}

/// Lets the memory of the server have the number that is on disk. Not before that one is committed: who dies in between leaves it to
/// the next to do it all again, which harms nobody.
///
/// The row is held, so that of several who do this at once none writes a number that is not on disk any more. The memory
/// is a table without transactions: servers that replicate by transaction ids refuse to change both kinds in one.
async fn remember(line: &mut Line, tables: &Tables) -> Result<(), Failure> {
    let mut hold = Sql::new("START TRANSACTION");
    hold.then(format_args!("SELECT life FROM {} WHERE id = 1 FOR UPDATE", tables.server));
    line.begin(&mut hold).await?;
    let sql = Sql::new(format_args!(
        "REPLACE INTO {} SELECT id, life FROM {} WHERE id = 1",
        tables.memory, tables.server
    ));
    line.commit(sql).await.map(|_| ())
}
