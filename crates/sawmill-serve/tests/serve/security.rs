//! Tests that callers without access are refused, with the right status (Q21).

use std::time::Duration;

use sawmill::admin::Access;
use sawmill_serve::{Door, Options};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::{TIMEOUT, TestServer, until};

const PUSH: &str = "POST /api/v1/topics/emails/messages";
const JSON: &str = "Content-Type: application/json";

async fn server_with_topics(options: Options) -> TestServer {
    let server = TestServer::with(options).await;
    for topic in ["emails", "orders"] {
        server.mill.create_topic(topic).await.unwrap();
    }
    server
}

async fn guarded_server() -> TestServer {
    server_with_topics(Options { door: Door::Keys, ..Options::default() }).await
}

fn message() -> Value {
    json!({ "payload": "x" })
}

async fn pushed(server: &TestServer) -> u64 {
    let mut all = 0;
    for topic in ["emails", "orders"] {
        all += server.mill.admin().status(topic, "default").await.unwrap().waiting;
    }
    all
}

/// Returns a request for every route, with names in place of its parameters.
fn requests() -> Vec<(String, String)> {
    let names = [
        ("{topic}", "emails"),
        ("{group}", "default"),
        ("{receipt}", "r"),
        ("{id}", "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
    ];
    let fill =
        |path: &str| names.iter().fold(path.to_owned(), |path, (name, value)| path.replace(name, value));
    let routes = sawmill_serve::Server::routes().into_iter();
    routes.map(|(method, path)| (method.to_uppercase(), fill(path))).collect()
}

/// The paths that need no access key: the page and its files, the login, the description, and the health
/// check.
const OPEN: [&str; 7] = [
    "/api/v1/session",
    "/healthz",
    "/openapi.json",
    "/",
    "/assets/app.js",
    "/assets/style.css",
    "/assets/icon.svg",
];

#[tokio::test]
async fn q21_without_a_token_nothing_is_seen_or_changed() {
    let server = guarded_server().await;
    for (method, path) in requests() {
        let reply = server.call(&format!("{method} {path}"), Value::Null).await;
        if OPEN.contains(&path.as_str()) {
            assert!(reply.status < 500, "{method} {path}: {reply:?}");
            continue;
        }
        reply.refused(401);
        assert!(reply.header("www-authenticate").unwrap().starts_with("Bearer"), "{method} {path}");
    }
    server.call(PUSH, message()).await.refused(401);
    assert_eq!((pushed(&server).await, server.mill.admin().topics().await.unwrap().len()), (0, 2));
}

#[tokio::test]
async fn q21_a_wrong_token_is_as_good_as_none() {
    let server = guarded_server().await;
    let good = server.credential(None, Access::Admin).await;
    let (start, end) = good.split_at(good.len() - 1);
    let wrong = format!("{start}{}", if end == "A" { "B" } else { "A" });
    let (id, _) = good.strip_prefix("sawmill_").unwrap().split_once('_').unwrap();
    let digest = server.mill.admin().access_key(id).await.unwrap().unwrap().digest;
    for credential in
        ["", "x", &wrong, &good[1..], &format!("{good}A"), id, &format!("sawmill_{id}_{digest}")]
    {
        server.with_access_key(credential, PUSH, message()).await.refused(401);
        let cookie = format!("Cookie: sawmill_key={credential}");
        server.send("GET /api/v1/topics", &[&cookie], "").await.refused(401);
    }
    for header in ["Authorization: Basic dTpw", "Authorization: Bearer", "Authorization: \u{ff}"] {
        server.send("GET /api/v1/topics", &[header], "").await.refused(401);
    }
    assert_eq!(pushed(&server).await, 0);
    assert_eq!(server.with_access_key(&good, PUSH, message()).await.status, 201);
}

#[tokio::test]
async fn q21_a_revoked_token_is_soon_refused() {
    let server = guarded_server().await;
    let credential = server.credential(None, Access::Read).await;
    server.with_access_key(&credential, "GET /api/v1/topics", Value::Null).await.ok();
    server.mill.admin().revoke_access_key(credential.split('_').nth(1).unwrap()).await.unwrap();
    until("it is refused", async || {
        server.with_access_key(&credential, "GET /api/v1/topics", Value::Null).await.status == 401
    })
    .await;
}

#[tokio::test]
async fn q21_a_token_for_a_topic_is_for_no_other() {
    let server = guarded_server().await;
    let credential = server.credential(Some("orders"), Access::Admin).await;
    for (method, path) in requests().into_iter().filter(|(_, path)| path.contains("emails")) {
        server.with_access_key(&credential, &format!("{method} {path}"), Value::Null).await.refused(403);
    }
    assert_eq!(
        server.with_access_key(&credential, "POST /api/v1/topics/orders/messages", message()).await.status,
        201
    );
    let topics = server.with_access_key(&credential, "GET /api/v1/topics", Value::Null).await.json();
    assert_eq!(topics["topics"].as_array().unwrap().len(), 1, "{topics}");
    let status = server.with_access_key(&credential, "GET /api/v1/status", Value::Null).await;
    assert!(status.ok().body.contains("orders") && !status.body.contains("emails"), "{status:?}");
    server.with_access_key(&credential, "GET /metrics", Value::Null).await.refused(403);
    // Names that only a careless parser would take for the topic `orders`.
    for name in ["Orders", "orders%2F..%2Femails", "orders%00", "orders/../emails", "orders@default.dead"] {
        let reply =
            server.with_access_key(&credential, &format!("GET /api/v1/topics/{name}"), Value::Null).await;
        assert!([403, 404].contains(&reply.status), "{name}: {reply:?}");
    }
}

#[tokio::test]
async fn q21_a_job_is_answered_through_its_own_topic_alone() {
    let server = guarded_server().await;
    let (emails, orders) = (
        server.credential(Some("emails"), Access::Read).await,
        server.credential(Some("orders"), Access::Read).await,
    );
    server.mill.push("emails", "x").await.unwrap();
    let pull = "POST /api/v1/topics/emails/groups/default/pull";
    let pulled = server.with_access_key(&emails, pull, json!({ "wait_seconds": 50 })).await.json();
    let receipt = pulled["jobs"][0]["receipt"].as_str().unwrap();
    let done = |topic: &str| format!("POST /api/v1/topics/{topic}/jobs/{receipt}/done");
    server.with_access_key(&orders, &done("emails"), Value::Null).await.refused(403);
    server.with_access_key(&orders, &done("orders"), Value::Null).await.refused(404);
    assert_eq!(server.with_access_key(&emails, &done("emails"), Value::Null).await.status, 204);
}

#[tokio::test]
async fn q21_what_a_token_may_do_is_what_it_was_made_for() {
    let server = guarded_server().await;
    let read = server.credential(None, Access::Read).await;
    let write = server.credential(None, Access::Write).await;
    let both = server.credential(Some("emails"), Access::ReadWrite).await;
    let status = async |credential: &str, request: &str, body: Value| {
        server.with_access_key(credential, request, body).await.status
    };
    assert_eq!(status(&read, PUSH, message()).await, 403, "a read key does not write");
    assert_eq!(status(&write, PUSH, message()).await, 201);
    assert_eq!(status(&both, PUSH, message()).await, 201);
    let show = "GET /api/v1/topics/emails";
    assert_eq!(status(&read, show, Value::Null).await, 200);
    assert_eq!(status(&write, show, Value::Null).await, 403, "a write key does not read");
    assert_eq!(status(&both, show, Value::Null).await, 200);
    let pull = "POST /api/v1/topics/emails/groups/default/pull";
    assert_eq!(status(&write, pull, Value::Null).await, 403);
    for request in [
        "PUT /api/v1/topics/new",
        "DELETE /api/v1/topics/emails",
        "POST /api/v1/topics/emails/groups/default/pause",
        "POST /api/v1/topics/emails/groups/default/resume",
        "POST /api/v1/topics/emails/groups/default/replay",
        "POST /api/v1/topics/emails/groups/default/dead/retry",
        "POST /api/v1/topics/emails/groups/default/dead/drop",
    ] {
        for credential in [&read, &write, &both] {
            server.with_access_key(credential, request, Value::Null).await.refused(403);
        }
    }
    assert_eq!(pushed(&server).await, 2);
    assert_eq!(status(&read, "GET /metrics", Value::Null).await, 200);
}

#[tokio::test]
async fn q21_forms_and_scripts_of_other_sites_are_refused_also_where_no_token_is_needed() {
    let server = server_with_topics(Options::default()).await;
    let own = format!("Origin: http://{}", server.address);
    assert_eq!(
        server.send(PUSH, &[JSON, &own, "Sec-Fetch-Site: same-origin"], r#"{"payload":1}"#).await.status,
        201
    );
    for kind in ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain"] {
        let kind = format!("Content-Type: {kind}");
        server.send(PUSH, &[&kind], r#"{"payload":1}"#).await.refused(415);
        server.send("POST /api/v1/topics/emails/groups/default/pause", &[&kind], "").await.refused(415);
    }
    for origin in [
        "http://evil.example",
        "null",
        "https://localhost",
        "http://127.0.0.1:1",
        "http://localhost.evil.example",
    ] {
        let origin = format!("Origin: {origin}");
        server.send(PUSH, &[JSON, &origin], r#"{"payload":1}"#).await.refused(403);
        server.send("POST /api/v1/topics/emails/groups/default/pause", &[&origin], "").await.refused(403);
        server.send("DELETE /api/v1/topics/emails", &[&origin], "").await.refused(403);
    }
    for site in ["cross-site", "same-site"] {
        server.send(PUSH, &[JSON, &format!("Sec-Fetch-Site: {site}")], r#"{"payload":1}"#).await.refused(403);
    }
    let preflight = server
        .send(
            "OPTIONS /api/v1/topics/emails/messages",
            &["Origin: http://evil.example", "Access-Control-Request-Method: POST"],
            "",
        )
        .await;
    preflight.refused(405);
    assert!(!preflight.head.to_lowercase().contains("access-control"), "{preflight:?}");
    assert_eq!(pushed(&server).await, 1);
    assert!(!server.mill.admin().status("emails", "default").await.unwrap().paused);
}

#[tokio::test]
async fn q21_a_name_that_was_made_to_lead_here_leads_nowhere() {
    let server =
        server_with_topics(Options { hosts: vec!["queue.example".to_owned()], ..Options::default() }).await;
    for host in ["evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example", ""] {
        let host = format!("Host: {host}");
        server.send("GET /api/v1/topics", &[&host], "").await.refused(421);
        server.send("GET /", &[&host], "").await.refused(421);
        server.send(PUSH, &[&host, JSON], r#"{"payload":1}"#).await.refused(421);
    }
    for host in ["localhost:1", "127.0.0.1", "[::1]:80", "queue.example", "QUEUE.example:443"] {
        assert_eq!(
            server.send("GET /api/v1/topics", &[&format!("Host: {host}")], "").await.status,
            200,
            "{host}"
        );
    }
    server.raw("GET /api/v1/topics HTTP/1.0\r\n\r\n").await.refused(400);
    assert_eq!(pushed(&server).await, 0);
}

#[tokio::test]
async fn q21_a_body_that_is_too_long_is_refused_however_it_is_sent() {
    let server = server_with_topics(Options { most_bytes: 10_000, ..Options::default() }).await;
    let body = json!({ "payload": "x".repeat(20_000) }).to_string();
    server.send(PUSH, &[JSON], &body).await.refused(413);
    let (host, length) = (server.address, body.len());
    let chunked = format!(
        "{PUSH} HTTP/1.1\r\nHost: {host}\r\n{JSON}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
         {length:x}\r\n{body}\r\n0\r\n\r\n"
    );
    server.raw(&chunked).await.refused(413);
    assert_eq!(
        server.send(PUSH, &[JSON], &json!({ "payload": "x".repeat(9_000) }).to_string()).await.status,
        201
    );
    let long = "x".repeat(100_000);
    let head = server.send("GET /api/v1/topics", &[&format!("X-Long: {long}")], "").await;
    assert_eq!(head.status, 431, "{head:?}");
    let path = server.send(&format!("GET /api/v1/topics/{}", "x".repeat(5_000)), &[], "").await;
    assert!([400, 414].contains(&path.status), "{path:?}");
    assert_eq!(pushed(&server).await, 1);
}

#[tokio::test]
async fn q21_a_client_that_takes_its_time_is_sent_away_and_nobody_waits_for_it() {
    let patience = Duration::from_secs(2);
    let server = server_with_topics(Options { patience, most_connections: 8, ..Options::default() }).await;
    let slow = async |text: String| {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let read = server.env.within(TIMEOUT, stream.read_to_end(&mut answer)).await;
        read.expect("test timed out: it is sent away").ok();
        String::from_utf8_lossy(&answer).into_owned()
    };
    let host = server.address;
    let body = format!("{PUSH} HTTP/1.1\r\nHost: {host}\r\n{JSON}\r\nContent-Length: 100\r\n\r\n{{\"payl");
    let head = format!("GET /api/v1/topics HTTP/1.1\r\nHost: {host}\r\nX-Slow: ");
    let (body, head, nothing, other) = tokio::join!(
        slow(body),
        slow(head),
        slow(String::new()),
        server.call("GET /api/v1/topics", Value::Null)
    );
    assert!(body.starts_with("HTTP/1.1 408") && body.contains("did not arrive"), "{body}");
    assert!(head.is_empty() || head.starts_with("HTTP/1.1 408"), "{head}");
    assert!(nothing.is_empty() || nothing.starts_with("HTTP/1.1 408"), "{nothing}");
    assert_eq!(other.status, 200);
    assert_eq!(pushed(&server).await, 0);
    assert_eq!(server.call("GET /api/v1/topics", Value::Null).await.status, 200, "all places are free again");
}

/// Creates a socket with small buffers.
fn small_buffers() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_send_buffer_size(4096).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket
}

#[tokio::test]
async fn q21_a_client_that_does_not_take_its_answer_is_left_and_nobody_waits_for_it() {
    let listener = small_buffers();
    listener.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let patience = Duration::from_secs(2);
    let options = Options { most_connections: 1, write_patience: patience, ..Options::default() };
    let server = TestServer::at(listener.listen(16).unwrap(), options).await;
    for nth in 0..60 {
        server.mill.create_topic(&format!("{}-{nth}", "long".repeat(20))).await.unwrap();
    }
    for path in ["/openapi.json", "/api/v1/events"] {
        let mut silent = small_buffers().connect(server.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", server.address);
        silent.write_all(request.as_bytes()).await.unwrap();
        silent.read_exact(&mut [0; 12]).await.unwrap();
        // There is only one connection, and it is soon free again.
        assert_eq!(server.call("GET /healthz", Value::Null).await.status, 200, "{path}");
        let mut rest = Vec::new();
        let end = server
            .env
            .within(TIMEOUT, silent.read_to_end(&mut rest))
            .await
            .expect("test timed out: it is left");
        assert!(end.is_err() || !rest.ends_with(b"}\n"), "{path}: nobody can have taken all of it");
    }
    // A client that reads its response gets all of it.
    let all = server.call("GET /openapi.json", Value::Null).await;
    assert_eq!(all.body, sawmill_serve::OPENAPI);
}

#[tokio::test]
async fn q21_who_asks_too_often_is_told_to_wait() {
    let server =
        server_with_topics(Options { most_per_second: 1, door: Door::Keys, ..Options::default() }).await;
    let credential = server.credential(None, Access::Read).await;
    let mut refused = None;
    for _ in 0..1000 {
        let reply = server.with_access_key("sawmill_x_y", "GET /api/v1/topics", Value::Null).await;
        if reply.status == 429 {
            refused = Some(reply);
            break;
        }
        reply.refused(401);
    }
    let refused = refused.expect("nobody was told to wait");
    refused.refused(429);
    assert_eq!(refused.header("retry-after"), Some("1"));
    until("it is let in again", async || {
        server.with_access_key(&credential, "GET /api/v1/topics", Value::Null).await.status == 200
    })
    .await;
}

/// Returns how many requests it takes until one is refused with 429.
async fn requests_until_limited(server: &TestServer, credential: &str) -> Option<usize> {
    for nth in 0..1000 {
        let reply = server.with_access_key(credential, "GET /api/v1/topics", Value::Null).await;
        if reply.status == 429 {
            reply.refused(429);
            return Some(nth);
        }
    }
    None
}

#[tokio::test]
async fn q21_each_token_has_a_rate_of_its_own() {
    let server =
        server_with_topics(Options { most_per_second: 1, door: Door::Keys, ..Options::default() }).await;
    let (one, other) =
        (server.credential(None, Access::Read).await, server.credential(None, Access::Read).await);
    assert!(requests_until_limited(&server, &one).await.is_some(), "nobody was told to wait");
    server.with_access_key(&other, "GET /api/v1/topics", Value::Null).await.ok();
}

#[tokio::test]
async fn q21_who_tries_out_tokens_keeps_nobody_out_who_has_one() {
    let server =
        server_with_topics(Options { most_per_second: 3, door: Door::Keys, ..Options::default() }).await;
    let credential = server.credential(None, Access::Read).await;
    let look = async || server.with_access_key(&credential, "GET /api/v1/topics", Value::Null).await.status;
    assert_eq!(look().await, 200);
    // Longer than an access key is cached.
    server.env.sleep(Duration::from_millis(2_500)).await;
    let tries = async || requests_until_limited(&server, "sawmill_x_y").await;
    let strangers = async || {
        for _ in 0..20 {
            server.call("GET /api/v1/topics", Value::Null).await;
        }
    };
    assert!(tries().await.is_some(), "nobody was told to wait");
    strangers().await;
    assert_eq!(look().await, 200);
}

#[tokio::test]
async fn q21_who_needs_no_token_may_not_send_much() {
    let server = guarded_server().await;
    let long = json!({ "key": "x".repeat(5_000) });
    server.call("POST /api/v1/session", long.clone()).await.refused(413);
    server.call(PUSH, long).await.refused(401);
}

#[tokio::test]
async fn q21_all_that_is_sent_together_has_a_limit() {
    let options = Options { most_bytes: 100_000, most_bytes_together: 1, ..Options::default() };
    let server = server_with_topics(options).await;
    let slow = async {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let head = format!("{PUSH} HTTP/1.1\r\nHost: {}\r\n{JSON}\r\n", server.address);
        let body = json!({ "payload": "x".repeat(90_000) }).to_string();
        let (start, end) = body.split_at(80_000);
        let text = format!("{head}Content-Length: {}\r\nConnection: close\r\n\r\n{start}", body.len());
        stream.write_all(text.as_bytes()).await.unwrap();
        // A request that is sent before the slow one has arrived could take its memory.
        server.env.sleep(Duration::from_secs(1)).await;
        let large = || json!({ "payload": "x".repeat(50_000) });
        until("there is no room", async || server.call(PUSH, large()).await.status == 503).await;
        let refused = server.call(PUSH, large()).await;
        refused.refused(503);
        assert_eq!(refused.header("retry-after"), Some("1"));
        server.call(PUSH, message()).await.ok();
        stream.write_all(end.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
        until("there is room again", async || server.call(PUSH, large()).await.status == 201).await;
    };
    server.env.within(TIMEOUT, slow).await.expect("test timed out: it is read to its end");
}

#[tokio::test]
async fn q21_who_waits_keeps_the_room_of_what_they_sent() {
    let options = Options { most_bytes: 100_000, most_bytes_together: 1, ..Options::default() };
    let server = server_with_topics(options).await;
    server.mill.create_topic("quiet").await.unwrap();
    let padded = format!("{}{}", " ".repeat(90_000), json!({ "wait_seconds": 20 }));
    let large = || json!({ "payload": "x".repeat(50_000) });
    let pull = async {
        loop {
            let pulled = server.send("POST /api/v1/topics/quiet/groups/default/pull", &[JSON], &padded).await;
            // A concurrent push may have held the memory when this pull arrived.
            assert_eq!(pulled.status, 503, "it did not wait: {pulled:?}");
        }
    };
    let push = until("there is no room", async || server.call(PUSH, large()).await.status == 503);
    tokio::select! {
        () = pull => {}
        () = push => {}
    }
    until("there is room again", async || server.call(PUSH, large()).await.status == 201).await;
}

#[tokio::test]
async fn q21_what_a_proxy_passes_on_is_refused_where_everybody_is_let_in() {
    let open = server_with_topics(Options::default()).await;
    for header in [
        "Forwarded: for=10.0.0.7",
        "X-Forwarded-For: 10.0.0.7",
        "X-Forwarded-Proto: https",
        "Via: 1.1 proxy",
        "X-Real-IP: ::1",
    ] {
        for request in ["GET /api/v1/topics", "GET /", PUSH] {
            let reply = open.send(request, &[header, JSON], r#"{"payload":1}"#).await;
            reply.refused(403);
            assert!(reply.body.contains("sawmill key create"), "{reply:?}");
        }
        let guarded_server = guarded_server().await;
        let bearer = format!("Authorization: Bearer {}", guarded_server.credential(None, Access::Read).await);
        guarded_server.send("GET /api/v1/topics", &[header, &bearer], "").await.ok();
    }
    assert_eq!(pushed(&open).await, 0);
}

#[tokio::test]
async fn q21_the_first_token_closes_an_open_door_for_good() {
    let server = server_with_topics(Options::default()).await;
    server.call(PUSH, message()).await.ok();
    let credential = server.credential(None, Access::Admin).await;
    until("it is closed", async || server.call("GET /api/v1/topics", Value::Null).await.status == 401).await;
    server.with_access_key(&credential, PUSH, message()).await.ok();
    let session = server.call("GET /api/v1/session", Value::Null).await.json();
    assert_eq!(session, json!({ "signed_in": false, "needs_key": true }));
    server.mill.admin().revoke_access_key(credential.split('_').nth(1).unwrap()).await.unwrap();
    until("it is revoked", async || server.with_access_key(&credential, PUSH, message()).await.status == 401)
        .await;
    server.call(PUSH, message()).await.refused(401);
}

#[tokio::test]
async fn q21_tricks_with_paths_lead_nowhere() {
    let server = server_with_topics(Options::default()).await;
    for path in [
        "/api/v1/topics/..%2f..%2fetc%2fpasswd",
        "/api/v1/topics/%00",
        "/api/v1/topics/%ff%fe",
        "/api/v1/topics/a%20b",
        "/api/v1/topics/%2e%2e",
        "/api/v1/topics/emails@default.dead",
        "/api/v1/topics/emails/groups/..%2f",
    ] {
        server.send(&format!("GET {path}"), &[], "").await.refused(400);
    }
    for path in [
        "/../../etc/passwd",
        "/assets/../../Cargo.toml",
        "/assets/..%2f..%2fCargo.toml",
        "/assets/app.js/",
        "//api/v1/topics",
        "/api/v1/topics/",
        "/API/v1/topics",
        "/api/v1/topics/emails/../emails",
    ] {
        let reply = server.send(&format!("GET {path}"), &[], "").await;
        assert!([400, 404].contains(&reply.status), "{path}: {reply:?}");
    }
    for method in ["TRACE", "CONNECT", "PATCH", "PROPFIND"] {
        let reply = server.send(&format!("{method} /api/v1/topics"), &[], "").await;
        assert!([400, 403, 404, 405].contains(&reply.status), "{method}: {reply:?}");
    }
    for raw in ["hello\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET  HTTP/1.1\r\n\r\n", "\0\0\0\0\r\n\r\n"] {
        let reply = server.raw(raw).await;
        assert!(reply.status == 0 || (400..500).contains(&reply.status), "{raw:?}: {reply:?}");
    }
}
