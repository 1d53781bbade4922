//! Tests that a worker in another language needs nothing but the API.

use std::process::Stdio;

use sawmill::admin::Access;
use tokio::process::Command;

use crate::support::{TestServer, until};

#[tokio::test]
async fn a_worker_in_python_works() {
    let server = TestServer::guarded().await;
    server.mill.create_topic("sums").await.unwrap();
    server.mill.push_many("sums", ["[1, 2, 3]", "[40, 2]", "no numbers"]).await.unwrap();
    let credential = server.credential(Some("sums"), Access::Read).await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/worker.py");
    let mut worker = match Command::new("python3")
        .arg(script)
        .args([&format!("http://{}", server.address), "sums", "--limit", "3"])
        .env("SAWMILL_ACCESS_KEY", &credential)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
    {
        Ok(worker) => worker,
        Err(error) => {
            let why = format!("there is no python3: {error}; install it");
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
            return sawmill_conformance::skipped("a worker in Python", &why);
        }
    };
    let letters = async || server.mill.admin().dead_letters("sums", "default").await;
    until("two are done and one is dead", async || {
        let status = server.mill.admin().status("sums", "default").await.unwrap();
        (status.done, status.dead) == (2, 1)
    })
    .await;
    let reason = letters().await.unwrap().list(9).await.unwrap()[0].reason().to_owned();
    assert!(reason.contains("JSON") || reason.contains("Expecting value"), "{reason}");
    until("it has ended", async || worker.try_wait().unwrap().is_some()).await;
    let said = worker.wait_with_output().await.unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains(" 6") && said.contains(" 42"), "{said}");
}
