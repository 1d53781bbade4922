//! Checks the API description with third-party tools: it must be valid, and the server must never fail on any
//! request, whether the description allows it or not.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::Duration;

use sawmill::admin::Access;
use sawmill::{Context, Outcome};
use sawmill_serve::{Door, Options};
use tokio::process::Command;

use crate::support::{TestServer, until};

/// The tested versions of the tools.
const WANTED: &[&str] = &["schemathesis==4.32.5", "hypothesis==6.170.15", "openapi-spec-validator==0.9.0"];

const LONGEST: Duration = Duration::from_secs(3600);

/// 413 is added to the accepted statuses: a too large request has a status of its own.
const RULES: &str = "suppress-health-check = ['all']

[checks]
negative_data_rejection.expected-statuses = [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 429]
positive_data_acceptance.expected-statuses = ['2xx', 401, 403, 404, 409, 413, 429]
";

/// Returns Python with these tools. Without them the test is skipped, with a message.
fn python(test: &str) -> Option<Command> {
    // The first test installs the tools; the other waits.
    static FOLDER: LazyLock<Result<PathBuf, String>> =
        LazyLock::new(|| sawmill_servers::python("schemathesis-4.32.5", WANTED));
    match &*FOLDER {
        Ok(folder) => {
            let mut path = folder.clone().into_os_string();
            path.push(concat!(":", env!("CARGO_MANIFEST_DIR"), "/tests/serve"));
            let mut python = Command::new("python3");
            python.env("PYTHONPATH", path).env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
            python.kill_on_drop(true);
            Some(python)
        }
        Err(why) => {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
            sawmill_conformance::skipped(test, why);
            None
        }
    }
}

#[tokio::test]
async fn the_description_is_valid() {
    let Some(mut python) = python("the description") else { return };
    python.args(["-m", "openapi_spec_validator", concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json")]);
    let ended = python.output().await.unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

/// `SAWMILL_TEST_FUZZ_EXAMPLES` sets the number of requests tried per operation, with a new seed each time.
#[tokio::test]
async fn whatever_is_asked_is_answered_as_described() {
    let Some(mut python) = python("fuzzing") else { return };
    let examples = std::env::var("SAWMILL_TEST_FUZZ_EXAMPLES").ok();
    let options = Options { door: Door::Keys, most_per_second: 100_000, ..Options::default() };
    let server = TestServer::with(options).await;
    server.mill.create_topic("emails").await.unwrap();
    server.mill.push_many("emails", ["a", "b", "c"]).await.unwrap();
    let worker = server.mill.worker("emails").start(|_: Context| async { Outcome::dead("no such address") });
    let worker = worker.await.unwrap();
    until("there are dead letters", async || worker.counts().dead == 3).await;
    worker.stop().await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("schemathesis.toml"), RULES).unwrap();
    python
        .args(["-m", "schemathesis.cli", "run", &format!("http://{}/openapi.json", server.address)])
        .args([
            "--header",
            &format!("Authorization: Bearer {}", server.credential(None, Access::Admin).await),
        ])
        .args(["--max-examples", examples.as_deref().unwrap_or("10"), "--phases", "coverage,fuzzing"])
        // An endless event stream cannot be checked as an answer.
        .args(["--exclude-path", "/api/v1/events", "--request-timeout", "60"])
        .args(["--warnings", "off", "--no-color", "--workers", "1"])
        .env("SCHEMATHESIS_HOOKS", "fuzz")
        .current_dir(folder.path());
    python.args(match examples {
        Some(_) => ["--generation-database", "none"],
        None => ["--generation-deterministic", "--continue-on-failure"],
    });
    // Much longer than the run takes; only ends a run that hangs.
    let ended = server.env.within(LONGEST, python.output()).await.expect("test timed out: it ends").unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{said}\n{}", String::from_utf8_lossy(&ended.stderr));
    assert!(said.contains("No issues found"), "{said}");
    println!("{}", said.lines().last().unwrap_or_default());
}
