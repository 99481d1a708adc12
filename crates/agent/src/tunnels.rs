//! The tunnel endpoints of this machine, as its kernel tells them. They follow
//! its links: the network plugin makes and removes them.

use crate::addresses::{Held, Machine, READ_EVERY};
use namewall_dataplane::Tunnels;
use namewall_policy::Instant;

/// A UDP port or an IP protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Endpoint {
    Port(u16),
    Protocol(u8),
}

/// The endpoints that count as this machine's now. One whose device is gone counts for a while: a network plugin that
/// starts again makes its device anew.
#[derive(Default, Debug)]
pub(crate) struct OwnTunnels {
    held: Held<Endpoint>,
    read_at: Option<Instant>,
}

impl OwnTunnels {
    /// Reads them if links have changed, or they were not read for a while. True if they are others now.
    pub(crate) fn follow(&mut self, machine: &mut dyn Machine, has_new_links: bool, now: Instant) -> bool {
        let is_due = self.read_at.is_none_or(|at| now.since(at) >= READ_EVERY);
        if !has_new_links && !is_due {
            return false;
        }
        let Some(Tunnels { ports, protocols }) = machine.tunnels() else {
            // What was known counts on, and it is tried again with the next turn.
            self.read_at = None;
            return false;
        };
        self.read_at = Some(now);
        let ports = ports.into_iter().map(Endpoint::Port);
        self.held.update(&ports.chain(protocols.into_iter().map(Endpoint::Protocol)).collect(), now)
    }

    pub(crate) fn all(&self) -> Tunnels {
        let mut all = Tunnels::default();
        for endpoint in self.held.all() {
            match *endpoint {
                Endpoint::Port(port) => _ = all.ports.insert(port),
                Endpoint::Protocol(number) => _ = all.protocols.insert(number),
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeMachine;
    use std::time::Duration;

    fn at(seconds: u64) -> Instant {
        Instant(Duration::from_secs(seconds))
    }

    fn texts(own: &OwnTunnels) -> Vec<String> {
        own.all().texts()
    }

    #[test]
    fn s1_9_endpoints_follow_the_links_and_outlive_their_device_for_a_while() {
        let mut machine = FakeMachine::new(&[]);
        let mut own = OwnTunnels::default();
        assert!(!own.follow(&mut machine, false, at(0)));
        machine.tunnel(&[8472], &[]);
        assert!(!own.follow(&mut machine, false, at(1)), "nothing tells of it");
        assert!(own.follow(&mut machine, true, at(1)));
        assert_eq!(texts(&own), ["UDP port 8472"]);
        machine.tunnel(&[], &[47]);
        assert!(own.follow(&mut machine, true, at(2)));
        assert_eq!(texts(&own), ["UDP port 8472", "IP protocol 47"], "its device may come again");
        assert!(own.follow(&mut machine, true, at(40)));
        assert_eq!(texts(&own), ["IP protocol 47"]);
    }

    #[test]
    fn a_lost_notice_and_a_failure_are_made_up_for() {
        let mut machine = FakeMachine::new(&[]);
        let mut own = OwnTunnels::default();
        own.follow(&mut machine, true, at(0));
        machine.tunnel(&[4789], &[]);
        machine.fail(true);
        assert!(!own.follow(&mut machine, true, at(1)));
        machine.fail(false);
        assert!(own.follow(&mut machine, false, at(1)), "it is tried again");
        machine.tunnel(&[4789, 6081], &[]);
        assert!(!own.follow(&mut machine, false, at(5)));
        assert!(own.follow(&mut machine, false, at(11)));
    }
}
