//! Creates the tables and migrates them step by step while other processes use them.

use std::time::Duration;

use sawmill_engine::{Error, ErrorKind, Result};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, IsolationLevel, Transaction};

use crate::connection::pool::Pool;
use crate::error::{Effect, Failure};

/// Transaction ids of 64 bits, and snapshots of them, exist since PostgreSQL 13.
const OLDEST_SERVER: i32 = 130_000;

/// The first half of the keys of our advisory locks: "SawM". The second half is a hash.
pub(crate) const LOCK_CLASS: i32 = 0x5361_774d;

/// The migration steps: each one brings a schema from one version to the next. New steps are added at the
/// end; existing steps never change.
///
/// Workers of the previous version keep running during and after a step, so everything that they read and
/// write must keep working. A step may therefore add tables, and columns with a default. Anything that is no
/// longer needed is removed one version later. `{schema}` in a step stands for the schema: functions need it
/// because they run with any search path.
pub(crate) const STEPS: &[&str] = &[
    r#"
    -- shift: what is added to the server's transaction numbers. server: which server they are from.
    CREATE TABLE meta (version int4 NOT NULL, shift int8 NOT NULL, server text NOT NULL);
    INSERT INTO meta VALUES (0, 0, '');
    -- current: which of the topic's tables of messages is written to.
    CREATE TABLE topic (
        id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name text COLLATE "C" NOT NULL UNIQUE,
        shards int4 NOT NULL,
        retention_ms int8 NOT NULL,
        drops_unread bool NOT NULL,
        current int4 NOT NULL
    );
    -- The ledger. An entry is the newest of its versions.
    CREATE TABLE entry (key text COLLATE "C" NOT NULL, version int8 NOT NULL, value bytea NOT NULL)
        WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
    CREATE UNIQUE INDEX entry_newest ON entry (key, version DESC);
"#,
    r#"
    -- Messages that a handler has finished within a transaction of its own, and the group that it is of.
    CREATE TABLE finished (
        id uuid NOT NULL,
        reader text COLLATE "C" NOT NULL,
        at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (id, reader)
    );
    CREATE INDEX finished_at ON finished USING brin (at);
"#,
    r#"
    -- Changes an entry, if its version is the one that is expected; says whether it did. A session keeps the plans of a function,
    -- and to plan these statements takes longer than to run them.
    --
    -- First the entry is locked, and then looked at. A statement sees what was committed before it began, so locking must be
    -- one of its own: otherwise a writer that was held up could put a version where another one was dropped long ago.
    CREATE FUNCTION change(
        lock_class int4, lock_name text, lasting text, name text, expected int8, next int8, content bytea, old int8
    ) RETURNS bool LANGUAGE plpgsql AS $sawmill$
    BEGIN
        PERFORM set_config('synchronous_commit', lasting, true), set_config('lock_timeout', '10s', true);
        PERFORM pg_advisory_xact_lock(lock_class, hashtext(lock_name));
        IF expected <> coalesce((SELECT e.version FROM {schema}.entry AS e WHERE e.key = name
                                 ORDER BY e.version DESC LIMIT 1), 0) THEN
            RETURN false;
        END IF;
        IF content IS NULL THEN
            DELETE FROM {schema}.entry AS e WHERE e.key = name;
            RETURN true;
        END IF;
        INSERT INTO {schema}.entry (key, version, value) VALUES (name, next, content);
        IF old IS NOT NULL THEN
            DELETE FROM {schema}.entry AS e WHERE e.key = name AND e.version > old AND e.version <= expected;
        END IF;
        RETURN true;
    END $sawmill$;
"#,
    r#"
    -- No message that was dropped has a higher number: positions go on to speak of the numbers of those that are gone. Not in
    -- the table meta, which every push reads, and where old versions of a row would be in the way.
    CREATE TABLE dropped (newest int8 NOT NULL);
    -- What was dropped before there was this note has a number that this server has given out.
    INSERT INTO dropped SELECT pg_snapshot_xmax(pg_current_snapshot())::text::int8 - 1 + shift FROM meta;
"#,
    r#"
    -- While somebody holds a transaction open, nearly all rows of the ledger are old versions that cannot be cleaned up. The planner, which
    -- counts the others, thinks that an entry has a row or two and may as well be fetched whole: so it is told to go by the index, in order, and
    -- to stop at the first.
    ALTER FUNCTION change(int4, text, text, text, int8, int8, bytea, int8) SET enable_bitmapscan = off;
    ALTER FUNCTION change(int4, text, text, text, int8, int8, bytea, int8) SET enable_seqscan = off;
    ALTER FUNCTION change(int4, text, text, text, int8, int8, bytea, int8) SET enable_sort = off;
    -- An entry.
    CREATE FUNCTION newest(name text) RETURNS TABLE (c0 text, c1 int8, c2 bytea)
        LANGUAGE plpgsql STABLE SET enable_bitmapscan = off SET enable_seqscan = off SET enable_sort = off AS $sawmill$
    BEGIN
        RETURN QUERY SELECT e.key, e.version, e.value FROM {schema}.entry AS e WHERE e.key = name
            ORDER BY e.version DESC LIMIT 1;
    END $sawmill$;
    -- All entries from one key to another, that one excluded: from key to key, past all old versions.
    CREATE FUNCTION newest_between(first text, last text) RETURNS TABLE (c0 text, c1 int8, c2 bytea)
        LANGUAGE plpgsql STABLE SET enable_bitmapscan = off SET enable_seqscan = off SET enable_sort = off AS $sawmill$
    BEGIN
        RETURN QUERY WITH RECURSIVE newest AS (
            (SELECT e.key, e.version, e.value FROM {schema}.entry AS e WHERE e.key >= first AND e.key < last
             ORDER BY e.key, e.version DESC LIMIT 1)
            UNION ALL
            SELECT next.* FROM newest AS n CROSS JOIN LATERAL (
                SELECT e.key, e.version, e.value FROM {schema}.entry AS e WHERE e.key > n.key AND e.key < last
                ORDER BY e.key, e.version DESC LIMIT 1) AS next)
        SELECT n.key, n.version, n.value FROM newest AS n;
    END $sawmill$;
"#,
];

/// The first version that has the table `dropped`.
const DROPPED_TABLE_VERSION: usize = 4;

/// Returns the schema of a namespace as a quoted identifier.
pub(crate) fn name(namespace: &str) -> String {
    // A namespace contains no quotes.
    if namespace == "default" { "\"sawmill\"".to_owned() } else { format!("\"sawmill_{namespace}\"") }
}

/// A statement that waits for a lock blocks all others on that table, so it gives up soon and is tried again.
const SET_LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '500ms'";
/// How often a migration is tried. Other processes can work during the pause between two tries.
const TRIES: usize = 10;
const PAUSE: Duration = Duration::from_millis(300);

/// Creates the schema and runs all missing steps. Takes a lock only if there is something to do, so opening
/// an up-to-date store never waits.
pub(crate) async fn prepare(pool: &Pool, schema: &str, steps: &[&str]) -> Result<()> {
    let mut tries = 1;
    loop {
        let lease = pool.lease().await?;
        match lease.bounded(async |client| prepare_with(client, schema, steps).await).await {
            Ok(()) => return Ok(()),
            Err(failure) if failure.is_locked() && tries < TRIES => tries += 1,
            Err(failure) => return Err(failure.explain(Effect::Reads)),
        }
        pool.env().sleep(pool.env().rng().jitter(PAUSE)).await;
    }
}

async fn prepare_with(client: &mut Client, schema: &str, steps: &[&str]) -> Result<(), Failure> {
    let version = client.query_typed_one("SELECT current_setting('server_version_num')::int4", &[]).await?;
    check_server(version.try_get(0)?)?;
    let server = server(client).await?;
    if found(client, schema, &server, steps.len()).await?
        == Some(State { version: steps.len(), moved: false })
    {
        return Ok(());
    }
    let transaction = begin(client).await?;
    lock(&transaction, schema).await?;
    transaction.batch_execute(SET_LOCK_TIMEOUT).await?;
    // Another process may have migrated while this one waited for the lock.
    let state = found(transaction.client(), schema, &server, steps.len()).await?;
    let version = state.as_ref().map_or(0, |state| state.version);
    if state.is_none() && !schema_exists(transaction.client(), schema).await? {
        transaction.batch_execute(&format!("CREATE SCHEMA IF NOT EXISTS {schema}")).await?;
    }
    if version < steps.len() {
        transaction.batch_execute(&format!("SET LOCAL search_path TO {schema}, pg_catalog")).await?;
        for step in &steps[version..] {
            transaction.batch_execute(&step.replace("{schema}", schema)).await?;
        }
        transaction.batch_execute(&format!("UPDATE meta SET version = {}", steps.len())).await?;
    }
    if state.is_none() {
        let sql = format!("UPDATE {schema}.meta SET server = $1");
        transaction.query_typed(&sql, &[(&server, Type::TEXT)]).await?;
    } else if state.is_some_and(|state| state.moved) {
        repair(&transaction, schema, &server, steps.len()).await?;
    }
    transaction.commit().await?;
    Ok(())
}

/// Begins a transaction in which each statement sees everything that was committed before it, whatever the
/// server's default isolation level is. The idle timeout releases the locks of a client that stops or
/// disappears in the middle.
pub(crate) async fn begin(client: &mut Client) -> Result<Transaction<'_>, Failure> {
    let transaction =
        client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start().await?;
    transaction.batch_execute("SET LOCAL idle_in_transaction_session_timeout = '10s'").await?;
    Ok(transaction)
}

/// Takes the lock for creating and changing tables. It is held until the transaction ends.
pub(crate) async fn lock(transaction: &Transaction<'_>, schema: &str) -> Result<(), Failure> {
    let sql = "SELECT pg_advisory_xact_lock($1, hashtext($2))";
    transaction.query_typed(sql, &[(&LOCK_CLASS, Type::INT4), (&schema, Type::TEXT)]).await?;
    Ok(())
}

/// Returns the system identifier of the server, or an empty string if this user may not read it.
async fn server(client: &Client) -> Result<String, Failure> {
    let sql = "SELECT has_function_privilege('pg_catalog.pg_control_system()', 'execute')";
    if !client.query_typed_one(sql, &[]).await?.try_get::<_, bool>(0)? {
        return Ok(String::new());
    }
    let sql = "SELECT system_identifier::text FROM pg_catalog.pg_control_system()";
    Ok(client.query_typed_one(sql, &[]).await?.try_get(0)?)
}

#[derive(Debug, PartialEq, Eq)]
struct State {
    version: usize,
    /// The tables come from another server, which had other transaction ids.
    moved: bool,
}

/// Checks for the schema first because `CREATE SCHEMA IF NOT EXISTS` needs the privilege to create even if
/// the schema exists.
async fn schema_exists(client: &Client, schema: &str) -> Result<bool, Failure> {
    let sql = "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1)";
    let row = client.query_typed_one(sql, &[(&schema.trim_matches('"'), Type::TEXT)]).await?;
    Ok(row.try_get(0)?)
}

/// Returns the state of the schema, or `None` if it has no tables.
async fn found(client: &Client, schema: &str, server: &str, known: usize) -> Result<Option<State>, Failure> {
    let meta = format!("{schema}.meta");
    // `to_regclass` would not do: within a transaction it may have cached that there was no table.
    let sql =
        "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = 'meta')";
    let row = client.query_typed_one(sql, &[(&schema.trim_matches('"'), Type::TEXT)]).await?;
    if !row.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let sql = format!(
        "SELECT version, server, pg_snapshot_xmax(pg_current_snapshot())::text::int8 + shift FROM {meta}"
    );
    let row = client.query_typed_one(&sql, &[]).await?;
    let version = known_version(schema, row.try_get(0)?, known)?;
    let (origin, now): (&str, i64) = (row.try_get(1)?, row.try_get(2)?);
    let moved = match (origin, server) {
        // The old or the current server is unknown. Messages with transaction ids from the future show that
        // it is another one.
        ("", _) | (_, "") => newest(client, schema, version).await? >= now,
        (origin, server) => origin != server,
    };
    Ok(Some(State { version, moved }))
}

/// Checks that this program knows the version of the tables.
fn known_version(schema: &str, version: i32, known: usize) -> Result<usize> {
    let fits = usize::try_from(version).ok().filter(|version| *version <= known);
    fits.ok_or_else(|| {
        Error::new(
            ErrorKind::Corrupt,
            format!(
                "the tables in the schema {schema} have version {version}, and this program knows up to {known}: use a newer program"
            ),
        )
    })
}

/// Fails if a newer program has migrated the tables since this store was opened. Called under the lock before
/// creating tables.
pub(crate) async fn check(transaction: &Transaction<'_>, schema: &str, known: usize) -> Result<(), Failure> {
    let row = transaction.query_typed_one(&format!("SELECT version FROM {schema}.meta"), &[]).await?;
    known_version(schema, row.try_get(0)?, known)?;
    Ok(())
}

/// Records the highest transaction id of the messages that are being dropped.
pub(crate) async fn remember_newest(
    transaction: &Transaction<'_>,
    schema: &str,
    newest: i64,
) -> Result<(), Failure> {
    let sql = format!("UPDATE {schema}.dropped SET newest = $1 WHERE newest < $1");
    transaction.execute_typed(&sql, &[(&newest, Type::INT8)]).await?;
    Ok(())
}

/// Returns the highest transaction id of any message, including dropped ones.
async fn newest(client: &Client, schema: &str, version: usize) -> Result<i64, Failure> {
    let mut newest = 0;
    if version >= DROPPED_TABLE_VERSION {
        let sql = format!("SELECT coalesce(max(newest), 0) FROM {schema}.dropped");
        newest = client.query_typed_one(&sql, &[]).await?.try_get(0)?;
    }
    for row in client.query_typed(&format!("SELECT id, shards FROM {schema}.topic"), &[]).await? {
        let (id, shards): (i64, i32) = (row.try_get(0)?, row.try_get(1)?);
        for table in crate::log::topics::message_tables(schema, id) {
            let sql = format!(
                "SELECT max(last.xid) FROM generate_series(0, $1 - 1) AS s CROSS JOIN LATERAL
                     (SELECT xid FROM {table} WHERE shard = s ORDER BY xid DESC, n DESC LIMIT 1) AS last"
            );
            let row = client.query_typed_one(&sql, &[(&shards, Type::INT4)]).await?;
            newest = newest.max(row.try_get::<_, Option<i64>>(0)?.unwrap_or(0));
        }
    }
    Ok(newest)
}

fn check_server(version: i32) -> Result<()> {
    if version >= OLDEST_SERVER {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        format!("the server is PostgreSQL {}, and 13 or newer is needed", version / 10_000),
    ))
}

/// Handles a restore on another server: messages carry transaction ids that this server has not reached. From
/// now on its ids are shifted past them, so new messages sort after old ones and positions keep their
/// meaning.
async fn repair(
    transaction: &Transaction<'_>,
    schema: &str,
    server: &str,
    version: usize,
) -> Result<(), Failure> {
    let last = newest(transaction.client(), schema, version).await?;
    let sql = format!(
        "UPDATE {schema}.meta SET server = $2,
         shift = greatest(shift, $1 + 1 - pg_snapshot_xmin(pg_current_snapshot())::text::int8)"
    );
    transaction.query_typed(&sql, &[(&last, Type::INT8), (&server, Type::TEXT)]).await?;
    tracing::warn!(
        schema,
        "the tables come from another server: transaction numbers are shifted past theirs"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_a_schema() {
        assert_eq!(name("default"), "\"sawmill\"");
        assert_eq!(name("a.b-C"), "\"sawmill_a.b-C\"");
    }

    #[test]
    fn a_server_that_is_too_old_is_refused_with_the_version_that_is_needed() {
        assert!(check_server(130_000).is_ok());
        let error = check_server(120_017).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("PostgreSQL 12, and 13"), "{error}");
    }
}
