//! Where a node takes packets out of other packets: the UDP ports and the IP
//! protocols of its tunnel devices. What is inside such a packet has whatever
//! source the sender writes, and no guard sees it. So no pod may send there.

use namewall_policy::port::{Protocol, Traffic};
use std::collections::BTreeSet;

/// The tunnel endpoints of a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tunnels {
    /// UDP ports.
    pub ports: BTreeSet<u16>,
    /// IP protocols.
    pub protocols: BTreeSet<u8>,
}

impl Tunnels {
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty() && self.protocols.is_empty()
    }

    /// True if packets of this protocol to this port may be for a tunnel.
    pub fn has(&self, protocol: Protocol, port: u16) -> bool {
        match protocol {
            Protocol::Udp => self.ports.contains(&port),
            Protocol::Other(number) => self.protocols.contains(&number),
            Protocol::Tcp | Protocol::Sctp | Protocol::Icmp => false,
        }
    }

    /// The ports, as rules have them.
    pub(crate) fn udp(&self) -> Traffic {
        let mut traffic = Traffic::none();
        self.ports.iter().for_each(|port| traffic.insert(Protocol::Udp, *port, *port));
        traffic
    }

    /// Adds the endpoints of another list.
    pub fn extend(&mut self, more: &Self) {
        self.ports.extend(&more.ports);
        self.protocols.extend(&more.protocols);
    }

    /// Each endpoint in words, for users.
    pub fn texts(&self) -> Vec<String> {
        let ports = self.ports.iter().map(|port| format!("UDP port {port}"));
        ports.chain(self.protocols.iter().map(|number| format!("IP protocol {number}"))).collect()
    }
}
