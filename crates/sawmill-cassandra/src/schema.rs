//! Creates the tables of a keyspace, which all its namespaces share.
//!
//! Each row is written either by lightweight transactions only or without them only: the two kinds of writes
//! are not ordered among each other.

use std::collections::BTreeMap;

use sawmill_engine::{Error, ErrorKind, Result};

use crate::address::{Address, Replication};
use crate::connection::link::query;
use crate::error::Failure;
use scylla::client::session::Session;

/// The oldest Cassandra that is supported.
const OLDEST: (u32, u32) = (4, 0);

/// The name and the definition of each table.
const TABLES: &[(&str, &str)] = &[
    // Topics by name. Lightweight transactions only.
    (
        "topics",
        "(namespace text, name text, uid text, shards int, retention_ms bigint, drops_unread boolean, bucket_ms bigint, \
         settle_ms bigint, keep_s bigint, PRIMARY KEY ((namespace), name))",
    ),
    // The messages, in packs. Rows are never updated or deleted: they expire, and compaction drops whole
    // files.
    (
        "log",
        "(topic text, bucket bigint, shard int, kind tinyint, at bigint, seq bigint, writer bigint, many int, bytes int, \
         created bigint, slow boolean, body blob, PRIMARY KEY ((topic, bucket, shard, kind), at, seq, writer)) \
         WITH compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'HOURS', \
         'compaction_window_size': 6} AND gc_grace_seconds = 86400",
    ),
    // The existing partitions of the log.
    (
        "buckets",
        "(topic text, kind tinyint, bucket bigint, shard int, PRIMARY KEY ((topic, kind), bucket, shard)) \
         WITH gc_grace_seconds = 86400",
    ),
    // The order of delivery, which all readers share. Lightweight transactions only.
    (
        "segments",
        "(topic text, shard int, chapter bigint, n bigint, last bigint static, tail blob static, named blob, state blob, \
         PRIMARY KEY ((topic, shard, chapter), n))",
    ),
    // The latest partition of `segments`, per shard.
    ("chapters", "(topic text, shard int, chapter bigint, PRIMARY KEY ((topic, shard)))"),
    // The place of each message that may be appended again. Lightweight transactions only.
    (
        "ids",
        "(topic text, id blob, shard int, kind tinyint, at bigint, seq bigint, writer bigint, PRIMARY KEY ((topic, id)))",
    ),
    // The messages of these that were acknowledged.
    ("sures", "(topic text, id blob, PRIMARY KEY ((topic, id)))"),
    // A number per topic that changes when messages arrive.
    ("pulses", "(namespace text, topic text, number bigint, PRIMARY KEY ((namespace), topic))"),
    // The ledger. Lightweight transactions only.
    (
        "ledger",
        "(namespace text, name text, version bigint, value blob, dead boolean, write blob, PRIMARY KEY ((namespace, name)))",
    ),
    // The names of its entries, and of some that were deleted.
    (
        "ledger_names",
        // A worker that leaves deletes its name, and every listing reads the tombstones until they are
        // purged.
        "(namespace text, name text, PRIMARY KEY ((namespace), name)) WITH gc_grace_seconds = 3600 \
         AND compaction = {'class': 'LeveledCompactionStrategy', 'unchecked_tombstone_compaction': 'true'}",
    ),
];

/// Creates the keyspace, if the URL asks for it, and the tables that are missing. Idempotent, also if several
/// processes do it at once.
pub(crate) async fn prepare(session: &Session, address: &Address) -> Result<(), Failure> {
    check_version(session).await?;
    let keyspace = &address.keyspace;
    let there = query(
        session,
        "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?",
        (keyspace,),
    );
    if there.await?.no_rows::<(String,)>()? {
        let Some(replication) = &address.replication else {
            return Err(Failure::Refused(missing_keyspace(keyspace)));
        };
        let create = format!(
            "CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {}",
            replication_cql(replication)
        );
        query(session, &create, ()).await?;
    }
    let there =
        query(session, "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?", (keyspace,));
    let there: Vec<(String,)> = there.await?.rows()?;
    for (name, columns) in TABLES {
        if !there.iter().any(|(other,)| other == name) {
            query(session, &format!("CREATE TABLE IF NOT EXISTS {keyspace}.{name} {columns}"), ()).await?;
        }
    }
    Ok(())
}

/// The number of replicas in each datacenter, as far as it is known.
pub(crate) async fn copies(session: &Session, keyspace: &str) -> Result<BTreeMap<String, u32>, Failure> {
    let text = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?";
    let rows: Vec<(BTreeMap<String, String>,)> = query(session, text, (keyspace,)).await?.rows()?;
    let factors = rows.into_iter().flat_map(|(map,)| map).filter(|(name, _)| name != "class");
    Ok(factors.filter_map(|(name, factor)| Some((name, factor.parse().ok()?))).collect())
}

fn missing_keyspace(keyspace: &str) -> Error {
    Error::new(
        ErrorKind::Invalid,
        format!(
            "the keyspace {keyspace} does not exist; create it, correct its name in the store's URL, or add ?replication=3 to \
             have it made"
        ),
    )
}

fn replication_cql(replication: &Replication) -> String {
    let class = "'class': 'NetworkTopologyStrategy'";
    match replication {
        Replication::Everywhere(copies) => format!("{{{class}, 'replication_factor': {copies}}}"),
        Replication::PerDatacenter(each) => {
            let each: Vec<String> = each.iter().map(|(name, copies)| format!("'{name}': {copies}")).collect();
            format!("{{{class}, {}}}", each.join(", "))
        }
    }
}

/// Refuses a server that is too old.
async fn check_version(session: &Session) -> Result<(), Failure> {
    let rows: Vec<(String,)> =
        query(session, "SELECT release_version FROM system.local", ()).await?.rows()?;
    let version = rows.into_iter().next().map(|(version,)| version).unwrap_or_default();
    // ScyllaDB reports the version of an old Cassandra.
    let scylla = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'system' AND table_name = 'scylla_local'";
    if is_supported(&version) || !query(session, scylla, ()).await?.no_rows::<(String,)>()? {
        return Ok(());
    }
    Err(Failure::Refused(too_old(&version)))
}

fn is_supported(version: &str) -> bool {
    let mut parts = version.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= OLDEST
}

fn too_old(version: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "the server is Cassandra {version}, and {}.{} is the oldest supported version: upgrade it",
            OLDEST.0, OLDEST.1
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_too_old_is_told_from_one_that_will_do() {
        for (version, will_do) in [
            ("5.0.6", true),
            ("4.0.0", true),
            ("4.1-beta1", true),
            ("10.0", true),
            ("3.11.19", false),
            ("", false),
        ] {
            assert_eq!(is_supported(version), will_do, "{version}");
        }
        let error = too_old("3.11.19");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("3.11.19") && error.to_string().contains("4.0"));
    }

    #[test]
    fn replication_is_written_as_the_server_reads_it() {
        let everywhere = replication_cql(&Replication::Everywhere(3));
        assert_eq!(everywhere, "{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}");
        let each = Replication::PerDatacenter(vec![("a".into(), 3), ("b".into(), 2)]);
        assert_eq!(replication_cql(&each), "{'class': 'NetworkTopologyStrategy', 'a': 3, 'b': 2}");
    }
}
