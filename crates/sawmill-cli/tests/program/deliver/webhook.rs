//! `sawmill deliver webhook`.

use std::time::{Duration, SystemTime};

use hyper::Response;
use sawmill::Push;
use sawmill::admin::MessageState;
use sawmill::engine::runtime::Env;
use sha2::{Digest, Sha256};

use super::authority::Authority;
use super::web::{Web, page};
use crate::support::library::Library;
use crate::support::{Place, Running, until};

/// Computes HMAC-SHA256 by RFC 2104, independently of the implementation under test.
fn hmac(key: &[u8], message: &[u8]) -> String {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let padded = |byte: u8| block.map(|with| with ^ byte);
    let inner = Sha256::digest([padded(0x36).as_slice(), message].concat());
    let outer = Sha256::digest([padded(0x5c).as_slice(), &inner].concat());
    outer.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn deliver<'a>(url: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let first = ["deliver", "webhook", "hooks", "--url", url, "--drain", "--backoff", "10ms..10ms"];
    [&first[..], more].concat()
}

#[test]
fn g19_the_signature_is_what_rfc_4231_says() {
    let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
    assert_eq!(hmac(b"Jefe", b"what do ya want for nothing?"), expected);
}

#[test]
fn g19_a_message_is_posted_once_it_is_taken_and_signed() {
    let place = Place::new();
    let library = Library::with_topic(&place, "hooks");
    let web = Web::start(None, |before, _| if before == 0 { page(500, "not yet") } else { page(200, "") });
    let id = library.push("hooks", "{\"n\": 1}");
    place.write("key", "Jefe\n");
    place.write("token", "t0ken\n");
    let began = SystemTime::now();
    let url = format!("http://127.0.0.1:{}/hook?x=1", web.port);
    place.ok(&deliver(&url, &["--allow-private", "--secret-file", "key", "--token-file", "token"]));

    let received = web.received();
    assert_eq!(received.len(), 2, "{received:?}");
    assert_eq!((library.status("hooks").done, library.status("hooks").dead), (1, 0));
    for (received, attempt) in received.iter().zip(["1", "2"]) {
        assert_eq!((received.path.as_str(), &received.body[..]), ("/hook?x=1", &b"{\"n\": 1}"[..]));
        assert_eq!(received.header("host"), Some(format!("127.0.0.1:{}", web.port).as_str()));
        assert_eq!(received.header("content-type"), Some("application/json"));
        assert_eq!(received.header("authorization"), Some("Bearer t0ken"));
        assert_eq!(received.header("sawmill-id"), Some(id.to_string().as_str()));
        assert_eq!(received.header("sawmill-topic"), Some("hooks"));
        assert_eq!(received.header("sawmill-attempt"), Some(attempt));
        let timestamp = received.header("sawmill-timestamp").unwrap();
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(timestamp.parse().unwrap());
        assert!(at + Duration::from_secs(2) > began && at <= SystemTime::now(), "{timestamp}");
        let signed = [id.to_string().as_bytes(), b".", timestamp.as_bytes(), b".", &received.body].concat();
        let expected = format!("sha256={}", hmac(b"Jefe", &signed));
        assert_eq!(received.header("sawmill-signature"), Some(expected.as_str()));
    }
}

#[test]
fn g19_what_is_refused_is_a_dead_letter_with_the_reason_and_a_wait_is_kept() {
    let place = Place::new();
    let library = Library::with_topic(&place, "hooks");
    let web = Web::start(None, |before, received| match &received.body[..] {
        b"bad" => page(400, "field `n` is missing"),
        b"slow down" if before == 0 => {
            Response::builder().status(429).header("retry-after", "3").body("".into()).unwrap()
        }
        _ => page(204, ""),
    });
    let url = format!("http://127.0.0.1:{}/", web.port);
    library.push("hooks", "slow down");
    let worker = place.start(&["deliver", "webhook", "hooks", "--url", &url, "--allow-private"]);
    until("it is told to wait", || !web.received().is_empty());
    library.push("hooks", "bad");
    until("both are settled", || (library.status("hooks").done, library.status("hooks").dead) == (1, 1));
    let slow: Vec<_> = web.received().into_iter().filter(|received| received.body == "slow down").collect();
    let waited = slow[1].at.duration_since(slow[0].at).unwrap();
    assert!(waited > Duration::from_millis(2_900), "it waited as it was asked to: {waited:?}");
    let dead = library.dead("hooks");
    let reason = dead[0].reason();
    assert!(reason.contains("400") && reason.contains("field `n` is missing"), "{reason}");
    assert_eq!(web.received().len(), 3, "what is refused is not tried again");
    drop(worker);
}

#[test]
fn g19_who_asks_for_no_wait_does_not_end_the_wait_that_there_is() {
    let place = Place::new();
    let library = Library::with_topic(&place, "hooks");
    let web = Web::start(None, |_, _| {
        Response::builder().status(503).header("retry-after", "0").body("".into()).unwrap()
    });
    let url = format!("http://127.0.0.1:{}/", web.port);
    let id = library.push("hooks", "x");
    let args = ["deliver", "webhook", "hooks", "--url", &url, "--allow-private", "--backoff", "1h..1h"];
    let worker = place.start(&args);
    // The first retry is immediate, the second comes after the backoff.
    let mut last = None;
    until("it has failed twice", || {
        let found = library.block_on(library.mill.admin().show(id)).unwrap();
        last = found.and_then(|found| found.groups.into_iter().next()).map(|(_, standing)| standing);
        matches!(&last, Some(MessageState::Retrying { failed, .. } | MessageState::Dead { failed, .. }) if *failed >= 2)
    });
    // With the zero of Retry-After it would be due at once.
    let Some(MessageState::Retrying { due: Some(due), .. }) = &last else {
        panic!("it does not wait: {last:?}")
    };
    let wait = due.since(Env::system().wall());
    assert!(wait > Duration::from_secs(30 * 60), "it is tried again in {wait:?}");
    drop(worker);
    assert_eq!((web.received().len(), library.status("hooks").dead), (2, 0));
}

#[test]
fn g19_a_token_that_is_not_taken_is_no_messages_fault() {
    let place = Place::new();
    let library = Library::with_topic(&place, "hooks");
    let web = Web::start(None, |_, _| page(401, "who are you?"));
    let url = format!("http://127.0.0.1:{}/", web.port);
    place.write("token", "t0ken\n");
    library.push("hooks", "x");
    let args = ["--allow-private", "--retries", "0", "--token-file", "token"];
    let ended = place.run(&deliver(&url, &args)).fails(1, &["token", "401"]);
    assert!(!ended.stderr.contains("t0ken"), "{}", ended.stderr);
    let status = library.status("hooks");
    assert_eq!((status.done, status.dead, web.received().len()), (0, 0, 1));
}

#[test]
fn g19_the_body_and_its_kind_are_as_asked_for() {
    let place = Place::new();
    let library = Library::with_topic(&place, "hooks");
    let web = Web::start(None, |_, _| page(200, ""));
    let url = format!("http://localhost:{}/", web.port);
    let kinds = || -> Vec<(String, String)> {
        let received = web.received();
        let last = received.last().unwrap();
        let body = String::from_utf8_lossy(&last.body).into_owned();
        vec![(last.header("content-type").unwrap().to_owned(), body)]
    };
    let mut seen = Vec::new();
    for (push, options) in [
        (Push::new("hi \"you\""), &["--slack"][..]),
        (Push::new("hi"), &[]),
        (Push::new("hi").header("content-type", "text/markdown"), &[]),
        (Push::new("hi"), &["--content-type", "text/x-own"]),
        (Push::new(&b"\xff"[..]), &[]),
    ] {
        library.push("hooks", push);
        place.ok(&deliver(&url, &[&["--allow-private=127.0.0.0/8"], options].concat()));
        seen.extend(kinds());
    }
    let expected = [
        ("application/json", "{\"text\":\"hi \\\"you\\\"\"}"),
        ("text/plain; charset=utf-8", "hi"),
        ("text/markdown", "hi"),
        ("text/x-own", "hi"),
        ("application/octet-stream", "\u{fffd}"),
    ];
    assert_eq!(seen, expected.map(|(kind, body)| (kind.to_owned(), body.to_owned())));
}

#[test]
fn g19_nothing_is_posted_to_this_machine_unless_it_is_allowed() {
    let place = Place::new();
    let library = Library::with_topic(&place, "hooks");
    let secret = Web::start(None, |_, _| page(200, ""));
    let port = secret.port;
    let to = move |before: usize| format!("http://127.0.0.1:{port}/{before}");
    let web = Web::start(None, move |before, _| {
        Response::builder().status(307).header("location", to(before)).body("".into()).unwrap()
    });

    // An address is refused at the start, a name at the first delivery.
    for near in ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "169.254.169.254", "2130706433"] {
        let url = format!("https://{near}:{port}/");
        place.run(&deliver(&url, &[])).fails(2, &["--url", "public internet", "--allow-private"]);
    }
    library.push("hooks", "by name");
    place.ok(&deliver(&format!("https://localhost:{port}/"), &[]));
    library.push("hooks", Push::new("by header").header("callback", format!("https://localhost:{port}/")));
    let by_header = ["deliver", "webhook", "hooks", "--url-header", "callback", "--drain"];
    place.ok(&by_header);
    // Allowing one network does not allow others.
    library.push("hooks", "by another network");
    place.ok(&deliver(&format!("http://localhost:{port}/"), &["--allow-private=10.0.0.0/8"]));
    // An allowed server cannot redirect elsewhere.
    library.push("hooks", "by redirect");
    let allowed = format!("http://127.0.0.1:{}/", web.port);
    place.ok(&deliver(&allowed, &["--allow-private"]));

    let dead = library.dead("hooks");
    let why = |payload: &str| {
        let letter = dead.iter().find(|letter| letter.message.payload == payload.as_bytes());
        letter.map(|letter| letter.reason().to_owned()).unwrap_or_default()
    };
    for payload in ["by name", "by header", "by another network"] {
        assert!(why(payload).contains("not in the public internet"), "{payload}: {}", why(payload));
    }
    assert!(why("by redirect").contains("redirects are not followed"), "{}", why("by redirect"));
    assert_eq!((dead.len(), secret.received().len(), web.received().len()), (4, 0, 1));

    library.push("hooks", Push::new("by header").header("callback", format!("http://localhost:{port}/")));
    place.ok(&[&by_header[..], &["--allow-private"]].concat());
    assert_eq!(secret.received().len(), 1, "if it is allowed, it goes there");
}

#[test]
fn g19_over_https_only_those_are_posted_to_whom_the_system_trusts() {
    let (authority, other) = (Authority::new(), Authority::new());
    let web = Web::start(Some(authority.certify("localhost").config()), |_, _| page(200, ""));
    let place = Place::new();
    let library = Library::with_topic(&place, "hooks");
    let url = format!("https://localhost:{}/", web.port);
    let run = |trusted: &Authority| {
        library.push("hooks", "x");
        let mut program = place.command(deliver(&url, &["--allow-private", "--retries", "0"]));
        Running::start(trusted.trusted_by(&place, &mut program)).wait().ok();
    };
    run(&authority);
    assert_eq!((web.received().len(), library.status("hooks").done), (1, 1));
    run(&other);
    let dead = library.dead("hooks");
    assert_eq!((web.received().len(), dead.len()), (1, 1));
    assert!(dead[0].reason().to_lowercase().contains("certificate"), "{}", dead[0].reason());
}

#[test]
fn g19_a_service_that_does_not_answer_is_left_in_time() {
    let place = Place::new();
    let library = Library::with_topic(&place, "hooks");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://127.0.0.1:{}/", silent.local_addr().unwrap().port());
    library.push("hooks", "x");
    place.ok(&deliver(&url, &["--allow-private", "--retries", "0", "--timeout", "500ms"]));
    let dead = library.dead("hooks");
    assert!(dead[0].reason().contains("timeout of 500ms"), "{}", dead[0].reason());
}
