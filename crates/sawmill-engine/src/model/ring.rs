//! The ring: which worker prefers which shard.
//!
//! Every worker computes it from the live members, and all get the same result without communication. The
//! ring only avoids conflicts: compare-and-set decides who gets a shard. It is rendezvous hashing, made even.
//! With as many workers as shards, each worker has one shard. With fewer workers, their numbers of shards
//! differ by one at most. With more workers, the surplus workers have none.

use crate::model::hash;

/// Returns for each shard the index of the member that prefers it. `members` must be sorted and not empty.
pub fn preferred(topic: &str, members: &[&str], shards: u16) -> Vec<usize> {
    let weight =
        |member: &str, shard: u16| hash(&[topic.as_bytes(), member.as_bytes(), &shard.to_be_bytes()]);
    let mut pairs: Vec<(u64, usize, u16)> = (0..shards)
        .flat_map(|shard| {
            members.iter().enumerate().map(move |(i, member)| (weight(member, shard), i, shard))
        })
        .collect();
    pairs.sort_unstable();

    let even = usize::from(shards) / members.len();
    let mut holder = vec![usize::MAX; usize::from(shards)];
    let mut load = vec![0; members.len()];
    // Each member gets an even share first. The remaining shards then go to some members, one each.
    for share in [even, even + 1] {
        for (_, member, shard) in pairs.iter().rev() {
            if holder[usize::from(*shard)] == usize::MAX && load[*member] < share {
                holder[usize::from(*shard)] = *member;
                load[*member] += 1;
            }
        }
    }
    holder
}

/// Returns the order in which a worker tries shards that are not its own. Each worker has a different order.
pub fn wandering(topic: &str, member: &str, shards: u16) -> Vec<u16> {
    let mut order: Vec<u16> = (0..shards).collect();
    order.sort_by_key(|shard| hash(&[b"wander", topic.as_bytes(), member.as_bytes(), &shard.to_be_bytes()]));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        let mut names: Vec<String> = (0..count).map(|i| format!("worker-{i}")).collect();
        names.sort();
        names
    }

    fn loads(count: usize, shards: u16) -> Vec<usize> {
        let names = names(count);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut loads = vec![0; count];
        for member in preferred("topic", &names, shards) {
            loads[member] += 1;
        }
        loads
    }

    #[test]
    fn q2_shards_are_shared_out_evenly() {
        assert_eq!(loads(1, 16), [16]);
        assert_eq!(loads(16, 16), [1; 16]);
        for (workers, shards) in [(3, 16), (5, 16), (7, 100), (10, 16), (64, 16), (15, 16)] {
            let loads = loads(workers, shards);
            let even = usize::from(shards) / workers;
            assert_eq!(loads.iter().sum::<usize>(), usize::from(shards));
            assert!(
                loads.iter().all(|load| (even..=even + 1).contains(load)),
                "{workers} {shards} {loads:?}"
            );
        }
    }

    #[test]
    fn a_join_moves_few_shards() {
        for count in 1..12 {
            let (before, after) = (names(count), names(count + 1));
            let before: Vec<&str> = before.iter().map(String::as_str).collect();
            let after: Vec<&str> = after.iter().map(String::as_str).collect();
            let (old, new) = (preferred("t", &before, 64), preferred("t", &after, 64));
            let moved = (0..64).filter(|shard| before[old[*shard]] != after[new[*shard]]).count();
            assert!(moved <= 3 * 64 / (count + 1), "{count} workers and one more: {moved} of 64 moved");
        }
    }

    #[test]
    fn wandering_visits_every_shard_and_differs() {
        let mut order = wandering("t", "a", 16);
        assert_ne!(order, wandering("t", "b", 16));
        order.sort_unstable();
        assert_eq!(order, (0..16).collect::<Vec<u16>>());
    }
}
