//! The leases the kernel has, as far as we gave them.

use crate::nft::set::{self, Element, Key, Lifetime, Version};
use namewall_policy::domain::DomainPattern;
use namewall_policy::{Instant, Lease, LeaseTable};
use rustc_hash::FxHashMap;
use std::net::IpAddr;
use std::time::Duration;

/// Which lease groups each pattern opens.
pub type LeaseGroups = FxHashMap<DomainPattern, Vec<u64>>;

/// A lease in the kernel: its group and address, and the time it has left.
pub(crate) type Left = ((u64, IpAddr), Duration);

/// Elements to be written, a list for each version of IP.
pub(crate) type Fresh = [Vec<(Element, Lifetime)>; 2];

#[derive(Default, Debug)]
pub(crate) struct Leases {
    /// Until when each group has each address open.
    until: FxHashMap<(u64, IpAddr), Instant>,
    /// Every lease there has been, for connections that outlive theirs.
    pub(crate) history: LeaseTable,
    /// What was there before us, and how long it had left then.
    adopted: Option<(std::time::Instant, Vec<Left>)>,
    last: Instant,
}

impl Leases {
    /// Takes over what the kernel has from an earlier process.
    pub(crate) fn adopt(&mut self, found: Vec<Left>) {
        self.adopted = Some((std::time::Instant::now(), found));
    }

    pub(crate) fn were_adopted(&self) -> bool {
        self.adopted.is_some()
    }

    /// What must be written for these leases. A renewal never shortens (S6.3).
    pub(crate) fn grant(&mut self, leases: &[Lease], groups: &LeaseGroups, now: Instant) -> Fresh {
        self.last = now;
        if let Some((then, found)) = &mut self.adopted {
            let since = then.elapsed();
            for (key, left) in found.drain(..) {
                self.until.insert(key, now + left.saturating_sub(since));
            }
        }
        let mut fresh = Fresh::default();
        for lease in leases.iter().filter(|lease| lease.expiry > now) {
            self.history.grant(lease.clone());
            for &group in groups.get(&lease.pattern).into_iter().flatten() {
                self.write(&mut fresh, (group, lease), now);
            }
        }
        fresh
    }

    /// What must be written because groups changed: leases that live on in groups that are new to them.
    pub(crate) fn regroup(&mut self, groups: &LeaseGroups) -> Fresh {
        let mut fresh = Fresh::default();
        let now = self.last;
        let live: Vec<Lease> = self.history.iter().filter(|lease| lease.expiry > now).cloned().collect();
        for lease in &live {
            for &group in groups.get(&lease.pattern).into_iter().flatten() {
                self.write(&mut fresh, (group, lease), now);
            }
        }
        fresh
    }

    fn write(&mut self, fresh: &mut Fresh, (group, lease): (u64, &Lease), now: Instant) {
        let until = self.until.entry((group, lease.address)).or_insert(Instant(Duration::ZERO));
        if *until >= lease.expiry {
            return;
        }
        *until = lease.expiry;
        let (high, low) = set::halves(group);
        let key = Key::default().number(high).number(low).address(lease.address);
        let left = lease.expiry.0.saturating_sub(now.0);
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
