//! `namewall dns` and a real CoreDNS are asked the same questions: `kubernetes` beside one API server, and plain
//! directives. Intended differences are rows of docs/coredns.md; any other difference fails.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(dead_code, reason = "the processes and ports are shared with the tests in `dns`")]

mod ask;
mod cluster;
mod corefiles;
mod differences;
mod encrypted;
mod kubernetes;
mod options;
mod peer;
mod plain;
#[path = "../dns/ports.rs"]
mod ports;
#[path = "../dns/process.rs"]
mod process;
mod real;
