//! A schema that an earlier version has filled, dumped by `pg_dump` and loaded into another database.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use async_trait::async_trait;
use sawmill::{OpenOptions, Sawmill};
use sawmill_conformance::recorded::{Recorded, check};
use sawmill_postgres::PostgresEngine;

use crate::support::{namespace, plain_client, server_for};

const FILE: &str = "schema.sql";

/// A database of this test alone. It goes with the server.
struct Database {
    url: String,
}

impl Database {
    async fn new(server: &str) -> Self {
        let name = namespace().as_str().replace('-', "_");
        plain_client(server).await.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
        let (way, settings) = server.split_once('?').unwrap_or((server, ""));
        let (way, _) = way.rsplit_once('/').unwrap();
        Self { url: format!("{way}/{name}?{settings}") }
    }
}

#[async_trait]
impl Recorded for Database {
    fn options(&self) -> OpenOptions {
        Sawmill::options().engine(PostgresEngine::default())
    }
    fn url(&self) -> String {
        self.url.clone()
    }
    async fn save(&self, folder: &Path) {
        let mut dump = Command::new("pg_dump");
        dump.args(["--no-owner", "--inserts", "--schema", "sawmill", &self.url]).stderr(Stdio::inherit());
        let output = dump.output().unwrap();
        assert!(output.status.success(), "{}", output.status);
        let text = String::from_utf8(output.stdout).unwrap();
        // These lines are for psql.
        let lines = text.lines().filter(|line| !line.starts_with('\\'));
        fs::write(folder.join(FILE), lines.map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    }
    async fn load(&self, folder: &Path) {
        let dump = fs::read_to_string(folder.join(FILE)).unwrap();
        plain_client(&self.url).await.batch_execute(&dump).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_of_an_earlier_version_goes_on() {
    let Some(server) = server_for("a_schema_of_an_earlier_version_goes_on") else { return };
    check(&Database::new(&server).await, Path::new("tests/recorded/f99b6a3")).await;
}
