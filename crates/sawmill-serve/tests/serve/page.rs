//! The page: its files, its login, and what it watches.

use sawmill::Access;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{PATIENCE, Place, Reply};

const JSON: &str = "Content-Type: application/json";

#[tokio::test]
async fn the_page_has_no_script_or_style_but_its_own() {
    let place = Place::open().await;
    for (path, kind) in
        [("/", "text/html"), ("/assets/app.js", "text/javascript"), ("/assets/style.css", "text/css")]
    {
        let reply = place.call(&format!("GET {path}"), Value::Null).await;
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
        // What messages say must never become markup.
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
    let place = Place::guarded().await;
    place.mill.create_topic("emails").await.unwrap();
    let token = place.token(None, Access::Admin).await;
    let stranger = place.call("GET /api/v1/session", Value::Null).await.json();
    assert_eq!(stranger, json!({ "signed_in": false, "needs_token": true }));
    place.call("POST /api/v1/session", json!({ "token": "sawmill_x_y" })).await.refused(401);
    let login = place.call("POST /api/v1/session", json!({ "token": token })).await;
    let (cookie, csrf) = (cookie(login.ok()), login.json()["csrf"].as_str().unwrap().to_owned());
    let (cookie, csrf) = (format!("Cookie: a=b; {cookie}"), format!("X-Sawmill-CSRF: {csrf}"));
    let session = place.send("GET /api/v1/session", &[&cookie], "").await.json();
    assert_eq!((&session["signed_in"], &session["access"]), (&json!(true), &json!("admin")));
    assert_eq!(place.send("GET /api/v1/status", &[&cookie], "").await.status, 200);
    let pause = "POST /api/v1/topics/emails/groups/default/pause";
    place.send(pause, &[&cookie, JSON], "").await.refused(403);
    place.send(pause, &[&cookie, JSON, "X-Sawmill-CSRF: sha256:0"], "").await.refused(403);
    assert_eq!(place.send(pause, &[&cookie, &csrf, JSON], "").await.status, 200);
    place.send("DELETE /api/v1/session", &[&cookie], "").await.refused(403);
    let logout = place.send("DELETE /api/v1/session", &[&cookie, &csrf], "").await;
    assert!(logout.status == 204 && logout.header("set-cookie").unwrap().contains("Max-Age=0"));
}

/// Somebody who watches.
struct Watcher<'a> {
    place: &'a Place,
    stream: TcpStream,
    /// The requests sent so far.
    told: String,
}

impl<'a> Watcher<'a> {
    async fn of(place: &'a Place, headers: &str) -> Self {
        let mut stream = TcpStream::connect(place.address).await.unwrap();
        let request = format!("GET /api/v1/events HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", place.address);
        stream.write_all(request.as_bytes()).await.unwrap();
        Self { place, stream, told: String::new() }
    }

    /// Waits until this was sent. False if the server hangs up before.
    async fn is_told(&mut self, wanted: &str) -> bool {
        let (stream, told) = (&mut self.stream, &mut self.told);
        let reading = async {
            let mut bytes = [0; 4096];
            while !told.contains(wanted) {
                match stream.read(&mut bytes).await.unwrap() {
                    0 => return false,
                    count => *told += &String::from_utf8_lossy(&bytes[..count]),
                }
            }
            true
        };
        self.place.env.within(PATIENCE, reading).await.expect("test timed out: something comes")
    }
}

/// The beginning of an event, and its end.
const EVENT: &str = "event: status\ndata: {";
const END: &str = "}\n\n";

#[tokio::test]
async fn what_happens_is_told_while_it_happens() {
    let place = Place::open().await;
    place.mill.create_topic("emails").await.unwrap();
    let mut watcher = Watcher::of(&place, "").await;
    assert!(watcher.is_told(EVENT).await && watcher.is_told(END).await, "{}", watcher.told);
    place.mill.push_many("emails", ["x"; 77]).await.unwrap();
    assert!(watcher.is_told("\"waiting\":77").await, "{}", watcher.told);
    assert!(watcher.told.contains("text/event-stream"), "{}", watcher.told);
}

#[tokio::test]
async fn q21_who_watches_sees_their_topic_alone_and_nothing_once_they_may_not() {
    let place = Place::guarded().await;
    for topic in ["emails", "orders"] {
        place.mill.create_topic(topic).await.unwrap();
    }
    let token = place.token(Some("emails"), Access::Read).await;
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let mut watcher = Watcher::of(&place, &bearer).await;
    assert!(watcher.is_told(EVENT).await && watcher.is_told(END).await, "{}", watcher.told);
    assert!(watcher.told.contains("emails") && !watcher.told.contains("orders"), "{}", watcher.told);
    place.mill.revoke_grant(token.split('_').nth(1).unwrap()).await.unwrap();
    assert!(!watcher.is_told("never said").await, "{}", watcher.told);
}
