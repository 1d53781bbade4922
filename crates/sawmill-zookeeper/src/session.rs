//! The session with ZooKeeper: one per opened ledger, replaced when ZooKeeper has ended it.

use std::time::Duration;

use sawmill_engine::runtime::Env;
use sawmill_engine::{Error, ErrorKind, Result};
use tokio::sync::Mutex;
use zookeeper_client::{Client, Error as Zk, SessionState};

use crate::address::Address;
use crate::error::{explain, unreachable};

/// How long a call waits for a connection. Nothing is sent before.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The pause before all hosts are tried again to begin a session.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The current session, and what is needed to begin a new one.
pub(crate) struct Session {
    env: Env,
    address: Address,
    client: Mutex<Option<Client>>,
}

impl Session {
    pub(crate) fn new(env: Env, address: Address) -> Self {
        Self { env, address, client: Mutex::default() }
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// True if the URL names a user, who then owns all nodes.
    pub(crate) fn has_user(&self) -> bool {
        self.address.user.is_some()
    }

    /// Returns a connected session. The error means that there is none for now.
    pub(crate) async fn client(&self) -> Result<Client> {
        let ready = async {
            loop {
                let client = self.current().await?;
                if is_connected(&client).await {
                    return Ok(client);
                }
            }
        };
        let late = || Err(unreachable("no answer in time"));
        self.env.within(CONNECT_TIMEOUT, ready).await.unwrap_or_else(late)
    }

    /// Returns the current session, or begins a new one if it has ended. Only one caller at a time begins a
    /// session.
    async fn current(&self) -> Result<Client> {
        let mut current = self.client.lock().await;
        if let Some(client) = &*current
            && !client.state().is_terminated()
        {
            return Ok(client.clone());
        }
        let client = loop {
            match self.connect().await {
                Ok(client) => break client,
                Err(Zk::AuthFailed) => return Err(explain(&Zk::AuthFailed)),
                Err(Zk::BadArguments(why)) => {
                    return Err(Error::new(ErrorKind::Invalid, format!("the ledger's URL is wrong: {why}")));
                }
                Err(error) => {
                    tracing::debug!(%error, "no session with ZooKeeper yet");
                    self.env.sleep(RETRY_PAUSE).await;
                }
            }
        };
        if current.is_some() {
            tracing::info!("the session with ZooKeeper is over, and a new one has begun");
        }
        Ok(current.insert(client).clone())
    }

    async fn connect(&self) -> Result<Client, Zk> {
        let mut connector =
            Client::connector().with_session_timeout(self.address.session_timeout).with_fail_eagerly();
        if let Some(user) = &self.address.user {
            connector = connector.with_auth("digest", user.as_bytes());
        }
        connector.connect(&self.address.round_of_hosts()).await
    }
}

/// Waits while the driver reconnects. Returns false if the session has ended.
async fn is_connected(client: &Client) -> bool {
    let mut states = client.state_watcher();
    let mut state = client.state();
    loop {
        match state {
            SessionState::SyncConnected => return true,
            state if state.is_terminated() => return false,
            _ => state = states.changed().await,
        }
    }
}
