//! Runs the behaviour suite with a ledger in ZooKeeper and messages in a file or in PostgreSQL.

#[path = "support/mod.rs"]
mod server;
mod store;

mod with_sqlite {
    use crate::store::WithSqlite;

    sawmill_conformance::behaviours!(WithSqlite);
}

mod with_postgres {
    use crate::store::WithPostgres;

    sawmill_conformance::coordination!(WithPostgres);
}
