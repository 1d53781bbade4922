//! An open database, shared by everybody who holds it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mysql_async::Opts;
use sawmill::bells::Bells;
use sawmill::engine::{Capabilities, Namespace, StoreUrl};
use sawmill::env::Env;
use sawmill::{Error, Result};

use crate::address::opts_of;
use crate::connections::{Connections, Line};
use crate::error::Failure;
use crate::schema::{self, STEPS, Step, Tables};
use crate::server::Server;
use crate::tries::Tries;
use crate::{CAPABILITIES, life, trim, within};

/// A log and a ledger in a MySQL or MariaDB database. Clones share it; its connections are closed when the last of them is dropped.
#[derive(Clone)]
pub struct Mysql {
    open: Arc<Open>,
}

struct Open {
    tables: Tables,
    server: Server,
    bells: Arc<Bells>,
    env: Env,
    connections: Connections,
    sweeping: AtomicBool,
}

impl Mysql {
    /// Connects, and makes or migrates the tables of the namespace.
    pub async fn open(url: &StoreUrl, namespace: &Namespace) -> Result<Self> {
        Self::open_at(STEPS, url, namespace).await
    }

    /// The same, as a program would that knows these versions of the tables.
    pub(crate) async fn open_at(steps: &[Step], url: &StoreUrl, namespace: &Namespace) -> Result<Self> {
        Self::connect(opts_of(url)?, namespace, steps, Env::system())
            .await
            .map_err(|error| Error::new(error.kind(), format!("{url}: {error}")))
    }

    async fn connect(opts: Opts, namespace: &Namespace, steps: &[Step], env: Env) -> Result<Self> {
        let database = opts.db_name().unwrap_or_default();
        let place = format!("mysql://{}:{}/{database} {namespace:?}", opts.ip_or_hostname(), opts.tcp_port());
        let connections = Connections::new(opts, env.clone());
        let server = Server::ask(&mut connections.take().await?).await?;
        let tables = Tables::of(namespace);
        schema::prepare(&connections, &tables, steps, &mut Tries::new(&env)).await?;
        let open = Open {
            tables,
            server,
            bells: Bells::of(place),
            env,
            connections,
            sweeping: AtomicBool::new(false),
        };
        let store = Self { open: Arc::new(open) };
        store.sweep();
        Ok(store)
    }

    /// Does a piece of work, and again if two were in each other's way or a connection was found broken.
    pub(crate) async fn work<T, F>(&self, work: impl Fn() -> F + Send) -> Result<T>
    where
        F: Future<Output = Result<T, Failure>> + Send,
        T: Send,
    {
        let mut tries = Tries::new(&self.open.env);
        loop {
            match work().await {
                Ok(done) => return Ok(done),
                Err(failure) => tries.again(failure).await?,
            }
        }
    }

    /// Removes what deleted topics have left, and what was finished long ago, beside everything else. One who is at it is enough.
    pub(crate) fn sweep(&self) {
        if self.open.sweeping.swap(true, Ordering::SeqCst) {
            return;
        }
        let store = self.clone();
        self.open.env.spawn(async move {
            let swept = store.work(|| async {
                while trim::sweep(&mut store.line().await?, store.tables()).await? {}
                while within::forget(&mut store.line().await?, store.tables()).await? {}
                Ok(())
            });
            if let Err(error) = swept.await {
                tracing::warn!(%error, "what is not needed any more could not be removed; the next trim tries again");
            }
            store.open.sweeping.store(false, Ordering::SeqCst);
        });
    }

    pub(crate) async fn line(&self) -> Result<Line, Failure> {
        let mut line = self.open.connections.take().await?;
        if line.is_new {
            life::begin(&mut line, self.tables(), self.env().dice().roll()).await?;
            line.is_new = false;
        }
        Ok(line)
    }

    pub(crate) fn tables(&self) -> &Tables {
        &self.open.tables
    }

    pub(crate) fn bells(&self) -> &Bells {
        &self.open.bells
    }

    pub(crate) fn env(&self) -> &Env {
        &self.open.env
    }

    /// The most bytes that may be sent at once.
    pub(crate) fn packet(&self) -> usize {
        self.open.server.packet
    }

    pub(crate) fn server(&self) -> Server {
        self.open.server
    }

    pub(crate) fn able(&self) -> Capabilities {
        self.open.server.capabilities(CAPABILITIES)
    }

    /// What was done on this database since it was opened here.
    pub fn activity(&self) -> Activity {
        let (questions, connections) = self.open.connections.tally();
        Activity { questions, connections }
    }
}

/// The version of a namespace's tables; none if they are not there.
pub(crate) async fn schema_version(opts: Opts, namespace: &Namespace, env: Env) -> Result<Option<u32>> {
    let connections = Connections::new(opts, env);
    Ok(schema::version(&mut connections.take().await?, &Tables::of(namespace)).await?)
}

/// How often a database was used through one [`Mysql`] and its clones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Activity {
    /// Round trips: packets of one or more statements.
    pub questions: u64,
    /// Connections that were made.
    pub connections: u64,
}

impl fmt::Debug for Mysql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mysql").field("namespace", &self.open.tables.namespace).finish_non_exhaustive()
    }
}
