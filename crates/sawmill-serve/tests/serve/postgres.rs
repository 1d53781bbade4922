//! Tests the life of a message through a server over PostgreSQL: the server must not depend on SQLite.

use sawmill::Sawmill;
use sawmill::engine::runtime::Env;
use sawmill_serve::Options;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::{TestServer, until};

/// Starts a server over PostgreSQL, in its own namespace. Without a database the test is skipped, with a
/// message.
async fn server(test: &str) -> Option<TestServer> {
    let variable = "SAWMILL_TEST_POSTGRES";
    let Some(url) = std::env::var(variable).ok().filter(|url| !url.is_empty()) else {
        let why = format!("{variable} names no server; `cargo xtask engines up` starts one");
        sawmill_conformance::skipped(test, &why);
        return None;
    };
    let namespace = format!("t-{:016x}", Env::system().rng().next_u64());
    let options = Sawmill::options().engine(sawmill_postgres::PostgresEngine::default()).namespace(namespace);
    let (mill, folder) = (options.open(&url).await.unwrap(), tempfile::tempdir().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    Some(TestServer::of(mill, folder, listener, Options::default()))
}

#[tokio::test]
async fn a_message_is_pushed_pulled_dies_is_resent_and_done_on_postgres() {
    let Some(server) = server("serve on PostgreSQL").await else { return };
    let (topic, group) = ("/api/v1/topics/orders", "/api/v1/topics/orders/groups/default");
    server.call(&format!("PUT {topic}"), json!({ "shards": 4 })).await.ok();
    let push = json!({ "messages": [{ "payload": "x", "key": "k" }, { "payload": "y", "unique": "u" }] });
    let ids = server.call(&format!("POST {topic}/messages"), push).await.ok().json()["ids"].clone();
    assert_eq!(ids.as_array().unwrap().len(), 2);
    let pull = async || {
        let wanted = json!({ "wait_seconds": 50 });
        server.call(&format!("POST {group}/pull"), wanted).await.ok().json()["jobs"][0].clone()
    };
    let answer = async |job: &Value, how: &str, body: Value| {
        let receipt = job["receipt"].as_str().unwrap();
        server.call(&format!("POST {topic}/jobs/{receipt}/{how}"), body).await.ok();
    };
    let (first, second) = (pull().await, pull().await);
    answer(&first, "done", Value::Null).await;
    answer(&second, "failed", json!({ "error": "no paper", "retry": false })).await;
    let letters = async || server.call(&format!("GET {group}/dead?search=paper"), Value::Null).await.json();
    until("it is dead", async || letters().await["dead_letters"].as_array().unwrap().len() == 1).await;
    assert_eq!(letters().await["dead_letters"][0]["id"], second["id"]);
    server.call(&format!("POST {group}/dead/retry"), json!({ "ids": [second["id"]] })).await.ok();
    let again = pull().await;
    assert_eq!(again["id"], second["id"]);
    answer(&again, "done", Value::Null).await;
    until("both are done", async || {
        let groups = server.call("GET /api/v1/status", Value::Null).await.json();
        groups["groups"][0]["done"] == 2 && groups["groups"][0]["dead"] == 0
    })
    .await;
    let metrics = server.call("GET /metrics", Value::Null).await;
    assert!(metrics.body.contains("sawmill_waiting{topic=\"orders\",group=\"default\"} 0"), "{metrics:?}");
    let told = server.call(&format!("POST {group}/pause"), Value::Null).await.json();
    assert_eq!(told["paused"], true);
}
