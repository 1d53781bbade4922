//! Drives a history through its phases: setup, incidents, quiet, and the final checks.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::engine::model::Headers;
use sawmill::engine::storage::{EntryKey, Ledger};
use sawmill::{MessageId, Push, Schedule, TopicSpec};

use super::incidents::{Incident, IncidentPlan};
use super::plan::{CalmDeath, WorkerPlan};
use super::workers::WorkerProcess;
use super::world::{LONG, World};
use crate::checker::Intent;
use crate::control::NodeId;
use crate::faults::Faults;
use crate::features::Feature;
use crate::network::Seam;
use crate::rng::Seeded;
use crate::tasks::lock;

/// The random stream of incidents.
const STREAM: u32 = 2;
/// After this much quiet time nothing sent before is still on its way: the longest timeout plus the longest
/// delay.
const SETTLING: Duration = Duration::from_secs(8);
/// How long the workers have to push missed ticks, in addition to the longest TTL.
const AFTER_MISSED_TICKS: Duration = Duration::from_secs(10);
/// A schedule ticks at multiples of its period. With this many periods since 1970, it ticks once in a
/// history, and again weeks later.
const TICKS_SINCE_1970: u32 = 1000;

/// Drives a history through its phases.
pub(super) struct Driver {
    pub(super) world: World,
    rng: Seeded,
    pub(super) processes: Vec<WorkerProcess>,
    /// Pushers and other users; each flag becomes true when its user is done.
    pushers: Vec<Arc<Mutex<bool>>>,
    /// Set when the incidents are over. Their delayed endings must then do nothing, because everything was
    /// already restored.
    is_over: Arc<Mutex<bool>>,
    /// The number of the message that a schedule pushes.
    tick: Option<usize>,
}

impl Driver {
    pub(super) fn new(world: World) -> Self {
        let rng = world.control.rng(STREAM);
        Self { world, rng, processes: Vec::new(), pushers: Vec::new(), is_over: Arc::default(), tick: None }
    }

    pub(super) async fn run(mut self) {
        self.set_up().await;
        self.incidents().await;
        self.quiet().await;
        if let Some(death) = self.world.plan.calm_death
            && !self.world.checker.failed()
        {
            self.test_calm_death(death).await;
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
            // The store is calm, so this cannot fail.
            let _ = mill.create_topic_with(&spec).await;
        }
        if let Some(deletes) = &world.plan.extras.deletes {
            world.create_temporary_topic(&mill, deletes).await;
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
        (world.plan.groups.len()..world.plan.all_groups()).for_each(|group| self.staff(group));
        // All groups must have started before the first message, or it might be trimmed before they can read
        // it.
        self.sleep(Duration::from_millis(300)).await;
        for (number, pushes) in world.plan.pushers.iter().enumerate() {
            self.pushers.push(world.start_pusher(number, pushes.clone()));
        }
        self.pushers.push(world.start_user_tasks());
        self.pushers.push(world.start_letter_tasks());
        self.pushers.push(world.start_deleter());
        self.wait_for_drains();
        self.trim_now_and_then();
        self.crash_the_store();
    }

    /// Makes each handling of this message push a follow-up message.
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

    /// Adds a schedule with one tick in this history, after this time. Its period is weeks.
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
            // The store is calm, so this cannot fail.
            let schedule = schedule.message(Intent::payload(number));
            let _ = world.mill(NodeId::WORLD).schedule(&topic, schedule).await;
        }
        self.tick = Some(number);
    }

    pub(super) fn join(&mut self, worker: WorkerPlan) {
        let number = self.processes.len();
        let (control, extras) = (&self.world.control, &self.world.plan.extras);
        extras.ttl(number).iter().for_each(|_| control.used(Feature::OwnTtl));
        extras.pace(number).iter().for_each(|_| control.used(Feature::OwnPace));
        let process = self.world.start_worker(number, worker);
        let skew = self.world.plan.incidents.skew.as_millis() as u64;
        if skew > 0 {
            self.world.control.skew(process.node, self.rng.below(2 * skew + 1) as i64 - skew as i64);
        }
        self.processes.push(process);
    }

    // ── incidents ──

    async fn incidents(&mut self) {
        let world = self.world.clone();
        let end = world.control.now() + world.plan.incidents.time;
        world.store.set_faults(world.plan.store_faults.faults.clone());
        while world.control.now() < end && !world.checker.failed() {
            let pause = self.rng.delay(world.plan.incidents.pause);
            self.sleep(pause.min(end.saturating_sub(world.control.now()))).await;
            self.upgrade(world.plan.incidents.time - end.saturating_sub(world.control.now()));
            // Workers of a deleted topic have stopped.
            for group in world.plan.groups.len()..world.plan.all_groups() {
                if self.rng.below(8) == 0 {
                    self.staff(group);
                }
            }
            let kinds = &world.plan.incidents.kinds;
            if !kinds.is_empty() {
                let picked = self.rng.below(kinds.len() as u64) as usize;
                self.trigger(kinds[picked]);
            }
        }
    }

    fn trigger(&mut self, incident: Incident) {
        let control = self.world.control.clone();
        let active: Vec<WorkerProcess> =
            self.processes.iter().filter(|process| process.works(&control)).cloned().collect();
        let picked = active.get(self.rng.below(active.len() as u64) as usize).cloned();
        let length = IncidentPlan::how_long(&mut self.rng, self.world.plan.ttl);
        match (incident, picked) {
            (Incident::Outage, _) => {
                let seam = if self.rng.below(2) == 0 { Seam::Log } else { Seam::Ledger };
                let store = self.world.store.clone();
                store.set_out(seam, true);
                self.later(length / 2, move |_| store.set_out(seam, false));
            }
            (Incident::Join, _) | (_, None) => {
                if active.len() < 6 {
                    self.replace(None);
                }
            }
            (Incident::Crash, Some(process)) => {
                process.crash(&self.world);
                self.replace(Some(process.group));
            }
            (Incident::Freeze, Some(process)) => {
                control.freeze(process.node);
                self.later(length, move |world| world.control.thaw(process.node));
            }
            (Incident::CutOff, Some(process)) => {
                self.world.store.set_cut_off(process.node, true);
                self.later(length, move |world| world.store.set_cut_off(process.node, false));
            }
            (Incident::Stop | Incident::Abort, Some(process)) => {
                process.leave(&control, incident == Incident::Abort);
                self.replace(Some(process.group));
            }
        }
    }

    /// Usually starts another worker in place of one that leaves.
    fn replace(&mut self, group: Option<usize>) {
        let groups = self.world.plan.groups.len() as u64;
        let group = group.unwrap_or_else(|| self.rng.below(groups) as usize);
        if self.rng.below(3) > 0 {
            let slots = 1 + self.rng.below(4) as usize;
            self.join(WorkerPlan { group, slots });
        }
    }

    /// Schedules the crashes of the store, each with a short outage.
    fn crash_the_store(&self) {
        let crashes = self.world.plan.extras.store_crashes;
        for nth in 0..crashes {
            let time = self.world.plan.incidents.time * (2 * nth + 1) / (2 * crashes);
            let out = Duration::from_millis(self.world.random_below(1500));
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

    /// Schedules the trims.
    fn trim_now_and_then(&self) {
        let trims = self.world.plan.extras.trims;
        for nth in 0..trims {
            let time = self.world.plan.incidents.time * (nth + 1) / (trims + 1);
            self.later(time, |world| {
                let (control, world) = (world.control.clone(), world.clone());
                control.spawn(NodeId::WORLD, async move {
                    for topic in &world.plan.topics {
                        let _ = world.mill(NodeId::WORLD).admin().trim(&topic.name).await;
                    }
                });
            });
        }
    }

    /// Schedules waits for a worker to be drained.
    fn wait_for_drains(&self) {
        let drains = self.world.plan.extras.drains as u32;
        for nth in 0..drains {
            let process = self.processes[nth as usize % self.processes.len()].clone();
            let time = self.world.plan.incidents.time * (nth + 1) / (drains + 1);
            self.later(time, move |world| drop(process.drain(world, true)));
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
        world.store.set_faults(Faults {
            lost_notification: world.plan.store_faults.faults.lost_notification,
            ..Faults::calm()
        });
        for seam in [Seam::Log, Seam::Ledger] {
            world.store.set_out(seam, false);
        }
        for process in self.processes.iter().filter(|process| control.is_alive(process.node)) {
            control.thaw(process.node);
            world.store.set_cut_off(process.node, false);
        }
        self.upgrade(world.plan.incidents.time);
        for group in 0..world.plan.all_groups() {
            self.staff(group);
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

    /// Gives the workers time to push missed ticks and to continue ticking.
    async fn push_missed_ticks(&mut self) {
        let world = self.world.clone();
        // The worker that should push them may have just died.
        let until = world.control.now() + world.plan.longest_ttl() + AFTER_MISSED_TICKS;
        while world.control.now() < until {
            self.sleep(Duration::from_millis(250)).await;
            // A handler may have stopped the last worker.
            for group in 0..world.plan.all_groups() {
                self.staff(group);
            }
        }
        // A message that kills its workers also kills those that push ticks.
        if world.plan.extras.killer.is_none() {
            world.checker.book().check_still_ticking();
        }
    }

    /// Waits until the backlog is drained.
    async fn drain(&mut self) {
        let world = self.world.clone();
        let control = &world.control;
        let began = control.now();
        let takeover_limit = world.plan.longest_ttl() + Duration::from_secs(5);
        let limit = world.plan.drain_limit();
        let (mut is_checked, mut pushed) = (false, None);
        while !world.checker.failed() {
            let passed = control.now() - began;
            // Workers that take over the claim of a killer message may die of it too.
            let may_tell = world.plan.extras.killer.is_none();
            if passed >= takeover_limit && may_tell && !std::mem::replace(&mut is_checked, true) {
                world.checker.book().orphans_taken_over();
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
            // The limit counts from the last push.
            let since = pushed.map(|pushed| control.now() - pushed);
            if since.is_some_and(|since| since > limit) {
                return world.checker.book().not_drained(hidden, passed);
            }
            self.sleep(Duration::from_millis(250)).await;
            // A handler may have stopped the last worker.
            for group in 0..world.plan.all_groups() {
                self.staff(group);
            }
        }
    }

    // ── a death while nothing else is wrong ──

    /// With everything done and nothing wrong, ends a worker that runs a message. Another must start it soon.
    async fn test_calm_death(&mut self, death: CalmDeath) {
        let world = self.world.clone();
        let control = &world.control;
        for group in 0..world.plan.all_groups() {
            self.staff(group);
        }
        // New workers must be members by then.
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
            // A group with a limit may have given all of it to a worker that is gone.
            let unlimited = |process: &&WorkerProcess| {
                let group = world.plan.group(process.group);
                process.works(control) && group.limit.is_none() && group.rate.is_none()
            };
            let runs = |process: &&WorkerProcess| world.checker.book().runs_on(process.node, id);
            let running = self.processes.iter().filter(unlimited).find(runs).cloned();
            if running.is_some() || control.now() > patience {
                break running;
            }
            self.sleep(Duration::from_millis(20)).await;
        };
        if let Some(process) = running {
            world.checker.book().dies_in_calm(process.node);
            match death {
                CalmDeath::Crash => process.crash(&world),
                CalmDeath::Freeze => control.freeze(process.node),
            }
            self.sleep(world.plan.takeover_limit(process.number)).await;
            if world.checker.book().claims_of_dead_taken_over() > 0 {
                control.used(Feature::CalmDeath);
            }
            control.thaw(process.node);
        }
        for group in 0..world.plan.all_groups() {
            self.staff(group);
        }
        self.drain().await;
    }

    /// Makes sure that a group has two workers.
    fn staff(&mut self, group: usize) {
        let control = self.world.control.clone();
        let active =
            self.processes.iter().filter(|process| process.group == group && process.works(&control)).count();
        for _ in active..2 {
            self.join(WorkerPlan { group, slots: 2 });
        }
    }

    fn hidden(&self) -> usize {
        let topics = self.world.checker.book().worked_topics();
        topics.iter().map(|topic| self.world.store.hidden(topic).len()).sum()
    }

    async fn listed(&self, topic: &str, group: &str) -> sawmill::Result<BTreeSet<MessageId>> {
        let letters = self.world.mill(NodeId::WORLD).admin().dead_letters(topic, group).await?;
        Ok(letters.list(usize::MAX).await?.iter().map(|letter| letter.id()).collect())
    }

    async fn close(&mut self) {
        let world = self.world.clone();
        let working: Vec<_> = self.processes.iter().filter(|process| process.works(&world.control)).collect();
        let drained: Vec<_> = working.iter().map(|process| process.drain(&world, false)).collect();
        let patience = world.control.now() + 3 * world.plan.longest_ttl() + Duration::from_secs(10);
        while !drained.iter().all(|drained| *lock(drained)) {
            if world.control.now() > patience {
                return world.checker.book().not_ended("nothing is left to do, and a worker does not say so");
            }
            self.sleep(Duration::from_millis(50)).await;
        }
        let leaving: Vec<_> = self.processes.iter().filter(|process| process.works(&world.control)).collect();
        let gone: Vec<_> = leaving.iter().map(|process| process.leave(&world.control, false)).collect();
        let patience = world.control.now() + 3 * world.plan.longest_ttl() + Duration::from_secs(10);
        while !gone.iter().all(|gone| *lock(gone)) {
            if world.control.now() > patience {
                return world.checker.book().not_ended("a worker did not stop");
            }
            self.sleep(Duration::from_millis(50)).await;
        }
        world.checker.book().check_nothing_missing();
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
                match mill.admin().status(&topic, group).await {
                    Ok(status) => world.checker.compare(&topic, group, &status),
                    Err(error) => world.checker.book().not_ended(&format!("no status: {error}")),
                }
                match self.listed(&topic, group).await {
                    Ok(listed) => world.checker.book().check_listed_letters(&topic, group, &listed),
                    Err(error) => world.checker.book().not_ended(&format!("no dead letters: {error}")),
                }
            }
        }
        // Lets messages age a little, because even with zero retention a message pushed at this moment is not
        // old yet.
        self.sleep(Duration::from_millis(100)).await;
        let trimmed_at = world.control.env(NodeId::WORLD).wall();
        let temporary = world.plan.extras.deletes.iter().map(|deletes| &deletes.topic);
        for topic in world.plan.topics.iter().chain(temporary) {
            if let Err(error) = mill.admin().trim(&topic.name).await {
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
