//! The simulation: the real core on a simulated clock, a seeded scheduler, and engines that misbehave.
//!
//! One seed is one history, and the same seed gives the same trace. [`Sim`] runs the tasks of all nodes on one thread
//! and owns time and randomness. [`SimStore`] is the store that all nodes share, reached over a network that delays,
//! reorders, loses and doubles within what the two seams allow. [`Tally`] says which faults really struck, and an
//! [`Observer`] sees every effect at the moment it happens.

pub mod checker;
mod control;
mod dice;
mod entries;
mod executor;
mod faults;
mod features;
mod here;
mod ledger;
mod log;
mod network;
mod observer;
pub mod runner;
pub mod scenario;
mod shelf;
mod store;
mod tasks;
mod trace;

pub use control::{Control, NodeId};
pub use dice::Seeded;
pub use executor::{Ended, Limits, Sim};
pub use faults::{Chance, Delay, FaultKind, Faults, Tally};
pub use features::{Feature, Features};
pub use ledger::SimLedger;
pub use log::SimLog;
pub use network::Seam;
pub use observer::{Event, Observer};
pub use store::{EngineBug, Settings, SimStore};
pub use trace::{Line, Trace};
