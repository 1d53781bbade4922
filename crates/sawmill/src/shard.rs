//! Shards: where a message goes, and what a group keeps about each.

/// A hash that is the same on every machine and in every version: FNV-1a over the parts, then mixed.
pub(crate) fn hash(parts: &[&[u8]]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        for byte in *part {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        // A sign between the parts, so that "ab" + "c" is not "a" + "bc".
        hash = (hash ^ 0xff).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

/// The shard of a key.
pub fn shard_of(key: &[u8], shards: u16) -> u16 {
    (hash(&[key]) % u64::from(shards.max(1))) as u16
}
