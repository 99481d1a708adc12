//! What sequences of events need of the engine: time as an argument, and what must hold when all is over.

use super::Engine;
use crate::learn::Learn;
use crate::server::pending::Client;
use nix::sys::epoll::EpollTimeout;
use std::io;
use std::time::Instant;

impl<L: Learn> Engine<L> {
    /// A turn that waits for nothing, at a time that the caller says.
    pub(in crate::server) fn turn_at(&mut self, now: Instant) -> io::Result<()> {
        self.tend_ports();
        let count = self.wait(EpollTimeout::ZERO)?;
        self.deal_with_events(count, now)
    }

    /// Nothing is under way: every table that a question is in must be empty, and every socket must be known.
    pub(in crate::server) fn check_at_rest(&self) {
        // An upstream that is down is probed for ever.
        let (probes, left): (Vec<_>, Vec<_>) = self.pending.iter().partition(|one| one.client == Client::Probe);
        assert!(left.is_empty(), "questions are left: {left:?}");
        assert_eq!(self.by_link.len(), probes.iter().filter(|one| one.link.is_some()).count(), "links are left");
        assert!(self.leaders.is_empty(), "questions that others may join are left");
        assert_eq!(self.shares.heaviest(), None, "a client holds places");
        assert!(self.listeners.iter().all(|listener| listener.under_way == 0), "a listener counts too much");
        let sockets: usize = self.upstreams.iter().map(|upstream| upstream.ports.len()).sum();
        assert_eq!(sockets, self.sockets.len(), "sockets are lost");
        for (at, upstream) in self.upstreams.iter().enumerate() {
            assert!(!upstream.is_replaced || self.vacant.contains(&at), "an upstream that was replaced is left");
            assert!(!upstream.is_replaced || upstream.ports.len() == 0, "it has sockets");
        }
    }
}

#[cfg(test)]
mod pace_tests;
#[cfg(test)]
mod port_tests;
