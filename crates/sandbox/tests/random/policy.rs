//! Policies of every kind, with what each kind can say. Some are made for the
//! thresholds of the renderer: many rules alike, many networks, many ports.

use super::world::{NAMESPACES, selector};
use namewall_policy::domain::{DomainPattern, Wildcard};
use namewall_policy::labels::Selector;
use namewall_policy::model::{
    Action, Clauses, Enforcement, NamespaceScope, Peer, Peers, Placement, PodSet, Policy, PolicyKind, PolicyRef,
    PortMatch, Ports, Rule, Subject,
};
use namewall_policy::port::Protocol;
use namewall_policy::snapshot::NAMESPACE_NAME_LABEL;
use namewall_testbed::Dice;

/// Blocks with pods, nodes and strangers in and just beside them.
const BLOCKS: [&str; 18] = [
    "0.0.0.0/0",
    "0.0.0.0/1",
    "128.0.0.0/1",
    "10.0.0.0/24",
    "10.0.0.0/23",
    "10.0.1.0/24",
    "10.0.0.2/31",
    "10.0.1.3/32",
    "172.16.0.0/31",
    "172.16.0.2/32",
    "192.0.2.0/24",
    "192.0.2.10/32",
    "203.0.113.0/24",
    "::/0",
    "fd00::/48",
    "fd00:0:0:1::/64",
    "fd01::/127",
    "2001:db8::/32",
];
/// None beside another, so that they stay apart.
const SINGLES: [&str; 14] = [
    "10.0.0.2/32",
    "10.0.0.4/32",
    "10.0.0.6/32",
    "10.0.1.3/32",
    "10.0.1.5/32",
    "172.16.0.2/32",
    "192.0.2.10/32",
    "203.0.113.5/32",
    "fd00::2/128",
    "fd00::4/128",
    "fd00:0:0:1::3/128",
    "fd01::1/128",
    "2001:db8::10/128",
    "2001:db8:1::5/128",
];
pub(crate) const PATTERNS: [&str; 4] = ["example.com", "*.example.com", "*.a.example.com", "other.org"];
const EDGES: [u16; 5] = [80, 81, 443, 8080, u16::MAX];

use Action::{Allow, Deny, Pass};

/// What the rules of a kind are made of.
struct Makings {
    actions: &'static [Action],
    peers: &'static [Sort],
    wildcard: Wildcard,
}

#[derive(Clone, Copy, PartialEq)]
enum Sort {
    Pods,
    Network,
    Nodes,
    ApiServer,
    Domain,
}

const PLAIN: &[Sort] = &[Sort::Pods, Sort::Pods, Sort::Network];
const CLUSTER: &[Sort] = &[Sort::Pods, Sort::Pods, Sort::Pods, Sort::Network, Sort::Network, Sort::Nodes];
const GATE: &[Sort] = &[Sort::Network, Sort::Network, Sort::Nodes, Sort::ApiServer];
const NAMES: &[Sort] = &[Sort::Domain, Sort::Domain, Sort::Network, Sort::Nodes];

impl Makings {
    fn new(actions: &'static [Action], peers: &'static [Sort]) -> Self {
        Self { actions, peers, wildcard: Wildcard::Subdomains }
    }
}

pub(crate) fn policy(dice: &mut Dice) -> Policy {
    let mut policy = match dice.within(0..20) {
        0..6 => network_policy(dice),
        6..8 => v1beta1(dice),
        8..12 => admin(dice),
        12..15 => baseline(dice),
        15..18 => cluster_egress_firewall(dice),
        _ => egress_firewall(dice),
    };
    if dice.chance(20) {
        policy.enforcement = Enforcement::Audit;
    }
    policy
}

fn of_kind(kind: PolicyKind, placement: Placement, selected: Selected) -> Policy {
    let Selected { namespace, subject } = selected;
    let id = PolicyRef { kind, namespace: namespace.map(Into::into), name: "default".into() };
    let enforcement = Enforcement::Enforce;
    Policy { id, placement, enforcement, subject, egress: Vec::new(), ingress: Vec::new(), source: None }
}

/// Few names, so that one policy comes after another of its name.
fn named(dice: &mut Dice, mut policy: Policy) -> Policy {
    policy.id.name = dice.pick(&["a", "b", "c", "d"]).into();
    policy
}

fn network_policy(dice: &mut Dice) -> Policy {
    let placement = Placement::Network { isolates_ingress: dice.chance(60), isolates_egress: dice.chance(40) };
    let makings = Makings::new(&[Allow], PLAIN);
    let mut policy = of_kind(PolicyKind::NetworkPolicy, placement, in_a_namespace(dice));
    policy.egress = rules(dice, &makings);
    policy.ingress = rules(dice, &makings);
    named(dice, policy)
}

/// Its namespace isolates, not it; and it may have the name of one of v1.
fn v1beta1(dice: &mut Dice) -> Policy {
    let placement = Placement::Network { isolates_ingress: false, isolates_egress: false };
    let mut policy = of_kind(PolicyKind::NetworkPolicyV1Beta1, placement, in_a_namespace(dice));
    policy.ingress = rules(dice, &Makings::new(&[Allow], &[Sort::Pods]));
    named(dice, policy)
}

fn admin(dice: &mut Dice) -> Policy {
    let kind = dice.pick(&[PolicyKind::AdminNetworkPolicy, PolicyKind::ClusterNetworkPolicy]);
    let placement = Placement::Admin { priority: dice.within(0..3) as i32 };
    let makings = Makings::new(&[Allow, Deny, Deny, Pass], CLUSTER);
    let mut policy = of_kind(kind, placement, in_the_cluster(dice));
    policy.egress = if dice.chance(40) { rules(dice, &Makings::new(&[Allow], NAMES)) } else { rules(dice, &makings) };
    policy.ingress = rules(dice, &makings);
    named(dice, policy)
}

fn baseline(dice: &mut Dice) -> Policy {
    let priority = dice.chance(60).then(|| dice.within(0..3) as i32);
    let kind = match priority {
        Some(_) => PolicyKind::ClusterNetworkPolicy,
        None => PolicyKind::BaselineAdminNetworkPolicy,
    };
    let makings = Makings::new(&[Allow, Deny, Deny, Pass], CLUSTER);
    let mut policy = of_kind(kind, Placement::Baseline { priority }, in_the_cluster(dice));
    policy.egress = rules(dice, &makings);
    policy.ingress = rules(dice, &makings);
    if priority.is_some() { named(dice, policy) } else { policy }
}

fn cluster_egress_firewall(dice: &mut Dice) -> Policy {
    let placement = Placement::ClusterGate { priority: dice.within(0..3) as i32 };
    let mut selected = in_the_cluster(dice);
    selected.subject.nodes = dice.chance(40).then(|| selector(dice));
    let mut policy = of_kind(PolicyKind::ClusterEgressFirewall, placement, selected);
    policy.egress = rules(dice, &Makings::new(&[Allow, Deny], GATE));
    if dice.chance(30) {
        policy.egress.splice(0..0, rules(dice, &Makings::new(&[Allow], NAMES)));
    }
    named(dice, policy)
}

fn egress_firewall(dice: &mut Dice) -> Policy {
    let mut selected = in_a_namespace(dice);
    selected.subject.pods.pods = Selector::everything();
    let mut policy = of_kind(PolicyKind::EgressFirewall, Placement::NamespaceGate, selected);
    let makings = Makings { actions: &[Allow, Deny], peers: NAMES, wildcard: Wildcard::OneLabel };
    policy.egress = rules(dice, &makings);
    policy
}

/// The namespace of a policy, if its kind has one, and whom it selects.
struct Selected {
    namespace: Option<&'static str>,
    subject: Subject,
}

fn in_a_namespace(dice: &mut Dice) -> Selected {
    let namespace = dice.pick(&NAMESPACES);
    let pods = PodSet { namespaces: NamespaceScope::Named(namespace.into()), pods: mostly_everything(dice) };
    Selected { namespace: Some(namespace), subject: Subject { pods, nodes: None } }
}

fn in_the_cluster(dice: &mut Dice) -> Selected {
    let namespaces = NamespaceScope::Matching(mostly_everything(dice));
    let pods = PodSet { namespaces, pods: mostly_everything(dice) };
    Selected { namespace: None, subject: Subject { pods, nodes: None } }
}

fn mostly_everything(dice: &mut Dice) -> Selector {
    if dice.chance(60) { Selector::everything() } else { selector(dice) }
}

fn rules(dice: &mut Dice, makings: &Makings) -> Vec<Rule> {
    if dice.chance(12) {
        return alike(dice, makings);
    }
    dice.times(0..4, |dice| {
        let action = dice.pick(makings.actions);
        let clauses = match dice.chance(3) {
            true => Clauses::Unreadable,
            false => Clauses::Match { peers: peers(dice, makings), ports: ports(dice) },
        };
        rule(action, clauses)
    })
}

/// So many alike in a row that they become one, and one that differs behind them.
fn alike(dice: &mut Dice, makings: &Makings) -> Vec<Rule> {
    let (action, all) = (dice.pick(makings.actions), ports(dice));
    let mut rules = dice.times(7..11, |dice| {
        let peers = Peers::Listed(dice.times(1..3, |dice| peer(dice, makings)));
        rule(action, Clauses::Match { peers, ports: all.clone() })
    });
    rules.push(rule(dice.pick(makings.actions), Clauses::Match { peers: peers(dice, makings), ports: ports(dice) }));
    rules
}

fn rule(action: Action, clauses: Clauses) -> Rule {
    Rule { name: None, action, clauses, source: None }
}

fn peers(dice: &mut Dice, makings: &Makings) -> Peers {
    match dice.within(0..20) {
        0..2 => Peers::Anyone,
        2 => Peers::Listed(Vec::new()),
        3..6 if makings.peers.contains(&Sort::Network) => {
            Peers::Listed(dice.times(5..15, |dice| network(dice.pick(&SINGLES), &[])))
        }
        _ => Peers::Listed(dice.times(1..4, |dice| peer(dice, makings))),
    }
}

fn peer(dice: &mut Dice, makings: &Makings) -> Peer {
    match dice.pick(makings.peers) {
        Sort::Pods => Peer::Pods(PodSet { namespaces: namespaces(dice), pods: mostly_everything(dice) }),
        Sort::Network => {
            let holes = if dice.chance(30) { dice.times(1..3, |dice| dice.pick(&BLOCKS)) } else { Vec::new() };
            network(dice.pick(&BLOCKS), &holes)
        }
        Sort::Nodes => Peer::Nodes(selector(dice)),
        Sort::ApiServer => Peer::ApiServer,
        Sort::Domain => Peer::Domain(pattern(dice.pick(&PATTERNS), makings.wildcard)),
    }
}

pub(crate) fn pattern(text: &str, wildcard: Wildcard) -> DomainPattern {
    DomainPattern::parse(text, wildcard).expect("the patterns are well formed")
}

fn network(block: &str, holes: &[&str]) -> Peer {
    let read = |text: &str| text.parse().expect("the blocks are well formed");
    Peer::Network { cidr: read(block), except: holes.iter().map(|hole| read(hole)).collect() }
}

fn namespaces(dice: &mut Dice) -> NamespaceScope {
    match dice.within(0..3) {
        0 => NamespaceScope::Named(dice.pick(&NAMESPACES).into()),
        1 => NamespaceScope::Matching(Selector::label(NAMESPACE_NAME_LABEL, dice.pick(&NAMESPACES))),
        _ => NamespaceScope::Matching(mostly_everything(dice)),
    }
}

fn ports(dice: &mut Dice) -> Ports {
    match dice.within(0..20) {
        0..9 => Ports::Any,
        9 => Ports::Listed(Vec::new()),
        10..13 => Ports::Listed(dice.times(3..7, port)),
        _ => Ports::Listed(dice.times(1..3, port)),
    }
}

fn port(dice: &mut Dice) -> PortMatch {
    let protocol = dice.pick(&[Protocol::Tcp, Protocol::Tcp, Protocol::Udp, Protocol::Sctp]);
    let (one, other) = (dice.pick(&EDGES), dice.pick(&EDGES));
    match dice.within(0..10) {
        0..3 => PortMatch::Named {
            protocol: dice.chance(70).then_some(protocol),
            name: dice.pick(&["web", "web", "dns", "nobody-has-it"]).into(),
        },
        3..6 => PortMatch::Range { protocol, low: one.min(other), high: one.max(other) },
        6 => PortMatch::every(protocol),
        _ => PortMatch::Range { protocol, low: one, high: one },
    }
}
