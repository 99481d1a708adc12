//! Keeps names open by lookups of this node's own (S6.1): names that other nodes
//! have published, and that nobody publishes anew when their TTL is over, since
//! the API server or the controller is away (S8.7); and names that this node has
//! opened itself meanwhile, and that it cannot publish.

use crate::denied_names::{DeniedNames, Known};
use crate::learner::Learner;
use crate::share::Heard;
use crate::sharing::{LearnedElsewhere, PublishedName};
use crate::unpublished::Unpublished;
use namewall_dataplane::Dataplane;
use namewall_dns::lookup::{Done, Lookups, NO_SUCH_NAME, Order};
use namewall_policy::domain::{DomainName, DomainPattern};
use namewall_policy::{Instant, Lease};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How long after the end of a TTL others have to publish it anew. It ends well before the grace (S6.3) does.
const WAIT: Duration = Duration::from_secs(1);
/// How often it is looked which names are due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a lease outlives its TTL.
const GRACE: Duration = Duration::from_secs(5);
/// How soon a lookup that failed is made again, and for how long its name keeps its addresses.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// A name keeps its addresses for so many failures (S8.7); after that it is looked up less often.
const MOST_FAILURES: u32 = 5;
const TRY_RARELY: Duration = Duration::from_secs(60);
/// A name whose lookup has not ended keeps its addresses for so long at most, and is given more time so long before they
/// end.
const MOST_POSTPONED: Duration = Duration::from_secs(300);
const POSTPONE_BEFORE: Duration = Duration::from_secs(2);
/// Leases of denied names are granted again so long before they end, or with their grace if that is longer.
const KEEP_BEFORE: Duration = Duration::from_secs(3);
/// Lookups at the same time. Names of rules come before those that wildcards have collected.
const MOST_UNDER_WAY: usize = 256;

/// What this node has looked up itself.
#[derive(Debug)]
pub struct Renewals {
    names: BTreeMap<String, Renewed>,
    denied: DeniedNames,
    unpublished: Unpublished,
    under_way: BTreeSet<String>,
    /// Names that are due, and whose lookup cannot be made yet.
    waiting: Vec<String>,
    lookups: Box<dyn Lookups>,
    look_at: Instant,
}

#[derive(Clone, Debug)]
struct Renewed {
    addresses: BTreeMap<IpAddr, Instant>,
    due: Instant,
    failures: u32,
    /// DNS has said that it has no address.
    is_gone: bool,
}

/// Whom to ask, and for what.
pub struct Renewing<'a> {
    pub published: &'a LearnedElsewhere,
    pub servers: Vec<SocketAddr>,
    /// True while this node cannot publish what it learns.
    pub is_blocked: bool,
    /// What the rules of this node say of names.
    pub rules: &'a dyn RenewalRules,
}

/// What the rules of a node say of names.
pub trait RenewalRules {
    /// True if the name is renewed.
    fn renews(&self, name: &DomainName) -> bool;

    /// How long a lease outlives its TTL.
    fn grace(&self) -> Duration;

    /// The leases of patterns that a rule denies, and that end within this time or have ended.
    fn ending_denials(&self, within: Duration) -> Vec<Lease>;

    /// The leases of some patterns that rules allow, and that end within this time.
    fn ending_answers(&self, within: Duration, wanted: &dyn Fn(&DomainPattern) -> bool) -> Vec<Lease>;
}

impl<D: Dataplane> RenewalRules for Learner<D> {
    fn renews(&self, name: &DomainName) -> bool {
        Self::renews(self, name)
    }

    fn grace(&self) -> Duration {
        Self::grace(self)
    }

    fn ending_denials(&self, within: Duration) -> Vec<Lease> {
        Self::ending_denials(self, within)
    }

    fn ending_answers(&self, within: Duration, wanted: &dyn Fn(&DomainPattern) -> bool) -> Vec<Lease> {
        Self::ending_answers(self, within, wanted)
    }
}

/// What is to be opened now.
#[derive(Default, Debug)]
pub struct Renewal {
    pub heard: Vec<Heard>,
    /// Leases of denied names, to be granted again (S8.7).
    pub kept: Vec<Lease>,
    /// What was found of names that no object has, to be published, and who asked for each.
    pub to_publish: Vec<(Option<IpAddr>, Heard)>,
}

impl Renewals {
    pub fn new(lookups: Box<dyn Lookups>) -> Self {
        let (names, denied, unpublished) = (BTreeMap::new(), DeniedNames::default(), Unpublished::default());
        let (under_way, waiting) = (BTreeSet::new(), Vec::new());
        Self { names, denied, unpublished, under_way, waiting, lookups, look_at: Instant::default() }
    }

    /// Orders the lookups that are due, and returns what others have found, to be opened.
    pub fn turn(&mut self, renewing: &Renewing<'_>) -> Renewal {
        let now = renewing.published.now();
        let done = self.lookups.take_done();
        let is_time = now >= self.look_at;
        if done.is_empty() && !is_time {
            return Renewal::default();
        }
        let mut published = renewing.published.names();
        let unpublished = self.unpublished(renewing, &published, is_time);
        published.extend(unpublished.names());
        // What is published anew, or no longer, is not ours to keep.
        let is_ours = |name: &str, renewed: &Renewed| {
            published.get(name).is_some_and(|known| known.due() + WAIT <= now.max(renewed.due))
        };
        self.names.retain(|name, renewed| is_ours(name, renewed));
        let (mut heard, mut to_publish) = (Vec::new(), Vec::new());
        for one in done {
            self.under_way.remove(&one.name);
            let is_denied = self.denied.take(&one, now);
            let known = published.get(one.name.as_str()).filter(|known| known.due() + WAIT <= now);
            let Some(known) = known else {
                // It was looked up because it is denied, and others may have published it meanwhile.
                let found = Renewed::found(&one, renewing.published).filter(|_| is_denied);
                heard.extend(found.iter().flat_map(|found| found.heard(&one.name, now)));
                continue;
            };
            let renewed = self.renew(&one, known, renewing.published);
            let found = renewed.heard(&one.name, now);
            if let Some(asked_by) = unpublished.asked_by(&one.name).filter(|_| renewed.failures == 0) {
                to_publish.extend(found.iter().map(|heard| (asked_by, heard.clone())));
            }
            heard.extend(found);
            self.names.insert(one.name, renewed);
        }
        let mut kept = Vec::new();
        if is_time {
            self.look_at = now + LOOK_EVERY;
            let grace = renewing.rules.grace();
            let ending = renewing.rules.ending_denials(grace.max(KEEP_BEFORE));
            kept = self.denied.keep(ending, &Known { now, grace, published: &published });
            self.order(renewing, &published, now);
            heard.extend(self.postpone(grace, &published, now));
        }
        drop(published);
        self.unpublished = unpublished;
        Renewal { heard, kept, to_publish }
    }

    /// The names that this node has opened and that no object has. They are taken out, and to be put back.
    fn unpublished(
        &mut self,
        renewing: &Renewing<'_>,
        published: &BTreeMap<&str, PublishedName>,
        is_time: bool,
    ) -> Unpublished {
        let now = renewing.published.now();
        let mut unpublished = std::mem::take(&mut self.unpublished);
        if !is_time {
            return unpublished;
        }
        // One that DNS says is gone, or that has had no answer for so long that it is closed, is forgotten.
        let is_over = |renewed: &Renewed| {
            let is_closed = renewed.failures > MOST_FAILURES && renewed.addresses.is_empty();
            (renewed.is_gone || is_closed) && renewed.due <= now
        };
        unpublished.retain(|name| {
            let is_used = DomainName::parse_recorded(name).is_ok_and(|name| renewing.rules.renews(&name));
            is_used && !published.contains_key(name) && !self.names.get(name).is_some_and(is_over)
        });
        let grace = renewing.rules.grace();
        // While writes succeed, a name that no object has is one that an object gave up or cannot hold.
        if renewing.is_blocked {
            let shared = renewing.published.shared_names();
            let may_have = |pattern: &DomainPattern| shared.may_have(pattern);
            let mut ending = renewing.rules.ending_answers(grace.max(KEEP_BEFORE), &may_have);
            ending.retain(|lease| shared.has(&lease.name));
            unpublished.add(ending, grace, published);
        }
        unpublished
    }

    /// All that has not ended.
    pub fn unexpired(&self, now: Instant) -> Vec<Heard> {
        self.names.iter().flat_map(|(name, renewed)| renewed.heard(name, now)).collect()
    }

    fn renew(&self, done: &Done, known: &PublishedName, published: &LearnedElsewhere) -> Renewed {
        let (now, before) = (published.now(), self.names.get(&done.name));
        let failures = before.map_or(0, |renewed| renewed.failures) + 1;
        let retry = now + if failures > MOST_FAILURES { TRY_RARELY } else { TRY_AGAIN };
        if let Some(found) = Renewed::found(done, published) {
            return found;
        }
        match &done.found {
            // The name has no address any more.
            Ok(_) => Renewed::gone(retry, failures),
            Err(why) if why == NO_SUCH_NAME => Renewed::gone(retry, failures),
            Err(_) => {
                let last = before.map_or(&known.addresses, |renewed| &renewed.addresses);
                let is_open = |until: Instant| failures <= MOST_FAILURES && until + GRACE > now;
                let open = last.iter().filter(|(_, until)| is_open(**until));
                let addresses = open.map(|(address, _)| (*address, now + TRY_AGAIN)).collect();
                Renewed { addresses, due: retry, failures, is_gone: false }
            }
        }
    }

    /// A lookup that waits for its turn, or for an answer, says nothing against the addresses (S8.7): those that are
    /// about to end last a little longer. Returns these.
    fn postpone(&mut self, grace: Duration, published: &BTreeMap<&str, PublishedName>, now: Instant) -> Vec<Heard> {
        let mut heard = Vec::new();
        for name in self.waiting.iter().chain(&self.under_way) {
            let Some(known) = published.get(name.as_str()) else { continue };
            let mut renewed = self.names.get(name).cloned().unwrap_or_else(|| Renewed::of(known));
            let is_ending = |until: &Instant| *until + grace > now && *until + grace <= now + POSTPONE_BEFORE;
            let ending = renewed.addresses.values_mut().filter(|until| is_ending(until));
            let lengthened = ending.map(|until| *until = now + TRY_AGAIN).count();
            if lengthened > 0 && now.since(renewed.due) <= MOST_POSTPONED {
                heard.extend(renewed.heard(name, now));
                self.names.insert(name.clone(), renewed);
            }
        }
        heard
    }

    fn order(&mut self, renewing: &Renewing<'_>, published: &BTreeMap<&str, PublishedName>, now: Instant) {
        let due = |name: &str, known: &PublishedName| match self.names.get(name) {
            Some(renewed) => renewed.due,
            None => known.due() + WAIT,
        };
        // A name that no object has, and that does not exist any more, does not come back.
        let is_over = |name: &str| {
            let is_gone = self.names.get(name).is_some_and(|renewed| renewed.is_gone);
            is_gone && published.get(name).is_some_and(|known| known.is_lost)
        };
        let is_used = |name: &str| DomainName::parse_recorded(name).is_ok_and(|name| renewing.rules.renews(&name));
        let mut wanted: Vec<(bool, Instant, &str)> = published
            .iter()
            .map(|(name, known)| (known.is_collected, due(name, known), *name))
            .filter(|(_, due, name)| *due <= now && !is_over(name) && is_used(name))
            .chain(self.denied.due(now))
            .filter(|(_, _, name)| !self.under_way.contains(*name))
            .collect();
        wanted.sort_unstable();
        let (first, spare) = renewing.servers.split_at(renewing.servers.len().min(1));
        let room = MOST_UNDER_WAY.saturating_sub(self.under_way.len());
        let (mut ordered, mut waiting) = (BTreeSet::new(), Vec::new());
        for name in wanted.into_iter().map(|(_, _, name)| name) {
            if ordered.len() >= room {
                waiting.push(name.to_owned());
            } else if ordered.insert(name.to_owned()) {
                self.lookups.order(Order { name: name.to_owned(), servers: first.to_vec(), spare: spare.to_vec() });
            }
        }
        self.under_way.extend(ordered);
        self.waiting = waiting;
    }
}

impl Renewed {
    /// Of a lookup that gave addresses.
    fn found(done: &Done, published: &LearnedElsewhere) -> Option<Self> {
        let found = done.found.as_ref().ok()?;
        let now = published.now();
        let end = |ttl: u32| now + Duration::from_secs(ttl.into()).min(published.maximum()).max(TRY_AGAIN);
        let addresses: BTreeMap<IpAddr, Instant> = found.iter().map(|(address, ttl)| (*address, end(*ttl))).collect();
        let due = addresses.values().min().copied()?;
        Some(Self { addresses, due, failures: 0, is_gone: false })
    }

    /// As others have published it.
    fn of(known: &PublishedName) -> Self {
        let (addresses, due) = (known.addresses.clone(), known.over_since() + WAIT);
        Self { addresses, due, failures: 0, is_gone: false }
    }

    fn gone(due: Instant, failures: u32) -> Self {
        Self { addresses: BTreeMap::new(), due, failures, is_gone: true }
    }

    fn heard(&self, name: &str, now: Instant) -> Vec<Heard> {
        let Ok(name) = DomainName::parse_recorded(name) else { return Vec::new() };
        let unexpired = self.addresses.iter().filter(|(_, until)| **until > now);
        unexpired
            .map(|(address, until)| Heard { name: name.clone(), address: *address, left: until.since(now) })
            .collect()
    }
}

impl std::fmt::Debug for Renewing<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Renewing").field("servers", &self.servers).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
