//! The runtime: where the library reads time and randomness, and where it runs its tasks.
//!
//! A program uses [`Env::system`]. The simulation provides its own clock, random numbers and scheduler. It
//! thereby controls everything that could make two runs differ. `clippy.toml` forbids all other sources.

mod clock;
mod env;
mod rng;

pub use clock::{Clock, Moment, SystemClock, Timestamp};
pub use env::{Env, Spawn, yield_now};
pub use rng::{Rng, SystemRng};
