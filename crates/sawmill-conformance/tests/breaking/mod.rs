//! The in-memory engine with one fault.

mod ledger;
mod log;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use sawmill::engine::{Namespace, Store};
use sawmill::ledger::{Entry, EntryKey};
use sawmill::log::Record;
use sawmill::memory::Memory;
use sawmill_conformance::Factory;

/// Which promise is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    SkipsALateMessage,
    TurnsBatchesRound,
    ReadsWhatIsNotDue,
    GoesByItsOwnClock,
    PromotesInOrderOfPushing,
    PromotesWithoutLimit,
    HidesTheNextDueTime,
    AddsAgain,
    AppendsInPart,
    AcceptsAnyTopic,
    NeverSaysMore,
    AlwaysSaysMore,
    AnswersByShard,
    RereadsWhatIsThereNow,
    RereadsWhatIsLeft,
    TrimsTheYoung,
    TrimsBeyondThePosition,
    TrimsUpToTheLast,
    TrimsByWhatItWasTold,
    CountsInAnotherOrder,
    FindsOnlyWhatIsReadable,
    SeeksToTheEnd,
    TakesAnEmptyKeyForNone,
    KeepsOneHeaderOfAName,
    CutsPayloads,
    DeletesByName,
    FindsWithOtherShards,
    SharesNamespaces,
    ForgetsAtReopen,
    GivesNoHints,
    IgnoresVersions,
    ComparesBeforeItWrites,
    LetsEveryoneCreate,
    BringsBackTheDeleted,
    DeletesAnyVersion,
    TakesTheSameValueForNoChange,
    CutsValues,
    ListsByWholeParts,
    ListsByPattern,
    ListsBackwards,
    ReadsItsCache,
    SharesEntries,
    ForgetsEntriesAtReopen,
    GivesNoWatchHints,
}

/// Opens engines with one fault.
pub(crate) struct Breaking {
    fault: Fault,
    opened: Mutex<HashMap<String, Opened>>,
}

/// What all handles on one namespace share.
#[derive(Clone, Default)]
struct Opened {
    inner: Memory,
    notes: Arc<Mutex<Notes>>,
}

/// What a broken engine remembers, for all handles, beside what it holds.
#[derive(Default)]
pub(crate) struct Notes {
    seen: Vec<u128>,
    aside: Vec<Record>,
    read: usize,
    skipped: bool,
    /// Up to which number of each shard it was told that nothing is needed.
    trimmed: BTreeMap<usize, u64>,
}

/// One handle on an engine with one fault.
#[derive(Clone)]
pub(crate) struct Broken {
    fault: Fault,
    inner: Memory,
    notes: Arc<Mutex<Notes>>,
    /// What this handle alone remembers of entries.
    cache: Arc<Mutex<BTreeMap<EntryKey, Entry>>>,
}

impl Breaking {
    pub(crate) fn new(fault: Fault) -> Self {
        Self { fault, opened: Mutex::default() }
    }
}

#[async_trait]
impl Factory for Breaking {
    async fn open(&self, namespace: &Namespace) -> Store {
        let mut opened = self.opened.lock().expect("nobody panics while holding it");
        if matches!(self.fault, Fault::ForgetsAtReopen | Fault::ForgetsEntriesAtReopen) {
            opened.clear();
        }
        let shared = matches!(self.fault, Fault::SharesNamespaces | Fault::SharesEntries);
        let name = if shared { "shared" } else { namespace.as_str() };
        let Opened { inner, notes } = opened.entry(name.to_owned()).or_default().clone();
        let broken = Broken { fault: self.fault, inner, notes, cache: Arc::default() };
        Store { log: Some(Arc::new(broken.clone())), ledger: Some(Arc::new(broken)) }
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(300)
    }
}
