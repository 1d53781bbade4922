//! Dead letters: searched, looked at, resent and dropped.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use bytes::Bytes;
use sawmill::{DeadLetters, MessageId, Which};
use serde::Deserialize;
use serde_json::json;

use crate::App;
use crate::answer::{Answer, Asked, Problem, read};
use crate::groups;
use crate::view::LetterView;

const MOST_LISTED: usize = 1_000;
/// How many letters are searched through, the oldest first.
const MOST_SEARCHED: usize = 10_000;

type GroupPath = Path<(String, String)>;

async fn open(app: &App, topic: &str, group: &str) -> Answer<DeadLetters> {
    groups::find(app, topic, group).await?;
    Ok(app.mill.dead_letters(topic, group).await?)
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
    Asked(Search { search, limit }): Asked<Search>,
) -> Answer {
    let limit = limit.unwrap_or(100).min(MOST_LISTED);
    let search = search.filter(|text| !text.is_empty());
    let letters = open(&app, &topic, &group).await?;
    // One more than is shown says whether there are more.
    let read = if search.is_some() { MOST_SEARCHED } else { limit + 1 };
    let letters = letters.list(read).await?;
    let searched = letters.len();
    let found = letters.iter().map(|letter| LetterView::new(&topic, &group, letter));
    let found = found.filter(|letter| search.as_ref().is_none_or(|text| letter.says(text)));
    let mut found: Vec<LetterView> = found.take(limit + 1).map(LetterView::shortened).collect();
    let more = found.len() > limit || search.is_some() && searched == MOST_SEARCHED;
    found.truncate(limit);
    Ok(Json(json!({ "letters": found, "more": more })).into_response())
}

pub(crate) async fn show(
    State(app): State<Arc<App>>,
    Path((topic, group, id)): Path<(String, String, String)>,
) -> Answer<Json<LetterView>> {
    let id: MessageId = id.parse()?;
    let letter = open(&app, &topic, &group).await?.show(id).await?;
    Ok(Json(LetterView::new(&topic, &group, &letter)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WhichBody {
    ids: Option<Vec<String>>,
    all: Option<bool>,
}

fn which(body: &Bytes) -> Answer<Which> {
    match read(body)? {
        WhichBody { ids: Some(ids), all: None | Some(false) } if !ids.is_empty() => {
            let ids: sawmill::Result<Vec<MessageId>> = ids.iter().map(|id| id.parse()).collect();
            Ok(Which::Ids(ids?))
        }
        WhichBody { ids: None, all: Some(true) } => Ok(Which::All),
        _ => Err(Problem::bad(
            "it does not say which letters are meant",
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
    let resent = open(&app, &topic, &group).await?.resend(which).await?;
    app.board.forget();
    Ok(Json(json!({ "topic": topic, "group": group, "resent": resent })).into_response())
}

pub(crate) async fn drop(
    State(app): State<Arc<App>>,
    Path((topic, group)): GroupPath,
    body: Bytes,
) -> Answer {
    let which = which(&body)?;
    let dropped = open(&app, &topic, &group).await?.drop(which).await?;
    app.board.forget();
    Ok(Json(json!({ "topic": topic, "group": group, "dropped": dropped })).into_response())
}
