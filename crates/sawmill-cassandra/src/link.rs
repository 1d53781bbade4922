//! The way to the ring: one session, and every statement prepared, so that it goes to a node that has the row.

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
use crate::error::{self, Trouble, corrupt};
use crate::{schema, tls};

/// How many rows come at a time.
const PAGE: i32 = 2000;

/// How many packs of messages come at a time, where a whole bucket is searched.
const SEARCHED: i32 = 32;
/// How often rows are written again whose answer got lost with the connection.
const TRIES: usize = 3;

/// How long it may take to make a table.
const LONGEST_MAKING: Duration = Duration::from_secs(60);

/// A session and its statements.
pub(crate) struct Link {
    session: Session,
    /// Each row is on more than one node.
    pub(crate) replicated: bool,
    pub(crate) say: Statements,
}

macro_rules! statements {
    ($($kind:ident $name:ident: $text:expr;)*) => {
        /// All that is ever said.
        pub(crate) struct Statements {
            $(pub(crate) $name: PreparedStatement,)*
        }

        impl Statements {
            async fn prepare(session: &Session, address: &Address) -> Result<Self, Trouble> {
                $(let $name = prepare(session, address, Manner::$kind, $text);)*
                Ok(Self { $($name: $name.await?,)* })
            }
        }
    };
}

statements! {
    Read topic_get: "SELECT uid, shards, retention_ms, drops_unread, bucket_ms, settle_ms, keep_s FROM topics \
        WHERE namespace = ? AND name = ?";
    Read topic_list: "SELECT name, uid, shards, retention_ms, drops_unread FROM topics WHERE namespace = ?";
    Decide topic_make: "INSERT INTO topics (namespace, name, uid, shards, retention_ms, drops_unread, bucket_ms, settle_ms, keep_s) \
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS";
    Decide topic_drop: "DELETE FROM topics WHERE namespace = ? AND name = ? IF uid = ?";
    Sure topic_get_sure: "SELECT uid, shards, retention_ms, drops_unread, bucket_ms, settle_ms, keep_s FROM topics \
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
    Sure segment_after_sure: "SELECT n, named, state FROM segments WHERE topic = ? AND shard = ? AND chapter = ? AND n > ? LIMIT ?";
    Read segment_back: "SELECT n, named, state FROM segments WHERE topic = ? AND shard = ? AND chapter = ? AND n <= ? \
        ORDER BY n DESC LIMIT ?";
    Decide segment_mark: "UPDATE segments SET last = ?, tail = ? WHERE topic = ? AND shard = ? AND chapter = ? IF last = ?";
    Decide segment_add: "INSERT INTO segments (topic, shard, chapter, n, named, state) VALUES (?, ?, ?, ?, ?, ?) USING TTL ?";
    Read chapter_get: "SELECT chapter FROM chapters WHERE topic = ? AND shard = ?";
    Write chapter_set: "INSERT INTO chapters (topic, shard, chapter) VALUES (?, ?, ?) USING TIMESTAMP ?";

    Decide id_take: "INSERT INTO ids (topic, id, shard, kind, at, seq, writer) VALUES (?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS USING TTL ?";
    Decide id_move: "UPDATE ids USING TTL ? SET shard = ?, kind = ?, at = ?, seq = ?, writer = ? WHERE topic = ? AND id = ? \
        IF seq = ? AND writer = ?";
    Sure id_get: "SELECT shard, kind, at, seq, writer FROM ids WHERE topic = ? AND id = ?";
    Write sure_add: "INSERT INTO sures (topic, id) VALUES (?, ?) USING TTL ?";
    Read sure_get: "SELECT id FROM sures WHERE topic = ? AND id = ?";

    Hint pulse_set: "INSERT INTO pulses (namespace, topic, number) VALUES (?, ?, ?)";
    Hint pulse_list: "SELECT topic, number FROM pulses WHERE namespace = ?";
    Hint pulse_drop: "DELETE FROM pulses WHERE namespace = ? AND topic = ?";

    Read entry_get: "SELECT version, value, dead FROM ledger WHERE namespace = ? AND name = ?";
    Sure entry_get_sure: "SELECT version, write FROM ledger WHERE namespace = ? AND name = ?";
    Decide entry_set: "UPDATE ledger SET version = ?, value = ?, dead = false, write = ? WHERE namespace = ? AND name = ? \
        IF version = ?";
    Decide entry_drop: "UPDATE ledger USING TTL 864000 SET version = ?, value = 0x, dead = true, write = ? \
        WHERE namespace = ? AND name = ? IF version = ?";
    Write name_add: "INSERT INTO ledger_names (namespace, name) VALUES (?, ?)";
    Write name_drop: "DELETE FROM ledger_names WHERE namespace = ? AND name = ?";
    Read name_list: "SELECT name FROM ledger_names WHERE namespace = ? AND name >= ? AND name < ?";
}

/// What kind of statement it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// May be asked again, of another node.
    Read,
    /// The same, of rows that are large.
    Search,
    /// A read after which nothing of what was decided before is undecided.
    Sure,
    /// Writes a row that is the same each time: may be said again.
    Write,
    /// The same, of messages: it must be known whether it was said before.
    Append,
    /// A lightweight transaction: said once.
    Decide,
    /// It does not matter much whether it is done or what is answered.
    Hint,
}

async fn prepare(
    session: &Session,
    address: &Address,
    manner: Manner,
    text: &str,
) -> Result<PreparedStatement, Trouble> {
    let mut statement = session.prepare(text).await?;
    statement.set_page_size(PAGE);
    statement.set_consistency(address.consistency);
    statement.set_serial_consistency(Some(address.serial));
    match manner {
        Manner::Read | Manner::Write => statement.set_is_idempotent(true),
        Manner::Search => {
            statement.set_is_idempotent(true);
            statement.set_page_size(SEARCHED);
        }
        Manner::Hint => {
            statement.set_is_idempotent(true);
            statement.set_consistency(Consistency::LocalOne);
        }
        Manner::Sure => {
            statement.set_is_idempotent(true);
            statement.set_consistency(serial_read(address));
        }
        Manner::Append | Manner::Decide => {
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
    /// Connects, and makes what is missing.
    pub(crate) async fn open(address: &Address) -> Result<Self, Trouble> {
        let session = connect(address).await?;
        schema::prepare(&session, address).await?;
        let copies = schema::copies(&session, &address.keyspace).await?;
        address.check_datacenters(&copies.keys().cloned().collect::<Vec<_>>())?;
        let replicated = copies.values().sum::<u32>() > 1;
        let in_keyspace = session.use_keyspace(&address.keyspace, false).await;
        in_keyspace.map_err(|error| Trouble::Unknown(error.to_string()))?;
        let say = Statements::prepare(&session, address).await?;
        let link = Self { session, replicated, say };
        // Whoever may not even read hears of it now.
        link.ask(&link.say.topic_get, ("default", "default")).await?;
        Ok(link)
    }

    /// Says it, and takes the whole answer at once.
    pub(crate) async fn ask(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<Answer, Trouble> {
        Ok(Answer(self.session.execute_unpaged(statement, values).await?))
    }

    /// Says something that is said seldom.
    pub(crate) async fn query(&self, text: &str) -> Result<Answer, Trouble> {
        query(&self.session, text, ()).await
    }

    /// Asks, and is given the rows, a page at a time, until it has enough.
    pub(crate) async fn each_page<R>(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
        mut take: impl FnMut(Vec<R>) -> ControlFlow<()> + Send,
    ) -> Result<(), Trouble>
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

    /// All rows, however many pages they are.
    pub(crate) async fn all<R>(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<Vec<R>, Trouble>
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

    /// A lightweight transaction: whether it was done.
    pub(crate) async fn decide(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<bool, Trouble> {
        let answer = self.session.execute_unpaged(statement, values).await;
        Answer(answer.map_err(error::of_decision)?).applied()
    }

    /// Writes rows of one partition together: all of them can be read, or none. What is written again is the same.
    ///
    /// The driver does not repeat it: if the last attempt is refused, it would not say that one before may have been taken.
    pub(crate) async fn add_rows<V: SerializeRow>(&self, rows: &[V]) -> Result<(), Trouble> {
        let mut lost = None;
        for _ in 0..TRIES {
            match self.add_rows_once(rows).await {
                Ok(()) => return Ok(()),
                Err(error) if error::is_cut(&error) => lost = Some(Trouble::Unknown(error.to_string())),
                Err(error) => return Err(lost.unwrap_or_else(|| error.into())),
            }
        }
        Err(lost.unwrap_or_else(|| Trouble::Unknown("no answer".to_owned())))
    }

    async fn add_rows_once<V: SerializeRow>(&self, rows: &[V]) -> Result<(), ExecutionError> {
        if let [row] = rows {
            return self.session.execute_unpaged(&self.say.row_add, row).await.map(drop);
        }
        let statements = rows.iter().map(|_| self.say.row_add.clone().into()).collect();
        let mut batch = Batch::new_with_statements(BatchType::Unlogged, statements);
        batch.set_retry_policy(Some(Arc::new(FallthroughRetryPolicy::new())));
        if let Some(consistency) = self.say.row_add.get_consistency() {
            batch.set_consistency(consistency);
        }
        self.session.batch(&batch, rows).await.map(drop)
    }

    /// Decides upon a segment: marks it as the last, and adds it, if the one before it was the last.
    pub(crate) async fn decide_segment(
        &self,
        mark: impl SerializeRow,
        add: impl SerializeRow,
    ) -> Result<bool, Trouble> {
        let statements = vec![self.say.segment_mark.clone().into(), self.say.segment_add.clone().into()];
        let mut batch = Batch::new_with_statements(BatchType::Unlogged, statements);
        batch.set_retry_policy(Some(Arc::new(FallthroughRetryPolicy::new())));
        batch.set_serial_consistency(self.say.segment_mark.get_serial_consistency());
        if let Some(consistency) = self.say.segment_mark.get_consistency() {
            batch.set_consistency(consistency);
        }
        Answer(self.session.batch(&batch, (mark, add)).await.map_err(error::of_decision)?).applied()
    }
}

async fn connect(address: &Address) -> Result<Session, Trouble> {
    let mut balance = DefaultPolicy::builder().token_aware(true);
    if let Some(datacenter) = &address.datacenter {
        // What is local there is not what is local here.
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
    builder.build().await.map_err(|error| Trouble::Refused(error::of_session(&error)))
}

/// Says something that is said once in a store's life. Making a table takes a busy ring its time.
pub(crate) async fn query(
    session: &Session,
    text: &str,
    values: impl SerializeRow,
) -> Result<Answer, Trouble> {
    let mut statement = Statement::new(text);
    statement.set_request_timeout(Some(LONGEST_MAKING));
    Ok(Answer(session.query_unpaged(statement, values).await?))
}

/// What came back.
pub(crate) struct Answer(QueryResult);

impl Answer {
    pub(crate) fn rows<R>(self) -> Result<Vec<R>, Trouble>
    where
        R: for<'f, 'm> DeserializeRow<'f, 'm>,
    {
        if !self.0.is_rows() {
            return Ok(Vec::new());
        }
        let odd = |error: &dyn std::fmt::Display| {
            Trouble::Refused(corrupt(format!("rows that cannot be read ({error})")))
        };
        let result = self.0.into_rows_result().map_err(|error| odd(&error))?;
        let rows = result.rows::<R>().map_err(|error| odd(&error))?;
        rows.collect::<Result<Vec<R>, _>>().map_err(|error| odd(&error))
    }

    pub(crate) fn no_rows<R>(self) -> Result<bool, Trouble>
    where
        R: for<'f, 'm> DeserializeRow<'f, 'm>,
    {
        Ok(self.rows::<R>()?.is_empty())
    }

    /// Whether a lightweight transaction was done; the answer begins with that.
    pub(crate) fn applied(self) -> Result<bool, Trouble> {
        let rows = self.rows::<scylla::value::Row>()?;
        let first = rows.first().and_then(|row| row.columns.first()).and_then(Option::as_ref);
        match first.and_then(scylla::value::CqlValue::as_boolean) {
            Some(applied) => Ok(applied),
            None => Err(Trouble::Unknown("the answer does not say whether it was done".to_owned())),
        }
    }
}
