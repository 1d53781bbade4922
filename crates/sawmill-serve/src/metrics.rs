//! For monitoring: what this process counts and where every group stands, in the text format of Prometheus; and whether the
//! store answers.

use std::fmt::Write;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use sawmill::GroupReport;
use sawmill::observe::metric;
use serde_json::json;

use crate::App;
use crate::answer::Answer;

/// A gauge: its name, what it says, and its value for a group.
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
    let rows = app.board.reports(|_| true).await?;
    let mut text = app.options.metrics.as_ref().map_or_else(String::new, |render| render());
    for (name, what, value) in GAUGES {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {name} {what}\n# TYPE {name} gauge");
        for row in &rows {
            let (topic, group) = (&row.report.topic, row.report.group.as_deref().unwrap_or_default());
            let value = value(&row.report);
            let _ = writeln!(text, "{name}{{topic=\"{topic}\",group=\"{group}\"}} {value}");
        }
    }
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

/// Whether the store answers.
pub(crate) async fn health(State(app): State<Arc<App>>) -> Answer {
    app.mill.topics().await?;
    Ok(Json(json!({ "ok": true, "version": env!("CARGO_PKG_VERSION") })).into_response())
}
