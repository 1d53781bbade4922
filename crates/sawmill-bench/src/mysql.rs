//! MySQL and MariaDB, alone and under Sawmill.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row, Statement};
use sawmill::Sawmill;
use sawmill::engine::runtime::Env;
use sawmill::engine::storage::{Engine, Namespace, OpenedStore};
use sawmill_mysql::MysqlEngine;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::Failure;
use crate::single::TASKS;
use crate::subject::{Goals, Opened, Pin, Raw, RowQueue, Subject, Tally};
use crate::{PAYLOAD, SHARDS, url};

pub(crate) struct Mysql {
    url: String,
    tables: AtomicU64,
}

impl Mysql {
    pub(crate) fn new() -> Result<Self, Failure> {
        Ok(Self { url: url("SAWMILL_TEST_MYSQL")?, tables: AtomicU64::new(0) })
    }

    /// Returns a unique table name.
    fn table(&self) -> String {
        format!("bench_{}_{}", std::process::id(), self.tables.fetch_add(1, Ordering::Relaxed))
    }
}

async fn connect(url: &str) -> Result<Conn, Failure> {
    Ok(Conn::from_url(url).await?)
}

#[async_trait]
impl Subject for Mysql {
    fn name(&self) -> &'static str {
        "MySQL"
    }

    fn goals(&self) -> Goals {
        Goals { end_to_end: 0.25, row_queue: None, single: 1.0, p50_ms: 3.0, p99_ms: 10.0, idle_timers: None }
    }

    fn gathers_pushes(&self) -> bool {
        false
    }

    /// Lower-case letters and digits, which appear unchanged in table names.
    fn store(&self, name: &str) -> String {
        format!("bench{}{name}", std::process::id())
    }

    async fn open(&self, store: &str, env: Env) -> Result<Box<dyn Opened>, Failure> {
        let namespace: Namespace = store.parse()?;
        let OpenedStore { log, ledger } = MysqlEngine.open(&self.url.parse()?, &namespace).await?;
        let (Some(log), Some(ledger)) = (log, ledger) else { return Err("the store is not complete".into()) };
        let mill = Sawmill::from_parts(log, ledger, env);
        let mut monitor = connect(&self.url).await?;
        // Without this, the server does not count transactions that write.
        monitor.query_drop("SET GLOBAL innodb_monitor_enable = 'trx_rw_commits'").await?;
        Ok(Box::new(BenchStore { mill, monitor: Mutex::new(monitor) }))
    }

    async fn remove(&self, store: &str) -> Result<(), Failure> {
        let mut conn = connect(&self.url).await?;
        let sql = "SELECT table_name FROM information_schema.tables
                   WHERE table_schema = database() AND table_name LIKE ?";
        let tables: Vec<String> = conn.exec(sql, (format!("sawmill\\_{store}\\_%"),)).await?;
        for table in tables {
            conn.query_drop(format!("DROP TABLE `{table}`")).await?;
        }
        Ok(())
    }

    async fn raw(&self) -> Result<Box<dyn Raw>, Failure> {
        Ok(Box::new(Table::create(&self.url, self.table()).await?))
    }

    async fn row_queue(&self) -> Result<Option<Box<dyn RowQueue>>, Failure> {
        Ok(Some(Box::new(Jobs::create(&self.url, &self.table()).await?)))
    }

    async fn pin(&self) -> Result<Option<Box<dyn Pin>>, Failure> {
        let mut conn = connect(&self.url).await?;
        conn.query_drop("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").await?;
        conn.query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT").await?;
        Ok(Some(Box::new(Pinned { conn, monitor: connect(&self.url).await? })))
    }
}

struct BenchStore {
    mill: Sawmill,
    /// The connection that reads the server's counters.
    monitor: Mutex<Conn>,
}

#[async_trait]
impl Opened for BenchStore {
    fn mill(&self) -> &Sawmill {
        &self.mill
    }

    async fn tally(&self) -> Result<Tally, Failure> {
        tally(&mut *self.monitor.lock().await).await
    }

    async fn close(self: Box<Self>) -> Result<Tally, Failure> {
        // Counts before the connections close: for a moment, the server omits connections that end.
        let Self { mill, monitor } = *self;
        let tally = tally(&mut monitor.into_inner()).await;
        drop(mill);
        tally
    }
}

/// Reads the counters. The server counts every statement, also of several that are sent together.
async fn tally(conn: &mut Conn) -> Result<Tally, Failure> {
    let sql = "SHOW GLOBAL STATUS WHERE variable_name IN ('Questions', 'Innodb_os_log_written')";
    let mut tally = Tally::default();
    for (name, value) in conn.query::<(String, String), _>(sql).await? {
        match name.as_str() {
            "Questions" => tally.queries = value.parse()?,
            _ => tally.log_bytes = value.parse()?,
        }
    }
    let sql = "SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rw_commits'";
    tally.commits = conn.query_first(sql).await?.unwrap_or_default();
    Ok(tally)
}

/// A table of messages, filled by multi-row inserts.
struct Table {
    url: String,
    name: String,
    conn: Conn,
    one: Statement,
    made: u64,
}

const COLUMNS: &str =
    "topic, shard, number, id, created_ms, due_ms, repeatable, size, msg_key, headers, payload";

impl Table {
    async fn create(url: &str, name: String) -> Result<Self, Failure> {
        let mut conn = connect(url).await?;
        conn.query_drop(format!(
            "CREATE TABLE {name} (topic BIGINT UNSIGNED NOT NULL, shard SMALLINT UNSIGNED NOT NULL,
                 number BIGINT UNSIGNED NOT NULL, id BINARY(16) NOT NULL, created_ms BIGINT UNSIGNED NOT NULL,
                 due_ms BIGINT UNSIGNED NULL, repeatable TINYINT UNSIGNED NOT NULL, size INT UNSIGNED NOT NULL,
                 msg_key VARBINARY(1024) NULL, headers MEDIUMBLOB NULL, payload LONGBLOB NOT NULL)
             ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"
        ))
        .await?;
        let one = conn.prep(insert_one(&name)).await?;
        Ok(Self { url: url.to_owned(), name, conn, one, made: 0 })
    }
}

fn insert_one(table: &str) -> String {
    format!("INSERT INTO {table} ({COLUMNS}) VALUES (1, 1, ?, ?, 1, NULL, 0, 100, NULL, NULL, ?)")
}

/// Appends the values of a row with this number to a statement.
fn row_of(number: u64, statement: &mut Vec<u8>) {
    let head = format!(
        "(1,{},{number},_binary'{number:016}',1,NULL,0,100,NULL,NULL,_binary'",
        number % SHARDS as u64
    );
    statement.extend_from_slice(head.as_bytes());
    statement.extend_from_slice(&PAYLOAD);
    statement.extend_from_slice(b"')");
}

#[async_trait]
impl Raw for Table {
    async fn insert(&mut self, rows: usize) -> Result<(), Failure> {
        let mut sql = format!("INSERT INTO {} ({COLUMNS}) VALUES ", self.name).into_bytes();
        for nth in 0..rows {
            if nth > 0 {
                sql.push(b',');
            }
            self.made += 1;
            row_of(self.made, &mut sql);
        }
        Ok(self.conn.query_drop(sql).await?)
    }

    /// From as many connections as there are pushing tasks.
    async fn insert_singly(&mut self, rows: usize) -> Result<(), Failure> {
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let (mut conn, sql) = (connect(&self.url).await?, insert_one(&self.name));
            tasks.spawn(async move {
                let insert = conn.prep(sql).await?;
                for nth in 0..rows / TASKS {
                    conn.exec_drop(&insert, (nth, &[7u8; 16][..], &PAYLOAD[..])).await?;
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
        Ok(self.conn.exec_drop(&self.one, (self.made, &[7u8; 16][..], &PAYLOAD[..])).await?)
    }

    async fn read_all(&mut self) -> Result<usize, Failure> {
        let sql =
            format!("SELECT number, id, created_ms, due_ms, msg_key, headers, payload FROM {}", self.name);
        let mut bytes = 0;
        let mut result = self.conn.query_iter(sql).await?;
        while let Some(mut row) = result.next().await? {
            bytes += row.take::<Vec<u8>, _>(6).map_or(0, |payload| payload.len());
        }
        Ok(bytes)
    }

    async fn log_bytes(&mut self) -> Result<u64, Failure> {
        Ok(tally(&mut self.conn).await?.log_bytes)
    }

    async fn remove(mut self: Box<Self>) -> Result<(), Failure> {
        Ok(self.conn.query_drop(format!("DROP TABLE {}", self.name)).await?)
    }
}

/// Jobs with a state each.
struct Jobs {
    name: String,
    conn: Conn,
}

impl Jobs {
    async fn create(url: &str, name: &str) -> Result<Self, Failure> {
        let mut conn = connect(url).await?;
        conn.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await?;
        conn.query_drop(format!(
            "CREATE TABLE {name} (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, state TINYINT NOT NULL DEFAULT 0,
                 attempted_at TIMESTAMP(3) NULL, finalized_at TIMESTAMP(3) NULL, payload LONGBLOB NOT NULL,
                 KEY (state, id)) ENGINE=InnoDB"
        ))
        .await?;
        Ok(Self { name: name.to_owned(), conn })
    }
}

#[async_trait]
impl RowQueue for Jobs {
    async fn push(&mut self, rows: usize) -> Result<(), Failure> {
        let mut sql = format!("INSERT INTO {} (payload) VALUES ", self.name).into_bytes();
        for nth in 0..rows {
            sql.extend_from_slice(if nth > 0 { b",(_binary'" } else { b"(_binary'" });
            sql.extend_from_slice(&PAYLOAD);
            sql.extend_from_slice(b"')");
        }
        Ok(self.conn.query_drop(sql).await?)
    }

    async fn work(&mut self, most: usize) -> Result<usize, Failure> {
        let name = &self.name;
        self.conn.query_drop("START TRANSACTION").await?;
        let rows: Vec<Row> = self
            .conn
            .query(format!(
                "SELECT id, payload FROM {name} WHERE state = 0 ORDER BY id LIMIT {most} FOR UPDATE SKIP LOCKED"
            ))
            .await?;
        let ids: Vec<String> =
            rows.iter().filter_map(|row| row.get::<u64, _>(0)).map(|id| id.to_string()).collect();
        if ids.is_empty() {
            self.conn.query_drop("ROLLBACK").await?;
            return Ok(0);
        }
        let list = ids.join(",");
        let sql = format!("UPDATE {name} SET state = 1, attempted_at = NOW(3) WHERE id IN ({list}); COMMIT");
        self.conn.query_drop(sql).await?;
        let sql = format!("UPDATE {name} SET state = 2, finalized_at = NOW(3) WHERE id IN ({list})");
        self.conn.query_drop(sql).await?;
        Ok(ids.len())
    }

    async fn remove(mut self: Box<Self>) -> Result<(), Failure> {
        Ok(self.conn.query_drop(format!("DROP TABLE {}", self.name)).await?)
    }
}

struct Pinned {
    conn: Conn,
    monitor: Conn,
}

#[async_trait]
impl Pin for Pinned {
    /// InnoDB keeps old row versions elsewhere and reports only the number of transactions that have some.
    async fn dead(&mut self, _: &str) -> Result<Vec<(String, u64)>, Failure> {
        let sql = "SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'";
        let count: Option<u64> = self.monitor.query_first(sql).await?;
        Ok(count.map(|count| ("the history of transactions".to_owned(), count)).into_iter().collect())
    }

    async fn release(&mut self) -> Result<(), Failure> {
        Ok(self.conn.query_drop("COMMIT").await?)
    }
}
