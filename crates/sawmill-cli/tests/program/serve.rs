//! `sawmill serve` and `sawmill key`, as operators use them.

#![cfg(feature = "serve")]

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::support::{Place, Running, until};
use rustix::process::Signal;
use serde_json::Value;

/// A running server.
struct Serving {
    running: Running,
    address: String,
    needs_key: bool,
}

fn serve(place: &Place, more: &[&str]) -> Serving {
    let args: Vec<&str> = ["serve", "--listen", "0", "--json"].iter().chain(more).copied().collect();
    let running = place.start(&args);
    until("it listens", || running.stdout().contains('\n'));
    let said: Value = serde_json::from_str(running.stdout().trim()).unwrap();
    assert_eq!(said.as_object().unwrap().len(), 2, "as JSON.md says: {said}");
    let url = said["url"].as_str().unwrap();
    let address = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
    Serving { running, address, needs_key: said["needs_key"].as_bool().unwrap() }
}

impl Serving {
    /// Sends a request with an access key and returns the whole response.
    fn send(&self, request: &str, key: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let (host, length) = (&self.address, body.len());
        let text = format!(
            "{request} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn status(&self, request: &str, key: &str, body: &str) -> u16 {
        let answer = self.send(request, key, body);
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    }
}

#[test]
fn what_is_pushed_over_http_is_in_the_store_and_counted() {
    let place = Place::new();
    let serving = serve(&place, &[]);
    assert!(!serving.needs_key);
    serving.running.until_said("nobody else gets in");
    assert_eq!(serving.status("PUT /api/v1/topics/emails", "", ""), 201);
    assert_eq!(serving.status("POST /api/v1/topics/emails/messages", "", r#"{"payload":"Hello"}"#), 201);
    assert_eq!(place.json(&["peek", "emails"])[0]["payload"], "Hello");
    let metrics = serving.send("GET /metrics", "", "");
    for name in
        ["sawmill_open_seconds_count 1", "sawmill_pushed_total{topic=\"emails\"} 1", "sawmill_waiting{"]
    {
        assert!(metrics.contains(name), "{name}: {metrics}");
    }
    serving.running.signal(Signal::TERM);
    assert_eq!(serving.running.wait().code, Some(0));
}

#[test]
fn q21_tokens_are_made_listed_and_revoked() {
    let place = Place::new();
    let key = place.ok(&["key", "create", "--topic", "emails", "--access", "w", "--note", "the shop"]);
    let key = key.trim();
    let listed = place.ok(&["key", "list"]);
    assert_eq!(place.ok(&["token", "list"]), listed, "the former name of the command");
    assert!(listed.contains("emails") && listed.contains("the shop"), "{listed}");
    assert!(!listed.contains(key.splitn(3, '_').nth(2).unwrap()), "the secret is not shown again");
    place.ok(&["topic", "create", "emails"]);
    let serving = serve(&place, &[]);
    assert!(serving.needs_key, "there is one");
    let push = "POST /api/v1/topics/emails/messages";
    let body = r#"{"payload":"x"}"#;
    assert_eq!(serving.status(push, key, body), 201);
    assert_eq!(serving.status(push, "", body), 401);
    assert_eq!(serving.status("GET /api/v1/topics/emails", key, ""), 403);
    let id = place.json(&["key", "list"])[0]["id"].as_str().unwrap().to_owned();
    place.ok(&["key", "revoke", &id]);
    until("it is refused", || serving.status(push, key, body) == 401);
    place.run(&["key", "revoke", &id]).fails(4, &[&id]);
    assert_eq!(place.ok(&["key", "list"]), "");
    serving.running.signal(Signal::INT);
    assert_eq!(serving.running.wait().code, Some(0));
}

#[test]
fn q21_without_a_token_nothing_is_served_where_others_can_reach_it() {
    let place = Place::new();
    let elsewhere = place.run(&["serve", "--listen", "0.0.0.0:0"]);
    elsewhere.fails(2, &["others can reach it", "sawmill key create"]);
    // The second is the former name of the first.
    for flag in ["--require-keys", "--require-tokens"] {
        place.run(&["serve", "--listen", "0", flag]).fails(2, &["--require-keys", "sawmill key create"]);
    }
    let public = place.run(&["serve", "--listen", "0", "--allow-host", "queue.example"]);
    public.fails(2, &["queue.example", "sawmill key create"]);
}

#[test]
fn q21_the_first_token_closes_an_open_door() {
    let place = Place::new();
    let serving = serve(&place, &[]);
    let list = "GET /api/v1/topics";
    assert!(!serving.needs_key && serving.status(list, "", "") == 200);
    let key = place.ok(&["key", "create", "--access", "r"]);
    until("it is closed", || serving.status(list, "", "") == 401);
    assert_eq!(serving.status(list, key.trim(), ""), 200);
    assert_eq!(serving.status("PUT /api/v1/topics/emails", key.trim(), ""), 403);
}

#[test]
fn q21_limits_and_names_are_those_that_were_asked_for() {
    let place = Place::new();
    let key = place.ok(&["key", "create", "--access", "admin"]);
    let key = key.trim();
    let limits =
        ["--body-limit", "1K", "--rate-limit", "5", "--allow-host", "queue.example", "--secure-cookies"];
    let serving = serve(&place, &limits);
    let list = "GET /api/v1/topics";
    let named = |host: &str| {
        let mut stream = TcpStream::connect(&serving.address).unwrap();
        let request = format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!((named("queue.example"), named("other.example")), ("200".to_owned(), "421".to_owned()));
    let login = serving.send("POST /api/v1/session", key, &format!(r#"{{"key":"{key}"}}"#));
    assert!(login.contains("; Secure"), "{login}");
    let long = format!(r#"{{"payload":"{}"}}"#, "x".repeat(1100));
    assert_eq!(serving.status("POST /api/v1/topics/emails/messages", key, &long), 413);
    assert!((0..1000).any(|_| serving.status(list, key, "") == 429), "nobody was told to wait");
}

#[test]
fn q19_wrong_usage_is_said() {
    let place = Place::new();
    place.run(&["serve", "--listen", "nowhere"]).fails(2, &["no address"]);
    place.run(&["serve", "--body-limit", "0"]).fails(2, &["lets nothing in"]);
    place.run(&["serve", "--rate-limit", "0"]).fails(2, &["--rate-limit"]);
    place.run(&["key", "create", "--access", "x"]).fails(2, &["r, w, rw or admin"]);
    place.run(&["key", "create", "--access", "r", "--topic", "a b"]).fails(2, &["topic name"]);
    place.run(&["key", "create"]).fails(2, &["--access"]);
    place.run(&["key", "revoke", "a/b"]).fails(2, &["access key name"]);
    let taken = serve(&place, &[]);
    place.run(&["serve", "--listen", &taken.address]).fails(1, &["nothing can be served", "--listen"]);
}
