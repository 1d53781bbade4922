//! The simulation: the real core on a simulated clock, with a seeded scheduler and faulty engines.
//!
//! A seed determines the whole history: the same seed gives the same trace. [`Sim`] runs the tasks of all
//! nodes on one thread and controls time and random numbers. [`SimStore`] is the store that all nodes share.
//! Its network delays, reorders, loses and duplicates within what the two storage interfaces allow. [`Tally`]
//! counts the faults that took effect, and an [`Observer`] sees every effect at the moment it happens.

pub mod checker;
mod control;
mod entries;
mod executor;
mod faults;
mod faulty_log;
mod features;
mod ledger;
mod log;
mod network;
mod node_env;
mod observer;
mod rng;
pub mod runner;
pub mod scenario;
mod store;
mod tasks;
mod topic_messages;
mod trace;

pub use control::{Control, NodeId};
pub use executor::{Ended, Limits, Sim};
pub use faults::{Chance, Delay, FaultKind, Faults, Tally};
pub use features::{Feature, Features};
pub use ledger::SimLedger;
pub use log::SimLog;
pub use network::Seam;
pub use observer::{Event, Observer};
pub use rng::Seeded;
pub use store::{EngineBug, Settings, SimStore};
pub use trace::{Line, Trace};
