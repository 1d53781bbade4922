//! Tests groups, dead letters, pause, replay, workers and metrics.

use std::sync::Arc;

use sawmill::{Context, Outcome, RetryPolicy};
use sawmill_serve::Options;
use serde_json::{Value, json};

use crate::support::{TestServer, until};

const GROUP: &str = "/api/v1/topics/emails/groups/default";

/// Starts a server with three dead letters and one message that was done.
async fn server_with_letters(options: Options) -> TestServer {
    let server = TestServer::with(options).await;
    server.mill.create_topic("emails").await.unwrap();
    server.mill.push_many("emails", ["alpha", "beta", "gamma", "fine"]).await.unwrap();
    let handler = |mail: Context| async move {
        if mail.payload() == "fine" { Outcome::Done } else { Outcome::retry("no such address") }
    };
    let worker = server.mill.worker("emails").retry(RetryPolicy::none()).start(handler).await.unwrap();
    worker.drained().await;
    worker.stop().await;
    server
}

async fn letters(server: &TestServer, query: &str) -> Vec<Value> {
    let reply = server.call(&format!("GET {GROUP}/dead{query}"), Value::Null).await;
    reply.ok().json()["dead_letters"].as_array().unwrap().clone()
}

#[tokio::test]
async fn q17_a_group_is_shown_with_a_verdict() {
    let server = server_with_letters(Options::default()).await;
    let group = server.call(&format!("GET {GROUP}"), Value::Null).await.json();
    assert_eq!((&group["done"], &group["dead"], &group["verdict"]), (&json!(1), &json!(3), &json!("idle")));
    server.mill.push("emails", "more").await.unwrap();
    until("it is seen", async || {
        server.call(&format!("GET {GROUP}"), Value::Null).await.json()["verdict"] == "no-workers"
    })
    .await;
    let all = server.call("GET /api/v1/status", Value::Null).await.json();
    assert_eq!(all["groups"][0]["waiting"], 1);
    let of_topic = server.call("GET /api/v1/topics/emails/groups", Value::Null).await.json();
    assert_eq!(of_topic["groups"][0]["group"], "default");
    server.call("GET /api/v1/topics/emails/groups/none", Value::Null).await.refused(404);
    server.call("GET /api/v1/topics/none/groups", Value::Null).await.refused(404);
}

#[tokio::test]
async fn dead_letters_are_found_looked_at_resent_and_dropped() {
    let server = server_with_letters(Options::default()).await;
    assert_eq!(letters(&server, "").await.len(), 3);
    assert_eq!(letters(&server, "?search=ADDRESS").await.len(), 3, "by reason");
    let found = letters(&server, "?search=bet").await;
    assert_eq!((found.len(), &found[0]["payload"]), (1, &json!("beta")));
    let id = found[0]["id"].as_str().unwrap();
    let limited = server.call(&format!("GET {GROUP}/dead?limit=2"), Value::Null).await.json();
    assert_eq!((limited["dead_letters"].as_array().unwrap().len(), &limited["more"]), (2, &json!(true)));
    let letter = server.call(&format!("GET {GROUP}/dead/{id}"), Value::Null).await.json();
    assert!(letter["reason"].as_str().unwrap().ends_with("no such address"), "{letter}");
    assert_eq!(letter["failed_attempts"], 1);
    let retried = server.call(&format!("POST {GROUP}/dead/retry"), json!({ "ids": [id] })).await.json();
    assert_eq!(retried["retried"], 1);
    server.call(&format!("GET {GROUP}/dead/{id}"), Value::Null).await.refused(404);
    server.call(&format!("POST {GROUP}/dead/drop"), json!({ "ids": [id] })).await.refused(404);
    let dropped = server.call(&format!("POST {GROUP}/dead/drop"), json!({ "all": true })).await.json();
    assert_eq!(dropped["dropped"], 2);
    assert!(letters(&server, "").await.is_empty());
    let worker = server.mill.worker("emails").start(|_: Context| async {}).await.unwrap();
    until("what was retried is worked", async || worker.counts().done == 1).await;
    worker.stop().await;
}

#[tokio::test]
async fn which_letters_are_meant_has_to_be_said() {
    let server = server_with_letters(Options::default()).await;
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
            server.call(&format!("POST {GROUP}/dead/{how}"), body.clone()).await.refused(400);
        }
    }
    server.call(&format!("GET {GROUP}/dead/x"), Value::Null).await.refused(400);
    server.call(&format!("GET {GROUP}/dead?limit=x"), Value::Null).await.refused(400);
    server.call(&format!("GET {GROUP}/dead?colour=red"), Value::Null).await.refused(400);
    assert_eq!(letters(&server, "").await.len(), 3);
}

#[tokio::test]
async fn q17_a_group_is_paused_resumed_and_replayed() {
    let server = server_with_letters(Options::default()).await;
    assert_eq!(server.call(&format!("POST {GROUP}/pause"), Value::Null).await.json()["paused"], true);
    assert!(server.mill.admin().status("emails", "default").await.unwrap().paused);
    assert_eq!(server.call(&format!("GET {GROUP}"), Value::Null).await.json()["verdict"], "paused");
    assert_eq!(server.call(&format!("POST {GROUP}/resume"), Value::Null).await.json()["paused"], false);
    assert!(!server.mill.admin().status("emails", "default").await.unwrap().paused);
    let replayed = server.call(&format!("POST {GROUP}/replay"), json!({ "from": "start" })).await.json();
    assert_eq!(replayed["waiting"], 4);
    let replayed = server.call(&format!("POST {GROUP}/replay"), json!({ "from": "now" })).await.json();
    assert_eq!(replayed["waiting"], 0);
    let time = json!({ "from": "2001-01-01T00:00:00Z" });
    assert_eq!(server.call(&format!("POST {GROUP}/replay"), time).await.json()["waiting"], 4);
    server.call(&format!("POST {GROUP}/replay"), json!({ "from": "yesterday" })).await.refused(400);
    server.call(&format!("POST {GROUP}/replay"), Value::Null).await.refused(400);
    let none = "POST /api/v1/topics/emails/groups/none/replay";
    server.call(none, json!({ "from": "start" })).await.refused(404);
}

#[tokio::test]
async fn q17_workers_are_shown_with_what_they_hold() {
    let server = server_with_letters(Options::default()).await;
    server.mill.push("emails", "x").await.unwrap();
    let busy = |mail: Context| {
        mail.note("half way");
        std::future::pending::<()>()
    };
    let worker = server.mill.worker("emails").name("pbx").concurrency(3).start(busy).await.unwrap();
    let seen = async || server.call("GET /api/v1/workers", Value::Null).await.json()["workers"][0].clone();
    until("the note is told", async || seen().await["running"][0]["note"] == "half way").await;
    let shown = seen().await;
    assert!(shown["worker"].as_str().unwrap().starts_with("pbx"), "{shown}");
    assert_eq!((&shown["concurrency"], &shown["claimed"]), (&json!(3), &json!(1)));
    let none = server.call("GET /api/v1/workers?topic=orders", Value::Null).await.json();
    assert_eq!(none["workers"], json!([]));
    let group = server.call("GET /api/v1/workers?group=default&topic=emails", Value::Null).await.json();
    assert_eq!(group["workers"].as_array().unwrap().len(), 1);
    server.call("GET /api/v1/workers?group=b%20d", Value::Null).await.refused(400);
    worker.abort().await;
}

#[tokio::test]
async fn q16_metrics_say_where_every_group_stands_beside_what_the_process_counts() {
    let metrics: Option<Arc<dyn Fn() -> String + Send + Sync>> = Some(Arc::new(|| "up 1\n".to_owned()));
    let server = server_with_letters(Options { metrics, ..Options::default() }).await;
    server.mill.push("emails", "x").await.unwrap();
    let reply = server.call("GET /metrics", Value::Null).await;
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
    let health = server.call("GET /healthz", Value::Null).await;
    assert_eq!((health.status, &health.json()["ok"]), (200, &json!(true)));
}
