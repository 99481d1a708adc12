//! What was cut lately, for the log and `explain --live`.

use crate::history::fair_share;
use namewall_dataplane::{Connection, Cut, SecondConnection};
use namewall_policy::Instant;
use namewall_policy::model::Direction;
use namewall_policy::port::Protocol;
use rustc_hash::FxHashMap;
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
    /// Those over second interfaces of pods.
    pub second: Vec<CutSecond>,
}

/// A connection over a second interface that was to be cut.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CutSecond {
    /// The pod, as NAMESPACE/NAME.
    pub pod: String,
    pub connection: Connection,
    /// The ends as policies see them: the pod by an address of its own.
    source: IpAddr,
    destination: SocketAddr,
}

impl CutSecond {
    pub(crate) fn new(pod: &str, addresses: &[IpAddr], second: &SecondConnection) -> Self {
        let SecondConnection { connection, direction } = second.clone();
        let (mut source, mut destination) = (connection.source, SocketAddr::from(connection.destination));
        let same_version = addresses.iter().find(|address| address.is_ipv4() == source.is_ipv4());
        if let Some(own) = same_version.or(addresses.first()) {
            match direction {
                Direction::Egress => source = *own,
                Direction::Ingress => destination.set_ip(*own),
            }
        }
        Self { pod: pod.to_owned(), connection, source, destination }
    }
}

impl CutReport {
    /// One line for a decision, whatever it has cut.
    pub(crate) fn log(&self) {
        let second = || self.second.iter().map(|second| &second.connection);
        let count = |protocol| self.forbidden.iter().chain(second()).filter(|one| one.protocol == protocol).count();
        if let Some(first) = self.forbidden.iter().chain(second()).next() {
            let (from, to) = (SocketAddr::new(first.source, first.source_port), SocketAddr::from(first.destination));
            let (tcp, udp, sctp) = (count(Protocol::Tcp), count(Protocol::Udp), count(Protocol::Sctp));
            let connections_cut = self.cut.connections;
            if let Some(CutSecond { pod, .. }) = self.second.first() {
                let connections = self.second.len();
                info!(
                    pod,
                    connections, "connections over second interfaces are forbidden now, those of this pod first"
                );
            }
            info!(connections_cut, tcp, udp, sctp, first = %format_args!("{from} -> {to}/{}", first.protocol), "cut");
        }
        if self.cut.forgotten > 0 {
            let forgotten = self.cut.forgotten;
            warn!(forgotten, "too many connections were cut; the oldest of the pod with most are forgotten");
        }
    }
}

/// The last connections that were cut. Each is counted to that of its ends that has most of them: a pod whose
/// connections are cut by the thousand takes no other pod's room.
#[derive(Debug, Default)]
pub(crate) struct RecentCuts(VecDeque<CutConnection>);

impl RecentCuts {
    pub(crate) fn add(&mut self, report: &CutReport, when: Instant) {
        for Connection { protocol, source, destination, .. } in &report.forbidden {
            let destination = SocketAddr::from(*destination);
            self.0.push_front(CutConnection { protocol: *protocol, source: *source, destination, when });
        }
        for CutSecond { connection, source, destination, .. } in &report.second {
            let (protocol, source, destination) = (connection.protocol, *source, *destination);
            self.0.push_front(CutConnection { protocol, source, destination, when });
        }
        if self.0.len() > KEPT {
            self.make_room();
        }
    }

    /// The oldest go of those ends that have more than their share.
    fn make_room(&mut self) {
        let mut at = FxHashMap::<IpAddr, usize>::default();
        for CutConnection { source, destination, .. } in &self.0 {
            *at.entry(*source).or_default() += 1;
            *at.entry(destination.ip()).or_default() += 1;
        }
        let holder = |one: &CutConnection| {
            let ends = [one.source, one.destination.ip()];
            ends.into_iter().max_by_key(|end| (at.get(end).copied(), *end)).unwrap_or(one.source)
        };
        let mut held = FxHashMap::<IpAddr, usize>::default();
        self.0.iter().for_each(|one| *held.entry(holder(one)).or_default() += 1);
        let share = fair_share(held.into_values().collect(), KEPT);
        let mut kept = FxHashMap::<IpAddr, usize>::default();
        // The newest come first.
        self.0.retain(|one| {
            let kept = kept.entry(holder(one)).or_default();
            *kept += 1;
            *kept <= share
        });
        // A thousand ends and more may have one each.
        self.0.truncate(KEPT);
        self.0.shrink_to(2 * KEPT);
    }

    /// The last one first.
    pub(crate) fn all(&self) -> Vec<CutConnection> {
        self.0.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ip;

    #[test]
    fn s3_4_a_flood_of_cuts_takes_no_other_pods_room() {
        let when = |seconds| Instant(std::time::Duration::from_secs(seconds));
        let cut = |from: String, to: &str, port| {
            Connection::between(Protocol::Tcp, (ip(&from), port).into(), (ip(to), 80).into())
        };
        let report = |forbidden| CutReport { forbidden, ..CutReport::default() };
        let mut recent = RecentCuts::default();
        recent.add(&report(vec![cut("10.0.0.1".into(), "192.0.2.1", 1)]), when(1));
        // From one pod, and from many clients to one pod.
        recent.add(&report((1..5_000).map(|port| cut("10.0.0.2".into(), "192.0.2.2", port)).collect()), when(2));
        let clients = (0..5_000).map(|at| cut(format!("198.18.{}.{}", at / 250, at % 250), "10.0.0.3", 7));
        recent.add(&report(clients.collect()), when(3));
        let all = recent.all();
        let of =
            |address: &str| all.iter().filter(|one| [one.source, one.destination.ip()].contains(&ip(address))).count();
        assert_eq!((of("10.0.0.1"), of("10.0.0.2")), (1, 499));
        assert!(all.len() <= KEPT && of("10.0.0.3") >= 499, "{}", of("10.0.0.3"));
        assert!(all.is_sorted_by_key(|one| std::cmp::Reverse(one.when)), "the last one first");
        assert!(recent.0.capacity() <= 2 * KEPT, "{}", recent.0.capacity());
    }

    /// `explain --live` asks by the pod, and not by its second address.
    #[test]
    fn s3_4_a_cut_over_a_second_interface_is_told_of_the_pod_itself() {
        let (pod, second, other) = (ip("10.0.0.1"), ip("172.16.0.1"), ip("172.16.0.9"));
        let report = |from, to, direction| {
            let connection = Connection::between(Protocol::Udp, (from, 4000).into(), (to, 53).into());
            let second = CutSecond::new("shop/web", &[ip("fd00::1"), pod], &SecondConnection { connection, direction });
            CutReport { second: vec![second], ..CutReport::default() }
        };
        let mut recent = RecentCuts::default();
        recent.add(&report(second, other, Direction::Egress), Instant::default());
        recent.add(&report(other, second, Direction::Ingress), Instant::default());
        let ends: Vec<_> = recent.all().into_iter().map(|cut| (cut.source, cut.destination.ip())).collect();
        assert_eq!(ends, [(other, pod), (pod, other)]);
    }
}
