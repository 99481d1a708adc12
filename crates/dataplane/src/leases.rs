//! The leases the kernel has, as far as we gave them.

use crate::nft::set::{self, Element, Key, Lifetime, Passing, Version};
use namewall_policy::domain::DomainPattern;
use namewall_policy::{Instant, Lease, LeaseTable};
use rustc_hash::FxHashMap;
use std::net::IpAddr;
use std::time::Duration;

/// Which lease groups each pattern opens.
pub type LeaseGroups = FxHashMap<DomainPattern, Vec<u64>>;

/// A lease in the kernel: its group and address, and the time it has left.
pub(crate) type Left = ((u64, IpAddr), Duration);

#[derive(Default, Debug)]
pub(crate) struct Leases {
    /// Until when each group has each address open.
    until: FxHashMap<(u64, IpAddr), Instant>,
    /// Every lease there has been, for connections that outlive theirs.
    pub(crate) history: LeaseTable,
    /// What was there before us, and how long it had left then.
    adopted: Option<(std::time::Instant, Vec<Left>)>,
    /// There were leases before us that the history does not know.
    incomplete: bool,
    /// What was told as the time last, and when by the clock.
    last: Instant,
    told: Option<std::time::Instant>,
    /// What `until` was before what is being written, should the kernel not take it.
    before: Vec<((u64, IpAddr), Option<Instant>)>,
}

impl Leases {
    /// Takes over what the kernel has from an earlier process.
    pub(crate) fn adopt(&mut self, found: Vec<Left>) {
        self.until.clear();
        self.incomplete = true;
        self.adopted = Some((std::time::Instant::now(), found));
    }

    pub(crate) fn were_adopted(&self) -> bool {
        self.incomplete
    }

    /// Counts what was adopted from now on, as soon as anybody has told the time.
    fn take_over(&mut self, now: Instant) {
        let Some((then, found)) = self.adopted.take() else { return };
        for (key, left) in found {
            let until = now + left.saturating_sub(then.elapsed());
            let known = self.until.entry(key).or_insert(until);
            *known = until.max(*known);
        }
    }

    /// What must be written for these leases. A renewal never shortens (S6.3).
    pub(crate) fn grant(&mut self, leases: &[Lease], groups: &LeaseGroups, now: Instant) -> Passing {
        self.last = now;
        self.told = Some(std::time::Instant::now());
        self.before.clear();
        self.take_over(now);
        let mut fresh = Passing::default();
        for lease in leases.iter().filter(|lease| lease.expiry > now) {
            self.history.grant(lease.clone());
            for &group in groups.get(&lease.pattern).into_iter().flatten() {
                self.write(&mut fresh, (group, lease), now);
            }
        }
        fresh
    }

    /// What must be written because groups changed: leases that live on in groups that are new to them.
    pub(crate) fn regroup(&mut self, groups: &LeaseGroups) -> Passing {
        let mut fresh = Passing::default();
        self.before.clear();
        // Whoever changes groups tells no time, and meanwhile leases have grown older.
        let now = self.last + self.told.map_or(Duration::ZERO, |told| told.elapsed());
        if self.told.is_some() {
            self.take_over(now);
        }
        let live: Vec<Lease> = self.history.iter().filter(|lease| lease.expiry > now).cloned().collect();
        for lease in &live {
            for &group in groups.get(&lease.pattern).into_iter().flatten() {
                self.write(&mut fresh, (group, lease), now);
            }
        }
        fresh
    }

    /// The kernel took what was written last.
    pub(crate) fn keep(&mut self) {
        self.before.clear();
    }

    /// The kernel did not take what was to be written last.
    pub(crate) fn take_back(&mut self) {
        for (key, until) in self.before.drain(..).rev() {
            match until {
                Some(until) => self.until.insert(key, until),
                None => self.until.remove(&key),
            };
        }
    }

    /// The kernel's table is a new one: it has none of them.
    pub(crate) fn were_lost(&mut self) {
        self.until.clear();
        self.adopted = None;
    }

    fn write(&mut self, fresh: &mut Passing, (group, lease): (u64, &Lease), now: Instant) {
        let key = (group, lease.address);
        let until = self.until.get(&key).copied();
        // The kernel keeps nothing for longer.
        let expiry = lease.expiry.min(now + set::LONGEST);
        if until.is_some_and(|until| until >= expiry) {
            return;
        }
        self.until.insert(key, expiry);
        self.before.push((key, until));
        let (high, low) = set::halves(group);
        let key = Key::default().number(high).number(low).address(lease.address);
        let left = expiry.0.saturating_sub(now.0);
        fresh[Version::of(lease.address) as usize].push((Element::key(key), Lifetime(left)));
    }

    /// Forgets what has expired, but for addresses some connection still leads to.
    pub(crate) fn forget(&mut self, connected: impl Fn(IpAddr) -> bool) {
        let now = self.last;
        self.until.retain(|_, until| *until > now);
        let kept: Vec<Lease> =
            self.history.iter().filter(|lease| lease.expiry > now || connected(lease.address)).cloned().collect();
        self.history = LeaseTable::default();
        for lease in kept {
            self.history.grant(lease);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(Duration::from_secs(100));
    const LIFE: Duration = Duration::from_millis(300);
    const WHILE: Duration = Duration::from_millis(100);

    fn groups(numbers: &[u64]) -> LeaseGroups {
        [(DomainPattern::Exact("example.com".parse().unwrap()), numbers.to_vec())].into_iter().collect()
    }

    fn granted() -> (Leases, Vec<Lease>) {
        let name: namewall_policy::domain::DomainName = "example.com".parse().unwrap();
        let (pattern, address) = (DomainPattern::Exact(name.clone()), "192.0.2.1".parse().unwrap());
        let lease = Lease { pattern, name, address, expiry: NOW + LIFE };
        let mut leases = Leases::default();
        let fresh = leases.grant(std::slice::from_ref(&lease), &groups(&[1]), NOW);
        assert_eq!(fresh[0].len(), 1);
        (leases, vec![lease])
    }

    #[test]
    fn s6_4_a_new_group_does_not_make_a_lease_longer() {
        let (mut leases, _) = granted();
        std::thread::sleep(WHILE);
        let fresh = leases.regroup(&groups(&[1, 2]));
        assert!(matches!(fresh[0].as_slice(), [(_, Lifetime(left))] if *left <= LIFE - WHILE), "{fresh:?}");
        std::thread::sleep(LIFE);
        assert!(leases.regroup(&groups(&[3]))[0].is_empty(), "it is over");
    }

    #[test]
    fn s6_6_what_the_kernel_did_not_take_is_written_again() {
        let (mut leases, granted) = granted();
        assert!(leases.grant(&granted, &groups(&[1]), NOW)[0].is_empty(), "it is there");
        assert_eq!(leases.grant(&granted, &groups(&[1, 2]), NOW)[0].len(), 1);
        leases.take_back();
        assert_eq!(leases.grant(&granted, &groups(&[1, 2]), NOW)[0].len(), 1);
        leases.were_lost();
        assert_eq!(leases.regroup(&groups(&[1, 2]))[0].len(), 2);
    }
}
