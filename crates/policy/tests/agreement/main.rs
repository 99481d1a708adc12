//! Two evaluators, one answer. [`naive`] takes the walk of docs/semantics.md over
//! the plain model; `evaluate` takes it over a compiled Program. Over random
//! clusters they must agree on the verdict, on the rule that decided, and on
//! what audited policies would have denied.
//!
//! The seed is fixed, so a run is the same everywhere. To look further:
//! `PROPTEST_RNG_SEED=7 PROPTEST_CASES=100000 cargo test -p namewall-policy --test agreement`.
//! [`sets`] holds `reach` and `explain` to the same answers.

mod exposure;
mod generate;
mod naive;
mod sets;

use generate::{cases, flow_text};
use naive::{Because, Judgement, RuleAt, Why, World, judge, predict};
use namewall_policy::addr::is_own_to_each_machine;
use namewall_policy::model::{Service, WorkloadId};
use namewall_policy::program::RuleId;
use namewall_policy::reach::Reach;
use namewall_policy::{
    Cause, Decision, Endpoint, Flow, LeaseTable, Prediction, Program, Reason, Snapshot, Verdict, compile, compile_next,
    evaluate,
};
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestCaseError, TestRunner};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

const CASES: u32 = 3000;

/// Every way a connection can end; each must come up this often, or the
/// generator has stopped asking about it.
const AT_LEAST: u32 = 20;
const ENDINGS: [&str; 37] = [
    "denied in service gate",
    "denied in cluster gate",
    "denied in namespace gate",
    "denied in egress admin tier",
    "denied in egress NetworkPolicy tier",
    "denied in egress baseline tier",
    "denied in ingress admin tier",
    "denied in ingress NetworkPolicy tier",
    "denied in ingress baseline tier",
    "would be denied in service gate",
    "would be denied in cluster gate",
    "would be denied in namespace gate",
    "would be denied in egress admin tier",
    "would be denied in egress NetworkPolicy tier",
    "would be denied in egress baseline tier",
    "would be denied in ingress admin tier",
    "would be denied in ingress NetworkPolicy tier",
    "would be denied in ingress baseline tier",
    "own address",
    "egress no subject",
    "egress rule",
    "egress one of the rules",
    "egress default",
    "ingress own node",
    "ingress no subject",
    "ingress rule",
    "ingress one of the rules",
    "ingress default",
    "a lease makes the difference",
    "a backend behind a frontend makes the difference",
    "a name opens by rule",
    "a name depends",
    "a pod without an address: allow",
    "a pod without an address: deny",
    "a pod without an address: depends",
    "an unknown node: allow",
    "an unknown node: depends",
];

/// First half of the pods, some of them away and some with addresses that others will have; then as it is.
fn compiled_in_two_steps(snapshot: &Snapshot) -> Program {
    let mut before = snapshot.clone();
    let (half, last) = (snapshot.workloads.len() / 2, snapshot.workloads.len().saturating_sub(1));
    before.workloads.edit(|all| {
        all.truncate(half);
        all.iter_mut().step_by(3).for_each(|one| *one = one.vacated());
        for (at, one) in all.iter_mut().enumerate().skip(1).step_by(3) {
            one.addresses = snapshot.workloads[last - at].addresses.clone();
        }
    });
    let roles = before.workloads.iter().map(|workload| workload.role.index() + 1).max().unwrap_or(0);
    Arc::make_mut(&mut before.roles).truncate(roles);
    compile_next(&before, &compile(&before).0, snapshot).0
}

#[test]
fn the_naive_evaluator_agrees() {
    let endings = RefCell::new(BTreeMap::new());
    let config = config(CASES);
    let cases_wanted = config.cases;
    let result = TestRunner::new(config).run(&cases(), |case| {
        let (program, _) = compile(&case.snapshot);
        let next = compiled_in_two_steps(&case.snapshot);
        let mut leases = LeaseTable::default();
        case.leases.iter().for_each(|lease| drop(leases.grant(lease.clone())));
        let world = World { snapshot: &case.snapshot, leases: &case.leases, now: case.now };
        let reach = Reach { program: &program, leases: &leases, now: case.now };
        let without_frontends = without_frontends(&case.snapshot);
        for flow in &case.flows {
            let actual = evaluate(&program, &leases, flow, case.now);
            let (naive, outlook) = (predict(world, flow, &masks(world, &program, flow)), reach.predict(flow));
            if outlook.prediction != naive {
                let flow = flow_text(&case.snapshot, flow);
                return Err(TestCaseError::fail(format!("{flow}\n  naive: {naive}\n  predict: {outlook:?}")));
            }
            if (naive == Prediction::Depends) == outlook.depends_on.is_empty() {
                return Err(TestCaseError::fail(format!("{naive}, and it depends on {:?}", outlook.depends_on)));
            }
            tally_unknown(&mut endings.borrow_mut(), &program, flow, naive);
            if evaluate(&next, &leases, flow, case.now) != actual {
                let flow = flow_text(&case.snapshot, flow);
                return Err(TestCaseError::fail(format!("{flow}: another answer if half of the pods came later")));
            }
            if flow.from.address.is_none() || flow.to.address.is_none() {
                if (actual.verdict == Verdict::Allow) != (naive == Prediction::Allow) {
                    let flow = flow_text(&case.snapshot, flow);
                    return Err(TestCaseError::fail(format!("{flow}\n  naive: {naive}\n  evaluate: {actual:?}")));
                }
                if flow.to.name.is_some() && matches!(actual.reason, Reason::Allowed { egress: Cause::Rule(_), .. }) {
                    *endings.borrow_mut().entry("a name opens by rule".to_owned()).or_default() += 1;
                }
                continue;
            }
            let expected = judge(world, flow);
            if !agree(&program, &expected, &actual) {
                let flow = flow_text(&case.snapshot, flow);
                let said = told(&program, &actual);
                return Err(TestCaseError::fail(format!("{flow}\n  naive: {expected:?}\n  evaluate: {said}")));
            }
            let mut endings = endings.borrow_mut();
            tally(&mut endings, &expected);
            if !case.leases.is_empty() && judge(World { leases: &[], ..world }, flow) != expected {
                *endings.entry("a lease makes the difference".to_owned()).or_default() += 1;
            }
            if judge(World { snapshot: &without_frontends, ..world }, flow) != expected {
                *endings.entry("a backend behind a frontend makes the difference".to_owned()).or_default() += 1;
            }
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    let endings = endings.into_inner();
    for ending in ENDINGS {
        let times = endings.get(ending).copied().unwrap_or(0);
        assert!(cases_wanted < CASES || times >= AT_LEAST, "{ending}: only {times} times of {endings:#?}");
    }
}

/// The ends that the destination's node may see in the source's place.
fn masks(world: World<'_>, program: &Program, flow: &Flow) -> Vec<Endpoint> {
    let addresses = naive::maskers(world, flow).into_iter().flat_map(|node| &program.whereabouts.nodes[node.index()]);
    let is_usable = |address: &&IpAddr| {
        let asked = flow.hop.map(|hop| hop.address).or(flow.to.address);
        asked.is_none_or(|asked| asked.is_ipv4() == address.is_ipv4()) && !is_own_to_each_machine(**address)
    };
    addresses.filter(is_usable).map(|&address| program.endpoint_at(address)).collect()
}

/// The same without node ports and load balancers, whose backends the client's own node asks about.
fn without_frontends(snapshot: &Snapshot) -> Snapshot {
    let mut without = snapshot.clone();
    let ports = |all: &mut Vec<Service>| {
        for service in all.iter_mut() {
            service.proxied.clear();
            service.ports.iter_mut().for_each(|port| port.node_port = None);
        }
    };
    without.services.edit(ports);
    without
}

/// S1.9: what is allowed between addresses that several pods claim, each of them allows if it is the only one.
#[test]
fn s1_9_what_is_allowed_every_pod_of_an_address_allows() {
    let (seen, config) = (RefCell::new([0; 2]), config(CASES / 4));
    let whole = std::env::var_os("PROPTEST_CASES").is_none();
    let result = TestRunner::new(config).run(&cases(), |case| {
        let (program, _) = compile(&case.snapshot);
        let mut leases = LeaseTable::default();
        case.leases.iter().for_each(|lease| drop(leases.grant(lease.clone())));
        // `judge` is for ends whose addresses are known.
        for flow in case.flows.iter().filter(|flow| flow.from.address.is_some() && flow.to.address.is_some()) {
            let ends = [&flow.from, &flow.to].map(|end| holders(&program, end));
            if ends.iter().all(|holders| holders.len() < 2) {
                continue;
            }
            let is_open = evaluate(&program, &leases, flow, case.now).verdict == Verdict::Allow;
            seen.borrow_mut()[usize::from(is_open)] += 1;
            for (from, to) in ends[0].iter().flat_map(|from| ends[1].iter().map(move |to| (*from, *to))) {
                // An address is its holder's own, whoever that is.
                if flow.from.address == flow.to.address && from != to {
                    continue;
                }
                let alone = without_others(&case.snapshot, &program, &[from, to]);
                let as_one = |end: &Endpoint, workload: Option<WorkloadId>| Endpoint { workload, ..end.clone() };
                let flow = Flow { from: as_one(&flow.from, from), to: as_one(&flow.to, to), ..flow.clone() };
                let world = World { snapshot: &alone, leases: &case.leases, now: case.now };
                if is_open && matches!(judge(world, &flow).why, Why::Denied { .. }) {
                    let flow = flow_text(&case.snapshot, &flow);
                    return Err(TestCaseError::fail(format!("{flow}: open, and denied for this pod alone")));
                }
            }
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    let seen = seen.into_inner();
    assert!(!whole || seen.iter().all(|times| *times >= AT_LEAST), "closed and open {seen:?} times");
}

/// Who the end may be: the pods that claim its address.
fn holders(program: &Program, end: &Endpoint) -> Vec<Option<WorkloadId>> {
    let sharing = end.address.map(|address| program.sharing(address)).unwrap_or_default();
    if sharing.is_empty() || end.workload.is_none() {
        return vec![end.workload];
    }
    sharing.iter().copied().map(Some).collect()
}

/// The cluster without the pods that share an address with these.
fn without_others(snapshot: &Snapshot, program: &Program, kept: &[Option<WorkloadId>]) -> Snapshot {
    let mut alone = snapshot.clone();
    for id in snapshot.workload_ids().filter(|id| !kept.contains(&Some(*id))) {
        let shares = |address: &IpAddr| kept.iter().flatten().any(|kept| program.sharing(*address).contains(kept));
        if !snapshot.workload(id).host_network && snapshot.workload(id).addresses.iter().any(shares) {
            alone.workloads.set(id.index(), snapshot.workload(id).vacated());
        }
    }
    alone
}

/// An end is found by its address as the generator made it from the cluster.
#[test]
fn ends_are_found_by_address() {
    let result = TestRunner::new(config(300)).run(&cases(), |case| {
        let (program, _) = compile(&case.snapshot);
        for end in case.flows.iter().flat_map(|flow| [&flow.from, &flow.to]) {
            let Some(address) = end.address else { continue };
            // A `hostNetwork` pod cannot be told from its node by address.
            let workload = end.workload.filter(|_| end.node.is_none());
            // Nor a node from another that has the address as well.
            let node = end.node.filter(|_| !generate::is_others_too(&case.snapshot, address));
            // Of pods that share an address, the first is found.
            let workload = program.sharing(address).first().copied().filter(|_| workload.is_some()).or(workload);
            let expected = Endpoint { workload, node, ..end.clone() };
            if program.endpoint_at(address) != expected {
                let found = program.endpoint_at(address);
                return Err(TestCaseError::fail(format!("{address}: {found:?}, not {expected:?}")));
            }
            if end.workload.is_some_and(|id| program.endpoint_of(id, Some(address)) != *end) {
                return Err(TestCaseError::fail(format!("{address}: not {end:?}")));
            }
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

fn config(cases: u32) -> Config {
    let mut config = Config { failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    // Every choice forks the generator, and unoptimised ChaCha takes most of the run.
    config.rng_algorithm = RngAlgorithm::XorShift;
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(20);
    }
    config
}

fn agree(program: &Program, expected: &Judgement, actual: &Decision) -> bool {
    let would_deny = match (&expected.would_deny, actual.would_deny) {
        (Some(expected), Some(actual)) => same_reason(program, expected, actual),
        (expected, actual) => expected.is_none() && actual.is_none(),
    };
    would_deny && same_reason(program, &expected.why, actual.reason) && actual.verdict == actual.reason.verdict()
}

fn same_reason(program: &Program, expected: &Why, actual: Reason) -> bool {
    match (expected, actual) {
        (Why::Allowed { egress, ingress }, Reason::Allowed { egress: e, ingress: i }) => {
            same_cause(program, egress, e) && same_cause(program, ingress, i)
        }
        (Why::Denied { stage, because }, Reason::Denied { stage: s, cause }) => {
            *stage == s && same_cause(program, because, cause)
        }
        _ => false,
    }
}

fn same_cause(program: &Program, expected: &Because, actual: Cause) -> bool {
    match (expected, actual) {
        (Because::Rule(rule), Cause::Rule(id)) => *rule == rule_at(program, id),
        (Because::AnyOf(rules), Cause::Rule(id)) => rules.contains(&rule_at(program, id)),
        (Because::OwnAddress, Cause::OwnAddress)
        | (Because::OwnNode, Cause::OwnNode)
        | (Because::NoSubject, Cause::NoSubject)
        | (Because::Isolated, Cause::Isolated)
        | (Because::Default, Cause::Default) => true,
        _ => false,
    }
}

fn rule_at(program: &Program, id: RuleId) -> RuleAt {
    let rule = program.rule(id);
    let policy = program.policy(rule.policy).id.clone();
    RuleAt { policy, direction: rule.direction, index: rule.index as usize }
}

/// The Decision, with rules by name instead of by number.
fn told(program: &Program, decision: &Decision) -> String {
    let cause = |cause| match cause {
        Cause::Rule(id) => format!("{:?}", rule_at(program, id)),
        other => format!("{other:?}"),
    };
    let reason = |reason| match reason {
        Reason::Allowed { egress, ingress } => format!("allowed, egress {}, ingress {}", cause(egress), cause(ingress)),
        Reason::Denied { stage, cause: by } => format!("denied in {stage}, {}", cause(by)),
    };
    let audited = decision.would_deny.map(|denied| format!("; would be {}", reason(denied))).unwrap_or_default();
    reason(decision.reason) + &audited
}

fn tally_unknown(endings: &mut BTreeMap<String, u32>, program: &Program, flow: &Flow, naive: Prediction) {
    let mut count = |ending: String| *endings.entry(ending).or_default() += 1;
    let is_pod = |end: &Endpoint| end.workload.is_some_and(|id| !program.member(id).host_network);
    if flow.to.name.is_some() && naive == Prediction::Depends {
        count("a name depends".to_owned());
    }
    if [&flow.from, &flow.to].into_iter().any(|end| end.address.is_none() && is_pod(end)) {
        count(format!("a pod without an address: {naive}"));
    } else if flow.to.name.is_none() && flow.from.workload.is_some_and(|id| program.member(id).node.is_none()) {
        count(format!("an unknown node: {naive}"));
    }
}

fn tally(endings: &mut BTreeMap<String, u32>, judgement: &Judgement) {
    let mut count = |ending: String| *endings.entry(ending).or_default() += 1;
    match &judgement.why {
        Why::Allowed { egress: Because::OwnAddress, .. } => count("own address".to_owned()),
        Why::Allowed { egress, ingress } => {
            count(format!("egress {}", cause_text(egress)));
            count(format!("ingress {}", cause_text(ingress)));
        }
        Why::Denied { stage, .. } => count(format!("denied in {stage}")),
    }
    if let Some(Why::Denied { stage, .. }) = &judgement.would_deny {
        count(format!("would be denied in {stage}"));
    }
}

fn cause_text(because: &Because) -> &'static str {
    match because {
        Because::OwnAddress => "own address",
        Because::OwnNode => "own node",
        Because::NoSubject => "no subject",
        Because::Rule(_) => "rule",
        Because::AnyOf(_) => "one of the rules",
        Because::Isolated => "isolated",
        Because::Default => "default",
    }
}
