//! The server with real sockets on loopback, against upstreams that do what a test says.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod forwarding;
mod holding;
#[path = "../support/stub.rs"]
mod stub;
mod tcp;
