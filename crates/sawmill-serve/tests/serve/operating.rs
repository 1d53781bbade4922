//! Groups, dead letters, pausing, replaying, workers, metrics.

use std::sync::Arc;

use sawmill::{Context, Outcome, RetryPolicy};
use sawmill_serve::Options;
use serde_json::{Value, json};

use crate::support::{Place, until};

const GROUP: &str = "/api/v1/topics/emails/groups/default";

/// A store with three dead letters and one message that was done.
async fn furnished(options: Options) -> Place {
    let place = Place::with(options).await;
    place.mill.create_topic("emails").await.unwrap();
    place.mill.push_many("emails", ["alpha", "beta", "gamma", "fine"]).await.unwrap();
    let handler = |mail: Context| async move {
        if mail.payload() == "fine" { Outcome::Done } else { Outcome::retry("no such address") }
    };
    let worker = place.mill.worker("emails").retry(RetryPolicy::none()).start(handler).await.unwrap();
    worker.drained().await;
    worker.stop().await;
    place
}

async fn letters(place: &Place, query: &str) -> Vec<Value> {
    let reply = place.call(&format!("GET {GROUP}/dead{query}"), Value::Null).await;
    reply.ok().json()["letters"].as_array().unwrap().clone()
}

#[tokio::test]
async fn q17_a_group_is_shown_with_a_verdict() {
    let place = furnished(Options::default()).await;
    let group = place.call(&format!("GET {GROUP}"), Value::Null).await.json();
    assert_eq!((&group["done"], &group["dead"], &group["verdict"]), (&json!(1), &json!(3), &json!("idle")));
    place.mill.push("emails", "more").await.unwrap();
    until("it is seen", async || {
        place.call(&format!("GET {GROUP}"), Value::Null).await.json()["verdict"] == "no-workers"
    })
    .await;
    let all = place.call("GET /api/v1/status", Value::Null).await.json();
    assert_eq!(all["groups"][0]["waiting"], 1);
    let of_topic = place.call("GET /api/v1/topics/emails/groups", Value::Null).await.json();
    assert_eq!(of_topic["groups"][0]["group"], "default");
    place.call("GET /api/v1/topics/emails/groups/none", Value::Null).await.refused(404);
    place.call("GET /api/v1/topics/none/groups", Value::Null).await.refused(404);
}

#[tokio::test]
async fn dead_letters_are_found_looked_at_resent_and_dropped() {
    let place = furnished(Options::default()).await;
    assert_eq!(letters(&place, "").await.len(), 3);
    assert_eq!(letters(&place, "?search=ADDRESS").await.len(), 3, "by reason");
    let found = letters(&place, "?search=bet").await;
    assert_eq!((found.len(), &found[0]["payload"]), (1, &json!("beta")));
    let id = found[0]["id"].as_str().unwrap();
    let limited = place.call(&format!("GET {GROUP}/dead?limit=2"), Value::Null).await.json();
    assert_eq!((limited["letters"].as_array().unwrap().len(), &limited["more"]), (2, &json!(true)));
    let letter = place.call(&format!("GET {GROUP}/dead/{id}"), Value::Null).await.json();
    assert!(letter["reason"].as_str().unwrap().ends_with("no such address"), "{letter}");
    assert_eq!(letter["failed_attempts"], 1);
    let resent = place.call(&format!("POST {GROUP}/dead/retry"), json!({ "ids": [id] })).await.json();
    assert_eq!(resent["resent"], 1);
    place.call(&format!("GET {GROUP}/dead/{id}"), Value::Null).await.refused(404);
    place.call(&format!("POST {GROUP}/dead/drop"), json!({ "ids": [id] })).await.refused(404);
    let dropped = place.call(&format!("POST {GROUP}/dead/drop"), json!({ "all": true })).await.json();
    assert_eq!(dropped["dropped"], 2);
    assert!(letters(&place, "").await.is_empty());
    let worker = place.mill.worker("emails").start(|_: Context| async {}).await.unwrap();
    until("what was resent is worked", async || worker.counts().done == 1).await;
    worker.stop().await;
}

#[tokio::test]
async fn which_letters_are_meant_has_to_be_said() {
    let place = furnished(Options::default()).await;
    for body in [
        Value::Null,
        json!({}),
        json!({ "ids": [] }),
        json!({ "all": false }),
        json!({ "ids": ["01ARZ3NDEKTSV4RRFFQ69G5FAV"], "all": true }),
        json!({ "ids": ["x"] }),
        json!({ "ids": "x" }),
    ] {
        for how in ["retry", "drop"] {
            place.call(&format!("POST {GROUP}/dead/{how}"), body.clone()).await.refused(400);
        }
    }
    place.call(&format!("GET {GROUP}/dead/x"), Value::Null).await.refused(400);
    place.call(&format!("GET {GROUP}/dead?limit=x"), Value::Null).await.refused(400);
    place.call(&format!("GET {GROUP}/dead?colour=red"), Value::Null).await.refused(400);
    assert_eq!(letters(&place, "").await.len(), 3);
}

#[tokio::test]
async fn q17_a_group_is_paused_resumed_and_replayed() {
    let place = furnished(Options::default()).await;
    assert_eq!(place.call(&format!("POST {GROUP}/pause"), Value::Null).await.json()["paused"], true);
    assert!(place.mill.status("emails", "default").await.unwrap().paused);
    assert_eq!(place.call(&format!("GET {GROUP}"), Value::Null).await.json()["verdict"], "paused");
    assert_eq!(place.call(&format!("POST {GROUP}/resume"), Value::Null).await.json()["paused"], false);
    assert!(!place.mill.status("emails", "default").await.unwrap().paused);
    let replayed = place.call(&format!("POST {GROUP}/replay"), json!({ "from": "start" })).await.json();
    assert_eq!(replayed["waiting"], 4);
    let replayed = place.call(&format!("POST {GROUP}/replay"), json!({ "from": "now" })).await.json();
    assert_eq!(replayed["waiting"], 0);
    let time = json!({ "from": "2001-01-01T00:00:00Z" });
    assert_eq!(place.call(&format!("POST {GROUP}/replay"), time).await.json()["waiting"], 4);
    place.call(&format!("POST {GROUP}/replay"), json!({ "from": "yesterday" })).await.refused(400);
    place.call(&format!("POST {GROUP}/replay"), Value::Null).await.refused(400);
    let none = "POST /api/v1/topics/emails/groups/none/replay";
    place.call(none, json!({ "from": "start" })).await.refused(404);
}

#[tokio::test]
async fn q17_workers_are_shown_with_what_they_hold() {
    let place = furnished(Options::default()).await;
    place.mill.push("emails", "x").await.unwrap();
    let busy = |mail: Context| {
        mail.note("half way");
        std::future::pending::<()>()
    };
    let worker = place.mill.worker("emails").name("pbx").slots(3).start(busy).await.unwrap();
    let seen = async || place.call("GET /api/v1/workers", Value::Null).await.json()["workers"][0].clone();
    until("the note is told", async || seen().await["running"][0]["note"] == "half way").await;
    let shown = seen().await;
    assert!(shown["worker"].as_str().unwrap().starts_with("pbx"), "{shown}");
    assert_eq!((&shown["slots"], &shown["claimed"]), (&json!(3), &json!(1)));
    let none = place.call("GET /api/v1/workers?topic=orders", Value::Null).await.json();
    assert_eq!(none["workers"], json!([]));
    let group = place.call("GET /api/v1/workers?group=default&topic=emails", Value::Null).await.json();
    assert_eq!(group["workers"].as_array().unwrap().len(), 1);
    place.call("GET /api/v1/workers?group=b%20d", Value::Null).await.refused(400);
    worker.abort().await;
}

#[tokio::test]
async fn q16_metrics_say_where_every_group_stands_beside_what_the_process_counts() {
    let metrics: Option<Arc<dyn Fn() -> String + Send + Sync>> = Some(Arc::new(|| "up 1\n".to_owned()));
    let place = furnished(Options { metrics, ..Options::default() }).await;
    place.mill.push("emails", "x").await.unwrap();
    let reply = place.call("GET /metrics", Value::Null).await;
    assert!(reply.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    for line in [
        "up 1",
        "# TYPE sawmill_waiting gauge",
        "sawmill_waiting{topic=\"emails\",group=\"default\"} 1",
        "sawmill_dead{topic=\"emails\",group=\"default\"} 3",
        "sawmill_paused{topic=\"emails\",group=\"default\"} 0",
    ] {
        assert!(reply.body.lines().any(|other| other == line), "{line}: {}", reply.body);
    }
    let health = place.call("GET /healthz", Value::Null).await;
    assert_eq!((health.status, &health.json()["ok"]), (200, &json!(true)));
}
