//! The metrics of a node. `table` says which there are, `meter` counts and times changes, `export` reads all numbers
//! at a scrape. The DNS server and the learner count for themselves.

mod export;
mod meter;
mod table;

pub(crate) use export::NodeMetrics;
pub(crate) use meter::{Meter, add, read};
pub use table::METRICS;
