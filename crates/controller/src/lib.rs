//! One for a cluster: there is a DNSNameResolver for every name that policies
//! speak of, its addresses are looked up again when their time is up, and what
//! is over goes (S8). Of several replicas one does it, the others are ready.
//!
//! `wanted` says which names there are to be, `schedule` which are due: both are
//! pure. `lookup` asks; `controller` does it all in turn.

mod controller;
mod lookup;
mod schedule;
mod wanted;

pub use controller::{Controller, Counts, Settings};
pub use schedule::Schedule;
pub use wanted::{Whose, resolvers, wanted};
