//! Leases: which address a name opens, and until when (S6). Time is an
//! argument; nothing here reads a clock.

mod carried;
mod end;
mod evicted;
mod names;
mod never;
mod opened;
mod revise;
mod slab;
mod store;
mod survey;
mod table;

pub use carried::{carried_ipv4, is_nat64_prefix};
pub use never::{NeverLeased, Refusal};
pub use revise::{Plan, Revision, Rules};
pub use store::{LeaseChange, LeaseStore, Opened};
pub use survey::Survey;
pub use table::{Bounds, Evictions, LeaseTable, Walk};

use crate::domain::{DomainName, PatternId, RulePattern};
use crate::program::Program;
use std::net::IpAddr;
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
    pub pattern: RulePattern,
    pub name: DomainName,
    pub address: IpAddr,
    pub expiry: Instant,
    /// Who asked, if that is known: whom it is counted to where there is little room (S6.5).
    pub asked_by: Option<IpAddr>,
}

/// A lease as a table has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseRef<'a> {
    pub pattern: &'a RulePattern,
    pub name: &'a DomainName,
    pub address: IpAddr,
    pub expiry: Instant,
    /// Whom it is counted to.
    pub asked_by: Option<IpAddr>,
}

impl Lease {
    pub fn borrowed(&self) -> LeaseRef<'_> {
        let Self { pattern, name, address, expiry, asked_by } = self;
        LeaseRef { pattern, name, address: *address, expiry: *expiry, asked_by: *asked_by }
    }
}

impl LeaseRef<'_> {
    pub fn to_lease(self) -> Lease {
        let Self { pattern, name, address, expiry, asked_by } = self;
        Lease { pattern: pattern.clone(), name: name.clone(), address, expiry, asked_by }
    }
}

/// How long an answer is good for (S6.3).
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    /// What a TTL of 0 counts as.
    pub minimum: Duration,
    /// What every longer TTL counts as.
    pub maximum: Duration,
    /// How long a lease outlives its TTL.
    pub grace: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { minimum: seconds(5), maximum: seconds(3_600), grace: seconds(5) }
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
        now + self.counted(ttl)
    }

    /// The longest time that an answer can be good for.
    pub fn longest(&self) -> Duration {
        self.length(Duration::MAX)
    }

    /// The last moment at which an answer of this TTL ends no later than that.
    pub fn last_with(&self, ttl: Duration, expiry: Instant) -> Instant {
        Instant(expiry.0.saturating_sub(self.length(ttl)))
    }

    fn length(&self, ttl: Duration) -> Duration {
        self.counted(ttl).saturating_add(self.grace)
    }

    /// What a TTL counts as. The maximum holds for the minimum, too.
    pub fn counted(&self, ttl: Duration) -> Duration {
        let ttl = if ttl.is_zero() { self.minimum } else { ttl };
        ttl.min(self.maximum)
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
    pub fn patterns<'p>(&self, program: &'p Program) -> Vec<&'p RulePattern> {
        let own = self.asked_by.map(|client| program.class_at(client).map(|class| program.names_of(class)));
        let is_own = |PatternId(id): &PatternId| match &own {
            None => true,
            Some(names) => names.as_ref().is_some_and(|names| names.contains(*id as usize)),
        };
        let matching = program.patterns.matching(&self.name).into_iter();
        matching.filter(is_own).map(|id| program.patterns.get(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{DomainPattern, Wildcard};

    fn at(seconds: u64) -> Instant {
        Instant(Duration::from_secs(seconds))
    }

    #[test]
    fn s6_3_lifetime_is_ttl_and_grace() {
        let lifetimes = Lifetimes::default();
        assert_eq!(lifetimes.expiry(Duration::from_secs(30), at(100)), at(135));
        assert_eq!(lifetimes.expiry(Duration::ZERO, at(100)), at(110));
        let last = lifetimes.last_with(Duration::from_secs(30), at(135));
        assert_eq!(last, at(100));
        assert!(lifetimes.expiry(Duration::from_secs(30), last + Duration::from_nanos(1)) > at(135));
    }

    #[test]
    fn s6_3_a_ttl_above_the_maximum_counts_as_the_maximum() {
        let lifetimes = Lifetimes::default();
        let forever = Duration::from_secs(2_000_000_000);
        assert_eq!(lifetimes.expiry(forever, at(100)), at(100 + 3_600 + 5));
        assert_eq!(lifetimes.use_by(forever, at(100)), at(100 + 3_600));
        assert_eq!(lifetimes.last_with(forever, at(3_705)), at(100));
        assert_eq!(lifetimes.longest(), Duration::from_secs(3_605));
        let short = Lifetimes { maximum: Duration::from_secs(2), ..lifetimes };
        assert_eq!(short.expiry(Duration::ZERO, at(100)), at(107), "the maximum holds for the minimum, too");
    }

    #[test]
    fn s6_3_a_new_answer_renews_and_never_shortens() {
        let pattern = RulePattern::allow(DomainPattern::parse("api.example.com", Wildcard::Subdomains).unwrap());
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
