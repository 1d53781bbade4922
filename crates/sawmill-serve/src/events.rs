//! What the page watches: where every group stands, as server-sent events.

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

/// How often it is told.
const EVERY: Duration = Duration::from_secs(2);

struct Watcher {
    app: Arc<App>,
    caller: Caller,
    _place: OwnedSemaphorePermit,
    is_first: bool,
}

pub(crate) async fn events(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>) -> Answer {
    let place = app.watchers.clone().try_acquire_owned().map_err(|_| {
        Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many are watching",
            "ask /api/v1/status now and then instead",
        )
    })?;
    let watcher = Watcher { app, caller, _place: place, is_first: true };
    let told = stream::unfold(watcher, |mut watcher| async move {
        let text = watcher.next().await?;
        Some((Ok::<_, std::convert::Infallible>(text), watcher))
    });
    let mut response: Response = Body::from_stream(told).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(response)
}

impl Watcher {
    /// The next event; `None` when the server stops, or when what let them in was revoked.
    async fn next(&mut self) -> Option<String> {
        if !std::mem::replace(&mut self.is_first, false) {
            tokio::select! {
                biased;
                () = self.app.closing.cancelled() => return None,
                () = self.app.env.sleep(EVERY) => {}
            }
        }
        let is_let_in = match &self.caller {
            Caller::Anybody => matches!(self.app.door().await, Ok(Door::Open)),
            // What the store cannot say now it says later.
            Caller::Holder(grant) => !matches!(self.app.tokens.grant(&grant.id).await, Ok(None)),
            Caller::Stranger => false,
        };
        if !is_let_in {
            return None;
        }
        let caller = self.caller.clone();
        Some(match self.app.board.reports(|topic| caller.sees(topic)).await {
            Ok(groups) => told("status", &json!({ "groups": groups })),
            Err(error) => told("trouble", &json!({ "error": error.to_string() })),
        })
    }
}

fn told(event: &str, data: &serde_json::Value) -> String {
    format!("event: {event}\ndata: {data}\n\n")
}
