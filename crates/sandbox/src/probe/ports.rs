//! Ports and numbers to start from.

use rustc_hash::FxHashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

const FIRST: u16 = 32_768;
const LAST: u16 = 60_999;

/// The port (or the identifier) of the next probe, for each pair of hosts.
#[derive(Default, Debug)]
pub(crate) struct Ports(Mutex<FxHashMap<(IpAddr, IpAddr), u16>>);

impl Ports {
    pub(crate) fn next(&self, from: IpAddr, to: IpAddr) -> u16 {
        let mut ports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let port = ports.entry((from, to)).or_insert(LAST);
        *port = if *port == LAST { FIRST } else { *port + 1 };
        *port
    }
}

/// A number nobody else has sent.
pub(crate) fn nonce() -> u64 {
    RandomState::new().build_hasher().finish()
}
