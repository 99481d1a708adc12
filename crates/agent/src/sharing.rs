//! Nodes share what they learn, by the status of DNSNameResolvers (S8): what is
//! learned here is published, and what other nodes have published is opened.

use crate::share::{Heard, Share};
use namewall_cluster::Key;
use namewall_cluster::kinds::dns_name_resolver::unresolved_message;
use namewall_kubernetes::{NameObject, Outcome, Publisher, SharedAddress};
use namewall_policy::domain::{DomainName, DomainPattern};
use namewall_policy::lease::Lifetimes;
use namewall_policy::{Instant, Lease};
use namewall_runtime::Clock;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// How long an answer waits until it is published (S8.5). On this node it is open already.
const HOLD: Duration = Duration::from_millis(50);

/// So many names of an object are looked up here after it has lost them, and so many of all that were deleted.
const MOST_LOST: usize = 1_000;
/// No address is before this one.
const LOWEST: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Publishes what is learned here.
#[derive(Debug)]
pub struct Publishing {
    publisher: Arc<Publisher>,
}

impl Publishing {
    pub fn new(publisher: Arc<Publisher>) -> Self {
        Self { publisher }
    }
}

impl Share for Publishing {
    fn note(&self, client: Option<IpAddr>, name: &DomainName, addresses: &[(IpAddr, Duration)]) {
        let seconds = |ttl: &Duration| u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX);
        let found = addresses.iter().map(|(address, ttl)| (*address, seconds(ttl))).collect();
        self.publisher.note_for(client, &format!("{name}."), &Outcome::Found(found));
    }

    fn finish(&self) {
        self.publisher.hold(HOLD);
    }
}

/// What other nodes have published, by object.
#[derive(Debug)]
pub struct LearnedElsewhere {
    objects: BTreeMap<Key, BTreeMap<(String, IpAddr), PublishedAddress>>,
    /// What each object is for.
    patterns: BTreeMap<Key, String>,
    /// The messages about names that could not be resolved.
    unresolved: BTreeMap<Key, Vec<String>>,
    /// Names that an object lost after lookups had failed, after nobody could write them for longer than their TTL, or
    /// without any reason: DNS may still return their addresses (S8.7).
    lost: BTreeMap<Key, BTreeSet<String>>,
    /// Names of objects that were deleted. A rule may still have them: nobody but the controller should delete an
    /// object, and what a wildcard's object had collected is in no other one.
    deleted: BTreeSet<String>,
    has_begun: bool,
    clock: Arc<dyn Clock>,
    /// What every longer TTL counts as (S6.3).
    maximum: Duration,
}

#[derive(Clone, Copy, Debug)]
struct PublishedAddress {
    /// The time of the lookup and its TTL, as the object has them. Another pair is another lookup.
    lookup: (i64, i32),
    until: Instant,
    /// True if the object is for a wildcard, which has collected the name.
    is_collected: bool,
    /// True if the last lookup that was published failed.
    is_failing: bool,
}

/// The names that objects are for.
#[derive(Default, Debug)]
pub(crate) struct SharedNames<'a> {
    names: HashSet<&'a str>,
    /// The domains of wildcards: an object for a wildcard has names of one label more.
    parents: HashSet<&'a str>,
}

impl SharedNames<'_> {
    /// Whether an object may be for names of a pattern. The leases are locked while it is asked.
    pub(crate) fn may_have(&self, pattern: &DomainPattern) -> bool {
        let domains = if matches!(pattern, DomainPattern::Exact(_)) { &self.names } else { &self.parents };
        domains.contains(pattern.domain().as_str())
    }

    /// Whether an object is for the name.
    pub(crate) fn has(&self, name: &DomainName) -> bool {
        self.names.contains(name.as_str()) || name.suffixes().nth(1).is_some_and(|parent| self.parents.contains(parent))
    }
}

/// What is published of a name, by all objects.
#[derive(Clone, Debug)]
pub(crate) struct PublishedName {
    pub(crate) addresses: BTreeMap<IpAddr, Instant>,
    /// True if only wildcards' objects have it.
    pub(crate) is_collected: bool,
    /// The time of the last lookup, and when the first TTL of its addresses is over.
    last: (i64, Instant),
    /// True if those who publish it cannot look it up: nodes do it themselves.
    is_failing: bool,
    /// True if no object has it any more.
    pub(crate) is_lost: bool,
}

impl PublishedName {
    /// No object has it; these addresses are known by an answer, each with the end of its TTL.
    pub(crate) fn unpublished(addresses: BTreeMap<IpAddr, Instant>, is_collected: bool) -> Self {
        let last = (0, addresses.values().min().copied().unwrap_or_default());
        Self { addresses, is_collected, last, is_failing: true, is_lost: true }
    }

    #[cfg(test)]
    pub(crate) fn known_until(addresses: BTreeMap<IpAddr, Instant>, due: Instant) -> Self {
        Self { addresses, is_collected: false, last: (0, due), is_failing: false, is_lost: false }
    }

    /// When the TTL of its last lookup is over.
    pub(crate) fn over_since(&self) -> Instant {
        self.last.1
    }

    /// When it should be looked up again.
    pub(crate) fn due(&self) -> Instant {
        if self.is_failing { Instant::default() } else { self.last.1 }
    }
}

impl LearnedElsewhere {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let (objects, unresolved, lost) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (deleted, maximum) = (BTreeSet::new(), Lifetimes::default().maximum);
        let patterns = BTreeMap::new();
        Self { objects, patterns, unresolved, lost, deleted, has_begun: false, clock, maximum }
    }

    /// What every longer TTL counts as, from now on.
    pub fn set_maximum(&mut self, maximum: Duration) {
        self.maximum = maximum;
    }

    /// Takes objects that have changed, and returns what is to be opened. An address that was looked up while we
    /// watch is good for its TTL from now on, so that the clocks of other nodes do not matter. At the start the
    /// clocks must do. No address is good for longer than its TTL.
    pub fn take(&mut self, changed: Vec<(Key, Option<NameObject>)>) -> Vec<Heard> {
        let (now, wall) = (self.clock.now(), self.clock.wall().as_second());
        let maximum = i64::try_from(self.maximum.as_secs()).unwrap_or(i64::MAX);
        let mut heard = Vec::new();
        for (key, object) in changed {
            let before = self.objects.remove(&key).unwrap_or_default();
            self.unresolved.remove(&key);
            self.patterns.remove(&key);
            let mut lost = self.lost.remove(&key).unwrap_or_default();
            let Some(object) = object else {
                self.deleted.extend(before.into_keys().map(|(name, _)| name).chain(lost));
                while self.deleted.len() > MOST_LOST {
                    self.deleted.pop_last();
                }
                continue;
            };
            let failing = object.status.resolved_names.iter().filter(|item| item.resolution_failures > 0);
            let failing: BTreeSet<&str> = failing.map(|item| item.dns_name.as_str()).collect();
            let unresolved = object.status.unresolved().map(|(name, why)| unresolved_message(name, why));
            let unresolved: Vec<String> = unresolved.collect();
            if !unresolved.is_empty() {
                self.unresolved.insert(key.clone(), unresolved);
            }
            let mut addresses = BTreeMap::new();
            for published in object.addresses() {
                let SharedAddress { name, address, ttl_seconds, looked_up, pattern } = published;
                let is_collected = name != pattern;
                let ttl = i64::from(ttl_seconds.max(0)).min(maximum);
                let lookup = (looked_up, ttl_seconds);
                let left = if self.has_begun { ttl } else { (looked_up + ttl - wall).clamp(0, ttl) };
                let is_failing = failing.contains(name.as_str());
                let key = (name, address);
                let same = before.get(&key).filter(|known| known.lookup == lookup).copied();
                let until = now + Duration::from_secs(left.unsigned_abs());
                let fresh = PublishedAddress { lookup, until, is_collected, is_failing };
                addresses.insert(key, PublishedAddress { is_failing, ..same.unwrap_or(fresh) });
            }
            // Others fold names into the wildcard, and a full object gives names up for new ones. Nobody has another
            // reason to remove a name before its time: DNS may still return it.
            let has_shrunk = name_count(&addresses) < name_count(&before);
            let is_folded = |address: IpAddr| addresses.contains_key(&(object.pattern.clone(), address));
            let is_lost = |address: IpAddr, known: &PublishedAddress| {
                known.is_failing || known.until <= now || (has_shrunk && !is_folded(address))
            };
            let lost_entries = before.iter().filter(|((_, address), known)| is_lost(*address, known));
            lost.extend(lost_entries.map(|((name, _), _)| name.clone()));
            let is_there = |name: &String| addresses.range((name.clone(), LOWEST)..).next();
            lost.retain(|name| is_there(name).is_none_or(|((known, _), _)| known != name));
            while lost.len() > MOST_LOST {
                lost.pop_last();
            }
            if !lost.is_empty() {
                self.lost.insert(key.clone(), lost);
            }
            heard.extend(unexpired(&addresses, now));
            self.patterns.insert(key.clone(), object.pattern);
            self.objects.insert(key, addresses);
        }
        self.has_begun = true;
        heard
    }

    /// What the objects are for.
    pub(crate) fn shared_names(&self) -> SharedNames<'_> {
        let mut shared = SharedNames::default();
        for pattern in self.patterns.values() {
            let pattern = pattern.strip_suffix('.').unwrap_or(pattern);
            match pattern.strip_prefix("*.") {
                Some(parent) => _ = shared.parents.insert(parent),
                None => _ = shared.names.insert(pattern),
            }
        }
        shared
    }

    /// Takes the leases that an earlier process has left, in place of objects that cannot be listed yet.
    pub(crate) fn adopt(&mut self, leases: impl Iterator<Item = Lease>) {
        let mut addresses = BTreeMap::new();
        for lease in leases {
            let until = Instant(lease.expiry.0.saturating_sub(Lifetimes::default().grace));
            let known = PublishedAddress { lookup: (0, 0), until, is_collected: false, is_failing: false };
            addresses.insert((format!("{}.", lease.name), lease.address), known);
        }
        self.objects.insert(adopted(), addresses);
    }

    /// The objects are known again.
    pub(crate) fn forget_adopted(&mut self) {
        self.objects.remove(&adopted());
    }

    /// Forgets the names of deleted objects that no rule has any more.
    pub(crate) fn forget_deleted(&mut self, is_used: impl Fn(&DomainName) -> bool) {
        self.deleted.retain(|name| DomainName::parse_recorded(name).is_ok_and(|name| is_used(&name)));
    }

    /// The messages about names that could not be resolved.
    pub(crate) fn unresolved(&self) -> impl Iterator<Item = &String> {
        self.unresolved.values().flatten()
    }

    pub(crate) fn maximum(&self) -> Duration {
        self.maximum
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Every name that an object has.
    pub(crate) fn names(&self) -> BTreeMap<&str, PublishedName> {
        let mut names: BTreeMap<&str, PublishedName> = BTreeMap::new();
        for ((name, address), known) in self.objects.values().flatten() {
            let (looked_up, until) = (known.lookup.0, known.until);
            let last = (looked_up, until);
            let addresses = BTreeMap::new();
            let new = PublishedName { addresses, is_collected: true, last, is_failing: true, is_lost: false };
            let entry = names.entry(name).or_insert(new);
            entry.is_failing &= known.is_failing;
            let end = entry.addresses.entry(*address).or_insert(until);
            *end = until.max(*end);
            entry.is_collected &= known.is_collected;
            // An address that DNS no longer returns stays for a while with its old lookup.
            entry.last = match looked_up.cmp(&entry.last.0) {
                Ordering::Less => entry.last,
                Ordering::Equal => (looked_up, until.min(entry.last.1)),
                Ordering::Greater => (looked_up, until),
            };
        }
        for name in self.lost.values().flatten().chain(&self.deleted) {
            let last = (0, Instant::default());
            let addresses = BTreeMap::new();
            let lost = PublishedName { addresses, is_collected: true, last, is_failing: true, is_lost: true };
            names.entry(name).or_insert(lost);
        }
        names
    }

    /// All that has not expired.
    pub fn unexpired(&self) -> Vec<Heard> {
        let now = self.clock.now();
        self.objects.values().flat_map(|addresses| unexpired(addresses, now)).collect()
    }
}

/// The key of what is not an object: no object's name is empty.
fn adopted() -> Key {
    Key { namespace: "".into(), name: "".into() }
}

fn name_count(addresses: &BTreeMap<(String, IpAddr), PublishedAddress>) -> usize {
    let names: BTreeSet<&str> = addresses.keys().map(|(name, _)| name.as_str()).collect();
    names.len()
}

fn unexpired(addresses: &BTreeMap<(String, IpAddr), PublishedAddress>, now: Instant) -> impl Iterator<Item = Heard> {
    let unexpired = addresses.iter().filter(move |(_, known)| known.until > now);
    unexpired.filter_map(move |((name, address), known)| {
        Some(Heard { name: DomainName::parse_recorded(name).ok()?, address: *address, left: known.until.since(now) })
    })
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use namewall_cluster::kinds::dns_name_resolver::Status;
    use serde_json::json;

    /// Looked up so many seconds after the start of 1970.
    pub(crate) fn object(looked_up: i64, ttl: i32) -> NameObject {
        let at = jiff::Timestamp::from_second(looked_up).expect("a time");
        let status = json!({"resolvedNames": [{
            "dnsName": "www.example.com.",
            "resolvedAddresses": [{"ip": "192.0.2.1", "ttlSeconds": ttl, "lastLookupTime": at.to_string()}],
        }]});
        let status: Status = serde_json::from_value(status).expect("a status");
        let key = Key { namespace: "namewall".into(), name: "dns-1".into() };
        NameObject { key, pattern: "www.example.com.".to_owned(), status, is_ours: true }
    }

    pub(crate) fn tell(others: &mut LearnedElsewhere, looked_up: i64, ttl: i32) -> Vec<Heard> {
        let object = object(looked_up, ttl);
        others.take(vec![(object.key.clone(), Some(object))])
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{object, tell};
    use super::*;
    use namewall_runtime::ManualClock;

    /// A node that begins to listen, and its clock.
    struct Listener {
        clock: ManualClock,
        others: LearnedElsewhere,
    }

    impl Listener {
        fn new() -> Self {
            let clock = ManualClock::default();
            let others = LearnedElsewhere::new(Arc::new(clock.clone()));
            Self { clock, others }
        }

        /// The seconds that what was heard is good for.
        fn left(&self) -> Option<u64> {
            self.others.unexpired().first().map(|heard| heard.left.as_secs())
        }

        fn tell(&mut self, looked_up: i64, ttl: i32) -> Vec<Heard> {
            tell(&mut self.others, looked_up, ttl)
        }
    }

    #[test]
    fn a_clock_that_is_behind_closes_nothing_that_is_heard_of_now() {
        let mut node = Listener::new();
        node.others.take(Vec::new());
        node.tell(1_000, 30);
        assert_eq!(node.left(), Some(30));
    }

    #[test]
    fn what_is_old_at_the_start_opens_nothing() {
        let mut node = Listener::new();
        assert_eq!(node.tell(1_000, 30), Vec::new());
        assert_eq!(node.left(), None);
    }

    #[test]
    fn at_the_start_the_time_of_day_says_how_much_is_left() {
        for (looked_up, left) in [(-20, Some(10)), (-30, None), (500, Some(30))] {
            let mut node = Listener::new();
            let wall = node.clock.wall().as_second();
            node.tell(wall + looked_up, 30);
            assert_eq!(node.left(), left, "looked up {looked_up} s from now");
        }
    }

    #[test]
    fn s6_3_a_ttl_above_the_maximum_counts_as_the_maximum_from_its_lookup_on() {
        let mut node = Listener::new();
        node.others.take(Vec::new());
        node.tell(1_000, i32::MAX);
        assert_eq!(node.left(), Some(3_600));
        node.clock.advance(Duration::from_secs(3_599));
        node.tell(1_000, i32::MAX);
        assert_eq!(node.left(), Some(1), "the same lookup again");
        node.clock.advance(Duration::from_secs(1));
        assert_eq!(node.left(), None);
        node.others.set_maximum(Duration::from_secs(60));
        node.tell(9_000, i32::MAX);
        assert_eq!(node.left(), Some(60));
        // What was looked up long ago is over at the start.
        let mut late = Listener::new();
        let wall = late.clock.wall().as_second();
        late.tell(wall - 3_601, i32::MAX);
        assert_eq!(late.left(), None);
    }

    #[test]
    fn what_was_heard_expires_by_our_own_clock() {
        let mut node = Listener::new();
        node.others.take(Vec::new());
        assert_eq!(node.tell(1_000, 30).len(), 1);
        node.clock.advance(Duration::from_secs(29));
        assert_eq!(node.left(), Some(1));
        node.clock.advance(Duration::from_secs(1));
        assert_eq!(node.left(), None);
    }

    #[test]
    fn s8_7_a_name_that_never_resolved_is_told() {
        let mut node = Listener::new();
        let mut object = object(1_000, 30);
        let condition = serde_json::json!({
            "type": "Degraded", "status": "True", "reason": "NXDOMAIN", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let item = &mut object.status.resolved_names[0];
        item.resolved_addresses.clear();
        item.conditions = vec![serde_json::from_value(condition).expect("a condition")];
        node.others.take(vec![(object.key.clone(), Some(object.clone()))]);
        let told: Vec<&String> = node.others.unresolved().collect();
        assert!(told.len() == 1 && told[0].contains("www.example.com. could not be resolved (NXDOMAIN)"), "{told:?}");
        node.tell(2_000, 30);
        assert_eq!(node.others.unresolved().count(), 0);
    }

    #[test]
    fn the_same_lookup_again_is_no_longer_good_for_it() {
        let mut node = Listener::new();
        node.others.take(Vec::new());
        node.tell(1_000, 30);
        node.clock.advance(Duration::from_secs(20));
        assert_eq!(node.tell(1_000, 30).len(), 1);
        assert_eq!(node.left(), Some(10));
        node.clock.advance(Duration::from_secs(10));
        assert_eq!(node.tell(1_000, 30), Vec::new());
        assert_eq!(node.tell(1_031, 30).len(), 1);
        assert_eq!(node.left(), Some(30));
        node.others.take(vec![(object(0, 0).key, None)]);
        assert_eq!(node.left(), None);
    }
}
