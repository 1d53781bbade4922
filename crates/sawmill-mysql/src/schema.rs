//! The tables: their names, and how they are created and migrated while workers run.
//!
//! Each namespace has its own tables. Only one process at a time migrates them: it locks the row of the table
//! `meta` that holds their version. DDL commits implicitly, so it runs on a second connection while the first
//! one holds the lock. If a process dies in between, a step is left half done, so each statement of a step
//! must be repeatable.

use sawmill_engine::storage::Namespace;
use sawmill_engine::{Error, ErrorKind};

use crate::connection::connections::{Connection, Connections};
use crate::connection::retry::Retry;
use crate::connection::sql::Sql;
use crate::error::{Failure, code, corrupt};
use crate::log::row::{field, only};

/// The quoted names of a namespace's tables.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) namespace: String,
    pub(crate) meta: String,
    /// Topics.
    pub(crate) topic: String,
    /// The counters of each topic's shards.
    pub(crate) shard: String,
    /// Readable messages.
    pub(crate) message: String,
    /// Delayed messages.
    pub(crate) aside: String,
    /// The ids of repeatable messages.
    pub(crate) once: String,
    /// Deleted topics that may have messages left.
    pub(crate) leftover: String,
    /// The ledger's entries.
    pub(crate) entry: String,
    /// Messages that a handler has finished within its own transaction.
    pub(crate) finished: String,
    /// The number of the server's incarnation, on disk and in its memory.
    pub(crate) server: String,
    pub(crate) memory: String,
}

impl Tables {
    pub(crate) fn of(namespace: &Namespace) -> Self {
        let tag = tag(namespace.as_str());
        let table = |kind: &str| format!("`sawmill_{tag}_{kind}`");
        Self {
            namespace: namespace.as_str().to_owned(),
            meta: table("meta"),
            topic: table("topic"),
            shard: table("shard"),
            message: table("message"),
            aside: table("aside"),
            once: table("once"),
            leftover: table("leftover"),
            entry: table("entry"),
            finished: table("finished"),
            server: table("server"),
            memory: table("memory"),
        }
    }
}

/// Returns the part of a table name that stands for a namespace. Table names are short, and case-insensitive
/// on some systems. So a namespace that is not a short string of lower-case letters and digits gets a hash
/// that makes it unique.
fn tag(namespace: &str) -> String {
    const LONGEST: usize = 24;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if namespace.len() <= LONGEST && namespace.chars().all(plain) {
        return namespace.to_owned();
    }
    let readable: String = namespace
        .chars()
        .take(LONGEST)
        .map(|c| if plain(c.to_ascii_lowercase()) { c.to_ascii_lowercase() } else { '_' })
        .collect();
    // FNV-1a. It must never change.
    let number = namespace.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{readable}_{number:016x}")
}

/// The statements that lead from one version to the next. Programs of the previous version keep using the
/// tables during and after a step, so a step only adds, and added columns have a default.
pub(crate) type Step = fn(&Tables) -> Vec<String>;

/// All steps that this program knows. The version of the tables is the number of steps taken.
pub(crate) const STEPS: &[Step] = &[first, second, third];

/// Messages are stored in the order in which they are read. Ids are looked up only for repeatable messages,
/// so those have a separate table.
fn first(tables: &Tables) -> Vec<String> {
    let make = |name: &str, columns: &str| format!("CREATE TABLE IF NOT EXISTS {name} ({columns}) {OPTIONS}");
    let message = "id BINARY(16) NOT NULL, created_ms BIGINT UNSIGNED NOT NULL, due_ms BIGINT UNSIGNED NULL,
         repeatable TINYINT UNSIGNED NOT NULL, size INT UNSIGNED NOT NULL, msg_key VARBINARY(1024) NULL,
         headers MEDIUMBLOB NULL, payload LONGBLOB NOT NULL";
    vec![
        make(
            &tables.topic,
            "id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, name VARBINARY(255) NOT NULL UNIQUE,
             shards SMALLINT UNSIGNED NOT NULL, retention_ms BIGINT UNSIGNED NOT NULL,
             drops_unread TINYINT UNSIGNED NOT NULL",
        ),
        make(
            &tables.shard,
            "topic BIGINT UNSIGNED NOT NULL, number SMALLINT UNSIGNED NOT NULL, last BIGINT UNSIGNED NOT NULL,
             kept BIGINT UNSIGNED NOT NULL, largest BIGINT UNSIGNED NOT NULL, PRIMARY KEY (topic, number)",
        ),
        make(
            &tables.message,
            &format!(
                "topic BIGINT UNSIGNED NOT NULL, shard SMALLINT UNSIGNED NOT NULL, number BIGINT UNSIGNED NOT NULL,
                 {message}, PRIMARY KEY (topic, shard, number)"
            ),
        ),
        make(
            &tables.aside,
            &format!(
                "seq BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, topic BIGINT UNSIGNED NOT NULL,
                 shard SMALLINT UNSIGNED NOT NULL, {message}, KEY due (topic, due_ms, seq)"
            ),
        ),
        make(
            &tables.once,
            "topic BIGINT UNSIGNED NOT NULL, id BINARY(16) NOT NULL, token BIGINT UNSIGNED NOT NULL,
             PRIMARY KEY (topic, id)",
        ),
        make(&tables.leftover, "topic BIGINT UNSIGNED NOT NULL PRIMARY KEY"),
        make(
            &tables.entry,
            "name VARBINARY(512) NOT NULL PRIMARY KEY, version BIGINT UNSIGNED NOT NULL, value MEDIUMBLOB NOT NULL",
        ),
    ]
}

/// The server's incarnation: see [`incarnation`](crate::connection::incarnation).
fn second(tables: &Tables) -> Vec<String> {
    let columns = "id TINYINT UNSIGNED NOT NULL PRIMARY KEY, life BIGINT UNSIGNED NOT NULL";
    vec![
        format!("CREATE TABLE IF NOT EXISTS {} ({columns}) ENGINE=MEMORY", tables.memory),
        format!("CREATE TABLE IF NOT EXISTS {} ({columns}) {OPTIONS}", tables.server),
        format!("INSERT IGNORE INTO {} VALUES (1, 0)", tables.server),
    ]
}

/// Messages that a handler has finished within its own transaction, and the handler's group.
fn third(tables: &Tables) -> Vec<String> {
    let columns = "id BINARY(16) NOT NULL, reader VARBINARY(255) NOT NULL,
         at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (id, reader), KEY at (at)";
    vec![format!("CREATE TABLE IF NOT EXISTS {} ({columns}) {OPTIONS}", tables.finished)]
}

const OPTIONS: &str = "ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin";

/// Creates the tables or migrates them to the newest version, if necessary.
pub(crate) async fn prepare(
    connections: &Connections,
    tables: &Tables,
    steps: &[Step],
    retry: &mut Retry,
) -> Result<(), Error> {
    loop {
        let Err(failure) = prepare_once(connections, tables, steps).await else { return Ok(()) };
        retry.again(failure).await?;
    }
}

async fn prepare_once(connections: &Connections, tables: &Tables, steps: &[Step]) -> Result<(), Failure> {
    let mut connection = connections.take().await?;
    let version = version(&mut connection, tables).await?;
    check(tables, version.unwrap_or(0), steps)?;
    if version == Some(steps.len() as u32) {
        return Ok(());
    }
    // Both statements may be repeated, and need no lock.
    let mut make = Sql::new(format_args!(
        "CREATE TABLE IF NOT EXISTS {} (id TINYINT UNSIGNED NOT NULL PRIMARY KEY,
         namespace VARBINARY(64) NOT NULL, version INT UNSIGNED NOT NULL) {OPTIONS}",
        tables.meta
    ));
    make.then(format_args!("INSERT IGNORE INTO {} VALUES (1,", tables.meta));
    make.bytes(tables.namespace.as_bytes()).add(",0)");
    connection.ask(&make).await?;
    let done = migrate(&mut connection, connections, tables, steps).await;
    if done.is_err() {
        connection.roll_back().await;
    }
    done
}

/// Runs the missing steps.
async fn migrate(
    connection: &mut Connection,
    connections: &Connections,
    tables: &Tables,
    steps: &[Step],
) -> Result<(), Failure> {
    let mut hold = Sql::new("START TRANSACTION");
    hold.then(format_args!("SELECT version FROM {} WHERE id = 1 FOR UPDATE", tables.meta));
    let row = connection.begin(&mut hold).await?.pop().and_then(|answer| only(answer.rows));
    let mut row = row.ok_or_else(|| corrupt(format!("no row in table {}", tables.meta)))?;
    let version: u32 = field(&mut row, 0)?;
    check(tables, version, steps)?;
    let mut builder = connections.take().await?;
    for step in steps.iter().skip(version as usize) {
        for statement in step(tables) {
            builder.ask(&Sql::new(statement)).await?;
        }
    }
    let sql = Sql::new(format_args!("UPDATE {} SET version = {} WHERE id = 1", tables.meta, steps.len()));
    connection.commit(sql).await.map(|_| ())
}

/// Returns the version of the tables, known or not, or `None` if there are none.
pub(crate) async fn version(connection: &mut Connection, tables: &Tables) -> Result<Option<u32>, Failure> {
    let sql = Sql::new(format_args!("SELECT version, namespace FROM {} WHERE id = 1", tables.meta));
    let row = match connection.ask(&sql).await {
        Ok(mut answers) => answers.pop().and_then(|answer| only(answer.rows)),
        Err(failure) if failure.code() == Some(code::NO_SUCH_TABLE) => None,
        Err(failure) => return Err(failure),
    };
    let Some(mut row) = row else { return Ok(None) };
    let (version, namespace): (u32, Vec<u8>) = (field(&mut row, 0)?, field(&mut row, 1)?);
    if namespace != tables.namespace.as_bytes() {
        let other = String::from_utf8_lossy(&namespace).into_owned();
        return Err(corrupt(format!(
            "tables of namespace {other} where those of {} should be",
            tables.namespace
        )));
    }
    Ok(Some(version))
}

/// Refuses tables of an unknown version.
fn check(tables: &Tables, version: u32, steps: &[Step]) -> Result<(), Error> {
    if version as usize <= steps.len() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Corrupt,
        format!(
            "the tables of namespace {} have version {version}, and this program knows versions up to {}: use a newer program",
            tables.namespace,
            steps.len()
        ),
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn plain_namespaces_can_be_read_in_the_names_of_tables() {
        assert_eq!(Tables::of(&Namespace::default()).message, "`sawmill_default_message`");
        assert_eq!(tag("Team-A.x"), "team_a_x_0c153e5fbb09b7b0");
    }

    #[test]
    fn no_two_namespaces_share_tables_and_all_names_fit() {
        let long = "n".repeat(40);
        let names = ["a", "A", "a.b", "a-b", "a_b", "A_B", &long, &long[..39], &long[..25], &long[..24]];
        let tags: HashSet<String> = names.iter().map(|name| tag(name).to_lowercase()).collect();
        assert_eq!(tags.len(), names.len());
        for name in names {
            let tables = Tables::of(&name.parse().unwrap());
            assert!(tables.leftover.len() <= 64 + 2, "{}", tables.leftover);
        }
    }
}
