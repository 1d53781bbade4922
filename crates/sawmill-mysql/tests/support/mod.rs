//! What the tests of this engine share: the server that they talk to, and a database of each test's own.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::sync::LazyLock;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder};
use sawmill::clock::Timestamp;
use sawmill::engine::{Engine, Namespace, Store};
use sawmill::env::Env;
use sawmill::log::{Log, Record};
use sawmill::topic::{Topic, TopicSpec};
use sawmill::{Message, MessageId};
use sawmill_mysql::MysqlEngine;
use tokio::runtime::{Builder, Runtime};

/// The time at which the tests play.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// Where `cargo xtask engines up` has started a server.
const VARIABLE: &str = "SAWMILL_TEST_MYSQL";

/// The URL of the server, or why there is none.
pub(crate) fn server() -> Result<String, String> {
    let url = std::env::var(VARIABLE).ok().filter(|url| !url.is_empty());
    url.ok_or_else(|| format!("{VARIABLE} names no server; `cargo xtask engines up mariadb` starts one"))
}

/// A database for this test. Without a server the test is skipped, visibly.
pub(crate) async fn database_for(test: &str) -> Option<Database> {
    match server() {
        Ok(url) => Some(Database::new(&url).await),
        Err(why) => {
            sawmill_conformance::skipped(test, &why);
            None
        }
    }
}

/// A database that goes away with it.
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

    /// The same for somebody who cannot wait.
    pub(crate) fn made_elsewhere(url: String) -> Self {
        elsewhere(async move { Self::new(&url).await }).unwrap()
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

    pub(crate) async fn open(&self, namespace: &str) -> sawmill::Result<Store> {
        MysqlEngine.open(&self.url().parse().unwrap(), &namespace.parse().unwrap()).await
    }

    /// A connection of somebody else's, to this database.
    pub(crate) async fn stranger(&self) -> Conn {
        let opts = OptsBuilder::from_opts(self.server.clone()).db_name(Some(&self.name));
        Conn::new(opts.prefer_socket(false)).await.unwrap()
    }

    /// Does this as somebody who may do everything.
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
        // The test's own runtime is busy with the test, or gone.
        if elsewhere(async move { admin(server, &sql).await }).is_err() {
            eprintln!("database {} is left behind", self.name);
        }
    }
}

/// Does this on a thread of its own, in a runtime that stays as long as the test program: what is opened there stays open.
pub(crate) fn elsewhere<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> std::thread::Result<T> {
    static RUNTIME: LazyLock<Runtime> =
        LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap());
    std::thread::spawn(|| RUNTIME.block_on(work)).join()
}

pub(crate) fn random() -> u64 {
    Env::system().dice().roll()
}

pub(crate) fn default_namespace() -> Namespace {
    Namespace::default()
}

/// Creates a topic with this many shards.
pub(crate) async fn topic(log: &dyn Log, name: &str, shards: u16) -> Topic {
    let spec = TopicSpec { shards, ..TopicSpec::new(name.parse().unwrap()) };
    log.create_topic(&spec).await.unwrap()
}

/// A message that says this, due at once.
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

/// A record that says this, for a shard.
pub(crate) fn record(shard: u16, text: impl Into<String>) -> Record {
    Record::once(shard, message(text.into()))
}

/// InnoDB's own report. Unlike the list of transactions in the information schema it is made anew for everybody who asks.
pub(crate) async fn innodb_status(watch: &mut Conn) -> String {
    let row: (String, String, String) =
        watch.query_first("SHOW ENGINE INNODB STATUS").await.unwrap().unwrap();
    row.2
}

/// Waits until a transaction waits for a row of this table.
pub(crate) async fn stands_in_line(watch: &mut Conn, table: &str) {
    let stands = |status: &str| {
        let transactions = status.split("\nTRANSACTIONS\n").nth(1).unwrap_or_default();
        transactions.lines().any(|line| line.contains(table) && line.trim_end().ends_with("waiting"))
    };
    while !stands(&innodb_status(watch).await) {
        Env::system().sleep(Duration::from_millis(10)).await;
    }
}

/// No wait is longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for what must happen soon.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = Env::system().within(PATIENCE, future).await;
    done.unwrap_or_else(|| panic!("test timed out: {what}"))
}
