//! The server with real sockets on loopback, against upstreams that do what a test says.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod forwarding;
mod holding;
mod judged;
mod moving;
#[path = "../support/stub.rs"]
mod stub;
mod tcp;
