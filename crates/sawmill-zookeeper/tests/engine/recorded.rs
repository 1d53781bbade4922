//! The nodes of an earlier version's ledger, for messages in a file.

use std::fs;
use std::path::Path;

use async_trait::async_trait;
use sawmill::{OpenOptions, Sawmill};
use sawmill_conformance::recorded::{Recorded, check, from_hex, lines, to_hex};
use sawmill_sqlite::SqliteEngine;
use sawmill_zookeeper::ZookeeperEngine;
use tempfile::TempDir;
use zookeeper_client::{Acls, Client, CreateMode};

use crate::support::{random, server_for};

const FILE: &str = "jobs.db";
const NODES: &str = "nodes.jsonl";

/// A file for the messages, and a node below which the ledger is.
struct Place {
    folder: TempDir,
    server: String,
    root: String,
}

impl Place {
    async fn new(server: String) -> Self {
        let root = format!("/recorded-{:016x}", random());
        let place = Self { folder: tempfile::tempdir().unwrap(), server, root };
        create(&place.client().await, &place.root, &[]).await;
        place
    }

    async fn client(&self) -> Client {
        Client::connect(self.server.strip_prefix("zookeeper://").unwrap()).await.unwrap()
    }
}

async fn create(client: &Client, path: &str, data: &[u8]) {
    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client.create(path, data, &persistent).await.unwrap();
}

#[async_trait]
impl Recorded for Place {
    fn options(&self) -> OpenOptions {
        Sawmill::options().engine(SqliteEngine).engine(ZookeeperEngine)
    }
    fn url(&self) -> String {
        format!("sqlite:{}", self.folder.path().join(FILE).display())
    }
    fn ledger_url(&self) -> Option<String> {
        Some(format!("{}{}", self.server, self.root))
    }
    async fn save(&self, folder: &Path) {
        fs::copy(self.folder.path().join(FILE), folder.join(FILE)).unwrap();
        let client = self.client().await;
        let (mut nodes, mut parents) = (String::new(), vec![self.root.clone()]);
        while let Some(parent) = parents.pop() {
            for name in client.list_children(&parent).await.unwrap() {
                let path = format!("{parent}/{name}");
                let (data, stat) = client.get_data(&path).await.unwrap();
                // A member's node ends with its session.
                if stat.ephemeral_owner == 0 {
                    let below = path.strip_prefix(&self.root).unwrap();
                    nodes += &format!("{}\n", serde_json::json!({ "path": below, "data": to_hex(&data) }));
                    parents.push(path);
                }
            }
        }
        fs::write(folder.join(NODES), nodes).unwrap();
    }
    async fn load(&self, folder: &Path) {
        fs::copy(folder.join(FILE), self.folder.path().join(FILE)).unwrap();
        let client = self.client().await;
        for node in lines(folder, NODES) {
            let path = format!("{}{}", self.root, node["path"].as_str().unwrap());
            create(&client, &path, &from_hex(node["data"].as_str().unwrap())).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_nodes_of_an_earlier_version_go_on() {
    let Some(server) = server_for("the_nodes_of_an_earlier_version_go_on") else { return };
    check(&Place::new(server).await, Path::new("tests/recorded/f99b6a3")).await;
}
