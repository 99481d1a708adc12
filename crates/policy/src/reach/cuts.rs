//! The address space, cut wherever a rule may see a difference.

use crate::addr::{AddrRange, AddrSet};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses at which a new piece begins.
#[derive(Default)]
pub(crate) struct Cuts {
    v4: BTreeSet<u32>,
    v6: BTreeSet<u128>,
}

impl Cuts {
    pub(crate) fn set(&mut self, set: &AddrSet) {
        for range in set.ranges() {
            self.before(range.first);
            self.after(range.last);
        }
    }

    pub(crate) fn address(&mut self, address: IpAddr) {
        self.before(address);
        self.after(address);
    }

    fn before(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(v4) => drop(self.v4.insert(v4.to_bits())),
            IpAddr::V6(v6) => drop(self.v6.insert(v6.to_bits())),
        }
    }

    fn after(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(v4) => self.v4.extend(v4.to_bits().checked_add(1)),
            IpAddr::V6(v6) => self.v6.extend(v6.to_bits().checked_add(1)),
        }
    }

    /// The pieces in order, IPv4 before IPv6.
    pub(crate) fn pieces(mut self) -> Vec<AddrRange> {
        self.v4.insert(0);
        self.v6.insert(0);
        let mut pieces = Vec::with_capacity(self.v4.len() + self.v6.len());
        let v4: Vec<u32> = self.v4.into_iter().collect();
        for (at, &first) in v4.iter().enumerate() {
            let last = v4.get(at + 1).map_or(u32::MAX, |next| next - 1);
            pieces.push(AddrRange { first: Ipv4Addr::from_bits(first).into(), last: Ipv4Addr::from_bits(last).into() });
        }
        let v6: Vec<u128> = self.v6.into_iter().collect();
        for (at, &first) in v6.iter().enumerate() {
            let last = v6.get(at + 1).map_or(u128::MAX, |next| next - 1);
            pieces.push(AddrRange { first: Ipv6Addr::from_bits(first).into(), last: Ipv6Addr::from_bits(last).into() });
        }
        pieces
    }
}
