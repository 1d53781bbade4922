//! Who is at the door, and whether they may: before any handler sees a request.

use std::net::IpAddr;
use std::sync::Arc;

use axum::RequestExt;
use axum::body::Body;
use axum::extract::{RawPathParams, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sawmill::{Access, Grant};

use crate::answer::{Answer, Problem};
use crate::session::{COOKIE, CSRF_HEADER, cookie};
use crate::{App, Door, body, secret};

/// Longer than the longest wait of a pull.
const LONGEST_ANSWER: std::time::Duration = std::time::Duration::from_secs(90);
/// The most bytes of a body that anybody may send who has no token.
const MOST_OF_STRANGERS: usize = 4 << 10;

/// What everything that is answered says to browsers: nothing from elsewhere, no scripts but the page's own, no frames.
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

/// Where a request came from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Who sent a request.
#[derive(Debug, Clone)]
pub(crate) enum Caller {
    /// The door is open.
    Anybody,
    /// The holder of a token.
    Holder(Arc<Grant>),
    /// Nobody we know.
    Stranger,
}

impl Caller {
    /// True if they may do this on this topic; without a topic, on whatever topics they may.
    pub(crate) fn may(&self, access: Access, topic: Option<&str>) -> bool {
        match self {
            Caller::Anybody => true,
            Caller::Holder(grant) => match topic {
                Some(_) => grant.allows(access, topic),
                None => grant.access.covers(access),
            },
            Caller::Stranger => false,
        }
    }

    /// True if they may see this topic.
    pub(crate) fn sees(&self, topic: &str) -> bool {
        self.may(Access::Read, Some(topic))
    }
}

/// What a route needs its caller to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing.
    Nothing,
    /// This access: to the topic in the path, if there is one.
    Access(Access),
    /// This access to all topics.
    Everywhere(Access),
}

/// The outer door, for every request: hosts, sites, callers and their rates.
pub(crate) async fn door(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let mut response = match enter(&app, &mut request).await {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

async fn enter(app: &App, request: &mut Request) -> Answer<()> {
    let host = check_host(&app.options.hosts, request)?;
    if !is_safe(request.method()) {
        check_site(&app.options.hosts, request.headers(), &host)?;
    }
    let peer = request.extensions().get::<Peer>().map_or_else(|| "all".to_owned(), |peer| peer.0.to_string());
    let caller = caller(app, request.method(), request.headers(), &peer).await?;
    if let Caller::Holder(grant) = &caller {
        take(app, &format!("token {}", grant.id))?;
    }
    request.extensions_mut().insert(caller);
    Ok(())
}

fn take(app: &App, bucket: &str) -> Answer<()> {
    if app.rates.take(bucket) {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::TOO_MANY_REQUESTS,
        format!("more than {} requests a second", app.options.most_per_second),
        "wait a second, and send fewer: many messages fit into one push, and a pull can wait for messages",
    ))
}

/// The inner door, for each route: what it needs, and the whole body before its handler runs.
pub(crate) async fn admit(
    State((app, need)): State<(Arc<App>, Need)>,
    request: Request,
    next: Next,
) -> Response {
    match admitted(&app, need, request).await {
        // Its body has a place in memory until it is answered, or for as long as its handler keeps it.
        Ok((request, _place)) => match app.env.within(LONGEST_ANSWER, next.run(request)).await {
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

async fn admitted(app: &App, need: Need, mut request: Request) -> Answer<(Request, Arc<body::Place>)> {
    let params: RawPathParams = request.extract_parts().await.map_err(|_| {
        Problem::bad("the path is no text", "write names with letters, digits, '.', '_' and '-'")
    })?;
    let topic = params.iter().find(|(name, _)| *name == "topic").map(|(_, value)| value.to_owned());
    let caller = request.extensions().get::<Caller>().unwrap_or(&Caller::Stranger);
    check_need(caller, need, topic.as_deref())?;
    if is_safe(request.method()) {
        return Ok((request, Arc::default()));
    }
    check_content(request.headers())?;
    let most = match need {
        Need::Nothing => app.options.most_bytes.min(MOST_OF_STRANGERS),
        _ => app.options.most_bytes,
    };
    let (mut parts, body) = request.into_parts();
    let (body, place) = body::whole(app, most, &parts.headers, body).await?;
    let place = Arc::new(place);
    parts.extensions.insert(place.clone());
    Ok((Request::from_parts(parts, Body::from(body)), place))
}

fn check_need(caller: &Caller, need: Need, topic: Option<&str>) -> Answer<()> {
    let (access, is_enough) = match need {
        Need::Nothing => return Ok(()),
        Need::Access(access) => (access, caller.may(access, topic)),
        Need::Everywhere(access) => {
            let is_wide = !matches!(caller, Caller::Holder(grant) if grant.topic.is_some());
            (access, is_wide && caller.may(access, None))
        }
    };
    match caller {
        _ if is_enough => Ok(()),
        Caller::Stranger => Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "this needs a token",
            "send `Authorization: Bearer TOKEN`; `sawmill token create` makes one",
        )),
        _ => {
            let on = topic.map_or_else(String::new, |topic| format!(" on topic {topic}"));
            Err(Problem::new(
                StatusCode::FORBIDDEN,
                format!("this token does not allow {access}{on}"),
                "use another token; `sawmill token list` shows what each is for",
            ))
        }
    }
}

/// The name the server was called by, which has to be one of its own: a page of another site that has its name lead here is
/// of that site still.
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

/// Refuses changes that a page of another site has a browser ask for. A proxy may have called the server by its address, while the browser
/// knows it by one of its names.
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

/// Refuses what an HTML form can send.
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
        take(app, peer)?;
        check_direct(headers)?;
        return Ok(Caller::Anybody);
    }
    let bearer = headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap_or_default());
    let cookie = cookie(headers, COOKIE);
    let token = match (bearer, cookie) {
        (Some(bearer), _) => bearer.split_once(' ').map_or("", |(scheme, token)| {
            if scheme.eq_ignore_ascii_case("bearer") { token.trim() } else { "" }
        }),
        (None, Some(cookie)) => cookie,
        (None, None) => {
            take(app, peer)?;
            return Ok(Caller::Stranger);
        }
    };
    // Who tries out tokens does not get to ask the store more often than others, and keeps nobody out whose token was good.
    let tries = format!("tries {peer}");
    let is_known = app.tokens.knows(token);
    if !is_known {
        take(app, &tries)?;
    }
    let Some(grant) = app.tokens.check(token).await? else {
        return match bearer {
            None => Ok(Caller::Stranger),
            Some(_) => Err(Problem::new(
                StatusCode::UNAUTHORIZED,
                "this token is not known, or was revoked",
                "check it; `sawmill token create` makes a new one",
            )),
        };
    };
    if !is_known {
        app.rates.give_back(&tries);
    }
    if bearer.is_none() && !is_safe(method) {
        check_csrf(headers, token)?;
    }
    Ok(Caller::Holder(Arc::new(grant)))
}

/// Where everybody is let in who can use this machine, a proxy on it would let in the world.
fn check_direct(headers: &HeaderMap) -> Answer<()> {
    let is_passed_on = |name: &HeaderName| {
        matches!(name.as_str(), "forwarded" | "via" | "x-real-ip")
            || name.as_str().starts_with("x-forwarded-")
    };
    let Some(name) = headers.keys().find(|name| is_passed_on(name)) else { return Ok(()) };
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        format!("this came through a proxy, as its header {name} says, and there are no tokens yet"),
        "make a token with `sawmill token create --access admin` and send it: without one, only programs on the same machine are let in",
    ))
}

/// A cookie is sent by the browser whoever asks; this header by the page alone.
fn check_csrf(headers: &HeaderMap, token: &str) -> Answer<()> {
    let given = headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if secret::same(given, &secret::csrf(token)) {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        format!("a change by cookie needs the header {CSRF_HEADER}"),
        "reload the page; programs send `Authorization: Bearer TOKEN` instead",
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
