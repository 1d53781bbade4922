//! Tests the page: its files, its login, and its event stream.

use sawmill::admin::Access;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Reply, TIMEOUT, TestServer};

const JSON: &str = "Content-Type: application/json";

#[tokio::test]
async fn the_page_has_no_script_or_style_but_its_own() {
    let server = TestServer::open().await;
    for (path, kind) in
        [("/", "text/html"), ("/assets/app.js", "text/javascript"), ("/assets/style.css", "text/css")]
    {
        let reply = server.call(&format!("GET {path}"), Value::Null).await;
        assert_eq!(reply.status, 200);
        assert!(reply.header("content-type").unwrap().starts_with(kind), "{reply:?}");
        let policy = reply.header("content-security-policy").unwrap();
        assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self'"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(reply.header("access-control-allow-origin"), None);
        if path == "/" {
            for inline in ["<script>", "onclick", "onload", "style=", "javascript:"] {
                assert!(!reply.body.contains(inline), "{inline}");
            }
        }
        // Message contents must never become markup.
        for danger in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!reply.body.contains(danger), "{path}: {danger}");
        }
    }
}

fn cookie(reply: &Reply) -> String {
    let set = reply.header("set-cookie").unwrap();
    for word in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(set.contains(word), "{set}");
    }
    set.split(';').next().unwrap().to_owned()
}

#[tokio::test]
async fn q21_a_login_sets_a_cookie_and_a_change_needs_the_pages_header_beside_it() {
    let server = TestServer::guarded().await;
    server.mill.create_topic("emails").await.unwrap();
    let credential = server.credential(None, Access::Admin).await;
    let stranger = server.call("GET /api/v1/session", Value::Null).await.json();
    assert_eq!(stranger, json!({ "signed_in": false, "needs_key": true }));
    server.call("POST /api/v1/session", json!({ "key": "sawmill_x_y" })).await.refused(401);
    let login = server.call("POST /api/v1/session", json!({ "key": credential })).await;
    let (cookie, csrf) = (cookie(login.ok()), login.json()["csrf"].as_str().unwrap().to_owned());
    let (cookie, csrf) = (format!("Cookie: a=b; {cookie}"), format!("X-Sawmill-CSRF: {csrf}"));
    let session = server.send("GET /api/v1/session", &[&cookie], "").await.json();
    assert_eq!((&session["signed_in"], &session["access"]), (&json!(true), &json!("admin")));
    assert_eq!(server.send("GET /api/v1/status", &[&cookie], "").await.status, 200);
    let pause = "POST /api/v1/topics/emails/groups/default/pause";
    server.send(pause, &[&cookie, JSON], "").await.refused(403);
    server.send(pause, &[&cookie, JSON, "X-Sawmill-CSRF: sha256:0"], "").await.refused(403);
    assert_eq!(server.send(pause, &[&cookie, &csrf, JSON], "").await.status, 200);
    server.send("DELETE /api/v1/session", &[&cookie], "").await.refused(403);
    let logout = server.send("DELETE /api/v1/session", &[&cookie, &csrf], "").await;
    assert!(logout.status == 204 && logout.header("set-cookie").unwrap().contains("Max-Age=0"));
}

/// A client of the event stream.
struct Watcher<'a> {
    server: &'a TestServer,
    stream: TcpStream,
    /// What was received so far.
    received: String,
}

impl<'a> Watcher<'a> {
    async fn of(server: &'a TestServer, headers: &str) -> Self {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let request = format!("GET /api/v1/events HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", server.address);
        stream.write_all(request.as_bytes()).await.unwrap();
        Self { server, stream, received: String::new() }
    }

    /// Waits until this text was received. Returns false if the server disconnects before.
    async fn receives(&mut self, wanted: &str) -> bool {
        let (stream, received) = (&mut self.stream, &mut self.received);
        let reading = async {
            let mut bytes = [0; 4096];
            while !received.contains(wanted) {
                match stream.read(&mut bytes).await.unwrap() {
                    0 => return false,
                    count => *received += &String::from_utf8_lossy(&bytes[..count]),
                }
            }
            true
        };
        self.server.env.within(TIMEOUT, reading).await.expect("test timed out: something comes")
    }
}

/// The beginning and the end of an event.
const EVENT: &str = "event: status\ndata: {";
const END: &str = "}\n\n";

#[tokio::test]
async fn what_happens_is_told_while_it_happens() {
    let server = TestServer::open().await;
    server.mill.create_topic("emails").await.unwrap();
    let mut watcher = Watcher::of(&server, "").await;
    assert!(watcher.receives(EVENT).await && watcher.receives(END).await, "{}", watcher.received);
    server.mill.push_many("emails", ["x"; 77]).await.unwrap();
    assert!(watcher.receives("\"waiting\":77").await, "{}", watcher.received);
    assert!(watcher.received.contains("text/event-stream"), "{}", watcher.received);
}

#[tokio::test]
async fn q21_who_watches_sees_their_topic_alone_and_nothing_once_they_may_not() {
    let server = TestServer::guarded().await;
    for topic in ["emails", "orders"] {
        server.mill.create_topic(topic).await.unwrap();
    }
    let credential = server.credential(Some("emails"), Access::Read).await;
    let bearer = format!("Authorization: Bearer {credential}\r\n");
    let mut watcher = Watcher::of(&server, &bearer).await;
    assert!(watcher.receives(EVENT).await && watcher.receives(END).await, "{}", watcher.received);
    assert!(
        watcher.received.contains("emails") && !watcher.received.contains("orders"),
        "{}",
        watcher.received
    );
    server.mill.admin().revoke_access_key(credential.split('_').nth(1).unwrap()).await.unwrap();
    assert!(!watcher.receives("never said").await, "{}", watcher.received);
}
