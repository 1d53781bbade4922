//! The Grafana dashboard in `docs`: it can be imported, and it queries only metrics that the program exports.

use std::collections::{BTreeMap, BTreeSet};

use rustix::process::Signal;
use serde_json::Value;

use super::metrics::{address, ask, metrics};
use crate::support::library::Library;
use crate::support::{Place, until};

/// The labels of each metric with their values; empty for a metric without labels.
type Exported = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

fn dashboard() -> Value {
    let text = include_str!("../../../../../docs/grafana-sawmill.json");
    serde_json::from_str(text).unwrap()
}

/// Returns every query of a dashboard.
fn queries(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let expressions = targets.map(|target| target["expr"].as_str().unwrap().to_owned());
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let asked = variables.filter_map(|variable| {
        let shown = variable["definition"].as_str()?;
        assert_eq!(
            variable["query"]["query"].as_str().or(variable["query"].as_str()),
            Some(shown),
            "what is asked is what is shown"
        );
        Some(shown.to_owned())
    });
    expressions.chain(asked).collect()
}

/// Returns each metric of a query with its matchers: `name` and `topic=~"$topic", outcome="done"`.
fn metrics_in(query: &str) -> Vec<(String, String)> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut found = Vec::new();
    let mut rest = query;
    while let Some(at) = rest.find("sawmill_") {
        rest = &rest[at..];
        let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let matchers = after.strip_prefix('{').and_then(|after| after.split_once('}'));
        found.push((name.to_owned(), matchers.map(|(matchers, _)| matchers).unwrap_or_default().to_owned()));
        rest = after;
    }
    found
}

/// Returns an unbalanced bracket or quote of a query. Brackets in quotes do not count.
fn unbalanced(query: &str) -> Option<String> {
    let mut open = Vec::new();
    let mut quoted = false;
    for letter in query.chars() {
        match letter {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' => open.push(')'),
            '[' => open.push(']'),
            '{' => open.push('}'),
            ')' | ']' | '}' if open.pop() != Some(letter) => return Some(letter.to_string()),
            _ => {}
        }
    }
    if quoted { Some("a quote".to_owned()) } else { open.pop().map(|missing| missing.to_string()) }
}

/// Parses `/metrics` by name and label.
fn exported(text: &str) -> Exported {
    let mut all = Exported::new();
    for line in text.lines().filter(|line| line.starts_with("sawmill_")) {
        let (series, _) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let known = all.entry(name.to_owned()).or_default();
        for label in labels.trim_end_matches('}').split("\",").filter(|label| !label.is_empty()) {
            let (label, value) = label.split_once("=\"").expect(line);
            known.entry(label.to_owned()).or_default().insert(value.trim_end_matches('"').to_owned());
        }
    }
    all
}

/// Returns what a worker and a server export after some work.
fn all_exported() -> Exported {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    let worker =
        place.start(&["work", "t", "--metrics", "127.0.0.1:0", "--retries", "0", "--", "grep", "-q", "good"]);
    let server = place.start(&["serve", "--listen", "0", "--json"]);
    until("it listens", || server.stdout().contains('\n'));
    let said: Value = serde_json::from_str(server.stdout().trim()).unwrap();
    let there = said["url"].as_str().unwrap().trim_start_matches("http://").trim_end_matches('/').to_owned();
    for body in [r#"{"payload":"good"}"#, r#"{"payload":"bad"}"#] {
        let head = format!(
            "POST /api/v1/topics/t/messages HTTP/1.1\r\nHost: {there}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        assert!(ask(&there, head.as_bytes()).starts_with("HTTP/1.1 201"));
    }
    until("both are settled", || (library.status("t").done, library.status("t").dead) == (1, 1));
    let of_server = ask(
        &there,
        format!("GET /metrics HTTP/1.1\r\nHost: {there}\r\nConnection: close\r\n\r\n").as_bytes(),
    );
    let (_, of_server) = of_server.split_once("\r\n\r\n").unwrap();
    let text = metrics(&address(&worker)) + of_server;
    for running in [worker, server] {
        running.signal(Signal::INT);
        running.wait().ok();
    }
    exported(&text)
}

#[test]
fn q16_the_dashboard_asks_only_for_what_is_exported() {
    let exported = all_exported();
    let dashboard = dashboard();
    let mut asked = BTreeSet::new();
    for query in queries(&dashboard) {
        let metrics = metrics_in(&query);
        assert!(!metrics.is_empty(), "{query} asks for nothing of ours");
        assert_eq!(unbalanced(&query), None, "{query}");
        for (name, matchers) in metrics {
            let labels = exported.get(&name).unwrap_or_else(|| panic!("{name} is not exported: {query}"));
            for matcher in matchers.split(", ").filter(|matcher| !matcher.is_empty()) {
                let (label, value) = matcher.split_once('=').unwrap();
                let known =
                    labels.get(label).unwrap_or_else(|| panic!("{name} has no label {label}: {query}"));
                let value = value.trim_start_matches('~').trim_matches('"');
                for value in value.split('|').filter(|value| !value.starts_with('$')) {
                    assert!(known.contains(value), "{name}: {label} is never {value}, but one of {known:?}");
                }
            }
            asked.insert(name);
        }
    }
    // The metrics that an operator looks at first, and those that indicate problems.
    for wanted in ["waiting", "oldest_seconds", "finished_total", "dead", "retrying", "workers", "busy"] {
        assert!(asked.contains(&format!("sawmill_{wanted}")), "nothing shows {wanted}");
    }
}

#[test]
fn q16_brackets_are_looked_at() {
    for good in ["sum(rate(x{a=\"(\"}[5m])) by (topic)", "x"] {
        assert_eq!(unbalanced(good), None, "{good}");
    }
    for bad in ["sum(x", "x)", "x{a=\"b\"", "x[5m)", "x{a=\"b}"] {
        assert!(unbalanced(bad).is_some(), "{bad}");
    }
}

#[test]
fn q16_the_dashboard_can_be_imported() {
    let dashboard = dashboard();
    assert_eq!((&dashboard["title"], &dashboard["uid"]), (&"Sawmill".into(), &"sawmill".into()));
    assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 36);
    assert_eq!(dashboard.get("id"), None, "Grafana gives it one");
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let names: Vec<&str> = variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["datasource", "topic", "group"]);
    assert_eq!((&variables[0]["type"], &variables[0]["query"]), (&"datasource".into(), &"prometheus".into()));

    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "each has an id of its own");
    let mut taken = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        assert!(!title.is_empty() && !panel["description"].as_str().unwrap().is_empty(), "{panel}");
        assert!(["stat", "timeseries"].contains(&panel["type"].as_str().unwrap()), "{title}");
        let place = |side: &str| panel["gridPos"][side].as_u64().unwrap();
        assert!(place("x") + place("w") <= 24, "{title} does not fit");
        for (x, y) in (place("x")..place("x") + place("w"))
            .flat_map(|x| (place("y")..place("y") + place("h")).map(move |y| (x, y)))
        {
            assert!(taken.insert((x, y)), "{title} lies upon another");
        }
        let targets = panel["targets"].as_array().unwrap();
        let letters: BTreeSet<&str> =
            targets.iter().map(|target| target["refId"].as_str().unwrap()).collect();
        assert_eq!(letters.len(), targets.len(), "{title}");
        for asking in targets.iter().chain([panel]) {
            assert_eq!(asking["datasource"]["uid"], "${datasource}", "{title}");
        }
    }
}
