//! What namewall asks of the machine it runs on: time, randomness, tasks, and
//! files that are safe to open. Each but the last is a trait, so that the same code runs on a machine and in a
//! deterministic simulation, where all of them follow from one seed.
//!
//! There is no tokio here: the crate that needs tokio implements [`Tasks`] with
//! it. The API server and DNS are seams too; they belong to the crates that use
//! them.

mod clock;
pub mod files;
mod random;
mod tasks;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

#[cfg(any(test, feature = "testing"))]
pub use clock::ShiftedClock;
pub use clock::{Clock, ManualClock, SystemClock};
pub use namewall_policy::Instant;
pub use random::{Random, SeededRandom};
pub use tasks::{BoxFuture, Tasks, TimedOut, in_time};
