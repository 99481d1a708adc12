//! When each name is looked up again, and which objects have expired addresses
//! (S8.4). Pure; time is an argument.

use jiff::{SignedDuration, Timestamp};
use namewall_cluster::Key;
use namewall_cluster::resolver::{is_wildcard, next_lookup};
use namewall_kubernetes::NameObject;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Every name is looked up again after this at the latest.
const AT_LATEST: SignedDuration = SignedDuration::from_mins(30);
/// A name whose lookup changed nothing is not asked for again sooner.
const OVERDUE: SignedDuration = SignedDuration::from_secs(10);
/// A name that no server could resolve is asked for again after this at the latest: it opens soon after DNS is back.
const AT_LATEST_IN_TROUBLE: SignedDuration = SignedDuration::from_secs(30);
/// A name under a wildcard that was removed because DNS failed is asked for so much longer, and so many of an object.
const LOST_FOR: SignedDuration = SignedDuration::from_hours(1);
const MOST_LOST: usize = 1_000;

/// How a lookup ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tried {
    Found,
    /// An answer that says that there is no such name, or no address.
    NoAddress,
    /// No server gave an answer.
    Trouble,
}

/// The names of all objects, and when each is due.
#[derive(Debug, Default)]
pub struct Schedule {
    objects: HashMap<Key, Vec<String>>,
    names: HashMap<String, Name>,
    due: BTreeSet<(Timestamp, String)>,
    prunes: BTreeMap<Key, Timestamp>,
    due_prunes: BTreeSet<(Timestamp, Key)>,
    grace: SignedDuration,
}

#[derive(Debug, Default)]
struct Name {
    /// What each object knows of it: when its first address is due, and how many it has.
    known: BTreeMap<Key, (Option<Timestamp>, usize)>,
    at: Timestamp,
    tried: Option<Timestamp>,
    failures: u32,
    /// Whether the last lookup got no answer.
    is_in_trouble: bool,
    /// Since when no object has it any more, though DNS never said that it is gone.
    lost: Option<Timestamp>,
}

/// A name that is due.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Due {
    pub name: String,
    /// The addresses it is known to have.
    pub addresses: usize,
    /// Since when.
    pub since: Timestamp,
}

impl Schedule {
    pub fn new(grace: SignedDuration) -> Self {
        Self { grace, ..Self::default() }
    }

    /// An object as it is now; none if it is gone.
    pub fn put(&mut self, key: &Key, object: Option<&NameObject>, now: Timestamp) {
        let before = self.objects.remove(key).unwrap_or_default();
        let mut names: BTreeMap<String, (Option<Timestamp>, usize)> = BTreeMap::new();
        let mut first_end = None;
        if let Some(object) = object {
            names.insert(object.pattern.clone(), (None, 0));
            for item in &object.status.resolved_names {
                let due = item.resolved_addresses.iter().map(next_lookup).min();
                names.insert(item.dns_name.clone(), (due, item.resolved_addresses.len()));
                first_end = first_end.into_iter().chain(due).min();
            }
        }
        let may_be_lost = object.is_some_and(|object| is_wildcard(&object.pattern));
        let mut lost = 0;
        for gone in before.into_iter().filter(|name| !names.contains_key(name)).collect::<Vec<_>>() {
            let is_lost = may_be_lost && lost < MOST_LOST && self.is_lost(&gone, now);
            lost += usize::from(is_lost);
            self.change(&gone, now, |name| match is_lost {
                true => {
                    name.lost.get_or_insert(now);
                    name.known.insert(key.clone(), (None, 0));
                }
                false => _ = name.known.remove(key),
            });
            if is_lost {
                names.insert(gone, (None, 0));
            }
        }
        for (text, known) in &names {
            self.change(text, now, |name| {
                name.known.insert(key.clone(), *known);
                if known.1 > 0 {
                    name.lost = None;
                }
            });
        }
        if let Some(at) = self.prunes.remove(key) {
            self.due_prunes.remove(&(at, key.clone()));
        }
        if let Some(at) = first_end.and_then(|end| end.checked_add(self.grace).ok()) {
            self.prunes.insert(key.clone(), at);
            self.due_prunes.insert((at, key.clone()));
        }
        if object.is_some() {
            self.objects.insert(key.clone(), names.into_keys().collect());
        }
    }

    /// Whether a name that an object has no longer is gone only because DNS failed.
    fn is_lost(&self, text: &str, now: Timestamp) -> bool {
        let Some(name) = self.names.get(text) else { return false };
        name.is_in_trouble && name.lost.is_none_or(|since| now.duration_since(since) < LOST_FOR)
    }

    /// A lookup has ended. What it changes in the object comes with the object.
    pub fn tried(&mut self, text: &str, how: Tried, now: Timestamp) {
        if !self.names.contains_key(text) {
            return;
        }
        self.change(text, now, |name| {
            name.tried = Some(now);
            name.failures = if how == Tried::Found { 0 } else { name.failures.saturating_add(1) };
            name.is_in_trouble = how == Tried::Trouble;
            let is_over = name.lost.is_some_and(|since| now.duration_since(since) >= LOST_FOR);
            if name.lost.is_some() && (how == Tried::NoAddress || is_over) {
                name.known.clear();
            }
        });
    }

    fn change(&mut self, text: &str, now: Timestamp, change: impl FnOnce(&mut Name)) {
        let is_new = !self.names.contains_key(text);
        let name = self.names.entry(text.to_owned()).or_default();
        if !is_new {
            self.due.remove(&(name.at, text.to_owned()));
        }
        change(name);
        if name.known.is_empty() {
            self.names.remove(text);
            return;
        }
        name.at = name.due(text, now);
        self.due.insert((name.at, text.to_owned()));
    }

    /// The names that are due. Each is given once, and again if nothing is heard of it.
    pub fn take_due(&mut self, now: Timestamp) -> Vec<Due> {
        let mut due = Vec::new();
        while let Some((at, text)) = self.due.first().filter(|(at, _)| *at <= now).cloned() {
            let addresses = self.names.get(&text).map_or(0, Name::addresses);
            due.push(Due { name: text.clone(), addresses, since: at });
            self.change(&text, now, |name| name.tried = Some(now));
        }
        due
    }

    /// Objects in which something is over.
    pub fn take_prunes(&mut self, now: Timestamp) -> Vec<Key> {
        let mut keys = Vec::new();
        while let Some((at, key)) = self.due_prunes.first().filter(|(at, _)| *at <= now).cloned() {
            self.due_prunes.remove(&(at, key.clone()));
            // Once more, should it not be heard of.
            let again = now.checked_add(OVERDUE).unwrap_or(Timestamp::MAX);
            self.prunes.insert(key.clone(), again);
            self.due_prunes.insert((again, key.clone()));
            keys.push(key);
        }
        keys
    }

    /// When there is something to do next.
    pub fn next(&self) -> Option<Timestamp> {
        let first = self.due.first().map(|(at, _)| *at);
        first.into_iter().chain(self.due_prunes.first().map(|(at, _)| *at)).min()
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

impl Name {
    fn addresses(&self) -> usize {
        self.known.values().map(|(_, count)| *count).max().unwrap_or(0)
    }

    fn due(&self, text: &str, now: Timestamp) -> Timestamp {
        let first = self.known.values().filter_map(|(due, _)| *due).min();
        let Some(tried) = self.tried else { return first.unwrap_or(now) };
        let longest = if self.is_in_trouble { AT_LATEST_IN_TROUBLE } else { AT_LATEST };
        let pause = match first {
            Some(_) => OVERDUE,
            None if is_wildcard(text) => AT_LATEST,
            None => longest.min(OVERDUE * 2_i32.saturating_pow(self.failures.min(10).saturating_sub(1))),
        };
        let again = tried.checked_add(pause).unwrap_or(Timestamp::MAX);
        let latest = tried.checked_add(AT_LATEST).unwrap_or(Timestamp::MAX);
        match first {
            Some(first) if first > tried => first.min(latest),
            _ => again,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use namewall_cluster::kinds::dns_name_resolver::{ResolvedAddress, ResolvedName, Status};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).expect("a time")
    }

    fn key(name: &str) -> Key {
        Key { namespace: "namewall".into(), name: name.into() }
    }

    fn object(pattern: &str, names: &[(&str, i64, i32)]) -> NameObject {
        let item = |(name, looked_up, ttl): &(&str, i64, i32)| ResolvedName {
            conditions: Vec::new(),
            dns_name: (*name).to_owned(),
            resolved_addresses: vec![ResolvedAddress {
                ip: "192.0.2.1".to_owned(),
                ttl_seconds: *ttl,
                last_lookup_time: Some(at(*looked_up)),
            }],
            resolution_failures: 0,
        };
        let status = Status { resolved_names: names.iter().map(item).collect() };
        NameObject { key: key(pattern), pattern: pattern.to_owned(), status, is_ours: true }
    }

    fn schedule(objects: &[NameObject]) -> Schedule {
        let mut schedule = Schedule::new(SignedDuration::from_secs(5));
        objects.iter().for_each(|object| schedule.put(&object.key, Some(object), at(0)));
        schedule
    }

    fn due(schedule: &mut Schedule, second: i64) -> Vec<String> {
        schedule.take_due(at(second)).into_iter().map(|due| due.name).collect()
    }

    #[test]
    fn a_new_name_is_due_at_once_and_only_once() {
        let mut schedule = schedule(&[object("a.example.com.", &[])]);
        assert_eq!(due(&mut schedule, 0), ["a.example.com."]);
        assert_eq!(due(&mut schedule, 1), [""; 0]);
        assert_eq!(due(&mut schedule, 10), ["a.example.com."], "nothing was heard of it");
    }

    #[test]
    fn s8_4_a_name_is_due_when_its_first_address_is() {
        let mut schedule = schedule(&[object("a.example.com.", &[("a.example.com.", 0, 30)])]);
        assert_eq!(due(&mut schedule, 29), [""; 0]);
        assert_eq!(due(&mut schedule, 30), ["a.example.com."]);
        schedule.tried("a.example.com.", Tried::Found, at(30));
        let renewed = object("a.example.com.", &[("a.example.com.", 30, 30)]);
        schedule.put(&renewed.key, Some(&renewed), at(31));
        assert_eq!(due(&mut schedule, 59), [""; 0]);
        assert_eq!(due(&mut schedule, 60), ["a.example.com."]);
    }

    #[test]
    fn a_name_that_stays_overdue_is_asked_for_every_ten_seconds() {
        let mut schedule = schedule(&[object("a.example.com.", &[("a.example.com.", 0, 30)])]);
        assert_eq!(due(&mut schedule, 40), ["a.example.com."]);
        schedule.tried("a.example.com.", Tried::Trouble, at(41));
        assert_eq!(due(&mut schedule, 50), [""; 0]);
        assert_eq!(due(&mut schedule, 51), ["a.example.com."]);
    }

    #[test]
    fn s8_4_a_wildcard_that_does_not_resolve_is_tried_again_after_half_an_hour() {
        let mut schedule = schedule(&[object("*.example.com.", &[("b.example.com.", 0, 3600)])]);
        assert_eq!(due(&mut schedule, 0), ["*.example.com."]);
        schedule.tried("*.example.com.", Tried::NoAddress, at(0));
        assert_eq!(due(&mut schedule, 1799), [""; 0]);
        assert_eq!(due(&mut schedule, 1800), ["*.example.com."]);
        assert_eq!(due(&mut schedule, 3600), ["*.example.com.", "b.example.com."]);
    }

    /// The pauses between lookups of a name that always end in the same way.
    fn pauses(how: Tried, count: usize) -> Vec<i64> {
        let mut schedule = schedule(&[object("a.example.com.", &[])]);
        let mut times = Vec::new();
        let mut now = 0;
        while times.len() <= count {
            if !due(&mut schedule, now).is_empty() {
                schedule.tried("a.example.com.", how, at(now));
                times.push(now);
            }
            now += 1;
        }
        times.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    #[test]
    fn a_name_that_does_not_exist_is_asked_for_ever_less() {
        assert_eq!(pauses(Tried::NoAddress, 10), [10, 20, 40, 80, 160, 320, 640, 1280, 1800, 1800]);
    }

    #[test]
    fn s8_7_a_name_that_nobody_answers_is_asked_for_again_soon() {
        assert_eq!(pauses(Tried::Trouble, 5), [10, 20, 30, 30, 30]);
    }

    #[test]
    fn s8_7_a_name_under_a_wildcard_that_was_lost_while_dns_failed_is_still_asked_for() {
        let known = object("*.example.com.", &[("b.example.com.", 0, 30)]);
        let empty = object("*.example.com.", &[]);
        for (how, is_asked) in [(Tried::Trouble, true), (Tried::NoAddress, false)] {
            let mut schedule = schedule(std::slice::from_ref(&known));
            schedule.tried("*.example.com.", Tried::NoAddress, at(0));
            schedule.tried("b.example.com.", how, at(60));
            schedule.put(&empty.key, Some(&empty), at(61));
            let asked = due(&mut schedule, 120);
            assert_eq!(asked.contains(&"b.example.com.".to_owned()), is_asked, "{how:?}: {asked:?}");
        }
    }

    #[test]
    fn a_lost_name_is_given_up_when_dns_says_that_it_is_gone_or_after_an_hour() {
        let known = object("*.example.com.", &[("b.example.com.", 0, 30)]);
        let empty = object("*.example.com.", &[]);
        for (how, second) in [(Tried::NoAddress, 70), (Tried::Trouble, 61 + 3600)] {
            let mut schedule = schedule(std::slice::from_ref(&known));
            schedule.tried("b.example.com.", Tried::Trouble, at(60));
            schedule.put(&empty.key, Some(&empty), at(61));
            assert_eq!(schedule.len(), 2);
            schedule.tried("b.example.com.", how, at(second));
            assert_eq!(schedule.len(), 1, "{how:?}");
            schedule.put(&empty.key, Some(&empty), at(second + 1));
            assert_eq!(schedule.len(), 1, "{how:?}");
        }
    }

    #[test]
    fn s8_4_no_name_waits_for_longer_than_half_an_hour() {
        let mut schedule = schedule(&[object("a.example.com.", &[("a.example.com.", 0, 86_400)])]);
        schedule.tried("a.example.com.", Tried::Found, at(0));
        assert_eq!(due(&mut schedule, 1799), [""; 0]);
        assert_eq!(due(&mut schedule, 1800), ["a.example.com."]);
    }

    #[test]
    fn a_name_of_two_objects_stays_until_both_are_gone() {
        let own = object("b.example.com.", &[("b.example.com.", 0, 30)]);
        let wildcard = object("*.example.com.", &[("b.example.com.", 0, 60)]);
        let mut schedule = schedule(&[own.clone(), wildcard.clone()]);
        schedule.put(&own.key, None, at(1));
        assert_eq!(schedule.len(), 2, "the wildcard and the name under it");
        schedule.take_due(at(1));
        assert_eq!(due(&mut schedule, 59), [""; 0]);
        assert_eq!(due(&mut schedule, 60), ["b.example.com."]);
        schedule.put(&wildcard.key, None, at(61));
        assert!(schedule.is_empty() && schedule.next().is_none());
    }

    #[test]
    fn s8_4_an_object_is_pruned_when_the_grace_of_its_first_address_is_over() {
        let mut schedule = schedule(&[object("a.example.com.", &[("a.example.com.", 0, 30)])]);
        assert_eq!(schedule.take_prunes(at(34)), []);
        assert_eq!(schedule.take_prunes(at(35)), [key("a.example.com.")]);
        assert_eq!(schedule.take_prunes(at(36)), []);
        assert_eq!(schedule.take_prunes(at(45)), [key("a.example.com.")], "nothing was heard of it");
    }
}
