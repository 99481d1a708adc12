//! What was cut lately, for the log and `explain --live`.

use namewall_dataplane::{Connection, Cut};
use namewall_policy::Instant;
use namewall_policy::port::Protocol;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use tracing::{info, warn};

/// The last ones are kept.
const KEPT: usize = 1_000;

/// A connection that was cut.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CutConnection {
    pub protocol: Protocol,
    pub source: IpAddr,
    /// After DNAT.
    pub destination: SocketAddr,
    pub when: Instant,
}

/// What one decision has cut.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CutReport {
    pub cut: Cut,
    /// The connections that were to be cut.
    pub forbidden: Vec<Connection>,
}

impl CutReport {
    /// One line for a decision, whatever it has cut.
    pub(crate) fn log(&self) {
        let count = |protocol| self.forbidden.iter().filter(|one| one.protocol == protocol).count();
        if let Some(first) = self.forbidden.first() {
            let (from, to) = (SocketAddr::new(first.source, first.source_port), SocketAddr::from(first.destination));
            let (tcp, udp, sctp) = (count(Protocol::Tcp), count(Protocol::Udp), count(Protocol::Sctp));
            let connections_cut = self.cut.connections;
            info!(connections_cut, tcp, udp, sctp, first = %format_args!("{from} -> {to}/{}", first.protocol), "cut");
        }
        if self.cut.forgotten > 0 {
            let forgotten = self.cut.forgotten;
            warn!(forgotten, "too many connections were cut; the oldest of the pod with most are forgotten");
        }
    }
}

/// The last connections that were cut.
#[derive(Debug, Default)]
pub(crate) struct RecentCuts(VecDeque<CutConnection>);

impl RecentCuts {
    pub(crate) fn add(&mut self, report: &CutReport, when: Instant) {
        for Connection { protocol, source, destination, .. } in &report.forbidden {
            self.0.truncate(KEPT - 1);
            let destination = SocketAddr::from(*destination);
            self.0.push_front(CutConnection { protocol: *protocol, source: *source, destination, when });
        }
    }

    /// The last one first.
    pub(crate) fn all(&self) -> Vec<CutConnection> {
        self.0.iter().cloned().collect()
    }
}
