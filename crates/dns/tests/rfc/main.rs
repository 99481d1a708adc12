//! What the RFCs ask of a forwarder that reads answers, in folders named after
//! the section each test pins. `wire` is asked directly, the server over sockets.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod agreement;
mod check;
mod corpus;
mod rfc1034;
mod rfc1035;
mod rfc2181;
mod rfc3597;
mod rfc4035;
mod rfc4343;
mod rfc5452;
mod rfc6891;
mod rfc7766;
mod rfc8482;
mod rfc9619;

#[path = "../support/message.rs"]
mod message;
#[path = "../support/naive.rs"]
mod naive;
#[path = "../support/peer.rs"]
mod peer;
#[path = "../support/stub.rs"]
mod stub;

/// Fails unless all readers agree on the message.
fn agree(message: &[u8]) {
    naive::agree(message);
    peer::agree(message);
}
