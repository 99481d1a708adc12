//! Zones, as they are written in keys and arguments: names, and networks as the names of their reverse
//! zones.

use crate::lexer::Token;
use crate::problem::Report;
use namewall_policy::addr::Cidr;
use namewall_policy::domain::DomainName;
use std::fmt;
use std::net::IpAddr;

/// A name and everything under it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Zone {
    /// Every name: `.`.
    Root,
    Name(DomainName),
}

impl Zone {
    pub fn contains(&self, name: &DomainName) -> bool {
        match self {
            Self::Root => true,
            Self::Name(zone) => name == zone || name.is_under(zone),
        }
    }

    /// True for zones of names of addresses: `in-addr.arpa`, `ip6.arpa` and zones below them.
    pub fn is_reverse(&self) -> bool {
        let Self::Name(name) = self else { return false };
        let mut labels: Vec<&str> = name.labels().collect();
        labels.pop() == Some("arpa") && matches!(labels.pop(), Some("in-addr" | "ip6"))
    }

    /// How many labels it has: of two zones that contain a name, the one with more is meant.
    pub fn depth(&self) -> usize {
        match self {
            Self::Root => 0,
            Self::Name(zone) => zone.labels().count(),
        }
    }
}

/// With the dot at the end, as CoreDNS has it.
impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("."),
            Self::Name(name) => write!(f, "{name}."),
        }
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Report {
    /// A zone; a network is the zones of its addresses' names.
    pub(crate) fn zone(&mut self, token: &Token) -> Vec<Zone> {
        self.zone_of(&token.text, token)
    }

    /// Several of them.
    pub(crate) fn zones(&mut self, tokens: &[Token]) -> Vec<Zone> {
        tokens.iter().flat_map(|token| self.zone(token)).collect()
    }

    /// Where a plugin goes on with what it does not know: everywhere if no zones are named.
    pub(crate) fn fallthrough(&mut self, tokens: &[Token]) -> Vec<Zone> {
        if tokens.is_empty() { vec![Zone::Root] } else { self.zones(tokens) }
    }

    /// A name that is not the root.
    pub(crate) fn name(&mut self, token: &Token) -> Option<DomainName> {
        match token.text.parse() {
            Ok(name) => Some(name),
            Err(error) => {
                self.error("bad-name", &token.place, error.to_string()).help("write a name, like `www.example.org`");
                None
            }
        }
    }

    /// The zone that a part of a word names.
    pub(crate) fn zone_of(&mut self, text: &str, token: &Token) -> Vec<Zone> {
        if text == "." {
            return vec![Zone::Root];
        }
        let usage = "write a name, like `example.org`, or a network, like `10.0.0.0/24`";
        if let Some(name) = text.strip_prefix("*.") {
            self.error("bad-zone", &token.place, "a zone has no wildcard")
                .help(format!("write `{name}`: a zone is a name and all under it"));
            return Vec::new();
        }
        if text.contains('/') {
            return match text.parse::<Cidr>() {
                Ok(cidr) => reverse_zones(cidr),
                Err(error) => {
                    self.error("bad-zone", &token.place, error.to_string()).help(usage);
                    Vec::new()
                }
            };
        }
        match text.parse() {
            Ok(name) => vec![Zone::Name(name)],
            Err(error) => {
                self.error("bad-zone", &token.place, error.to_string()).help(usage);
                Vec::new()
            }
        }
    }
}

/// The zones that hold the names of a network's addresses: one where its prefix ends with a label, else
/// as many as it takes.
fn reverse_zones(cidr: Cidr) -> Vec<Zone> {
    let step = if cidr.address().is_ipv4() { 8 } else { 4 };
    let prefix = cidr.prefix().div_ceil(step) * step;
    let count = 1u32 << (prefix - cidr.prefix());
    (0..count).filter_map(|at| reverse_zone(cidr.address(), prefix, at)).collect()
}

/// The zone of the network `at` places after the one of this address.
fn reverse_zone(address: IpAddr, prefix: u8, at: u32) -> Option<Zone> {
    let mut name = String::new();
    match address {
        IpAddr::V4(v4) => {
            let shift = 32 - u32::from(prefix);
            let octets = (v4.to_bits() | at.checked_shl(shift).unwrap_or(0)).to_be_bytes();
            for octet in octets.iter().take(usize::from(prefix / 8)).rev() {
                name.push_str(&format!("{octet}."));
            }
            name.push_str("in-addr.arpa");
        }
        IpAddr::V6(v6) => {
            let shift = 128 - u32::from(prefix);
            let bits = v6.to_bits() | u128::from(at).checked_shl(shift).unwrap_or(0);
            for nibble in (0..u32::from(prefix / 4)).rev() {
                name.push_str(&format!("{:x}.", bits >> (124 - nibble * 4) & 0xf));
            }
            name.push_str("ip6.arpa");
        }
    }
    name.parse().ok().map(Zone::Name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_the_zones_of_their_names() {
        for (network, zones) in [
            ("10.0.0.0/24", "0.0.10.in-addr.arpa."),
            ("10.0.0.0/8", "10.in-addr.arpa."),
            ("10.0.2.0/23", "2.0.10.in-addr.arpa. 3.0.10.in-addr.arpa."),
            ("10.0.0.1/32", "1.0.0.10.in-addr.arpa."),
            ("0.0.0.0/0", "in-addr.arpa."),
            ("2001:db8::/32", "8.b.d.0.1.0.0.2.ip6.arpa."),
            ("2001:db8::/31", "8.b.d.0.1.0.0.2.ip6.arpa. 9.b.d.0.1.0.0.2.ip6.arpa."),
            ("::/0", "ip6.arpa."),
        ] {
            let read: Vec<String> = reverse_zones(network.parse().unwrap()).iter().map(Zone::to_string).collect();
            assert_eq!(read.join(" "), zones, "{network}");
        }
        assert_eq!(reverse_zones("10.0.0.0/25".parse().unwrap()).len(), 128);
    }

    #[test]
    fn a_zone_holds_its_name_and_all_under_it() {
        let zone = Zone::Name("example.org".parse().unwrap());
        for (name, is) in [("example.org", true), ("a.b.example.org", true), ("badexample.org", false), ("org", false)]
        {
            assert_eq!(zone.contains(&name.parse().unwrap()), is, "{name}");
            assert!(Zone::Root.contains(&name.parse().unwrap()));
        }
        assert!(zone.depth() > Zone::Root.depth());
    }
}
