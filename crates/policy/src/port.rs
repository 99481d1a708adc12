//! Protocols, ports, and exact sets of them.

use crate::interval::IntervalSet;
use std::fmt;
use std::str::FromStr;

/// What a connection speaks. Only the first three have ports; a rule that
/// lists ports never matches the others (S2.6, S4.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
    Icmp,
    /// Any other IP protocol, by its number.
    Other(u8),
}

impl Protocol {
    /// The protocols that have ports.
    pub const WITH_PORTS: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];

    pub fn has_ports(self) -> bool {
        matches!(self, Protocol::Tcp | Protocol::Udp | Protocol::Sctp)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a protocol; use TCP, UDP, SCTP or ICMP")]
pub struct ProtocolError(pub String);

impl FromStr for Protocol {
    type Err = ProtocolError;

    fn from_str(text: &str) -> Result<Self, ProtocolError> {
        match text.to_ascii_uppercase().as_str() {
            "TCP" => Ok(Protocol::Tcp),
            "UDP" => Ok(Protocol::Udp),
            "SCTP" => Ok(Protocol::Sctp),
            "ICMP" | "ICMPV6" => Ok(Protocol::Icmp),
            _ => Err(ProtocolError(text.to_owned())),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Protocol::Tcp => f.write_str("TCP"),
            Protocol::Udp => f.write_str("UDP"),
            Protocol::Sctp => f.write_str("SCTP"),
            Protocol::Icmp => f.write_str("ICMP"),
            Protocol::Other(number) => write!(f, "protocol {number}"),
        }
    }
}

/// A port of a protocol, like 443/TCP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TransportPort {
    pub protocol: Protocol,
    /// 0 where the protocol has no ports, or where no port was asked for.
    pub port: u16,
}

/// A set of ports.
pub type PortSet = IntervalSet<u16>;

/// Every port a packet can have. Nobody listens at port 0 and no rule can name it, but one that asks for no port does
/// not stop it.
pub fn all_ports() -> PortSet {
    PortSet::range(0, u16::MAX)
}

/// Every port that can be listened at, and have a name.
pub fn usable_ports() -> PortSet {
    PortSet::range(1, u16::MAX)
}

/// A set of connections by protocol and port: what one end may open to another.
/// ICMP and the other protocols without ports stand or fall together, since no
/// policy kind can tell them apart.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Traffic {
    pub tcp: PortSet,
    pub udp: PortSet,
    pub sctp: PortSet,
    pub portless: bool,
}

impl Traffic {
    pub fn none() -> Self {
        Self::default()
    }

    pub fn all() -> Self {
        Self { tcp: all_ports(), udp: all_ports(), sctp: all_ports(), portless: true }
    }

    pub fn is_none(&self) -> bool {
        !self.portless && self.tcp.is_empty() && self.udp.is_empty() && self.sctp.is_empty()
    }

    pub fn is_all(&self) -> bool {
        *self == Self::all()
    }

    /// Whether no TCP, UDP or SCTP port is in it.
    pub fn has_no_ports(&self) -> bool {
        self.tcp.is_empty() && self.udp.is_empty() && self.sctp.is_empty()
    }

    pub fn ports(&self, protocol: Protocol) -> Option<&PortSet> {
        match protocol {
            Protocol::Tcp => Some(&self.tcp),
            Protocol::Udp => Some(&self.udp),
            Protocol::Sctp => Some(&self.sctp),
            Protocol::Icmp | Protocol::Other(_) => None,
        }
    }

    pub fn insert(&mut self, protocol: Protocol, low: u16, high: u16) {
        match protocol {
            Protocol::Tcp => self.tcp.insert(low, high),
            Protocol::Udp => self.udp.insert(low, high),
            Protocol::Sctp => self.sctp.insert(low, high),
            Protocol::Icmp | Protocol::Other(_) => self.portless = true,
        }
    }

    pub fn contains(&self, protocol: Protocol, port: u16) -> bool {
        self.ports(protocol).map_or(self.portless, |ports| ports.contains(port))
    }

    pub fn union(&self, other: &Self) -> Self {
        Self {
            tcp: self.tcp.union(&other.tcp),
            udp: self.udp.union(&other.udp),
            sctp: self.sctp.union(&other.sctp),
            portless: self.portless || other.portless,
        }
    }

    pub fn intersect(&self, other: &Self) -> Self {
        Self {
            tcp: self.tcp.intersect(&other.tcp),
            udp: self.udp.intersect(&other.udp),
            sctp: self.sctp.intersect(&other.sctp),
            portless: self.portless && other.portless,
        }
    }

    pub fn subtract(&self, other: &Self) -> Self {
        Self {
            tcp: self.tcp.subtract(&other.tcp),
            udp: self.udp.subtract(&other.udp),
            sctp: self.sctp.subtract(&other.sctp),
            portless: self.portless && !other.portless,
        }
    }

    pub fn is_subset(&self, other: &Self) -> bool {
        self.tcp.is_subset(&other.tcp)
            && self.udp.is_subset(&other.udp)
            && self.sctp.is_subset(&other.sctp)
            && (!self.portless || other.portless)
    }

    /// The port ranges of a protocol as text: `80`, `8000-8090`. Port 0 beside others is of no interest to anybody.
    pub fn port_texts(&self, protocol: Protocol) -> Vec<String> {
        let ranges = self.ports(protocol).map(PortSet::ranges).unwrap_or_default();
        let text = |&(low, high): &(u16, u16)| match low.max(1) {
            low if low >= high => high.to_string(),
            low => format!("{low}-{high}"),
        };
        ranges.iter().map(text).collect()
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("nothing");
        }
        if self.is_all() {
            return f.write_str("everything");
        }
        let mut parts = Vec::new();
        for protocol in Protocol::WITH_PORTS {
            let ports = self.ports(protocol).expect("it has ports");
            if *ports == all_ports() {
                parts.push(format!("{protocol} all"));
            } else if !ports.is_empty() {
                parts.push(format!("{protocol} {}", self.port_texts(protocol).join(",")));
            }
        }
        if self.portless {
            parts.push("ICMP and other protocols".to_owned());
        }
        f.write_str(&parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_has_port_0_in_it_and_does_not_say_so() {
        for protocol in Protocol::WITH_PORTS {
            assert!(Traffic::all().contains(protocol, 0), "{protocol}");
            assert_eq!(Traffic::all().port_texts(protocol), ["1-65535"]);
        }
        let mut named = Traffic::none();
        named.insert(Protocol::Tcp, 1, u16::MAX);
        let rest = Traffic::all().subtract(&named);
        assert_eq!(rest.port_texts(Protocol::Tcp), ["0"]);
        named.insert(Protocol::Tcp, 0, 1);
        assert_eq!(named.to_string(), "TCP all");
    }

    #[test]
    fn ranges_are_told_as_they_are_written() {
        let mut traffic = Traffic::none();
        for (low, high) in [(0, 1), (80, 80), (8000, 8090)] {
            traffic.insert(Protocol::Udp, low, high);
        }
        assert_eq!(traffic.port_texts(Protocol::Udp), ["1", "80", "8000-8090"]);
    }
}
