//! The server with real sockets on loopback, against upstreams that do what a test says.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod fairness;
mod forwarding;
mod holding;
mod joining;
mod judged;
mod letter_case;
mod loops;
mod moving;
mod replaced;
mod spoofing;
#[path = "../support/stub.rs"]
mod stub;
mod takeover;
mod tcp;
mod turns;
