//! Orders that are fetched from a URL: over https, or over http from this machine, with limits on size and
//! time and without redirects.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use sawmill::engine::runtime::Env;
use sawmill::{Context, Outcome};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use url::{Host, Url};

use crate::trust;
use crate::values::Size;

/// Fetches orders within limits.
pub(super) struct Fetch {
    /// The time limit of a fetch.
    pub(super) timeout: Duration,
    /// The size limit of an order.
    pub(super) most: Size,
}

impl Fetch {
    /// Fetches a URL. A URL that is not allowed makes a dead letter; other failures are retried.
    pub(super) async fn get(&self, url: &str, env: &Env, context: &Context) -> Result<Vec<u8>, Outcome> {
        let url = checked(url).map_err(|what| Outcome::dead(format!("the order's URL {what}")))?;
        let (timeout, most) = (self.timeout, self.most);
        let shown = shown(&url);
        tracing::info!(id = %context.id(), "fetching the order from {shown}");
        let got = env.blocking(move || get(&url, timeout, most)).await;
        let got = match got {
            Some(Ok(got)) => got,
            _ => Err("it was interrupted".to_owned()),
        };
        got.map_err(|what| Outcome::retry(format!("the order could not be fetched from {shown}: {what}")))
    }
}

/// Parses a URL, or says why it may not be fetched.
fn checked(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("is not valid: {error}"))?;
    let is_near = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => return Err("has no host".to_owned()),
    };
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_near => Ok(nearby(url)),
        "http" => Err(format!("goes to {} without encryption: use https", shown(&url))),
        scheme => Err(format!("begins with {scheme}: use https")),
    }
}

/// Replaces localhost by 127.0.0.1, so that name resolution cannot lead elsewhere.
fn nearby(mut url: Url) -> Url {
    if url.host() == Some(Host::Domain("localhost")) {
        // It cannot fail: the URL has a host.
        let _ = url.set_ip_host(Ipv4Addr::LOCALHOST.into());
    }
    url
}

/// Returns the URL without parts that may be secret: user, password and query.
fn shown(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
}

fn get(url: &Url, timeout: Duration, most: Size) -> Result<Vec<u8>, String> {
    let mut config = ureq::Agent::config_builder()
        .timeout_global(Some(timeout))
        // The target of a redirect was not checked, and the order does not name it.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .user_agent(concat!("sawmill/", env!("CARGO_PKG_VERSION")));
    config = match url.scheme() {
        "https" => config.tls_config(tls()?),
        // Requests to this machine need no proxy.
        _ => config.proxy(None),
    };
    let agent = config.build().new_agent();
    let mut answer = agent.get(url.as_str()).call().map_err(|error| explain(&error, timeout, most))?;
    let status = answer.status();
    if status.is_redirection() {
        return Err(format!("it answers {status}, and redirects are not followed: name the place itself"));
    }
    if status != 200 {
        return Err(format!("it answers {status}"));
    }
    answer
        .body_mut()
        .with_config()
        .limit(most.0)
        .read_to_vec()
        .map_err(|error| explain(&error, timeout, most))
}

fn explain(error: &ureq::Error, timeout: Duration, most: Size) -> String {
    match error {
        ureq::Error::Timeout(_) => format!("it took longer than {timeout:?} (--fetch-timeout)"),
        ureq::Error::BodyExceedsLimit(_) => format!("it is larger than {most} (--fetch-most)"),
        error => error.to_string(),
    }
}

fn tls() -> Result<TlsConfig, String> {
    let trusted = trust::certificates()?.iter().map(|found| Certificate::from_der(found).to_owned());
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::Specific(Arc::new(trusted.collect())))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k8_only_https_and_this_machine_may_be_asked() {
        for good in
            ["https://example.org/o", "http://127.0.0.1:8080/o", "http://[::1]/o", "https://10.0.0.1/o"]
        {
            assert_eq!(checked(good).unwrap().as_str(), good);
        }
        assert_eq!(checked("http://localhost:81/o").unwrap().as_str(), "http://127.0.0.1:81/o");
        for (bad, said) in [
            ("", "is not valid"),
            ("/etc/passwd", "is not valid"),
            ("file:///etc/passwd", "has no host"),
            ("http://example.org/o", "use https"),
            ("http://127.0.0.1.example.org/o", "use https"),
            ("http://0.0.0.0/o", "use https"),
            ("ftp://127.0.0.1/o", "use https"),
            ("http://u:secret@example.org/o?key=secret", "use https"),
        ] {
            let error = checked(bad).unwrap_err();
            assert!(error.contains(said) && !error.contains("secret"), "{bad}: {error}");
        }
    }
}
