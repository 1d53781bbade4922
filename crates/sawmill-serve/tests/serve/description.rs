//! Checks that the API description and the API agree.

use std::collections::BTreeSet;

use sawmill_serve::{OPENAPI, Server};
use serde_json::{Value, json};

use crate::support::TestServer;

fn document() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

#[test]
fn every_route_is_described_and_everything_described_is_a_route() {
    let document = document();
    let mut described = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap().iter().filter(|(name, _)| *name != "parameters")
        {
            assert!(
                operation["operationId"].is_string() && operation["x-access"].is_string(),
                "{method} {path}"
            );
            described.insert((method.clone(), path.clone()));
        }
    }
    let served: BTreeSet<(String, String)> =
        Server::routes().into_iter().map(|(method, path)| (method.to_owned(), path.to_owned())).collect();
    assert_eq!(described, served);
}

/// Collects all references of a document.
fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(object) => {
            found.extend(object.get("$ref").and_then(Value::as_str));
            object.values().for_each(|value| references(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn every_reference_leads_somewhere_and_names_are_used_once() {
    let document = document();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 100);
    for reference in found {
        assert!(document.pointer(reference.strip_prefix('#').unwrap()).is_some(), "{reference}");
    }
    let paths = document["paths"].as_object().unwrap();
    let ids: Vec<&Value> = paths
        .values()
        .flat_map(|item| item.as_object().unwrap().values())
        .filter_map(|operation| operation.get("operationId"))
        .collect();
    let once: BTreeSet<String> = ids.iter().map(ToString::to_string).collect();
    assert_eq!(once.len(), ids.len());
}

/// Checks that an answer has the fields of its schema.
fn check(document: &Value, schema: &str, value: &Value) {
    let schema = &document["components"]["schemas"][schema];
    let known = schema["properties"].as_object().unwrap();
    let value = value.as_object().unwrap_or_else(|| panic!("{value}"));
    for name in value.keys() {
        assert!(known.contains_key(name), "{name} is not described: {value:?}");
    }
    for name in schema["required"].as_array().unwrap() {
        assert!(value.contains_key(name.as_str().unwrap()), "{name} is missing: {value:?}");
    }
}

#[tokio::test]
async fn answers_are_as_described() {
    let (server, document) = (TestServer::open().await, document());
    let topic = "/api/v1/topics/emails";
    let group = format!("{topic}/groups/default");
    check(&document, "Topic", &server.call(&format!("PUT {topic}"), Value::Null).await.json());
    let one = json!({ "payload": "x", "key": "k", "headers": { "a": "b" } });
    check(&document, "Pushed", &server.call(&format!("POST {topic}/messages"), one).await.json());
    let peeked = server.call(&format!("GET {topic}/messages"), Value::Null).await.json();
    check(&document, "Message", &peeked["messages"][0]);
    let pulled = server.call(&format!("POST {group}/pull"), json!({ "wait_seconds": 30 })).await.json();
    let job = &pulled["jobs"][0];
    check(&document, "Job", job);
    check(&document, "Group", &server.call(&format!("GET {group}"), Value::Null).await.json());
    let workers = server.call("GET /api/v1/workers", Value::Null).await.json();
    check(&document, "Worker", &workers["workers"][0]);
    let failed = format!("POST {topic}/jobs/{}/failed", job["receipt"].as_str().unwrap());
    server.call(&failed, json!({ "error": "no", "retry": false })).await.ok();
    let dead = format!("GET {group}/dead");
    crate::support::until("it is dead", async || {
        !server.call(&dead, Value::Null).await.json()["dead_letters"].as_array().unwrap().is_empty()
    })
    .await;
    let letters = server.call(&dead, Value::Null).await.json();
    check(&document, "DeadLetter", &letters["dead_letters"][0]);
    check(&document, "Paused", &server.call(&format!("POST {group}/pause"), Value::Null).await.json());
    let replay = server.call(&format!("POST {group}/replay"), json!({ "from": "start" })).await;
    check(&document, "Replayed", &replay.json());
    let retried = server.call(&format!("POST {group}/dead/retry"), json!({ "all": true })).await;
    check(&document, "Retried", &retried.json());
    let dropped = server.call(&format!("POST {group}/dead/drop"), json!({ "all": true })).await;
    check(&document, "Dropped", &dropped.json());
    check(&document, "Session", &server.call("GET /api/v1/session", Value::Null).await.json());
    check(&document, "Health", &server.call("GET /healthz", Value::Null).await.json());
    check(&document, "Problem", &server.call("GET /nowhere", Value::Null).await.json());
}
