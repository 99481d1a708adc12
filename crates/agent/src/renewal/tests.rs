//! A node whose API server is away, in virtual time.

use super::*;
use crate::sharing::testing::{object, tell};
use namewall_dns::lookup::Found;
use namewall_policy::Lease;
use namewall_policy::domain::{DomainPattern, RulePattern};
use namewall_runtime::ManualClock;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

const NAME: &str = "www.example.com.";

/// Answers each order with what is set, at once, or so many at a time.
#[derive(Clone, Debug)]
struct Fake {
    says: Arc<Mutex<Found>>,
    asked: Arc<Mutex<Vec<Order>>>,
    at_a_time: Arc<Mutex<usize>>,
}

impl Lookups for Fake {
    fn order(&mut self, order: Order) {
        self.asked.lock().expect("no panic").push(order);
    }

    fn take_done(&mut self) -> Vec<Done> {
        let found = self.says.lock().expect("no panic").clone();
        let mut asked = self.asked.lock().expect("no panic");
        let count = asked.len().min(*self.at_a_time.lock().expect("no panic"));
        let done = asked.drain(..count);
        done.map(|order| Done { name: order.name, found: found.clone(), is_whole: true }).collect()
    }
}

/// Rules that renew all names or none, and deny nothing.
struct Renews {
    all: bool,
    now: Instant,
    /// What pods of the node have opened.
    asked: Vec<Lease>,
}

impl Renews {
    fn all(all: bool) -> Self {
        Self { all, now: Instant::default(), asked: Vec::new() }
    }
}

impl RenewalRules for Renews {
    fn renews(&self, _name: &DomainName) -> bool {
        self.all
    }

    fn grace(&self) -> Duration {
        GRACE
    }

    fn ending_denials(&self, _within: Duration) -> Vec<Lease> {
        Vec::new()
    }

    fn ending_answers(&self, within: Duration, wanted: &dyn Fn(&DomainPattern) -> bool) -> Vec<Lease> {
        let by = self.now + within;
        let is_ending = |one: &&Lease| one.expiry > self.now && one.expiry <= by && wanted(&one.pattern.names);
        self.asked.iter().filter(is_ending).cloned().collect()
    }
}

/// A node whose API server has just gone away, and a name whose TTL is 30 s.
struct Outage {
    clock: ManualClock,
    elsewhere: LearnedElsewhere,
    renewals: Renewals,
    dns: Fake,
    /// Until when each address is open, by what was returned.
    open: BTreeMap<IpAddr, Instant>,
    lookups: usize,
    is_blocked: bool,
    asked: Vec<Lease>,
    to_publish: Vec<(Option<IpAddr>, Heard)>,
}

impl Outage {
    fn new() -> Self {
        let clock = ManualClock::default();
        let mut elsewhere = LearnedElsewhere::new(Arc::new(clock.clone()));
        elsewhere.take(Vec::new());
        tell(&mut elsewhere, 1_000, 30);
        let says = Arc::new(Mutex::new(Ok(vec![(address(1), 30)])));
        let dns = Fake { says, asked: Arc::default(), at_a_time: Arc::new(Mutex::new(usize::MAX)) };
        let open = BTreeMap::from([(address(1), elsewhere.now() + Duration::from_secs(30) + GRACE)]);
        let renewals = Renewals::new(Box::new(dns.clone()));
        let (asked, to_publish) = (Vec::new(), Vec::new());
        Self { clock, elsewhere, renewals, dns, open, lookups: 0, is_blocked: true, asked, to_publish }
    }

    fn answer(&self, found: Found) {
        *self.dns.says.lock().expect("no panic") = found;
    }

    /// So many lookups end in a turn, of which there are four in a second.
    fn slow_down(&self, at_a_time: usize) {
        *self.dns.at_a_time.lock().expect("no panic") = at_a_time;
    }

    /// Lets seconds go by, and returns how many of them an address was closed in.
    fn pass(&mut self, seconds: u64, address: IpAddr) -> u64 {
        let mut closed = 0;
        for _ in 0..seconds * 4 {
            self.clock.advance(Duration::from_millis(250));
            let published = &self.elsewhere;
            let servers = vec![([192, 0, 2, 53], 53).into()];
            let now = self.elsewhere.now();
            let rules = Renews { all: true, now, asked: self.asked.clone() };
            let is_blocked = self.is_blocked;
            let renewing = Renewing { published, servers, is_blocked, rules: &rules };
            let Renewal { heard, to_publish, .. } = self.renewals.turn(&renewing);
            self.lookups += self.dns.asked.lock().expect("no panic").len();
            self.to_publish.extend(to_publish);
            for Heard { name, address, left } in heard {
                let expiry = now + left + GRACE;
                let is_it = |lease: &&mut Lease| lease.name == name && lease.address == address;
                self.asked.iter_mut().filter(is_it).for_each(|lease| lease.expiry = expiry);
                self.open.insert(address, expiry);
            }
            closed += u64::from(self.open.get(&address).is_none_or(|until| *until <= now));
        }
        closed / 4
    }
}

fn address(last: u8) -> IpAddr {
    [192, 0, 2, last].into()
}

#[test]
fn s8_7_a_name_stays_open_for_an_hour_without_the_api_server() {
    let mut node = Outage::new();
    assert_eq!(node.pass(3_600, address(1)), 0);
    assert!((100..=125).contains(&node.lookups), "one for each TTL: {}", node.lookups);
}

#[test]
fn s8_7_an_address_that_dns_no_longer_returns_closes_within_ttl_and_grace() {
    let mut node = Outage::new();
    node.pass(60, address(1));
    node.answer(Ok(vec![(address(2), 30)]));
    node.pass(36, address(2));
    assert_eq!(node.pass(60, address(2)), 0);
    assert_eq!(node.pass(1, address(1)), 1, "it is closed");
}

#[test]
fn s6_3_a_name_with_a_ttl_above_the_maximum_is_renewed_before_its_lease_ends() {
    let mut node = Outage::new();
    node.answer(Ok(vec![(address(1), u32::MAX)]));
    node.pass(40, address(1));
    node.lookups = 0;
    node.pass(3_700, address(1));
    assert_eq!(node.lookups, 1);
}

#[test]
fn s8_7_silence_keeps_the_addresses_for_five_tries_and_they_come_back() {
    let mut node = Outage::new();
    node.answer(Err("Timeout".to_owned()));
    assert_eq!(node.pass(55, address(1)), 0, "TTL, and five tries");
    node.pass(20, address(1));
    assert_eq!(node.pass(20, address(1)), 20, "it has an end");
    node.answer(Ok(vec![(address(1), 30)]));
    node.pass(62, address(1));
    assert_eq!(node.pass(60, address(1)), 0);
}

#[test]
fn s8_7_a_controller_that_cannot_look_a_name_up_does_not_close_it_while_dns_answers_here() {
    let mut node = Outage::new();
    for failure in 1..=6 {
        let mut failing = object(1_000 + failure, 5);
        failing.status.resolved_names[0].resolution_failures = failure as i32;
        node.elsewhere.take(vec![(failing.key.clone(), Some(failing))]);
        assert_eq!(node.pass(5, address(1)), 0);
    }
    let mut empty = object(0, 0);
    empty.status.resolved_names.clear();
    node.elsewhere.take(vec![(empty.key.clone(), Some(empty.clone()))]);
    assert_eq!(node.pass(600, address(1)), 0, "its object has lost it");
    node.answer(Err(NO_SUCH_NAME.to_owned()));
    node.pass(40, address(1));
    assert_eq!(node.pass(10, address(1)), 10);
    node.elsewhere.take(vec![(empty.key, None)]);
    node.elsewhere.forget_deleted(|_| false);
    node.lookups = 0;
    node.pass(120, address(1));
    assert_eq!(node.lookups, 0, "no rule has it any more");
}

#[test]
fn s8_7_a_name_whose_lookup_is_not_answered_yet_stays_open() {
    let mut node = Outage::new();
    node.slow_down(0);
    assert_eq!(node.pass(300, address(1)), 0, "it may still be answered");
    node.pass(60, address(1));
    assert_eq!(node.pass(20, address(1)), 20, "it has an end");
    node.slow_down(usize::MAX);
    node.pass(2, address(1));
    assert_eq!(node.pass(60, address(1)), 0);
}

/// 40 lookups end in a second, and 2,000 names are due every 30 seconds.
#[test]
fn s8_7_names_that_wait_for_their_turn_stay_open() {
    let mut node = Outage::new();
    let mut many = object(2_000, 30);
    let item = many.status.resolved_names.remove(0);
    let numbered = |number: u16| {
        let mut item = item.clone();
        item.dns_name = format!("n{number}.example.com.");
        item.resolved_addresses[0].ip =
            Ipv4Addr::from([198, 18, (number / 250) as u8, (number % 250) as u8]).to_string();
        item
    };
    many.pattern = "*.example.com.".to_owned();
    many.status.resolved_names = (0..2_000).map(numbered).collect();
    node.elsewhere.take(vec![(many.key.clone(), Some(many))]);
    let first = node.elsewhere.unexpired();
    assert_eq!(first.len(), 2_000);
    node.open = first.iter().map(|one| (one.address, node.elsewhere.now() + one.left + GRACE)).collect();
    node.slow_down(10);
    node.answer(Err("Timeout".to_owned()));
    // Each has its own address: what is found must not be what is asked for.
    for second in 0..60 {
        node.pass(1, address(1));
        let now = node.elsewhere.now();
        let closed = node.open.values().filter(|until| **until <= now).count();
        assert_eq!(closed, 0, "after {second} s");
    }
}

/// OpenShift's plugin removes other entries than those that it has folded into the wildcard.
#[test]
fn s8_7_a_name_that_another_writer_removes_stays_open_while_dns_returns_it() {
    let mut node = Outage::new();
    node.pass(10, address(1));
    let mut without = object(0, 0);
    without.status.resolved_names.clear();
    node.elsewhere.take(vec![(without.key.clone(), Some(without))]);
    assert_eq!(node.pass(600, address(1)), 0, "DNS returns it");
    assert!((15..=25).contains(&node.lookups), "{}", node.lookups);
}

#[test]
fn a_name_that_is_folded_into_its_wildcard_is_not_looked_up() {
    let mut node = Outage::new();
    let mut folded = object(1_000, 300);
    folded.pattern = "*.example.com.".to_owned();
    node.elsewhere.take(vec![(folded.key.clone(), Some(folded.clone()))]);
    folded.status.resolved_names[0].dns_name = "*.example.com.".to_owned();
    node.elsewhere.take(vec![(folded.key.clone(), Some(folded))]);
    node.pass(200, address(1));
    assert_eq!(node.lookups, 0);
}

#[test]
fn s8_7_names_of_an_object_that_is_deleted_stay_open_while_a_rule_has_them() {
    let mut node = Outage::new();
    node.pass(20, address(1));
    node.elsewhere.take(vec![(object(0, 0).key, None)]);
    assert_eq!(node.pass(600, address(1)), 0, "DNS returns it");
    node.elsewhere.forget_deleted(|_| false);
    node.lookups = 0;
    node.pass(120, address(1));
    assert_eq!(node.lookups, 0, "no rule has it any more");
}

/// A pod asks for a name of which an object exists, and nobody can write what it learned.
fn asked_while_nobody_can_write() -> Outage {
    let mut node = Outage::new();
    let mut empty = object(0, 0);
    empty.status.resolved_names.clear();
    node.elsewhere = LearnedElsewhere::new(Arc::new(node.clock.clone()));
    node.elsewhere.take(vec![(empty.key.clone(), Some(empty))]);
    let name = DomainName::parse_recorded(NAME).expect("a name");
    let pattern = RulePattern::allow(DomainPattern::Exact(name.clone()));
    let expiry = node.elsewhere.now() + Duration::from_secs(35);
    let asked_by = Some([10, 244, 0, 5].into());
    node.asked.push(Lease { pattern, name, address: address(1), expiry, asked_by });
    node
}

#[test]
fn s8_7_a_name_that_could_not_be_published_stays_open_and_is_published_later() {
    let mut node = asked_while_nobody_can_write();
    assert_eq!(node.pass(600, address(1)), 0);
    assert!((15..=25).contains(&node.lookups), "once for each TTL: {}", node.lookups);
    assert!(node.to_publish.len() >= 15, "{:?}", node.to_publish);
    tell(&mut node.elsewhere, 1_000, 300);
    (node.lookups, node.to_publish) = (0, Vec::new());
    node.pass(200, address(1));
    assert_eq!((node.lookups, node.to_publish.len()), (0, 0), "an object has it");
}

#[test]
fn s8_7_a_name_that_could_not_be_published_closes_when_dns_does_not_return_it() {
    let mut node = asked_while_nobody_can_write();
    node.pass(60, address(1));
    node.answer(Err(NO_SUCH_NAME.to_owned()));
    node.pass(40, address(1));
    assert_eq!(node.pass(10, address(1)), 10);
    node.lookups = 0;
    node.pass(60, address(1));
    assert_eq!(node.lookups, 0);
}

#[test]
fn s8_7_a_name_that_could_not_be_published_stays_open_while_its_lookup_fails_or_waits() {
    let mut node = asked_while_nobody_can_write();
    node.answer(Err("Timeout".to_owned()));
    assert_eq!(node.pass(55, address(1)), 0, "TTL, and five tries");
    node.pass(20, address(1));
    assert_eq!(node.pass(20, address(1)), 20, "it has an end");
    let mut node = asked_while_nobody_can_write();
    node.slow_down(0);
    assert_eq!(node.pass(300, address(1)), 0, "it may still be answered");
}

#[test]
fn a_name_without_an_object_or_that_an_object_does_not_take_is_not_renewed() {
    let mut node = asked_while_nobody_can_write();
    node.is_blocked = false;
    node.pass(60, address(1));
    assert_eq!(node.lookups, 0, "it lasts for its TTL and grace (S6.3)");
    let mut node = asked_while_nobody_can_write();
    node.elsewhere = LearnedElsewhere::new(Arc::new(node.clock.clone()));
    node.pass(60, address(1));
    assert_eq!(node.lookups, 0, "it lasts for its TTL and grace (S6.3)");
}

#[test]
fn a_name_that_does_not_exist_any_more_closes() {
    let mut node = Outage::new();
    node.answer(Err(NO_SUCH_NAME.to_owned()));
    node.pass(36, address(1));
    assert_eq!(node.pass(10, address(1)), 10);
}

#[test]
fn s8_7_what_an_earlier_process_has_opened_is_renewed_until_the_objects_are_known() {
    let mut node = Outage::new();
    let before = std::mem::replace(&mut node.elsewhere, LearnedElsewhere::new(Arc::new(node.clock.clone())));
    let name = DomainName::parse_recorded(NAME).expect("a name");
    let expiry = before.now() + Duration::from_secs(35);
    let pattern = RulePattern::deny(DomainPattern::Exact(name.clone()));
    let lease = Lease { pattern, name, address: address(1), expiry, asked_by: None };
    node.elsewhere.adopt([lease].into_iter());
    assert_eq!(node.pass(600, address(1)), 0);
    node.elsewhere.forget_adopted();
    node.lookups = 0;
    node.pass(60, address(1));
    assert_eq!(node.lookups, 0);
}

#[test]
fn what_is_published_anew_is_not_looked_up() {
    let mut node = Outage::new();
    for lookup in 0..20 {
        node.pass(29, address(1));
        tell(&mut node.elsewhere, 2_000 + lookup, 30);
    }
    assert_eq!(node.lookups, 0);
}

#[test]
fn a_name_that_is_deleted_or_that_no_rule_speaks_of_is_not_looked_up() {
    let mut node = Outage::new();
    node.pass(60, address(1));
    node.elsewhere.take(vec![(object(0, 0).key, None)]);
    node.elsewhere.forget_deleted(|_| false);
    node.lookups = 0;
    node.pass(60, address(1));
    assert_eq!((node.lookups, node.renewals.unexpired(node.elsewhere.now())), (0, Vec::new()));
    tell(&mut node.elsewhere, 9_000, 30);
    node.clock.advance(Duration::from_secs(40));
    let published = &node.elsewhere;
    node.renewals.turn(&Renewing { published, servers: Vec::new(), is_blocked: false, rules: &Renews::all(false) });
    assert_eq!(node.dns.asked.lock().expect("no panic").len(), 0);
    node.clock.advance(Duration::from_secs(2));
    let published = &node.elsewhere;
    node.renewals.turn(&Renewing { published, servers: Vec::new(), is_blocked: false, rules: &Renews::all(true) });
    assert_eq!(node.dns.asked.lock().expect("no panic").len(), 1);
}
