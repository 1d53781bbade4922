//! One POST over HTTP/1.1, only to addresses that were checked before.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use sawmill::Timestamp;
use sawmill::engine::runtime::Env;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use url::Url;

use crate::trust;

/// The time limit for connecting to one address.
const CONNECT: Duration = Duration::from_secs(10);
/// How much of an error response is kept.
const KEPT: usize = 1024;

/// The response.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// The wait of its `Retry-After` header.
    pub(super) retry_after: Option<Duration>,
    /// The beginning of its body, if the status is not a success.
    pub(super) body_start: String,
}

/// Posts requests.
pub(super) struct Poster {
    /// The TLS client, or the reason why there is none.
    tls: Result<TlsConnector, String>,
}

impl Poster {
    pub(super) fn new() -> Self {
        Self { tls: connector() }
    }

    /// Posts to the first address that accepts a connection. The addresses are those of the URL's host.
    pub(super) async fn post(
        &self,
        url: &Url,
        addresses: &[SocketAddr],
        headers: HeaderMap,
        body: Bytes,
        env: &Env,
    ) -> Result<Answer, String> {
        let request = request(url, headers, body)?;
        let stream = connect(addresses, env).await.map_err(|error| format!("no connection: {error}"))?;
        match url.scheme() {
            "https" => {
                let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
                let name = ServerName::try_from(host).map_err(|error| error.to_string())?;
                let encrypted = self.tls.clone()?.connect(name, stream).await;
                let stream = encrypted.map_err(|error| format!("no encryption: {error}"))?;
                send(stream, request, env).await
            }
            _ => send(stream, request, env).await,
        }
    }
}

fn connector() -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trust::certificates()?.iter().cloned());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn request(url: &Url, headers: HeaderMap, body: Bytes) -> Result<Request<Full<Bytes>>, String> {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let host = format!("{}{port}", url.host_str().unwrap_or_default());
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut request = Request::post(format!("{}{query}", url.path()))
        .header(HOST, host)
        .header(USER_AGENT, concat!("sawmill/", env!("CARGO_PKG_VERSION")))
        .body(Full::new(body))
        .map_err(|error| error.to_string())?;
    request.headers_mut().extend(headers);
    Ok(request)
}

async fn connect(addresses: &[SocketAddr], env: &Env) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "there is no address");
    for address in addresses {
        match env.within(CONNECT, TcpStream::connect(address)).await {
            Some(Ok(stream)) => return Ok(stream),
            Some(Err(error)) => last = error,
            None => last = io::Error::new(io::ErrorKind::TimedOut, format!("{address} does not answer")),
        }
    }
    Err(last)
}

/// Sends the request and reads the response.
async fn send(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<Full<Bytes>>,
    env: &Env,
) -> Result<Answer, String> {
    let wrong = |error: hyper::Error| format!("the HTTP exchange failed: {}", with_cause(&error));
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(wrong)?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(wrong)?;
        let status = response.status();
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| wait_of(value, env.wall()));
        let mut answer = Answer { status, retry_after, body_start: String::new() };
        if !status.is_success() {
            answer.body_start = body_start(response.into_body()).await;
        }
        Ok(answer)
    };
    let (mut exchange, mut connection, mut is_open) = (pin!(exchange), pin!(connection), true);
    loop {
        tokio::select! {
            biased;
            answer = &mut exchange => return answer,
            // The exchange reports the error of the connection too.
            _ = &mut connection, if is_open => is_open = false,
        }
    }
}

/// Reads the beginning of the body, as far as it arrives.
async fn body_start(mut body: hyper::body::Incoming) -> String {
    let mut received = Vec::new();
    while received.len() < KEPT {
        match body.frame().await {
            Some(Ok(frame)) => received.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
            _ => break,
        }
    }
    received.truncate(KEPT);
    String::from_utf8_lossy(&received).trim().to_owned()
}

/// Parses a `Retry-After` header: seconds or a date. A wait of zero counts as none, as otherwise all retries
/// would be over in a moment.
fn wait_of(value: &HeaderValue, now: Timestamp) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
            Timestamp::from_millis(u64::try_from(date.as_millisecond()).ok()?).since(now)
        }
    };
    Some(wait).filter(|wait| !wait.is_zero())
}

/// Formats an error with its cause, as hyper's own message says little.
fn with_cause(error: &hyper::Error) -> String {
    use std::error::Error;
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g19_retry_after_is_read() {
        let now = crate::terminal::text::time("2026-11-15T08:00:00Z").unwrap();
        let wait = |text: &str| wait_of(&HeaderValue::from_str(text).unwrap(), now);
        assert_eq!(wait("120"), Some(Duration::from_secs(120)));
        assert_eq!(wait("Sun, 15 Nov 2026 08:01:00 GMT"), Some(Duration::from_secs(60)));
        for none in ["0", "Sun, 15 Nov 2026 08:00:00 GMT", "Sun, 15 Nov 2026 07:00:00 GMT"] {
            assert_eq!(wait(none), None, "{none}");
        }
        for strange in ["", "-5", "soon", "1.5"] {
            assert_eq!(wait(strange), None, "{strange}");
        }
    }
}
