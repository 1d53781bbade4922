//! The tables: created and migrated step by step, while others work.

use std::time::Duration;

use sawmill::{Error, ErrorKind, Result};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, IsolationLevel, Transaction};

use crate::error::{Effect, Failure};
use crate::pool::Pool;

/// Transaction numbers of 64 bits, and snapshots of them, came with PostgreSQL 13.
const OLDEST_SERVER: i32 = 130_000;

/// The first half of the keys of our advisory locks: "SawM". The other half is made from the schema.
pub(crate) const LOCK_CLASS: i32 = 0x5361_774d;

/// What brings a schema from each version to the next. Steps are added at the end and never changed.
///
/// Workers of the version before run on while a step is made and afterwards: what it reads and writes must go on to work.
/// So a step may add tables, and columns that have a default; what is not needed any more goes a version later. `{schema}` in
/// a step is the schema, for functions, which are run with any search path.
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

/// The version since which the table `dropped` is there.
const KNOWS_DROPPED: usize = 4;

/// The schema of a namespace, as an identifier that can stand in a statement.
pub(crate) fn name(namespace: &str) -> String {
    // A namespace has no quotes in it.
    if namespace == "default" { "\"sawmill\"".to_owned() } else { format!("\"sawmill_{namespace}\"") }
}

/// Who waits for a lock lets nobody else use the table: better to give up soon, and to try again.
const LOCK_PATIENCE: &str = "SET LOCAL lock_timeout = '500ms'";
/// So often, with a pause in between in which others can work.
const TRIES: usize = 10;
const PAUSE: Duration = Duration::from_millis(300);

/// Sees to it that the schema is there and that all steps are taken. Only who finds something to do takes a lock, so that
/// opening a store waits for nobody.
pub(crate) async fn prepare(pool: &Pool, schema: &str, steps: &[&str]) -> Result<()> {
    let mut tries = 1;
    loop {
        let lease = pool.lease().await?;
        match lease.bounded(async |client| prepare_with(client, schema, steps).await).await {
            Ok(()) => return Ok(()),
            Err(failure) if failure.is_locked() && tries < TRIES => tries += 1,
            Err(failure) => return Err(failure.explain(Effect::Reads)),
        }
        pool.env().sleep(pool.env().dice().jitter(PAUSE)).await;
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
    transaction.batch_execute(LOCK_PATIENCE).await?;
    // Somebody else may have done it while we waited for the lock.
    let state = found(transaction.client(), schema, &server, steps.len()).await?;
    let version = state.as_ref().map_or(0, |state| state.version);
    if state.is_none() && !is_there(transaction.client(), schema).await? {
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

/// Begins a transaction whose statements each see what was committed before them, whatever the server's default is. Of one who is
/// stopped in the middle of it, or goes without a word, others need not wait for the locks.
pub(crate) async fn begin(client: &mut Client) -> Result<Transaction<'_>, Failure> {
    let transaction =
        client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start().await?;
    transaction.batch_execute("SET LOCAL idle_in_transaction_session_timeout = '10s'").await?;
    Ok(transaction)
}

/// Takes the lock under which tables are made and changed, until the transaction ends.
pub(crate) async fn lock(transaction: &Transaction<'_>, schema: &str) -> Result<(), Failure> {
    let sql = "SELECT pg_advisory_xact_lock($1, hashtext($2))";
    transaction.query_typed(sql, &[(&LOCK_CLASS, Type::INT4), (&schema, Type::TEXT)]).await?;
    Ok(())
}

/// Which server this is; empty if we may not know.
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
    /// The tables come from another server, whose transactions had other numbers.
    moved: bool,
}

/// Whether the schema is there. Who may not make schemas may not even say that one is to be made if there is none.
async fn is_there(client: &Client, schema: &str) -> Result<bool, Failure> {
    let sql = "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1)";
    let row = client.query_typed_one(sql, &[(&schema.trim_matches('"'), Type::TEXT)]).await?;
    Ok(row.try_get(0)?)
}

/// What is there; `None` if nothing is.
async fn found(client: &Client, schema: &str, server: &str, known: usize) -> Result<Option<State>, Failure> {
    let meta = format!("{schema}.meta");
    // Not `to_regclass`: within a transaction it may still remember that there was none.
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
        // Who it was then, or who it is now, is not known: but messages from the future tell.
        ("", _) | (_, "") => newest(client, schema, version).await? >= now,
        (origin, server) => origin != server,
    };
    Ok(Some(State { version, moved }))
}

/// The version that stands in a schema, if it is one that we know.
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

/// An error if somebody newer has changed the tables since we opened them. For whoever makes new ones, under the lock.
pub(crate) async fn check(transaction: &Transaction<'_>, schema: &str, known: usize) -> Result<(), Failure> {
    let row = transaction.query_typed_one(&format!("SELECT version FROM {schema}.meta"), &[]).await?;
    known_version(schema, row.try_get(0)?, known)?;
    Ok(())
}

/// Takes a note of the highest number of messages that are dropped now.
pub(crate) async fn remember_newest(
    transaction: &Transaction<'_>,
    schema: &str,
    newest: i64,
) -> Result<(), Failure> {
    let sql = format!("UPDATE {schema}.dropped SET newest = $1 WHERE newest < $1");
    transaction.execute_typed(&sql, &[(&newest, Type::INT8)]).await?;
    Ok(())
}

/// The highest number that a message has, or had before it was dropped.
async fn newest(client: &Client, schema: &str, version: usize) -> Result<i64, Failure> {
    let mut newest = 0;
    if version >= KNOWS_DROPPED {
        let sql = format!("SELECT coalesce(max(newest), 0) FROM {schema}.dropped");
        newest = client.query_typed_one(&sql, &[]).await?.try_get(0)?;
    }
    for row in client.query_typed(&format!("SELECT id, shards FROM {schema}.topic"), &[]).await? {
        let (id, shards): (i64, i32) = (row.try_get(0)?, row.try_get(1)?);
        for table in crate::topics::message_tables(schema, id) {
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

/// After a restore on another server, messages carry transaction numbers that this server has not reached. From now on
/// its numbers are shifted past them, so that what is new comes after what is old, and positions keep their meaning.
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
