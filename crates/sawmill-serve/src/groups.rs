//! Groups: where they stand, who works in them, pausing and replaying.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::IntoResponse;
use axum::{Extension, Json};
use bytes::Bytes;
use sawmill::{GroupName, MessageId, Since, TopicName};
use serde::Deserialize;
use serde_json::json;

use crate::App;
use crate::answer::{Answer, Asked, Problem, read};
use crate::guard::Caller;
use crate::push::time;
use crate::topics;
use crate::view::WorkerView;

type GroupPath = Path<(String, String)>;

/// A problem if the topic has no such group.
pub(crate) async fn find(app: &App, topic: &str, group: &str) -> Answer<()> {
    topics::find(&app.mill, topic).await?;
    let group: GroupName = group.parse()?;
    if app.mill.groups(topic).await?.contains(&group) {
        return Ok(());
    }
    Err(Problem::not_found(
        format!("topic {topic} has no group {group}"),
        "check its name; a group begins with its first worker or its first pull",
    ))
}

pub(crate) async fn list(State(app): State<Arc<App>>, Path(topic): Path<String>) -> Answer {
    topics::find(&app.mill, &topic).await?;
    let reports = app.board.reports(|name| name == topic).await?;
    Ok(Json(json!({ "groups": reports })).into_response())
}

pub(crate) async fn show(State(app): State<Arc<App>>, Path((topic, group)): GroupPath) -> Answer {
    find(&app, &topic, &group).await?;
    let reports = app.board.reports(|name| name == topic).await?;
    match reports.into_iter().find(|report| report.is_of(&group)) {
        Some(report) => Ok(Json(report).into_response()),
        None => {
            Err(Problem::not_found(format!("topic {topic} has no group {group} any more"), "check its name"))
        }
    }
}

pub(crate) async fn status(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>) -> Answer {
    let reports = app.board.reports(|topic| caller.sees(topic)).await?;
    Ok(Json(json!({ "groups": reports })).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Workers {
    topic: Option<String>,
    group: Option<String>,
}

pub(crate) async fn workers(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Asked(asked): Asked<Workers>,
) -> Answer {
    if let Some(topic) = &asked.topic {
        topic.parse::<TopicName>()?;
    }
    let mut members = match &asked.group {
        Some(group) => app.mill.members(group).await?,
        None => app.mill.all_members().await?,
    };
    for member in &mut members {
        member.topics.retain(|topic| caller.sees(topic));
        member.running.retain(|running| caller.sees(&running.topic));
    }
    members.retain(|member| !member.topics.is_empty());
    if let Some(topic) = &asked.topic {
        members.retain(|member| member.topics.contains(topic));
    }
    let workers: Vec<WorkerView> = members.into_iter().map(WorkerView::from).collect();
    Ok(Json(json!({ "workers": workers })).into_response())
}

pub(crate) async fn pause(State(app): State<Arc<App>>, Path((topic, group)): GroupPath) -> Answer {
    app.mill.pause(&topic, &group).await?;
    app.board.forget();
    Ok(Json(json!({ "topic": topic, "group": group, "paused": true })).into_response())
}

pub(crate) async fn resume(State(app): State<Arc<App>>, Path((topic, group)): GroupPath) -> Answer {
    app.mill.resume(&topic, &group).await?;
    app.board.forget();
    Ok(Json(json!({ "topic": topic, "group": group, "paused": false })).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Replay {
    from: String,
}

pub(crate) async fn replay(
    State(app): State<Arc<App>>,
    Path((topic, group)): GroupPath,
    body: Bytes,
) -> Answer {
    let Replay { from } = read(&body)?;
    let since = match from.as_str() {
        "start" => Since::Start,
        "now" => Since::Now,
        text => match text.parse::<MessageId>() {
            Ok(id) => Since::Id(id),
            Err(_) => Since::Time(time("from", text).map_err(|_| {
                Problem::bad(
                    format!("{text:?} is no place"),
                    "write start, now, a time like 2026-11-15T08:00:00Z, or the id of a message",
                )
            })?),
        },
    };
    find(&app, &topic, &group).await?;
    app.mill.seek(&topic, &group, since).await?;
    app.board.forget();
    let waiting = app.mill.status(&topic, &group).await?.waiting;
    Ok(Json(json!({ "topic": topic, "group": group, "from": from, "waiting": waiting })).into_response())
}
