//! Handlers for groups: status, workers, pause, resume and replay.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::IntoResponse;
use axum::{Extension, Json};
use bytes::Bytes;
use sawmill::MessageId;
use sawmill::admin::ReplayFrom;
use sawmill::engine::model::{GroupName, TopicName};
use serde::Deserialize;
use serde_json::json;

use crate::answer::{Answer, Problem, QueryParams, read};
use crate::guard::Caller;
use crate::push::time;
use crate::view::WorkerView;
use crate::{App, topics};

type GroupPath = Path<(String, String)>;

/// Returns a problem if the topic has no such group.
pub(crate) async fn find(app: &App, topic: &str, group: &str) -> Answer<()> {
    topics::find(&app.mill, topic).await?;
    let group: GroupName = group.parse()?;
    if app.mill.admin().groups(topic).await?.contains(&group) {
        return Ok(());
    }
    Err(Problem::not_found(
        format!("topic {topic} has no group {group}"),
        "check its name; a group begins with its first worker or its first pull",
    ))
}

pub(crate) async fn list(State(app): State<Arc<App>>, Path(topic): Path<String>) -> Answer {
    topics::find(&app.mill, &topic).await?;
    let reports = app.status_cache.reports(|name| name == topic).await?;
    Ok(Json(json!({ "groups": reports })).into_response())
}

pub(crate) async fn show(State(app): State<Arc<App>>, Path((topic, group)): GroupPath) -> Answer {
    find(&app, &topic, &group).await?;
    let reports = app.status_cache.reports(|name| name == topic).await?;
    match reports.into_iter().find(|report| report.is_of(&group)) {
        Some(report) => Ok(Json(report).into_response()),
        None => {
            Err(Problem::not_found(format!("topic {topic} has no group {group} any more"), "check its name"))
        }
    }
}

pub(crate) async fn status(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>) -> Answer {
    let reports = app.status_cache.reports(|topic| caller.sees(topic)).await?;
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
    QueryParams(query): QueryParams<Workers>,
) -> Answer {
    if let Some(topic) = &query.topic {
        topic.parse::<TopicName>()?;
    }
    let mut members = match &query.group {
        Some(group) => app.mill.admin().workers(group).await?,
        None => app.mill.admin().all_workers().await?,
    };
    for member in &mut members {
        member.topics.retain(|topic| caller.sees(topic));
        member.running.retain(|running| caller.sees(&running.topic));
    }
    members.retain(|member| !member.topics.is_empty());
    if let Some(topic) = &query.topic {
        members.retain(|member| member.topics.contains(topic));
    }
    let workers: Vec<WorkerView> = members.into_iter().map(WorkerView::from).collect();
    Ok(Json(json!({ "workers": workers })).into_response())
}

pub(crate) async fn pause(State(app): State<Arc<App>>, Path((topic, group)): GroupPath) -> Answer {
    app.mill.admin().pause(&topic, &group).await?;
    app.status_cache.mark_stale();
    Ok(Json(json!({ "topic": topic, "group": group, "paused": true })).into_response())
}

pub(crate) async fn resume(State(app): State<Arc<App>>, Path((topic, group)): GroupPath) -> Answer {
    app.mill.admin().resume(&topic, &group).await?;
    app.status_cache.mark_stale();
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
        "start" => ReplayFrom::Start,
        "now" => ReplayFrom::Now,
        text => match text.parse::<MessageId>() {
            Ok(id) => ReplayFrom::Id(id),
            Err(_) => ReplayFrom::Time(time("from", text).map_err(|_| {
                Problem::bad(
                    format!("{text:?} is no place"),
                    "write start, now, a time like 2026-11-15T08:00:00Z, or the id of a message",
                )
            })?),
        },
    };
    find(&app, &topic, &group).await?;
    app.mill.admin().replay(&topic, &group, since).await?;
    app.status_cache.mark_stale();
    let waiting = app.mill.admin().status(&topic, &group).await?.waiting;
    Ok(Json(json!({ "topic": topic, "group": group, "from": from, "waiting": waiting })).into_response())
}
