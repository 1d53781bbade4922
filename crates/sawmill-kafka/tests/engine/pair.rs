//! Messages on Kafka, and the ledger in an SQLite file.

use crate::support::server_for;
use sawmill::Sawmill;
use sawmill_conformance::pair::all_is_worked;
use sawmill_engine::runtime::Env;
use sawmill_kafka::KafkaEngine;
use sawmill_sqlite::SqliteEngine;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_ledger_goes_with_it() {
    let Some(url) = server_for("any_ledger_goes_with_it") else { return };
    let folder = tempfile::tempdir().unwrap();
    let ledger = format!("sqlite:{}", folder.path().join("ledger.db").display());
    let namespace = format!("pair-{:016x}", Env::system().rng().next_u64());
    all_is_worked(async || {
        let options = Sawmill::options().engine(KafkaEngine).engine(SqliteEngine);
        options.namespace(&namespace).ledger(&ledger).open(&url).await.unwrap()
    })
    .await;
}
