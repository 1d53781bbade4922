//! Sawmill over HTTP: an API for other languages, a page for operators, and metrics, on any store.
//!
//! A [`Server`] makes an axum [`Router`] that a service can embed, and can listen by itself:
//!
//! ```no_run
//! use sawmill::{Sawmill, env::Env};
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
//! # Who may do what
//!
//! With [`Door::Open`] everybody who reaches the address may do everything, until the first token is made: for loopback alone,
//! and not behind a proxy, of which only what it marks as passed on is refused. With [`Door::Tokens`] each
//! request needs a token, made by [`secret::create`] or `sawmill token create`: as `Authorization: Bearer …`, or in the
//! cookie that the page's login sets. The store keeps a digest of it. Whatever the door, requests that come from other sites
//! through somebody's browser are refused: by their `Host` (names that were not allowed, which is how DNS rebinding looks), by
//! their `Origin`, and by the type of their content; and a change that a cookie allows needs the page's own header, too.
//!
//! # Working over HTTP
//!
//! A pull is answered by a worker in this process, one for each topic, group and set of rules that is asked for; see
//! `jobs.rs`. What was handed out has to be answered in time, or it is run again. The document at `/openapi.json` says the rest.

mod answer;
mod board;
mod body;
mod dead;
mod events;
mod groups;
mod guard;
mod impatient;
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
mod topics;
mod view;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use sawmill::env::Env;
use sawmill::{Producer, Sawmill};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use board::Board;
use body::Room;
use jobs::Jobs;
use metrics::Health;
use rate::Rates;
use secret::Tokens;

/// The description of the API, as OpenAPI 3.1 has it.
pub const OPENAPI: &str = include_str!("../openapi.json");

/// Who is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// Everybody who reaches the address, as long as the store has no tokens: for loopback alone. What a proxy marks as
    /// passed on is refused, as it speaks for others; but not every proxy does.
    Open,
    /// Those who have a token.
    Tokens,
}

/// What a server goes by.
#[derive(Clone)]
pub struct Options {
    /// Who is let in.
    pub door: Door,
    /// Names by which the server may be called, beside `localhost` and bare addresses.
    pub hosts: Vec<String>,
    /// The most bytes of a request's body.
    pub most_bytes: usize,
    /// The most bytes of the bodies of all requests that are under way; at least as many as one may have.
    pub most_bytes_together: usize,
    /// The most requests in a second of each token, and of each address without one; twice as many in a burst.
    pub most_per_second: u32,
    /// How long a request may take to arrive.
    pub patience: Duration,
    /// How long an answer may wait for a client that does not take it. A slow one is let be as long as it takes 32 KiB a second.
    pub write_patience: Duration,
    /// The most connections at once.
    pub most_connections: usize,
    /// The cookie is for encrypted connections alone: for servers behind one that encrypts.
    pub secure_cookies: bool,
    /// What this process counts, in the text format of Prometheus; the server adds where every group stands.
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

/// Serves a store. Clones share what it holds; when the last of them is gone, its workers stop.
#[derive(Clone)]
pub struct Server {
    app: Arc<App>,
}

/// What all requests share.
struct App {
    mill: Sawmill,
    env: Env,
    options: Options,
    tokens: Tokens,
    rates: Rates,
    board: Board,
    jobs: Jobs,
    /// One for each topic that is pushed to, so that pushes that come together are written together.
    producers: Mutex<BTreeMap<String, Producer>>,
    /// Room for those who watch.
    watchers: Arc<Semaphore>,
    /// Room for bodies.
    room: Room,
    health: Health,
    /// Those who wait are sent away.
    closing: CancellationToken,
}

impl App {
    /// Who is let in now: the first token that is made closes an open door.
    async fn door(&self) -> sawmill::Result<Door> {
        match self.options.door {
            Door::Open if !self.tokens.exist().await? => Ok(Door::Open),
            _ => Ok(Door::Tokens),
        }
    }
}

/// The most who watch the page at once.
const MOST_WATCHERS: usize = 100;

impl Server {
    /// A server of this store. To be called on a tokio runtime.
    pub fn new(mill: Sawmill, env: Env, options: Options) -> Self {
        let app = Arc::new(App {
            jobs: Jobs::new(mill.clone(), env.clone()),
            board: Board::new(mill.clone(), env.clone()),
            tokens: Tokens::new(mill.clone(), env.clone()),
            rates: Rates::new(env.clone(), options.most_per_second),
            producers: Mutex::default(),
            watchers: Arc::new(Semaphore::new(MOST_WATCHERS)),
            room: Room::new(options.most_bytes_together.max(options.most_bytes)),
            health: Health::default(),
            closing: CancellationToken::new(),
            mill,
            env,
            options,
        });
        app.env.spawn(jobs::look_after(Arc::downgrade(&app)));
        Self { app }
    }

    /// Everything that is served, to be embedded in a service. Rates are then counted for all callers without a token together.
    pub fn router(&self) -> Router {
        routes::router(self.app.clone())
    }

    /// The methods, in small letters, and the paths of everything that is served.
    pub fn routes() -> Vec<(&'static str, &'static str)> {
        routes::names()
    }

    /// Answers whoever connects, until `stop` is cancelled; then ends what is under way and gives back what was pulled.
    pub async fn listen(&self, listener: TcpListener, stop: CancellationToken) {
        listen::run(&self.app, self.router(), listener, stop).await;
        self.close().await;
    }

    /// Sends away those who wait, and gives back what was pulled and not answered.
    pub async fn close(&self) {
        self.app.closing.cancel();
        self.app.jobs.close().await;
    }
}

/// What a lock guards is whole also after a panic: each change is one step.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
