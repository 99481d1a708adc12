//! Tells the log when an upstream DNS server stops to answer, and when it answers
//! again.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use tracing::{info, warn};

/// The upstream servers that do not answer.
#[derive(Debug, Default)]
pub(crate) struct SilentUpstreams(BTreeSet<SocketAddr>);

impl SilentUpstreams {
    /// Takes the servers that do not answer now, of this many.
    pub(crate) fn set(&mut self, silent: BTreeSet<SocketAddr>, count: usize) {
        for server in silent.difference(&self.0) {
            match silent.len() == count {
                true => warn!(%server, "an upstream DNS server does not answer, and no other is left: no name opens"),
                false => warn!(%server, "an upstream DNS server does not answer; the others are asked"),
            }
        }
        for server in self.0.difference(&silent) {
            info!(%server, "an upstream DNS server answers again, or is no longer asked");
        }
        self.0 = silent;
    }
}
