//! The heartbeat: keeps this worker's member entry alive, and notices when others declared the worker dead.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sawmill_engine::fault;
use sawmill_engine::model::{InUse, Member, WorkerId, heartbeat_interval, lease};
use sawmill_engine::runtime::Moment;
use sawmill_engine::storage::{Commit, EntryKey, Version, Write};
use sawmill_engine::{Error, ErrorKind, Result};

use crate::worker::outage::Outage;
use crate::worker::{Shared, run};

/// How long maintenance may take to finish its current step when the worker leaves.
const MAINTENANCE_GRACE: Duration = Duration::from_secs(5);
/// The shortest time between a heartbeat and one that is sent only for new notes.
const NOTES_INTERVAL: Duration = Duration::from_secs(1);

/// The warnings of a failed heartbeat and of a failed join.
const HEARTBEAT_FAILED: &str =
    "the store does not accept this worker's heartbeat; it starts nothing new unless that changes soon";
const JOIN_FAILED: &str = "the store does not let this worker join; it starts nothing until it has";

/// This worker as a member of its group.
pub(super) struct Registered {
    key: EntryKey,
    member: Member,
    version: Version,
}

/// Joins the group under a new id.
pub(super) async fn register(shared: &Shared) -> Result<Registered> {
    let env = shared.env();
    let id = WorkerId::new(format!("{}-{:016x}", shared.builder.name, env.rng().next_u64()));
    let holds = shared.inflight().saying();
    let member = Member {
        beat: 1,
        topics: shared.topics().iter().map(|topic| topic.uid.clone()).collect(),
        slots: u32::try_from(shared.builder.slots).unwrap_or(u32::MAX),
        ttl_ms: shared.builder.ttl.as_millis() as u64,
        ordered: shared.builder.ordered,
        beat_at: Some(env.wall()),
        running: shared.site.notes.list(),
        in_use: in_use(shared, &holds),
        format: shared.builder.store.declared_format(),
    };
    if let Some(journal) = &shared.journal {
        // Before anything can be claimed under this id.
        journal.join(&id).inspect_err(|error| shared.stop_because(Some(error.to_string())))?;
    }
    let key = EntryKey::member(&shared.group, id.as_str());
    let write = Write { key: key.clone(), expect: None, value: Some(member.encode()) };
    let ledger = shared.builder.store.ledger();
    let sent = env.now();
    let version = match ledger.commit(write).await? {
        Commit::Done(version) => version,
        // No other worker uses this id: an entry under it is ours.
        Commit::Conflict | Commit::Unknown => match ledger.get(&key).await? {
            Some(entry) => entry.version,
            None => {
                let message = "joining the group had no clear answer from the store: try again";
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
        },
    };
    if let Err(error) = check_membership(shared, &id).await {
        if matches!(error.kind(), ErrorKind::InUse | ErrorKind::Outdated) {
            // A retry cannot help: another worker has this one's name, or this program does not understand
            // the store's format.
            shared.stop_because(Some(error.to_string()));
        }
        let _ = ledger.commit(Write { key, expect: Some(version), value: None }).await;
        return Err(error);
    }
    shared.record_join(&id);
    let lease_until = lease_until(shared, sent);
    let mut inflight = shared.inflight();
    inflight.join(id, lease_until);
    inflight.said(&holds);
    Ok(Registered { key, member, version })
}

/// Joins the group again, unless the worker is about to leave: handlers end without it being a member.
async fn join_again(shared: &Shared) -> Result<Option<Registered>> {
    match shared.stop.is_cancelled() {
        true => Ok(None),
        false => register(shared).await.map(Some),
    }
}

/// Checks what must hold once the member entry is written: the store's format, and a unique name if there is
/// one.
async fn check_membership(shared: &Shared, id: &WorkerId) -> Result<()> {
    let store = &shared.builder.store;
    if !fault!(FormatNotChecked) {
        store.check_member_format().await?;
    }
    match &shared.name {
        Some(name) => name.take(store.ledger(), id).await,
        None => Ok(()),
    }
}

/// Maps topics to what the member entry says of their limits.
fn in_use(shared: &Shared, holds: &[InUse]) -> BTreeMap<String, InUse> {
    match shared.builder.limit {
        None => BTreeMap::new(),
        Some(_) => shared.bases().iter().map(|topic| topic.uid.clone()).zip(holds.iter().copied()).collect(),
    }
}

fn lease_until(shared: &Shared, sent: Moment) -> Moment {
    let from = if fault!(LeaseFromAnswer) { shared.env().now() } else { sent };
    from + lease(shared.builder.ttl)
}

/// Sends heartbeats until the coordinator is done, then leaves the group.
pub(super) async fn run(shared: Arc<Shared>, mut registered: Registered) {
    // Also if this task panics: nobody waits for its end in vain.
    let _ended = shared.ended.clone().drop_guard();
    let env = shared.env().clone();
    let interval = heartbeat_interval(shared.builder.ttl);
    let mut pause = interval;
    let mut last = env.now();
    let mut outage = Outage::default();
    loop {
        tokio::select! {
            biased;
            () = shared.coordinator_done.cancelled() => break,
            // What this worker holds of a limit has changed.
            () = shared.heartbeat_now.notified() => {}
            () = env.sleep(env.rng().jitter(pause)) => {}
            () = new_notes(&shared, last) => {}
        }
        last = env.now();
        pause = match send_heartbeat(&shared, &mut registered).await {
            Ok(true) => {
                shared.record_recovery(&mut outage);
                // Messages may have waited for the lease.
                run::fill(&shared);
                shared.wake.notify_one();
                interval
            }
            Ok(false) => {
                if shared.inflight().me().is_some() {
                    shared.record_eviction();
                    shared.inflight().evict();
                    shared.counts().rejoined += 1;
                }
                match join_again(&shared).await {
                    Ok(anew) => {
                        registered = anew.unwrap_or(registered);
                        shared.record_recovery(&mut outage);
                        shared.wake.notify_one();
                        interval
                    }
                    Err(error) => {
                        shared.record_outage(&mut outage, &error, JOIN_FAILED);
                        interval / 4
                    }
                }
            }
            Err(error) => {
                shared.record_outage(&mut outage, &error, HEARTBEAT_FAILED);
                interval / 4
            }
        };
    }
    leave(&shared, &registered).await;
    // Some engines do not recognise a record that they already have: there, a program that ends in the middle
    // of a promotion would leave messages twice.
    env.within(MAINTENANCE_GRACE, shared.maintenance_done.cancelled()).await;
    if let Some(journal) = &shared.journal {
        journal.close();
    }
    shared.builder.hooks.stop(&shared.site.states).await;
}

/// Completes when there are new notes to publish and the last heartbeat was long enough ago.
async fn new_notes(shared: &Shared, last: Moment) {
    shared.site.notes.changed().await;
    let env = shared.env();
    env.sleep(NOTES_INTERVAL.saturating_sub(env.now().since(last))).await;
}

/// Rewrites the member entry. False if it is gone.
async fn send_heartbeat(shared: &Shared, registered: &mut Registered) -> Result<bool> {
    let ledger = shared.builder.store.ledger();
    if shared.inflight().me().is_none() {
        return Ok(false);
    }
    loop {
        let holds = shared.inflight().saying();
        registered.member.beat += 1;
        registered.member.beat_at = Some(shared.env().wall());
        registered.member.running = shared.site.notes.list();
        registered.member.in_use = in_use(shared, &holds);
        let write = Write {
            key: registered.key.clone(),
            expect: Some(registered.version),
            value: Some(registered.member.encode()),
        };
        let sent = shared.env().now();
        // A heartbeat need not survive a crash of the whole store.
        let answer = ledger.commit_lightly(write).await?;
        if let Commit::Done(version) = answer {
            registered.version = version;
            let lease_until = lease_until(shared, sent);
            let mut inflight = shared.inflight();
            inflight.renew(lease_until);
            inflight.said(&holds);
            return Ok(true);
        }
        // An earlier heartbeat whose outcome was unknown may have been written after all: go on from the
        // entry.
        match ledger.get(&registered.key).await? {
            Some(entry) => registered.version = entry.version,
            None => return Ok(false),
        }
        if answer == Commit::Unknown {
            return Err(Error::new(ErrorKind::Unknown, "a heartbeat had no clear answer from the store"));
        }
    }
}

/// Deletes the member entry. If that fails, others remove it when it has been silent for its TTL.
pub(super) async fn leave(shared: &Shared, registered: &Registered) {
    shared.inflight().evict();
    let write = Write { key: registered.key.clone(), expect: Some(registered.version), value: None };
    let ledger = shared.builder.store.ledger();
    match shared.env().within(shared.builder.ttl, ledger.commit(write)).await {
        Some(Ok(_)) => shared.record_leave(),
        Some(Err(error)) => {
            tracing::warn!(%error, member = %registered.key, "left the group without saying so; others will find this worker silent")
        }
        None => {
            tracing::warn!(member = %registered.key, "left the group without saying so, as the store does not answer; others will find this worker silent")
        }
    }
}
