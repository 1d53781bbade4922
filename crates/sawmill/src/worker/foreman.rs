//! The foreman: grabs blocks for the slots, adopts what the dead left, reports progress, and lets go.
//!
//! It is one loop. In each round it settles what failed, looks around if it is time, grabs what there is room for, and
//! reports what is done; then it waits for a slot, a hint or its timer. Everything it knows of the ledger may be out of date:
//! compare-and-set decides.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;

use super::news::News;
use super::tender::PROMOTE_MOST;
use super::trouble::Trouble;
use super::{Delivery, Shared, SourceSpec, slot};
use crate::claim::{Claim, WorkerId};
use crate::clock::Moment;
use crate::error::{ErrorKind, Result};
use crate::ledger::Version;
use crate::log::Hints;
use crate::member::Sightings;
use crate::planted::{self, Bug};
use crate::shard::ShardState;

/// How long a finished claim may stay open in the ledger, in the hope that a grab takes its report along, or that others
/// go with it.
pub(super) const LINGER: Duration = Duration::from_millis(200);
/// The same if somebody waits for it, or if what is not reported would be taken for lost.
pub(super) const SHORT_LINGER: Duration = Duration::from_millis(20);
/// How often progress is reported while a claim is being worked.
pub(super) const PROGRESS: Duration = Duration::from_millis(500);
/// After how many news that led to nothing, and how long, there is a pause before the next.
const FRUITLESS_NEWS: u32 = 10;
const NEWS_PAUSE: Duration = Duration::from_millis(5);
/// The shortest time between two looks around, whatever the hints say.
pub(super) const SHORTEST_LOOK: Duration = Duration::from_millis(100);
/// The shortest wait when nothing happens, and how much of the longest it is at least: where hints can be relied on, there is
/// no hurry to look for lost ones, and a look may be in the way of what comes next.
const FIRST_WAIT: Duration = Duration::from_millis(20);
const FIRST_PART: u32 = 32;

/// What the foreman knows of a shard, in the order of [`Shared::sources`].
pub(super) struct Source {
    /// The shard's entry when it was last seen; `None` if it has to be looked at before anything is written.
    pub(super) known: Option<(Option<Version>, ShardState)>,
    pub(super) maybe: Maybe,
    /// The ring prefers this worker for it.
    pub(super) mine: bool,
    /// Another worker has written to it lately, so what is known is likely to be out of date.
    pub(super) contended: bool,
    /// How many cancellations of the entry have been looked at; none at all yet if this is `None`.
    pub(super) cancels: Option<u32>,
    /// When something was last written.
    pub(super) written: Moment,
}

impl Source {
    /// There may be something in it now.
    fn maybe_again(&mut self) {
        if !self.maybe.is_worth_a_read() {
            self.maybe = Maybe::Unknown;
        }
    }
}

/// Whether a shard may have messages after the cursor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Maybe {
    No,
    /// Nothing was at hand, which does not mean that there is nothing: it is read again after a rest.
    Later,
    Unknown,
    /// The last read left some behind.
    Yes,
}

impl Maybe {
    pub(super) fn is_worth_a_read(self) -> bool {
        matches!(self, Self::Unknown | Self::Yes)
    }
}

pub(super) struct Foreman {
    pub(super) shared: Arc<Shared>,
    pub(super) me: Option<WorkerId>,
    pub(super) sources: Vec<Source>,
    /// The order in which sources are tried; own ones before others, and within these in turn.
    pub(super) order: Vec<usize>,
    pub(super) turn: usize,
    /// Claims that were adopted and whose messages are still to be read.
    pub(super) adopted: Vec<(usize, Claim)>,
    pub(super) members: BTreeSet<String>,
    pub(super) sightings: Sightings,
    /// From when on a round that takes place anyway looks around, and when one takes place for it.
    pub(super) look_from: Moment,
    pub(super) look_at: Moment,
    /// From when on a look is at everything, and not only at who is there.
    pub(super) look_well_from: Moment,
    /// How often there were news since messages were last found.
    pub(super) fruitless_news: u32,
    /// The last read did not wait for all sources.
    pub(super) read_some: bool,
    pub(super) drain: u64,
    pub(super) wait: Duration,
}

/// Works until the worker is stopped.
pub(super) async fn run(shared: Arc<Shared>) {
    // Whatever happens to this task: the worker leaves, and others take over.
    let _done = shared.foreman_done.clone().drop_guard();
    let source = |_| Source {
        known: None,
        maybe: Maybe::Unknown,
        mine: false,
        contended: false,
        cancels: None,
        written: Moment::default(),
    };
    let mut foreman = Foreman {
        me: None,
        sources: shared.sources.iter().map(source).collect(),
        order: Vec::new(),
        turn: 0,
        adopted: Vec::new(),
        members: BTreeSet::new(),
        sightings: Sightings::default(),
        look_from: Moment::default(),
        look_at: Moment::default(),
        look_well_from: Moment::default(),
        fruitless_news: 0,
        read_some: false,
        drain: 0,
        wait: first_wait(shared.poll),
        shared: shared.clone(),
    };
    let mut news = News::of(shared.builder.mill.log(), shared.topics().iter().map(|topic| &**topic));
    let mut watch = shared.builder.mill.ledger().watch();
    let mut trouble = Trouble::default();
    while !shared.stop.is_cancelled() {
        let round = foreman.round().await;
        shared.saw_round();
        if round.is_ok() {
            shared.saw_no_trouble(&mut trouble);
        }
        match round {
            Ok(true) => {
                foreman.wait = first_wait(shared.poll);
                foreman.fruitless_news = 0;
                // While there is plenty to do of one topic, there may be news of one that has priority.
                if foreman.has_priorities()
                    && let Some(topics) = news.next().now_or_never()
                {
                    foreman.maybe_in(&topics);
                }
            }
            Ok(false) => foreman.rest(&mut news, &mut watch).await,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                shared.stop_because(Some(format!("there is nothing left to work: {error}")));
            }
            // Waiting does not help: only another program can read this.
            Err(error) if error.kind() == ErrorKind::Outdated => {
                shared.stop_because(Some(error.to_string()));
            }
            Err(error) => {
                // The store is in trouble: stay alive and wait.
                shared.saw_trouble(&mut trouble, &error, "the store cannot be used; waiting until it can");
                foreman.forget();
                foreman.pause().await;
            }
        }
    }
    foreman.leave().await;
    shared.saw_last_round();
}

fn first_wait(poll: Duration) -> Duration {
    FIRST_WAIT.max(poll / FIRST_PART)
}

impl Foreman {
    /// One round. True if it achieved something and the next one should follow at once.
    async fn round(&mut self) -> Result<bool> {
        let me = self.shared.bench().me().cloned();
        if me != self.me {
            // A new id: nothing of what the old one knew or held counts any more.
            self.me = me;
            self.forget();
            if !planted::is(Bug::RemovedGoesOn) {
                self.adopted.clear();
            }
        }
        let Some(me) = self.me.clone() else { return Ok(false) };
        // Trouble with a lane must not keep the worker from everything else.
        let settled = self.settle_failed().await;
        let now = self.shared.env().now();
        let drain = self.shared.drains.load(Ordering::SeqCst);
        let wants_look = self.shared.bench().take_wants_look();
        let must_look = now >= self.look_at || drain > self.drain || wants_look;
        if must_look {
            if drain > self.drain || wants_look {
                self.look_well_from = now;
            }
            if drain > self.drain {
                self.promote_due().await?;
            }
            self.look(&me).await?;
            self.drain = drain;
        }
        self.fetch_adopted().await?;
        let grabbed = self.grab(&me).await?;
        if !must_look && now >= self.look_from {
            // A look that can wait lets messages go first.
            self.look(&me).await?;
        }
        self.report(&me).await?;
        self.tidy_journal();
        slot::fill(&self.shared);
        if !grabbed && self.is_drained() {
            self.shared.drained.send_replace(self.drain);
        }
        settled.map(|()| grabbed)
    }

    /// Makes readable what is due by now, whoever has that duty: nobody may have come to it yet, and who drains means it, too.
    async fn promote_due(&self) -> Result<()> {
        let (log, env) = (self.shared.builder.mill.log(), self.shared.env());
        for topic in self.shared.topics() {
            loop {
                let now = env.wall();
                let promoted = log.promote(&topic, now, PROMOTE_MOST).await?;
                // An engine may move fewer than it is allowed to, and says when the next one is due.
                if promoted.moved == 0 || promoted.next_due.is_none_or(|due| due > now) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Forgets what it knows of the ledger, so that the next round looks anew.
    fn forget(&mut self) {
        for source in &mut self.sources {
            source.known = None;
        }
        self.look_well();
    }

    /// The next round looks at everything.
    fn look_well(&mut self) {
        (self.look_at, self.look_well_from) = (Moment::default(), Moment::default());
    }

    fn is_drained(&self) -> bool {
        let shut = |index: usize| self.shared.bench().is_shut(self.spec(index).topic_index);
        let nothing_left = (0..self.sources.len())
            .all(|index| self.sources[index].maybe == Maybe::No || shut(index) || !self.may_try(index));
        let adopted = self.adopted.iter().all(|(index, _)| shut(*index));
        nothing_left && adopted && (planted::is(Bug::DrainedTooEarly) || self.shared.bench().is_idle())
    }

    /// How long the report of a finished claim may wait.
    pub(super) fn linger(&self) -> Duration {
        let awaited = self.shared.drains.load(Ordering::SeqCst) > *self.shared.drained.borrow();
        match awaited || self.shared.builder.delivery == Delivery::AtMostOnce {
            true => SHORT_LINGER,
            false => LINGER,
        }
    }

    /// True if there are several topics, so that one has priority over another.
    pub(super) fn has_priorities(&self) -> bool {
        self.shared.builder.topics.len() > 1
    }

    pub(super) fn spec(&self, source: usize) -> &SourceSpec {
        &self.shared.sources[source]
    }

    // ── waiting ──

    /// Waits for a slot, a hint, or until there is something to do.
    async fn rest(&mut self, news: &mut News, watch: &mut Hints) {
        let env = self.shared.env().clone();
        let now = env.now();
        // Idle waiting backs off until the looks come more often; of these every few look for messages as well.
        let backs_off = self.me.is_none() || self.wait < self.look_interval();
        let idle_until = if backs_off { now + env.dice().jitter(self.wait) } else { self.look_at };
        let mut until = idle_until;
        let has_room;
        {
            let bench = self.shared.bench();
            has_room = (0..self.shared.builder.topics.len()).any(|topic| bench.room(topic, now) > 0);
            if bench.has_failed() {
                until = until.min(now + SHORT_LINGER);
            } else if let Some(since) = bench.dirty().iter().map(|index| self.sources[*index].written).min() {
                // One that is due and was not reported waits for something else, such as the next report of progress.
                let due = Some(since + self.linger()).filter(|due| *due > now);
                until = until.min(due.unwrap_or(now + self.linger()));
            }
            until = bench.next_wait(now).map_or(until, |next| until.min(next));
        }
        if self.me.is_some() {
            until = until.min(self.look_at.max(now + SHORTEST_LOOK));
        }
        let shared = self.shared.clone();
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => {}
            () = shared.wake.notified() => {}
            // With every slot taken there is nothing to do about news; they are not lost meanwhile.
            topics = news.next(), if has_room => {
                // News may be of other topics: if they lead to nothing time and again, there is a pause before each read.
                self.fruitless_news = self.fruitless_news.saturating_add(1);
                if self.fruitless_news > FRUITLESS_NEWS {
                    env.sleep(NEWS_PAUSE).await;
                }
                self.maybe_in(&topics);
            }
            // The worker that still holds a shard of ours may have let go of it, or of a limit; the group may be resumed.
            () = watch.next(), if self.is_kept_out() => {
                // Sooner than planned, but never later: hints may come all the time.
                self.look_at = self.look_at.min(now + SHORTEST_LOOK);
                self.look_well_from = self.look_at;
            }
            () = env.sleep(until.since(now)) => {
                slot::fill(&self.shared);
                if backs_off && env.now() >= idle_until {
                    // It is reset by work.
                    self.wait = (self.wait * 2).min(self.shared.poll);
                    if !planted::is(Bug::HintsOnly) {
                        self.maybe_anywhere();
                    }
                }
            }
        }
    }

    /// Waits without listening to anybody, longer each time, until something succeeds again.
    async fn pause(&mut self) {
        let env = self.shared.env();
        tokio::select! {
            biased;
            () = self.shared.stop.cancelled() => {}
            () = env.sleep(env.dice().jitter(self.wait)) => {}
        }
        self.wait = (self.wait * 2).min(self.shared.poll);
    }

    /// True if this worker could do more if another did something first: it holds a shard that the ring now gives to this
    /// one, or a share of a limit, or it is to resume the group.
    fn is_kept_out(&self) -> bool {
        let Some(me) = &self.me else { return false };
        if self.shared.bench().is_held_up() {
            return true;
        }
        self.sources.iter().zip(&self.shared.sources).any(|(source, spec)| {
            let rules = spec.rules;
            source.mine && source.known.as_ref().is_some_and(|(_, state)| !state.may_grab(me, rules))
        })
    }

    pub(super) fn maybe_anywhere(&mut self) {
        self.sources.iter_mut().for_each(Source::maybe_again);
    }

    /// There may be something in these topics.
    fn maybe_in(&mut self, topics: &[String]) {
        for (source, spec) in self.sources.iter_mut().zip(&self.shared.sources) {
            if topics.contains(&spec.topic.uid) {
                source.maybe_again();
            }
        }
    }
}
