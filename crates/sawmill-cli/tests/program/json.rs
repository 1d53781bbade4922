//! `--json` prints exactly the fields that `JSON.md` documents.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::support::Place;
use crate::support::library::Library;
use sawmill::{Context, Outcome, Push, RetryPolicy, Schedule};
use serde_json::Value;

const DOCUMENT: &str = include_str!("../../JSON.md");

/// Commands whose output other tests compare with the document.
const ELSEWHERE: &[&str] = &["work", "serve", "doctor"];

/// Returns the documented fields of each command.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let quoted =
        |text: &str| -> Vec<String> { text.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    let mut sections: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut commands = Vec::new();
    for line in DOCUMENT.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            commands = quoted(heading);
            commands.iter().for_each(|command| _ = sections.entry(command.clone()).or_default());
        } else if let Some(field) = line.strip_prefix("| `") {
            let (field, _) = field.split_once('`').expect(line);
            for command in &commands {
                assert!(
                    sections.get_mut(command).unwrap().insert(field.to_owned()),
                    "{command}: {field} twice"
                );
            }
        }
    }
    sections
}

/// Collects the names of all fields of a value, nested ones with their path.
fn fields(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                found.insert(path.clone());
                // Header names are chosen by the pusher.
                if name != "headers" {
                    fields(value, &path, found);
                }
            }
        }
        Value::Array(values) => {
            values.iter().for_each(|value| fields(value, &format!("{path}[]"), found));
        }
        _ => {}
    }
}

/// A store with messages in many states, and what is needed to refer to them.
struct Furnished {
    place: Place,
    library: Library,
    worker: Option<sawmill::Worker>,
    waiting: String,
    dead: Vec<String>,
    access_key: String,
}

impl Furnished {
    fn new() -> Self {
        let place = Place::new();
        let library = Library::open(&place);
        let text = || Push::new("text").key("key").header("lang", "en");
        let bytes = || Push::new(vec![0xff]).key(vec![0xfe]);
        let dead: Vec<String> = [text(), bytes(), text()].map(|push| library.pushed("emails", push)).into();
        let worker = library.run(async |mill| {
            let dying = mill.worker("emails").retry(RetryPolicy::none());
            let dying = dying.start(|_: Context| async { Outcome::retry("no paper") }).await.unwrap();
            dying.drained().await;
            dying.stop().await;
            mill.create_topic("orders").await.unwrap();
            mill.push("orders", "x").await.unwrap();
            let (tell, told) = tokio::sync::oneshot::channel();
            let tell = std::sync::Mutex::new(Some(tell));
            let busy = move |context: Context| {
                context.note("half");
                tell.lock().unwrap().take().map(|tell| tell.send(()));
                std::future::pending::<()>()
            };
            let busy = mill.worker("orders").ttl(Duration::from_secs(60)).start(busy).await.unwrap();
            told.await.unwrap();
            let ping = Schedule::every("bytes", Duration::from_secs(3600)).unwrap();
            mill.schedule("emails", ping.message(bytes())).await.unwrap();
            busy
        });
        crate::support::until("the note is told", || place.json(&["workers"])[0]["running"][0].is_object());
        let [waiting, _] = [text(), bytes()].map(|push| library.pushed("emails", push));
        let access_key =
            place.json(&["key", "create", "--access", "r"])[0]["id"].as_str().unwrap().to_owned();
        Self { place, library, worker: Some(worker), waiting, dead, access_key }
    }

    /// Returns the runs of each command: several if one run does not show all its fields.
    fn runs(&self) -> Vec<(&'static str, Vec<Vec<&str>>)> {
        let (waiting, dead) = (self.waiting.as_str(), &self.dead);
        vec![
            ("push", vec![vec!["emails", "x"], vec!["emails", "x", "--quiet"]]),
            ("bench", vec![vec!["--messages", "10", "--processes", "1", "--latency", "20ms"]]),
            ("demo", vec![vec![]]),
            ("topic create", vec![vec!["new"]]),
            ("topic list", vec![vec![]]),
            ("topic show", vec![vec!["emails"]]),
            ("show", vec![vec![&dead[0]], vec![&dead[1]]]),
            ("peek", vec![vec!["emails"]]),
            ("status", vec![vec!["--sample", "0s"]]),
            ("workers", vec![vec![]]),
            ("cancel", vec![vec![waiting]]),
            ("pause", vec![vec!["emails"]]),
            ("resume", vec![vec!["emails"]]),
            ("dead list", vec![vec!["emails"]]),
            ("dead show", vec![vec!["emails", "--all"]]),
            ("dead retry", vec![vec!["emails", &dead[0]]]),
            ("dead drop", vec![vec!["emails", "--all", "--yes"]]),
            ("replay", vec![vec!["emails", "--group", "default", "--from", "start", "--yes"]]),
            (
                "cron add",
                vec![
                    vec!["emails", "text", "0 3 * * *", "--payload", "x", "--key", "k"],
                    vec!["emails", "none", "--every", "1h"],
                ],
            ),
            ("cron list", vec![vec![]]),
            ("cron remove", vec![vec!["emails", "text"]]),
            ("trim", vec![vec!["emails"]]),
            ("migrate", vec![vec![]]),
            ("key create", vec![vec!["--topic", "emails", "--access", "w", "--note", "the shop"]]),
            ("key list", vec![vec![]]),
            ("key revoke", vec![vec![&self.access_key]]),
        ]
    }
}

#[test]
fn the_document_says_what_is_printed() {
    let documented = documented();
    let mut furnished = Furnished::new();
    let mut run = BTreeSet::new();
    for (command, runs) in furnished.runs() {
        let mut printed = BTreeSet::new();
        for arguments in runs {
            let words: Vec<&str> = command.split(' ').chain(arguments).collect();
            let lines = furnished.place.json(&words);
            assert!(!lines.is_empty(), "{words:?} prints nothing");
            lines.iter().for_each(|line| fields(line, "", &mut printed));
        }
        let mut expected =
            documented.get(command).unwrap_or_else(|| panic!("{command} is not in JSON.md")).clone();
        if command == "cron add" {
            // Arguments are text.
            expected.retain(|field| !field.ends_with("_base64"));
        }
        assert_eq!(printed, expected, "{command}: printed, and documented");
        run.insert(command);
    }
    let missing: Vec<&String> = documented
        .keys()
        .filter(|command| !run.contains(command.as_str()) && !ELSEWHERE.contains(&command.as_str()))
        .collect();
    assert!(missing.is_empty(), "documented, and not run here: {missing:?}");
    let worker = furnished.worker.take().unwrap();
    furnished.library.run(async |_| worker.abort().await);
}

#[test]
fn times_ids_and_spans_look_as_the_document_says() {
    let mut furnished = Furnished::new();
    let shown = furnished.place.json(&["show", &furnished.waiting])[0].clone();
    assert_eq!(shown["id"].as_str().unwrap().len(), 26);
    let pushed = shown["pushed_at"].as_str().unwrap();
    assert!(pushed.len() == "2026-11-15T08:00:00.000Z".len() && pushed.ends_with('Z'), "{pushed}");
    assert!(
        furnished.place.json(&["status", "--sample", "0s"])[0]["oldest_seconds"].as_f64().unwrap() >= 0.0
    );
    assert_eq!(furnished.place.json(&["workers"])[0]["ttl_seconds"], 60.0);
    let worker = furnished.worker.take().unwrap();
    furnished.library.run(async |_| worker.abort().await);
}
