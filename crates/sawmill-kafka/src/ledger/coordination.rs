//! Compare-and-set on a compacted topic. Bids are sent, read back in the one order that all readers see, and
//! decided by the [rules](crate::ledger::rules).
//!
//! A record's key is the entry and the bid's id. Its value is the entry's value, so any Kafka client can read
//! it. A header says what the record means: a bid is `claimed`; a removal is `committed` for the version that
//! a winning bid replaced, and `yielded` for a bid that lost; the last version of a deleted entry is
//! `completed`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use rdkafka::message::{Header, OwnedHeaders};
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{Commit, Notifications, Version};
use sawmill_engine::{Error, ErrorKind, Result};
use tokio::sync::{oneshot, watch};

use crate::brokers::cluster::Cluster;
use crate::brokers::send::{OutgoingRecord, RecordSender};
use crate::brokers::tail::{Follower, Tail};
use crate::ledger::rules::{Bid, BidCheck, BidOutcome, EntryState, Operation, Table};

/// How long a bid may be on its way, by the broker's clock. Longer than any call waits for one, and short
/// enough that keeping deleted entries so long does no harm.
const MAX_BID_DELAY: Duration = Duration::from_secs(600);
/// The longest time that a call takes. Compaction leaves records alone for longer: see
/// `cluster::COMPACTION_LAG_MS`.
pub(crate) const LONGEST_CALL: Duration = Duration::from_secs(15);
/// The most records removed by one clean-up, and the number of won bids between two clean-ups.
const CLEAN_UP_BATCH: usize = 200;

pub(crate) const VERSION: &str = "sawmill-version";
pub(crate) const SEEN: &str = "sawmill-seen";
pub(crate) const EVENT: &str = "sawmill-event";

type EntryTable = Table<String, u128, Bytes>;

/// The entries of one coordination topic.
pub(crate) struct Coordination {
    pub(crate) topic: Arc<str>,
    env: Env,
    sender: RecordSender,
    shared: Arc<Shared>,
    tail: Tail,
}

struct Shared {
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

struct State {
    table: EntryTable,
    /// Calls that wait to read their own bid.
    waiting: HashMap<u128, oneshot::Sender<(BidOutcome, Option<u128>)>>,
    won: usize,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Follower for Shared {
    fn reset(&self) {
        self.state().table = EntryTable::new(MAX_BID_DELAY.as_millis() as u64);
    }

    fn take(&self, record: &crate::brokers::tail::TailRecord<'_>) {
        let Some((operation, id)) = parse_operation(record) else {
            tracing::warn!(
                offset = record.offset,
                "ignoring a record on the coordination topic that Sawmill did not write"
            );
            return;
        };
        let mut state = self.state();
        if let Some((outcome, replaced)) = state.table.apply(record.time, operation)
            && let Some(waiting) = state.waiting.remove(&id)
        {
            state.won += usize::from(outcome == BidOutcome::Won);
            // The caller may have stopped waiting.
            let _ = waiting.send((outcome, replaced.map(|replaced| replaced.id)));
        }
    }

    fn on_idle(&self) {
        self.changed.send_replace(());
    }
}

/// Parses a record into its operation and the bid's id; `None` if Sawmill did not write it.
fn parse_operation(
    record: &crate::brokers::tail::TailRecord<'_>,
) -> Option<(Operation<String, u128, Bytes>, u128)> {
    let key = std::str::from_utf8(record.key?).ok()?;
    let (entry, id) = key.rsplit_once('#')?;
    let (entry, id) = (entry.to_owned(), u128::from_str_radix(id, 16).ok()?);
    let Some(payload) = record.payload else { return Some((Operation::Removed { entry, id }, id)) };
    let number = |name| record.header(name).and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
    let (version, seen) = (number(VERSION)?, number(SEEN)?);
    let deleted = record.header(EVENT) == Some(b"completed");
    let value = (!deleted).then(|| Bytes::copy_from_slice(payload));
    Some((Operation::Bid(Bid { entry, id, version, seen, value }), id))
}

fn header<'a>(name: &'a str, value: &'a str) -> Header<'a, &'a str> {
    Header { key: name, value: Some(value) }
}

impl Coordination {
    /// Opens the topic and reads it to its end.
    pub(crate) async fn open(cluster: &Cluster, topic: &str) -> Result<Self> {
        let state = State {
            table: EntryTable::new(MAX_BID_DELAY.as_millis() as u64),
            waiting: HashMap::new(),
            won: 0,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: watch::Sender::new(()) });
        let tail = Tail::follow(cluster, topic, shared.clone())?;
        let sender = RecordSender::new(&cluster.address.config(), "0")?;
        let coordination = Self { topic: topic.into(), env: cluster.env.clone(), sender, shared, tail };
        coordination.catch_up().await?;
        coordination.clean_up();
        Ok(coordination)
    }

    /// Reads to the end as of this call.
    pub(crate) async fn catch_up(&self) -> Result<()> {
        self.tail.catch_up(LONGEST_CALL).await
    }

    pub(crate) fn notifications(&self) -> Notifications {
        Notifications::new(self.shared.changed.subscribe())
    }

    /// Returns a receiver that completes when records were read after this call.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.shared.changed.subscribe()
    }

    /// Returns the entry as of the last record read. [Catch up](Self::catch_up) first to see changes made
    /// elsewhere.
    pub(crate) fn known(&self, entry: &str) -> Option<(Version, Bytes)> {
        let state = self.shared.state();
        let current = state.table.get(&entry.to_owned())?;
        Some((Version(current.version), current.value.clone()?))
    }

    /// Returns the entries with this prefix, as of the last record read.
    pub(crate) fn known_from(&self, prefix: &str) -> Vec<(String, Version, Bytes)> {
        let state = self.shared.state();
        let from = prefix.to_owned();
        let all = state.table.range_from(&from).take_while(|(entry, _)| entry.starts_with(prefix));
        let live = |(entry, current): (&String, &EntryState<u128, Bytes>)| {
            Some((entry.clone(), Version(current.version), current.value.clone()?))
        };
        all.filter_map(live).collect()
    }

    /// Changes an entry if it has the expected version.
    pub(crate) async fn commit(
        &self,
        entry: &str,
        expect: Option<Version>,
        value: Option<Bytes>,
    ) -> Result<Commit> {
        if expect.is_none() && value.is_none() {
            return Ok(Commit::Conflict);
        }
        let began = self.env.now();
        let expected = expect.map(|version| version.0);
        let name = entry.to_owned();
        loop {
            let mut check = self.shared.state().table.check_bid(&name, expected);
            if check == BidCheck::MaybeBehind {
                self.catch_up().await?;
                check = self.shared.state().table.check_bid(&name, expected);
            }
            let BidCheck::Bid(version) = check else { return Ok(Commit::Conflict) };
            let left = LONGEST_CALL.saturating_sub(self.env.now().since(began));
            match self.bid(entry, version, value.clone(), left).await? {
                Some(BidOutcome::Won) => {
                    let last = if value.is_some() { version } else { version - 1 };
                    return Ok(Commit::Done(Version(last)));
                }
                Some(BidOutcome::Lost) => return Ok(Commit::Conflict),
                // The topic was quiet for long. The void bid itself is now a recent record, so try again.
                Some(BidOutcome::Void) if self.env.now().since(began) < LONGEST_CALL => {}
                Some(BidOutcome::Void) | None => return Ok(Commit::Unknown),
            }
        }
    }

    /// Sends a bid and reads up to it. Returns `None` if its outcome is unknown.
    async fn bid(
        &self,
        entry: &str,
        version: u64,
        value: Option<Bytes>,
        limit: Duration,
    ) -> Result<Option<BidOutcome>> {
        let id = u128::from(self.env.rng().next_u64()) << 64 | u128::from(self.env.rng().next_u64());
        let (sender, mut receiver) = oneshot::channel();
        let seen = {
            let mut state = self.shared.state();
            state.waiting.insert(id, sender);
            state.table.now()
        };
        let sent = self.send_bid(entry, id, version, seen, value.as_ref());
        let mut report = match sent {
            Ok(report) => report,
            Err(error) => {
                self.shared.state().waiting.remove(&id);
                return Err(error);
            }
        };
        let read = self
            .env
            .within(limit, async {
                // Waits for either. A confirmed write does not say which bid won; a refused one is final.
                tokio::select! {
                    biased;
                    read = &mut receiver => return Ok(read.ok()),
                    report = &mut report => match report.map(crate::brokers::send::DeliveryReport::outcome) {
                        Ok(Err(error)) if error.kind() != ErrorKind::Unknown => return Err(error),
                        _ => {}
                    },
                }
                Ok(receiver.await.ok())
            })
            .await;
        self.shared.state().waiting.remove(&id);
        let Some((outcome, replaced)) = read.transpose()?.flatten() else { return Ok(None) };
        match (outcome, replaced) {
            (BidOutcome::Won, Some(replaced)) => self.remove(entry, replaced, "committed"),
            (BidOutcome::Won, None) => {}
            (BidOutcome::Lost | BidOutcome::Void, _) => self.remove(entry, id, "yielded"),
        }
        if outcome == BidOutcome::Won && self.shared.state().won.is_multiple_of(CLEAN_UP_BATCH) {
            self.clean_up();
        }
        Ok(Some(outcome))
    }

    fn send_bid(
        &self,
        entry: &str,
        id: u128,
        version: u64,
        seen: u64,
        value: Option<&Bytes>,
    ) -> Result<oneshot::Receiver<crate::brokers::send::DeliveryReport>> {
        let event = if value.is_some() { "claimed" } else { "completed" };
        let headers = OwnedHeaders::new_with_capacity(3)
            .insert(header(EVENT, event))
            .insert(header(VERSION, &version.to_string()))
            .insert(header(SEEN, &seen.to_string()));
        let key = format!("{entry}#{id:032x}");
        let payload = value.map_or(&[][..], |value| value);
        let record = OutgoingRecord {
            topic: &self.topic,
            partition: 0,
            key: Some(key.as_bytes()),
            payload: Some(payload),
            headers: Some(headers),
            time: None,
        };
        self.sender.send(1, std::iter::once(record))
    }

    /// Removes a bid that is no longer needed. If the removal is lost, another process repeats it.
    fn remove(&self, entry: &str, id: u128, event: &str) {
        let key = format!("{entry}#{id:032x}");
        let record = OutgoingRecord {
            topic: &self.topic,
            partition: 0,
            key: Some(key.as_bytes()),
            payload: None,
            headers: Some(OwnedHeaders::new_with_capacity(1).insert(header(EVENT, event))),
            time: None,
        };
        if let Err(error) = self.sender.send(1, std::iter::once(record)) {
            tracing::debug!(%error, "a bid was not removed");
        }
    }

    /// Removes bids left by writers that died before they could.
    fn clean_up(&self) {
        let garbage = self.shared.state().table.garbage(MAX_BID_DELAY.as_millis() as u64, CLEAN_UP_BATCH);
        for (entry, id) in garbage {
            self.remove(&entry, id, "yielded");
        }
    }
}

/// Refuses an entry that is too large for any ledger.
pub(crate) fn check_size(value: Option<&Bytes>) -> Result<()> {
    const MOST: usize = 512 << 10;
    match value {
        Some(value) if value.len() > MOST => Err(Error::new(
            ErrorKind::TooLarge,
            format!("an entry of {} bytes is too large for the ledger, which takes {MOST}", value.len()),
        )),
        _ => Ok(()),
    }
}
