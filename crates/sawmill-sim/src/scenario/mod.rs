//! Runs the history of one seed: the real core with crashing workers and a failing store, then quiet, then
//! the final checks.

mod deletes;
mod driver;
mod extras;
mod feature_counter;
mod incidents;
mod journals;
mod letters;
mod plan;
mod ticks;
mod user_tasks;
mod versions;
mod workers;
mod world;

use std::sync::Arc;
use std::time::Duration;

use crate::checker::{Checker, Checks, Violation};
use crate::executor::{Ended, Limits, Sim};
use crate::faults::{Faults, Tally};
use crate::features::{Feature, Features};
use crate::store::{EngineBug, Settings, SimStore};
use crate::trace::Line;
pub use deletes::DeletePlan;
use driver::Driver;
pub use extras::{Extras, LetterAction, LetterTask, Style};
pub(crate) use feature_counter::{PEOPLE, is_resent};
pub use incidents::{Incident, IncidentPlan, StoreFaults};
pub use plan::{
    CalmDeath, GroupPlan, Manner, MessagePlan, Plan, PushPlan, SeekPlace, TopicPlan, UserAction, UserTask,
    WorkerPlan,
};
pub use ticks::TickPlan;
use versions::Versions;
use world::World;

/// The result of one seed.
#[derive(Debug, Clone)]
pub struct History {
    /// The seed.
    pub seed: u64,
    /// The hash of the trace, equal for equal runs.
    pub hash: u64,
    /// The simulated time.
    pub time: Duration,
    /// How many pushed messages were acknowledged.
    pub pushed: u64,
    /// How many handlers were started.
    pub starts: u64,
    /// How often the store's format was raised.
    pub formats_raised: u64,
    /// Which faults took effect.
    pub tally: Tally,
    /// Which features were used.
    pub features: Features,
    /// How often each invariant was checked.
    pub checks: Checks,
    /// Later findings do not count; see [`Book::is_void`](crate::checker::Book::is_void).
    pub is_void: bool,
    /// The violation, if there was one.
    pub violation: Option<Violation>,
    /// The latest trace lines, if requested.
    pub lines: Vec<Line>,
}

/// How to run a seed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// A planted bug in the engines.
    pub bug: Option<EngineBug>,
    /// How many trace lines to keep.
    pub lines: usize,
}

/// Runs the history of a seed.
///
/// # Panics
///
/// If a task of the core panics.
pub fn run(seed: u64, options: Options) -> History {
    let plan = Arc::new(Plan::of(seed));
    let sim = Sim::with_history(seed, options.lines);
    let control = sim.control();
    let settings = Settings {
        idempotent_append: plan.idempotent,
        undoes: plan.extras.store_crashes > 0,
        bug: options.bug,
    };
    let store = SimStore::new(&control, settings, Faults::calm());
    let checker = Arc::new(Checker::new(&control, &store, plan.rules()));
    if plan.extras.store_crashes > 0 {
        checker.book().store_may_undo();
    }
    store.observe(checker.clone());
    store.observe(Arc::new(feature_counter::FeatureCounter::new(&control)));
    let world = World::new(plan, control, store.clone(), checker.clone(), Versions::of(seed));
    let limits = Limits { time: Duration::from_secs(100_000), steps: 5_000_000, ..Limits::default() };
    let ended = sim.run(limits, Driver::new(world).run());
    if ended != Ended::Finished(()) {
        checker.book().not_ended(&format!("{ended:?}"));
    }
    store.dismiss_observers();
    let book = checker.book();
    (0..book.formats_raised()).for_each(|_| sim.control().used(Feature::FormatRaised));
    let trace = sim.trace();
    History {
        seed,
        hash: trace.hash(),
        time: sim.now(),
        pushed: book.acknowledged_count(),
        starts: book.starts(),
        formats_raised: book.formats_raised(),
        tally: sim.tally(),
        features: sim.features(),
        checks: book.checks().clone(),
        is_void: book.is_void(),
        violation: book.violation().cloned(),
        lines: trace.lines().cloned().collect(),
    }
}
