//! DNS over TLS and HTTPS with real sockets on loopback: clients that behave, clients that do not, and upstreams.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod hostile;
mod http;
mod pki;
mod relay;
mod serving;
#[path = "../support/stub.rs"]
mod stub;
mod upstream;
