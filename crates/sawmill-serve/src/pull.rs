//! Handlers for pulling with a long poll, and for the results of pulled jobs.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use sawmill::Outcome;
use sawmill::engine::model::GroupName;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::answer::{Answer, Problem, not_null, read, seconds, whole_number};
use crate::jobs::{PullRequest, PullSettings, PulledJob};
use crate::view::MessageView;
use crate::{App, topics};

/// Bounds of the wait: a read of the store takes up to the shortest, and proxies time out after the longest.
const SHORTEST_WAIT: Duration = Duration::from_millis(300);
const LONGEST_WAIT: f64 = 60.0;
/// The time limit of a job: the default and the maximum, in seconds.
const DEFAULT_LIMIT: f64 = 60.0;
const LONGEST_LIMIT: f64 = 24.0 * 3600.0;
const MAX_PULLED: usize = 100;
const DEFAULT_RETRIES: u32 = 5;
const MAX_RETRIES: u32 = 1_000;
/// How much of a worker's error message is kept, in bytes; the same as for commands.
const MAX_ERROR: usize = 4 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PullBody {
    #[serde(default, deserialize_with = "whole_number")]
    max: Option<usize>,
    #[serde(default, deserialize_with = "not_null")]
    wait_seconds: Option<f64>,
    #[serde(default, deserialize_with = "not_null")]
    timeout_seconds: Option<f64>,
    #[serde(default, deserialize_with = "not_null")]
    ordered: Option<bool>,
    #[serde(default, deserialize_with = "not_null")]
    delivery: Option<DeliveryWanted>,
    #[serde(default, deserialize_with = "whole_number")]
    retries: Option<u32>,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum DeliveryWanted {
    AtLeastOnce,
    AtMostOnce,
}

/// A pulled message.
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
    let max = body.max.unwrap_or(1);
    if !(1..=MAX_PULLED).contains(&max) {
        return Err(Problem::bad(format!("max is {max}"), format!("pull from 1 to {MAX_PULLED} at once")));
    }
    let retries = body.retries.unwrap_or(DEFAULT_RETRIES);
    if retries > MAX_RETRIES {
        return Err(Problem::bad(format!("retries is {retries}"), format!("choose from 0 to {MAX_RETRIES}")));
    }
    let limit = seconds("timeout_seconds", body.timeout_seconds.unwrap_or(DEFAULT_LIMIT), LONGEST_LIMIT)?;
    let wait = seconds("wait_seconds", body.wait_seconds.unwrap_or(0.0), LONGEST_WAIT)?;
    let request =
        PullRequest { max, wait: wait.max(SHORTEST_WAIT), limit: limit.max(Duration::from_secs(1)) };
    let settings = PullSettings {
        topic,
        group: group.to_string(),
        ordered: body.ordered.unwrap_or(false),
        at_most_once: body.delivery == Some(DeliveryWanted::AtMostOnce),
        retries,
    };
    let jobs = tokio::select! {
        biased;
        () = app.closing.cancelled() => Vec::new(),
        jobs = app.jobs.pull(&settings, &request) => jobs?,
    };
    let shown: Vec<JobView> = jobs.iter().map(|job| shown(job, &request)).collect();
    let response = Json(json!({ "jobs": shown })).into_response();
    jobs.into_iter().for_each(PulledJob::sent);
    Ok(response)
}

fn shown(PulledJob { receipt, context, .. }: &PulledJob, request: &PullRequest) -> JobView {
    JobView {
        receipt: receipt.clone(),
        message: MessageView::new(context.topic(), context.message()),
        group: context.group().to_string(),
        attempt: context.attempt(),
        token: context.token().to_string(),
        timeout_seconds: request.limit.as_secs_f64(),
    }
}

type JobPath = Path<(String, String)>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EmptyBody {}

pub(crate) async fn done(
    State(app): State<Arc<App>>,
    Path((topic, receipt)): JobPath,
    body: Bytes,
) -> Answer {
    read::<EmptyBody>(&body)?;
    app.jobs.take(&topic, &receipt)?.done().await?;
    Ok(no_content())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FailedBody {
    #[serde(default)]
    error: String,
    #[serde(default, deserialize_with = "not_null")]
    retry: Option<bool>,
    #[serde(default, deserialize_with = "not_null")]
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
    Ok(no_content())
}

/// Returns the end of a long text: the actual error is usually at the end.
fn end_of(text: &str) -> &str {
    let from = text.len().saturating_sub(MAX_ERROR);
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
    Ok(no_content())
}

fn no_content() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_long_errors_the_end_is_kept() {
        assert_eq!(end_of("short"), "short");
        let long = format!("{}é the end", "é".repeat(MAX_ERROR));
        let end = end_of(&long);
        assert!(end.ends_with("the end") && end.len() <= MAX_ERROR && end.len() > MAX_ERROR - 4);
    }
}
