//! Leases: which address a name opens, and until when (S6). Time is an
//! argument; nothing here reads a clock.

mod store;
mod table;

pub use store::{LeaseChange, LeaseStore, Opened};
pub use table::{Bounds, Evictions, LeaseTable};

use crate::domain::{DomainName, DomainPattern, PatternId};
use crate::model::NodeId;
use crate::program::{Holder, Program};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use table::Before;

/// A moment, as time since an epoch of the caller's choosing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug)]
pub struct Instant(pub Duration);

impl Instant {
    /// The time that has passed since an earlier moment; none if that is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl std::ops::Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, more: Duration) -> Instant {
        Instant(self.0.saturating_add(more))
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    pub pattern: DomainPattern,
    pub name: DomainName,
    pub address: IpAddr,
    pub expiry: Instant,
    /// Who asked, if that is known: whom it is counted to where there is little room (S6.5).
    pub asked_by: Option<IpAddr>,
}

/// How long an answer is good for (S6.3).
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    /// What a TTL of 0 counts as.
    pub minimum: Duration,
    /// How long a lease outlives its TTL.
    pub grace: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self { minimum: Duration::from_secs(5), grace: Duration::from_secs(5) }
    }
}

impl Lifetimes {
    pub fn expiry(&self, ttl: Duration, now: Instant) -> Instant {
        let end = now + self.length(ttl);
        // In whole seconds, as TTLs are: an answer that comes again at once renews nothing.
        let seconds = end.0.as_secs().saturating_add(u64::from(end.0.subsec_nanos() > 0));
        Instant(Duration::from_secs(seconds))
    }

    /// Until when an answer may be used by who has it: without the grace.
    pub fn use_by(&self, ttl: Duration, now: Instant) -> Instant {
        now + if ttl.is_zero() { self.minimum } else { ttl }
    }

    /// The last moment at which an answer of this TTL ends no later than that.
    pub fn last_with(&self, ttl: Duration, expiry: Instant) -> Instant {
        Instant(expiry.0.saturating_sub(self.length(ttl)))
    }

    fn length(&self, ttl: Duration) -> Duration {
        let ttl = if ttl.is_zero() { self.minimum } else { ttl };
        ttl.saturating_add(self.grace)
    }
}

/// What an answer says of a name, and until when.
#[derive(Clone, Debug)]
pub struct Learned {
    pub name: DomainName,
    pub addresses: Vec<IpAddr>,
    pub expiry: Instant,
    /// Who asked: it is leased for what this pod's rules speak of, and for nobody else (S6.10).
    /// None: it was told, not asked for, and every rule counts.
    pub asked_by: Option<IpAddr>,
}

impl Learned {
    /// The patterns it is leased for.
    pub fn patterns<'p>(&self, program: &'p Program) -> Vec<&'p DomainPattern> {
        let own = self.asked_by.map(|client| program.class_at(client).map(|class| program.names_of(class)));
        let is_own = |PatternId(id): &PatternId| match &own {
            None => true,
            Some(names) => names.as_ref().is_some_and(|names| names.contains(*id as usize)),
        };
        let matching = program.patterns.matching(&self.name).into_iter();
        matching.filter(is_own).map(|id| program.patterns.get(id)).collect()
    }
}

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
        })
    }
}

/// The metadata services of Amazon (IPv6) and Alibaba. That of most clouds, 169.254.169.254, is link-local.
const METADATA: [IpAddr; 2] =
    [IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)), IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200))];

/// The IPv4 address that an IPv6 address leads to: mapped (`::ffff:0:0/96`), by NAT64 (the prefixes of RFC 6052 and
/// RFC 8215), or by 6to4 (`2002::/16`).
fn carried_v4(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(v6) = address else { return None };
    let [first, second, third, .., high, low] = v6.segments();
    let from = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match (first, second, third) {
        (0x2002, high, low) => Some(from(high, low)),
        (0x64, 0xff9b, 0 | 1) => Some(from(high, low)),
        _ => v6.to_ipv4_mapped(),
    }
}

/// Which addresses no outside name may open: the inside of the cluster.
#[derive(Clone, Debug)]
pub struct NeverLeased {
    cluster_domain: DomainName,
}

impl NeverLeased {
    pub fn new(cluster_domain: DomainName) -> Self {
        Self { cluster_domain }
    }

    pub fn refusal(&self, program: &Program, name: &DomainName, address: IpAddr) -> Option<Refusal> {
        let carried = carried_v4(address).map(IpAddr::V4);
        carried.into_iter().chain([address]).find_map(|address| self.refusal_of(program, name, address))
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
    /// that may be leased. Gives back those that may not.
    pub fn learn(&self, program: &Program, answer: &Learned, leases: &mut LeaseTable) -> Vec<(IpAddr, Refusal)> {
        let mut refused = Vec::new();
        let patterns = answer.patterns(program);
        for &address in &answer.addresses {
            if let Some(refusal) = self.refusal(program, &answer.name, address) {
                refused.push((address, refusal));
                continue;
            }
            for &pattern in &patterns {
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

    fn unless_inside(&self, name: &DomainName) -> Option<Refusal> {
        (!name.is_under(&self.cluster_domain)).then_some(Refusal::Pod)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Wildcard;

    fn at(seconds: u64) -> Instant {
        Instant(Duration::from_secs(seconds))
    }

    #[test]
    fn s6_3_lifetime_is_ttl_and_grace_and_never_shortened() {
        let lifetimes = Lifetimes::default();
        assert_eq!(lifetimes.expiry(Duration::from_secs(30), at(100)), at(135));
        assert_eq!(lifetimes.expiry(Duration::ZERO, at(100)), at(110));
        let last = lifetimes.last_with(Duration::from_secs(30), at(135));
        assert_eq!(last, at(100));
        assert!(lifetimes.expiry(Duration::from_secs(30), last + Duration::from_nanos(1)) > at(135));

        let pattern = DomainPattern::parse("api.example.com", Wildcard::Subdomains).unwrap();
        let address = IpAddr::from([192, 0, 2, 1]);
        let lease = |expiry| Lease {
            pattern: pattern.clone(),
            name: "api.example.com".parse().unwrap(),
            address,
            expiry,
            asked_by: None,
        };
        let mut table = LeaseTable::default();
        table.grant(lease(at(135)));
        table.grant(lease(at(110)));
        assert!(table.opening(address, at(134), |p| *p == pattern).is_some());
        assert!(table.opening(address, at(135), |p| *p == pattern).is_none(), "S6.4: it ends by itself");
        table.forget(at(135), usize::MAX, |_| false);
        assert_eq!(table.iter().count(), 0);
    }
}
