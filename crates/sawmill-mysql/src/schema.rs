//! The tables: how they are named, and how they are made and changed while workers run.
//!
//! Each namespace has tables of its own. Only one process at a time changes them: it holds the row of the table `meta` that says
//! which version they have. Changing tables commits, so it is done on a second connection while the first one
//! holds the row. A process that dies in between leaves a step half done: so each statement of a step may be repeated.

use sawmill::engine::Namespace;
use sawmill::{Error, ErrorKind};

use crate::connections::{Connections, Line};
use crate::error::{Failure, code, corrupt};
use crate::row::{field, only};
use crate::sql::Sql;
use crate::tries::Tries;

/// The names of a namespace's tables, as they are written in statements.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) namespace: String,
    pub(crate) meta: String,
    /// Topics.
    pub(crate) topic: String,
    /// The counters of each topic's shards.
    pub(crate) shard: String,
    /// Messages that are readable.
    pub(crate) message: String,
    /// Messages that are kept aside until they are due.
    pub(crate) aside: String,
    /// The ids of messages that may be appended again.
    pub(crate) once: String,
    /// Deleted topics of which there may be messages left.
    pub(crate) leftover: String,
    /// The ledger's entries.
    pub(crate) entry: String,
    /// Messages that a handler has finished within a transaction of its own.
    pub(crate) finished: String,
    /// The server's present life, on disk and in its memory.
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

/// A namespace as part of a table's name. Those names are short, and on some systems upper and lower case are the same in them: so what
/// is not plainly written in small letters and digits gets a number that tells it from others.
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
    // FNV-1a: it must never change.
    let number = namespace.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{readable}_{number:016x}")
}

/// The statements that lead from one version to the next. Programs that know only the versions before it go on working on the
/// tables while it is taken and afterwards: so a step adds, and what it adds has a default.
pub(crate) type Step = fn(&Tables) -> Vec<String>;

/// All steps that this program knows. The version of the tables is how many of them were taken.
pub(crate) const STEPS: &[Step] = &[first, second, third];

/// Messages lie in the order in which they are read. Ids are looked up only where they repeat, so they have a table of their own.
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

/// The server's present life: see [`life`](crate::life).
fn second(tables: &Tables) -> Vec<String> {
    let columns = "id TINYINT UNSIGNED NOT NULL PRIMARY KEY, life BIGINT UNSIGNED NOT NULL";
    vec![
        format!("CREATE TABLE IF NOT EXISTS {} ({columns}) ENGINE=MEMORY", tables.memory),
        format!("CREATE TABLE IF NOT EXISTS {} ({columns}) {OPTIONS}", tables.server),
        format!("INSERT IGNORE INTO {} VALUES (1, 0)", tables.server),
    ]
}

/// Messages that a handler has finished within a transaction of its own, and the group that it is of.
fn third(tables: &Tables) -> Vec<String> {
    let columns = "id BINARY(16) NOT NULL, reader VARBINARY(255) NOT NULL,
         at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (id, reader), KEY at (at)";
    vec![format!("CREATE TABLE IF NOT EXISTS {} ({columns}) {OPTIONS}", tables.finished)]
}

const OPTIONS: &str = "ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin";

/// Makes the tables, or brings them to the newest version, if that is not done yet.
pub(crate) async fn prepare(
    connections: &Connections,
    tables: &Tables,
    steps: &[Step],
    tries: &mut Tries,
) -> Result<(), Error> {
    loop {
        let Err(failure) = prepare_once(connections, tables, steps).await else { return Ok(()) };
        tries.again(failure).await?;
    }
}

async fn prepare_once(connections: &Connections, tables: &Tables, steps: &[Step]) -> Result<(), Failure> {
    let mut line = connections.take().await?;
    let version = version(&mut line, tables).await?;
    check(tables, version.unwrap_or(0), steps)?;
    if version == Some(steps.len() as u32) {
        return Ok(());
    }
    // Both may be repeated, and need not wait for the row.
    let mut make = Sql::new(format_args!(
        "CREATE TABLE IF NOT EXISTS {} (id TINYINT UNSIGNED NOT NULL PRIMARY KEY,
         namespace VARBINARY(64) NOT NULL, version INT UNSIGNED NOT NULL) {OPTIONS}",
        tables.meta
    ));
    make.then(format_args!("INSERT IGNORE INTO {} VALUES (1,", tables.meta));
    make.bytes(tables.namespace.as_bytes()).add(",0)");
    line.ask(&make).await?;
    let done = migrate(&mut line, connections, tables, steps).await;
    if done.is_err() {
        line.roll_back().await;
    }
    done
}

/// Takes the steps that are not taken yet.
async fn migrate(
    line: &mut Line,
    connections: &Connections,
    tables: &Tables,
    steps: &[Step],
) -> Result<(), Failure> {
    let mut hold = Sql::new("START TRANSACTION");
    hold.then(format_args!("SELECT version FROM {} WHERE id = 1 FOR UPDATE", tables.meta));
    let row = line.begin(&mut hold).await?.pop().and_then(|answer| only(answer.rows));
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
    line.commit(sql).await.map(|_| ())
}

/// The version of the tables, whatever it is; `None` if there are none.
pub(crate) async fn version(line: &mut Line, tables: &Tables) -> Result<Option<u32>, Failure> {
    let sql = Sql::new(format_args!("SELECT version, namespace FROM {} WHERE id = 1", tables.meta));
    let row = match line.ask(&sql).await {
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

/// Refuses tables of a version that is not known.
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
