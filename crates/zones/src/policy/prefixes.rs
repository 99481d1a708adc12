//! Networks by address: the longest prefix counts.

use super::trigger::{Network, masked};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Numbers of policies by their networks.
#[derive(Clone, Debug, Default)]
pub(super) struct Prefixes {
    /// By the length of the prefix.
    v4: BTreeMap<u8, FxHashMap<IpAddr, u32>>,
    v6: BTreeMap<u8, FxHashMap<IpAddr, u32>>,
}

impl Prefixes {
    pub(super) fn add(&mut self, network: Network, id: u32) {
        let lengths = if network.address.is_ipv4() { &mut self.v4 } else { &mut self.v6 };
        lengths.entry(network.length).or_default().insert(network.address, id);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// The policies of networks that an address is in, with the lengths of their prefixes, the longest first.
    pub(super) fn over(&self, address: IpAddr) -> impl Iterator<Item = (u8, u32)> + '_ {
        let lengths = if address.is_ipv4() { &self.v4 } else { &self.v6 };
        lengths.iter().rev().filter_map(move |(&length, networks)| {
            networks.get(&masked(Network { address, length })).map(|id| (length, *id))
        })
    }
}
