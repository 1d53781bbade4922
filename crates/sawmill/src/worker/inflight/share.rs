//! A worker's share of its group's limit, without a lock.
//!
//! Every worker publishes in its member entry how much of a limit it holds, and uses no more than that. It
//! *wants* its fair share by the members it saw last. It is *granted* a share in this order: first its entry
//! says so, and that is acknowledged; then a refresh that began afterwards reads what all others hold; and
//! the worker is granted no more than they leave. A smaller share counts at once, but the entry covers
//! everything in use, running handlers included, until it ends.
//!
//! So at no moment do the living members use more than the limit. Consider all members that use something at
//! this moment, and for each the refresh that granted its share. Take the one whose refresh began last. The
//! use of each of the others was in its entry, acknowledged, before its own refresh began, hence before this
//! last one. It has been there ever since, because an entry says less only when less is in use. So the last
//! refresh saw all of it, and granted no more than was left. This argument needs no clock. Leases ensure that
//! an entry is not deleted while its worker may start something, see
//! [`member`](sawmill_engine::model::member).
//!
//! No worker waits for ever either: the fair shares of all workers that have refreshed add up to at most the
//! limit, and use beyond that ends with the handlers that run.

use sawmill_engine::fault;

/// A worker's share of one number of a limit.
#[derive(Debug)]
pub(crate) struct Share {
    /// The whole limit.
    limit: u64,
    /// The fair share by the members that were seen last.
    fair: u64,
    /// The share that may be used.
    granted: u64,
    /// The least that the member entry may say, whether or not a heartbeat in progress takes effect.
    said: u64,
}

impl Share {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, fair: 0, granted: 0, said: 0 }
    }

    /// Returns the whole limit.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns what this worker may use.
    pub(crate) fn granted(&self) -> u64 {
        self.granted
    }

    /// True if this worker's fair share is nothing: other workers have all of the limit.
    pub(crate) fn is_nothing(&self) -> bool {
        self.fair == 0
    }

    /// Gives up the share: this worker is no longer a member and starts over with nothing.
    pub(crate) fn forget(&mut self) {
        (self.fair, self.granted, self.said) = (0, 0, 0);
    }

    /// Returns what the member entry should say with this much in use.
    pub(crate) fn holds(&self, used: u64) -> u64 {
        self.granted.max(used).max(self.fair)
    }

    /// Returns the least that the entry is known to say.
    pub(crate) fn said(&self) -> u64 {
        self.said
    }

    /// Notes that a heartbeat is being sent that says this much. Until it is acknowledged, only the smaller
    /// value is certain.
    pub(crate) fn saying(&mut self, holds: u64) {
        self.said = self.said.min(holds);
    }

    /// Notes that the heartbeat was acknowledged. True if the entry says more than before.
    pub(crate) fn acknowledged(&mut self, holds: u64) -> bool {
        let before = std::mem::replace(&mut self.said, holds);
        holds > before
    }

    /// Applies a refresh: the fair share, what the entry was known to say when the refresh began, and what
    /// the others hold.
    pub(crate) fn see(&mut self, fair: u64, said: u64, others: u64) {
        self.fair = fair;
        self.granted = self.granted.min(fair);
        let left = self.limit.saturating_sub(others);
        let grant = fair.min(said).min(self.said).min(left);
        self.granted = self.granted.max(grant);
        if fault!(ShareGrowsAtOnce) {
            self.granted = fair;
        }
    }
}

/// Computes the fair share of a limit: an even part for each member, with the remainder going to the first
/// ones, one each. Another member never makes a share larger.
pub(crate) fn fair_part(limit: u64, rank: Option<usize>, members: usize) -> u64 {
    match rank {
        Some(rank) if rank < members => {
            let (rank, members) = (rank as u64, members as u64);
            limit / members + u64::from(rank < limit % members)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Workers with shares of one limit, and their entries in the ledger.
    struct Group {
        limit: u64,
        workers: Vec<Option<(Share, u64)>>,
        entries: Vec<Option<u64>>,
    }

    impl Group {
        fn new(limit: u64, size: usize) -> Self {
            Self { limit, workers: (0..size).map(|_| None).collect(), entries: vec![None; size] }
        }

        fn join(&mut self, i: usize) {
            if self.workers[i].is_none() {
                (self.workers[i], self.entries[i]) = (Some((Share::new(self.limit), 0)), Some(0));
            }
        }

        fn leave(&mut self, i: usize) {
            if self.workers[i].as_ref().is_some_and(|(_, used)| *used == 0) {
                (self.workers[i], self.entries[i]) = (None, None);
            }
        }

        fn heartbeat(&mut self, i: usize, lands: bool, answered: bool) {
            let Some((share, used)) = &mut self.workers[i] else { return };
            let holds = share.holds(*used);
            share.saying(holds);
            if lands {
                self.entries[i] = Some(holds);
                if answered {
                    share.acknowledged(holds);
                }
            }
        }

        /// Reads the members for a refresh of worker `i`.
        fn read(&self, i: usize) -> Option<(u64, u64, u64)> {
            let (share, _) = self.workers[i].as_ref()?;
            let there: Vec<usize> = (0..self.entries.len()).filter(|i| self.entries[*i].is_some()).collect();
            let rank = there.iter().position(|there| *there == i);
            let others = there.iter().filter(|there| **there != i).filter_map(|i| self.entries[*i]).sum();
            Some((fair_part(self.limit, rank, there.len()), share.said(), others))
        }

        fn see(&mut self, i: usize, read: Option<(u64, u64, u64)>) {
            if let (Some((share, _)), Some((fair, said, others))) = (&mut self.workers[i], read) {
                share.see(fair, said, others);
            }
        }

        fn start(&mut self, i: usize) {
            if let Some((share, used)) = &mut self.workers[i]
                && *used < share.granted()
            {
                *used += 1;
            }
        }

        fn end(&mut self, i: usize) {
            if let Some((_, used)) = &mut self.workers[i] {
                *used = used.saturating_sub(1);
            }
        }

        fn used(&self) -> u64 {
            self.workers.iter().flatten().map(|(share, used)| share.granted().max(*used)).sum()
        }
    }

    #[test]
    fn shares_add_up_and_another_member_makes_none_larger() {
        for limit in 0..40 {
            for members in 1..12 {
                let parts: Vec<u64> = (0..members).map(|i| fair_part(limit, Some(i), members)).collect();
                assert_eq!(parts.iter().sum::<u64>(), limit);
                for (rank, part) in parts.iter().enumerate() {
                    for later in [rank, rank + 1] {
                        assert!(fair_part(limit, Some(later), members + 1) <= *part);
                    }
                }
            }
        }
        assert_eq!(fair_part(3, None, 2), 0);
    }

    #[test]
    fn one_worker_alone_has_it_all_after_one_beat_and_two_looks() {
        let mut group = Group::new(3, 1);
        group.join(0);
        group.see(0, group.read(0));
        assert_eq!(group.used(), 0, "its entry does not say so yet");
        group.heartbeat(0, true, true);
        group.see(0, group.read(0));
        assert_eq!(group.used(), 3);
    }

    #[test]
    fn a_newcomer_waits_until_what_runs_beyond_the_share_has_ended() {
        let mut group = Group::new(2, 2);
        group.join(1);
        for _ in 0..2 {
            group.see(1, group.read(1));
            group.heartbeat(1, true, true);
            group.start(1);
        }
        group.see(1, group.read(1));
        group.start(1);
        group.start(1);
        group.join(0);
        for _ in 0..3 {
            for i in [0, 1] {
                group.see(i, group.read(i));
                group.heartbeat(i, true, true);
                group.start(i);
            }
            assert_eq!(group.used(), 2, "both run at the old one's");
        }
        group.end(1);
        for _ in 0..2 {
            group.heartbeat(1, true, true);
            group.see(0, group.read(0));
            group.start(0);
            group.start(1);
        }
        let used: Vec<u64> = group.workers.iter().flatten().map(|(_, used)| *used).collect();
        assert_eq!(used, [1, 1]);
    }

    #[test]
    fn whatever_happens_in_whatever_order_no_more_than_the_limit_is_used() {
        let mut state = 0x1234_5678_9abc_def0_u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut most = 0;
        for round in 0..300 {
            let limit = 1 + round % 7;
            let mut group = Group::new(limit, 4);
            let mut reads = [None; 4];
            for _ in 0..400 {
                let i = random(4) as usize;
                match random(9) {
                    0 => group.join(i),
                    1 if random(4) == 0 => {
                        group.leave(i);
                        reads[i] = None;
                    }
                    2 => group.heartbeat(i, random(4) > 0, random(4) > 0),
                    // A refresh takes time: its result is used later.
                    3 => reads[i] = group.read(i),
                    4 => group.see(i, reads[i].take()),
                    5 | 6 => group.start(i),
                    _ => group.end(i),
                }
                assert!(group.used() <= limit, "{} of {limit}", group.used());
                most = most.max(group.used());
            }
        }
        assert_eq!(most, 7, "and all of it can be used");
    }
}
