//! `namewall dns` with programs of others: dig asks it, an API server takes what it writes, and Prometheus
//! scrapes it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(dead_code, reason = "the processes and ports are shared with the tests in `dns`")]

mod cluster;
mod clusters;
mod dig;
#[path = "../dns/ports.rs"]
mod ports;
#[path = "../dns/process.rs"]
mod process;
mod prometheus;
