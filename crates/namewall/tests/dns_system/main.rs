//! `namewall dns` with programs of others: dig asks it, and an API server takes what it writes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(dead_code, reason = "the processes and ports are shared with the tests in `dns`")]

mod cluster;
mod dig;
#[path = "../dns/ports.rs"]
mod ports;
#[path = "../dns/process.rs"]
mod process;
