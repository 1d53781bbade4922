//! The rows of an earlier version, inserted into the tables of another keyspace.

use std::fs;
use std::path::Path;

use async_trait::async_trait;
use sawmill::{OpenOptions, Sawmill};
use sawmill_cassandra::CassandraEngine;
use sawmill_conformance::recorded::{Recorded, check};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;

use crate::support::{namespace, server_for, with_keyspace};

const TABLES: &str = "tables.cql";
const ROWS: &str = "rows.cql";
/// Ends a statement. No row contains it.
const END: &str = ";\n\n";
/// Stands for the keyspace.
const KEYSPACE: &str = "@keyspace@";

/// A keyspace of this test alone. It goes with the server.
struct Keyspace {
    server: String,
    name: String,
}

impl Keyspace {
    fn new(server: String) -> Self {
        Self { server, name: namespace().as_str().replace('-', "_") }
    }

    async fn session(&self) -> Session {
        let nodes = self.server.strip_prefix("cassandra://").unwrap();
        let (node, _) = nodes.split_once('/').unwrap();
        SessionBuilder::new().known_node(node).build().await.unwrap()
    }

    async fn run(&self, session: &Session, folder: &Path, file: &str) {
        let statements = fs::read_to_string(folder.join(file)).unwrap().replace(KEYSPACE, &self.name);
        for statement in statements.split_terminator(END) {
            session.query_unpaged(statement, ()).await.unwrap();
        }
        session.await_schema_agreement().await.unwrap();
    }
}

/// Returns the rows of an answer with one column.
async fn texts(session: &Session, query: String) -> Vec<String> {
    let rows = session.query_unpaged(query, ()).await.unwrap().into_rows_result().unwrap();
    rows.rows::<(String,)>().unwrap().map(|row| row.unwrap().0).collect()
}

#[async_trait]
impl Recorded for Keyspace {
    fn options(&self) -> OpenOptions {
        Sawmill::options().engine(CassandraEngine)
    }
    fn url(&self) -> String {
        with_keyspace(&self.server, &self.name)
    }
    async fn save(&self, folder: &Path) {
        let session = self.session().await;
        let described = session.query_unpaged(format!("DESCRIBE KEYSPACE {}", self.name), ()).await.unwrap();
        let described = described.into_rows_result().unwrap();
        let (mut create, mut rows) = (String::new(), String::new());
        for row in described.rows::<(String, String, String, String)>().unwrap() {
            let (_, kind, name, statement) = row.unwrap();
            create += &format!("{}{END}", statement.trim_end_matches(';').replace(&self.name, KEYSPACE));
            if kind == "table" {
                for row in texts(&session, format!("SELECT JSON * FROM {}.{name}", self.name)).await {
                    let row = row.replace('\'', "''");
                    rows += &format!("INSERT INTO {KEYSPACE}.{name} JSON '{row}' DEFAULT UNSET{END}");
                }
            }
        }
        fs::write(folder.join(TABLES), create).unwrap();
        fs::write(folder.join(ROWS), rows).unwrap();
    }
    async fn load(&self, folder: &Path) {
        let session = self.session().await;
        self.run(&session, folder, TABLES).await;
        self.run(&session, folder, ROWS).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rows_of_an_earlier_version_go_on() {
    let Some(server) = server_for("the_rows_of_an_earlier_version_go_on") else { return };
    check(&Keyspace::new(server), Path::new("tests/recorded/f99b6a3")).await;
}
