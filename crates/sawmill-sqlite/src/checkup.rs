//! What may be wrong with a database that works all the same.

use rusqlite::Connection;
use sawmill::{Finding, Result};

use crate::error::Failure;
use crate::{Sqlite, schema};

/// How many pages of the write-ahead log may wait to be folded into the database: at a fifth of it the log is folded at once.
const MANY_PAGES: i64 = 20_000;

impl Sqlite {
    pub(crate) async fn troubles(&self) -> Result<Vec<Finding>> {
        let path = self.path().to_owned();
        // The damage of a large file takes its time to find.
        self.readers()
            .read(move |reader| {
                let place = path.display();
                let mut findings = Vec::new();
                let damage: String = reader.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
                if damage != "ok" {
                    findings.push(Finding::new(
                        "durability",
                        format!("{place} is damaged: {damage}"),
                        "stop all workers, keep a copy of the file, and restore it from a backup",
                    ));
                }
                let unfolded = unfolded_pages(&schema::connect(&path)?)?;
                if unfolded > MANY_PAGES {
                    findings.push(Finding::new(
                        "held-transaction",
                        format!("somebody reads {place} in one transaction for long, and its write-ahead log grows"),
                        "find the process that has the file open (fuser) and forgot to end its transaction",
                    ));
                }
                Ok(findings)
            })
            .await
    }
}

/// How much of the log is left after as much of it was folded into the database as its readers allow.
fn unfolded_pages(connection: &Connection) -> Result<i64, Failure> {
    let pages = |row: &rusqlite::Row<'_>| Ok(row.get::<_, i64>(1)? - row.get::<_, i64>(2)?);
    Ok(connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], pages)?)
}
