//! Every history of the coordination topic, as far as the bounds go: writers that bid, read, clean up, crash and come back, records
//! that are on their way for any time, and compaction at any moment. The rules are those that the ledger runs on.
//!
//! The truth is what a reader knows that has seen every record in the moment in which it was written. What writers are told, and what
//! readers find, is held against it.

use std::collections::{BTreeMap, BTreeSet};

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::rules::{Bid, Fate, Line, May, Standing, Table};

type Entry = u8;
type Id = u8;
type Known = Table<Entry, Id, ()>;

/// How long a bid may be on its way, in ticks of the broker's clock.
const LATEST: u64 = 1;

/// What is tried, and how much of it.
#[derive(Clone)]
struct Bounds {
    writers: usize,
    entries: Entry,
    bids: u8,
    crashes: u8,
    ticks: u64,
    looks: u8,
    flaw: Option<Flaw>,
}

/// Mistakes that the model must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    /// The record key is the entry alone.
    KeyedByEntry,
    /// The record key is the entry and the writer, who bids again after an outcome that it does not know.
    KeyedByWriter,
    /// Last versions of deleted entries are removed at once.
    ForgetsAtOnce,
    /// Compaction takes young records into account.
    CompactsYoung,
    /// Who looks goes by what they have, without reading to the end.
    LooksWithoutReading,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Record {
    offset: usize,
    time: u64,
    writer: usize,
    line: Line<Entry, Id, ()>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Writer {
    table: Known,
    /// The offset that it reads next.
    position: usize,
    call: Option<Call>,
}

/// What a writer is in the middle of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Call {
    /// It has bid, and waits to read its own record. The log's end was there when it began.
    Commit { id: Id, began: usize },
    /// It wants to know an entry, and has asked for the end, when the truth was at this step of the entry's story.
    Look { entry: Entry, end: usize, step: usize },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    log: Vec<Record>,
    end: usize,
    clock: u64,
    /// Bids that are on their way, also those of writers that are dead by now.
    wire: Vec<(usize, Bid<Entry, Id, ()>)>,
    writers: Vec<Writer>,
    truth: Known,
    /// All versions that an entry ever had: who won them, and whether that deleted it.
    story: BTreeMap<Entry, Vec<(Id, bool)>>,
    fates: BTreeMap<Id, Fate>,
    bids: u8,
    crashes: u8,
    looks: u8,
    /// Bids that somebody has removed. Twice makes no difference.
    removed: BTreeSet<Id>,
    compacted: bool,
    wrong: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Start { writer: usize, entry: Entry, delete: bool },
    Land(usize),
    Read(usize),
    Remove { writer: usize, entry: Entry, id: Id },
    Look { writer: usize, entry: Entry },
    Compact(usize),
    Crash(usize),
    GiveUp(usize),
    Tick,
}

impl Bounds {
    /// What the broker goes by when it compacts.
    fn record_key(&self, record: &Record) -> (Entry, usize) {
        let (entry, id) = match &record.line {
            Line::Bid(bid) => (bid.entry, bid.id),
            Line::Removed { entry, id } => (*entry, *id),
        };
        match self.flaw {
            Some(Flaw::KeyedByEntry) => (entry, 0),
            Some(Flaw::KeyedByWriter) => (entry, record.writer),
            _ => (entry, usize::from(id)),
        }
    }

    /// Records after this end are too young to hide others: calls that began before it are not over.
    fn young_from(&self, world: &World) -> usize {
        if self.flaw == Some(Flaw::CompactsYoung) {
            return world.end;
        }
        let began = world.writers.iter().filter_map(|writer| match &writer.call {
            Some(Call::Commit { began, .. }) => Some(*began),
            Some(Call::Look { end, .. }) => Some(*end),
            None => None,
        });
        began.min().unwrap_or(world.end)
    }

    fn can_be_compacted(&self, world: &World, index: usize) -> bool {
        let record = &world.log[index];
        let key = self.record_key(record);
        let young = self.young_from(world);
        let hidden =
            world.log[index + 1..].iter().any(|later| later.offset < young && self.record_key(later) == key);
        // A removal goes when it hides nothing any more, and no reader is so slow that it would miss it.
        let is_removal = matches!(record.line, Line::Removed { .. });
        let hides = world.log[..index].iter().any(|earlier| self.record_key(earlier) == key);
        let missed =
            world.writers.iter().any(|writer| writer.position > 0 && writer.position <= record.offset);
        hidden || (is_removal && record.offset < young && !hides && !missed)
    }

    fn removes(&self, world: &World, writer: usize) -> Vec<(Entry, Id)> {
        // With other record keys there is nothing that could be removed by name.
        if matches!(self.flaw, Some(Flaw::KeyedByEntry | Flaw::KeyedByWriter)) {
            return Vec::new();
        }
        let table = &world.writers[writer].table;
        let mut litter = table.litter(0, usize::MAX);
        if self.flaw == Some(Flaw::ForgetsAtOnce) {
            let gone = |standing: &&Standing<Id, ()>| standing.value.is_none();
            litter.extend(
                (0..self.entries).filter_map(|e| table.standing(&e).filter(gone).map(|gone| (e, gone.id))),
            );
        }
        litter
    }
}

impl World {
    fn append(&mut self, writer: usize, line: Line<Entry, Id, ()>) {
        let (time, offset) = (self.clock, self.end);
        self.end += 1;
        let bid = match &line {
            Line::Bid(bid) => Some((bid.entry, bid.id, bid.value.is_none())),
            Line::Removed { .. } => None,
        };
        let fate = self.truth.apply(time, line.clone());
        if let (Some((entry, id, deletes)), Some((fate, _))) = (bid, fate) {
            self.fates.insert(id, fate);
            if fate == Fate::Won {
                let story = self.story.entry(entry).or_default();
                if story.last().is_some_and(|(_, deleted)| *deleted) {
                    self.wrong = Some("a deleted entry came back");
                }
                story.push((id, deletes));
            }
        }
        self.log.push(Record { offset, time, writer, line });
    }

    /// The next record is read, and calls that end by it are answered.
    fn read(&mut self, number: usize) {
        let writer = &mut self.writers[number];
        let Some(record) = self.log.iter().find(|record| record.offset >= writer.position) else { return };
        writer.position = record.offset + 1;
        let own = match (&record.line, &writer.call) {
            (Line::Bid(bid), Some(Call::Commit { id, .. })) if bid.id == *id => Some(*id),
            _ => None,
        };
        let fate = writer.table.apply(record.time, record.line.clone());
        if let (Some(id), Some((fate, _))) = (own, fate) {
            writer.call = None;
            if self.fates.get(&id) != Some(&fate) {
                self.wrong = Some("a writer was told what is not true");
            }
        }
    }

    /// What was looked for is as true as it was when the look began, or newer.
    fn looked(&mut self, number: usize) {
        let writer = &mut self.writers[number];
        let Some(Call::Look { entry, end, step }) = writer.call.clone() else { return };
        // Compaction may have taken away what lay before the end.
        let there = self.log.iter().any(|record| record.offset >= writer.position && record.offset < end);
        if there {
            return;
        }
        writer.call = None;
        let story = self.story.get(&entry).map(Vec::as_slice).unwrap_or_default();
        let found = writer.table.standing(&entry).filter(|standing| standing.value.is_some());
        let right = match found {
            Some(found) => {
                story.iter().skip(step.saturating_sub(1)).any(|(id, deleted)| *id == found.id && !deleted)
            }
            None => step == 0 || story.iter().skip(step - 1).any(|(_, deleted)| *deleted),
        };
        if !right {
            self.wrong = Some("a reader found what is not true");
        }
    }
}

impl Model for Bounds {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let writer = Writer { table: Known::new(LATEST), position: 0, call: None };
        vec![World {
            log: Vec::new(),
            end: 0,
            clock: 0,
            wire: Vec::new(),
            writers: vec![writer; self.writers],
            truth: Known::new(LATEST),
            story: BTreeMap::new(),
            fates: BTreeMap::new(),
            bids: 0,
            crashes: 0,
            looks: 0,
            removed: BTreeSet::new(),
            compacted: false,
            wrong: None,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        if world.wrong.is_some() {
            return;
        }
        for (number, writer) in world.writers.iter().enumerate() {
            let behind = world.log.iter().any(|record| record.offset >= writer.position);
            if behind {
                steps.push(Step::Read(number));
            }
            if world.crashes < self.crashes && (writer.position > 0 || writer.call.is_some()) {
                steps.push(Step::Crash(number));
            }
            match &writer.call {
                Some(Call::Commit { .. }) if self.flaw == Some(Flaw::KeyedByWriter) => {
                    steps.push(Step::GiveUp(number));
                }
                Some(_) => {}
                None => {
                    for (entry, id) in self.removes(world, number) {
                        // Who removes it makes no difference.
                        let known = |step: &Step| matches!(step, Step::Remove { entry: e, id: i, .. } if (*e, *i) == (entry, id));
                        if !world.removed.contains(&id) && !steps.iter().any(known) {
                            steps.push(Step::Remove { writer: number, entry, id });
                        }
                    }
                    for entry in 0..self.entries {
                        if world.bids < self.bids {
                            steps.push(Step::Start { writer: number, entry, delete: false });
                            if writer.table.standing(&entry).is_some_and(|standing| standing.value.is_some())
                            {
                                steps.push(Step::Start { writer: number, entry, delete: true });
                            }
                        }
                        if world.looks < self.looks {
                            steps.push(Step::Look { writer: number, entry });
                        }
                    }
                }
            }
        }
        steps.extend((0..world.wire.len()).map(Step::Land));
        steps.extend(
            (0..world.log.len()).filter(|index| self.can_be_compacted(world, *index)).map(Step::Compact),
        );
        if world.clock < self.ticks {
            steps.push(Step::Tick);
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut world = world.clone();
        match step {
            Step::Start { writer: number, entry, delete } => {
                let writer = &mut world.writers[number];
                let standing = writer.table.standing(&entry).filter(|standing| standing.value.is_some());
                let expect = standing.map(|standing| standing.version);
                let May::Bid(version) = writer.table.may(&entry, expect) else { return None };
                // An entry that was deleted is not made again.
                if expect.is_none() && world.story.contains_key(&entry) && version == 1 {
                    let gone = world.story[&entry].last().is_some_and(|(_, deleted)| *deleted);
                    if gone {
                        return None;
                    }
                }
                let (id, seen) = (world.bids, writer.table.now());
                world.bids += 1;
                writer.call = Some(Call::Commit { id, began: world.end });
                let value = (!delete).then_some(());
                world.wire.push((number, Bid { entry, id, version, seen, value }));
            }
            Step::Land(index) => {
                let (writer, bid) = world.wire.remove(index);
                world.append(writer, Line::Bid(bid));
            }
            Step::Read(number) => {
                world.read(number);
                world.looked(number);
            }
            Step::Remove { writer, entry, id } => {
                world.removed.insert(id);
                world.append(writer, Line::Removed { entry, id });
            }
            Step::Look { writer, entry } => {
                world.looks += 1;
                let end = if self.flaw == Some(Flaw::LooksWithoutReading) { 0 } else { world.end };
                let step = world.story.get(&entry).map_or(0, Vec::len);
                world.writers[writer].call = Some(Call::Look { entry, end, step });
                world.looked(writer);
            }
            Step::Compact(index) => {
                world.log.remove(index);
                world.compacted = true;
                for number in 0..world.writers.len() {
                    world.looked(number);
                }
            }
            Step::Crash(number) => {
                world.crashes += 1;
                world.writers[number] = Writer { table: Known::new(LATEST), position: 0, call: None };
            }
            Step::GiveUp(number) => world.writers[number].call = None,
            Step::Tick => world.clock += 1,
        }
        // Which writer is which makes no difference, unless records are keyed by it.
        if self.flaw != Some(Flaw::KeyedByWriter) {
            world.writers.sort_unstable();
            world.log.iter_mut().for_each(|record| record.writer = 0);
            world.wire.iter_mut().for_each(|(writer, _)| *writer = 0);
            world.wire.sort_unstable_by_key(|(_, bid)| bid.id);
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing is wrong", |_, world: &World| world.wrong.is_none()),
            Property::sometimes("a bid loses", |_, world: &World| {
                world.fates.values().any(|fate| *fate == Fate::Lost)
            }),
            Property::sometimes("a bid is void", |bounds: &Bounds, world: &World| {
                bounds.ticks < 2 || world.fates.values().any(|fate| *fate == Fate::Void)
            }),
            Property::sometimes("a deleted entry is forgotten", |bounds: &Bounds, world: &World| {
                let forgotten = |(entry, story): (&Entry, &Vec<(Id, bool)>)| {
                    story.last().is_some_and(|(_, deleted)| *deleted) && world.truth.standing(entry).is_none()
                };
                bounds.ticks < 2 || world.story.iter().any(forgotten)
            }),
            Property::sometimes("compaction removes something", |_, world: &World| world.compacted),
        ]
    }
}

fn check(bounds: Bounds) -> impl Checker<Bounds> {
    bounds.checker().threads(2).spawn_dfs().join()
}

/// Three writers, two entries, a crash, and compaction at any moment.
fn bounds() -> Bounds {
    Bounds { writers: 3, entries: 2, bids: 3, crashes: 1, ticks: 0, looks: 0, flaw: None }
}

/// One entry less, and somebody who looks.
fn look_bounds() -> Bounds {
    Bounds { entries: 1, looks: 1, ..bounds() }
}

/// Fewer writers, and time: entries are deleted and forgotten.
fn long_bounds() -> Bounds {
    Bounds { writers: 2, entries: 1, bids: 3, crashes: 0, ticks: 2, looks: 1, flaw: None }
}

fn hold(bounds: Bounds) {
    let checker = check(bounds);
    eprintln!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

#[test]
fn three_writers_are_told_the_truth_whatever_crashes_and_is_compacted() {
    hold(bounds());
}

#[test]
fn readers_find_the_truth() {
    hold(look_bounds());
}

#[test]
fn deleted_entries_are_forgotten_and_do_not_come_back() {
    hold(long_bounds());
}

/// A mistake in the rules, or in what they rest on, is found.
#[test]
fn planted_mistakes_are_found() {
    for (flaw, bounds) in [
        (Flaw::KeyedByEntry, look_bounds()),
        (Flaw::KeyedByWriter, look_bounds()),
        (Flaw::ForgetsAtOnce, long_bounds()),
        (Flaw::CompactsYoung, look_bounds()),
        (Flaw::LooksWithoutReading, look_bounds()),
    ] {
        let model = Bounds { flaw: Some(flaw), ..bounds };
        let checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
        assert!(checker.discovery("nothing is wrong").is_some(), "{flaw:?} is not found");
    }
}
