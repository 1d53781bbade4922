//! Cassandra. The engine alone is the driver with unlogged batches by partition and range reads.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::{join_all, try_join_all};
use sawmill::Sawmill;
use sawmill::engine::runtime::Env;
use sawmill::engine::storage::{Engine, Ledger, Namespace};
use sawmill_cassandra::CassandraEngine;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::frame::types::Consistency;
use scylla::response::{PagingState, PagingStateResponse};
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;

use crate::Failure;
use crate::subject::{Goals, Opened, Raw, RowQueue, Subject, Tally};
use crate::{PAYLOAD, SHARDS, url};

/// Rows in one batch of the driver; found to be the fastest size.
const ROWS: usize = 50;
/// Concurrent single inserts.
const IN_FLIGHT: usize = 64;

pub(crate) struct Cassandra {
    url: String,
}

impl Cassandra {
    pub(crate) fn new() -> Result<Self, Failure> {
        Ok(Self { url: url("SAWMILL_TEST_CASSANDRA")? })
    }

    /// Returns the node and the keyspace.
    fn place(&self) -> Result<(String, String), Failure> {
        let place = self.url.split_once("//").and_then(|(_, rest)| rest.split('?').next()?.split_once('/'));
        let (node, keyspace) = place.ok_or("the URL of the node has no keyspace")?;
        Ok((node.to_owned(), keyspace.to_owned()))
    }
}

#[async_trait]
impl Subject for Cassandra {
    fn name(&self) -> &'static str {
        "Cassandra"
    }

    fn goals(&self) -> Goals {
        Goals {
            end_to_end: 0.4,
            row_queue: None,
            single: 1.0,
            p50_ms: 20.0,
            p99_ms: 100.0,
            idle_timers: None,
        }
    }

    fn gathers_pushes(&self) -> bool {
        false
    }

    fn store(&self, name: &str) -> String {
        format!("bench{}{name}", std::process::id())
    }

    async fn open(&self, store: &str, env: Env) -> Result<Box<dyn Opened>, Failure> {
        let namespace: Namespace = store.parse()?;
        let opened = CassandraEngine.open(&self.url.parse()?, &namespace).await?;
        let (Some(log), Some(ledger)) = (opened.log, opened.ledger) else {
            return Err("the store is not complete".into());
        };
        Ok(Box::new(Store { mill: Sawmill::from_parts(log, ledger.clone(), env), ledger }))
    }

    async fn remove(&self, store: &str) -> Result<(), Failure> {
        let mill = Sawmill::options().engine(CassandraEngine).namespace(store).open(&self.url).await?;
        for topic in mill.admin().topics().await? {
            mill.admin().delete_topic(&topic.name.to_string()).await?;
        }
        Ok(())
    }

    async fn raw(&self) -> Result<Box<dyn Raw>, Failure> {
        let (node, keyspace) = self.place()?;
        // Opening a store creates the keyspace.
        CassandraEngine.open(&self.url.parse()?, &Namespace::default()).await?;
        let session = SessionBuilder::new().known_node(node).build().await?;
        session.use_keyspace(&keyspace, false).await?;
        let name = format!("bench_raw_{:016x}", Env::system().rng().next_u64());
        let making = format!(
            "CREATE TABLE {name} (bucket bigint, shard int, due bigint, id bigint, key blob, headers blob, created bigint, \
             payload blob, PRIMARY KEY ((bucket, shard), due, id))"
        );
        session.query_unpaged(making, ()).await?;
        let insert = format!(
            "INSERT INTO {name} (bucket, shard, due, id, key, headers, created, payload) VALUES (0, ?, ?, ?, 0x, 0x, ?, ?) \
             USING TTL 864000"
        );
        let mut insert = session.prepare(insert).await?;
        insert.set_consistency(Consistency::Quorum);
        let select = format!("SELECT due, id, created, payload FROM {name} WHERE bucket = 0 AND shard = ?");
        let mut select = session.prepare(select).await?;
        select.set_page_size(1000);
        select.set_consistency(Consistency::Quorum);
        Ok(Box::new(Table { session, name, insert, select, made: 0 }))
    }

    async fn row_queue(&self) -> Result<Option<Box<dyn RowQueue>>, Failure> {
        Ok(None)
    }
}

struct Store {
    mill: Sawmill,
    ledger: Arc<dyn Ledger>,
}

#[async_trait]
impl Opened for Store {
    fn mill(&self) -> &Sawmill {
        &self.mill
    }

    fn ledger(&self) -> Option<Arc<dyn Ledger>> {
        Some(self.ledger.clone())
    }

    async fn tally(&self) -> Result<Tally, Failure> {
        Ok(Tally::default())
    }

    async fn close(self: Box<Self>) -> Result<Tally, Failure> {
        Ok(Tally::default())
    }
}

/// A table of messages, with as many partitions as a topic has shards.
struct Table {
    session: Session,
    name: String,
    insert: PreparedStatement,
    select: PreparedStatement,
    made: usize,
}

type Row = (i32, i64, i64, i64, &'static [u8]);

impl Table {
    fn row(&self, number: usize) -> Row {
        ((number % SHARDS) as i32, number as i64, number as i64, number as i64, &PAYLOAD[..])
    }

    async fn batch(&self, rows: &[Row]) -> Result<(), Failure> {
        let statements = rows.iter().map(|_| self.insert.clone().into()).collect();
        let mut batch = Batch::new_with_statements(BatchType::Unlogged, statements);
        batch.set_consistency(Consistency::Quorum);
        self.session.batch(&batch, rows).await?;
        Ok(())
    }
}

#[async_trait]
impl Raw for Table {
    /// Inserts by partition, with all batches in flight at once.
    async fn insert(&mut self, rows: usize) -> Result<(), Failure> {
        let mut partitions: Vec<Vec<Row>> = vec![Vec::new(); SHARDS];
        for number in self.made..self.made + rows {
            partitions[number % SHARDS].push(self.row(number));
        }
        self.made += rows;
        let batches = partitions.iter().flat_map(|rows| rows.chunks(ROWS)).map(|rows| self.batch(rows));
        try_join_all(batches).await?;
        Ok(())
    }

    async fn insert_singly(&mut self, rows: usize) -> Result<(), Failure> {
        let numbers: Vec<usize> = (self.made..self.made + rows).collect();
        self.made += rows;
        for some in numbers.chunks(IN_FLIGHT) {
            let inserts =
                some.iter().map(|number| self.session.execute_unpaged(&self.insert, self.row(*number)));
            for inserted in join_all(inserts).await {
                inserted?;
            }
        }
        Ok(())
    }

    async fn insert_one(&mut self) -> Result<(), Failure> {
        self.insert_singly(1).await
    }

    async fn read_all(&mut self) -> Result<usize, Failure> {
        let mut bytes = 0;
        for shard in 0..SHARDS as i32 {
            let mut state = PagingState::start();
            loop {
                let (page, next) = self.session.execute_single_page(&self.select, (shard,), state).await?;
                let page = page.into_rows_result()?;
                for row in page.rows::<(i64, i64, i64, bytes::Bytes)>()? {
                    bytes += row?.3.len();
                }
                match next {
                    PagingStateResponse::HasMorePages { state: next } => state = next,
                    PagingStateResponse::NoMorePages => break,
                }
            }
        }
        Ok(bytes)
    }

    async fn log_bytes(&mut self) -> Result<u64, Failure> {
        Ok(0)
    }

    async fn remove(self: Box<Self>) -> Result<(), Failure> {
        self.session.query_unpaged(format!("DROP TABLE {}", self.name), ()).await?;
        Ok(())
    }
}
