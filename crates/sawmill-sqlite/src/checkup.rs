//! Finds problems of a database that still works.

use rusqlite::Connection;
use sawmill_engine::Result;
use sawmill_engine::storage::Finding;

use crate::error::Failure;
use crate::{Sqlite, schema};

/// Write-ahead log pages that may wait for a checkpoint. The writer forces a checkpoint at a fifth of this.
const MANY_PAGES: i64 = 20_000;

impl Sqlite {
    pub(crate) async fn find_problems(&self) -> Result<Vec<Finding>> {
        let path = self.path().to_owned();
        // Not a light read: `quick_check` takes long on a large file.
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
                let pending = pending_pages(&schema::connect(&path)?)?;
                if pending > MANY_PAGES {
                    findings.push(Finding::new(
                        "held-transaction",
                        format!("a long read transaction on {place} keeps its write-ahead log growing"),
                        "find the process that has the file open (fuser) and forgot to end its transaction",
                    ));
                }
                Ok(findings)
            })
            .await
    }
}

/// Returns the log pages that remain after a checkpoint as far as the readers allow.
fn pending_pages(connection: &Connection) -> Result<i64, Failure> {
    let pages = |row: &rusqlite::Row<'_>| Ok(row.get::<_, i64>(1)? - row.get::<_, i64>(2)?);
    Ok(connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], pages)?)
}
