//! Test support: a server with its own store, and a client that sends exactly what it is told to.

use std::net::SocketAddr;
use std::time::Duration;

use sawmill::Sawmill;
use sawmill::admin::Access;
use sawmill::engine::runtime::Env;
use sawmill_serve::{Door, Options, Server, secret};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// The timeout of every wait, generous for a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct TestServer {
    pub(crate) mill: Sawmill,
    pub(crate) env: Env,
    pub(crate) address: SocketAddr,
    pub(crate) stop: CancellationToken,
    _folder: TempDir,
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// Asserts that this is a refusal with this status that says what was wrong and what to do.
    pub(crate) fn refused(&self, status: u16) {
        assert_eq!(self.status, status, "{self:?}");
        let said = self.json();
        for field in ["error", "what_to_do"] {
            assert!(!said[field].as_str().unwrap().is_empty(), "{self:?}");
        }
    }

    pub(crate) fn ok(&self) -> &Self {
        assert!((200..300).contains(&self.status), "{self:?}");
        self
    }
}

impl TestServer {
    pub(crate) async fn open() -> Self {
        Self::with(Options::default()).await
    }

    pub(crate) async fn guarded() -> Self {
        Self::with(Options { door: Door::Keys, ..Options::default() }).await
    }

    pub(crate) async fn with(options: Options) -> Self {
        Self::at(TcpListener::bind("127.0.0.1:0").await.unwrap(), options).await
    }

    pub(crate) async fn at(listener: TcpListener, options: Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("jobs.db").display());
        let mill = sawmill::Sawmill::open(&url).await.unwrap();
        Self::of(mill, folder, listener, options)
    }

    /// Starts a server for this store.
    pub(crate) fn of(mill: Sawmill, folder: TempDir, listener: TcpListener, options: Options) -> Self {
        let env = Env::system();
        let address = listener.local_addr().unwrap();
        let (server, stop) = (Server::new(mill.clone(), env.clone(), options), CancellationToken::new());
        let until = stop.clone();
        env.spawn(async move { server.listen(listener, until).await });
        Self { mill, env, address, stop, _folder: folder }
    }

    pub(crate) async fn credential(&self, topic: Option<&str>, access: Access) -> String {
        let topic = topic.map(|topic| topic.parse().unwrap());
        secret::create(&self.mill, &self.env, topic, access, "test").await.unwrap().0
    }

    /// Sends a request with these header lines.
    pub(crate) async fn send(&self, request: &str, headers: &[&str], body: &str) -> Reply {
        let has_host = headers.iter().any(|line| line.to_lowercase().starts_with("host:"));
        let host = if has_host { String::new() } else { format!("Host: {}\r\n", self.address) };
        let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let length = body.len();
        self.raw(&format!(
            "{request} HTTP/1.1\r\n{host}{lines}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        ))
        .await
    }

    /// Sends a request without an access key.
    pub(crate) async fn call(&self, request: &str, body: Value) -> Reply {
        self.send(request, &["Content-Type: application/json"], &written(&body)).await
    }

    /// Sends a request with an access key.
    pub(crate) async fn with_access_key(&self, credential: &str, request: &str, body: Value) -> Reply {
        let bearer = format!("Authorization: Bearer {credential}");
        self.send(request, &[&bearer, "Content-Type: application/json"], &written(&body)).await
    }

    /// Sends raw text and reads until the server disconnects.
    pub(crate) async fn raw(&self, text: &str) -> Reply {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // A server that refuses a request may disconnect before it has read everything.
        let _ = stream.write_all(text.as_bytes()).await;
        let mut answer = Vec::new();
        let read = self.env.within(TIMEOUT, stream.read_to_end(&mut answer)).await;
        read.expect("test timed out: the server hangs up").ok();
        reply(&String::from_utf8_lossy(&answer))
    }
}

fn written(body: &Value) -> String {
    if body.is_null() { String::new() } else { body.to_string() }
}

fn reply(text: &str) -> Reply {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Reply { status, head: head.to_owned(), body: body.to_owned() }
}

/// Waits until the condition holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let env = Env::system();
    let waiting = async {
        while !holds().await {
            env.sleep(Duration::from_millis(50)).await;
        }
    };
    env.within(TIMEOUT, waiting).await.unwrap_or_else(|| panic!("test timed out: {what}"));
}
