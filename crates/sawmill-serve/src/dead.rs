//! Handlers for dead letters: search, show, retry and drop.

use std::ops::ControlFlow;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use bytes::Bytes;
use sawmill::MessageId;
use sawmill::admin::{DeadLetter, DeadLetterSelection, DeadLetters};
use serde::Deserialize;
use serde_json::json;

use crate::answer::{Answer, Problem, QueryParams, at_most, not_null, read};
use crate::view::DeadLetterView;
use crate::{App, groups};

const MAX_LISTED: usize = 1_000;
/// The number of dead letters that a search reads, oldest first.
const MAX_SEARCHED: usize = 10_000;

type GroupPath = Path<(String, String)>;

async fn open(app: &App, topic: &str, group: &str) -> Answer<DeadLetters> {
    groups::find(app, topic, group).await?;
    Ok(app.mill.admin().dead_letters(topic, group).await?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Search {
    search: Option<String>,
    limit: Option<usize>,
}

pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Path((topic, group)): GroupPath,
    QueryParams(Search { search, limit }): QueryParams<Search>,
) -> Answer {
    let limit = at_most("limit", limit.unwrap_or(100), MAX_LISTED)?;
    let search = search.filter(|text| !text.is_empty());
    let letters = open(&app, &topic, &group).await?;
    let (mut found, mut searched) = (Vec::new(), 0);
    let see = |letter: DeadLetter| {
        searched += 1;
        let letter = DeadLetterView::new(&topic, &group, &letter);
        if search.as_ref().is_none_or(|text| letter.contains_text(text)) {
            found.push(letter.shortened());
        }
        // One dead letter beyond the limit shows that there are more.
        let is_enough = found.len() > limit || searched >= MAX_SEARCHED;
        if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    letters.each(see).await?;
    let more = found.len() > limit || searched >= MAX_SEARCHED;
    found.truncate(limit);
    Ok(Json(json!({ "dead_letters": found, "more": more })).into_response())
}

pub(crate) async fn show(
    State(app): State<Arc<App>>,
    Path((topic, group, id)): Path<(String, String, String)>,
) -> Answer<Json<DeadLetterView>> {
    let id: MessageId = id.parse()?;
    let letter = open(&app, &topic, &group).await?.show(id).await?;
    Ok(Json(DeadLetterView::new(&topic, &group, &letter)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WhichBody {
    #[serde(default, deserialize_with = "not_null")]
    ids: Option<Vec<String>>,
    #[serde(default, deserialize_with = "not_null")]
    all: Option<bool>,
}

fn which(body: &Bytes) -> Answer<DeadLetterSelection> {
    match read(body)? {
        WhichBody { ids: Some(ids), all: None } if !ids.is_empty() => {
            let ids: sawmill::Result<Vec<MessageId>> = ids.iter().map(|id| id.parse()).collect();
            Ok(DeadLetterSelection::Ids(ids?))
        }
        WhichBody { ids: None, all: Some(true) } => Ok(DeadLetterSelection::All),
        _ => Err(Problem::bad(
            "it does not say which dead letters are meant",
            "send {\"ids\": [\"…\"]} or {\"all\": true}",
        )),
    }
}

pub(crate) async fn retry(
    State(app): State<Arc<App>>,
    Path((topic, group)): GroupPath,
    body: Bytes,
) -> Answer {
    let which = which(&body)?;
    let retried = open(&app, &topic, &group).await?.retry(which).await?;
    app.status_cache.mark_stale();
    Ok(Json(json!({ "topic": topic, "group": group, "retried": retried })).into_response())
}

pub(crate) async fn drop(
    State(app): State<Arc<App>>,
    Path((topic, group)): GroupPath,
    body: Bytes,
) -> Answer {
    let which = which(&body)?;
    let dropped = open(&app, &topic, &group).await?.drop(which).await?;
    app.status_cache.mark_stale();
    Ok(Json(json!({ "topic": topic, "group": group, "dropped": dropped })).into_response())
}
