//! Programs that people use, against the real server: whatever a client shows
//! as an address must have been learned before it got it (S6.6, S6.12). The
//! resolvers of glibc and musl ask in a namespace of their own, where the
//! server has the port that resolv.conf cannot change.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod delv;
mod dig;
mod glibc;
mod kdig;
mod musl;
mod namespace;
mod program;
mod zone;

#[path = "../support/message.rs"]
mod message;
#[path = "../support/stub.rs"]
mod stub;
