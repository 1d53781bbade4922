//! `sawmill deliver webhook`: posts each message to a URL.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::ArgGroup;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use sawmill::engine::runtime::Env;
use sawmill::{Context, Outcome, Timestamp};
use url::{Host, Url};

use super::WorkArgs;
use super::guard::{self, Guard, Network, Refusal};
use super::post::{Answer, Poster};
use super::secret::Secret;
use crate::failure::Failure;

pub(super) const HELP: &str = "\
The payload is the body of the request. Its Content-Type is that of --content-type, else the header
content-type of the message. Without both it is application/json for JSON, text/plain for other
text, and application/octet-stream otherwise. With --slack the body is {\"text\": PAYLOAD}.

Headers of the request:
  Sawmill-Id         the id of the message, the same at every attempt; use it to detect repetitions
  Sawmill-Topic      the topic that the message was pushed to
  Sawmill-Attempt    the number of the attempt, from 1
  Sawmill-Timestamp  the time of the attempt, in seconds since 1970
  Sawmill-Signature  with a secret: sha256= and the HMAC-SHA256 of ID.TIMESTAMP.BODY in hexadecimal,
                     where ID and TIMESTAMP are the values of their headers. Refuse requests whose
                     signature does not match or whose timestamp is minutes old

A 2xx response means done. 408, 425, 429, 5xx and connection failures are retried, after the time in
Retry-After if there is one, at most one hour. With a token, 401 stops the worker, as no message is
at fault; with at-most-once, the messages that it had started become dead letters. All other
responses, redirects included, make the message a dead letter with the response as its reason.

With --url-header anybody who can push chooses where a message goes. Therefore it cannot be combined
with a token, which could be sent to anybody. A secret is shared by all named receivers.

By default only public addresses are posted to, and only over https. Names that resolve to this
machine, to private networks or to the metadata services of clouds are refused. --allow-private
allows this machine and private networks, also over http; with networks, it allows these instead, of
whatever kind they are. No proxy is used.

Examples:
  sawmill deliver webhook orders --url https://example.org/hooks/orders --secret-file hook.key
  SAWMILL_WEBHOOK_URL=https://hooks.slack.com/services/... sawmill deliver webhook alerts --slack
  sawmill deliver webhook events --url-header callback --concurrency 32 --retries 9 --backoff 5s..6h
  sawmill deliver webhook jobs --url http://10.0.0.7:8080/run --allow-private=10.0.0.0/8";

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("target").required(true).args(["url", "url_header"]))]
pub(crate) struct Args {
    /// The topics to deliver. The first has the highest priority
    #[arg(required = true, value_name = "TOPIC")]
    pub(super) topics: Vec<String>,
    #[command(flatten)]
    webhook: WebhookArgs,
    #[command(flatten)]
    pub(super) work: WorkArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Webhook")]
struct WebhookArgs {
    /// The URL to post to
    #[arg(long, value_name = "URL", env = "SAWMILL_WEBHOOK_URL", hide_env_values = true)]
    url: Option<String>,
    /// The message header that holds the URL to post to
    #[arg(long, value_name = "HEADER", conflicts_with = "url")]
    url_header: Option<String>,
    /// The Content-Type of the request [default: derived from the message]
    #[arg(long, value_name = "TYPE", conflicts_with = "slack")]
    content_type: Option<String>,
    /// Post {"text": PAYLOAD}, the format of Slack and similar chats
    #[arg(long)]
    slack: bool,
    /// The environment variable with the signing secret
    #[arg(long, value_name = "VARIABLE", conflicts_with = "secret_file")]
    secret_env: Option<String>,
    /// The file with the signing secret
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// The environment variable with a token, sent as `Authorization: Bearer`
    #[arg(long, value_name = "VARIABLE", conflicts_with = "token_file")]
    token_env: Option<String>,
    /// The file with a token, sent as `Authorization: Bearer`
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Allow this machine and private networks as targets, or only these networks
    #[arg(long, value_name = "NETWORKS", num_args = 0.., require_equals = true, value_delimiter = ',')]
    allow_private: Option<Vec<Network>>,
}

/// The longest wait that a response may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Posts messages.
pub(crate) struct Webhook {
    target: Target,
    content_type: Option<HeaderValue>,
    slack: bool,
    key: Option<ring::hmac::Key>,
    authorization: Option<HeaderValue>,
    guard: Guard,
    poster: Poster,
}

enum Target {
    Url(Url),
    /// The URL is in this header of the message.
    Header(String),
}

impl Webhook {
    pub(super) fn new(args: &Args) -> Result<Self, Failure> {
        let args = &args.webhook;
        let allowed = args.allow_private.as_ref();
        let guard = Guard {
            lets_private: allowed.is_some_and(Vec::is_empty),
            networks: allowed.cloned().unwrap_or_default(),
        };
        let target = match (&args.url, &args.url_header) {
            (_, Some(header)) => Target::Header(header.clone()),
            (url, None) => {
                let url = checked(url.as_deref().unwrap_or_default(), allowed.is_some());
                let url = url.map_err(|what| Failure::usage(format!("--url {what}")))?;
                Target::Url(permitted(url, &guard)?)
            }
        };
        let content_type = args.content_type.as_deref().map(HeaderValue::from_str).transpose();
        let content_type = content_type.map_err(|_| {
            Failure::usage("--content-type has signs in it that no header may have: write it like text/plain")
        })?;
        let secret =
            Secret { name: "secret", variable: args.secret_env.as_deref(), file: args.secret_file.as_ref() };
        let token =
            Secret { name: "token", variable: args.token_env.as_deref(), file: args.token_file.as_ref() };
        if let (Target::Header(_), Some(option)) = (&target, token.option()) {
            return Err(Failure::usage(format!(
                "{option} cannot go with --url-header: whoever may push says where to post to, and would be sent the \
                 token; name the place with --url, or sign with --secret-file"
            )));
        }
        let key =
            secret.read()?.map(|secret| ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes()));
        let authorization = token.read()?.map(|token| bearer(&token)).transpose()?;
        Ok(Self { target, content_type, slack: args.slack, key, authorization, guard, poster: Poster::new() })
    }

    /// Posts a message and returns its outcome.
    pub(super) async fn deliver(&self, env: &Env, context: &Context) -> Outcome {
        match self.prepare(context) {
            Ok((url, body, kind)) => self.post(&url, body, kind, env, context).await,
            Err(reason) => Outcome::dead(reason),
        }
    }

    /// Returns the URL, body and type of the request, or why the message can never be posted.
    fn prepare(&self, context: &Context) -> Result<(Url, Bytes, HeaderValue), String> {
        let (payload, headers) = (context.payload(), context.headers());
        let url = match &self.target {
            Target::Url(url) => url.clone(),
            Target::Header(name) => {
                let text = headers.text(name).ok_or_else(|| format!("its header {name} names no URL"))?;
                let lets_more = self.guard.lets_private || !self.guard.networks.is_empty();
                checked(text, lets_more).map_err(|what| format!("the URL in its header {name} {what}"))?
            }
        };
        if self.slack {
            let text =
                std::str::from_utf8(payload).map_err(|_| "its payload is no text, which --slack needs")?;
            let body = serde_json::json!({ "text": text }).to_string();
            return Ok((url, body.into(), HeaderValue::from_static("application/json")));
        }
        let kind = match (&self.content_type, headers.text("content-type")) {
            (Some(kind), _) => kind.clone(),
            (None, Some(kind)) => HeaderValue::from_str(kind)
                .map_err(|_| "its header content-type has signs that none may have")?,
            (None, None) => HeaderValue::from_static(content_type_of(payload)),
        };
        Ok((url, payload.clone(), kind))
    }

    async fn post(&self, url: &Url, body: Bytes, kind: HeaderValue, env: &Env, context: &Context) -> Outcome {
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return Outcome::dead("its URL has no host");
        };
        let mut addresses = match self.guard.look_up(&host, port).await {
            Ok(addresses) => addresses,
            Err(refusal @ Refusal::Forbidden(..)) => return Outcome::dead(refusal),
            Err(refusal @ Refusal::Unknown(..)) => return Outcome::retry(refusal),
        };
        if url.scheme() != "https" {
            addresses.retain(|address| !guard::is_public(address.ip()));
        }
        if addresses.is_empty() {
            return Outcome::dead(format!(
                "{host} is in the public internet, where http is not enough: use https"
            ));
        }
        let headers = self.headers(&body, kind, env.wall(), context);
        match self.poster.post(url, &addresses, headers, body, env).await {
            Ok(answer) => judge(&answer, self.authorization.is_some()),
            // The error shows only the host of the URL: the rest may be secret.
            Err(trouble) => Outcome::retry(format!("{host}:{port}: {trouble}")),
        }
    }

    fn headers(&self, body: &[u8], kind: HeaderValue, now: Timestamp, context: &Context) -> HeaderMap {
        let (id, seconds) = (context.id().to_string(), (now.as_millis() / 1000).to_string());
        let mut headers = HeaderMap::new();
        let mut say = |name: &'static str, value: String| {
            // The values are names and numbers, which are valid in headers.
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        say("sawmill-id", id.clone());
        say("sawmill-topic", context.topic().to_owned());
        say("sawmill-attempt", context.attempt().to_string());
        say("sawmill-timestamp", seconds.clone());
        if let Some(key) = &self.key {
            // The id is signed too, as receivers detect repetitions by it: an old body must not get a new id.
            let said = [id.as_bytes(), b".", seconds.as_bytes(), b".", body].concat();
            let signed = ring::hmac::sign(key, &said);
            let digits: String = signed.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
            say("sawmill-signature", format!("sha256={digits}"));
        }
        headers.insert(CONTENT_TYPE, kind);
        headers.extend(self.authorization.clone().map(|value| (AUTHORIZATION, value)));
        headers
    }
}

/// Parses a URL, or says why it may not be posted to.
fn checked(text: &str, lets_private: bool) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("is not valid: {error}"))?;
    let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
        return Err("has no host".to_owned());
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err(format!("to {host} has a user or a password in it: give a token with --token-file"));
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if lets_private => Ok(url),
        "http" => Err(format!(
            "goes to {host} without encryption: use https, or --allow-private if it is in a network of your own"
        )),
        scheme => Err(format!("begins with {scheme}: use https")),
    }
}

/// Refuses a URL with an address that is not allowed. Host names are checked at each delivery.
fn permitted(url: Url, guard: &Guard) -> Result<Url, Failure> {
    let address = match url.host() {
        Some(Host::Ipv4(address)) => address.into(),
        Some(Host::Ipv6(address)) => address.into(),
        _ => return Ok(url),
    };
    match guard.permits(address) {
        true => Ok(url),
        false => {
            let refusal = Refusal::Forbidden("the host of --url".to_owned(), address);
            Err(Failure::usage(refusal.to_string()))
        }
    }
}

fn bearer(token: &str) -> Result<HeaderValue, Failure> {
    let value = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut value = value.map_err(|_| Failure::usage("the token has signs in it that no header may have"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Derives the content type from a payload.
fn content_type_of(payload: &[u8]) -> &'static str {
    match serde_json::from_slice::<serde::de::IgnoredAny>(payload) {
        Ok(_) => "application/json",
        Err(_) if std::str::from_utf8(payload).is_ok() => "text/plain; charset=utf-8",
        Err(_) => "application/octet-stream",
    }
}

/// Returns the outcome for a response, with or without a token in the request.
fn judge(answer: &Answer, with_token: bool) -> Outcome {
    let status = answer.status;
    let words = if answer.body_start.is_empty() { String::new() } else { format!(": {}", answer.body_start) };
    let said = format!("it was answered by {status}{words}");
    let is_retryable = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];
    if status.is_success() {
        Outcome::Done
    } else if status.is_server_error() || is_retryable.contains(&status) {
        match answer.retry_after {
            Some(wait) => Outcome::retry_after(said, wait.min(LONGEST_WAIT)),
            None => Outcome::retry(said),
        }
    } else if status == StatusCode::UNAUTHORIZED && with_token {
        // All messages are sent with the same token.
        Outcome::stop(format!("the token is not taken: {said}"))
    } else if status.is_redirection() {
        Outcome::dead(format!(
            "it was answered by {status}, and redirects are not followed: name the place itself"
        ))
    } else {
        Outcome::dead(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g19_only_https_and_ones_own_networks_may_be_posted_to() {
        for good in ["https://example.org/hook?key=1", "https://[2606:4700::1111]:8443/", "https://10.0.0.1/"]
        {
            assert_eq!(checked(good, false).unwrap().as_str(), good);
        }
        assert!(checked("http://10.0.0.1/", true).is_ok());
        for (bad, said) in [
            ("", "is not valid"),
            ("example.org/hook", "is not valid"),
            ("file:///etc/passwd", "has no host"),
            ("ftp://example.org/", "use https"),
            ("http://example.org/?key=secret", "without encryption"),
            ("https://user:secret@example.org/", "--token-file"),
        ] {
            let error = checked(bad, false).unwrap_err();
            assert!(error.contains(said) && !error.contains("secret"), "{bad}: {error}");
        }
        // Other notations of the same address.
        for near in ["https://2130706433/", "https://0x7f.1/", "https://[::ffff:127.0.0.1]/", "https://0/"] {
            let url = checked(near, false).unwrap();
            let failure = permitted(url, &Guard::default()).err().unwrap().to_string();
            assert!(failure.contains("--allow-private"), "{near}: {failure}");
        }
    }

    #[test]
    fn g19_answers_are_judged() {
        let answer = |status: u16, retry_after: Option<u64>| Answer {
            status: StatusCode::from_u16(status).unwrap(),
            retry_after: retry_after.map(Duration::from_secs),
            body_start: "no".to_owned(),
        };
        let judged = |status: u16, retry_after: Option<u64>| judge(&answer(status, retry_after), false);
        for status in [200, 201, 202, 204] {
            assert_eq!(judged(status, None), Outcome::Done);
        }
        for status in [408, 425, 429, 500, 502, 503, 504] {
            assert!(matches!(judged(status, None), Outcome::Retry { after: None, .. }), "{status}");
        }
        for status in [300, 301, 302, 307, 308, 400, 401, 403, 404, 409, 410, 413, 422] {
            assert!(matches!(judged(status, Some(9)), Outcome::Dead(_)), "{status}");
        }
        let after = |wait| {
            Outcome::retry_after("it was answered by 503 Service Unavailable: no", Duration::from_secs(wait))
        };
        assert_eq!(judged(503, Some(9)), after(9));
        assert_eq!(judged(503, Some(999_999)), after(3600), "nobody may ask for more");
        assert!(matches!(judge(&answer(401, None), true), Outcome::Stop(_)), "the token is at fault");
        assert!(matches!(judge(&answer(403, None), true), Outcome::Dead(_)), "it may be this message alone");
    }

    #[test]
    fn g19_what_a_payload_is_shows() {
        assert_eq!(content_type_of(b"{\"a\": 1}"), "application/json");
        assert_eq!(content_type_of(b"hello"), "text/plain; charset=utf-8");
        assert_eq!(content_type_of(b"\xff\x00"), "application/octet-stream");
    }
}
