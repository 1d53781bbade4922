//! What the tests share, but for where keys belong: Kafka has a hash of its own.

#[path = "../../../sawmill-sqlite/tests/behaviours/support.rs"]
mod shared;

pub(crate) use shared::*;

/// For each shard a key that belongs to it.
pub(crate) fn key_per_shard(shards: u16) -> Vec<String> {
    let of = |shard| {
        let mut keys = (0..).map(|i| format!("key-{i}"));
        keys.find(|key| sawmill_kafka::partition_of(key.as_bytes(), shards) == shard)
    };
    (0..shards).filter_map(of).collect()
}
