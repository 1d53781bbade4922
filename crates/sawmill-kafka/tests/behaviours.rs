//! The library's promised behaviours on Kafka, alone and with a ledger in PostgreSQL.

#[path = "support/mod.rs"]
mod server;
mod store;

mod alone {
    use crate::store::OnServer;

    sawmill_conformance::behaviours!(OnServer, without(idempotent_append));
}

mod with_postgres {
    use crate::store::WithPostgres;

    sawmill_conformance::coordination!(WithPostgres);
}
