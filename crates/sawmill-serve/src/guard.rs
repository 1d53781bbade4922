//! Access control: checks every request before its handler runs.

use std::net::IpAddr;
use std::sync::Arc;

use axum::RequestExt;
use axum::body::Body;
use axum::extract::{RawPathParams, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sawmill::admin::{Access, AccessKey};

use crate::answer::{Answer, Problem};
use crate::session::{COOKIE, CSRF_HEADER, cookie};
use crate::{App, Door, body, secret};

/// The maximum time for an answer. Longer than the longest wait of a pull.
const LONGEST_ANSWER: std::time::Duration = std::time::Duration::from_secs(90);
/// The maximum body size for callers without an access key, in bytes.
const MAX_UNAUTHENTICATED: usize = 4 << 10;

/// Headers of every response. They make browsers load nothing from other sites, run only the page's own
/// scripts, and refuse frames.
const HEADERS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// The address that a request came from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// The sender of a request.
#[derive(Debug, Clone)]
pub(crate) enum Caller {
    /// Anybody, because no access keys exist yet.
    Anybody,
    /// The holder of an access key.
    KeyHolder(Arc<AccessKey>),
    /// A caller without a valid access key.
    Unauthenticated,
}

impl Caller {
    /// Returns true if the caller has this access to the topic. Without a topic: to any topic at all.
    pub(crate) fn may(&self, access: Access, topic: Option<&str>) -> bool {
        match self {
            Caller::Anybody => true,
            Caller::KeyHolder(access_key) => match topic {
                Some(_) => access_key.allows(access, topic),
                None => access_key.access.covers(access),
            },
            Caller::Unauthenticated => false,
        }
    }

    /// Returns true if the caller may read this topic.
    pub(crate) fn sees(&self, topic: &str) -> bool {
        self.may(Access::Read, Some(topic))
    }
}

/// The access that a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing.
    Nothing,
    /// This access, to the topic in the path if it names one.
    Access(Access),
    /// This access to all topics.
    Everywhere(Access),
}

/// Middleware around all routes: checks host, origin, caller and rate.
pub(crate) async fn authenticate(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let mut response = match check_request(&app, &mut request).await {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

async fn check_request(app: &App, request: &mut Request) -> Answer<()> {
    let host = check_host(&app.options.hosts, request)?;
    if !is_safe(request.method()) {
        check_site(&app.options.hosts, request.headers(), &host)?;
    }
    let peer = request.extensions().get::<Peer>().map_or_else(|| "all".to_owned(), |peer| peer.0.to_string());
    let caller = caller(app, request.method(), request.headers(), &peer).await?;
    if let Caller::KeyHolder(access_key) = &caller {
        limit_rate(app, &format!("key {}", access_key.id))?;
    }
    request.extensions_mut().insert(caller);
    Ok(())
}

fn limit_rate(app: &App, bucket: &str) -> Answer<()> {
    if app.rates.take(bucket) {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::TOO_MANY_REQUESTS,
        format!("more than {} requests a second", app.options.most_per_second),
        "wait a second, and send fewer: many messages fit into one push, and a pull can wait for messages",
    ))
}

/// Middleware of each route: checks the access it needs, and reads the whole body before the handler runs.
pub(crate) async fn authorize(
    State((app, need)): State<(Arc<App>, Need)>,
    request: Request,
    next: Next,
) -> Response {
    match check_route(&app, need, request).await {
        // The body's memory stays reserved until the answer is complete, or longer if the handler keeps the
        // reservation.
        Ok((request, _reservation)) => match app.env.within(LONGEST_ANSWER, next.run(request)).await {
            Some(response) => response,
            None => Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the store took too long",
                "look whether it was done, then send it again",
            )
            .into_response(),
        },
        Err(problem) => problem.into_response(),
    }
}

async fn check_route(
    app: &App,
    need: Need,
    mut request: Request,
) -> Answer<(Request, Arc<body::Reservation>)> {
    let params: RawPathParams = request.extract_parts().await.map_err(|_| {
        Problem::bad("the path is no text", "write names with letters, digits, '.', '_' and '-'")
    })?;
    let topic = params.iter().find(|(name, _)| *name == "topic").map(|(_, value)| value.to_owned());
    let caller = request.extensions().get::<Caller>().unwrap_or(&Caller::Unauthenticated);
    check_need(caller, need, topic.as_deref())?;
    if is_safe(request.method()) {
        return Ok((request, Arc::default()));
    }
    check_content(request.headers())?;
    let most = match need {
        Need::Nothing => app.options.most_bytes.min(MAX_UNAUTHENTICATED),
        _ => app.options.most_bytes,
    };
    let (mut parts, body) = request.into_parts();
    let (body, reservation) = body::whole(app, most, &parts.headers, body).await?;
    let reservation = Arc::new(reservation);
    parts.extensions.insert(reservation.clone());
    Ok((Request::from_parts(parts, Body::from(body)), reservation))
}

fn check_need(caller: &Caller, need: Need, topic: Option<&str>) -> Answer<()> {
    let (access, is_enough) = match need {
        Need::Nothing => return Ok(()),
        Need::Access(access) => (access, caller.may(access, topic)),
        Need::Everywhere(access) => {
            let is_wide = !matches!(caller, Caller::KeyHolder(access_key) if access_key.topic.is_some());
            (access, is_wide && caller.may(access, None))
        }
    };
    match caller {
        _ if is_enough => Ok(()),
        Caller::Unauthenticated => Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "this needs an access key",
            "send `Authorization: Bearer KEY`; `sawmill key create` makes one",
        )),
        _ => {
            let on = topic.map_or_else(String::new, |topic| format!(" on topic {topic}"));
            Err(Problem::new(
                StatusCode::FORBIDDEN,
                format!("this access key does not allow {access}{on}"),
                "use another access key; `sawmill key list` shows what each is for",
            ))
        }
    }
}

/// Returns the host name the server was called by, which must be one of its own. In DNS rebinding, a page of
/// another site has its own name resolve to this server; the browser still sends that name.
fn check_host(allowed: &[String], request: &Request) -> Answer<String> {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| request.uri().authority().map(|authority| authority.as_str()));
    let Some(host) = host else {
        return Err(Problem::bad("there is no Host header", "send the name or address of the server in it"));
    };
    let name = name_of(host);
    let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let is_allowed = name.eq_ignore_ascii_case("localhost")
        || allowed.iter().any(|other| other.eq_ignore_ascii_case(name));
    if is_address || is_allowed {
        return Ok(host.to_ascii_lowercase());
    }
    Err(Problem::new(
        StatusCode::MISDIRECTED_REQUEST,
        format!("this server does not go by the name {name:?}"),
        "call it by its address, or start it with `--allow-host NAME`",
    ))
}

/// A host without its port.
fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Refuses changes that a page of another site makes through a browser. Allowed names count as well as the
/// `Host` header: a proxy may have called the server by its address, while the browser knows it by name.
fn check_site(allowed: &[String], headers: &HeaderMap, host: &str) -> Answer<()> {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("?"));
    let is_elsewhere = |origin: &str| {
        let rest = origin.split_once("://").map_or("", |(_, rest)| rest);
        !rest.eq_ignore_ascii_case(host)
            && !allowed.iter().any(|name| name.eq_ignore_ascii_case(name_of(rest)))
    };
    let is_cross = text("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none"));
    if is_cross || text("origin").is_some_and(is_elsewhere) {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "another site asked for this through a browser",
            "use the page of this server, or a program",
        ));
    }
    Ok(())
}

/// Refuses the content types that an HTML form can send.
fn check_content(headers: &HeaderMap) -> Answer<()> {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let kind = kind.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
    if kind.trim().eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        format!("the content is of type {kind:?}"),
        "send JSON, with `Content-Type: application/json`",
    ))
}

async fn caller(app: &App, method: &Method, headers: &HeaderMap, peer: &str) -> Answer<Caller> {
    if app.door().await? == Door::Open {
        limit_rate(app, peer)?;
        check_direct(headers)?;
        return Ok(Caller::Anybody);
    }
    let bearer = headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap_or_default());
    let cookie = cookie(headers, COOKIE);
    let credential = match (bearer, cookie) {
        (Some(bearer), _) => bearer.split_once(' ').map_or("", |(scheme, credential)| {
            if scheme.eq_ignore_ascii_case("bearer") { credential.trim() } else { "" }
        }),
        (None, Some(cookie)) => cookie,
        (None, None) => {
            limit_rate(app, peer)?;
            return Ok(Caller::Unauthenticated);
        }
    };
    // Guessing keys is limited per address, so that it does not add load to the store. The limit is separate,
    // so that it does not lock out callers whose key was valid.
    let tries = format!("tries {peer}");
    let is_known = app.access_keys.was_valid(credential);
    if !is_known {
        limit_rate(app, &tries)?;
    }
    let Some(access_key) = app.access_keys.check(credential).await? else {
        return match bearer {
            None => Ok(Caller::Unauthenticated),
            Some(_) => Err(Problem::new(
                StatusCode::UNAUTHORIZED,
                "this access key is not known, or was revoked",
                "check it; `sawmill key create` makes a new one",
            )),
        };
    };
    if !is_known {
        app.rates.give_back(&tries);
    }
    if bearer.is_none() && !is_safe(method) {
        check_csrf(headers, credential)?;
    }
    Ok(Caller::KeyHolder(Arc::new(access_key)))
}

/// Refuses requests that a proxy passed on. While no access keys exist, every local program is let in, and a
/// proxy on this machine would let in everybody.
fn check_direct(headers: &HeaderMap) -> Answer<()> {
    let is_passed_on = |name: &HeaderName| {
        matches!(name.as_str(), "forwarded" | "via" | "x-real-ip")
            || name.as_str().starts_with("x-forwarded-")
    };
    let Some(name) = headers.keys().find(|name| is_passed_on(name)) else { return Ok(()) };
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        format!("this came through a proxy, as its header {name} says, and there are no access keys yet"),
        "make an access key with `sawmill key create --access admin` and send it: without one, only programs on the same machine are let in",
    ))
}

/// Checks the CSRF header. A browser sends the cookie with any site's request, but only the page itself can
/// send this header.
fn check_csrf(headers: &HeaderMap, credential: &str) -> Answer<()> {
    let given = headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if secret::same(given, &secret::csrf(credential)) {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        format!("a change by cookie needs the header {CSRF_HEADER}"),
        "reload the page; programs send `Authorization: Bearer KEY` instead",
    ))
}

fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(host: &str) -> Request {
        Request::builder().header("host", host).body(Body::empty()).unwrap()
    }

    #[test]
    fn q21_a_server_answers_to_its_own_names_alone() {
        let allowed = ["queue.example".to_owned()];
        for host in
            ["localhost", "localhost:7171", "127.0.0.1:1", "[::1]:80", "10.0.0.7", "Queue.Example:443"]
        {
            assert!(check_host(&allowed, &called(host)).is_ok(), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "", ":80", "[::1"]
        {
            let problem = check_host(&allowed, &called(host));
            assert_eq!(problem.unwrap_err().status, StatusCode::MISDIRECTED_REQUEST, "{host}");
        }
    }

    #[test]
    fn q21_changes_come_from_the_page_itself_or_from_programs() {
        let check = |name: &'static str, value: &'static str| {
            let headers =
                HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static(value))]);
            check_site(&["queue.example".to_owned()], &headers, "localhost:7171").is_ok()
        };
        assert!(check_site(&[], &HeaderMap::new(), "localhost:7171").is_ok());
        assert!(check("origin", "https://queue.example") && !check("origin", "https://queue.example.evil"));
        assert!(check("origin", "http://localhost:7171") && check("sec-fetch-site", "same-origin"));
        assert!(!check("origin", "null") && !check("origin", "http://localhost:7172"));
        assert!(!check("origin", "http://evil.example") && !check("sec-fetch-site", "cross-site"));
    }
}
