//! The session with ZooKeeper: one for each who has opened the ledger, and a new one when ZooKeeper has given up the old one.

use std::time::Duration;

use sawmill::env::Env;
use sawmill::{Error, ErrorKind, Result};
use tokio::sync::Mutex;
use zookeeper_client::{Client, Error as Zk, SessionState};

use crate::address::Address;
use crate::error::{explain, unreachable};

/// How long a call waits for a connection. Nothing was sent until then.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long before it is tried again to begin a session.
const PAUSE: Duration = Duration::from_millis(100);

/// What is needed to have a session, and the one that there is.
pub(crate) struct Link {
    env: Env,
    address: Address,
    client: Mutex<Option<Client>>,
}

impl Link {
    pub(crate) fn new(env: Env, address: Address) -> Self {
        Self { env, address, client: Mutex::default() }
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// True if nodes belong to whoever made them.
    pub(crate) fn is_someone(&self) -> bool {
        self.address.user.is_some()
    }

    /// A session that is connected. The error means that there is none for now.
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
        self.env.within(PATIENCE, ready).await.unwrap_or_else(late)
    }

    /// The session that there is, or a new one if ZooKeeper has given it up. Only one at a time begins a session.
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
                    self.env.sleep(PAUSE).await;
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
            Client::connector().with_session_timeout(self.address.session).with_fail_eagerly();
        if let Some(user) = &self.address.user {
            connector = connector.with_auth("digest", user.as_bytes());
        }
        connector.connect(&self.address.hosts).await
    }
}

/// Waits while the driver connects anew. False if the session is over.
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
