//! What is told of questions, over real sockets: a DNS server with a Corefile, clients that ask it, an
//! upstream, and whoever is told: a log, dnstap's own reader, HTTP.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod dnstap;
mod endpoints;
mod errors;
mod metrics;
mod support;
mod taps;
