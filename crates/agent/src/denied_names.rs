//! Keeps the addresses of names that a rule denies until a successful answer
//! replaces them (S8.7). A lease ends with its TTL and grace. For a rule that
//! denies, that end would open its addresses, so it must not come because DNS
//! fails or because nobody publishes the name.
//!
//! A lease of a denied pattern whose TTL is over is granted again for a while,
//! and its name is looked up. It ends when that lookup gives other addresses, or
//! when others have published such an answer.

use crate::sharing::PublishedName;
use namewall_dns::lookup::Done;
use namewall_policy::domain::DomainName;
use namewall_policy::{Instant, Lease};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// How long others have to publish a new answer, before the name is looked up here.
const WAIT: Duration = Duration::from_secs(1);
/// How soon a lookup that failed is made again, and for how long its leases are granted meanwhile.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// After so many failures both take longer.
const SOON: u32 = 5;
const TRY_RARELY: Duration = Duration::from_secs(60);

/// The denied names of which an address has no current answer.
#[derive(Debug, Default)]
pub(crate) struct DeniedNames {
    names: BTreeMap<String, DeniedName>,
}

#[derive(Debug)]
struct DeniedName {
    /// Names of wildcards are looked up after those that a rule speaks of.
    is_collected: bool,
    due: Instant,
    failures: u32,
    /// When a lookup last gave addresses in place of all others.
    answered: Option<Instant>,
    kept: BTreeMap<IpAddr, Kept>,
}

/// An address that is granted again and again.
#[derive(Clone, Copy, Debug)]
struct Kept {
    /// Since when its TTL is over.
    since: Instant,
    /// When the lease ends that was granted last. Another end is another answer's.
    expiry: Instant,
}

/// What is known when the leases are looked at.
pub(crate) struct Known<'a> {
    pub(crate) now: Instant,
    /// How long a lease outlives its TTL.
    pub(crate) grace: Duration,
    pub(crate) published: &'a BTreeMap<&'a str, PublishedName>,
}

impl DeniedNames {
    /// Takes the leases of denied patterns whose TTL is over, and returns those that must be granted again.
    pub(crate) fn keep(&mut self, ending: Vec<Lease>, known: &Known<'_>) -> Vec<Lease> {
        let now = known.now;
        let seen: BTreeSet<(String, IpAddr)> = ending.iter().map(|one| (question(&one.name), one.address)).collect();
        let kept: Vec<Lease> = ending.into_iter().filter_map(|lease| self.keep_one(lease, known)).collect();
        for (name, denied) in &mut self.names {
            // The table has a lease for a while after its end. One that an answer has replaced must not be taken for a
            // new one then.
            denied.kept.retain(|address, kept| kept.expiry > now || seen.contains(&(name.clone(), *address)));
        }
        self.names.retain(|_, denied| !denied.kept.is_empty());
        kept
    }

    fn keep_one(&mut self, lease: Lease, known: &Known<'_>) -> Option<Lease> {
        let Lease { address, expiry, .. } = lease;
        let now = known.now;
        let name = question(&lease.name);
        let is_current = |(other, until): (&IpAddr, &Instant)| other.is_ipv4() == address.is_ipv4() && *until > now;
        if known.published.get(name.as_str()).is_some_and(|known| known.addresses.iter().any(is_current)) {
            return None;
        }
        let denied = self.names.entry(name).or_insert_with(|| DeniedName {
            is_collected: true,
            due: now + WAIT,
            failures: 0,
            answered: None,
            kept: BTreeMap::new(),
        });
        denied.is_collected &= !matches!(lease.pattern.names, namewall_policy::domain::DomainPattern::Exact(_));
        let same = denied.kept.get(&address).filter(|kept| kept.expiry == expiry);
        let since = same.map_or(now, |kept| kept.since);
        if denied.answered.is_some_and(|answered| answered >= since) {
            return None;
        }
        let more = if denied.failures > SOON { TRY_RARELY } else { TRY_AGAIN };
        // In whole seconds, as all leases.
        let expiry = Instant(Duration::from_secs((now + more + known.grace).0.as_secs() + 1));
        denied.kept.insert(address, Kept { since, expiry });
        Some(Lease { expiry, ..lease })
    }

    /// Takes what came of a lookup. Returns whether the name is one of those that are kept.
    pub(crate) fn take(&mut self, done: &Done, now: Instant) -> bool {
        let Some(denied) = self.names.get_mut(&done.name) else { return false };
        match done.replacement() {
            Some(_) => {
                denied.answered = Some(now);
                denied.failures = 0;
                denied.due = now + TRY_RARELY;
            }
            None => {
                denied.failures = denied.failures.saturating_add(1);
                denied.due = now + if denied.failures > SOON { TRY_RARELY } else { TRY_AGAIN };
            }
        }
        true
    }

    /// The names that are to be looked up: whether only wildcards are for it, since when, and the name.
    pub(crate) fn due(&self, now: Instant) -> impl Iterator<Item = (bool, Instant, &str)> {
        let is_kept = move |denied: &DeniedName| denied.kept.values().any(|kept| kept.expiry > now);
        let due = self.names.iter().filter(move |(_, denied)| denied.due <= now && is_kept(denied));
        due.map(|(name, denied)| (denied.is_collected, denied.due, name.as_str()))
    }
}

/// A name as it is asked for.
fn question(name: &DomainName) -> String {
    format!("{name}.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use namewall_dns::lookup::Found;
    use namewall_policy::domain::{DomainPattern, RulePattern};

    const NAME: &str = "bad.example.com.";
    const GRACE: Duration = Duration::from_secs(5);

    /// The leases of a denied name, and what a node does with them each second.
    struct Denied {
        names: DeniedNames,
        leases: BTreeMap<IpAddr, Instant>,
        published: BTreeMap<&'static str, PublishedName>,
        now: Instant,
        lookups: u32,
    }

    impl Denied {
        fn new(addresses: &[IpAddr]) -> Self {
            let end = Instant(Duration::from_secs(35));
            let leases = addresses.iter().map(|address| (*address, end)).collect();
            let (names, published) = (DeniedNames::default(), BTreeMap::new());
            Self { names, leases, published, now: Instant::default(), lookups: 0 }
        }

        /// Lets seconds go by, in which a lookup is answered like this.
        fn pass(&mut self, seconds: u64, found: &Found, is_whole: bool) {
            for _ in 0..seconds {
                self.now = self.now + Duration::from_secs(1);
                // The table has leases for a while after they have ended.
                let name = DomainName::parse_recorded(NAME).expect("a name");
                let over = self.leases.iter().filter(|(_, end)| **end <= self.now + GRACE);
                let ending: Vec<Lease> = over
                    .map(|(address, end)| Lease {
                        pattern: RulePattern::deny(DomainPattern::Exact(name.clone())),
                        name: name.clone(),
                        address: *address,
                        expiry: *end,
                        asked_by: None,
                    })
                    .collect();
                let known = Known { now: self.now, grace: GRACE, published: &self.published };
                for lease in self.names.keep(ending, &known) {
                    self.leases.insert(lease.address, lease.expiry);
                }
                if self.names.due(self.now).count() > 0 {
                    self.lookups += 1;
                    let done = Done { name: NAME.to_owned(), found: found.clone(), is_whole };
                    assert!(self.names.take(&done, self.now));
                    for (address, ttl) in found.iter().flatten() {
                        self.leases.insert(*address, self.now + Duration::from_secs((*ttl).into()) + GRACE);
                    }
                }
            }
        }

        fn addresses(&self) -> Vec<IpAddr> {
            let open = self.leases.iter().filter(|(_, end)| **end > self.now);
            open.map(|(address, _)| *address).collect()
        }
    }

    fn v4(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn v6() -> IpAddr {
        "2001:db8::1".parse().expect("an address")
    }

    #[test]
    fn s8_7_failures_and_empty_answers_never_end_a_deny_by_name() {
        let failure = |why: &str| Err(why.to_owned());
        for found in [failure("Timeout"), failure("SERVFAIL"), failure("NXDOMAIN"), Ok(Vec::new())] {
            let mut denied = Denied::new(&[v4(1)]);
            denied.pass(3_600, &found, true);
            assert_eq!(denied.addresses(), [v4(1)], "{found:?}");
            assert!((60..80).contains(&denied.lookups), "once a minute: {}", denied.lookups);
        }
    }

    #[test]
    fn s8_7_a_successful_answer_replaces_what_was_denied() {
        let mut denied = Denied::new(&[v4(1), v6()]);
        denied.pass(600, &Err("Timeout".to_owned()), false);
        assert_eq!(denied.addresses(), [v4(1), v6()]);
        denied.pass(150, &Ok(vec![(v4(2), 30)]), true);
        assert_eq!(denied.addresses(), [v4(2)]);
    }

    #[test]
    fn s8_7_an_answer_for_one_family_keeps_what_is_denied_of_the_other() {
        let mut denied = Denied::new(&[v4(1), v6()]);
        denied.pass(600, &Ok(vec![(v4(1), 30)]), false);
        assert_eq!(denied.addresses(), [v4(1), v6()]);
    }

    #[test]
    fn an_address_that_dns_returns_again_later_is_kept_again() {
        let mut denied = Denied::new(&[v4(1)]);
        denied.pass(200, &Ok(vec![(v4(1), 30)]), true);
        denied.pass(200, &Ok(vec![(v4(2), 30)]), true);
        assert_eq!(denied.addresses(), [v4(2)]);
        denied.pass(400, &Err("SERVFAIL".to_owned()), false);
        assert_eq!(denied.addresses(), [v4(2)]);
    }

    #[test]
    fn what_others_have_published_anew_is_not_looked_up() {
        let mut denied = Denied::new(&[v4(1)]);
        let later = Instant(Duration::from_secs(1_000));
        let addresses = BTreeMap::from([(v4(2), later)]);
        denied.published.insert(NAME, PublishedName::known_until(addresses, later));
        denied.pass(60, &Err("SERVFAIL".to_owned()), false);
        assert_eq!((denied.addresses(), denied.lookups), (Vec::new(), 0));
    }
}
