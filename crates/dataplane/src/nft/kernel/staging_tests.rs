//! Leases that a change of rules moves into the kernel and out of it, in parts,
//! with grants between the parts. Each test has a network namespace of its own.

use super::*;
use crate::nft::isolated;
use crate::sample::{self, Sample, WithRules as _};
use crate::{Adoption, Plan as _};
use namewall_policy::domain::{DomainName, DomainPattern, RulePattern, Wildcard};
use namewall_policy::lease::{Bounds, Revision, Rules};
use namewall_policy::model::{Action, Direction, Peer, Peers, PolicyKind, Ports};
use namewall_policy::{Lease, LeaseStore};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::net::{IpAddr, Ipv4Addr};

const NOW: Instant = Instant(Duration::from_secs(10));

fn pattern(text: &str) -> DomainPattern {
    DomainPattern::parse(text, Wildcard::Subdomains).unwrap()
}

/// A pod with a rule for each of these lists of names.
fn rules(lists: &[&[&str]]) -> Program {
    let mut sample = Sample::default().pod("web", &["10.0.0.1"], "n1");
    for (at, list) in lists.iter().enumerate() {
        let peers = Peers::Listed(list.iter().map(|text| Peer::Domain(pattern(text))).collect());
        let policy = sample::policy(PolicyKind::NetworkPolicy, &format!("names{at}"), "web");
        sample = sample.policy(policy.rule(Direction::Egress, Action::Allow, sample::clauses(peers, Ports::Any)));
    }
    sample.program()
}

/// A node with its leases, as an agent has them.
struct Node {
    nft: Nft,
    leases: LeaseStore,
    program: Program,
}

impl Node {
    fn start(program: Program, bounds: Bounds) -> Self {
        let nft = Nft::open(Settings::default()).unwrap();
        let mut node = Self { nft, leases: LeaseStore::new(LeaseTable::with_bounds(bounds)), program };
        let plan = node.nft.plan();
        node.switch(plan, node.program.clone(), None);
        node
    }

    /// The process is killed, and another takes over.
    fn kill(&mut self, at_once: usize) {
        let bounds = Bounds { leases: 10_000, ..self.leases.table().bounds() };
        let program = self.program.clone();
        self.nft = Nft::open(Settings::default()).unwrap();
        *self = Self::start(program, bounds);
        self.nft.at_once = at_once;
    }

    fn switch(&mut self, plan: NftPlan, next: Program, before: Option<&Program>) -> Applied {
        let never_leased = &sample::never_leased();
        let before = before.map(|program| Rules { program, never_leased });
        let revision = Revision { before, next: Rules { program: &next, never_leased } };
        let revised = self.leases.plan(&revision);
        let changed = &self.leases.revise(&revision, revised, &[]);
        let adoption = Adoption { never_leased, longest: Duration::from_secs(3_605) };
        let (scope, leases, now) = (&Scope::default(), self.leases.table(), NOW);
        let desired = Desired { program: &next, scope, leases, changed, adoption, now };
        let applied = self.nft.replace_planned(&desired, plan).unwrap();
        self.leases.acknowledge();
        if let Some(found) = &applied.adopted {
            self.leases.adopt(found.clone());
        }
        self.program = next;
        applied
    }

    fn plan(&self, next: &Program) -> NftPlan {
        let mut plan = self.nft.plan();
        plan.work_out(next, &Scope::default());
        plan
    }

    fn stage(&mut self, plan: &mut NftPlan) -> bool {
        self.nft.stage(plan, self.leases.table(), NOW).unwrap()
    }

    fn clear(&mut self) -> bool {
        self.nft.clear(self.leases.table()).unwrap()
    }

    fn grant(&mut self, leases: &[Lease]) {
        let change = self.leases.grant(leases, NOW);
        self.nft.open(&change, self.leases.table(), NOW).unwrap();
        self.leases.acknowledge();
    }

    /// The leases in the kernel: group, address, and how long they last, in steps of ten minutes.
    fn in_the_kernel(&self) -> BTreeMap<(u64, IpAddr), u64> {
        let found = read::read_leases(&self.nft.settings.table).unwrap();
        found.iter().map(|one| ((one.group, one.address), one.left.as_secs().div_ceil(600))).collect()
    }

    /// What the rules in force open, worked out anew.
    fn wanted(&self) -> BTreeMap<(u64, IpAddr), u64> {
        let groups = &self.nft.known.as_ref().unwrap().rendered.lease_groups;
        let mut wanted = BTreeMap::new();
        for lease in self.leases.table().all() {
            let left = lease.expiry.since(NOW).as_secs().div_ceil(600);
            for &group in groups.get(&lease.pattern).into_iter().flatten() {
                let longest = wanted.entry((group, lease.address)).or_default();
                *longest = left.max(*longest);
            }
        }
        wanted
    }

    /// What the kernel has of groups that rules ask for must be what they open.
    fn check(&self) {
        let asked: FxHashSet<u64> =
            self.nft.known.as_ref().unwrap().rendered.lease_groups.values().flatten().copied().collect();
        self.compare(|(group, _)| asked.contains(group));
    }

    /// Compares what the kernel has with what is meant.
    fn compare(&self, is_meant: impl Fn(&(u64, IpAddr)) -> bool) {
        let wanted = self.wanted();
        let found = self.list_until(|found| {
            found.retain(|key, _| is_meant(key));
            *found == wanted
        });
        assert_same(&found, &wanted);
    }

    /// True if the kernel has so many.
    fn has(&self, count: usize) -> bool {
        let found = self.list_until(|found| found.len() == count);
        assert_eq!(found.len(), count);
        true
    }

    /// Lists until the list is as it should be, or a minute has passed. A list misses elements while the kernel makes
    /// the set's hash table larger.
    fn list_until(&self, is_right: impl Fn(&mut BTreeMap<(u64, IpAddr), u64>) -> bool) -> BTreeMap<(u64, IpAddr), u64> {
        let began = std::time::Instant::now();
        loop {
            let mut found = self.in_the_kernel();
            if is_right(&mut found) || began.elapsed() > Duration::from_secs(60) {
                return found;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The first differences are enough.
fn assert_same(found: &BTreeMap<(u64, IpAddr), u64>, wanted: &BTreeMap<(u64, IpAddr), u64>) {
    let more: Vec<_> = found.iter().filter(|(key, left)| wanted.get(key) != Some(left)).take(3).collect();
    let less: Vec<_> = wanted.iter().filter(|(key, left)| found.get(key) != Some(left)).take(3).collect();
    assert!(more.is_empty() && less.is_empty(), "the kernel has {more:?}, and {less:?} is meant");
}

fn lease(pattern_text: &str, number: u32) -> Lease {
    let name: DomainName = pattern_text.replace('*', &format!("n{number}")).parse().unwrap();
    let address = Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 0).to_bits() + number).into();
    let (pattern, expiry) = (RulePattern::allow(pattern(pattern_text)), NOW + Duration::from_secs(600));
    Lease { pattern, name, address, expiry, asked_by: Some(IpAddr::from([10, 0, 0, 1])) }
}

#[test]
fn s6_6_leases_that_open_for_a_new_rule_come_in_parts_before_the_switch() {
    isolated(|| {
        let mut node = Node::start(rules(&[&["*.a.test"]]), Bounds::default());
        let all: Vec<Lease> = (0..2_500).map(|number| lease("*.a.test", number)).collect();
        node.grant(&all);
        let next = rules(&[&["*.a.test"], &["*.a.test", "other.test"]]);
        let mut plan = node.plan(&next);
        assert!(node.has(2_500));
        assert!(node.stage(&mut plan) && node.has(3_500));
        assert!(node.stage(&mut plan) && node.has(4_500));
        assert!(!node.stage(&mut plan) && node.has(5_000));
        // Renewed, granted and evicted between the last part and the switch.
        let renewed = Lease { expiry: NOW + Duration::from_secs(1_200), ..lease("*.a.test", 7) };
        node.grant(&[renewed, lease("*.a.test", 9_000)]);
        let before = node.program.clone();
        let operations = node.switch(plan, next, Some(&before)).operations;
        assert!(operations < 40, "no lease is part of the switch, but {operations} operations");
        assert!(node.has(5_002));
        node.check();
        assert!(!node.clear(), "nothing goes");
        // Of a rule that goes, as much after the switch; not even listed in it.
        let plan = node.plan(&before);
        let with_both = node.program.clone();
        assert!(node.switch(plan, before, Some(&with_both)).narrows, "connections are judged again");
        assert!(node.has(5_002));
        assert!(node.clear() && node.has(4_002));
        assert!(node.clear() && node.has(3_002));
        assert!(node.clear() && node.has(2_501));
        assert!(!node.clear(), "nothing is left to go");
        node.check();
    });
}

#[test]
fn s6_3_a_lease_that_is_revoked_with_a_change_leaves_groups_that_were_staged_or_are_cleared() {
    isolated(|| {
        let (one, other) = (rules(&[&["*.a.test"]]), rules(&[&["*.a.test", "other.test"]]));
        let mut node = Node::start(one.clone(), Bounds::default());
        let all: Vec<Lease> = (0..1_500).map(|number| lease("*.a.test", number)).collect();
        node.grant(&all);
        // The change makes a pod of an address that is leased.
        let mut plan = node.plan(&other);
        while node.stage(&mut plan) {}
        let with_pod = |lists: &[&[&str]]| {
            let peers = Peers::Listed(lists[0].iter().map(|text| Peer::Domain(pattern(text))).collect());
            let policy = sample::policy(PolicyKind::NetworkPolicy, "names0", "web");
            let pods = Sample::default().pod("web", &["10.0.0.1"], "n1").pod("db", &["198.18.0.7"], "n1");
            pods.policy(policy.rule(Direction::Egress, Action::Allow, sample::clauses(peers, Ports::Any))).program()
        };
        let next = with_pod(&[&["*.a.test", "other.test"]]);
        let mut plan = node.plan(&next);
        while node.stage(&mut plan) {}
        node.switch(plan, next.clone(), Some(&one));
        let pod = IpAddr::from([198, 18, 0, 7]);
        while node.clear() {}
        assert!(node.in_the_kernel().keys().all(|(_, address)| *address != pod), "in no group");
        node.check();
        assert!(node.has(1_499));
    });
}

/// What happens between two parts.
#[derive(Clone, Debug)]
enum Event {
    /// Leases are granted or renewed: pattern, number, and for how many times ten minutes.
    Grant(Vec<(usize, u32, u64)>),
    /// The plan is given up, and another one made.
    Abandon(usize),
    Kill,
}

const PATTERNS: [&str; 3] = ["*.a.test", "*.b.test", "n3.a.test"];
/// Rules: each is a list of lists of names.
const LISTS: [&[&[&str]]; 5] = [
    &[&["*.a.test"]],
    &[&["*.a.test"], &["*.b.test", "other.test"]],
    &[&["*.a.test", "*.b.test"], &["n3.a.test"]],
    &[&["n3.a.test", "*.b.test"]],
    &[&["other.test"]],
];

fn events() -> impl Strategy<Value = Vec<Event>> {
    let grants = proptest::collection::vec((0..PATTERNS.len(), 0..40_u32, 1..4_u64), 1..12);
    let event = prop_oneof![
        8 => grants.prop_map(Event::Grant),
        1 => (0..LISTS.len()).prop_map(Event::Abandon),
        1 => Just(Event::Kill),
    ];
    proptest::collection::vec(event, 10..60)
}

/// Does what happens next. The rules that a plan must be made for, if the plan does not count any more.
fn happen(node: &mut Node, event: Event, at_once: usize) -> Option<usize> {
    match event {
        Event::Grant(all) => {
            let lease = |&(pattern, number, times): &(usize, u32, u64)| {
                let expiry = NOW + Duration::from_secs(600 * times);
                Lease { expiry, ..lease(PATTERNS[pattern], number) }
            };
            node.grant(&all.iter().map(lease).collect::<Vec<_>>());
            None
        }
        Event::Abandon(to) => Some(to),
        Event::Kill => {
            node.kill(at_once);
            Some(0)
        }
    }
}

fn play(events: Vec<Event>) {
    const AT_ONCE: usize = 5;
    let bounds = Bounds { leases: 70, ..Bounds::default() };
    let mut node = Node::start(rules(LISTS[0]), bounds);
    node.nft.at_once = AT_ONCE;
    let mut events = events.into_iter();
    let mut to = 1;
    while events.len() > 0 {
        let next = rules(LISTS[to]);
        let mut plan = node.plan(&next);
        let mut other = None;
        loop {
            let is_more = node.stage(&mut plan);
            other = other.or(events.next().and_then(|event| happen(&mut node, event, AT_ONCE)));
            node.check();
            if !is_more || other.is_some() {
                break;
            }
        }
        if let Some(other) = other {
            to = other;
            continue;
        }
        let before = node.program.clone();
        node.switch(plan, next, Some(&before));
        node.check();
        while node.clear() {
            // A kill here leaves what is being cleared to the next process.
            events.next().and_then(|event| happen(&mut node, event, AT_ONCE));
            node.check();
        }
        // Nothing else is left.
        node.compare(|_| true);
        to = (to + 1) % LISTS.len();
    }
}

#[test]
fn s6_3_whatever_is_granted_between_the_parts_the_kernel_has_what_the_rules_open() {
    let mut runner =
        TestRunner::new(Config { cases: 12, max_shrink_iters: 60, failure_persistence: None, ..Config::default() });
    let played = runner.run(&events(), |events| {
        isolated(move || play(events));
        Ok(())
    });
    played.unwrap();
}
