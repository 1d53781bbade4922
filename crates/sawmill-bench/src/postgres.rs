//! PostgreSQL, alone and under Sawmill.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::TryStreamExt;
use sawmill::Sawmill;
use sawmill::engine::runtime::Env;
use sawmill::engine::storage::{Engine, Namespace, OpenedStore};
use sawmill_postgres::PostgresEngine;
use tokio::task::JoinSet;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls, Statement};

use crate::Failure;
use crate::single::TASKS;
use crate::subject::{Goals, Opened, Pin, Raw, RowQueue, Subject, Tally};
use crate::{PAYLOAD, SHARDS, url};

/// The interval of checks whether the connections of a closed store are gone.
const POLL: Duration = Duration::from_millis(20);

pub(crate) struct Postgres {
    url: String,
    tables: AtomicU64,
}

impl Postgres {
    pub(crate) fn new() -> Result<Self, Failure> {
        Ok(Self { url: url("SAWMILL_TEST_POSTGRES")?, tables: AtomicU64::new(0) })
    }

    /// Returns a unique table name.
    fn table(&self) -> String {
        format!("sawmill_bench_{}_{}", std::process::id(), self.tables.fetch_add(1, Ordering::Relaxed))
    }
}

async fn connect(url: &str) -> Result<Client, Failure> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    Env::system().spawn(async move {
        // It ends with the client, which reports errors.
        let _ = connection.await;
    });
    Ok(client)
}

#[async_trait]
impl Subject for Postgres {
    fn name(&self) -> &'static str {
        "PostgreSQL"
    }

    fn goals(&self) -> Goals {
        Goals {
            end_to_end: 0.3,
            row_queue: Some(3.0),
            single: 1.0,
            p50_ms: 3.0,
            p99_ms: 10.0,
            idle_timers: None,
        }
    }

    fn gathers_pushes(&self) -> bool {
        false
    }

    fn store(&self, name: &str) -> String {
        format!("bench_{}_{name}", std::process::id())
    }

    async fn open(&self, store: &str, env: Env) -> Result<Box<dyn Opened>, Failure> {
        let namespace: Namespace = store.parse()?;
        let OpenedStore { log, ledger } =
            PostgresEngine::default().open(&self.url.parse()?, &namespace).await?;
        let (Some(log), Some(ledger)) = (log, ledger) else { return Err("the store is not complete".into()) };
        let mill = Sawmill::from_parts(log, ledger, env);
        Ok(Box::new(BenchStore { mill, monitor: connect(&self.url).await? }))
    }

    async fn remove(&self, store: &str) -> Result<(), Failure> {
        let sql = format!("DROP SCHEMA IF EXISTS \"sawmill_{store}\" CASCADE");
        Ok(connect(&self.url).await?.batch_execute(&sql).await?)
    }

    async fn raw(&self) -> Result<Box<dyn Raw>, Failure> {
        Ok(Box::new(Table::create(&self.url, self.table()).await?))
    }

    async fn row_queue(&self) -> Result<Option<Box<dyn RowQueue>>, Failure> {
        Ok(Some(Box::new(Jobs::create(&self.url, &self.table()).await?)))
    }

    async fn pin(&self) -> Result<Option<Box<dyn Pin>>, Failure> {
        let client = connect(&self.url).await?;
        // It has a transaction id and a snapshot, so it holds back all that a transaction can hold back.
        client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()").await?;
        Ok(Some(Box::new(Pinned { client, monitor: connect(&self.url).await? })))
    }
}

struct BenchStore {
    mill: Sawmill,
    /// The connection that reads the server's counters.
    monitor: Client,
}

#[async_trait]
impl Opened for BenchStore {
    fn mill(&self) -> &Sawmill {
        &self.mill
    }

    async fn tally(&self) -> Result<Tally, Failure> {
        tally(&self.monitor).await
    }

    /// Waits until the connections end: a connection reports all its counts to the server when it ends.
    async fn close(self: Box<Self>) -> Result<Tally, Failure> {
        let Self { mill, monitor } = *self;
        drop(mill);
        let sql = "SELECT count(*) FROM pg_stat_activity
            WHERE application_name = 'sawmill' AND datname = current_database()";
        while monitor.query_typed_one(sql, &[]).await?.try_get::<_, i64>(0)? > 0 {
            Env::system().sleep(POLL).await;
        }
        tally(&monitor).await
    }
}

/// Reads the counters. A transaction of Sawmill is one query, with a few rare exceptions. Transactions that
/// write get an id.
async fn tally(client: &Client) -> Result<Tally, Failure> {
    let sql = "SELECT xact_commit + xact_rollback, pg_snapshot_xmax(pg_current_snapshot())::text::int8,
                   (pg_current_wal_lsn() - '0/0')::int8
               FROM pg_stat_database WHERE datname = current_database()";
    let row = client.query_typed_one(sql, &[]).await?;
    let number = |at: usize| -> Result<u64, Failure> { Ok(row.try_get::<_, i64>(at)?.unsigned_abs()) };
    Ok(Tally { queries: number(0)?, commits: number(1)?, looks: 0, log_bytes: number(2)? })
}

/// A table of messages, filled by COPY.
struct Table {
    url: String,
    name: String,
    client: Client,
    one: Statement,
    made: i64,
}

const TYPES: [Type; 10] = [
    Type::INT8,
    Type::INT8,
    Type::INT2,
    Type::UUID,
    Type::INT8,
    Type::INT8,
    Type::BOOL,
    Type::BYTEA,
    Type::BYTEA,
    Type::BYTEA,
];

const COLUMNS: &str = "xid, n, shard, id, created_ms, due_ms, again, key, headers, payload";

impl Table {
    async fn create(url: &str, name: String) -> Result<Self, Failure> {
        let client = connect(url).await?;
        let sql = format!(
            "CREATE TABLE {name} (xid int8 NOT NULL, n int8 NOT NULL, shard int2 NOT NULL, id uuid NOT NULL,
                 created_ms int8 NOT NULL, due_ms int8, again bool NOT NULL, key bytea, headers bytea,
                 payload bytea NOT NULL);
             ALTER TABLE {name} ALTER payload SET STORAGE EXTERNAL"
        );
        client.batch_execute(&sql).await?;
        let one = client.prepare(&insert_one(&name)).await?;
        Ok(Self { url: url.to_owned(), name, client, one, made: 0 })
    }
}

fn insert_one(table: &str) -> String {
    format!(
        "INSERT INTO {table} ({COLUMNS}) VALUES (1, $1, 1, gen_random_uuid(), 1, NULL, false, NULL, NULL, $2)"
    )
}

/// A number as a `uuid`.
#[derive(Debug)]
struct Id(u128);

impl ToSql for Id {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut tokio_postgres::types::private::BytesMut,
    ) -> Result<tokio_postgres::types::IsNull, Failure> {
        out.extend_from_slice(&self.0.to_be_bytes());
        Ok(tokio_postgres::types::IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::UUID
    }

    tokio_postgres::types::to_sql_checked!();
}

#[async_trait]
impl Raw for Table {
    async fn insert(&mut self, rows: usize) -> Result<(), Failure> {
        let sink = self.client.copy_in(&format!("COPY {} ({COLUMNS}) FROM STDIN BINARY", self.name)).await?;
        let mut writer = pin!(BinaryCopyInWriter::new(sink, &TYPES));
        let none: Option<&[u8]> = None;
        for _ in 0..rows {
            self.made += 1;
            let id = Id(self.made.unsigned_abs().into());
            let shard = (self.made % SHARDS as i64) as i16;
            let row: [&(dyn ToSql + Sync); 10] =
                [&1i64, &self.made, &shard, &id, &1i64, &None::<i64>, &false, &none, &none, &&PAYLOAD[..]];
            writer.as_mut().write(&row).await?;
        }
        writer.finish().await?;
        Ok(())
    }

    /// From as many connections as there are pushing tasks.
    async fn insert_singly(&mut self, rows: usize) -> Result<(), Failure> {
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let (client, sql) = (connect(&self.url).await?, insert_one(&self.name));
            tasks.spawn(async move {
                let insert = client.prepare(&sql).await?;
                for nth in 0..rows / TASKS {
                    client.execute(&insert, &[&(nth as i64), &&PAYLOAD[..]]).await?;
                }
                Ok::<(), Failure>(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(())
    }

    async fn insert_one(&mut self) -> Result<(), Failure> {
        self.made += 1;
        self.client.execute(&self.one, &[&self.made, &&PAYLOAD[..]]).await?;
        Ok(())
    }

    async fn read_all(&mut self) -> Result<usize, Failure> {
        let sql = format!("SELECT id, created_ms, due_ms, key, headers, payload FROM {}", self.name);
        let rows = self.client.query_typed_raw(&sql, Vec::<(&(dyn ToSql + Sync), Type)>::new()).await?;
        let mut rows = pin!(rows);
        let mut bytes = 0;
        while let Some(row) = rows.try_next().await? {
            bytes += row.try_get::<_, &[u8]>(5)?.len();
        }
        Ok(bytes)
    }

    async fn log_bytes(&mut self) -> Result<u64, Failure> {
        Ok(tally(&self.client).await?.log_bytes)
    }

    async fn remove(self: Box<Self>) -> Result<(), Failure> {
        Ok(self.client.batch_execute(&format!("DROP TABLE {}", self.name)).await?)
    }
}

/// Jobs with a state each.
struct Jobs {
    name: String,
    client: Client,
    fetch: Statement,
    complete: Statement,
}

impl Jobs {
    async fn create(url: &str, name: &str) -> Result<Self, Failure> {
        let client = connect(url).await?;
        let sql = format!(
            "CREATE TABLE {name} (id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state int2 NOT NULL DEFAULT 0,
                 attempted_at timestamptz, finalized_at timestamptz, payload bytea NOT NULL);
             CREATE INDEX ON {name} (id) WHERE state = 0"
        );
        client.batch_execute(&sql).await?;
        let fetch = format!(
            "UPDATE {name} SET state = 1, attempted_at = now() WHERE id IN
                 (SELECT id FROM {name} WHERE state = 0 ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)
             RETURNING id, payload"
        );
        let fetch = client.prepare(&fetch).await?;
        let complete = format!("UPDATE {name} SET state = 2, finalized_at = now() WHERE id = ANY ($1)");
        let complete = client.prepare(&complete).await?;
        Ok(Self { name: name.to_owned(), client, fetch, complete })
    }
}

#[async_trait]
impl RowQueue for Jobs {
    async fn push(&mut self, rows: usize) -> Result<(), Failure> {
        let sink = self.client.copy_in(&format!("COPY {} (payload) FROM STDIN BINARY", self.name)).await?;
        let mut writer = pin!(BinaryCopyInWriter::new(sink, &[Type::BYTEA]));
        for _ in 0..rows {
            writer.as_mut().write(&[&&PAYLOAD[..]]).await?;
        }
        writer.finish().await?;
        Ok(())
    }

    async fn work(&mut self, most: usize) -> Result<usize, Failure> {
        let rows = self.client.query(&self.fetch, &[&(most as i64)]).await?;
        let ids = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
        self.client.execute(&self.complete, &[&ids]).await?;
        Ok(ids.len())
    }

    async fn remove(self: Box<Self>) -> Result<(), Failure> {
        Ok(self.client.batch_execute(&format!("DROP TABLE {}", self.name)).await?)
    }
}

struct Pinned {
    client: Client,
    monitor: Client,
}

#[async_trait]
impl Pin for Pinned {
    async fn dead(&mut self, store: &str) -> Result<Vec<(String, u64)>, Failure> {
        // Tables are created and dropped, so the catalog tables have dead rows too.
        let sql = "SELECT relname::text, n_dead_tup FROM pg_stat_all_tables
                   WHERE schemaname IN ($1, 'pg_catalog') AND n_dead_tup > 0 ORDER BY n_dead_tup DESC LIMIT 8";
        let rows = self.monitor.query(sql, &[&format!("sawmill_{store}")]).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get::<_, i64>(1)?.unsigned_abs()))).collect()
    }

    async fn release(&mut self) -> Result<(), Failure> {
        Ok(self.client.batch_execute("COMMIT").await?)
    }
}
