//! Tests topics and pushes.

use sawmill::Context;
use sawmill::admin::Access;
use serde_json::{Value, json};

use crate::support::{TestServer, until};

const EMAILS: &str = "/api/v1/topics/emails";

async fn server_with_topic() -> TestServer {
    let server = TestServer::open().await;
    server.mill.create_topic("emails").await.unwrap();
    server
}

async fn push(server: &TestServer, body: Value) -> crate::support::Reply {
    server.call(&format!("POST {EMAILS}/messages"), body).await
}

async fn waiting(server: &TestServer) -> u64 {
    server.mill.admin().status("emails", "default").await.unwrap().waiting
}

#[tokio::test]
async fn topics_are_created_listed_shown_and_deleted() {
    let server = TestServer::open().await;
    assert_eq!(server.call("GET /api/v1/topics", Value::Null).await.json(), json!({ "topics": [] }));
    let wanted = json!({ "shards": 4, "retention_seconds": 3600, "drops_unread": true });
    let created = server.call(&format!("PUT {EMAILS}"), wanted.clone()).await;
    assert_eq!(created.status, 201, "{created:?}");
    let topic = json!({ "topic": "emails", "shards": 4, "retention_seconds": 3600.0, "drops_unread": true });
    assert_eq!(created.json(), topic);
    assert_eq!(server.call(&format!("PUT {EMAILS}"), wanted).await.status, 200, "it is there, as asked for");
    assert_eq!(server.call(&format!("PUT {EMAILS}"), Value::Null).await.status, 200);
    server.call(&format!("PUT {EMAILS}"), json!({ "shards": 5 })).await.refused(409);
    server.call(&format!("PUT {EMAILS}"), json!({ "drops_unread": false })).await.refused(409);
    assert_eq!(server.call(&format!("GET {EMAILS}"), Value::Null).await.json(), topic);
    assert_eq!(server.call("GET /api/v1/topics", Value::Null).await.json(), json!({ "topics": [topic] }));
    assert_eq!(server.call(&format!("DELETE {EMAILS}"), Value::Null).await.status, 204);
    server.call(&format!("GET {EMAILS}"), Value::Null).await.refused(404);
    server.call(&format!("DELETE {EMAILS}"), Value::Null).await.refused(404);
}

#[tokio::test]
async fn a_message_comes_in_with_all_that_goes_with_it() {
    let server = server_with_topic().await;
    let body = json!({ "payload": "Hello", "key": "alice", "headers": { "lang": "en" } });
    let pushed = push(&server, body).await;
    assert_eq!(pushed.status, 201, "{pushed:?}");
    let message = server.mill.admin().peek("emails", "default", 9).await.unwrap().remove(0);
    assert_eq!(pushed.json()["ids"], json!([message.id.to_string()]));
    assert_eq!((message.payload.as_ref(), message.key.as_deref()), (&b"Hello"[..], Some(&b"alice"[..])));
    assert_eq!(message.headers.text("lang"), Some("en"));
    let peeked = server.call(&format!("GET {EMAILS}/messages?group=other&limit=5"), Value::Null).await.json();
    assert_eq!(peeked["messages"][0]["payload"], "Hello");
}

#[tokio::test]
async fn payloads_are_text_json_or_bytes() {
    let server = server_with_topic().await;
    for body in [
        json!({ "payload": "té\n" }),
        json!({ "payload": { "b": [1, 2.50, null] } }),
        json!({ "payload_base64": "/wA=" }),
        json!({ "payload": null }),
    ] {
        push(&server, body).await.ok();
    }
    let raw = "{\"payload\": {\"z\": 12345678901234567890123, \"a\":  1.50}}";
    server.send(&format!("POST {EMAILS}/messages"), &["Content-Type: application/json"], raw).await.ok();
    let messages = server.mill.admin().peek("emails", "default", 9).await.unwrap();
    let payloads: Vec<&[u8]> = messages.iter().map(|message| message.payload.as_ref()).collect();
    assert_eq!(payloads[0], "té\n".as_bytes());
    assert_eq!(payloads[1], br#"{"b":[1,2.5,null]}"#);
    assert_eq!(payloads[2], [0xff, 0]);
    assert_eq!(payloads[3], b"null", "which is JSON, too");
    assert_eq!(payloads[4], b"{\"z\": 12345678901234567890123, \"a\":  1.50}", "as it was written");
    let peeked = server.call(&format!("GET {EMAILS}/messages"), Value::Null).await.json();
    assert_eq!(peeked["messages"][2]["payload_base64"], "/wA=");
}

#[tokio::test]
async fn many_are_pushed_at_once_in_their_order() {
    let server = server_with_topic().await;
    let messages: Vec<Value> = (0..500).map(|n| json!({ "payload": n, "key": "same" })).collect();
    let pushed = push(&server, json!({ "messages": messages })).await.json();
    assert_eq!(pushed["ids"].as_array().unwrap().len(), 500);
    let there = server.mill.admin().peek("emails", "default", 1000).await.unwrap();
    let numbers: Vec<String> =
        there.iter().map(|message| String::from_utf8_lossy(&message.payload).into_owned()).collect();
    assert_eq!(numbers, (0..500).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(pushed["ids"][499], there[499].id.to_string());
}

#[tokio::test]
async fn what_is_due_later_waits() {
    let server = server_with_topic().await;
    push(&server, json!({ "payload": "a", "at": "2100-01-01T00:00:00Z" })).await.ok();
    push(&server, json!({ "payload": "b", "delay_seconds": 86400 })).await.ok();
    push(&server, json!({ "payload": "c", "at": "2001-01-01T00:00:00Z" })).await.ok();
    let status = server.mill.admin().status("emails", "default").await.unwrap();
    assert_eq!((status.waiting, status.scheduled), (1, 2));
}

#[tokio::test]
async fn a_unique_message_is_added_once() {
    let server = server_with_topic().await;
    let body = json!({ "payload": "a", "unique": "report-7" });
    let (first, second) = (push(&server, body.clone()).await.json(), push(&server, body).await.json());
    assert_eq!(first, second);
    let period = json!({ "payload": "b", "unique": "report-8", "unique_seconds": 3600 });
    assert_eq!(push(&server, period.clone()).await.json(), push(&server, period).await.json());
    assert_eq!(waiting(&server).await, 2);
}

#[tokio::test]
async fn a_push_with_an_idempotency_key_may_be_repeated() {
    let server = server_with_topic().await;
    let send = async |key: &str, body: Value| {
        let key = format!("Idempotency-Key: {key}");
        let headers = [key.as_str(), "Content-Type: application/json"];
        server.send(&format!("POST {EMAILS}/messages"), &headers, &body.to_string()).await
    };
    let many = json!({ "messages": [{ "payload": "a" }, { "payload": "b" }] });
    let first = send("order-1", many.clone()).await;
    assert_eq!(first.ok().json(), send("order-1", many.clone()).await.json());
    assert_ne!(first.json(), send("order-2", many).await.json());
    let one = json!({ "payload": "c" });
    assert_eq!(send("order-3", one.clone()).await.ok().json(), send("order-3", one).await.json());
    assert_eq!(waiting(&server).await, 5);
    send("order-4", json!({ "payload": "d", "unique": "u" })).await.refused(400);
    send(&"x".repeat(129), json!({ "payload": "d" })).await.refused(400);
    send("order 5", json!({ "payload": "d" })).await.refused(400);
    assert_eq!(waiting(&server).await, 5);
}

#[tokio::test]
async fn an_idempotency_key_is_its_senders_own_and_no_unique_name() {
    let server = TestServer::guarded().await;
    server.mill.create_topic("emails").await.unwrap();
    server.mill.create_topic("orders").await.unwrap();
    let (one, other) =
        (server.credential(None, Access::Admin).await, server.credential(None, Access::Admin).await);
    let send = async |credential: &str, topic: &str| {
        let headers = [format!("Authorization: Bearer {credential}"), "Idempotency-Key: order-1".to_owned()];
        let headers = [headers[0].as_str(), headers[1].as_str(), "Content-Type: application/json"];
        let body = json!({ "payload": "a" }).to_string();
        server.send(&format!("POST /api/v1/topics/{topic}/messages"), &headers, &body).await.ok().json()
    };
    let first = send(&one, "emails").await;
    assert_eq!(first, send(&one, "emails").await);
    assert_ne!(first, send(&other, "emails").await, "two clients with the same key");
    assert_ne!(first, send(&one, "orders").await);
    let unique = json!({ "payload": "a", "unique": "idempotency 0 order-1" });
    server.with_access_key(&one, &format!("POST {EMAILS}/messages"), unique).await.ok();
    assert_eq!(waiting(&server).await, 3);
}

#[tokio::test]
async fn a_cut_push_with_an_idempotency_key_is_completed_and_what_is_done_is_not_done_again() {
    let server = server_with_topic().await;
    let send = async |count: usize| {
        let messages: Vec<Value> = (0..count).map(|n| json!({ "payload": n })).collect();
        let headers = ["Idempotency-Key: k", "Content-Type: application/json"];
        let body = json!({ "messages": messages }).to_string();
        let pushed = server.send(&format!("POST {EMAILS}/messages"), &headers, &body).await.ok().json();
        pushed["ids"].as_array().unwrap().clone()
    };
    let part = send(3).await;
    let worker = server.mill.worker("emails").start(|_: Context| async {}).await.unwrap();
    until("they are done", async || worker.counts().done == 3).await;
    worker.stop().await;
    let whole = send(1000).await;
    assert_eq!((&whole[..3], whole.len()), (&part[..], 1000));
    assert_eq!(send(1000).await, whole);
    assert_eq!(waiting(&server).await, 997);
}

#[tokio::test]
async fn a_deleted_topic_is_gone_for_pushes_and_a_new_one_takes_its_place() {
    let server = server_with_topic().await;
    push(&server, json!({ "payload": "a" })).await.ok();
    server.call(&format!("DELETE {EMAILS}"), Value::Null).await.ok();
    push(&server, json!({ "payload": "a" })).await.refused(404);
    server.call(&format!("PUT {EMAILS}"), Value::Null).await.ok();
    push(&server, json!({ "payload": "b" })).await.ok();
    assert_eq!(waiting(&server).await, 1);
}

#[tokio::test]
async fn pushes_that_make_no_sense_are_refused_and_push_nothing() {
    let server = server_with_topic().await;
    for (body, said) in [
        ("{", "the body cannot be understood"),
        ("[]", "not an object"),
        (r#"["a"]"#, "not an object"),
        (
            r#"{"messages": [["a"]]}"#,
            "message 0: the body cannot be understood: it is JSON, but not an object",
        ),
        ("", "no \\\"payload\\\""),
        (r#"{"payload": "a", "colour": "red"}"#, "colour"),
        (r#"{"payload": "a", "key": null}"#, "null"),
        (r#"{"payload": "\ud800"}"#, "no text"),
        (r#"{"payload": "a", "payload_base64": "AA=="}"#, "both"),
        (r#"{"payload_base64": "?"}"#, "no base64"),
        (r#"{"payload": "a", "at": "tomorrow"}"#, "no time"),
        (r#"{"payload": "a", "at": "1950-01-01T00:00:00Z"}"#, "no time"),
        (r#"{"payload": "a", "at": "2100-01-01T00:00:00Z", "delay_seconds": 1}"#, "both"),
        (r#"{"payload": "a", "delay_seconds": -1}"#, "delay_seconds"),
        (r#"{"payload": "a", "delay_seconds": 1e300}"#, "delay_seconds"),
        (r#"{"payload": "a", "unique": ""}"#, "unique"),
        (r#"{"payload": "a", "unique_seconds": 1}"#, "unique"),
        (r#"{"payload": "a", "headers": {"": "x"}}"#, "empty name"),
        (r#"{"payload": "a", "headers": {"sawmill-x": "x"}}"#, "sawmill-"),
        (r#"{"payload": "a", "headers": {"x": 1}}"#, "the body cannot be understood"),
        (r#"{"messages": []}"#, "empty"),
        (r#"{"messages": [{"payload": "a"}], "key": "k"}"#, "beside them"),
        (r#"{"messages": [{"payload": "a"}, {"payload": "b", "at": "x"}]}"#, "message 1"),
    ] {
        let reply =
            server.send(&format!("POST {EMAILS}/messages"), &["Content-Type: application/json"], body).await;
        reply.refused(400);
        assert!(reply.body.contains(said), "{body}: {}", reply.body);
    }
    let key = "k".repeat(2000);
    let too_large = push(&server, json!({ "payload": "a", "key": key })).await;
    too_large.refused(413);
    push(&server, json!({ "payload": "x".repeat(17 << 20) })).await.refused(413);
    let status = server.mill.admin().status("emails", "default").await.unwrap();
    assert_eq!((status.waiting, status.scheduled), (0, 0));
}
