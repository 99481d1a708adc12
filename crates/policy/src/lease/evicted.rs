//! Leases that had to make room before their time. Their addresses are closed, but
//! connections that they opened go on (S6.4).

use super::Lease;
use crate::domain::RulePattern;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// So many addresses are remembered, the last ones.
const MOST: usize = 65_536;

#[derive(Default, Debug)]
pub(super) struct Evicted {
    patterns: HashMap<IpAddr, Vec<RulePattern>>,
    /// The addresses, as they came.
    order: VecDeque<IpAddr>,
}

impl Evicted {
    pub(super) fn extend(&mut self, leases: &[Lease]) {
        for Lease { pattern, address, .. } in leases {
            let known = self.patterns.entry(*address).or_insert_with(|| {
                self.order.push_back(*address);
                Vec::with_capacity(1)
            });
            if !known.contains(pattern) {
                known.push(pattern.clone());
            }
        }
        while self.order.len() > MOST {
            self.order.pop_front().and_then(|oldest| self.patterns.remove(&oldest));
        }
    }

    pub(super) fn at(&self, address: IpAddr) -> &[RulePattern] {
        self.patterns.get(&address).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn keep_only(&mut self, is_kept: impl Fn(IpAddr, &RulePattern) -> bool) {
        self.patterns.retain(|address, patterns| {
            patterns.retain(|pattern| is_kept(*address, pattern));
            !patterns.is_empty()
        });
        self.order.retain(|address| self.patterns.contains_key(address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::DomainPattern;
    use crate::lease::Instant;
    use std::net::Ipv4Addr;

    fn lease(number: u32) -> Lease {
        let domain: crate::domain::DomainName = "example.com".parse().expect("a name");
        let (pattern, address) =
            (RulePattern::allow(DomainPattern::Exact(domain.clone())), Ipv4Addr::from_bits(number).into());
        Lease { pattern, name: domain, address, expiry: Instant::default(), asked_by: None }
    }

    #[test]
    fn s6_5_a_flood_of_evicted_leases_forgets_the_oldest() {
        let mut evicted = Evicted::default();
        (0..=MOST as u32).for_each(|number| evicted.extend(&[lease(number), lease(number)]));
        assert_eq!((evicted.order.len(), evicted.patterns.len()), (MOST, MOST));
        assert!(evicted.at(Ipv4Addr::from_bits(0).into()).is_empty());
        assert_eq!(evicted.at(Ipv4Addr::from_bits(1).into()).len(), 1);
        evicted.keep_only(|address, _| address == Ipv4Addr::from_bits(7));
        assert_eq!((evicted.order.len(), evicted.patterns.len()), (1, 1));
    }
}
