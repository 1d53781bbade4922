//! The connection to the ring: one session with all statements prepared, so that each goes to a node that has
//! the row.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::deserialize::row::DeserializeRow;
use scylla::errors::ExecutionError;
use scylla::frame::types::Consistency;
use scylla::policies::load_balancing::DefaultPolicy;
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::response::query_result::QueryResult;
use scylla::response::{PagingState, PagingStateResponse};
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::unprepared::Statement;

use crate::address::{Address, Security};
use crate::connection::tls;
use crate::error::{self, Failure, corrupt};
use crate::schema;

/// Rows per page.
const PAGE: i32 = 2000;

/// Rows per page when a whole bucket is searched: each row carries a pack of messages.
const SEARCH_PAGE: i32 = 32;
/// How often rows are written whose answer is lost with the connection.
const TRIES: usize = 3;

/// The time limit of creating a table.
const CREATE_TABLE_TIMEOUT: Duration = Duration::from_secs(60);

/// A session and its statements.
pub(crate) struct Link {
    session: Session,
    /// True if each row is stored on more than one node.
    pub(crate) replicated: bool,
    pub(crate) statements: Statements,
}

macro_rules! statements {
    ($($kind:ident $name:ident: $text:expr;)*) => {
        /// All prepared statements.
        pub(crate) struct Statements {
            $(pub(crate) $name: PreparedStatement,)*
        }

        impl Statements {
            async fn prepare(session: &Session, address: &Address) -> Result<Self, Failure> {
                $(let $name = prepare(session, address, StatementKind::$kind, $text);)*
                Ok(Self { $($name: $name.await?,)* })
            }
        }
    };
}

statements! {
    Read topic_get: "SELECT uid, shards, retention_ms, drops_unread, bucket_ms, settle_ms, keep_s FROM topics \
        WHERE namespace = ? AND name = ?";
    Read topic_list: "SELECT name, uid, shards, retention_ms, drops_unread FROM topics WHERE namespace = ?";
    Transact topic_make: "INSERT INTO topics (namespace, name, uid, shards, retention_ms, drops_unread, bucket_ms, settle_ms, keep_s) \
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS";
    Transact topic_drop: "DELETE FROM topics WHERE namespace = ? AND name = ? IF uid = ?";
    SerialRead topic_get_serial: "SELECT uid, shards, retention_ms, drops_unread, bucket_ms, settle_ms, keep_s FROM topics \
        WHERE namespace = ? AND name = ?";

    Append row_add: "INSERT INTO log (topic, bucket, shard, kind, at, seq, writer, many, bytes, created, slow, body) \
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TTL ?";
    Read row_keys: "SELECT at, seq, writer, many, bytes, created, slow FROM log WHERE topic = ? AND bucket = ? AND shard = ? AND kind = ? \
        AND (at, seq, writer) > (?, ?, ?) AND (at, seq, writer) <= (?, ?, ?) LIMIT ?";
    Read row_next: "SELECT at, seq, writer FROM log WHERE topic = ? AND bucket = ? AND shard = ? AND kind = ? AND (at, seq, writer) > (?, ?, ?) LIMIT ?";
    Read row_range: "SELECT at, seq, writer, many, body FROM log WHERE topic = ? AND bucket = ? AND shard = ? AND kind = ? \
        AND (at, seq, writer) >= (?, ?, ?) AND (at, seq, writer) <= (?, ?, ?)";
    Search row_search: "SELECT at, seq, writer, many, body FROM log WHERE topic = ? AND bucket = ? AND shard = ? AND kind = ? \
        AND (at, seq, writer) >= (?, ?, ?) AND (at, seq, writer) <= (?, ?, ?)";
    Write rows_drop: "DELETE FROM log WHERE topic = ? AND bucket = ? AND shard = ? AND kind = ?";

    Write bucket_add: "INSERT INTO buckets (topic, kind, bucket, shard) VALUES (?, ?, ?, ?) USING TTL ?";
    Read bucket_list: "SELECT bucket, shard FROM buckets WHERE topic = ? AND kind = ? AND bucket >= ? AND bucket <= ?";

    Read segment_tail: "SELECT DISTINCT last, tail FROM segments WHERE topic = ? AND shard = ? AND chapter = ?";
    Read segment_after: "SELECT n, named, state FROM segments WHERE topic = ? AND shard = ? AND chapter = ? AND n > ? LIMIT ?";
    SerialRead segment_after_serial: "SELECT n, named, state FROM segments WHERE topic = ? AND shard = ? AND chapter = ? AND n > ? LIMIT ?";
    Read segment_back: "SELECT n, named, state FROM segments WHERE topic = ? AND shard = ? AND chapter = ? AND n <= ? \
        ORDER BY n DESC LIMIT ?";
    Transact segment_mark: "UPDATE segments SET last = ?, tail = ? WHERE topic = ? AND shard = ? AND chapter = ? IF last = ?";
    Transact segment_add: "INSERT INTO segments (topic, shard, chapter, n, named, state) VALUES (?, ?, ?, ?, ?, ?) USING TTL ?";
    Read chapter_get: "SELECT chapter FROM chapters WHERE topic = ? AND shard = ?";
    Write chapter_set: "INSERT INTO chapters (topic, shard, chapter) VALUES (?, ?, ?) USING TIMESTAMP ?";

    Transact id_take: "INSERT INTO ids (topic, id, shard, kind, at, seq, writer) VALUES (?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS USING TTL ?";
    Transact id_move: "UPDATE ids USING TTL ? SET shard = ?, kind = ?, at = ?, seq = ?, writer = ? WHERE topic = ? AND id = ? \
        IF seq = ? AND writer = ?";
    SerialRead id_get: "SELECT shard, kind, at, seq, writer FROM ids WHERE topic = ? AND id = ?";
    Write sure_add: "INSERT INTO sures (topic, id) VALUES (?, ?) USING TTL ?";
    Read sure_get: "SELECT id FROM sures WHERE topic = ? AND id = ?";

    Hint pulse_set: "INSERT INTO pulses (namespace, topic, number) VALUES (?, ?, ?)";
    Hint pulse_list: "SELECT topic, number FROM pulses WHERE namespace = ?";
    Hint pulse_drop: "DELETE FROM pulses WHERE namespace = ? AND topic = ?";

    Read entry_get: "SELECT version, value, dead FROM ledger WHERE namespace = ? AND name = ?";
    SerialRead entry_get_serial: "SELECT version, write FROM ledger WHERE namespace = ? AND name = ?";
    Transact entry_set: "UPDATE ledger SET version = ?, value = ?, dead = false, write = ? WHERE namespace = ? AND name = ? \
        IF version = ?";
    Transact entry_drop: "UPDATE ledger USING TTL 864000 SET version = ?, value = 0x, dead = true, write = ? \
        WHERE namespace = ? AND name = ? IF version = ?";
    Write name_add: "INSERT INTO ledger_names (namespace, name) VALUES (?, ?)";
    Write name_drop: "DELETE FROM ledger_names WHERE namespace = ? AND name = ?";
    Read name_list: "SELECT name FROM ledger_names WHERE namespace = ? AND name >= ? AND name < ?";
}

/// How a statement is executed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StatementKind {
    /// The driver may repeat it on another node.
    Read,
    /// Like `Read`, with smaller pages because the rows are large.
    Search,
    /// A serial read: it completes all lightweight transactions that are in progress.
    SerialRead,
    /// An idempotent write, which the driver may repeat.
    Write,
    /// An idempotent write of messages. The driver must not repeat it: see [`Link::add_rows`].
    Append,
    /// A lightweight transaction, never repeated.
    Transact,
    /// Best effort: neither the write nor the answer matters for correctness.
    Hint,
}

async fn prepare(
    session: &Session,
    address: &Address,
    kind: StatementKind,
    text: &str,
) -> Result<PreparedStatement, Failure> {
    let mut statement = session.prepare(text).await?;
    statement.set_page_size(PAGE);
    statement.set_consistency(address.consistency);
    statement.set_serial_consistency(Some(address.serial));
    match kind {
        StatementKind::Read | StatementKind::Write => statement.set_is_idempotent(true),
        StatementKind::Search => {
            statement.set_is_idempotent(true);
            statement.set_page_size(SEARCH_PAGE);
        }
        StatementKind::Hint => {
            statement.set_is_idempotent(true);
            statement.set_consistency(Consistency::LocalOne);
        }
        StatementKind::SerialRead => {
            statement.set_is_idempotent(true);
            statement.set_consistency(serial_read(address));
        }
        StatementKind::Append | StatementKind::Transact => {
            statement.set_retry_policy(Some(Arc::new(FallthroughRetryPolicy::new())))
        }
    }
    Ok(statement)
}

fn serial_read(address: &Address) -> Consistency {
    match address.serial {
        scylla::frame::types::SerialConsistency::LocalSerial => Consistency::LocalSerial,
        scylla::frame::types::SerialConsistency::Serial => Consistency::Serial,
    }
}

impl Link {
    /// Connects, and creates the keyspace and tables that are missing.
    pub(crate) async fn open(address: &Address) -> Result<Self, Failure> {
        let session = connect(address).await?;
        schema::prepare(&session, address).await?;
        let copies = schema::copies(&session, &address.keyspace).await?;
        address.check_datacenters(&copies.keys().cloned().collect::<Vec<_>>())?;
        let replicated = copies.values().sum::<u32>() > 1;
        let in_keyspace = session.use_keyspace(&address.keyspace, false).await;
        in_keyspace.map_err(|error| Failure::Unknown(error.to_string()))?;
        let statements = Statements::prepare(&session, address).await?;
        let link = Self { session, replicated, statements };
        // Report a missing read permission now.
        link.execute(&link.statements.topic_get, ("default", "default")).await?;
        Ok(link)
    }

    /// Executes a statement and returns the whole answer, unpaged.
    pub(crate) async fn execute(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<Answer, Failure> {
        Ok(Answer(self.session.execute_unpaged(statement, values).await?))
    }

    /// Executes a statement that is not worth preparing.
    pub(crate) async fn query(&self, text: &str) -> Result<Answer, Failure> {
        query(&self.session, text, ()).await
    }

    /// Executes a statement and passes the rows to `take`, a page at a time, until it breaks.
    pub(crate) async fn each_page<R>(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
        mut take: impl FnMut(Vec<R>) -> ControlFlow<()> + Send,
    ) -> Result<(), Failure>
    where
        R: for<'f, 'm> DeserializeRow<'f, 'm>,
    {
        let mut state = PagingState::start();
        loop {
            let (page, next) = self.session.execute_single_page(statement, &values, state).await?;
            if take(Answer(page).rows()?).is_break() {
                return Ok(());
            }
            match next {
                PagingStateResponse::HasMorePages { state: next } => state = next,
                PagingStateResponse::NoMorePages => return Ok(()),
            }
        }
    }

    /// Returns the rows of all pages.
    pub(crate) async fn all<R>(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<Vec<R>, Failure>
    where
        R: for<'f, 'm> DeserializeRow<'f, 'm> + Send,
    {
        let mut rows = Vec::new();
        self.each_page(statement, values, |page| {
            rows.extend(page);
            ControlFlow::Continue(())
        })
        .await?;
        Ok(rows)
    }

    /// Executes a lightweight transaction. Returns whether it was applied.
    pub(crate) async fn transact(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<bool, Failure> {
        let answer = self.session.execute_unpaged(statement, values).await;
        Answer(answer.map_err(error::of_transaction)?).applied()
    }

    /// Writes rows of one partition atomically. Writing them again changes nothing.
    ///
    /// The driver must not repeat it: if the last attempt is refused, it would not say that an earlier one
    /// may have been applied.
    pub(crate) async fn add_rows<V: SerializeRow>(&self, rows: &[V]) -> Result<(), Failure> {
        let mut lost = None;
        for _ in 0..TRIES {
            match self.add_rows_once(rows).await {
                Ok(()) => return Ok(()),
                Err(error) if error::is_cut(&error) => lost = Some(Failure::Unknown(error.to_string())),
                Err(error) => return Err(lost.unwrap_or_else(|| error.into())),
            }
        }
        Err(lost.unwrap_or_else(|| Failure::Unknown("no answer".to_owned())))
    }

    async fn add_rows_once<V: SerializeRow>(&self, rows: &[V]) -> Result<(), ExecutionError> {
        if let [row] = rows {
            return self.session.execute_unpaged(&self.statements.row_add, row).await.map(drop);
        }
        let statements = rows.iter().map(|_| self.statements.row_add.clone().into()).collect();
        let mut batch = Batch::new_with_statements(BatchType::Unlogged, statements);
        batch.set_retry_policy(Some(Arc::new(FallthroughRetryPolicy::new())));
        if let Some(consistency) = self.statements.row_add.get_consistency() {
            batch.set_consistency(consistency);
        }
        self.session.batch(&batch, rows).await.map(drop)
    }

    /// Adds a segment and marks it as the last, in one lightweight transaction, if the one before it was the
    /// last.
    pub(crate) async fn transact_segment(
        &self,
        mark: impl SerializeRow,
        add: impl SerializeRow,
    ) -> Result<bool, Failure> {
        let statements =
            vec![self.statements.segment_mark.clone().into(), self.statements.segment_add.clone().into()];
        let mut batch = Batch::new_with_statements(BatchType::Unlogged, statements);
        batch.set_retry_policy(Some(Arc::new(FallthroughRetryPolicy::new())));
        batch.set_serial_consistency(self.statements.segment_mark.get_serial_consistency());
        if let Some(consistency) = self.statements.segment_mark.get_consistency() {
            batch.set_consistency(consistency);
        }
        Answer(self.session.batch(&batch, (mark, add)).await.map_err(error::of_transaction)?).applied()
    }
}

async fn connect(address: &Address) -> Result<Session, Failure> {
    let mut balance = DefaultPolicy::builder().token_aware(true);
    if let Some(datacenter) = &address.datacenter {
        // With a local consistency level, another datacenter is no fallback: its replicas may lack these
        // writes.
        balance = balance.prefer_datacenter(datacenter.clone()).permit_dc_failover(!address.is_local());
    }
    let profile = ExecutionProfile::builder()
        .consistency(address.consistency)
        .serial_consistency(Some(address.serial))
        .request_timeout(Some(address.timeout))
        .load_balancing_policy(balance.build())
        .build();
    let mut builder = SessionBuilder::new()
        .known_nodes(&address.nodes)
        .connection_timeout(address.timeout)
        .keyspaces_to_fetch([&address.keyspace])
        .default_execution_profile_handle(profile.into_handle());
    if let Some((user, password)) = &address.login {
        builder = builder.user(user, password);
    }
    if let Security::Verified(authorities) = &address.security {
        builder = builder.tls_context(Some(tls::config(authorities.as_deref())?));
    }
    builder.build().await.map_err(|error| Failure::Refused(error::of_session(&error)))
}

/// Executes a statement that is not prepared, with the time limit of creating a table on a busy ring.
pub(crate) async fn query(
    session: &Session,
    text: &str,
    values: impl SerializeRow,
) -> Result<Answer, Failure> {
    let mut statement = Statement::new(text);
    statement.set_request_timeout(Some(CREATE_TABLE_TIMEOUT));
    Ok(Answer(session.query_unpaged(statement, values).await?))
}

/// The answer to a statement.
pub(crate) struct Answer(QueryResult);

impl Answer {
    pub(crate) fn rows<R>(self) -> Result<Vec<R>, Failure>
    where
        R: for<'f, 'm> DeserializeRow<'f, 'm>,
    {
        if !self.0.is_rows() {
            return Ok(Vec::new());
        }
        let odd = |error: &dyn std::fmt::Display| {
            Failure::Refused(corrupt(format!("rows that cannot be read ({error})")))
        };
        let result = self.0.into_rows_result().map_err(|error| odd(&error))?;
        let rows = result.rows::<R>().map_err(|error| odd(&error))?;
        rows.collect::<Result<Vec<R>, _>>().map_err(|error| odd(&error))
    }

    pub(crate) fn no_rows<R>(self) -> Result<bool, Failure>
    where
        R: for<'f, 'm> DeserializeRow<'f, 'm>,
    {
        Ok(self.rows::<R>()?.is_empty())
    }

    /// Returns whether a lightweight transaction was applied: the first column of the answer.
    pub(crate) fn applied(self) -> Result<bool, Failure> {
        let rows = self.rows::<scylla::value::Row>()?;
        let first = rows.first().and_then(|row| row.columns.first()).and_then(Option::as_ref);
        match first.and_then(scylla::value::CqlValue::as_boolean) {
            Some(applied) => Ok(applied),
            None => Err(Failure::Unknown("the answer does not say whether it was done".to_owned())),
        }
    }
}
