//! The partitioner of Kafka's own producers.

/// Computes murmur2 with the seed of Kafka's producers.
fn murmur2(key: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c ^ key.len() as u32;
    let mut chunks = key.chunks_exact(4);
    for chunk in &mut chunks {
        let mut word = chunk.iter().rev().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
        word = word.wrapping_mul(M);
        word ^= word >> 24;
        hash = hash.wrapping_mul(M) ^ word.wrapping_mul(M);
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        hash ^= rest.iter().rev().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ hash >> 15
}

/// Returns the partition that Kafka's own producers choose for a key: the shard of a message with this key.
///
/// ```
/// assert_eq!(sawmill_kafka::partition_of(b"foobar", 16), 14);
/// ```
pub fn partition_of(key: &[u8], partitions: u16) -> u16 {
    ((murmur2(key) & 0x7fff_ffff) % u32::from(partitions.max(1))) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are those of Kafka's own producer.
    #[test]
    fn keys_are_hashed_as_kafka_hashes_them() {
        for (key, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()) as i32, hash, "{key}");
        }
        assert!((1..50).all(|n| partition_of(b"x", n) < n) && partition_of(b"", 0) == 0);
    }
}
