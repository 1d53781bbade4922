//! The director leads a history through its acts: setting up, trouble, quiet, and the accounts.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::ledger::{EntryKey, Ledger};
use sawmill::message::Headers;
use sawmill::topic::TopicSpec;
use sawmill::{MessageId, Push, Schedule};

use super::hands::Hand;
use super::people::{LONG, World};
use super::plan::{CalmDeath, WorkerPlan};
use super::weather::{Stroke, Trouble};
use crate::checker::Intent;
use crate::control::NodeId;
use crate::dice::Seeded;
use crate::faults::Faults;
use crate::features::Feature;
use crate::network::Seam;
use crate::tasks::lock;

/// The stream of the seed by which trouble strikes.
const STREAM: u32 = 2;
/// After so much time in quiet nothing that was sent before is still on its way: the longest timeout and the longest delay.
const SETTLING: Duration = Duration::from_secs(8);
/// How long the workers have to push the ticks that were missed, beyond the longest TTL.
const AFTER_MISSED_TICKS: Duration = Duration::from_secs(10);
/// A schedule ticks at multiples of its period: this many of them make one tick in a history, and the next weeks later.
const TICKS_SINCE_1970: u32 = 1000;

/// Leads a history through its acts.
pub(super) struct Director {
    pub(super) world: World,
    dice: Seeded,
    pub(super) hands: Vec<Hand>,
    /// Pushers, and who else has something to do; each says when it is done.
    pushers: Vec<Arc<Mutex<bool>>>,
    /// Trouble is over: what it was to undo later is undone already.
    is_over: Arc<Mutex<bool>>,
    /// The number of the message that a schedule is to push.
    tick: Option<usize>,
}

impl Director {
    pub(super) fn new(world: World) -> Self {
        let dice = world.control.dice(STREAM);
        Self { world, dice, hands: Vec::new(), pushers: Vec::new(), is_over: Arc::default(), tick: None }
    }

    pub(super) async fn direct(mut self) {
        self.set_up().await;
        self.trouble().await;
        self.quiet().await;
        if let Some(death) = self.world.plan.calm_death
            && !self.world.checker.failed()
        {
            self.die_in_calm(death).await;
        }
        if self.world.checker.failed() {
            return;
        }
        self.close().await;
    }

    async fn sleep(&self, time: Duration) {
        self.world.control.env(NodeId::WORLD).sleep(time).await;
    }

    async fn set_up(&mut self) {
        let world = self.world.clone();
        let mill = world.mill(NodeId::WORLD);
        for topic in &world.plan.topics {
            let Ok(name) = topic.name.parse() else { return };
            let spec = TopicSpec { shards: topic.shards, retention: topic.retention, ..TopicSpec::new(name) };
            // The store is calm: this cannot fail.
            let _ = mill.create_topic_with(&spec).await;
        }
        if let Some(deletes) = &world.plan.extras.deletes {
            world.create_passing_topic(&mill, deletes).await;
        }
        for message in &world.plan.messages {
            world.checker.book().intended(Intent {
                topic: world.plan.topics[message.topic].name.clone(),
                key: message.key.clone(),
                headers: message.headers.clone(),
                due: None,
            });
        }
        for (number, message) in world.plan.messages.iter().enumerate() {
            if let Some(name) = &message.unique {
                match world.plan.extras.unique_for {
                    None => world.checker.book().named(number, name),
                    Some(period) => world.checker.book().named_for(number, name, period),
                }
            }
        }
        let followed = world.plan.extras.followers;
        for number in (0..world.plan.messages.len()).step_by(followed.unwrap_or(usize::MAX)) {
            if followed.is_some() {
                self.intend_follower(number);
            }
        }
        if let Some(tick) = world.plan.tick {
            self.schedule(tick).await;
        }
        if let Some(ticks) = world.plan.extras.ticks {
            world.schedule_often(ticks).await;
        }
        if world.plan.workers.len() >= 20 {
            world.control.used(Feature::Crowd);
        }
        for worker in world.plan.workers.clone() {
            self.join(worker);
        }
        (world.plan.groups.len()..world.plan.all_groups()).for_each(|group| self.man(group));
        // Every group has begun before the first message comes, so that nothing is trimmed before it could read it.
        self.sleep(Duration::from_millis(300)).await;
        for (number, pushes) in world.plan.pushers.iter().enumerate() {
            self.pushers.push(world.start_pusher(number, pushes.clone()));
        }
        self.pushers.push(world.start_errands());
        self.pushers.push(world.start_keeper());
        self.pushers.push(world.start_deleter());
        self.wait_for_drains();
        self.trim_now_and_then();
        self.crash_the_store();
    }

    /// Each time the message with this number is handled, another is pushed that follows from it.
    fn intend_follower(&self, number: usize) {
        let mut book = self.world.checker.book();
        let follower = book.intended(Intent {
            topic: self.world.plan.topics[0].name.clone(),
            key: self.world.plan.messages[number].key.clone(),
            headers: Headers::default(),
            due: None,
        });
        if self.world.plan.can_tell() {
            book.comes_once(follower);
        }
        lock(&self.world.followers).insert(Intent::payload(number), follower);
    }

    /// Adds a schedule that has one tick in this history, after this time: its period is weeks.
    async fn schedule(&mut self, after: Duration) {
        let world = self.world.clone();
        let topic = world.plan.topics[0].name.clone();
        let number = world.checker.book().intended(Intent {
            topic: topic.clone(),
            key: None,
            headers: Headers::default(),
            due: None,
        });
        let tick = world.control.env(NodeId::WORLD).wall() + after;
        let period = Duration::from_secs(tick.as_millis() / 1000) / TICKS_SINCE_1970;
        if let Ok(schedule) = Schedule::every("tick", period) {
            // The store is calm: this cannot fail.
            let schedule = schedule.message(Intent::payload(number));
            let _ = world.mill(NodeId::WORLD).schedule(&topic, schedule).await;
        }
        self.tick = Some(number);
    }

    pub(super) fn join(&mut self, worker: WorkerPlan) {
        let number = self.hands.len();
        let (control, extras) = (&self.world.control, &self.world.plan.extras);
        extras.ttl(number).iter().for_each(|_| control.used(Feature::OwnTtl));
        extras.pace(number).iter().for_each(|_| control.used(Feature::OwnPace));
        let hand = self.world.start_worker(number, worker);
        let skew = self.world.plan.trouble.skew.as_millis() as u64;
        if skew > 0 {
            self.world.control.skew(hand.node, self.dice.below(2 * skew + 1) as i64 - skew as i64);
        }
        self.hands.push(hand);
    }

    // ── trouble ──

    async fn trouble(&mut self) {
        let world = self.world.clone();
        let end = world.control.now() + world.plan.trouble.time;
        world.store.set_faults(world.plan.weather.faults.clone());
        while world.control.now() < end && !world.checker.failed() {
            let pause = self.dice.delay(world.plan.trouble.pause);
            self.sleep(pause.min(end.saturating_sub(world.control.now()))).await;
            self.upgrade(world.plan.trouble.time - end.saturating_sub(world.control.now()));
            // Those whose topic was deleted have stopped.
            for group in world.plan.groups.len()..world.plan.all_groups() {
                if self.dice.below(8) == 0 {
                    self.man(group);
                }
            }
            let strokes = &world.plan.trouble.strokes;
            if !strokes.is_empty() {
                let picked = self.dice.below(strokes.len() as u64) as usize;
                self.strike(strokes[picked]);
            }
        }
    }

    fn strike(&mut self, stroke: Stroke) {
        let control = self.world.control.clone();
        let at_work: Vec<Hand> = self.hands.iter().filter(|hand| hand.works(&control)).cloned().collect();
        let picked = at_work.get(self.dice.below(at_work.len() as u64) as usize).cloned();
        let length = Trouble::how_long(&mut self.dice, self.world.plan.ttl);
        match (stroke, picked) {
            (Stroke::Outage, _) => {
                let seam = if self.dice.below(2) == 0 { Seam::Log } else { Seam::Ledger };
                let store = self.world.store.clone();
                store.set_out(seam, true);
                self.later(length / 2, move |_| store.set_out(seam, false));
            }
            (Stroke::Join, _) | (_, None) => {
                if at_work.len() < 6 {
                    self.replace(None);
                }
            }
            (Stroke::Crash, Some(hand)) => {
                hand.crash(&self.world);
                self.replace(Some(hand.group));
            }
            (Stroke::Freeze, Some(hand)) => {
                control.freeze(hand.node);
                self.later(length, move |world| world.control.thaw(hand.node));
            }
            (Stroke::CutOff, Some(hand)) => {
                self.world.store.set_cut_off(hand.node, true);
                self.later(length, move |world| world.store.set_cut_off(hand.node, false));
            }
            (Stroke::Stop | Stroke::Abort, Some(hand)) => {
                hand.leave(&control, stroke == Stroke::Abort);
                self.replace(Some(hand.group));
            }
        }
    }

    /// Mostly another worker comes for one that goes.
    fn replace(&mut self, group: Option<usize>) {
        let groups = self.world.plan.groups.len() as u64;
        let group = group.unwrap_or_else(|| self.dice.below(groups) as usize);
        if self.dice.below(3) > 0 {
            let slots = 1 + self.dice.below(4) as usize;
            self.join(WorkerPlan { group, slots });
        }
    }

    /// The store crashes now and then, and is out for a while.
    fn crash_the_store(&self) {
        let crashes = self.world.plan.extras.store_crashes;
        for nth in 0..crashes {
            let time = self.world.plan.trouble.time * (2 * nth + 1) / (2 * crashes);
            let out = Duration::from_millis(self.world.roll(1500));
            self.later(time, move |world| {
                world.store.crash();
                for seam in [Seam::Log, Seam::Ledger] {
                    world.store.set_out(seam, true);
                }
                let world = world.clone();
                world.control.clone().spawn(NodeId::WORLD, async move {
                    world.control.env(NodeId::WORLD).sleep(out).await;
                    for seam in [Seam::Log, Seam::Ledger] {
                        world.store.set_out(seam, false);
                    }
                });
            });
        }
    }

    /// A person trims the topics now and then.
    fn trim_now_and_then(&self) {
        let trims = self.world.plan.extras.trims;
        for nth in 0..trims {
            let time = self.world.plan.trouble.time * (nth + 1) / (trims + 1);
            self.later(time, |world| {
                let (control, world) = (world.control.clone(), world.clone());
                control.spawn(NodeId::WORLD, async move {
                    for topic in &world.plan.topics {
                        let _ = world.mill(NodeId::WORLD).trim(&topic.name).await;
                    }
                });
            });
        }
    }

    /// Somebody waits now and then until a worker has nothing to do.
    fn wait_for_drains(&self) {
        let drains = self.world.plan.extras.drains as u32;
        for nth in 0..drains {
            let hand = self.hands[nth as usize % self.hands.len()].clone();
            let time = self.world.plan.trouble.time * (nth + 1) / (drains + 1);
            self.later(time, move |world| drop(hand.drain(world, true)));
        }
    }

    pub(super) fn later(&self, time: Duration, what: impl FnOnce(&World) + Send + 'static) {
        let (world, is_over) = (self.world.clone(), self.is_over.clone());
        self.world.control.spawn(NodeId::WORLD, async move {
            world.control.env(NodeId::WORLD).sleep(time).await;
            if !*lock(&is_over) {
                what(&world);
            }
        });
    }

    // ── quiet ──

    async fn quiet(&mut self) {
        let world = self.world.clone();
        let control = &world.control;
        *lock(&self.is_over) = true;
        world.store.set_faults(Faults { lost_hint: world.plan.weather.faults.lost_hint, ..Faults::calm() });
        for seam in [Seam::Log, Seam::Ledger] {
            world.store.set_out(seam, false);
        }
        for hand in self.hands.iter().filter(|hand| control.is_alive(hand.node)) {
            control.thaw(hand.node);
            world.store.set_cut_off(hand.node, false);
        }
        self.upgrade(world.plan.trouble.time);
        for group in 0..world.plan.all_groups() {
            self.man(group);
        }
        if world.plan.extras.ticks.is_some() {
            world.miss_ticks().await;
            self.push_missed_ticks().await;
            world.unschedule_often().await;
        }
        self.sleep(SETTLING).await;
        world.checker.book().quiet_begins(|node| control.is_alive(node));
        self.drain().await;
    }

    /// Workers have time to push the ticks that were missed, and go on ticking.
    async fn push_missed_ticks(&mut self) {
        let world = self.world.clone();
        // The worker that is to push them may have died just now.
        let until = world.control.now() + world.plan.longest_ttl() + AFTER_MISSED_TICKS;
        while world.control.now() < until {
            self.sleep(Duration::from_millis(250)).await;
            // A handler may have stopped the last worker.
            for group in 0..world.plan.all_groups() {
                self.man(group);
            }
        }
        // A message that kills its workers also kills those that push ticks.
        if world.plan.extras.killer.is_none() {
            world.checker.book().ticks_still();
        }
    }

    /// Waits until everything is done.
    async fn drain(&mut self) {
        let world = self.world.clone();
        let control = &world.control;
        let began = control.now();
        let relief = world.plan.longest_ttl() + Duration::from_secs(5);
        let limit = world.plan.drain_limit();
        let (mut relieved, mut pushed) = (false, None);
        while !world.checker.failed() {
            let passed = control.now() - began;
            // Those who take over the claim of a message that kills may die of it themselves.
            let may_tell = world.plan.extras.killer.is_none();
            if passed >= relief && may_tell && !std::mem::replace(&mut relieved, true) {
                world.checker.book().dead_are_relieved();
            }
            let hidden = self.hidden();
            let all_pushed = self.pushers.iter().all(|done| *lock(done));
            if all_pushed && pushed.is_none() {
                pushed = Some(control.now());
            }
            let ticked = self.tick.is_none_or(|number| world.checker.book().is_in_the_log(number));
            if all_pushed && ticked && hidden == 0 && world.checker.book().left_over().is_none() {
                return world.checker.book().drained();
            }
            // The backlog cannot drain before the last message has come.
            let since = pushed.map(|pushed| control.now() - pushed);
            if since.is_some_and(|since| since > limit) {
                return world.checker.book().not_drained(hidden, passed);
            }
            self.sleep(Duration::from_millis(250)).await;
            // A handler may have stopped the last worker.
            for group in 0..world.plan.all_groups() {
                self.man(group);
            }
        }
    }

    // ── a death in calm weather ──

    /// When all is done and nothing is wrong: a worker that runs a message dies, and another starts it soon.
    async fn die_in_calm(&mut self, death: CalmDeath) {
        let world = self.world.clone();
        let control = &world.control;
        for group in 0..world.plan.all_groups() {
            self.man(group);
        }
        // Who has just come is to be a member by then.
        self.sleep(Duration::from_secs(1)).await;
        let topic = &world.plan.topics[0].name;
        let headers: Headers = [(LONG, "yes")].into_iter().collect();
        let intent = Intent { topic: topic.clone(), key: None, headers, due: None };
        let number = world.checker.book().intended(intent);
        let push = Push::new(Intent::payload(number)).header(LONG, "yes");
        let Ok(id) = world.mill(NodeId::WORLD).push(topic, push).await else {
            return world.checker.book().not_ended("a push failed in calm weather");
        };
        world.checker.acknowledged(&[number], &[id]);
        let patience = control.now() + world.plan.longest_ttl() + Duration::from_secs(5);
        let running = loop {
            // A group with a limit may have given all of it to one that is gone.
            let unlimited = |hand: &&Hand| {
                let group = world.plan.group(hand.group);
                hand.works(control) && group.limit.is_none() && group.rate.is_none()
            };
            let runs = |hand: &&Hand| world.checker.book().runs_on(hand.node, id);
            let running = self.hands.iter().filter(unlimited).find(runs).cloned();
            if running.is_some() || control.now() > patience {
                break running;
            }
            self.sleep(Duration::from_millis(20)).await;
        };
        if let Some(hand) = running {
            world.checker.book().dies_in_calm(hand.node);
            match death {
                CalmDeath::Crash => hand.crash(&world),
                CalmDeath::Freeze => control.freeze(hand.node),
            }
            self.sleep(world.plan.relief(hand.number)).await;
            if world.checker.book().the_dead_are_relieved() > 0 {
                control.used(Feature::CalmDeath);
            }
            control.thaw(hand.node);
        }
        for group in 0..world.plan.all_groups() {
            self.man(group);
        }
        self.drain().await;
    }

    /// Sees to it that two workers of a group are at work.
    fn man(&mut self, group: usize) {
        let control = self.world.control.clone();
        let at_work = self.hands.iter().filter(|hand| hand.group == group && hand.works(&control)).count();
        for _ in at_work..2 {
            self.join(WorkerPlan { group, slots: 2 });
        }
    }

    fn hidden(&self) -> usize {
        let topics = self.world.checker.book().worked_topics();
        topics.iter().map(|topic| self.world.store.hidden(topic).len()).sum()
    }

    async fn listed(&self, topic: &str, group: &str) -> sawmill::Result<BTreeSet<MessageId>> {
        let letters = self.world.mill(NodeId::WORLD).dead_letters(topic, group).await?;
        Ok(letters.list(usize::MAX).await?.iter().map(|letter| letter.id()).collect())
    }

    async fn close(&mut self) {
        let world = self.world.clone();
        let working: Vec<_> = self.hands.iter().filter(|hand| hand.works(&world.control)).collect();
        let drained: Vec<_> = working.iter().map(|hand| hand.drain(&world, false)).collect();
        let patience = world.control.now() + 3 * world.plan.longest_ttl() + Duration::from_secs(10);
        while !drained.iter().all(|drained| *lock(drained)) {
            if world.control.now() > patience {
                return world.checker.book().not_ended("nothing is left to do, and a worker does not say so");
            }
            self.sleep(Duration::from_millis(50)).await;
        }
        let leaving: Vec<_> = self.hands.iter().filter(|hand| hand.works(&world.control)).collect();
        let gone: Vec<_> = leaving.iter().map(|hand| hand.leave(&world.control, false)).collect();
        let patience = world.control.now() + 3 * world.plan.longest_ttl() + Duration::from_secs(10);
        while !gone.iter().all(|gone| *lock(gone)) {
            if world.control.now() > patience {
                return world.checker.book().not_ended("a worker did not stop");
            }
            self.sleep(Duration::from_millis(50)).await;
        }
        world.checker.book().all_is_there();
        world.checker.book().no_tick_is_missing();
        for entry in
            world.store.ledger(NodeId::WORLD).list(&EntryKey::raw("uniques/")).await.unwrap_or_default()
        {
            world.checker.book().names_are_free(entry.key.as_str(), &entry.value);
        }
        let mill = world.mill(NodeId::WORLD);
        for number in 0..world.plan.all_groups() {
            let group = &world.plan.group(number).name;
            for topic in world.plan.topics_of(number) {
                match mill.status(&topic, group).await {
                    Ok(status) => world.checker.compare(&topic, group, &status),
                    Err(error) => world.checker.book().not_ended(&format!("no status: {error}")),
                }
                match self.listed(&topic, group).await {
                    Ok(listed) => world.checker.book().letters_are(&topic, group, &listed),
                    Err(error) => world.checker.book().not_ended(&format!("no dead letters: {error}")),
                }
            }
        }
        // What was pushed a moment ago is not yet old, even if it is kept for no time at all.
        self.sleep(Duration::from_millis(100)).await;
        let trimmed_at = world.control.env(NodeId::WORLD).wall();
        let passing = world.plan.extras.deletes.iter().map(|deletes| &deletes.topic);
        for topic in world.plan.topics.iter().chain(passing) {
            if let Err(error) = mill.trim(&topic.name).await {
                world.checker.book().not_ended(&format!("not trimmed: {error}"));
            }
        }
        let topics = world.checker.book().worked_topics();
        for topic in topics {
            let left = world.store.messages(&topic);
            world.checker.book().nothing_needless_is_left(&topic, &left, trimmed_at);
        }
    }
}
