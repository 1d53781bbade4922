//! The beat: keeps this worker's member entry alive, and notices when it was declared dead.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::trouble::Trouble;
use super::{Shared, slot};
use crate::claim::WorkerId;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::ledger::{Commit, EntryKey, Version, Write};
use crate::member::{InUse, Member, beat_interval, lease};
use crate::planted::{self, Bug};

/// How long the tender may take to finish what it is at when the worker leaves.
const TENDING: Duration = Duration::from_secs(5);
/// How often new notes may cause a beat of their own.
const NEWS_EVERY: Duration = Duration::from_secs(1);

/// What is told of a beat or a join that failed.
const NO_BEAT: &str =
    "the store does not take this worker's beat; it starts nothing new unless that changes soon";
const NO_JOIN: &str = "the store does not let this worker join; it starts nothing until it has";

/// This worker as a member of its group.
pub(super) struct Registered {
    key: EntryKey,
    member: Member,
    version: Version,
}

/// Joins the group under a new id.
pub(super) async fn register(shared: &Shared) -> Result<Registered> {
    let env = shared.env();
    let id = WorkerId::new(format!("{}-{:016x}", shared.builder.name, env.dice().roll()));
    let holds = shared.bench().saying();
    let member = Member {
        beat: 1,
        topics: shared.topics().iter().map(|topic| topic.uid.clone()).collect(),
        slots: u32::try_from(shared.builder.slots).unwrap_or(u32::MAX),
        ttl_ms: shared.builder.ttl.as_millis() as u64,
        ordered: shared.builder.ordered,
        beat_at: Some(env.wall()),
        running: shared.site.notes.list(),
        in_use: in_use(shared, &holds),
        format: shared.builder.mill.declared_format(),
    };
    if let Some(journal) = &shared.journal {
        // Before anything can be claimed under this id.
        journal.join(&id).inspect_err(|error| shared.stop_because(Some(error.to_string())))?;
    }
    let key = EntryKey::member(&shared.group, id.as_str());
    let write = Write { key: key.clone(), expect: None, value: Some(member.encode()) };
    let ledger = shared.builder.mill.ledger();
    let sent = env.now();
    let version = match ledger.commit(write).await? {
        Commit::Done(version) => version,
        // Nobody else uses this id: if an entry is there, it is ours.
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
            // A retry cannot help: another worker has this one's name, or the store has a format that this program does not
            // understand.
            shared.stop_because(Some(error.to_string()));
        }
        let _ = ledger.commit(Write { key, expect: Some(version), value: None }).await;
        return Err(error);
    }
    shared.saw_join(&id);
    let lease_until = lease_until(shared, sent);
    let mut bench = shared.bench();
    bench.join(id, lease_until);
    bench.said(&holds);
    Ok(Registered { key, member, version })
}

/// Joins the group once more, unless the worker is about to leave: its handlers end without it being a member.
async fn join_again(shared: &Shared) -> Result<Option<Registered>> {
    match shared.stop.is_cancelled() {
        true => Ok(None),
        false => register(shared).await.map(Some),
    }
}

/// What must hold of a worker after its member entry is written.
async fn check_membership(shared: &Shared, id: &WorkerId) -> Result<()> {
    let mill = &shared.builder.mill;
    if !planted::is(Bug::FormatNotChecked) {
        mill.check_member_format().await?;
    }
    match &shared.name {
        Some(name) => name.take(mill.ledger(), id).await,
        None => Ok(()),
    }
}

/// What the member entry says of the group's limits.
fn in_use(shared: &Shared, holds: &[InUse]) -> BTreeMap<String, InUse> {
    match shared.builder.limit {
        None => BTreeMap::new(),
        Some(_) => shared.bases().iter().map(|topic| topic.uid.clone()).zip(holds.iter().copied()).collect(),
    }
}

fn lease_until(shared: &Shared, sent: Moment) -> Moment {
    let from = if planted::is(Bug::LeaseFromAnswer) { shared.env().now() } else { sent };
    from + lease(shared.builder.ttl)
}

/// Beats until the foreman is done, then leaves the group.
pub(super) async fn run(shared: Arc<Shared>, mut registered: Registered) {
    // Whatever happens to this task: nobody waits for its end in vain.
    let _ended = shared.ended.clone().drop_guard();
    let env = shared.env().clone();
    let interval = beat_interval(shared.builder.ttl);
    let mut pause = interval;
    let mut last = env.now();
    let mut trouble = Trouble::default();
    loop {
        tokio::select! {
            biased;
            () = shared.foreman_done.cancelled() => break,
            // What this worker holds of a limit has changed.
            () = shared.beat_now.notified() => {}
            () = env.sleep(env.dice().jitter(pause)) => {}
            () = news(&shared, last) => {}
        }
        last = env.now();
        pause = match beat(&shared, &mut registered).await {
            Ok(true) => {
                shared.saw_no_trouble(&mut trouble);
                // Messages may have waited for the lease.
                slot::fill(&shared);
                shared.wake.notify_one();
                interval
            }
            Ok(false) => {
                if shared.bench().me().is_some() {
                    shared.saw_eviction();
                    shared.bench().evict();
                    shared.counts().rejoined += 1;
                }
                match join_again(&shared).await {
                    Ok(anew) => {
                        registered = anew.unwrap_or(registered);
                        shared.saw_no_trouble(&mut trouble);
                        shared.wake.notify_one();
                        interval
                    }
                    Err(error) => {
                        shared.saw_trouble(&mut trouble, &error, NO_JOIN);
                        interval / 4
                    }
                }
            }
            Err(error) => {
                shared.saw_trouble(&mut trouble, &error, NO_BEAT);
                interval / 4
            }
        };
    }
    leave(&shared, &registered).await;
    // Where an engine cannot tell what it has already, a program that ended in the middle of a promotion would leave messages twice.
    env.within(TENDING, shared.tender_done.cancelled()).await;
    if let Some(journal) = &shared.journal {
        journal.close();
    }
    shared.builder.hooks.stop(&shared.site.states).await;
}

/// Completes when there are new notes to tell, and the last beat was long enough ago.
async fn news(shared: &Shared, last: Moment) {
    shared.site.notes.changed().await;
    let env = shared.env();
    env.sleep(NEWS_EVERY.saturating_sub(env.now().since(last))).await;
}

/// Writes the entry anew. False if it is gone.
async fn beat(shared: &Shared, registered: &mut Registered) -> Result<bool> {
    let ledger = shared.builder.mill.ledger();
    if shared.bench().me().is_none() {
        return Ok(false);
    }
    loop {
        let holds = shared.bench().saying();
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
        // No beat counts after a crash of the whole store.
        let answer = ledger.commit_lightly(write).await?;
        if let Commit::Done(version) = answer {
            registered.version = version;
            let lease_until = lease_until(shared, sent);
            let mut bench = shared.bench();
            bench.renew(lease_until);
            bench.said(&holds);
            return Ok(true);
        }
        // An earlier beat whose outcome was unknown may have been written after all: go on from what is there.
        match ledger.get(&registered.key).await? {
            Some(entry) => registered.version = entry.version,
            None => return Ok(false),
        }
        if answer == Commit::Unknown {
            return Err(Error::new(ErrorKind::Unknown, "a beat had no clear answer from the store"));
        }
    }
}

/// Deletes the entry. If that fails, others will find it silent.
pub(super) async fn leave(shared: &Shared, registered: &Registered) {
    shared.bench().evict();
    let write = Write { key: registered.key.clone(), expect: Some(registered.version), value: None };
    let ledger = shared.builder.mill.ledger();
    match shared.env().within(shared.builder.ttl, ledger.commit(write)).await {
        Some(Ok(_)) => shared.saw_leave(),
        Some(Err(error)) => {
            tracing::warn!(%error, member = %registered.key, "left the group without saying so; others will find this worker silent")
        }
        None => {
            tracing::warn!(member = %registered.key, "left the group without saying so, as the store does not answer; others will find this worker silent")
        }
    }
}
