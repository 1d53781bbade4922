//! Tests pulling over HTTP: long polls, answers, time limits.

use std::collections::BTreeSet;

use sawmill::{Context, Push};
use sawmill_serve::Options;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::{Reply, TestServer, until};

const ORDERS: &str = "/api/v1/topics/orders";

async fn server_with_topic() -> TestServer {
    let server = TestServer::open().await;
    server.mill.create_topic("orders").await.unwrap();
    server
}

async fn pull(server: &TestServer, body: Value) -> Vec<Value> {
    let reply = server.call(&format!("POST {ORDERS}/groups/default/pull"), body).await;
    reply.ok().json()["jobs"].as_array().unwrap().clone()
}

/// Pulls one job, with a long wait.
async fn pull_one(server: &TestServer) -> Value {
    let jobs = pull(server, json!({ "wait_seconds": 50 })).await;
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    jobs[0].clone()
}

async fn answer(server: &TestServer, job: &Value, how: &str, body: Value) -> Reply {
    let receipt = job["receipt"].as_str().unwrap();
    server.call(&format!("POST {ORDERS}/jobs/{receipt}/{how}"), body).await
}

#[tokio::test]
async fn what_is_pulled_is_done_once_it_is_said_to_be() {
    let server = server_with_topic().await;
    let id = server.mill.push("orders", Push::new("{\"n\":1}").key("k").header("lang", "en")).await.unwrap();
    let job = pull_one(&server).await;
    assert_eq!(job["id"], id.to_string());
    assert_eq!(
        (&job["payload"], &job["key"], &job["attempt"]),
        (&json!("{\"n\":1}"), &json!("k"), &json!(1))
    );
    assert_eq!((&job["headers"], &job["group"]), (&json!({ "lang": "en" }), &json!("default")));
    assert_eq!(answer(&server, &job, "done", Value::Null).await.status, 204);
    answer(&server, &job, "done", Value::Null).await.refused(404);
    until("the store knows", async || {
        server.mill.admin().status("orders", "default").await.unwrap().done == 1
    })
    .await;
    assert!(pull(&server, Value::Null).await.is_empty());
}

#[tokio::test]
async fn a_long_poll_ends_with_the_message_it_waits_for() {
    let server = server_with_topic().await;
    let push = async {
        until("it waits", async || !server.mill.admin().workers("default").await.unwrap().is_empty()).await;
        server.mill.push("orders", "late").await.unwrap();
    };
    let (job, ()) = tokio::join!(pull_one(&server), push);
    assert_eq!(job["payload"], "late");
    answer(&server, &job, "done", json!({})).await.ok();
}

#[tokio::test]
async fn many_are_pulled_at_once_and_by_many() {
    let server = server_with_topic().await;
    server.mill.push_many("orders", (0..60).map(|n| n.to_string())).await.unwrap();
    let mut seen = BTreeSet::new();
    until("all are done", async || {
        let both = tokio::join!(
            pull(&server, json!({ "max": 10, "wait_seconds": 1 })),
            pull(&server, json!({ "max": 10, "wait_seconds": 1 }))
        );
        for job in both.0.iter().chain(&both.1) {
            assert!(seen.insert(job["id"].to_string()), "no message is handed out twice");
            answer(&server, job, "done", Value::Null).await.ok();
        }
        seen.len() == 60
    })
    .await;
}

#[tokio::test]
async fn what_failed_is_tried_again_or_dies() {
    let server = server_with_topic().await;
    server.mill.push("orders", "x").await.unwrap();
    let job = pull_one(&server).await;
    answer(&server, &job, "failed", json!({ "error": "no paper", "after_seconds": 0 })).await.ok();
    let again = pull_one(&server).await;
    assert_eq!((&again["id"], &again["attempt"]), (&job["id"], &json!(2)));
    answer(&server, &again, "failed", json!({ "error": "no ink", "retry": false })).await.ok();
    let letters = server.mill.admin().dead_letters("orders", "default").await.unwrap();
    until("it is dead", async || letters.list(9).await.unwrap().len() == 1).await;
    let letter = letters.list(9).await.unwrap().remove(0);
    assert_eq!(letter.reason(), "no ink");
    assert_eq!(letter.message.failures()[0].error, "no paper");
}

#[tokio::test]
async fn who_takes_too_long_is_late_unless_more_time_was_asked_for() {
    let server = server_with_topic().await;
    server.mill.push_many("orders", ["a", "b"]).await.unwrap();
    // Long enough on a busy machine to pull both and to extend one.
    let jobs = async || pull(&server, json!({ "timeout_seconds": 10, "wait_seconds": 50 })).await.remove(0);
    let (slow, patient) = (jobs().await, jobs().await);
    answer(&server, &patient, "extend", json!({ "seconds": 3600 })).await.ok();
    until("it is late", async || {
        server.mill.admin().status("orders", "default").await.unwrap().retrying == 1
    })
    .await;
    let late = answer(&server, &slow, "done", Value::Null).await;
    late.refused(409);
    assert!(late.body.contains("too late"), "{late:?}");
    answer(&server, &slow, "extend", json!({ "seconds": 1 })).await.refused(404);
    assert_eq!(answer(&server, &patient, "done", Value::Null).await.status, 204);
}

#[tokio::test]
async fn pulling_and_working_share_a_group_and_another_group_sees_everything() {
    let server = server_with_topic().await;
    server.mill.push_many("orders", ["a", "b", "c"]).await.unwrap();
    let job = pull_one(&server).await;
    let worker = server.mill.worker("orders").start(|_: Context| async {}).await.unwrap();
    until("the worker did the others", async || worker.counts().done == 2).await;
    answer(&server, &job, "done", Value::Null).await.ok();
    until("all are done", async || server.mill.admin().status("orders", "default").await.unwrap().done == 3)
        .await;
    worker.stop().await;
    let other = server.call(&format!("POST {ORDERS}/groups/audit/pull"), json!({ "wait_seconds": 50 })).await;
    assert_eq!(other.json()["jobs"][0]["group"], "audit");
}

#[tokio::test]
async fn ordered_groups_hand_out_one_message_of_a_key_at_a_time() {
    let server = server_with_topic().await;
    for payload in ["1", "2", "3"] {
        server.mill.push("orders", Push::new(payload).key("k")).await.unwrap();
    }
    for payload in ["1", "2", "3"] {
        let mut jobs = pull(&server, json!({ "ordered": true, "max": 3, "wait_seconds": 50 })).await;
        assert_eq!(jobs.len(), 1, "the next waits for this one: {jobs:?}");
        let job = jobs.remove(0);
        assert_eq!(job["payload"], payload);
        answer(&server, &job, "done", Value::Null).await.ok();
    }
    let other = server.call(&format!("POST {ORDERS}/groups/default/pull"), json!({ "ordered": false })).await;
    other.refused(409);
}

#[tokio::test]
async fn a_server_that_stops_gives_back_what_is_out() {
    let server = server_with_topic().await;
    server.mill.push("orders", "x").await.unwrap();
    pull_one(&server).await;
    server.stop.cancel();
    let worker = server.mill.worker("orders").start(|_: Context| async {}).await.unwrap();
    until("it is done by another", async || worker.counts().done == 1).await;
    worker.stop().await;
}

#[tokio::test]
async fn who_hangs_up_while_waiting_takes_nothing_along() {
    // There is only one connection: the next client gets it once the server has noticed that the previous one
    // is gone.
    let server = TestServer::with(Options { most_connections: 1, ..Options::default() }).await;
    server.mill.create_topic("orders").await.unwrap();
    let body = json!({ "wait_seconds": 50, "max": 5 }).to_string();
    let request = format!(
        "POST {ORDERS}/groups/default/pull HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        server.address,
        body.len()
    );
    for _ in 0..5 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        until("it is asked", async || !server.mill.admin().workers("default").await.unwrap().is_empty())
            .await;
        drop(stream);
        server.call("GET /healthz", Value::Null).await.ok();
    }
    server.mill.push("orders", "x").await.unwrap();
    assert_eq!(pull_one(&server).await["attempt"], 1);
}

#[tokio::test]
async fn more_time_is_not_promised_for_a_job_that_was_lost() {
    let server = server_with_topic().await;
    server.mill.push("orders", "x").await.unwrap();
    let job = pull_one(&server).await;
    answer(&server, &job, "extend", json!({ "seconds": 60 })).await.ok();
    // The topic is deleted, and the worker's entries in the store with it, as after a long time without a
    // connection.
    server.mill.admin().delete_topic("orders").await.unwrap();
    until("it is lost", async || {
        answer(&server, &job, "extend", json!({ "seconds": 60 })).await.status == 409
    })
    .await;
}

#[tokio::test]
async fn pulls_that_make_no_sense_are_refused() {
    let server = server_with_topic().await;
    let path = format!("POST {ORDERS}/groups/default/pull");
    for body in [
        json!({ "max": 0 }),
        json!({ "max": 101 }),
        json!({ "max": -1 }),
        json!({ "max": 1.5 }),
        json!({ "max": null }),
        json!({ "wait_seconds": 61 }),
        json!({ "wait_seconds": -1 }),
        json!({ "timeout_seconds": 1e9 }),
        json!({ "retries": 100000 }),
        json!({ "delivery": "exactly-once" }),
        json!({ "colour": "red" }),
        json!([]),
    ] {
        server.call(&path, body).await.refused(400);
    }
    server.call("POST /api/v1/topics/none/groups/default/pull", Value::Null).await.refused(404);
    server.call(&format!("POST {ORDERS}/groups/b%20d/pull"), Value::Null).await.refused(400);
    server.call(&format!("POST {ORDERS}/jobs/none/done"), Value::Null).await.refused(404);
    server.call(&format!("POST {ORDERS}/jobs/none/done"), json!({ "x": 1 })).await.refused(400);
    server.call(&format!("POST {ORDERS}/jobs/none/extend"), Value::Null).await.refused(400);
    let both = json!({ "retry": false, "after_seconds": 1 });
    server.call(&format!("POST {ORDERS}/jobs/none/failed"), both).await.refused(400);
}
