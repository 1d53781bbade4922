//! The in-memory engine with one fault.

mod ledger;
mod log;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use sawmill::engine::storage::{Entry, EntryKey, Memory, Namespace, OpenedStore, Record};
use sawmill_conformance::Factory;

/// The broken promise.
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

/// The state shared by all handles on one namespace.
#[derive(Clone, Default)]
struct Opened {
    inner: Memory,
    notes: Arc<Mutex<Notes>>,
}

/// State of a broken engine beyond its data, shared by all handles.
#[derive(Default)]
pub(crate) struct Notes {
    seen: Vec<u128>,
    aside: Vec<Record>,
    read: usize,
    skipped: bool,
    /// For each shard, the number up to which messages were reported as not needed.
    trimmed: BTreeMap<usize, u64>,
}

/// One handle on an engine with one fault.
#[derive(Clone)]
pub(crate) struct Broken {
    fault: Fault,
    inner: Memory,
    notes: Arc<Mutex<Notes>>,
    /// Entries cached by this handle alone.
    cache: Arc<Mutex<BTreeMap<EntryKey, Entry>>>,
}

impl Breaking {
    pub(crate) fn new(fault: Fault) -> Self {
        Self { fault, opened: Mutex::default() }
    }
}

#[async_trait]
impl Factory for Breaking {
    async fn open(&self, namespace: &Namespace) -> OpenedStore {
        let mut opened = self.opened.lock().expect("nobody panics while holding it");
        if matches!(self.fault, Fault::ForgetsAtReopen | Fault::ForgetsEntriesAtReopen) {
            opened.clear();
        }
        let shared = matches!(self.fault, Fault::SharesNamespaces | Fault::SharesEntries);
        let name = if shared { "shared" } else { namespace.as_str() };
        let Opened { inner, notes } = opened.entry(name.to_owned()).or_default().clone();
        let broken = Broken { fault: self.fault, inner, notes, cache: Arc::default() };
        OpenedStore { log: Some(Arc::new(broken.clone())), ledger: Some(Arc::new(broken)) }
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(300)
    }
}
