//! `sawmill migrate`: creates the store or upgrades its schema.

use clap::Args;
use sawmill::engine::storage::StoreUrl;
use serde::Serialize;

use crate::engines;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::output::note;

#[derive(Debug, Args)]
#[command(after_help = "\
Every command does this when it opens the store. This command does only this, so that you can choose
the time. Running it again changes nothing.

Examples:
  sawmill migrate
  sawmill migrate --store sqlite:/srv/jobs.db")]
pub(crate) struct MigrateArgs {}

/// The schema versions, as they are printed.
#[derive(Debug, Serialize)]
struct Migrated {
    store: String,
    schema_before: Option<u32>,
    schema: Option<u32>,
}

pub(crate) async fn run(_: MigrateArgs, session: &Session) -> Result<(), Failure> {
    let url = session.store();
    let namespace = session.namespace();
    let schema_before = engines::schema(&url, namespace.as_deref()).await?;
    session.open().await?;
    let schema = engines::schema(&url, namespace.as_deref()).await?;
    // The password is not shown.
    let store = url.parse::<StoreUrl>()?.to_string();
    let migrated = Migrated { store, schema_before, schema };
    if session.out.is_json() {
        return session.out.object(&migrated, |_| String::new());
    }
    let store = &migrated.store;
    note(&match (schema_before, schema) {
        (_, None) => format!("{store} is up to date."),
        (None, Some(now)) => format!("{store} was created, with schema version {now}."),
        (Some(before), Some(now)) if before == now => {
            format!("{store} is up to date, with schema version {now}.")
        }
        (Some(before), Some(now)) => format!("{store} was migrated from schema version {before} to {now}."),
    });
    Ok(())
}
