//! `--metrics`: serves the metrics of the library to Prometheus at `/metrics`.
//!
//! This HTTP server is small on purpose. It reads the head of one request, with limits on size, time and
//! concurrency, answers, and closes the connection. No request can disturb the worker.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use sawmill::engine::runtime::Env;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::failure::Failure;

/// Histogram buckets in seconds, from fast handlers to long jobs.
const BUCKETS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0,
    3600.0,
];
/// How often samples are sorted into buckets. Without this they would pile up between scrapes.
const UPKEEP: Duration = Duration::from_secs(5);
/// Limits of a request: the bytes before the empty line that ends its head, its duration, and how many are
/// served at once.
const MOST_BYTES: usize = 8 << 10;
const MOST_TIME: Duration = Duration::from_secs(5);
const MOST_AT_ONCE: usize = 16;
/// The pause after a connection could not be accepted, for example when file descriptors have run out.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// An address to listen on: `127.0.0.1:9100`, `[::]:9100`, `localhost:9100`, or a port alone, which means
/// localhost only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Address(SocketAddr);

impl Address {
    #[cfg(feature = "serve")]
    pub(crate) fn socket(self) -> SocketAddr {
        self.0
    }
}

impl FromStr for Address {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(port) = text.parse() {
            return Ok(Self((Ipv4Addr::LOCALHOST, port).into()));
        }
        let advice = |why: &str| {
            format!(
                "{text:?} is no address to listen on{why}: write 127.0.0.1:9100, 0.0.0.0:9100 or only 9100"
            )
        };
        let mut found = text.to_socket_addrs().map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => advice(""),
            _ => advice(&format!(" ({error})")),
        })?;
        found.next().map(Self).ok_or_else(|| advice(""))
    }
}

impl TryFrom<String> for Address {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Starts to record metrics and serves them at this address until the program ends. Call it before opening a
/// store.
pub(crate) async fn serve(Address(address): Address, env: &Env) -> Result<(), Failure> {
    let wrong = |error: io::Error| {
        Failure::failed(format!(
            "metrics cannot be served at {address}: {error}: end what listens there, or choose another --metrics address"
        ))
    };
    let listener = TcpListener::bind(address).await.map_err(wrong)?;
    let address = listener.local_addr().map_err(wrong)?;
    let recorder = count(env)?;
    env.spawn(listen(listener, recorder, env.clone()));
    tracing::info!("metrics at http://{address}/metrics");
    Ok(())
}

/// Starts to record metrics. Call it once, before opening a store.
pub(crate) fn count(env: &Env) -> Result<PrometheusHandle, Failure> {
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), BUCKETS)
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(|error| Failure::failed(format!("metrics cannot be counted: {error}")))?;
    env.spawn(upkeep(recorder.clone(), env.clone()));
    Ok(recorder)
}

async fn upkeep(recorder: PrometheusHandle, env: Env) {
    loop {
        env.sleep(UPKEEP).await;
        recorder.run_upkeep();
    }
}

async fn listen(listener: TcpListener, recorder: PrometheusHandle, env: Env) {
    let permits = Arc::new(Semaphore::new(MOST_AT_ONCE));
    // The semaphore is never closed, so acquiring does not fail.
    while let Ok(permit) = permits.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((mut stream, _)) => {
                let (recorder, clock) = (recorder.clone(), env.clone());
                env.spawn(async move {
                    // A client that hangs up or sends nothing gets no answer; others are not affected.
                    let _ = clock.within(MOST_TIME, respond(&mut stream, &recorder)).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a request for metrics could not be accepted");
                env.sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

async fn respond(stream: &mut TcpStream, recorder: &PrometheusHandle) -> io::Result<()> {
    let head = head(stream).await?;
    let (status, body) = answer(&head, recorder);
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let length = body.len();
    let mut text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    if !head.starts_with(b"HEAD ") {
        text.push_str(&body);
    }
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await?;
    // Closing with unread data could reset the connection before the client has read the answer.
    let mut rest = stream.take(MOST_BYTES as u64);
    tokio::io::copy(&mut rest, &mut tokio::io::sink()).await.map(|_| ())
}

/// Reads the request up to its empty line, or up to the limit.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut stream = stream.take(MOST_BYTES as u64);
    while !ends(&head) && stream.read_buf(&mut head).await? > 0 {}
    Ok(head)
}

fn ends(head: &[u8]) -> bool {
    head.windows(4).any(|window| window == b"\r\n\r\n") || head.windows(2).any(|window| window == b"\n\n")
}

/// The status and the body for a request.
fn answer(head: &[u8], recorder: &PrometheusHandle) -> (&'static str, String) {
    if !ends(head) {
        return match head.len() {
            MOST_BYTES => ("431 Request Header Fields Too Large", "the request is too long\n".to_owned()),
            _ => ("400 Bad Request", "the request has no end\n".to_owned()),
        };
    }
    let first = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = std::str::from_utf8(first).unwrap_or_default().split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some("GET" | "HEAD"), Some(target), Some(version)) if version.starts_with("HTTP/1.") => {
            match target.split('?').next() {
                Some("/metrics") => ("200 OK", recorder.render()),
                _ => ("404 Not Found", "metrics are at /metrics\n".to_owned()),
            }
        }
        (Some(_), Some(_), Some(version)) if version.starts_with("HTTP/1.") => {
            ("405 Method Not Allowed", "metrics can only be fetched, with GET\n".to_owned())
        }
        _ => ("400 Bad Request", "this is no request of HTTP/1.1\n".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let address = |text: &str| text.parse().map(|Address(address)| address);
        assert_eq!(address("9100").unwrap(), "127.0.0.1:9100".parse().unwrap());
        assert_eq!(address("0.0.0.0:9100").unwrap(), "0.0.0.0:9100".parse().unwrap());
        assert_eq!(address("[::1]:9100").unwrap(), "[::1]:9100".parse().unwrap());
        assert!(address("localhost:9100").unwrap().ip().is_loopback());
        for wrong in ["", "here", "127.0.0.1", "127.0.0.1:99999", ":9100x", "99999"] {
            let said = address(wrong).unwrap_err();
            assert!(said.contains("127.0.0.1:9100"), "{said}");
        }
    }

    #[tokio::test]
    async fn requests_are_answered_within_limits() {
        let recorder = PrometheusBuilder::new().build_recorder().handle();
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(2 * MOST_BYTES));
        for (request, status) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200"),
            ("HEAD /metrics HTTP/1.0\r\n\r\n", "200"),
            ("GET /metrics?x=1 HTTP/1.1\n\n", "200"),
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("hello\r\n\r\n", "400"),
            ("GET /metrics HTTP/1.1\r\n", "400"),
            ("\u{0}\u{1}\u{2}\n\n", "400"),
            (&long, "431"),
        ] {
            let head = head(&mut request.as_bytes()).await.unwrap();
            assert!(head.len() <= MOST_BYTES);
            assert!(answer(&head, &recorder).0.starts_with(status), "{request:?}");
        }
    }
}
