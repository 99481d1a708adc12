//! What a pattern opens at one address, by however many names: thousands may share
//! an address.

use super::{Instant, Lease};
use crate::domain::DomainName;
use rustc_hash::FxHashMap;
use std::net::IpAddr;

#[derive(Clone, Debug)]
pub(super) struct Opened {
    /// By the name that keeps it open longest; of several that do, the one that was granted last.
    longest: Lease,
    /// By the other names. Most addresses have one name.
    others: Option<Box<FxHashMap<DomainName, Held>>>,
}

/// How a name keeps an address open.
#[derive(Clone, Copy, Debug)]
struct Held {
    until: Instant,
    asked_by: Option<IpAddr>,
}

impl Opened {
    pub(super) fn by(lease: Lease) -> Self {
        Self { longest: lease, others: None }
    }

    /// By the name that keeps it open longest.
    pub(super) fn longest(&self) -> &Lease {
        &self.longest
    }

    /// A lease of the same pattern and address was granted or renewed; a renewal never shortens it.
    pub(super) fn grant(&mut self, lease: Lease) {
        if lease.name == self.longest.name {
            if lease.expiry > self.longest.expiry {
                self.longest = lease;
            }
            return;
        }
        let held = Held { until: lease.expiry, asked_by: lease.asked_by };
        // Names that end at once go in the order in which they came. The last to go stands first here, so that few have
        // to look for the next.
        if lease.expiry >= self.longest.expiry {
            self.put_first(lease.name, held);
            return;
        }
        let known = self.others.get_or_insert_default().entry(lease.name).or_insert(held);
        if held.until > known.until {
            *known = held;
        }
    }

    fn put_first(&mut self, name: DomainName, held: Held) {
        let others = self.others.get_or_insert_default();
        others.remove(&name);
        let before = Held { until: self.longest.expiry, asked_by: self.longest.asked_by };
        others.insert(std::mem::replace(&mut self.longest.name, name), before);
        (self.longest.expiry, self.longest.asked_by) = (held.until, held.asked_by);
    }

    /// A name keeps it open until then only.
    pub(super) fn shorten(&mut self, name: &DomainName, until: Instant) {
        if *name != self.longest.name {
            self.others.iter_mut().filter_map(|others| others.get_mut(name)).for_each(|held| held.until = until);
            return;
        }
        self.longest.expiry = until;
        if let Some((name, held)) = self.next_longest().filter(|(_, held)| held.until > until) {
            self.put_first(name, held);
        }
    }

    /// A name no longer keeps it open. False if none is left.
    pub(super) fn close(&mut self, name: &DomainName) -> bool {
        if *name == self.longest.name {
            let Some((next, held)) = self.next_longest() else { return false };
            self.put_first(next, held);
        }
        self.others.iter_mut().for_each(|others| _ = others.remove(name));
        true
    }

    fn next_longest(&self) -> Option<(DomainName, Held)> {
        let others = self.others.as_ref()?.iter();
        others.max_by_key(|(_, held)| held.until).map(|(name, held)| (name.clone(), *held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::DomainPattern;
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn at(seconds: u64) -> Instant {
        Instant(Duration::from_secs(seconds))
    }

    fn lease(name: &str, expiry: u64) -> Lease {
        let pattern = DomainPattern::Subdomains("example.com".parse().expect("a name"));
        let name = name.parse().expect("a name");
        Lease { pattern, name, address: [192, 0, 2, 1].into(), expiry: at(expiry), asked_by: None }
    }

    #[test]
    fn s6_3_the_longest_lease_is_that_of_a_name_that_is_left() {
        // All orders of grants and ends of three names, some of which end at once.
        let names = ["a.example.com", "b.example.com", "c.example.com"];
        for choice in 0..4_u64.pow(8) {
            let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
            let mut opened: Option<Opened> = None;
            for step in 0..8 {
                let number = choice / 4_u64.pow(step) % 4;
                let name = names[(number % 3) as usize];
                if number == 3 || (step > 4 && expected.contains_key(name)) {
                    let was_there = expected.remove(name).is_some();
                    let is_left = match (&mut opened, was_there) {
                        (Some(opened), true) => opened.close(&name.parse().expect("a name")),
                        _ => !expected.is_empty(),
                    };
                    assert_eq!(is_left, !expected.is_empty());
                    opened = opened.filter(|_| is_left);
                } else {
                    let expiry = 10 + u64::from(step) * (number % 2);
                    let known = expected.entry(name).or_insert(expiry);
                    *known = expiry.max(*known);
                    match &mut opened {
                        Some(opened) => opened.grant(lease(name, expiry)),
                        None => opened = Some(Opened::by(lease(name, expiry))),
                    }
                }
                let longest = opened.as_ref().map(|opened| opened.longest().expiry);
                assert_eq!(longest, expected.values().max().map(|seconds| at(*seconds)), "{choice}");
                if let Some(longest) = opened.as_ref().map(|opened| opened.longest().name.to_string()) {
                    assert!(expected.contains_key(longest.as_str()), "{choice}");
                }
            }
        }
    }

    #[test]
    fn a_lease_that_is_taken_back_leaves_the_next_longest() {
        let mut opened = Opened::by(lease("a.example.com", 10));
        opened.grant(lease("b.example.com", 20));
        opened.grant(lease("a.example.com", 30));
        opened.shorten(&"a.example.com".parse().expect("a name"), at(10));
        assert_eq!((opened.longest().name.to_string(), opened.longest().expiry), ("b.example.com".to_owned(), at(20)));
        assert!(opened.close(&"b.example.com".parse().expect("a name")));
        assert_eq!((opened.longest().name.to_string(), opened.longest().expiry), ("a.example.com".to_owned(), at(10)));
    }
}
