//! The lives of a server. InnoDB shows what was committed before it is on disk: what somebody has read may be gone after a
//! crash, and its number and its version be given out again.
//!
//! A message that is gone matters to nobody: who pushed it was not told that it is there. But a worker that has read it would claim
//! its number, and so hide whatever is pushed under that number later. So nothing that was read in one life of a
//! server is acted upon in the next: the first to connect in a new life moves the versions of all entries, and every write
//! that expects an old one is refused. A connection does not outlive its server, so that each is looked at once.

use crate::connections::Line;
use crate::error::{Failure, corrupt};
use crate::row::{field, only};
use crate::schema::Tables;
use crate::sql::Sql;

/// Sees to it that this life of the server is known, before anything else is done on a new connection.
pub(crate) async fn begin(line: &mut Line, tables: &Tables, status: &str) -> Result<(), Failure> {
    // Both times are those at which the statement began, so that the difference is always the same.
    let sql = Sql::new(format_args!(
        "SELECT started, CAST(UNIX_TIMESTAMP() - (SELECT variable_value FROM {status} WHERE variable_name = 'UPTIME')
         AS UNSIGNED) FROM {} WHERE id = 1",
        tables.server
    ));
    let row = line.ask(&sql).await?.pop().and_then(|answer| only(answer.rows));
    let mut row = row.ok_or_else(|| corrupt(format!("no row in table {}", tables.server)))?;
    let (known, started): (u64, u64) = (field(&mut row, 0)?, field(&mut row, 1)?);
    if known == started {
        return Ok(());
    }
    let done = note(line, tables, started).await;
    line.settle(done).await
}

/// Moves all versions, unless somebody else has done it for this life.
async fn note(line: &mut Line, tables: &Tables, started: u64) -> Result<(), Failure> {
    let mut hold = Sql::new("START TRANSACTION");
    hold.then(format_args!("SELECT started FROM {} WHERE id = 1 FOR UPDATE", tables.server));
    let row = line.begin(&mut hold).await?.pop().and_then(|answer| only(answer.rows));
    let known: Option<u64> = row.map(|mut row| field(&mut row, 0)).transpose()?;
    if known == Some(started) {
        line.roll_back().await;
        return Ok(());
    }
    let mut sql = Sql::new(format_args!("UPDATE {} SET version = version + 1", tables.entry));
    sql.then(format_args!("UPDATE {} SET started = {started} WHERE id = 1", tables.server));
    line.commit(sql).await?;
    tracing::info!(
        namespace = tables.namespace,
        "the server was started anew; what was read before is read again"
    );
    Ok(())
}
