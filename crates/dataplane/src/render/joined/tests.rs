//! Tables with joined look-ups against the same tables without them: every packet
//! meets the same verdict and is counted for the same rule.

use super::super::{Delta, Ids, Scope, render};
use super::*;
use crate::nft::emulate::{Packet, Seen, example, forward, send_counted};
use crate::sample::{self, Sample, WithRules as _};
use namewall_policy::model::{Enforcement, Peer, Peers, Policy, PolicyKind, PortMatch, Ports, Role, Workload};
use namewall_policy::port::Protocol;
use namewall_policy::{Flow, Instant, LeaseTable, Verdict, compile_next, evaluate};
use proptest::prelude::*;

const APPS: [&str; 5] = ["a", "b", "c", "d", "e"];
const PORTS: [u16; 4] = [80, 443, 8080, 22];

fn number(low: u16, high: u16) -> PortMatch {
    PortMatch::Range { protocol: Protocol::Tcp, low, high }
}

/// Lists of ports that are the same, within each other, apart, and by name.
fn port_list(which: u8) -> Ports {
    Ports::Listed(match which {
        0 | 1 => vec![number(80, 80)],
        2 => vec![number(443, 443)],
        3 => vec![number(80, 80), number(443, 443)],
        4 => vec![number(70, 8080)],
        5 => vec![PortMatch::Named { protocol: Some(Protocol::Tcp), name: "http".into() }],
        6 => vec![number(22, 22), number(80, 80), number(443, 443)],
        _ => return Ports::Any,
    })
}

fn peers(which: &[u8]) -> Peers {
    let network = |cidr: &str| Peer::Network { cidr: cidr.parse().unwrap(), except: Vec::new() };
    let peer = |which: &u8| match which {
        0..5 => Peer::Pods(sample::pods(APPS[usize::from(*which)])),
        5 => network("10.0.0.2/31"),
        6 => network("fd00::4/126"),
        _ => Peer::Pods(namewall_policy::model::PodSet::all()),
    };
    if which.is_empty() { Peers::Anyone } else { Peers::Listed(which.iter().map(peer).collect()) }
}

#[derive(Clone, Debug)]
struct RuleChoice {
    direction: Direction,
    peers: Vec<u8>,
    ports: u8,
}

#[derive(Clone, Debug)]
struct PolicyChoice {
    app: u8,
    rules: Vec<RuleChoice>,
    is_audited: bool,
}

fn policy_choice() -> impl Strategy<Value = PolicyChoice> {
    let peers = prop_oneof![
        12 => (0_u8..8).prop_map(|peer| vec![peer]),
        6 => Just(vec![1, 2]),
        2 => Just(vec![3, 5]),
        1 => Just(vec![]),
    ];
    let direction = prop_oneof![Just(Direction::Egress), Just(Direction::Ingress)];
    let rule = (direction, peers, 0_u8..8);
    let rule = rule.prop_map(|(direction, peers, ports)| RuleChoice { direction, peers, ports });
    let is_audited = prop_oneof![6 => Just(false), 1 => Just(true)];
    (0_u8..2, proptest::collection::vec(rule, 1..5), is_audited).prop_map(|(app, rules, is_audited)| PolicyChoice {
        app,
        rules,
        is_audited,
    })
}

fn policy(at: usize, choice: &PolicyChoice) -> Policy {
    let app = APPS[usize::from(choice.app)];
    let named = sample::policy(PolicyKind::NetworkPolicy, &format!("policy-{at}"), app);
    let mut policy = choice.rules.iter().fold(named, |policy, rule| {
        policy.rule(rule.direction, Action::Allow, sample::clauses(peers(&rule.peers), port_list(rule.ports)))
    });
    if choice.is_audited {
        policy.enforcement = Enforcement::Audit;
    }
    policy
}

/// A policy for `a` that opens some ports to one peer.
fn open(directions: &[Direction], peer: u8, ports: u8) -> PolicyChoice {
    let rule = |direction: &Direction| RuleChoice { direction: *direction, peers: vec![peer], ports };
    PolicyChoice { app: 0, rules: directions.iter().map(rule).collect(), is_audited: false }
}

/// The pods `last`, whose apps follow each other.
fn pods_at(sample: Sample, last: &[u8]) -> Sample {
    last.iter().fold(sample, |sample, last| {
        let addresses = [example(Version::V4, *last), example(Version::V6, *last)];
        let addresses = addresses.each_ref().map(String::as_str);
        sample.pod(APPS[usize::from(*last) % APPS.len()], &addresses, "n1")
    })
}

const PODS: [u8; 7] = [1, 2, 3, 4, 5, 6, 7];

fn cluster(policies: &[PolicyChoice], pods: &[u8]) -> Sample {
    let policies = policies.iter().enumerate().map(|(at, choice)| policy(at, choice));
    policies.fold(pods_at(Sample::default(), pods), Sample::policy)
}

fn rendered(sample: &Sample) -> Rendered {
    render(&sample.program(), &Scope::default(), &Ids::default())
}

fn without(joined: &Rendered) -> Rendered {
    let mut plain = joined.clone();
    plain.without_joins();
    plain
}

fn packets() -> impl Iterator<Item = Packet> {
    let ends = Version::BOTH.into_iter().flat_map(|version| {
        (1..=9).flat_map(move |from| (1..=9).map(move |to| (example(version, from), example(version, to))))
    });
    let apart = ends.filter(|(from, to)| from != to);
    apart.flat_map(|(from, to)| PORTS.map(|port| Packet::tcp(&from, &to, port)))
}

/// The base chains that a packet from pod to pod passes, those that are audited after them.
fn bases(table: &Table) -> impl Iterator<Item = &str> {
    let all = ["egress-forward", "ingress-forward", "audit/egress-forward", "audit/ingress-forward"];
    all.into_iter().filter(|base| table.chains.contains_key(*base))
}

/// Fails unless both tables do and count the same. Returns how many look-ups were saved.
fn compare(joined: &Table, plain: &Table) -> Result<isize, TestCaseError> {
    let mut saved = 0;
    for packet in packets() {
        for base in bases(joined) {
            let (one, counted) = send_counted(joined, base, &packet);
            let (other, meant) = send_counted(plain, base, &packet);
            prop_assert_eq!(one.accepted, other.accepted, "{} {:?}", base, packet);
            prop_assert_eq!(counted, meant, "{} {:?}\n{}", base, packet, joined);
            saved += other.lookups as isize - one.lookups as isize;
        }
    }
    Ok(saved)
}

/// The rendered table after a change of pods only, if there is a short way.
fn after(mut table: Rendered, before: &Program, next: &Program) -> Option<Rendered> {
    let delta = Delta::between(before, next, &Scope::default(), &table)?;
    for (set, element) in &delta.gone {
        table.table.sets.get_mut(*set)?.elements.remove(element.index());
    }
    for (set, element) in &delta.come {
        table.table.sets.get_mut(*set)?.insert(element.clone());
    }
    table.numbers.joins.resize(&delta.sizes);
    table.numbers.groups = delta.groups.unwrap_or(table.numbers.groups);
    Some(table)
}

/// What happens to a pod.
#[derive(Clone, Copy, Debug)]
enum PodChange {
    Come { last: u8 },
    Go { at: usize },
    Relabel { at: usize, app: usize },
}

fn pod_change() -> impl Strategy<Value = PodChange> {
    prop_oneof![
        (8_u8..13).prop_map(|last| PodChange::Come { last }),
        (0_usize..9).prop_map(|at| PodChange::Go { at }),
        (0_usize..9, 0_usize..7).prop_map(|(at, app)| PodChange::Relabel { at, app }),
    ]
}

fn change(mut sample: Sample, change: PodChange) -> Sample {
    let (at, workload) = match change {
        PodChange::Come { last } => return pods_at(sample, &[last]),
        PodChange::Go { at } => {
            let at = at % sample.snapshot.workloads.len();
            (at, sample.snapshot.workloads[at].vacated())
        }
        PodChange::Relabel { at, app } => {
            let at = at % sample.snapshot.workloads.len();
            let workload = sample.snapshot.workloads[at].clone();
            // Two of these no pod has at first.
            let app = ["a", "b", "c", "d", "e", "f", "g"][app];
            let labels = std::iter::once(("app", app)).collect();
            let role = Role { labels, ..sample.snapshot.role(workload.role).clone() };
            (at, Workload { role: sample.snapshot.role_of(role), ..workload })
        }
    };
    sample.snapshot.workloads.set(at, workload);
    sample
}

/// The joined elements whose look-ups are among these. A class whose last pod goes keeps its chains for a while.
fn joined_among(table: &Table, numbers: &FxHashSet<u32>) -> BTreeMap<Vec<u8>, Value> {
    let elements = Version::BOTH.into_iter().flat_map(|version| table.sets[set::JOINED[version]].elements.iter());
    let number = |one: &Element| u32::from_ne_bytes(*one.key.as_bytes().first_chunk().unwrap());
    let kept = elements.filter(|one| numbers.contains(&number(one)));
    kept.map(|one| (one.key.as_bytes().to_vec(), one.value)).collect()
}

fn joined_elements(table: &Table) -> usize {
    Version::BOTH.into_iter().map(|version| table.sets[set::JOINED[version]].elements.len()).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    #[test]
    fn a_joined_table_does_and_counts_the_same(policies in proptest::collection::vec(policy_choice(), 1..5)) {
        let joined = rendered(&cluster(&policies, &PODS));
        compare(&joined.table, &without(&joined).table)?;
    }

    #[test]
    fn pods_that_come_and_go_lead_to_the_table_that_is_made_at_once(
        policies in proptest::collection::vec(policy_choice(), 1..5),
        changes in proptest::collection::vec(pod_change(), 1..6),
    ) {
        let mut sample = cluster(&policies, &PODS);
        let mut program = sample.program();
        let mut table = render(&program, &Scope::default(), &Ids::default());
        for one in changes {
            let next = change(sample.clone(), one);
            let next_program = compile_next(&sample.snapshot, &program, &next.snapshot).0;
            let meant = render(&next_program, &Scope::default(), &table.ids);
            table = after(table, &program, &next_program).unwrap_or_else(|| meant.clone());
            let numbers: FxHashSet<u32> = meant.numbers.joins.numbers().collect();
            prop_assert_eq!(joined_among(&table.table, &numbers), joined_among(&meant.table, &numbers), "{:?}", one);
            (sample, program) = (next, next_program);
        }
        compare(&table.table, &without(&table).table)?;
    }

    #[test]
    fn a_joined_table_says_what_the_core_says(policies in proptest::collection::vec(policy_choice(), 1..5)) {
        let program = cluster(&policies, &PODS).program();
        let table = render(&program, &Scope::default(), &Ids::default()).table;
        for packet in packets() {
            let (from, to) = (program.endpoint_at(packet.source), program.endpoint_at(packet.destination));
            let flow = Flow { from, hop: None, masker: None, to, protocol: Protocol::Tcp, port: packet.port, via: None };
            let decision = evaluate(&program, &LeaseTable::default(), &flow, Instant::default());
            prop_assert_eq!(forward(&table, &packet).accepted, decision.verdict == Verdict::Allow, "{:?}", packet);
        }
    }
}

/// Three policies for `a` that each open port 80 to another app.
fn three_for_a() -> Sample {
    cluster(&[1, 2, 3].map(|app| open(&[Direction::Ingress, Direction::Egress], app, 0)), &PODS)
}

#[test]
fn the_last_of_several_rules_takes_one_look_up() {
    let joined = rendered(&three_for_a());
    // Pod 3 is of the app `d`, which the last rule speaks of; pod 5 is of `a`.
    let packet = Packet::tcp("10.0.0.3", "10.0.0.5", 80);
    let (with, counted) = send_counted(&joined.table, "ingress-forward", &packet);
    let (without, meant) = send_counted(&without(&joined).table, "ingress-forward", &packet);
    assert_eq!(counted, ["NetworkPolicy/shop/policy-2 ingress rule 0"]);
    assert_eq!(counted, meant);
    assert_eq!(without.lookups - with.lookups, 2);
    assert_eq!(with, Seen { accepted: true, ..with });
}

#[test]
fn the_same_cluster_gives_the_same_table() {
    let (one, other) = (rendered(&three_for_a()), rendered(&three_for_a()));
    assert_eq!(one.table, other.table);
    assert!(joined_elements(&one.table) > 0);
}

#[test]
fn pods_that_two_rules_allow_count_for_the_first() {
    // The second speaks of all pods.
    let joined = rendered(&cluster(&[1, 7, 2].map(|peer| open(&[Direction::Ingress], peer, 0)), &PODS));
    let counted = |from| send_counted(&joined.table, "ingress-forward", &Packet::tcp(from, "10.0.0.5", 80)).1;
    assert_eq!(counted("10.0.0.1"), ["NetworkPolicy/shop/policy-0 ingress rule 0"]);
    assert_eq!(counted("10.0.0.2"), ["NetworkPolicy/shop/policy-1 ingress rule 0"]);
    compare(&joined.table, &without(&joined).table).unwrap();
}

/// The cluster of `three_for_a`, with so many more pods of the app that its last rule speaks of.
fn with_large_group(more: usize) -> Sample {
    (0..more).fold(three_for_a(), |sample, at| {
        let address = format!("10.1.{}.{}", at / 250, at % 250 + 1);
        sample.pod("d", &[&address], "n1")
    })
}

#[test]
fn large_groups_are_not_joined() {
    let small = rendered(&with_large_group(LARGEST_GROUP - 2));
    let large = rendered(&with_large_group(LARGEST_GROUP));
    assert!(joined_elements(&small.table) > LARGEST_GROUP);
    assert!(joined_elements(&large.table) < 20);
    assert!(joined_elements(&large.table) > 0, "the rule before it is joined");
    compare(&large.table, &without(&large).table).unwrap();
    compare(&small.table, &without(&small).table).unwrap();
}

#[test]
fn a_pod_that_makes_a_group_too_large_takes_the_long_way() {
    // The app `d` has one pod with two addresses besides.
    let full = LARGEST_GROUP - 2;
    let (before, next) = (with_large_group(full), with_large_group(full + 1));
    let way = |from: &Sample, to: &Sample| after(rendered(from), &from.program(), &to.program());
    assert!(way(&with_large_group(full - 1), &before).is_some());
    assert!(way(&before, &next).is_none());
    assert!(way(&next, &before).is_none());
}

#[test]
fn all_joined_look_ups_together_are_bounded() {
    let groups = |addresses: usize, times: usize| Candidate { times, addresses, is_joined: false };
    let fits = [groups(512, 16), groups(256, 32)];
    assert_eq!(largest_joined(fits.into_iter()), 512);
    let too_many = [groups(512, 16), groups(256, 33)];
    assert_eq!(largest_joined(too_many.into_iter()), 256, "the largest go first");
    let many_small = [groups(2, 8_000), groups(40, 1_000)];
    assert_eq!(largest_joined(many_small.into_iter()), 32);
    let hopeless = [groups(1, MOST_ELEMENTS + 1)];
    assert_eq!(largest_joined(hopeless.into_iter()), 0);
    assert_eq!(largest_joined(std::iter::empty()), LARGEST_GROUP);
}

#[test]
fn a_counter_is_another_when_its_rule_is() {
    let names = |ports: u8| {
        let policies = [1, 2].map(|app| open(&[Direction::Ingress], app, ports));
        rendered(&cluster(&policies, &PODS)).table.counters.into_keys().collect::<Vec<_>>()
    };
    let (one, other) = (names(0), names(2));
    assert_eq!((one.len(), other.len()), (2, 2));
    assert!(one.iter().all(|name| name.starts_with("NetworkPolicy/shop/policy-") && !other.contains(name)), "{one:?}");
}

#[test]
fn one_pod_more_is_a_few_elements() {
    let before = with_large_group(300);
    let next = pods_at(before.clone(), &[8]);
    let table = rendered(&before);
    let delta = Delta::between(&before.program(), &next.program(), &Scope::default(), &table).expect("only a pod came");
    let joined = delta.come.iter().filter(|(set, _)| *set == set::JOINED.0 || *set == set::JOINED.1).count();
    assert!(joined > 0 && joined <= 4, "one for each address and direction: {joined}");
    assert!(delta.gone.is_empty(), "{:?}", delta.gone);
}

#[test]
fn repeated_rules_of_an_ordered_list_are_never_met() {
    let admin = |name: &str| {
        let deny = sample::clauses(sample::app("b"), Ports::Any);
        sample::policy(PolicyKind::AdminNetworkPolicy, name, "a").rule(Direction::Ingress, Action::Deny, deny)
    };
    let one = pods_at(Sample::default(), &PODS).policy(admin("one"));
    let two = one.clone().policy(admin("two"));
    let lookups = |sample: &Sample| {
        let table = rendered(sample).table;
        let (seen, _) = send_counted(&table, "ingress-forward", &Packet::tcp("10.0.0.2", "10.0.0.5", 80));
        let (denied, counted) = send_counted(&table, "ingress-forward", &Packet::tcp("10.0.0.1", "10.0.0.5", 80));
        assert!(seen.accepted && !denied.accepted);
        assert_eq!(counted, ["AdminNetworkPolicy/one ingress rule 0"]);
        seen.lookups
    };
    assert_eq!(lookups(&one), lookups(&two));
    let table = rendered(&two).table;
    let comments =
        table.chains.values().flat_map(|chain| chain.rules.iter().filter_map(|rule| rule.comment.as_deref()));
    assert!(
        comments.into_iter().any(|comment| comment == "AdminNetworkPolicy/two ingress rule 0"),
        "it is still shown"
    );
}
