//! Helpers shared by the tests of this engine: the server, a database per test, messages.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::sync::LazyLock;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder};
use sawmill::{Message, MessageId, Timestamp, TopicSpec};
use sawmill_engine::model::Topic;
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{Engine, Log, Namespace, OpenedStore, Record};
use sawmill_mysql::MysqlEngine;
use tokio::runtime::{Builder, Runtime};

/// The current time in tests.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// Names the server that `cargo xtask engines up` has started.
const VARIABLE: &str = "SAWMILL_TEST_MYSQL";

/// Returns the URL of the test server, or the reason why there is none.
pub(crate) fn server() -> Result<String, String> {
    let url = std::env::var(VARIABLE).ok().filter(|url| !url.is_empty());
    url.ok_or_else(|| format!("{VARIABLE} names no server; `cargo xtask engines up mariadb` starts one"))
}

/// Creates a database for this test. Without a server, reports the test as skipped.
pub(crate) async fn database_for(test: &str) -> Option<Database> {
    match server() {
        Ok(url) => Some(Database::new(&url).await),
        Err(why) => {
            sawmill_conformance::skipped(test, &why);
            None
        }
    }
}

/// A database that is dropped with this value.
pub(crate) struct Database {
    server: Opts,
    pub(crate) name: String,
}

impl Database {
    pub(crate) async fn new(url: &str) -> Self {
        let database =
            Self { server: Opts::from_url(url).unwrap(), name: format!("sawmill_{:016x}", random()) };
        database.admin(&format!("CREATE DATABASE {}", database.name)).await;
        database
    }

    /// Creates a database from code that is not async.
    pub(crate) fn new_blocking(url: String) -> Self {
        on_background_runtime(async move { Self::new(&url).await }).unwrap()
    }

    pub(crate) fn url(&self) -> String {
        self.url_as(self.server.user().unwrap(), self.server.pass().unwrap_or_default())
    }

    pub(crate) fn url_as(&self, user: &str, password: &str) -> String {
        self.url_to(user, password, &self.name)
    }

    pub(crate) fn url_to(&self, user: &str, password: &str, database: &str) -> String {
        let (host, port) = (self.server.ip_or_hostname(), self.server.tcp_port());
        format!("mysql://{user}:{password}@{host}:{port}/{database}")
    }

    pub(crate) async fn open(&self, namespace: &str) -> sawmill::Result<OpenedStore> {
        MysqlEngine.open(&self.url().parse().unwrap(), &namespace.parse().unwrap()).await
    }

    /// Returns a plain connection to this database, which is not part of Sawmill.
    pub(crate) async fn plain_connection(&self) -> Conn {
        let opts = OptsBuilder::from_opts(self.server.clone()).db_name(Some(&self.name));
        Conn::new(opts.prefer_socket(false)).await.unwrap()
    }

    /// Runs a statement as an administrator.
    pub(crate) async fn admin(&self, sql: &str) {
        admin(self.server.clone(), sql).await;
    }
}

async fn admin(server: Opts, sql: &str) {
    let opts = OptsBuilder::from_opts(server).prefer_socket(false);
    let mut conn = Conn::new(opts).await.unwrap();
    conn.query_drop(sql).await.unwrap();
    conn.disconnect().await.unwrap();
}

impl Drop for Database {
    fn drop(&mut self) {
        let (server, sql) = (self.server.clone(), format!("DROP DATABASE {}", self.name));
        // The test's own runtime is busy or gone.
        if on_background_runtime(async move { admin(server, &sql).await }).is_err() {
            eprintln!("database {} is left behind", self.name);
        }
    }
}

/// Runs work on a separate thread, in a runtime that lives as long as the test program, so connections opened
/// there stay open.
pub(crate) fn on_background_runtime<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> std::thread::Result<T> {
    static RUNTIME: LazyLock<Runtime> =
        LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap());
    std::thread::spawn(|| RUNTIME.block_on(work)).join()
}

pub(crate) fn random() -> u64 {
    Env::system().rng().next_u64()
}

pub(crate) fn default_namespace() -> Namespace {
    Namespace::default()
}

/// Creates a topic with this many shards.
pub(crate) async fn topic(log: &dyn Log, name: &str, shards: u16) -> Topic {
    let spec = TopicSpec { shards, ..TopicSpec::new(name.parse().unwrap()) };
    log.create_topic(&spec).await.unwrap()
}

/// A message with this payload, due at once.
pub(crate) fn message(text: String) -> Message {
    Message {
        id: MessageId::from_u128(u128::from(random()) << 64 | u128::from(random())),
        key: None,
        payload: text.into(),
        headers: Default::default(),
        due: None,
        created: NOW,
    }
}

/// A record with this payload for a shard.
pub(crate) fn record(shard: u16, text: impl Into<String>) -> Record {
    Record::once(shard, message(text.into()))
}

/// Returns InnoDB's status report. Unlike the transaction list in the information schema, it is never cached.
pub(crate) async fn innodb_status(watch: &mut Conn) -> String {
    let row: (String, String, String) =
        watch.query_first("SHOW ENGINE INNODB STATUS").await.unwrap().unwrap();
    row.2
}

/// Waits until a transaction waits for a row lock in this table.
pub(crate) async fn waits_for_lock(watch: &mut Conn, table: &str) {
    let waits = |status: &str| {
        let transactions = status.split("\nTRANSACTIONS\n").nth(1).unwrap_or_default();
        transactions.lines().any(|line| line.contains(table) && line.trim_end().ends_with("waiting"))
    };
    while !waits(&innodb_status(watch).await) {
        Env::system().sleep(Duration::from_millis(10)).await;
    }
}

/// The time limit of every wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Waits at most for [`PATIENCE`].
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = Env::system().within(PATIENCE, future).await;
    done.unwrap_or_else(|| panic!("test timed out: {what}"))
}
