//! Serves monitoring: the process's metrics and the status of every group in the Prometheus text format, and
//! a health check.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use sawmill::admin::GroupReport;
use sawmill::engine::runtime::Moment;
use sawmill::telemetry::metric;
use serde_json::json;

use crate::App;
use crate::answer::{Answer, Problem};

/// A gauge: its name, its help text, and its value for a group.
type Gauge = (&'static str, &'static str, fn(&GroupReport) -> f64);

const GAUGES: &[Gauge] = &[
    (metric::WAITING, "Messages that are due and not handed out.", |group| group.waiting as f64),
    (metric::OLDEST_SECONDS, "The age of the oldest message that waits.", |group| {
        group.oldest_seconds.unwrap_or(0.0)
    }),
    (metric::SCHEDULED, "Messages that are not due yet.", |group| group.scheduled as f64),
    (metric::CLAIMED, "Messages in the hands of workers.", |group| group.claimed as f64),
    (metric::RETRYING, "Messages that failed and are tried again.", |group| group.retrying as f64),
    (metric::DEAD, "Dead letters.", |group| group.dead as f64),
    (metric::PAUSED, "1 if the group is paused.", |group| f64::from(u8::from(group.paused))),
    (metric::WORKERS, "Workers of the group on this topic.", |group| group.workers as f64),
];

pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Answer {
    let rows = app.status_cache.reports(|_| true).await?;
    let mut text = app.options.metrics.as_ref().map_or_else(String::new, |render| render());
    for (name, what, value) in GAUGES {
        let _ = writeln!(text, "# HELP {name} {what}\n# TYPE {name} gauge");
        for row in &rows {
            let (topic, group) = (&row.report.topic, row.report.group.as_deref().unwrap_or_default());
            let value = value(&row.report);
            let _ = writeln!(text, "{name}{{topic=\"{topic}\",group=\"{group}\"}} {value}");
        }
    }
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

/// How long a health check result is reused.
const MAX_AGE: Duration = Duration::from_secs(1);

/// The time and result of the last health check.
#[derive(Default)]
pub(crate) struct Health(tokio::sync::Mutex<Option<(Moment, bool)>>);

impl Health {
    /// Checks the store at most once a second, because anybody may call this.
    async fn is_good(&self, app: &App) -> bool {
        let mut last = self.0.lock().await;
        if let Some((at, is_good)) = *last
            && app.env.now().since(at) < MAX_AGE
        {
            return is_good;
        }
        let answer = app.mill.admin().topics().await;
        if let Err(error) = &answer {
            tracing::warn!(%error, "the store does not answer");
        }
        *last = Some((app.env.now(), answer.is_ok()));
        answer.is_ok()
    }
}

/// Reports whether the store answers. The reason of a failure is not shown, because anybody may call this.
pub(crate) async fn health(State(app): State<Arc<App>>) -> Answer {
    if app.health.is_good(&app).await {
        return Ok(Json(json!({ "ok": true, "version": env!("CARGO_PKG_VERSION") })).into_response());
    }
    let (error, what_to_do) = ("the store does not answer", "look into the log of the server");
    Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, error, what_to_do))
}
