//! The numbers of rtnetlink's messages about links that several modules use.

use super::{DUMP, Error, Messages, Received};

pub const NEW_LINK: u16 = 16;
pub const GET_LINK: u16 = 18;

/// The length of the fixed part of a message about a link.
pub const LINK_HEADER: usize = 16;
pub const LINK_HARDWARE: u16 = 1;
pub const LINK_NAME: u16 = 3;
/// The index of a veth's other end.
pub const LINK_PEER: u16 = 5;
/// The bridge that the link is a port of.
pub const LINK_MASTER: u16 = 10;
pub const LINK_INFO: u16 = 18;
/// The number of the network namespace that a veth's other end is in.
pub const LINK_NAMESPACE: u16 = 37;
pub const INFO_KIND: u16 = 1;
pub const INFO_DATA: u16 = 2;

/// How often a dump is tried that changes interrupt.
const ATTEMPTS: u32 = 10;

/// Reads again what changes have interrupted, some times.
pub fn uninterrupted<T>(mut dump: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 1..ATTEMPTS {
        match dump() {
            Err(Error::Interrupted) => {}
            done => return done,
        }
    }
    dump()
}

/// The index of the interface that a message about a link or an address is for.
pub(super) fn index(message: Received<'_>) -> Option<u32> {
    message.body.get(4..8)?.try_into().ok().map(u32::from_ne_bytes)
}

/// Asks for all there is, of every family.
pub(super) fn request(kind: u16, header: usize) -> Messages {
    let mut messages = Messages::new();
    messages.begin(kind, DUMP, &vec![0; header]);
    messages
}
