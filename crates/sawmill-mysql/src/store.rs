//! An open database, shared by all clones of its store.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mysql_async::Opts;
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{Capabilities, Namespace, Notifier, StoreUrl};
use sawmill_engine::{Error, Result};

use crate::address::opts_of;
use crate::connection::connections::{Connection, Connections};
use crate::connection::incarnation;
use crate::connection::retry::Retry;
use crate::connection::server::Server;
use crate::error::Failure;
use crate::log::trim;
use crate::schema::{self, STEPS, Step, Tables};
use crate::{CAPABILITIES, within};

/// A log and a ledger in a MySQL or MariaDB database. Clones share it; its connections are closed when the
/// last clone is dropped.
#[derive(Clone)]
pub struct Mysql {
    open: Arc<Open>,
}

struct Open {
    tables: Tables,
    server: Server,
    notifier: Arc<Notifier>,
    env: Env,
    connections: Connections,
    sweeping: AtomicBool,
}

impl Mysql {
    /// Connects, and creates or migrates the tables of the namespace.
    pub async fn open(url: &StoreUrl, namespace: &Namespace) -> Result<Self> {
        Self::open_at(STEPS, url, namespace).await
    }

    /// Opens the store like a program that knows only these migration steps.
    pub(crate) async fn open_at(steps: &[Step], url: &StoreUrl, namespace: &Namespace) -> Result<Self> {
        Self::connect(opts_of(url)?, namespace, steps, Env::system())
            .await
            .map_err(|error| Error::new(error.kind(), format!("{url}: {error}")))
    }

    async fn connect(opts: Opts, namespace: &Namespace, steps: &[Step], env: Env) -> Result<Self> {
        let database = opts.db_name().unwrap_or_default();
        let database_key =
            format!("mysql://{}:{}/{database} {namespace:?}", opts.ip_or_hostname(), opts.tcp_port());
        let connections = Connections::new(opts, env.clone());
        let server = Server::ask(&mut connections.take().await?).await?;
        let tables = Tables::of(namespace);
        schema::prepare(&connections, &tables, steps, &mut Retry::new(&env)).await?;
        let open = Open {
            tables,
            server,
            notifier: Notifier::of(database_key),
            env,
            connections,
            sweeping: AtomicBool::new(false),
        };
        let store = Self { open: Arc::new(open) };
        store.sweep();
        Ok(store)
    }

    /// Runs a piece of work. Repeats it after a collision of transactions or a broken connection.
    pub(crate) async fn work<T, F>(&self, work: impl Fn() -> F + Send) -> Result<T>
    where
        F: Future<Output = Result<T, Failure>> + Send,
        T: Send,
    {
        let mut retry = Retry::new(&self.open.env);
        loop {
            match work().await {
                Ok(done) => return Ok(done),
                Err(failure) => retry.again(failure).await?,
            }
        }
    }

    /// Removes the rest of deleted topics and old records of finished messages in the background. One run at
    /// a time is enough.
    pub(crate) fn sweep(&self) {
        if self.open.sweeping.swap(true, Ordering::SeqCst) {
            return;
        }
        let store = self.clone();
        self.open.env.spawn(async move {
            let swept = store.work(|| async {
                while trim::sweep(&mut store.connection().await?, store.tables()).await? {}
                while within::forget(&mut store.connection().await?, store.tables()).await? {}
                Ok(())
            });
            if let Err(error) = swept.await {
                tracing::warn!(%error, "what is not needed any more could not be removed; the next trim tries again");
            }
            store.open.sweeping.store(false, Ordering::SeqCst);
        });
    }

    pub(crate) async fn connection(&self) -> Result<Connection, Failure> {
        let mut connection = self.open.connections.take().await?;
        if connection.is_new {
            incarnation::begin(&mut connection, self.tables(), self.env().rng().next_u64()).await?;
            connection.is_new = false;
        }
        Ok(connection)
    }

    pub(crate) fn tables(&self) -> &Tables {
        &self.open.tables
    }

    pub(crate) fn notifier(&self) -> &Notifier {
        &self.open.notifier
    }

    pub(crate) fn env(&self) -> &Env {
        &self.open.env
    }

    /// The maximum number of bytes to send at once.
    pub(crate) fn packet(&self) -> usize {
        self.open.server.packet
    }

    pub(crate) fn server(&self) -> Server {
        self.open.server
    }

    pub(crate) fn server_capabilities(&self) -> Capabilities {
        self.open.server.capabilities(CAPABILITIES)
    }

    /// Returns what was done on this database since it was opened here.
    pub fn activity(&self) -> Activity {
        let (questions, connections) = self.open.connections.tally();
        Activity { questions, connections }
    }
}

/// Returns the schema version of a namespace, or `None` if it has no tables.
pub(crate) async fn schema_version(opts: Opts, namespace: &Namespace, env: Env) -> Result<Option<u32>> {
    let connections = Connections::new(opts, env);
    Ok(schema::version(&mut connections.take().await?, &Tables::of(namespace)).await?)
}

/// Counts how often a database was used through one [`Mysql`] and its clones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Activity {
    /// Round trips: packets of one or more statements.
    pub questions: u64,
    /// Connections that were opened.
    pub connections: u64,
}

impl fmt::Debug for Mysql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mysql").field("namespace", &self.open.tables.namespace).finish_non_exhaustive()
    }
}
