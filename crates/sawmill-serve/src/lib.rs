//! Serves Sawmill over HTTP on any store: an API for other languages, a page for operators, and metrics.
//!
//! A [`Server`] makes an axum [`Router`] for embedding in a service. It can also listen by itself:
//!
//! ```no_run
//! use sawmill::Sawmill;
//! use sawmill::engine::runtime::Env;
//! use sawmill_serve::{Options, Server};
//! use tokio_util::sync::CancellationToken;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mill = Sawmill::open("memory:").await?;
//! let server = Server::new(mill, Env::system(), Options::default());
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:7171").await?;
//! server.listen(listener, CancellationToken::new()).await;
//! # Ok(()) }
//! ```
//!
//! # Access control
//!
//! [`Door::Open`] lets in everybody who reaches the address, until the first access key is created. It is
//! meant for loopback only. Do not put it behind a proxy: the server refuses only requests that the proxy
//! marks as forwarded.
//!
//! With [`Door::Keys`], each request needs an access key, made by [`secret::create`] or `sawmill key
//! create`. It is sent as `Authorization: Bearer …`, or in the cookie that the page's login sets. The store
//! keeps a digest of it.
//!
//! In both modes, requests that another site makes through a browser are refused: by their `Host` (a name
//! that was not allowed is a sign of DNS rebinding), by their `Origin`, and by their content type. A change
//! that is authorized by a cookie also needs a header that only the page sends.
//!
//! # Working over HTTP
//!
//! A worker in this process answers pulls: one for each topic, group and set of settings; see `jobs.rs`. A
//! job that is not answered in time is run again. `/openapi.json` describes the whole API.

mod answer;
mod body;
mod dead;
mod events;
mod groups;
mod guard;
mod jobs;
mod listen;
mod metrics;
mod page;
mod pull;
mod push;
mod rate;
mod routes;
pub mod secret;
mod session;
mod status_cache;
mod topics;
mod view;
mod write_timeout;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use sawmill::engine::runtime::Env;
use sawmill::{Producer, Sawmill};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use body::MemoryBudget;
use jobs::Jobs;
use metrics::Health;
use rate::Rates;
use secret::AccessKeys;
use status_cache::StatusCache;

/// The API description in OpenAPI 3.1.
pub const OPENAPI: &str = include_str!("../openapi.json");

/// Which callers are let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// Everybody who reaches the address, as long as the store has no access keys: for loopback only.
    /// Requests that a proxy marks as forwarded are refused, because they come from elsewhere. Not every
    /// proxy marks them.
    Open,
    /// Callers with an access key.
    Keys,
}

/// Settings of a server.
#[derive(Clone)]
pub struct Options {
    /// Which callers are let in.
    pub door: Door,
    /// Names the server may be called by, besides `localhost` and IP addresses.
    pub hosts: Vec<String>,
    /// The maximum body size of a request, in bytes.
    pub most_bytes: usize,
    /// The maximum total size of all bodies being processed, in bytes. At least `most_bytes`.
    pub most_bytes_together: usize,
    /// The maximum requests per second, for each access key and for each address without one. A burst may be
    /// twice as large.
    pub most_per_second: u32,
    /// The maximum time for a request to arrive.
    pub patience: Duration,
    /// The maximum time to wait for a client that does not read its response. A client that reads at least 32
    /// KiB a second is never disconnected.
    pub write_patience: Duration,
    /// The maximum number of open connections.
    pub most_connections: usize,
    /// Marks the cookie as `Secure`: for servers behind a proxy that terminates TLS.
    pub secure_cookies: bool,
    /// Renders this process's metrics in the Prometheus text format. The server adds the status of every
    /// group.
    pub metrics: Option<Arc<dyn Fn() -> String + Send + Sync>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            door: Door::Open,
            hosts: Vec::new(),
            most_bytes: 24 << 20,
            most_bytes_together: 256 << 20,
            most_per_second: 2_000,
            patience: Duration::from_secs(15),
            write_patience: Duration::from_secs(30),
            most_connections: 1024,
            secure_cookies: false,
            metrics: None,
        }
    }
}

/// Serves a store. Clones share its state; when the last one is dropped, its workers stop.
#[derive(Clone)]
pub struct Server {
    app: Arc<App>,
}

/// State shared by all requests.
struct App {
    mill: Sawmill,
    env: Env,
    options: Options,
    access_keys: AccessKeys,
    rates: Rates,
    status_cache: StatusCache,
    jobs: Jobs,
    /// One producer per topic, which batches concurrent pushes.
    producers: Mutex<BTreeMap<String, Producer>>,
    /// Permits for open event streams.
    watchers: Arc<Semaphore>,
    /// Memory for bodies.
    memory: MemoryBudget,
    health: Health,
    /// Cancelled when the server stops, to end waiting requests.
    closing: CancellationToken,
}

impl App {
    /// Returns which callers are let in now. The first access key closes an open server.
    async fn door(&self) -> sawmill::Result<Door> {
        match self.options.door {
            Door::Open if !self.access_keys.exist().await? => Ok(Door::Open),
            _ => Ok(Door::Keys),
        }
    }
}

/// The maximum number of open event streams.
const MAX_WATCHERS: usize = 100;

impl Server {
    /// Creates a server for this store. Must be called on a tokio runtime.
    pub fn new(mill: Sawmill, env: Env, options: Options) -> Self {
        let app = Arc::new(App {
            jobs: Jobs::new(mill.clone(), env.clone()),
            status_cache: StatusCache::new(mill.clone(), env.clone()),
            access_keys: AccessKeys::new(mill.clone(), env.clone()),
            rates: Rates::new(env.clone(), options.most_per_second),
            producers: Mutex::default(),
            watchers: Arc::new(Semaphore::new(MAX_WATCHERS)),
            memory: MemoryBudget::new(options.most_bytes_together.max(options.most_bytes)),
            health: Health::default(),
            closing: CancellationToken::new(),
            mill,
            env,
            options,
        });
        app.env.spawn(jobs::maintain(Arc::downgrade(&app)));
        Self { app }
    }

    /// Returns a router for embedding in a service. All callers without an access key then share one rate
    /// limit.
    pub fn router(&self) -> Router {
        routes::router(self.app.clone())
    }

    /// Returns the lower-case method and path of every route.
    pub fn routes() -> Vec<(&'static str, &'static str)> {
        routes::names()
    }

    /// Serves connections until `stop` is cancelled. Then finishes requests in progress and gives back pulled
    /// jobs.
    pub async fn listen(&self, listener: TcpListener, stop: CancellationToken) {
        listen::run(&self.app, self.router(), listener, stop).await;
        self.close().await;
    }

    /// Ends waiting requests and gives back pulled jobs that were not answered.
    pub async fn close(&self) {
        self.app.closing.cancel();
        self.app.jobs.close().await;
    }
}

/// Locks a mutex, ignoring poison: each change is a single step, so a panic leaves no partial change.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
