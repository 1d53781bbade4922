//! Pulling with a long poll, and what became of what was pulled.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use sawmill::{GroupName, Outcome};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::App;
use crate::answer::{Answer, Problem, read, said, seconds, whole};
use crate::jobs::{Ask, Handed, Terms};
use crate::topics;
use crate::view::MessageView;

/// Nobody waits less than it takes to ask the store, or longer than proxies have patience.
const SHORTEST_WAIT: Duration = Duration::from_millis(300);
const LONGEST_WAIT: f64 = 60.0;
/// How long a job may take, if nothing else is said, and at most.
const USUAL_LIMIT: f64 = 60.0;
const LONGEST_LIMIT: f64 = 24.0 * 3600.0;
const MOST_PULLED: usize = 100;
const USUAL_RETRIES: u32 = 5;
const MOST_RETRIES: u32 = 1_000;
/// How much of what a worker says of a failure is kept, as of commands.
const MOST_ERROR: usize = 4 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PullBody {
    #[serde(default, deserialize_with = "whole")]
    max: Option<usize>,
    #[serde(default, deserialize_with = "said")]
    wait_seconds: Option<f64>,
    #[serde(default, deserialize_with = "said")]
    timeout_seconds: Option<f64>,
    #[serde(default, deserialize_with = "said")]
    ordered: Option<bool>,
    #[serde(default, deserialize_with = "said")]
    delivery: Option<DeliveryWanted>,
    #[serde(default, deserialize_with = "whole")]
    retries: Option<u32>,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum DeliveryWanted {
    AtLeastOnce,
    AtMostOnce,
}

/// A message that was pulled.
#[derive(Serialize)]
struct JobView {
    receipt: String,
    #[serde(flatten)]
    message: MessageView,
    group: String,
    attempt: u32,
    token: String,
    timeout_seconds: f64,
}

pub(crate) async fn pull(
    State(app): State<Arc<App>>,
    Path((topic, group)): Path<(String, String)>,
    body: Bytes,
) -> Answer {
    let body: PullBody = read(&body)?;
    let group: GroupName = group.parse()?;
    topics::find(&app.mill, &topic).await?;
    let most = body.max.unwrap_or(1);
    if !(1..=MOST_PULLED).contains(&most) {
        return Err(Problem::bad(format!("max is {most}"), format!("pull from 1 to {MOST_PULLED} at once")));
    }
    let retries = body.retries.unwrap_or(USUAL_RETRIES);
    if retries > MOST_RETRIES {
        return Err(Problem::bad(
            format!("retries is {retries}"),
            format!("choose from 0 to {MOST_RETRIES}"),
        ));
    }
    let limit = seconds("timeout_seconds", body.timeout_seconds.unwrap_or(USUAL_LIMIT), LONGEST_LIMIT)?;
    let wait = seconds("wait_seconds", body.wait_seconds.unwrap_or(0.0), LONGEST_WAIT)?;
    let ask = Ask { most, wait: wait.max(SHORTEST_WAIT), limit: limit.max(Duration::from_secs(1)) };
    let terms = Terms {
        topic,
        group: group.to_string(),
        ordered: body.ordered.unwrap_or(false),
        at_most_once: body.delivery == Some(DeliveryWanted::AtMostOnce),
        retries,
    };
    let jobs = tokio::select! {
        biased;
        () = app.closing.cancelled() => Vec::new(),
        jobs = app.jobs.pull(&terms, &ask) => jobs?,
    };
    let shown: Vec<JobView> = jobs.iter().map(|job| shown(job, &ask)).collect();
    let response = Json(json!({ "jobs": shown })).into_response();
    jobs.into_iter().for_each(Handed::sent);
    Ok(response)
}

fn shown(Handed { receipt, context, .. }: &Handed, ask: &Ask) -> JobView {
    JobView {
        receipt: receipt.clone(),
        message: MessageView::new(context.topic(), context.message()),
        group: context.group().to_string(),
        attempt: context.attempt(),
        token: context.token().to_string(),
        timeout_seconds: ask.limit.as_secs_f64(),
    }
}

type JobPath = Path<(String, String)>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

pub(crate) async fn done(
    State(app): State<Arc<App>>,
    Path((topic, receipt)): JobPath,
    body: Bytes,
) -> Answer {
    read::<Nothing>(&body)?;
    app.jobs.take(&topic, &receipt)?.done().await?;
    Ok(noted())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FailedBody {
    #[serde(default)]
    error: String,
    #[serde(default, deserialize_with = "said")]
    retry: Option<bool>,
    #[serde(default, deserialize_with = "said")]
    after_seconds: Option<f64>,
}

pub(crate) async fn failed(
    State(app): State<Arc<App>>,
    Path((topic, receipt)): JobPath,
    body: Bytes,
) -> Answer {
    let body: FailedBody = read(&body)?;
    let after = body.after_seconds.map(|after| seconds("after_seconds", after, LONGEST_LIMIT)).transpose()?;
    let error = match body.error.trim() {
        "" => "the worker gave no reason",
        error => end_of(error),
    };
    let outcome = match (body.retry.unwrap_or(true), after) {
        (true, None) => Outcome::retry(error),
        (true, Some(after)) => Outcome::retry_after(error, after),
        (false, None) => Outcome::dead(error),
        (false, Some(_)) => {
            return Err(Problem::bad(
                "it is not to be tried again, but after a time",
                "leave out one of the two",
            ));
        }
    };
    app.jobs.take(&topic, &receipt)?.outcome(outcome).await?;
    Ok(noted())
}

/// The end of a long text, where errors stand.
fn end_of(text: &str) -> &str {
    let from = text.len().saturating_sub(MOST_ERROR);
    let from = (from..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[from..]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExtendBody {
    seconds: f64,
}

pub(crate) async fn extend(
    State(app): State<Arc<App>>,
    Path((topic, receipt)): JobPath,
    body: Bytes,
) -> Answer {
    let body: ExtendBody = read(&body)?;
    app.jobs.extend(&topic, &receipt, seconds("seconds", body.seconds, LONGEST_LIMIT)?)?;
    Ok(noted())
}

fn noted() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_long_errors_the_end_is_kept() {
        assert_eq!(end_of("short"), "short");
        let long = format!("{}é the end", "é".repeat(MOST_ERROR));
        let end = end_of(&long);
        assert!(end.ends_with("the end") && end.len() <= MOST_ERROR && end.len() > MOST_ERROR - 4);
    }
}
