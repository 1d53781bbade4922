//! A test handler that records starts and ends, and ends only when released.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use sawmill::engine::runtime::Env;
use sawmill::handler::{Handler, IntoHandler};
use sawmill::{Context, Outcome, Timestamp};
use tokio::sync::{Semaphore, watch};

use super::place::nothing_is_left;
use super::support::DEADLINE;

/// More handlers than any test has.
const ALL: usize = 1 << 24;

/// Records the runs of the handlers of one or more workers. Clones share it.
#[derive(Clone)]
pub struct GatedHandler {
    runs: Arc<Mutex<Vec<Run>>>,
    started: watch::Sender<usize>,
    ended: watch::Sender<usize>,
    gate: Arc<Semaphore>,
}

/// One call of the handler.
#[derive(Clone)]
pub struct Run {
    pub worker: String,
    pub context: Context,
    pub at: Timestamp,
    /// How many calls had started when this one ended.
    pub ended_after: Option<usize>,
}

impl Run {
    pub fn payload(&self) -> String {
        String::from_utf8_lossy(self.context.payload()).into_owned()
    }

    pub fn key(&self) -> String {
        self.context.key().map(|key| String::from_utf8_lossy(key).into_owned()).unwrap_or_default()
    }
}

impl GatedHandler {
    /// Makes a handler that ends at once.
    pub fn open() -> Self {
        let gated = Self::closed();
        gated.release_all();
        gated
    }

    /// Makes a handler that ends when released.
    pub fn closed() -> Self {
        Self {
            runs: Arc::default(),
            started: watch::Sender::new(0),
            ended: watch::Sender::new(0),
            gate: Arc::new(Semaphore::new(0)),
        }
    }

    /// Lets this many handlers end, those that have waited longest first.
    pub fn release(&self, count: usize) {
        self.gate.add_permits(count);
    }

    pub fn release_all(&self) {
        self.release(ALL);
    }

    /// Returns a handler with the outcome done.
    pub fn seat(&self, worker: &str) -> impl Handler {
        self.seat_that(worker, |_| Outcome::Done)
    }

    /// Returns a handler with the given outcomes.
    pub fn seat_that(
        &self,
        worker: &str,
        says: impl Fn(&Context) -> Outcome + Send + Sync + 'static,
    ) -> impl Handler {
        let (gated, worker, says) = (self.clone(), worker.to_owned(), Arc::new(says));
        let handler = move |context: Context| {
            let (gated, says) = (gated.clone(), says.clone());
            let run = Run {
                worker: worker.clone(),
                context: context.clone(),
                at: Env::system().wall(),
                ended_after: None,
            };
            let index = {
                let mut runs = gated.runs.lock().unwrap();
                runs.push(run);
                runs.len() - 1
            };
            gated.started.send_modify(|started| *started += 1);
            async move {
                gated.gate.acquire().await.unwrap().forget();
                {
                    let mut runs = gated.runs.lock().unwrap();
                    runs[index].ended_after = Some(runs.len());
                }
                gated.ended.send_modify(|ended| *ended += 1);
                says(&context)
            }
        };
        handler.into_handler()
    }

    /// Waits until this many calls have started in all.
    pub async fn started(&self, count: usize) {
        self.reaches(&self.started, count, "start").await;
    }

    /// Waits until this many calls have ended in all.
    pub async fn ended(&self, count: usize) {
        self.reaches(&self.ended, count, "end").await;
    }

    async fn reaches(&self, number: &watch::Sender<usize>, count: usize, what: &str) {
        let (env, mut number) = (Env::system(), number.subscribe());
        if env.within(DEADLINE, number.wait_for(|number| *number >= count)).await.is_some() {
            return;
        }
        let seen = self.seen();
        // A started handler may take long to end. A message that has neither started nor is waiting never
        // starts.
        if self.count() < count && nothing_is_left().await && self.count() < count {
            panic!("lost: of {count} handlers some never start, and nothing waits any more; {seen}");
        }
        panic!("test timed out: {count} handlers {what}; {seen}");
    }

    /// Describes the state when a wait has expired. If handlers still start, the machine is slow; if none has
    /// started for long and none is running, the expected event will not come.
    fn seen(&self) -> String {
        let (runs, ended) = (self.runs(), *self.ended.borrow());
        let messages: BTreeSet<_> =
            runs.iter().map(|run| (run.context.group().to_string(), run.context.id())).collect();
        let last = match runs.iter().map(|run| run.at).max() {
            Some(at) => format!(", the last {:.1} s ago", Env::system().wall().since(at).as_secs_f64()),
            None => String::new(),
        };
        let ending = match self.gate.available_permits() {
            permits if permits > ALL / 2 => "all".to_owned(),
            permits => permits.to_string(),
        };
        format!(
            "{} have started{last}, with {} messages; {ended} have ended, and {ending} more may",
            runs.len(),
            messages.len(),
        )
    }

    pub fn runs(&self) -> Vec<Run> {
        self.runs.lock().unwrap().clone()
    }

    pub fn count(&self) -> usize {
        *self.started.borrow()
    }

    /// Returns the payloads in the order of their starts.
    pub fn payloads(&self) -> Vec<String> {
        self.runs().iter().map(Run::payload).collect()
    }

    /// Returns the payloads as sorted numbers.
    pub fn numbers(&self) -> Vec<usize> {
        let mut numbers: Vec<usize> =
            self.payloads().iter().map(|payload| payload.parse().unwrap()).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Returns the runs of this worker.
    pub fn runs_of(&self, worker: &str) -> Vec<Run> {
        self.runs().into_iter().filter(|run| run.worker == worker).collect()
    }
}
