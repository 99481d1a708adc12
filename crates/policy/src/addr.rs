//! Addresses: CIDR blocks as users write them, and exact sets of addresses.

use crate::interval::IntervalSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A CIDR block. Host bits are masked away on parsing (S2.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
    host_bits: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    #[error(
        "`{0}` is not a CIDR block; write an address, a slash and a prefix length, like 10.0.0.0/8 or 2001:db8::/32"
    )]
    Form(String),
    #[error("`{0}` has a prefix longer than its address ({1} bits)")]
    Prefix(String, u8),
    #[error("`{0}` is an IPv4-mapped IPv6 block; no packet carries such an address: write the IPv4 block")]
    Mapped(String),
}

impl Cidr {
    pub fn new(address: IpAddr, prefix: u8) -> Self {
        let (masked, prefix) = match address {
            IpAddr::V4(v4) => {
                let prefix = prefix.min(32);
                (IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask32(prefix))), prefix)
            }
            IpAddr::V6(v6) => {
                let prefix = prefix.min(128);
                (IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask128(prefix))), prefix)
            }
        };
        Self { address: masked, prefix, host_bits: masked != address }
    }

    pub fn host(address: IpAddr) -> Self {
        Self::new(address, if address.is_ipv4() { 32 } else { 128 })
    }

    pub fn address(&self) -> IpAddr {
        self.address
    }

    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether the text it was read from had bits beyond the prefix.
    pub fn had_host_bits(&self) -> bool {
        self.host_bits
    }

    /// Whether it covers every address of its family.
    pub fn is_whole_family(&self) -> bool {
        self.prefix == 0
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(net), IpAddr::V4(v4)) => v4.to_bits() & mask32(self.prefix) == net.to_bits(),
            (IpAddr::V6(net), IpAddr::V6(v6)) => v6.to_bits() & mask128(self.prefix) == net.to_bits(),
            _ => false,
        }
    }

    /// Whether every address of `other` is in `self`.
    pub fn covers(&self, other: &Cidr) -> bool {
        self.prefix <= other.prefix && self.contains(other.address)
    }
}

fn mask32(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

fn mask128(prefix: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0)
}

/// Reads an address the way the Kubernetes API always did: leading zeros in
/// an IPv4 octet are decimal digits, not an octal sign.
pub fn parse_address(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        // No packet carries an IPv4-mapped address; a program that uses one sends IPv4.
        return Some(address.to_canonical());
    }
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || part.len() > 8 || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *octet = part.parse::<u32>().ok()?.try_into().ok()?;
    }
    parts.next().is_none().then(|| IpAddr::from(octets))
}

/// Blocks whose addresses every machine has for itself: loopback, and IPv6 link-local, which the kernel gives to every
/// interface. A packet to one of them reaches the sender's own node, or a pod on the same link.
pub fn own_to_each_machine() -> AddrSet {
    let blocks = [(IpAddr::from([127, 0, 0, 0]), 8), (Ipv6Addr::LOCALHOST.into(), 128)];
    let link_local = (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0).into(), 10);
    blocks.into_iter().chain([link_local]).map(|(address, prefix)| Cidr::new(address, prefix)).collect()
}

/// True for an address of [`own_to_each_machine`].
pub fn is_own_to_each_machine(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local(),
    }
}

/// The next address of the family, if there is one.
pub fn next_address(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => v4.to_bits().checked_add(1).map(|bits| Ipv4Addr::from_bits(bits).into()),
        IpAddr::V6(v6) => v6.to_bits().checked_add(1).map(|bits| Ipv6Addr::from_bits(bits).into()),
    }
}

/// The address before, if there is one.
pub fn previous_address(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => v4.to_bits().checked_sub(1).map(|bits| Ipv4Addr::from_bits(bits).into()),
        IpAddr::V6(v6) => v6.to_bits().checked_sub(1).map(|bits| Ipv6Addr::from_bits(bits).into()),
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let form = || CidrError::Form(text.to_owned());
        let (address, prefix) = text.split_once('/').ok_or_else(form)?;
        let mapped = address.parse::<Ipv6Addr>().is_ok_and(|v6| v6.to_ipv4_mapped().is_some());
        let address = parse_address(address).ok_or_else(form)?;
        if prefix.is_empty() || prefix.len() > 3 || !prefix.bytes().all(|b| b.is_ascii_digit()) {
            return Err(form());
        }
        if mapped {
            return Err(CidrError::Mapped(text.to_owned()));
        }
        let bits = if address.is_ipv4() { 32 } else { 128 };
        match prefix.parse::<u8>() {
            Ok(prefix) if prefix <= bits => Ok(Self::new(address, prefix)),
            _ => Err(CidrError::Prefix(text.to_owned(), bits)),
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl fmt::Debug for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An exact set of IPv4 and IPv6 addresses.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct AddrSet {
    pub v4: IntervalSet<u32>,
    pub v6: IntervalSet<u128>,
}

/// Addresses from `first` to `last`, of one family.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AddrRange {
    pub first: IpAddr,
    pub last: IpAddr,
}

impl AddrRange {
    /// The fewest blocks that are the range, in order.
    pub fn cidrs(&self) -> impl Iterator<Item = Cidr> + use<> {
        let (width, first, last) = match (self.first, self.last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => (32, u128::from(first.to_bits()), u128::from(last.to_bits())),
            (IpAddr::V6(first), IpAddr::V6(last)) => (128, first.to_bits(), last.to_bits()),
            // No range has ends of two families.
            _ => (0, 1, 0),
        };
        let mut next = Some(first).filter(|first| *first <= last);
        std::iter::from_fn(move || {
            let from = next?;
            // As large as its first address allows, and as what is left does.
            let left = last - from;
            let fits = if left == u128::MAX { 128 } else { (left + 1).ilog2() };
            let bits = from.trailing_zeros().min(width).min(fits);
            next = from.checked_add(1_u128.checked_shl(bits).unwrap_or(0)).filter(|at| *at <= last && bits < 128);
            let address = match width {
                32 => IpAddr::V4(Ipv4Addr::from_bits(from as u32)),
                _ => IpAddr::V6(Ipv6Addr::from_bits(from)),
            };
            Some(Cidr::new(address, (width - bits) as u8))
        })
    }
}

impl AddrSet {
    pub fn full() -> Self {
        Self { v4: IntervalSet::full(), v6: IntervalSet::full() }
    }

    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(v4) => self.v4.contains(v4.to_bits()),
            IpAddr::V6(v6) => self.v6.contains(v6.to_bits()),
        }
    }

    pub fn insert(&mut self, cidr: Cidr) {
        match cidr.address {
            IpAddr::V4(v4) => {
                let first = v4.to_bits();
                self.v4.insert(first, first | !mask32(cidr.prefix));
            }
            IpAddr::V6(v6) => {
                let first = v6.to_bits();
                self.v6.insert(first, first | !mask128(cidr.prefix));
            }
        }
    }

    /// Multicast, and the broadcast that every host takes.
    pub fn groups() -> Self {
        let v6 = Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0);
        let blocks = [(Ipv4Addr::new(224, 0, 0, 0).into(), 4), (Ipv4Addr::BROADCAST.into(), 32), (v6.into(), 8)];
        blocks.into_iter().map(|(address, prefix)| Cidr::new(address, prefix)).collect()
    }

    pub fn insert_address(&mut self, address: IpAddr) {
        self.insert(Cidr::host(address));
    }

    pub fn union(&self, other: &Self) -> Self {
        Self { v4: self.v4.union(&other.v4), v6: self.v6.union(&other.v6) }
    }

    pub fn intersect(&self, other: &Self) -> Self {
        Self { v4: self.v4.intersect(&other.v4), v6: self.v6.intersect(&other.v6) }
    }

    pub fn subtract(&self, other: &Self) -> Self {
        Self { v4: self.v4.subtract(&other.v4), v6: self.v6.subtract(&other.v6) }
    }

    pub fn is_subset(&self, other: &Self) -> bool {
        self.v4.is_subset(&other.v4) && self.v6.is_subset(&other.v6)
    }

    pub fn intersects(&self, other: &Self) -> bool {
        self.v4.intersects(&other.v4) || self.v6.intersects(&other.v6)
    }

    /// The lowest address of the range that is in the set.
    pub fn first_within(&self, range: AddrRange) -> Option<IpAddr> {
        match (range.first, range.last) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                self.v4.first_within(a.to_bits(), b.to_bits()).map(|bits| Ipv4Addr::from_bits(bits).into())
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                self.v6.first_within(a.to_bits(), b.to_bits()).map(|bits| Ipv6Addr::from_bits(bits).into())
            }
            _ => None,
        }
    }

    /// The ranges in order, IPv4 before IPv6.
    pub fn ranges(&self) -> impl Iterator<Item = AddrRange> + '_ {
        let v4 = self
            .v4
            .ranges()
            .iter()
            .map(|&(a, b)| AddrRange { first: Ipv4Addr::from_bits(a).into(), last: Ipv4Addr::from_bits(b).into() });
        let v6 = self
            .v6
            .ranges()
            .iter()
            .map(|&(a, b)| AddrRange { first: Ipv6Addr::from_bits(a).into(), last: Ipv6Addr::from_bits(b).into() });
        v4.chain(v6)
    }
}

impl From<AddrRange> for AddrSet {
    fn from(range: AddrRange) -> Self {
        match (range.first, range.last) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                Self { v4: IntervalSet::range(a.to_bits(), b.to_bits()), v6: IntervalSet::empty() }
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                Self { v4: IntervalSet::empty(), v6: IntervalSet::range(a.to_bits(), b.to_bits()) }
            }
            _ => Self::default(),
        }
    }
}

impl FromIterator<Cidr> for AddrSet {
    fn from_iter<I: IntoIterator<Item = Cidr>>(cidrs: I) -> Self {
        let mut set = Self::default();
        for cidr in cidrs {
            set.insert(cidr);
        }
        set
    }
}

impl FromIterator<AddrRange> for AddrSet {
    fn from_iter<I: IntoIterator<Item = AddrRange>>(ranges: I) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for range in ranges {
            match (range.first, range.last) {
                (IpAddr::V4(a), IpAddr::V4(b)) => v4.push((a.to_bits(), b.to_bits())),
                (IpAddr::V6(a), IpAddr::V6(b)) => v6.push((a.to_bits(), b.to_bits())),
                // No range has ends of two families.
                _ => {}
            }
        }
        Self { v4: IntervalSet::from_ranges(v4), v6: IntervalSet::from_ranges(v6) }
    }
}

impl fmt::Display for AddrRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl fmt::Debug for AddrRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_its_blocks() {
        let told = |first: &str, last: &str| {
            let range =
                AddrRange { first: first.parse().expect("an address"), last: last.parse().expect("an address") };
            let blocks: Vec<Cidr> = range.cidrs().collect();
            assert_eq!(blocks.iter().copied().collect::<AddrSet>(), AddrSet::from(range));
            blocks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(told("0.0.0.0", "255.255.255.255"), "0.0.0.0/0");
        assert_eq!(told("192.0.2.7", "192.0.2.7"), "192.0.2.7/32");
        assert_eq!(told("10.0.0.1", "10.0.0.8"), "10.0.0.1/32 10.0.0.2/31 10.0.0.4/30 10.0.0.8/32");
        assert_eq!(told("10.0.0.0", "10.0.2.255"), "10.0.0.0/23 10.0.2.0/24");
        assert_eq!(told("255.255.255.254", "255.255.255.255"), "255.255.255.254/31");
        assert_eq!(told("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), "::/0");
        assert_eq!(told("2001:db8::", "2001:db8::ffff"), "2001:db8::/112");
    }

    #[test]
    fn s2_4_host_bits_are_masked() {
        let cidr: Cidr = "10.1.2.3/8".parse().unwrap();
        assert_eq!(cidr.to_string(), "10.0.0.0/8");
        assert!(cidr.had_host_bits());
        let cidr: Cidr = "010.001.0.0/16".parse().unwrap();
        assert_eq!(cidr.to_string(), "10.1.0.0/16");
        let cidr: Cidr = "2001:db8::1/32".parse().unwrap();
        assert_eq!(cidr.to_string(), "2001:db8::/32");
    }

    #[test]
    fn s10_2_bad_blocks_say_what_would_be_accepted() {
        for bad in
            ["10.0.0.0", "10.0.0/8", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/+8", "x/8", "::ffff:10.0.0.0/104"]
        {
            assert!(bad.parse::<Cidr>().is_err(), "{bad}");
        }
    }

    #[test]
    fn blocks_and_sets_agree_at_the_edges() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "255.255.255.255/32", "::/0", "2001:db8::/33"] {
            let cidr: Cidr = text.parse().unwrap();
            let set: AddrSet = [cidr].into_iter().collect();
            for range in set.ranges() {
                assert!(cidr.contains(range.first) && cidr.contains(range.last), "{text}");
            }
        }
    }
}
