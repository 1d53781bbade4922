//! Builds HTTP responses: JSON for success, and problems that say what was wrong and what to do about it.

use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use sawmill::ErrorKind;
use serde::de::{DeserializeOwned, Error, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};

/// What a handler returns.
pub(crate) type Answer<T = Response> = Result<T, Problem>;

/// The reason why a request was refused or failed.
#[derive(Debug, Serialize)]
pub(crate) struct Problem {
    #[serde(skip)]
    pub(crate) status: StatusCode,
    pub(crate) error: String,
    pub(crate) what_to_do: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, error: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self { status, error: error.into(), what_to_do: what_to_do.into() }
    }

    pub(crate) fn bad(error: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error, what_to_do)
    }

    pub(crate) fn not_found(error: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, error, what_to_do)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status;
        let mut response = (status, Json(self)).into_response();
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"sawmill\""));
        }
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl From<sawmill::Error> for Problem {
    fn from(error: sawmill::Error) -> Self {
        let (status, what_to_do) = advice(error.kind());
        if status.is_server_error() {
            tracing::warn!(%error, "a request failed");
        }
        Self::new(status, error.to_string(), what_to_do)
    }
}

fn advice(kind: ErrorKind) -> (StatusCode, &'static str) {
    match kind {
        ErrorKind::Invalid => (StatusCode::BAD_REQUEST, "correct the request as the error says"),
        ErrorKind::Unsupported => {
            (StatusCode::UNPROCESSABLE_ENTITY, "leave it out, or use a store that can do it")
        }
        ErrorKind::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "send less in one message"),
        ErrorKind::NotFound => (StatusCode::NOT_FOUND, "check the name or the id"),
        ErrorKind::Exists => (StatusCode::CONFLICT, "use what is there, or choose another name"),
        ErrorKind::InUse => (StatusCode::CONFLICT, "wait until it is free"),
        ErrorKind::Late => {
            (StatusCode::CONFLICT, "drop the job: it is run again; extend the next one in time")
        }
        ErrorKind::Gone => (StatusCode::GONE, "choose what is still in the log"),
        ErrorKind::Full => (StatusCode::INSUFFICIENT_STORAGE, "make room in the store, then send it again"),
        ErrorKind::Outdated => (StatusCode::INTERNAL_SERVER_ERROR, "upgrade the server, then send it again"),
        ErrorKind::Unknown => (
            StatusCode::SERVICE_UNAVAILABLE,
            "it may have been done: send it again if doing it twice does no harm, as with an Idempotency-Key",
        ),
        ErrorKind::Unavailable => {
            (StatusCode::SERVICE_UNAVAILABLE, "nothing was done: send it again in a moment")
        }
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "look into the log of the server"),
    }
}

/// Parses the body of a request, which must be a JSON object. An empty body counts as `{}`.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Answer<T> {
    let body = body.trim_ascii_start();
    let read = match body.first() {
        None => serde_json::from_slice(b"{}"),
        Some(b'{') => serde_json::from_slice(body),
        // Serde would also accept an array with the values in field order.
        Some(_) => serde_json::from_slice(body)
            .and_then(|_: IgnoredAny| Err(serde_json::Error::custom("it is JSON, but not an object"))),
    };
    read.map_err(|error| {
        Problem::bad(
            format!("the body cannot be understood: {error}"),
            "send JSON as /openapi.json describes it",
        )
    })
}

/// Deserializes a field that may be absent but not `null`: a client that sends `null` may have lost a value.
pub(crate) fn not_null<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(from).map(Some)
}

/// Deserializes a whole number. Also accepts `3.0`, because some languages have floating-point numbers only.
pub(crate) fn whole_number<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    let number = serde_json::Number::deserialize(from)?;
    // Above 2^53, floating-point numbers are not exact.
    let rounded =
        number.as_f64().filter(|float| float.fract() == 0.0 && (0.0..=2f64.powi(53)).contains(float));
    let whole =
        number.as_u64().or(rounded.map(|float| float as u64)).and_then(|whole| T::try_from(whole).ok());
    whole.map(Some).ok_or_else(|| D::Error::custom(format!("{number} cannot be used here")))
}

/// Parameters from the query string of the URL.
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parse_query(&parts.uri)
    }
}

fn parse_query<T: DeserializeOwned>(uri: &Uri) -> Result<QueryParams<T>, Problem> {
    match axum::extract::Query::try_from_uri(uri) {
        Ok(axum::extract::Query(params)) => Ok(QueryParams(params)),
        Err(error) => Err(Problem::bad(
            format!("the query cannot be understood: {}", error.body_text()),
            "write the parameters as /openapi.json describes them",
        )),
    }
}

/// Checks that a count is within bounds.
pub(crate) fn at_most(name: &str, value: usize, most: usize) -> Answer<usize> {
    if value > most {
        return Err(Problem::bad(format!("{name} is {value}"), format!("give a number from 0 to {most}")));
    }
    Ok(value)
}

/// Converts a number of seconds that must be within bounds.
pub(crate) fn seconds(name: &str, value: f64, most: f64) -> Answer<std::time::Duration> {
    let wrong =
        || Problem::bad(format!("{name} is {value}"), format!("give a number of seconds from 0 to {most}"));
    if !(0.0..=most).contains(&value) {
        return Err(wrong());
    }
    std::time::Duration::try_from_secs_f64(value).map_err(|_| wrong())
}
