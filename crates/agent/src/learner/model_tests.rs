//! Random sequences of answers, policies, pods, nodes, Services, time and restarts,
//! against a model: which addresses are open for which pod (S6.3, S6.8, S6.10).

use super::*;
use crate::testing::{Bench, DB, WEB, answer, names_of, program};
use namewall_policy::Verdict;
use namewall_policy::domain::{DomainPattern, Wildcard};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

const NAMES: [&str; 4] = ["api.example.com", "www.example.com", "a.b.example.com", "api.other.test"];
const PATTERNS: [&str; 6] =
    ["api.example.com", "*.example.com", "www.example.com", "*.b.example.com", "*.other.test", "nothing.test"];
/// Every name has addresses of its own: in the kernel an address has one name.
const ADDRESSES_A_NAME: usize = 3;
const GRACE: u64 = 5;

/// Who is at an address that names lead to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Inside {
    Nobody,
    Pod,
    Node,
    Service,
}

/// What is enforced.
#[derive(Clone, Debug)]
struct Rules {
    /// Which patterns web has, and which db has.
    patterns: [BTreeSet<usize>; 2],
    /// The first address of each name.
    inside: [Inside; NAMES.len()],
}

#[derive(Clone, Debug)]
enum Step {
    Answer {
        by: usize,
        name: usize,
        addresses: Vec<usize>,
        ttl: u64,
    },
    Change(Rules),
    /// The data plane refuses it.
    Fail(Rules),
    Pass(u64),
    Restart,
}

fn address(name: usize, at: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, (name * ADDRESSES_A_NAME + at + 1) as u8)
}

fn documents(rules: &Rules) -> Vec<String> {
    let mut documents = Vec::new();
    for (app, own) in ["web", "db"].into_iter().zip(&rules.patterns) {
        if !own.is_empty() {
            documents.push(names_of(app, &own.iter().map(|at| PATTERNS[*at]).collect::<Vec<_>>()));
        }
    }
    for (name, inside) in rules.inside.iter().enumerate() {
        let at = address(name, 0);
        documents.extend(match inside {
            Inside::Nobody => None,
            Inside::Pod => Some(format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: p{name}, namespace: shop}}, spec: {{nodeName: n1}},
                   status: {{phase: Running, podIP: {at}}}}}"
            )),
            Inside::Node => Some(format!(
                "{{apiVersion: v1, kind: Node, metadata: {{name: m{name}}},
                   status: {{addresses: [{{type: InternalIP, address: {at}}}]}}}}"
            )),
            Inside::Service => Some(format!(
                "{{apiVersion: v1, kind: Service, metadata: {{name: s{name}, namespace: shop}},
                   spec: {{clusterIP: {at}, ports: [{{port: 80}}]}}}}"
            )),
        });
    }
    documents
}

/// A pattern opens an address, which belongs to one name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Open {
    pattern: usize,
    name: usize,
    at: usize,
}

/// Who asks for what.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Question {
    by: usize,
    name: usize,
}

/// An answer, and when it came.
#[derive(Clone, Debug)]
struct Told {
    addresses: Vec<usize>,
    ttl: u64,
    came: u64,
}

/// What should be, written down as plainly as can be. Times are in seconds.
struct Model {
    now: u64,
    rules: Rules,
    /// Until when.
    leases: BTreeMap<Open, u64>,
    /// The last answer to each question that no rule spoke of.
    recent: BTreeMap<Question, Told>,
}

impl Model {
    fn matches(pattern: usize, name: usize) -> bool {
        let pattern = DomainPattern::parse(PATTERNS[pattern], Wildcard::Subdomains).expect("a pattern");
        pattern.matches(&NAMES[name].parse().expect("a name"))
    }

    fn is_inside(&self, name: usize, at: usize) -> bool {
        at == 0 && self.rules.inside[name] != Inside::Nobody
    }

    fn all_patterns(&self) -> BTreeSet<usize> {
        self.rules.patterns.iter().flatten().copied().collect()
    }

    fn lease(&mut self, lease: Open, until: u64) {
        let known = self.leases.entry(lease).or_default();
        *known = until.max(*known);
    }

    /// The client's own rules open it.
    fn learn(&mut self, question: Question, told: &Told) -> bool {
        let Question { by, name } = question;
        let own: Vec<usize> =
            self.rules.patterns[by].iter().copied().filter(|pattern| Self::matches(*pattern, name)).collect();
        for &at in &told.addresses {
            for &pattern in own.iter().filter(|_| !self.is_inside(name, at)).collect::<Vec<_>>() {
                self.lease(Open { pattern, name, at }, told.came + told.ttl + GRACE);
            }
        }
        !own.is_empty()
    }

    fn carry_over(&mut self) {
        for (Open { name, at, .. }, until) in self.leases.clone() {
            for pattern in self.all_patterns().into_iter().filter(|pattern| Self::matches(*pattern, name)) {
                self.lease(Open { pattern, name, at }, until);
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Pass(seconds) => self.now += seconds,
            Step::Fail(_) => {}
            Step::Answer { by, name, addresses, ttl } => {
                let question = Question { by: *by, name: *name };
                let told = Told { addresses: addresses.clone(), ttl: *ttl, came: self.now };
                if !self.learn(question, &told) {
                    self.recent.insert(question, told);
                }
            }
            Step::Change(rules) => {
                let before = std::mem::replace(&mut self.rules, rules.clone());
                let leases = std::mem::take(&mut self.leases);
                self.leases = leases.into_iter().filter(|(open, _)| !self.is_inside(open.name, open.at)).collect();
                self.carry_over();
                for (question, told) in self.recent.clone() {
                    let is_new = before.patterns[question.by] != self.rules.patterns[question.by];
                    if is_new && told.came + told.ttl + GRACE > self.now {
                        self.learn(question, &told);
                    }
                }
            }
            Step::Restart => {
                // Nobody remembers what is not in the kernel.
                self.recent.clear();
                let (patterns, now) = (self.all_patterns(), self.now);
                self.leases.retain(|open, until| patterns.contains(&open.pattern) && *until > now);
                self.carry_over();
            }
        }
    }

    fn is_open(&self, by: usize, name: usize, at: usize) -> bool {
        let own = &self.rules.patterns[by];
        // Without a policy nothing is closed.
        own.is_empty()
            || own.iter().any(|pattern| {
                self.leases.get(&Open { pattern: *pattern, name, at }).is_some_and(|until| *until > self.now)
            })
    }
}

fn rules() -> impl Strategy<Value = Rules> {
    let own = || prop::collection::btree_set(0..PATTERNS.len(), 0..3);
    let inside = prop_oneof![
        4 => Just(Inside::Nobody),
        1 => Just(Inside::Pod),
        1 => Just(Inside::Node),
        1 => Just(Inside::Service)
    ];
    ([own(), own()], prop::array::uniform4(inside)).prop_map(|(patterns, inside)| Rules { patterns, inside })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let addresses = prop::sample::subsequence((0..ADDRESSES_A_NAME).collect::<Vec<_>>(), 1..=ADDRESSES_A_NAME);
    let answer = (0..2_usize, 0..NAMES.len(), addresses, 1..40_u64)
        .prop_map(|(by, name, addresses, ttl)| Step::Answer { by, name, addresses, ttl });
    let step = prop_oneof![
        6 => answer,
        4 => rules().prop_map(Step::Change),
        1 => rules().prop_map(Step::Fail),
        3 => (1..20_u64).prop_map(Step::Pass),
        1 => Just(Step::Restart)
    ];
    prop::collection::vec(step, 1..24)
}

fn take(bench: &mut Bench, step: &Step, rules: &Rules) {
    match step {
        Step::Answer { by, name, addresses, ttl } => {
            let addresses: Vec<Ipv4Addr> = addresses.iter().map(|at| address(*name, *at)).collect();
            bench.hears([WEB, DB][*by], &answer(NAMES[*name], &addresses, *ttl as u32));
        }
        Step::Change(rules) => drop(bench.node.enforce(&program(&documents(rules))).expect("memory takes it")),
        Step::Fail(rules) => {
            bench.memory.refuse(true);
            bench.node.enforce(&program(&documents(rules))).expect_err("it refuses");
            bench.memory.refuse(false);
        }
        Step::Pass(seconds) => bench.clock.advance(Duration::from_secs(*seconds)),
        Step::Restart => bench.restart(&documents(rules)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn s6_3_what_is_open_for_whom_is_what_the_model_says(first in rules(), steps in steps()) {
        let mut bench = Bench::new(&documents(&first));
        let mut model = Model { now: 0, rules: first, leases: BTreeMap::new(), recent: BTreeMap::new() };
        for (number, step) in steps.iter().enumerate() {
            take(&mut bench, step, &model.rules);
            model.step(step);
            for (by, pod) in [WEB, DB].into_iter().enumerate() {
                for (name, at) in (0..NAMES.len()).flat_map(|name| (0..ADDRESSES_A_NAME).map(move |at| (name, at))) {
                    let is_open = bench.verdict(pod, address(name, at)) == Verdict::Allow;
                    let should = model.is_open(by, name, at);
                    prop_assert_eq!(is_open, should, "step {}: {} to {} at {}", number, pod, NAMES[name], at);
                }
            }
        }
    }
}
