//! When an address that DNS no longer returns has to be closed (S8.7): within its TTL and the grace, on both nodes.

use crate::dns::TTL;
use crate::stage::GRACE;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// How much later it may be seen. An answer from just before the move is written, seen by both nodes and put into their
/// kernels, whose timeouts are whole seconds; requests pass kubectl's proxy, and a probe takes its time.
const TOLERANCE: Duration = Duration::from_secs(5);

/// The address that the name had before it moved.
pub(crate) struct Closing {
    pub(crate) address: Ipv4Addr,
    /// When DNS has last returned it, or when lookups last could fail: a name keeps its addresses for five more tries.
    since: Instant,
    /// False while lookups may fail, or may have to wait for their turn.
    counts: bool,
    /// How long it took until both nodes had closed it.
    took: Option<Duration>,
}

impl Closing {
    /// DNS returns another address from now on.
    pub(crate) fn begin(address: Ipv4Addr, counts: bool) -> Self {
        Self { address, since: Instant::now(), counts, took: None }
    }

    /// From now on lookups succeed.
    pub(crate) fn count_from_now(&mut self) {
        if !self.counts {
            (self.since, self.counts) = (Instant::now(), true);
        }
    }

    pub(crate) fn took(&self) -> Option<Duration> {
        self.took
    }

    pub(crate) fn is_awaited(&self) -> bool {
        self.took.is_none()
    }

    /// Takes which nodes have it open, as probes that began at a time have shown. Says what is wrong with that.
    pub(crate) fn see(&mut self, probed: Instant, open: &[bool]) -> Result<(), String> {
        if !open.contains(&true) {
            self.took.get_or_insert(probed.saturating_duration_since(self.since));
            return Ok(());
        }
        let age = probed.saturating_duration_since(self.since);
        let limit = Duration::from_secs(TTL.into()) + GRACE + TOLERANCE;
        if self.took.is_some() {
            return Err(format!("{} is open again, {age:?} after DNS has last returned it: {open:?}", self.address));
        }
        if self.counts && age > limit {
            return Err(format!("{} is still open, {age:?} after DNS has last returned it: {open:?}", self.address));
        }
        Ok(())
    }
}
