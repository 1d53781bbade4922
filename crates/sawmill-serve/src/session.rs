//! Login to the page: keeps the credential in a cookie that scripts cannot read and that other sites cannot
//! send.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bytes::Bytes;
use sawmill::admin::AccessKey;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answer::{Answer, Problem, read};
use crate::guard::Caller;
use crate::{App, Door, secret};

pub(crate) const COOKIE: &str = "sawmill_key";
/// The header that the page sends besides the cookie.
pub(crate) const CSRF_HEADER: &str = "x-sawmill-csrf";
/// How long a login lasts, in seconds.
const LOGIN_SECONDS: u32 = 7 * 24 * 3600;

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
    let known = |access_key: Option<&AccessKey>| session_view(access_key, csrf.as_deref());
    Ok(Json(match &caller {
        Caller::Anybody => known(None),
        Caller::KeyHolder(access_key) => known(Some(access_key)),
        Caller::Unauthenticated => json!({ "signed_in": false, "needs_key": true }),
    })
    .into_response())
}

/// The session as the page sees it.
fn session_view(access_key: Option<&AccessKey>, csrf: Option<&str>) -> Value {
    json!({
        "signed_in": true,
        "needs_key": access_key.is_some(),
        "access": access_key.map_or("admin", |access_key| access_key.access.name()),
        "topic": access_key.and_then(|access_key| access_key.topic.as_ref().map(ToString::to_string)),
        "csrf": csrf,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    key: String,
}

pub(crate) async fn login(State(app): State<Arc<App>>, body: Bytes) -> Answer {
    let Login { key: credential } = read(&body)?;
    let credential = credential.trim();
    if app.door().await? == Door::Open {
        return Ok(Json(session_view(None, None)).into_response());
    }
    let Some(access_key) = app.access_keys.check(credential).await? else {
        return Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "this access key is not known, or was revoked",
            "check it; `sawmill key create` makes a new one",
        ));
    };
    let csrf = secret::csrf(credential);
    let response = Json(session_view(Some(&access_key), Some(&csrf))).into_response();
    with_cookie(&app, response, credential, LOGIN_SECONDS)
}

pub(crate) async fn logout(State(app): State<Arc<App>>) -> Answer {
    with_cookie(&app, StatusCode::NO_CONTENT.into_response(), "", 0)
}

fn with_cookie(app: &App, mut response: Response, credential: &str, seconds: u32) -> Answer {
    let secure = if app.options.secure_cookies { "; Secure" } else { "" };
    let text = format!("{COOKIE}={credential}; HttpOnly; SameSite=Strict; Path=/; Max-Age={seconds}{secure}");
    let value = HeaderValue::from_str(&text)
        .map_err(|_| Problem::bad("this access key cannot be a cookie", "check it"))?;
    response.headers_mut().insert(header::SET_COOKIE, value);
    Ok(response)
}
