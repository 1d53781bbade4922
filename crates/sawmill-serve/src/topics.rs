//! Handlers for topics: list, create, show, delete, and peek at waiting messages.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bytes::Bytes;
use sawmill::engine::model::{Topic, TopicName};
use sawmill::{Message, Sawmill, TopicSpec};
use serde::Deserialize;
use serde_json::json;

use crate::answer::{Answer, Problem, QueryParams, at_most, not_null, read, seconds, whole_number};
use crate::guard::Caller;
use crate::view::{MessageView, TopicView};
use crate::{App, locked};

const CENTURY: f64 = 100.0 * 365.25 * 86_400.0;
const MAX_PEEKED: usize = 1_000;

/// Returns the topic with this name, or a problem if there is none.
pub(crate) async fn find(mill: &Sawmill, name: &str) -> Answer<Topic> {
    let name: TopicName = name.parse()?;
    if name.as_lane().is_some() {
        let what = format!("{name} is a lane of topic {}", name.base());
        return Err(Problem::bad(what, "ask for the topic itself, or for its groups and their dead letters"));
    }
    let found = mill.admin().topics().await?.into_iter().find(|topic| topic.name == name);
    found.ok_or_else(|| {
        Problem::not_found(format!("topic {name} does not exist"), "create it first: PUT /api/v1/topics/NAME")
    })
}

pub(crate) async fn list(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>) -> Answer {
    let mut topics = app.mill.admin().topics().await?;
    topics.retain(|topic| caller.sees(topic.name.base()));
    let topics: Vec<TopicView> = topics.into_iter().map(TopicView::from).collect();
    Ok(Json(json!({ "topics": topics })).into_response())
}

pub(crate) async fn show(State(app): State<Arc<App>>, Path(topic): Path<String>) -> Answer<Json<TopicView>> {
    Ok(Json(find(&app.mill, &topic).await?.into()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    #[serde(default, deserialize_with = "whole_number")]
    shards: Option<u16>,
    #[serde(default, deserialize_with = "not_null")]
    retention_seconds: Option<f64>,
    #[serde(default, deserialize_with = "not_null")]
    drops_unread: Option<bool>,
}

pub(crate) async fn create(State(app): State<Arc<App>>, Path(topic): Path<String>, body: Bytes) -> Answer {
    let wanted: Wanted = read(&body)?;
    let mut spec = TopicSpec::new(topic.parse()?);
    let there = app.mill.admin().topics().await?.into_iter().find(|topic| topic.name == spec.name);
    if let Some(there) = &there {
        // Settings that the request leaves out stay unchanged.
        (spec.shards, spec.retention, spec.drops_unread) =
            (there.shards, there.retention, there.drops_unread);
    }
    spec.shards = wanted.shards.unwrap_or(spec.shards);
    spec.drops_unread = wanted.drops_unread.unwrap_or(spec.drops_unread);
    if let Some(retention) = wanted.retention_seconds {
        spec.retention = seconds("retention_seconds", retention, CENTURY)?;
    }
    if let Some(there) = &there
        && (spec.retention, spec.drops_unread) != (there.retention, there.drops_unread)
    {
        return Err(Problem::new(
            StatusCode::CONFLICT,
            format!("topic {topic} exists with other settings"),
            "use it as it is, or choose another name",
        ));
    }
    let status = if there.is_some() { StatusCode::OK } else { StatusCode::CREATED };
    let topic = app.mill.create_topic_with(&spec).await?;
    Ok((status, Json(TopicView::from(topic))).into_response())
}

pub(crate) async fn delete(State(app): State<Arc<App>>, Path(topic): Path<String>) -> Answer<Response> {
    app.mill.admin().delete_topic(&topic).await?;
    locked(&app.producers).remove(&topic);
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Peek {
    #[serde(default = "default_group")]
    group: String,
    limit: Option<usize>,
}

fn default_group() -> String {
    "default".to_owned()
}

pub(crate) async fn peek(
    State(app): State<Arc<App>>,
    Path(topic): Path<String>,
    QueryParams(Peek { group, limit }): QueryParams<Peek>,
) -> Answer {
    let limit = at_most("limit", limit.unwrap_or(20), MAX_PEEKED)?;
    let shown = |message: &Message| MessageView::new(&topic, message).shortened();
    let messages = app.mill.admin().peek_with(&topic, &group, limit, shown).await?;
    Ok(Json(json!({ "messages": messages })).into_response())
}
