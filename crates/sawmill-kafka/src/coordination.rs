//! Compare-and-set on a compacted topic: bids are sent, read back in the one order that all see, and decided by the
//! [rules](crate::rules).
//!
//! A record's key is the entry and the bid's own number; its value is the entry's value, so that any client of Kafka can
//! read it. Headers say what the record means: a bid is `claimed`; when it has won, what it replaced is `committed` away; when it has lost, it is
//! `yielded`; and the last version of an entry that is deleted is `completed`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use rdkafka::message::{Header, OwnedHeaders};
use sawmill::env::Env;
use sawmill::ledger::{Commit, Version};
use sawmill::log::Hints;
use sawmill::{Error, ErrorKind, Result};
use tokio::sync::{oneshot, watch};

use crate::cluster::Cluster;
use crate::rules::{Bid, Fate, Line, May, Standing, Table};
use crate::send::{Outbox, Parcel};
use crate::tail::{Follower, Tail};

/// How long a bid may be on its way, by the broker's clock: longer than anybody waits for one, and shorter than anybody
/// minds that deleted entries are kept.
const LATEST: Duration = Duration::from_secs(600);
/// How long a call takes at most. Compaction leaves records alone for longer: see `cluster::COMPACTION_LAG`.
pub(crate) const LONGEST_CALL: Duration = Duration::from_secs(15);
/// How many bids are cleaned up at a time, and after how many of one's own.
const CLEAN_UP: usize = 200;

pub(crate) const VERSION: &str = "sawmill-version";
pub(crate) const SEEN: &str = "sawmill-seen";
pub(crate) const EVENT: &str = "sawmill-event";

type Known = Table<String, u128, Bytes>;

/// The entries of one coordination topic.
pub(crate) struct Coordination {
    pub(crate) topic: Arc<str>,
    env: Env,
    outbox: Outbox,
    shared: Arc<Shared>,
    tail: Tail,
}

struct Shared {
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

struct State {
    table: Known,
    /// Those who wait to read their own bid.
    waiting: HashMap<u128, oneshot::Sender<(Fate, Option<u128>)>>,
    won: usize,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Follower for Shared {
    fn reset(&self) {
        self.state().table = Known::new(LATEST.as_millis() as u64);
    }

    fn take(&self, record: &crate::tail::Taken<'_>) {
        let Some((line, id)) = line_of(record) else {
            tracing::warn!(
                offset = record.offset,
                "a record on the coordination topic is none of ours; it is left out"
            );
            return;
        };
        let mut state = self.state();
        if let Some((fate, replaced)) = state.table.apply(record.time, line)
            && let Some(waiting) = state.waiting.remove(&id)
        {
            state.won += usize::from(fate == Fate::Won);
            // Nobody may wait for it any more.
            let _ = waiting.send((fate, replaced.map(|replaced| replaced.id)));
        }
    }

    fn rest(&self) {
        self.changed.send_replace(());
    }
}

/// What a record says, and the number of its bid; none if it is not of our making.
fn line_of(record: &crate::tail::Taken<'_>) -> Option<(Line<String, u128, Bytes>, u128)> {
    let key = std::str::from_utf8(record.key?).ok()?;
    let (entry, id) = key.rsplit_once('#')?;
    let (entry, id) = (entry.to_owned(), u128::from_str_radix(id, 16).ok()?);
    let Some(payload) = record.payload else { return Some((Line::Removed { entry, id }, id)) };
    let number = |name| record.header(name).and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
    let (version, seen) = (number(VERSION)?, number(SEEN)?);
    let deleted = record.header(EVENT) == Some(b"completed");
    let value = (!deleted).then(|| Bytes::copy_from_slice(payload));
    Some((Line::Bid(Bid { entry, id, version, seen, value }), id))
}

fn header<'a>(name: &'a str, value: &'a str) -> Header<'a, &'a str> {
    Header { key: name, value: Some(value) }
}

impl Coordination {
    /// Reads the topic to its end.
    pub(crate) async fn open(cluster: &Cluster, topic: &str) -> Result<Self> {
        let state = State { table: Known::new(LATEST.as_millis() as u64), waiting: HashMap::new(), won: 0 };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: watch::Sender::new(()) });
        let tail = Tail::follow(cluster, topic, shared.clone())?;
        let outbox = Outbox::new(&cluster.address.config(), "0")?;
        let coordination = Self { topic: topic.into(), env: cluster.env.clone(), outbox, shared, tail };
        coordination.catch_up().await?;
        coordination.clean_up();
        Ok(coordination)
    }

    /// Reads to an end that is asked for now.
    pub(crate) async fn catch_up(&self) -> Result<()> {
        self.tail.catch_up(LONGEST_CALL).await
    }

    pub(crate) fn hints(&self) -> Hints {
        Hints::new(self.shared.changed.subscribe())
    }

    /// Completes when something was read since the receiver was made.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.shared.changed.subscribe()
    }

    /// The entry as far as it is known here. For what was answered elsewhere a moment ago, [catch up](Self::catch_up) first.
    pub(crate) fn known(&self, entry: &str) -> Option<(Version, Bytes)> {
        let state = self.shared.state();
        let standing = state.table.standing(&entry.to_owned())?;
        Some((Version(standing.version), standing.value.clone()?))
    }

    /// All entries that begin so, as far as they are known here.
    pub(crate) fn known_from(&self, prefix: &str) -> Vec<(String, Version, Bytes)> {
        let state = self.shared.state();
        let from = prefix.to_owned();
        let all = state.table.from(&from).take_while(|(entry, _)| entry.starts_with(prefix));
        let live = |(entry, standing): (&String, &Standing<u128, Bytes>)| {
            Some((entry.clone(), Version(standing.version), standing.value.clone()?))
        };
        all.filter_map(live).collect()
    }

    /// Changes an entry if it is as expected.
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
            let mut may = self.shared.state().table.may(&name, expected);
            if may == May::NotYet {
                self.catch_up().await?;
                may = self.shared.state().table.may(&name, expected);
            }
            let May::Bid(version) = may else { return Ok(Commit::Conflict) };
            let left = LONGEST_CALL.saturating_sub(self.env.now().since(began));
            match self.bid(entry, version, value.clone(), left).await? {
                Some(Fate::Won) => {
                    let last = if value.is_some() { version } else { version - 1 };
                    return Ok(Commit::Done(Version(last)));
                }
                Some(Fate::Lost) => return Ok(Commit::Conflict),
                // The topic was quiet for long. By now there is a record that is new: the void bid.
                Some(Fate::Void) if self.env.now().since(began) < LONGEST_CALL => {}
                Some(Fate::Void) | None => return Ok(Commit::Unknown),
            }
        }
    }

    /// Bids, and reads up to the bid. None if nobody knows what became of it.
    async fn bid(
        &self,
        entry: &str,
        version: u64,
        value: Option<Bytes>,
        limit: Duration,
    ) -> Result<Option<Fate>> {
        let id = u128::from(self.env.dice().roll()) << 64 | u128::from(self.env.dice().roll());
        let (tell, mut told) = oneshot::channel();
        let seen = {
            let mut state = self.shared.state();
            state.waiting.insert(id, tell);
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
                // Whichever comes first. That it was written says nothing yet of who won; that it was not says enough.
                tokio::select! {
                    biased;
                    read = &mut told => return Ok(read.ok()),
                    report = &mut report => match report.map(crate::send::Report::outcome) {
                        Ok(Err(error)) if error.kind() != ErrorKind::Unknown => return Err(error),
                        _ => {}
                    },
                }
                Ok(told.await.ok())
            })
            .await;
        self.shared.state().waiting.remove(&id);
        let Some((fate, replaced)) = read.transpose()?.flatten() else { return Ok(None) };
        match (fate, replaced) {
            (Fate::Won, Some(replaced)) => self.remove(entry, replaced, "committed"),
            (Fate::Won, None) => {}
            (Fate::Lost | Fate::Void, _) => self.remove(entry, id, "yielded"),
        }
        if fate == Fate::Won && self.shared.state().won.is_multiple_of(CLEAN_UP) {
            self.clean_up();
        }
        Ok(Some(fate))
    }

    fn send_bid(
        &self,
        entry: &str,
        id: u128,
        version: u64,
        seen: u64,
        value: Option<&Bytes>,
    ) -> Result<oneshot::Receiver<crate::send::Report>> {
        let event = if value.is_some() { "claimed" } else { "completed" };
        let headers = OwnedHeaders::new_with_capacity(3)
            .insert(header(EVENT, event))
            .insert(header(VERSION, &version.to_string()))
            .insert(header(SEEN, &seen.to_string()));
        let key = format!("{entry}#{id:032x}");
        let payload = value.map_or(&[][..], |value| value);
        let parcel = Parcel {
            topic: &self.topic,
            partition: 0,
            key: Some(key.as_bytes()),
            payload: Some(payload),
            headers: Some(headers),
            time: None,
        };
        self.outbox.send(1, std::iter::once(parcel))
    }

    /// Removes a bid that nobody needs. If it is lost on the way, somebody else will.
    fn remove(&self, entry: &str, id: u128, event: &str) {
        let key = format!("{entry}#{id:032x}");
        let parcel = Parcel {
            topic: &self.topic,
            partition: 0,
            key: Some(key.as_bytes()),
            payload: None,
            headers: Some(OwnedHeaders::new_with_capacity(1).insert(header(EVENT, event))),
            time: None,
        };
        if let Err(error) = self.outbox.send(1, std::iter::once(parcel)) {
            tracing::debug!(%error, "a bid was not removed");
        }
    }

    /// Removes what others have left, who died before they could.
    fn clean_up(&self) {
        let litter = self.shared.state().table.litter(LATEST.as_millis() as u64, CLEAN_UP);
        for (entry, id) in litter {
            self.remove(&entry, id, "yielded");
        }
    }
}

/// The error of an entry that is too large for any ledger.
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
