//! Runs many seeds on several threads. Results are combined in the order of the seeds, so that they do not
//! depend on the threads.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once};
use std::time::Duration;

use crate::checker::{Checks, Invariant, VIOLATION, Violation};
use crate::faults::Tally;
use crate::features::Features;
use crate::rng::mix;
use crate::scenario::{self, History, Options};
use crate::store::EngineBug;
use crate::tasks::lock;
use crate::trace::Line;

/// The seeds to run, and how.
#[derive(Debug, Clone, Copy)]
pub struct Batch {
    /// The first seed.
    pub start: u64,
    /// The number of seeds.
    pub seeds: u64,
    /// The number of threads.
    pub threads: usize,
    /// A planted bug in the engines.
    pub bug: Option<EngineBug>,
    /// Only a violation of this invariant counts as a failure; seeds that fail in another way are skipped. A
    /// planted bug must be found by the invariant that it names.
    pub wanted: Option<Invariant>,
}

impl Batch {
    fn has_failed(&self, result: &Result<History, String>) -> bool {
        match (result, self.wanted) {
            (Ok(history), None) => history.violation.is_some(),
            (Ok(history), Some(wanted)) => {
                history.violation.as_ref().is_some_and(|found| found.invariant == wanted)
            }
            (Err(_), wanted) => wanted.is_none(),
        }
    }
}

/// The combined result of many seeds.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// How many were run, including the failing one.
    pub seeds: u64,
    /// The sum of their simulated times.
    pub time: Duration,
    /// How many pushed messages were acknowledged.
    pub pushed: u64,
    /// How many handlers were started.
    pub starts: u64,
    /// How often a store's format was raised.
    pub formats_raised: u64,
    /// How many histories are void.
    pub void: u64,
    /// Which faults took effect.
    pub tally: Tally,
    /// Which features were used.
    pub features: Features,
    /// How often each invariant was checked.
    pub checks: Checks,
    /// The combined hash of all traces.
    pub hash: u64,
    /// The first seed that failed.
    pub failure: Option<Failure>,
}

/// A seed that failed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// How it failed.
    pub found: Found,
}

/// How a failure was found.
#[derive(Debug, Clone)]
pub enum Found {
    /// An invariant was violated.
    Violation(Violation),
    /// The core panicked.
    Panic(String),
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Found::Violation(violation) => violation.fmt(f),
            Found::Panic(what) => write!(f, "panic: {what}"),
        }
    }
}

/// Runs seeds until all are done or one fails. Seeds before the failing one are still finished, so that the
/// reported failure is the first.
pub fn run(batch: Batch, progress: &(dyn Fn(u64) + Sync)) -> Summary {
    let end = batch.start.saturating_add(batch.seeds);
    let next = AtomicU64::new(batch.start);
    let first_failed = AtomicU64::new(u64::MAX);
    let finished = AtomicU64::new(0);
    let results: Mutex<BTreeMap<u64, Result<History, String>>> = Mutex::default();
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::SeqCst);
            if seed >= end || seed > first_failed.load(Ordering::SeqCst) {
                return;
            }
            let result = run_seed(seed, Options { bug: batch.bug, lines: 0 });
            if batch.has_failed(&result) {
                first_failed.fetch_min(seed, Ordering::SeqCst);
            }
            lock(&results).insert(seed, result);
            progress(finished.fetch_add(1, Ordering::SeqCst) + 1);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..batch.threads.max(1) {
            scope.spawn(work);
        }
    });
    let mut summary = Summary::default();
    let results = std::mem::take(&mut *lock(&results));
    for (seed, result) in results {
        let failed = batch.has_failed(&result);
        summary.add(seed, result, failed);
        if failed {
            break;
        }
    }
    summary
}

impl Summary {
    fn add(&mut self, seed: u64, result: Result<History, String>, failed: bool) {
        self.seeds += 1;
        let history = match result {
            Ok(history) => history,
            Err(panic) => {
                self.failure = failed.then_some(Failure { seed, found: Found::Panic(panic) });
                return;
            }
        };
        self.time += history.time;
        self.pushed += history.pushed;
        self.starts += history.starts;
        self.formats_raised += history.formats_raised;
        self.void += u64::from(history.is_void);
        self.tally += &history.tally;
        self.features += &history.features;
        self.checks += &history.checks;
        self.hash = mix(self.hash.rotate_left(1) ^ history.hash);
        self.failure = history
            .violation
            .filter(|_| failed)
            .map(|violation| Failure { seed, found: Found::Violation(violation) });
    }
}

thread_local! {
    /// The message of the last panic inside a seed; `None` outside of seeds.
    static PANIC_MESSAGE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs one seed. A panic of the core becomes an error.
pub fn run_seed(seed: u64, options: Options) -> Result<History, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let inside = PANIC_MESSAGE.with_borrow_mut(|message| {
                message.as_mut().map(|message| *message = info.to_string()).is_some()
            });
            if !inside {
                before(info);
            }
        }));
    });
    PANIC_MESSAGE.set(Some(String::new()));
    let result = panic::catch_unwind(AssertUnwindSafe(|| scenario::run(seed, options)));
    let message = PANIC_MESSAGE.take().unwrap_or_default();
    result.map_err(|_| message)
}

/// Returns the latest relevant lines of a failing seed: about the failure, and about nodes and the store.
///
/// `about` selects the lines that contain it instead.
pub fn lines_that_matter(
    failure: &Failure,
    bug: Option<EngineBug>,
    about: Option<&str>,
    most: usize,
) -> Vec<Line> {
    let Ok(history) = run_seed(failure.seed, Options { bug, lines: 1_000_000 }) else { return Vec::new() };
    let only = about;
    let about: &[String] = match &failure.found {
        Found::Violation(violation) => &violation.about,
        Found::Panic(_) => &[],
    };
    let markers = [
        "! crash",
        "! freeze",
        "thawed",
        "cut off",
        "reaches the store",
        " is out",
        " is back",
        "members/",
        VIOLATION,
    ];
    let matters = |line: &&Line| {
        if let Some(only) = only {
            return line.text.contains(only);
        }
        about.is_empty()
            || about.iter().any(|text| line.text.contains(text))
            || markers.iter().any(|marker| line.text.contains(marker) && !is_renewal(&line.text))
    };
    let end = history.lines.iter().position(|line| line.text.starts_with(VIOLATION));
    let upto = &history.lines[..end.map_or(history.lines.len(), |end| end + 1)];
    let lines: Vec<Line> = upto.iter().filter(matters).cloned().collect();
    lines[lines.len().saturating_sub(most)..].to_vec()
}

/// Returns true for a heartbeat of a member. There are many, and only the first and the last matter.
fn is_renewal(text: &str) -> bool {
    text.contains("members/") && !text.contains("v0 ->") && !text.ends_with("deleted")
}
