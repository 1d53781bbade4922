//! Logging in to the page: the token goes into a cookie that no script can read and no other site has sent.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bytes::Bytes;
use sawmill::Grant;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answer::{Answer, Problem, read};
use crate::guard::Caller;
use crate::{App, Door, secret};

pub(crate) const COOKIE: &str = "sawmill_token";
/// What the page sends beside the cookie.
pub(crate) const CSRF_HEADER: &str = "x-sawmill-csrf";
/// How long a login lasts, in seconds.
const LASTS: u32 = 7 * 24 * 3600;

/// The value of a cookie.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|text| text.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(other, _)| *other == name)
        .map(|(_, value)| value)
}

pub(crate) async fn show(Extension(caller): Extension<Caller>, headers: HeaderMap) -> Answer {
    let csrf = cookie(&headers, COOKIE).map(secret::csrf);
    let known = |grant: Option<&Grant>| said(grant, csrf.as_deref());
    Ok(Json(match &caller {
        Caller::Anybody => known(None),
        Caller::Holder(grant) => known(Some(grant)),
        Caller::Stranger => json!({ "signed_in": false, "needs_token": true }),
    })
    .into_response())
}

/// What the page is told about who looks at it.
fn said(grant: Option<&Grant>, csrf: Option<&str>) -> Value {
    json!({
        "signed_in": true,
        "needs_token": grant.is_some(),
        "access": grant.map_or("admin", |grant| grant.access.name()),
        "topic": grant.and_then(|grant| grant.topic.as_ref().map(ToString::to_string)),
        "csrf": csrf,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    token: String,
}

pub(crate) async fn login(State(app): State<Arc<App>>, body: Bytes) -> Answer {
    let Login { token } = read(&body)?;
    let token = token.trim();
    if app.door().await? == Door::Open {
        return Ok(Json(said(None, None)).into_response());
    }
    let Some(grant) = app.tokens.check(token).await? else {
        return Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "this token is not known, or was revoked",
            "check it; `sawmill token create` makes a new one",
        ));
    };
    let csrf = secret::csrf(token);
    let response = Json(said(Some(&grant), Some(&csrf))).into_response();
    with_cookie(&app, response, token, LASTS)
}

pub(crate) async fn logout(State(app): State<Arc<App>>) -> Answer {
    with_cookie(&app, StatusCode::NO_CONTENT.into_response(), "", 0)
}

fn with_cookie(app: &App, mut response: Response, token: &str, seconds: u32) -> Answer {
    let secure = if app.options.secure_cookies { "; Secure" } else { "" };
    let text = format!("{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/; Max-Age={seconds}{secure}");
    let value = HeaderValue::from_str(&text)
        .map_err(|_| Problem::bad("this token cannot be a cookie", "check it"))?;
    response.headers_mut().insert(header::SET_COOKIE, value);
    Ok(response)
}
