//! Model checking of the coordination topic, within bounds: writers that bid, read, clean up, crash and
//! restart; bids delayed for any time; and compaction at any moment. The model runs the same rules as the
//! ledger.
//!
//! The reference is a reader that sees every record at the moment it is written. What writers are told and
//! what readers find is compared with it.

use std::collections::{BTreeMap, BTreeSet};

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::ledger::rules::{Bid, BidCheck, BidOutcome, EntryState, Operation, Table};

type Entry = u8;
type Id = u8;
type EntryTable = Table<Entry, Id, ()>;

/// How long a bid may be on its way, in ticks of the broker's clock.
const MAX_BID_DELAY: u64 = 1;

/// The limits of the model.
#[derive(Clone)]
struct Bounds {
    writers: usize,
    entries: Entry,
    bids: u8,
    crashes: u8,
    ticks: u64,
    gets: u8,
    flaw: Option<Flaw>,
}

/// Mistakes that the model must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    /// The record key is the entry alone.
    KeyedByEntry,
    /// The record key is the entry and the writer, which bids again after an unknown outcome.
    KeyedByWriter,
    /// Last versions of deleted entries are removed at once.
    ForgetsAtOnce,
    /// Young records may hide older ones from compaction.
    CompactsYoung,
    /// A get returns what the reader has, without reading to the end.
    GetsWithoutReading,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Record {
    offset: usize,
    time: u64,
    writer: usize,
    operation: Operation<Entry, Id, ()>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Writer {
    table: EntryTable,
    /// The next offset to read.
    position: usize,
    call: Option<Call>,
}

/// A call in progress.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Call {
    /// The writer has bid and waits to read its own record. `began` is the log's end at the start.
    Commit { id: Id, began: usize },
    /// The reader has asked for the log's end. `step` is the number of versions that the entry had by then.
    Get { entry: Entry, end: usize, step: usize },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    log: Vec<Record>,
    end: usize,
    clock: u64,
    /// Bids on their way, including those of crashed writers.
    in_flight: Vec<(usize, Bid<Entry, Id, ()>)>,
    writers: Vec<Writer>,
    truth: EntryTable,
    /// All versions of an entry: the bid that won each, and whether it deleted the entry.
    history: BTreeMap<Entry, Vec<(Id, bool)>>,
    outcomes: BTreeMap<Id, BidOutcome>,
    bids: u8,
    crashes: u8,
    gets: u8,
    /// Bids that were removed. A second removal has no effect.
    removed: BTreeSet<Id>,
    compacted: bool,
    wrong: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Start { writer: usize, entry: Entry, delete: bool },
    Append(usize),
    Read(usize),
    Remove { writer: usize, entry: Entry, id: Id },
    Get { writer: usize, entry: Entry },
    Compact(usize),
    Crash(usize),
    GiveUp(usize),
    Tick,
}

impl Bounds {
    /// Returns the key by which the broker compacts.
    fn record_key(&self, record: &Record) -> (Entry, usize) {
        let (entry, id) = match &record.operation {
            Operation::Bid(bid) => (bid.entry, bid.id),
            Operation::Removed { entry, id } => (*entry, *id),
        };
        match self.flaw {
            Some(Flaw::KeyedByEntry) => (entry, 0),
            Some(Flaw::KeyedByWriter) => (entry, record.writer),
            _ => (entry, usize::from(id)),
        }
    }

    /// Records from this offset on are too young to hide others: calls that began before it are still
    /// running.
    fn young_from(&self, world: &World) -> usize {
        if self.flaw == Some(Flaw::CompactsYoung) {
            return world.end;
        }
        let began = world.writers.iter().filter_map(|writer| match &writer.call {
            Some(Call::Commit { began, .. }) => Some(*began),
            Some(Call::Get { end, .. }) => Some(*end),
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
        // A removal is compacted when it hides nothing and no reader is slow enough to miss it.
        let is_removal = matches!(record.operation, Operation::Removed { .. });
        let hides = world.log[..index].iter().any(|earlier| self.record_key(earlier) == key);
        let missed =
            world.writers.iter().any(|writer| writer.position > 0 && writer.position <= record.offset);
        hidden || (is_removal && record.offset < young && !hides && !missed)
    }

    fn removes(&self, world: &World, writer: usize) -> Vec<(Entry, Id)> {
        // With other record keys, no record can be removed by its key.
        if matches!(self.flaw, Some(Flaw::KeyedByEntry | Flaw::KeyedByWriter)) {
            return Vec::new();
        }
        let table = &world.writers[writer].table;
        let mut garbage = table.garbage(0, usize::MAX);
        if self.flaw == Some(Flaw::ForgetsAtOnce) {
            let gone = |current: &&EntryState<Id, ()>| current.value.is_none();
            garbage.extend(
                (0..self.entries).filter_map(|e| table.get(&e).filter(gone).map(|gone| (e, gone.id))),
            );
        }
        garbage
    }
}

impl World {
    fn append(&mut self, writer: usize, operation: Operation<Entry, Id, ()>) {
        let (time, offset) = (self.clock, self.end);
        self.end += 1;
        let bid = match &operation {
            Operation::Bid(bid) => Some((bid.entry, bid.id, bid.value.is_none())),
            Operation::Removed { .. } => None,
        };
        let outcome = self.truth.apply(time, operation.clone());
        if let (Some((entry, id, deletes)), Some((outcome, _))) = (bid, outcome) {
            self.outcomes.insert(id, outcome);
            if outcome == BidOutcome::Won {
                let history = self.history.entry(entry).or_default();
                if history.last().is_some_and(|(_, deleted)| *deleted) {
                    self.wrong = Some("a deleted entry came back");
                }
                history.push((id, deletes));
            }
        }
        self.log.push(Record { offset, time, writer, operation });
    }

    /// Reads the next record, and answers the call that waits for it.
    fn read(&mut self, number: usize) {
        let writer = &mut self.writers[number];
        let Some(record) = self.log.iter().find(|record| record.offset >= writer.position) else { return };
        writer.position = record.offset + 1;
        let own = match (&record.operation, &writer.call) {
            (Operation::Bid(bid), Some(Call::Commit { id, .. })) if bid.id == *id => Some(*id),
            _ => None,
        };
        let outcome = writer.table.apply(record.time, record.operation.clone());
        if let (Some(id), Some((outcome, _))) = (own, outcome) {
            writer.call = None;
            if self.outcomes.get(&id) != Some(&outcome) {
                self.wrong = Some("a writer was told what is not true");
            }
        }
    }

    /// Checks that a get returns the value at its start, or a newer one.
    fn finish_get(&mut self, number: usize) {
        let writer = &mut self.writers[number];
        let Some(Call::Get { entry, end, step }) = writer.call.clone() else { return };
        // Compaction may have removed the records before the end.
        let there = self.log.iter().any(|record| record.offset >= writer.position && record.offset < end);
        if there {
            return;
        }
        writer.call = None;
        let history = self.history.get(&entry).map(Vec::as_slice).unwrap_or_default();
        let found = writer.table.get(&entry).filter(|current| current.value.is_some());
        let right = match found {
            Some(found) => {
                history.iter().skip(step.saturating_sub(1)).any(|(id, deleted)| *id == found.id && !deleted)
            }
            None => step == 0 || history.iter().skip(step - 1).any(|(_, deleted)| *deleted),
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
        let writer = Writer { table: EntryTable::new(MAX_BID_DELAY), position: 0, call: None };
        vec![World {
            log: Vec::new(),
            end: 0,
            clock: 0,
            in_flight: Vec::new(),
            writers: vec![writer; self.writers],
            truth: EntryTable::new(MAX_BID_DELAY),
            history: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            bids: 0,
            crashes: 0,
            gets: 0,
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
                        // All writers are equivalent here, so one of them is enough.
                        let known = |step: &Step| matches!(step, Step::Remove { entry: e, id: i, .. } if (*e, *i) == (entry, id));
                        if !world.removed.contains(&id) && !steps.iter().any(known) {
                            steps.push(Step::Remove { writer: number, entry, id });
                        }
                    }
                    for entry in 0..self.entries {
                        if world.bids < self.bids {
                            steps.push(Step::Start { writer: number, entry, delete: false });
                            if writer.table.get(&entry).is_some_and(|current| current.value.is_some()) {
                                steps.push(Step::Start { writer: number, entry, delete: true });
                            }
                        }
                        if world.gets < self.gets {
                            steps.push(Step::Get { writer: number, entry });
                        }
                    }
                }
            }
        }
        steps.extend((0..world.in_flight.len()).map(Step::Append));
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
                let current = writer.table.get(&entry).filter(|current| current.value.is_some());
                let expect = current.map(|current| current.version);
                let BidCheck::Bid(version) = writer.table.check_bid(&entry, expect) else { return None };
                // A deleted entry is not created again.
                if expect.is_none() && world.history.contains_key(&entry) && version == 1 {
                    let gone = world.history[&entry].last().is_some_and(|(_, deleted)| *deleted);
                    if gone {
                        return None;
                    }
                }
                let (id, seen) = (world.bids, writer.table.now());
                world.bids += 1;
                writer.call = Some(Call::Commit { id, began: world.end });
                let value = (!delete).then_some(());
                world.in_flight.push((number, Bid { entry, id, version, seen, value }));
            }
            Step::Append(index) => {
                let (writer, bid) = world.in_flight.remove(index);
                world.append(writer, Operation::Bid(bid));
            }
            Step::Read(number) => {
                world.read(number);
                world.finish_get(number);
            }
            Step::Remove { writer, entry, id } => {
                world.removed.insert(id);
                world.append(writer, Operation::Removed { entry, id });
            }
            Step::Get { writer, entry } => {
                world.gets += 1;
                let end = if self.flaw == Some(Flaw::GetsWithoutReading) { 0 } else { world.end };
                let step = world.history.get(&entry).map_or(0, Vec::len);
                world.writers[writer].call = Some(Call::Get { entry, end, step });
                world.finish_get(writer);
            }
            Step::Compact(index) => {
                world.log.remove(index);
                world.compacted = true;
                for number in 0..world.writers.len() {
                    world.finish_get(number);
                }
            }
            Step::Crash(number) => {
                world.crashes += 1;
                world.writers[number] =
                    Writer { table: EntryTable::new(MAX_BID_DELAY), position: 0, call: None };
            }
            Step::GiveUp(number) => world.writers[number].call = None,
            Step::Tick => world.clock += 1,
        }
        // The order of writers does not matter, unless records are keyed by writer.
        if self.flaw != Some(Flaw::KeyedByWriter) {
            world.writers.sort_unstable();
            world.log.iter_mut().for_each(|record| record.writer = 0);
            world.in_flight.iter_mut().for_each(|(writer, _)| *writer = 0);
            world.in_flight.sort_unstable_by_key(|(_, bid)| bid.id);
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing is wrong", |_, world: &World| world.wrong.is_none()),
            Property::sometimes("a bid loses", |_, world: &World| {
                world.outcomes.values().any(|outcome| *outcome == BidOutcome::Lost)
            }),
            Property::sometimes("a bid is void", |bounds: &Bounds, world: &World| {
                bounds.ticks < 2 || world.outcomes.values().any(|outcome| *outcome == BidOutcome::Void)
            }),
            Property::sometimes("a deleted entry is forgotten", |bounds: &Bounds, world: &World| {
                let forgotten = |(entry, history): (&Entry, &Vec<(Id, bool)>)| {
                    history.last().is_some_and(|(_, deleted)| *deleted) && world.truth.get(entry).is_none()
                };
                bounds.ticks < 2 || world.history.iter().any(forgotten)
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
    Bounds { writers: 3, entries: 2, bids: 3, crashes: 1, ticks: 0, gets: 0, flaw: None }
}

/// One entry less, and one get.
fn get_bounds() -> Bounds {
    Bounds { entries: 1, gets: 1, ..bounds() }
}

/// Fewer writers, and a clock: entries are deleted and forgotten.
fn long_bounds() -> Bounds {
    Bounds { writers: 2, entries: 1, bids: 3, crashes: 0, ticks: 2, gets: 1, flaw: None }
}

fn check_properties(bounds: Bounds) {
    let checker = check(bounds);
    eprintln!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

#[test]
fn three_writers_are_told_the_truth_whatever_crashes_and_is_compacted() {
    check_properties(bounds());
}

#[test]
fn readers_find_the_truth() {
    check_properties(get_bounds());
}

#[test]
fn deleted_entries_are_forgotten_and_do_not_come_back() {
    check_properties(long_bounds());
}

/// Each mistake in the rules, or in their assumptions, is found.
#[test]
fn planted_mistakes_are_found() {
    for (flaw, bounds) in [
        (Flaw::KeyedByEntry, get_bounds()),
        (Flaw::KeyedByWriter, get_bounds()),
        (Flaw::ForgetsAtOnce, long_bounds()),
        (Flaw::CompactsYoung, get_bounds()),
        (Flaw::GetsWithoutReading, get_bounds()),
    ] {
        let model = Bounds { flaw: Some(flaw), ..bounds };
        let checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
        assert!(checker.discovery("nothing is wrong").is_some(), "{flaw:?} is not found");
    }
}
