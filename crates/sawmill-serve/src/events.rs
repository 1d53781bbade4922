//! Streams the status of all groups to the page as server-sent events.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;

use crate::answer::{Answer, Problem};
use crate::guard::Caller;
use crate::{App, Door};

/// The time between two events.
const EVENT_INTERVAL: Duration = Duration::from_secs(2);

struct Watcher {
    app: Arc<App>,
    caller: Caller,
    _permit: OwnedSemaphorePermit,
    is_first: bool,
}

pub(crate) async fn events(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>) -> Answer {
    let permit = app.watchers.clone().try_acquire_owned().map_err(|_| {
        Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many are watching",
            "ask /api/v1/status now and then instead",
        )
    })?;
    let watcher = Watcher { app, caller, _permit: permit, is_first: true };
    let events = stream::unfold(watcher, |mut watcher| async move {
        let text = watcher.next().await?;
        Some((Ok::<_, std::convert::Infallible>(text), watcher))
    });
    let mut response: Response = Body::from_stream(events).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(response)
}

impl Watcher {
    /// Returns the next event, or `None` when the server stops or the caller's access was revoked.
    async fn next(&mut self) -> Option<String> {
        if !std::mem::replace(&mut self.is_first, false) {
            tokio::select! {
                biased;
                () = self.app.closing.cancelled() => return None,
                () = self.app.env.sleep(EVENT_INTERVAL) => {}
            }
        }
        let is_let_in = match &self.caller {
            Caller::Anybody => matches!(self.app.door().await, Ok(Door::Open)),
            // An error of the store ends nothing: the key is checked again at the next event.
            Caller::KeyHolder(access_key) => {
                !matches!(self.app.access_keys.access_key(&access_key.id).await, Ok(None))
            }
            Caller::Unauthenticated => false,
        };
        if !is_let_in {
            return None;
        }
        let caller = self.caller.clone();
        Some(match self.app.status_cache.reports(|topic| caller.sees(topic)).await {
            Ok(groups) => event_text("status", &json!({ "groups": groups })),
            Err(error) => event_text("trouble", &json!({ "error": error.to_string() })),
        })
    }
}

fn event_text(event: &str, data: &serde_json::Value) -> String {
    format!("event: {event}\ndata: {data}\n\n")
}
