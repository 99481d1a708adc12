//! Which addresses are never leased, whatever the answer says (S6.8).

use super::{Learned, Lease, LeaseRef, LeaseTable, carried};
use crate::addr::{AddrSet, Cidr};
use crate::domain::{DomainName, RulePattern};
use crate::model::NodeId;
use crate::program::{Holder, Program};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is never leased, whatever the answer says (S6.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    Loopback,
    LinkLocal,
    Multicast,
    Unspecified,
    /// Where a cloud tells its machines their secrets.
    Metadata,
    Service,
    Node(NodeId),
    Pod,
    /// It is in a network that the settings name.
    Listed,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "a loopback address is never leased",
            Self::LinkLocal => "a link-local address is never leased",
            Self::Multicast => "a multicast address is never leased",
            Self::Unspecified => "the unspecified address is never leased",
            Self::Metadata => "the address of a cloud's metadata service is never leased",
            Self::Service => "a Service's address is never leased",
            Self::Node(_) => "a node's address is never leased",
            Self::Pod => "a pod's address is leased only to a name under the cluster domain",
            Self::Listed => "an address in a network of --never-lease is never leased",
        })
    }
}

/// The metadata services of Amazon (IPv6) and Alibaba. That of most clouds, 169.254.169.254, is link-local.
const METADATA: [IpAddr; 2] =
    [IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)), IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200))];

/// Which addresses no outside name may open: the inside of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NeverLeased {
    cluster_domain: DomainName,
    networks: AddrSet,
    nat64: Vec<Cidr>,
}

impl NeverLeased {
    pub fn new(cluster_domain: DomainName) -> Self {
        Self { cluster_domain, networks: AddrSet::default(), nat64: Vec::new() }
    }

    /// Nor the addresses of these networks.
    #[must_use]
    pub fn and_networks(mut self, networks: &[Cidr]) -> Self {
        networks.iter().for_each(|network| self.networks.insert(*network));
        self
    }

    /// Nor what leads there through a translator with one of these prefixes (RFC 6052).
    #[must_use]
    pub fn translated_by(mut self, prefixes: &[Cidr]) -> Self {
        self.nat64.extend(prefixes);
        self
    }

    /// Why an answer for this name does not open the address. Rules that deny the name have no such bound.
    pub fn refusal(&self, program: &Program, name: &DomainName, address: IpAddr) -> Option<Refusal> {
        let itself = self.refusal_of(program, name, address);
        itself.or_else(|| {
            let mut carried = carried::by(address, &self.nat64).into_iter().map(IpAddr::V4);
            carried.find_map(|address| self.refusal_of(program, name, address))
        })
    }

    /// Why the lease must not be there; None for every lease of a rule that denies.
    pub fn refusal_of_lease(&self, program: &Program, lease: LeaseRef<'_>) -> Option<Refusal> {
        let LeaseRef { pattern, name, address, .. } = lease;
        if pattern.denies() { None } else { self.refusal(program, name, address) }
    }

    fn refusal_of(&self, program: &Program, name: &DomainName, address: IpAddr) -> Option<Refusal> {
        let link_local = match address {
            IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        let checks = [
            (address.is_unspecified(), Refusal::Unspecified),
            (address.is_loopback(), Refusal::Loopback),
            (link_local, Refusal::LinkLocal),
            (address.is_multicast(), Refusal::Multicast),
            (METADATA.contains(&address), Refusal::Metadata),
            (self.networks.contains(address), Refusal::Listed),
            (program.service_addresses.contains(address), Refusal::Service),
        ];
        if let Some((_, refusal)) = checks.into_iter().find(|(hit, _)| *hit) {
            return Some(refusal);
        }
        match program.by_address.get(&address) {
            Some(Holder::Node(node) | Holder::SomeNode(node)) => Some(Refusal::Node(*node)),
            Some(Holder::Pod(_)) => self.unless_inside(name),
            None if program.pod_networks.contains(address) => self.unless_inside(name),
            None => None,
        }
    }

    /// Learns an answer: a lease for every pattern it is for, at every address
    /// that may be leased. Returns the addresses that rules which allow the name do not get.
    pub fn learn(&self, program: &Program, answer: &Learned, leases: &mut LeaseTable) -> Vec<(IpAddr, Refusal)> {
        let mut refused = Vec::new();
        let patterns = answer.patterns(program);
        for &address in answer.addresses.iter().take(leases.bounds().addresses_a_name) {
            let refusal = self.refusal(program, &answer.name, address);
            let (granted, left_out): (Vec<&RulePattern>, Vec<&RulePattern>) =
                patterns.iter().partition(|pattern| refusal.is_none() || pattern.denies());
            refused.extend(refusal.filter(|_| !left_out.is_empty()).map(|refusal| (address, refusal)));
            for pattern in granted {
                leases.grant(Lease {
                    pattern: pattern.clone(),
                    name: answer.name.clone(),
                    address,
                    expiry: answer.expiry,
                    asked_by: answer.asked_by,
                });
            }
        }
        refused
    }

    /// True if all names of the pattern may lead to pods.
    pub(super) fn is_inside(&self, pattern: &RulePattern) -> bool {
        let domain = pattern.names.domain();
        *domain == self.cluster_domain || domain.is_under(&self.cluster_domain)
    }

    /// The prefixes of translators in this network.
    pub(super) fn translators(&self) -> &[Cidr] {
        &self.nat64
    }

    fn unless_inside(&self, name: &DomainName) -> Option<Refusal> {
        (!name.is_under(&self.cluster_domain)).then_some(Refusal::Pod)
    }
}
