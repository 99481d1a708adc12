//! Networks, and which of many is the closest around an address.

use namewall_policy::addr::Cidr;
use rustc_hash::FxHashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// A network without host bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network(Cidr);

impl Network {
    /// A prefix longer than the address is as long as it.
    pub fn new(address: IpAddr, prefix: u8) -> Self {
        let masked = Cidr::new(address, prefix);
        Self(Cidr::new(masked.address(), masked.prefix()))
    }

    pub fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let prefix = prefix.bytes().all(|byte| byte.is_ascii_digit()).then(|| prefix.parse::<u8>().ok())??;
        (prefix <= if address.is_ipv4() { 32 } else { 128 }).then(|| Self::new(address, prefix))
    }

    pub(super) fn host(address: IpAddr) -> Self {
        Self(Cidr::host(address.to_canonical()))
    }

    pub fn address(&self) -> IpAddr {
        self.0.address()
    }

    pub fn prefix(&self) -> u8 {
        self.0.prefix()
    }

    /// A network of IPv4-mapped addresses has IPv4 addresses in it, as in Go.
    pub fn contains(&self, address: IpAddr) -> bool {
        let mapped = match self.address() {
            IpAddr::V6(v6) => v6.to_ipv4_mapped(),
            IpAddr::V4(_) => None,
        };
        let network = match mapped {
            Some(v4) => Cidr::new(v4.into(), self.prefix().saturating_sub(96)),
            None => self.0,
        };
        network.contains(address.to_canonical())
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address(), self.prefix())
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Values by network: the one of the longest prefix counts.
#[derive(Clone, Debug)]
pub(super) struct NetworkMap<V> {
    v4: Family<V>,
    v6: Family<V>,
}

#[derive(Clone, Debug)]
struct Family<V> {
    values: FxHashMap<(u8, u128), V>,
    /// The prefixes that occur, the longest first.
    prefixes: Vec<u8>,
}

impl<V> Default for NetworkMap<V> {
    fn default() -> Self {
        let family = || Family { values: FxHashMap::default(), prefixes: Vec::new() };
        Self { v4: family(), v6: family() }
    }
}

impl<V> NetworkMap<V> {
    /// Gives back what was there.
    pub(super) fn insert(&mut self, network: Network, value: V) -> Option<V> {
        let prefix = network.prefix();
        let family = if network.address().is_ipv4() { &mut self.v4 } else { &mut self.v6 };
        if let Err(at) = family.prefixes.binary_search_by(|known| prefix.cmp(known)) {
            family.prefixes.insert(at, prefix);
        }
        family.values.insert((prefix, bits(network.address())), value)
    }

    /// The value of the closest network around the whole of this one.
    pub(super) fn get(&self, network: Network) -> Option<&V> {
        let family = if network.address().is_ipv4() { &self.v4 } else { &self.v6 };
        let mut prefixes = family.prefixes.iter().filter(|prefix| **prefix <= network.prefix());
        prefixes.find_map(|prefix| {
            let around = Network::new(network.address(), *prefix);
            family.values.get(&(*prefix, bits(around.address())))
        })
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => Ipv6Addr::to_bits(v6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        Network::parse(text).unwrap()
    }

    #[test]
    fn the_longest_prefix_counts() {
        let mut map = NetworkMap::default();
        for (at, text) in ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "2001:db8::/32", "::/0"].into_iter().enumerate()
        {
            assert_eq!(map.insert(network(text), at), None);
        }
        let of = |text: &str| map.get(Network::host(text.parse().unwrap())).copied();
        assert_eq!(of("10.1.2.3"), Some(2));
        assert_eq!(of("::ffff:10.1.2.4"), Some(1));
        assert_eq!(of("10.2.2.4"), Some(0));
        assert_eq!(of("11.0.0.0"), None);
        assert_eq!(of("2001:db8::1"), Some(3));
        assert_eq!(of("2001:db9::1"), Some(4));
        assert_eq!(map.get(network("10.1.0.0/12")), Some(&0));
        assert_eq!(map.get(network("0.0.0.0/0")), None);
    }

    #[test]
    fn texts_are_strict_and_host_bits_go() {
        assert_eq!(network("10.1.2.3/8"), network("10.0.0.0/8"));
        assert_eq!(network("10.1.2.3/8").to_string(), "10.0.0.0/8");
        for text in ["10.0.0.0", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/", "10.0.0.0/+8"] {
            assert_eq!(Network::parse(text), None, "{text}");
        }
        assert!(network("::ffff:10.0.0.0/104").contains("10.1.1.1".parse().unwrap()));
        assert!(!network("::/0").contains("10.1.1.1".parse().unwrap()));
    }
}
