//! `--metrics`: the metrics for Prometheus.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use rustix::process::Signal;

use crate::support::library::Library;
use crate::support::{Place, Running, until};

/// Returns the address of the metrics from the worker's log.
pub(crate) fn address(worker: &Running) -> String {
    worker.until_said("/metrics");
    let said = worker.stderr();
    let rest = said.split("metrics at http://").nth(1).unwrap();
    rest.split("/metrics").next().unwrap().to_owned()
}

pub(crate) fn ask(address: &str, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

pub(crate) fn metrics(address: &str) -> String {
    let answer = ask(address, b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("version=0.0.4"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    body.to_owned()
}

/// Returns the value of a metric; 0 if it is missing.
fn value(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.parse().unwrap())
}

#[test]
fn q16_tasks_done_and_failed_rebalances_and_timings_are_counted() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    let script = place.script("run", "read what; [ \"$what\" = slow ] && sleep 0.3; [ \"$what\" != bad ]");
    let args = [
        "work",
        "t",
        "--metrics",
        "127.0.0.1:0",
        "--retries",
        "2",
        "--backoff",
        "10ms..10ms",
        "--concurrency",
        "3",
    ];
    let worker = place.start(&[&args[..], &["--", &script]].concat());
    let address = address(&worker);
    library.push_many("t", ["ok", "ok", "slow", "ok", "bad"]);
    until("all are settled", || library.status("t").done == 4 && library.status("t").dead == 1);

    let finished = |outcome: &str| {
        format!("sawmill_finished_total{{topic=\"t\",group=\"default\",outcome=\"{outcome}\"}}")
    };
    let of_topic = "{topic=\"t\",group=\"default\"}";
    let mut now = String::new();
    until("the counters have come to rest", || {
        now = metrics(&address);
        [("done", 4.0), ("retried", 2.0), ("dead", 1.0)]
            .into_iter()
            .all(|(outcome, wanted)| value(&now, &finished(outcome)) >= wanted)
    });
    for (name, wanted) in [
        (finished("done"), 4.0),
        (finished("retried"), 2.0),
        (finished("dead"), 1.0),
        (format!("sawmill_started_total{of_topic}"), 7.0),
        ("sawmill_rebalances_total{group=\"default\"}".to_owned(), 1.0),
        ("sawmill_slots{group=\"default\"}".to_owned(), 3.0),
        ("sawmill_open_seconds_count".to_owned(), 1.0),
        (format!("sawmill_handler_seconds_count{of_topic}"), 7.0),
        ("sawmill_handler_seconds_bucket{topic=\"t\",group=\"default\",le=\"+Inf\"}".to_owned(), 7.0),
    ] {
        assert_eq!(value(&now, &name), wanted, "{name} in\n{now}");
    }
    let slow = value(&now, &format!("sawmill_handler_seconds_sum{of_topic}"));
    assert!((0.3..300.0).contains(&slow), "{slow}");
    let quick = value(&now, "sawmill_handler_seconds_bucket{topic=\"t\",group=\"default\",le=\"0.25\"}");
    assert!(quick <= 6.0, "the slow one took longer: {quick}");
    assert!(value(&now, "sawmill_open_seconds_sum") > 0.0);
    for line in [
        "# TYPE sawmill_finished_total counter",
        "# TYPE sawmill_handler_seconds histogram",
        "# HELP sawmill_open_seconds ",
    ] {
        assert!(now.contains(line), "{line:?} is not in\n{now}");
    }

    let other = place.start(&["work", "t", "--", "true"]);
    until("the other is seen", || {
        value(&metrics(&address), "sawmill_rebalances_total{group=\"default\"}") == 2.0
    });
    other.signal(Signal::INT);
    other.wait().ok();
    worker.signal(Signal::INT);
    worker.wait().ok();
}

#[test]
fn whatever_is_asked_the_worker_goes_on() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    let worker = place.start(&["work", "t", "--metrics", "127.0.0.1:0", "--", "true"]);
    let address = address(&worker);
    assert!(ask(&address, b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(ask(&address, b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    assert!(ask(&address, b"\x16\x03\x01\n\n").starts_with("HTTP/1.1 400"));
    let long = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &b"x".repeat(10_000)].concat();
    assert!(ask(&address, &long).starts_with("HTTP/1.1 431"));
    let head = ask(&address, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
    // Open more silent connections than are served at once: they are closed in time, and others are served
    // then.
    let silent: Vec<_> = (0..40).map(|_| TcpStream::connect(&address).unwrap()).collect();
    library.push("t", "x");
    until("the message is done", || library.status("t").done == 1);
    assert!(metrics(&address).contains("sawmill_started_total"));
    drop(silent);
    worker.signal(Signal::INT);
    worker.wait().ok();
}

#[test]
fn a_port_that_is_taken_is_said() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let ended = place.run(&["work", "t", "--metrics", &port, "--", "true"]);
    ended.fails(1, &[&format!("127.0.0.1:{port}"), "in use", "--metrics"]);
    assert!(!place.path("sawmill.db").exists(), "nothing was begun");
}
