//! Many seeds: run on several threads, and put together in the order of the seeds, so that nothing depends on the threads.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once};
use std::time::Duration;

use crate::checker::{Checks, Invariant, VIOLATION, Violation};
use crate::dice::mix;
use crate::faults::Tally;
use crate::features::Features;
use crate::scenario::{self, History, Options};
use crate::store::EngineBug;
use crate::tasks::lock;
use crate::trace::Line;

/// Which seeds to run, and how.
#[derive(Debug, Clone, Copy)]
pub struct Batch {
    /// The first seed.
    pub start: u64,
    /// How many seeds.
    pub seeds: u64,
    /// On how many threads.
    pub threads: usize,
    /// A bug in the engines.
    pub bug: Option<EngineBug>,
    /// Only a violation of this invariant counts as a failure. Seeds that fail in another way are passed over: a planted bug
    /// must be found by the invariant that it names.
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

/// What came of many seeds.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// How many were run, the failing one included.
    pub seeds: u64,
    /// The simulated time of all.
    pub time: Duration,
    /// How many messages were pushed and acknowledged.
    pub pushed: u64,
    /// How many handlers were started.
    pub starts: u64,
    /// How often a store's format was raised.
    pub formats_raised: u64,
    /// How many histories have an end that does not count.
    pub void: u64,
    /// Which faults struck.
    pub tally: Tally,
    /// Which features were used.
    pub features: Features,
    /// How often each invariant was checked.
    pub checks: Checks,
    /// One number for all traces.
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

/// How a bug shows.
#[derive(Debug, Clone)]
pub enum Found {
    /// Something that must always hold did not.
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

/// Runs seeds until all are done or one fails; then those before it are still finished, so that it is the first.
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
    /// What the last panic inside a seed said; `None` outside of seeds.
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs one seed. A panic of the core is an answer, not an end.
pub fn run_seed(seed: u64, options: Options) -> Result<History, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let inside =
                SAID.with_borrow_mut(|said| said.as_mut().map(|said| *said = info.to_string()).is_some());
            if !inside {
                before(info);
            }
        }));
    });
    SAID.set(Some(String::new()));
    let result = panic::catch_unwind(AssertUnwindSafe(|| scenario::run(seed, options)));
    let said = SAID.take().unwrap_or_default();
    result.map_err(|_| said)
}

/// The lines of a failing seed that matter: about what failed, and what happened to nodes and store; the latest of them.
///
/// `about` replaces what decides which lines matter: all lines that contain it.
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
    let strokes = [
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
            || strokes.iter().any(|stroke| line.text.contains(stroke) && !is_renewal(&line.text))
    };
    let end = history.lines.iter().position(|line| line.text.starts_with(VIOLATION));
    let upto = &history.lines[..end.map_or(history.lines.len(), |end| end + 1)];
    let lines: Vec<Line> = upto.iter().filter(matters).cloned().collect();
    lines[lines.len().saturating_sub(most)..].to_vec()
}

/// A beat of a member: there are many, and only the first and the last say something.
fn is_renewal(text: &str) -> bool {
    text.contains("members/") && !text.contains("v0 ->") && !text.ends_with("deleted")
}
