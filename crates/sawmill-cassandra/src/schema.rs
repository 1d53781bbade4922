//! The tables of a keyspace, which all namespaces in it have in common.
//!
//! A row is written either always by lightweight transactions or never: the two do not see each other's order.

use std::collections::BTreeMap;

use sawmill::{Error, ErrorKind, Result};

use crate::address::{Address, Replication};
use crate::error::Trouble;
use crate::link::query;
use scylla::client::session::Session;

/// The oldest server that can do what is asked of it here.
const OLDEST: (u32, u32) = (4, 0);

/// Their names and what makes them.
const TABLES: &[(&str, &str)] = &[
    // Topics by name. Lightweight transactions only.
    (
        "topics",
        "(namespace text, name text, uid text, shards int, retention_ms bigint, drops_unread boolean, bucket_ms bigint, \
         settle_ms bigint, keep_s bigint, PRIMARY KEY ((namespace), name))",
    ),
    // The messages, in packs. Never updated, never deleted: they expire, and whole files of them at a time.
    (
        "log",
        "(topic text, bucket bigint, shard int, kind tinyint, at bigint, seq bigint, writer bigint, many int, bytes int, \
         created bigint, slow boolean, body blob, PRIMARY KEY ((topic, bucket, shard, kind), at, seq, writer)) \
         WITH compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'HOURS', \
         'compaction_window_size': 6} AND gc_grace_seconds = 86400",
    ),
    // Which partitions of the log there are.
    (
        "buckets",
        "(topic text, kind tinyint, bucket bigint, shard int, PRIMARY KEY ((topic, kind), bucket, shard)) \
         WITH gc_grace_seconds = 86400",
    ),
    // The order in which messages were found, agreed upon by all. Lightweight transactions only.
    (
        "segments",
        "(topic text, shard int, chapter bigint, n bigint, last bigint static, tail blob static, named blob, state blob, \
         PRIMARY KEY ((topic, shard, chapter), n))",
    ),
    // The last part of that order that was begun.
    ("chapters", "(topic text, shard int, chapter bigint, PRIMARY KEY ((topic, shard)))"),
    // Where a message is that may be appended again. Lightweight transactions only.
    (
        "ids",
        "(topic text, id blob, shard int, kind tinyint, at bigint, seq bigint, writer bigint, PRIMARY KEY ((topic, id)))",
    ),
    // Those of them that were acknowledged.
    ("sures", "(topic text, id blob, PRIMARY KEY ((topic, id)))"),
    // Of each topic a number that changes when there are messages.
    ("pulses", "(namespace text, topic text, number bigint, PRIMARY KEY ((namespace), topic))"),
    // The ledger. Lightweight transactions only.
    (
        "ledger",
        "(namespace text, name text, version bigint, value blob, dead boolean, write blob, PRIMARY KEY ((namespace, name)))",
    ),
    // The names of its entries, also of some that are gone.
    (
        "ledger_names",
        // A worker that leaves takes its name with it, and everybody who looks around walks over what is left of it.
        "(namespace text, name text, PRIMARY KEY ((namespace), name)) WITH gc_grace_seconds = 3600 \
         AND compaction = {'class': 'LeveledCompactionStrategy', 'unchecked_tombstone_compaction': 'true'}",
    ),
];

/// Makes the keyspace, if it is to be made, and what is missing in it. Safe to repeat, also by several at once.
pub(crate) async fn prepare(session: &Session, address: &Address) -> Result<(), Trouble> {
    fit(session).await?;
    let keyspace = &address.keyspace;
    let there = query(
        session,
        "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?",
        (keyspace,),
    );
    if there.await?.no_rows::<(String,)>()? {
        let Some(replication) = &address.replication else {
            return Err(Trouble::Refused(missing(keyspace)));
        };
        let making =
            format!("CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {}", written(replication));
        query(session, &making, ()).await?;
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

/// How many nodes hold each row, by datacenter, as far as that can be told.
pub(crate) async fn copies(session: &Session, keyspace: &str) -> Result<BTreeMap<String, u32>, Trouble> {
    let text = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?";
    let rows: Vec<(BTreeMap<String, String>,)> = query(session, text, (keyspace,)).await?.rows()?;
    let factors = rows.into_iter().flat_map(|(map,)| map).filter(|(name, _)| name != "class");
    Ok(factors.filter_map(|(name, factor)| Some((name, factor.parse().ok()?))).collect())
}

fn missing(keyspace: &str) -> Error {
    Error::new(
        ErrorKind::Invalid,
        format!(
            "the keyspace {keyspace} does not exist; create it, correct its name in the store's URL, or add ?replication=3 to \
             have it made"
        ),
    )
}

fn written(replication: &Replication) -> String {
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
async fn fit(session: &Session) -> Result<(), Trouble> {
    let rows: Vec<(String,)> =
        query(session, "SELECT release_version FROM system.local", ()).await?.rows()?;
    let version = rows.into_iter().next().map(|(version,)| version).unwrap_or_default();
    // ScyllaDB says that it is an old Cassandra.
    let scylla = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'system' AND table_name = 'scylla_local'";
    if is_fit(&version) || !query(session, scylla, ()).await?.no_rows::<(String,)>()? {
        return Ok(());
    }
    Err(Trouble::Refused(too_old(&version)))
}

fn is_fit(version: &str) -> bool {
    let mut parts = version.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= OLDEST
}

fn too_old(version: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "the server is Cassandra {version}, and {}.{} is the oldest that will do: upgrade it",
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
            assert_eq!(is_fit(version), will_do, "{version}");
        }
        let error = too_old("3.11.19");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("3.11.19") && error.to_string().contains("4.0"));
    }

    #[test]
    fn replication_is_written_as_the_server_reads_it() {
        let everywhere = written(&Replication::Everywhere(3));
        assert_eq!(everywhere, "{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}");
        let each = Replication::PerDatacenter(vec![("a".into(), 3), ("b".into(), 2)]);
        assert_eq!(written(&each), "{'class': 'NetworkTopologyStrategy', 'a': 3, 'b': 2}");
    }
}
