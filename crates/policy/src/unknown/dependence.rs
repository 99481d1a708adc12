//! On what an answer depends.

use super::predict::SideOutcome;
use super::{Family, families};
use crate::addr::AddrSet;
use crate::flow::Endpoint;
use crate::model::{NodeId, PolicyId};
use crate::port::Traffic;
use crate::program::Plan;
use crate::reach::{Inward, Reach, Reachable, SideCase};

/// Something that the input does not say and that decides about a connection. `E` is how its ends are told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Dependence<E = Endpoint> {
    /// The address that a pod will get, or that a name resolves to.
    Address { end: E, open: AddrSet, closed: AddrSet },
    /// The node that a `hostNetwork` pod runs on.
    HostNode { end: E, open: Vec<NodeId>, closed: Vec<NodeId> },
    /// The node that the source runs on: these firewalls are for certain nodes.
    SourceNode { end: E, policies: Vec<PolicyId> },
    /// Whether the destination runs on the source's node, which may always reach its own pods.
    SameNode { from: E, to: E },
    /// Whether a node that passes the connection on puts its own address in the place of the source's (S1.11), and which
    /// of its addresses.
    PassedOn { from: E, nodes: Vec<NodeId> },
    /// Whether a load balancer outside comes there by a node, or past all nodes (S1.11).
    PastNodes { to: E },
    /// Whether another node gets the connection to this address of a Service, and translates it (S1.11).
    NextNode { to: E },
}

impl<E> Dependence<E> {
    /// The same with its ends told in another way.
    pub fn map<F>(self, f: impl Fn(E) -> F) -> Dependence<F> {
        match self {
            Self::Address { end, open, closed } => Dependence::Address { end: f(end), open, closed },
            Self::HostNode { end, open, closed } => Dependence::HostNode { end: f(end), open, closed },
            Self::SourceNode { end, policies } => Dependence::SourceNode { end: f(end), policies },
            Self::SameNode { from, to } => Dependence::SameNode { from: f(from), to: f(to) },
            Self::PassedOn { from, nodes } => Dependence::PassedOn { from: f(from), nodes },
            Self::PastNodes { to } => Dependence::PastNodes { to: f(to) },
            Self::NextNode { to } => Dependence::NextNode { to: f(to) },
        }
    }
}

/// An end of a pair, without its name: so thousands of pairs that depend on the same thing have equal conditions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Party {
    Source,
    Target,
}

/// Both sides of a connection whose verdict depends on something.
pub(super) struct Sides<'a> {
    pub(super) reach: &'a Reach<'a>,
    pub(super) from: &'a Endpoint,
    pub(super) to: &'a Endpoint,
}

/// What a part of the connections between two ends depends on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Condition<E = Endpoint> {
    /// The part; None for all that were asked about.
    pub part: Option<Traffic>,
    pub on: Dependence<E>,
}

impl Condition {
    /// The same without the names of the ends. Where both ends are one workload, its address is the target's.
    pub fn relative(self, is_target: impl Fn(&Endpoint) -> bool) -> Condition<Party> {
        let party = |end: &Endpoint| if is_target(end) { Party::Target } else { Party::Source };
        let on = match self.on {
            Dependence::Address { end, open, closed } => Dependence::Address { end: party(&end), open, closed },
            Dependence::HostNode { end, open, closed } => Dependence::HostNode { end: party(&end), open, closed },
            Dependence::SourceNode { policies, .. } => Dependence::SourceNode { end: Party::Source, policies },
            Dependence::SameNode { .. } => Dependence::SameNode { from: Party::Source, to: Party::Target },
            Dependence::PassedOn { nodes, .. } => Dependence::PassedOn { from: Party::Source, nodes },
            Dependence::PastNodes { .. } => Dependence::PastNodes { to: Party::Target },
            Dependence::NextNode { .. } => Dependence::NextNode { to: Party::Target },
        };
        Condition { part: self.part, on }
    }
}

impl From<Dependence> for Condition {
    fn from(on: Dependence) -> Self {
        Self { part: None, on }
    }
}

/// The conditions of the connections that are in doubt, each [`Dependence`] once.
#[derive(Debug)]
pub struct Conditions<'t> {
    asked: &'t Traffic,
    /// Whether both ends are taken to be on different nodes.
    across: bool,
    found: Vec<(Dependence, Traffic)>,
}

impl<'t> Conditions<'t> {
    /// For connections that depend on something.
    pub fn of(asked: &'t Traffic) -> Self {
        Self { asked, across: false, found: Vec::new() }
    }

    /// The same between ends on different nodes.
    pub fn across(asked: &'t Traffic) -> Self {
        Self { across: true, ..Self::of(asked) }
    }

    pub fn add(&mut self, on: Dependence, part: &Traffic) {
        match self.found.iter_mut().find(|(known, _)| *known == on) {
            Some((_, traffic)) => *traffic = traffic.union(part),
            None => self.found.push((on, part.clone())),
        }
    }

    pub fn list(self) -> Vec<Condition> {
        let condition = |(on, part): (Dependence, Traffic)| {
            let part = (part != *self.asked).then_some(part);
            Condition { part, on }
        };
        self.found.into_iter().map(condition).collect()
    }
}

impl Reach<'_> {
    /// What these connections between two ends depend on. Those that depend on nothing have no condition.
    pub fn depends_on(&self, from: &Endpoint, to: &Endpoint, asked: &Traffic) -> Vec<Condition> {
        let mut conditions = Conditions::of(asked);
        self.find_conditions(from, to, &mut conditions);
        conditions.list()
    }

    /// Adds what the connections between these two ends depend on.
    pub fn find_conditions(&self, from: &Endpoint, to: &Endpoint, conditions: &mut Conditions<'_>) {
        for family in families(self.program, from, to) {
            let mut egress = SideCases::new(self.egress_cases(from, to, family));
            let inward = Inward { family, across: conditions.across };
            let mut ingress = SideCases::new(self.ingress_cases(from, to, inward));
            let in_doubt = egress.reachable().intersect(&ingress.reachable()).limit(conditions.asked).depends();
            let sides = Sides { reach: self, from, to };
            for part in parts(in_doubt, egress.traffic.iter().chain(&ingress.traffic)) {
                egress.judge(&part);
                ingress.judge(&part);
                for on in sides.dependences(&part, &egress.outcomes, &ingress.outcomes) {
                    conditions.add(on, &part);
                }
            }
        }
    }

    /// What the source's policies alone depend on, and for which connections.
    pub(crate) fn egress_depends_on(&self, from: &Endpoint, to: &Endpoint, family: Option<Family>) -> DependentParts {
        let sides = Sides { reach: self, from, to };
        SideCases::new(self.egress_cases(from, to, family)).by_part(|part, outcomes| sides.egress(part, outcomes))
    }

    /// What the destination's policies alone depend on, if both ends are on different nodes.
    pub(crate) fn ingress_depends_on(&self, from: &Endpoint, to: &Endpoint, family: Option<Family>) -> DependentParts {
        let sides = Sides { reach: self, from, to };
        let inward = Inward { family, across: true };
        SideCases::new(self.ingress_cases(from, to, inward)).by_part(|_, outcomes| sides.ingress(outcomes))
    }
}

/// What depends on something, and for which connections.
type DependentParts = Vec<(Dependence, Traffic)>;

/// The cases of one side, with what each of them lets pass.
struct SideCases {
    outcomes: Vec<SideOutcome>,
    traffic: Vec<Traffic>,
}

impl SideCases {
    fn new(cases: Vec<SideCase>) -> Self {
        let split = |case: SideCase| {
            let SideCase { settled, assumption, traffic } = case;
            (SideOutcome { settled, assumption, open: false }, traffic)
        };
        let (outcomes, traffic) = cases.into_iter().map(split).unzip();
        Self { outcomes, traffic }
    }

    /// Over all cases; everything if there is none, since then no policy judges this side.
    fn reachable(&self) -> Reachable {
        if self.traffic.is_empty() { Reachable::all() } else { Reachable::over(self.traffic.iter().cloned()) }
    }

    /// Sets the outcomes for connections that fare alike in every case.
    fn judge(&mut self, part: &Traffic) {
        for (outcome, traffic) in self.outcomes.iter_mut().zip(&self.traffic) {
            outcome.open = part.is_subset(traffic);
        }
    }

    /// What each part of the connections in doubt depends on.
    fn by_part(mut self, find: impl Fn(&Traffic, &[SideOutcome]) -> Vec<Dependence>) -> DependentParts {
        let mut found = Vec::new();
        for part in parts(self.reachable().depends(), self.traffic.iter()) {
            self.judge(&part);
            found.extend(find(&part, &self.outcomes).into_iter().map(|on| (on, part.clone())));
        }
        found
    }
}

/// Divides connections into parts that are each open as a whole or closed as a whole in every case.
fn parts<'c>(whole: Traffic, cases: impl Iterator<Item = &'c Traffic>) -> Vec<Traffic> {
    let mut parts = vec![whole];
    parts.retain(|part| !part.is_none());
    let mut seen: Vec<&Traffic> = Vec::new();
    for case in cases {
        if parts.is_empty() || seen.contains(&case) {
            continue;
        }
        seen.push(case);
        let divided = parts.iter().flat_map(|part| [part.intersect(case), part.subtract(case)]);
        parts = divided.filter(|part| !part.is_none()).collect();
    }
    parts
}

impl Sides<'_> {
    /// What connections depend on that are open or closed together in each outcome of egress and ingress.
    pub(super) fn dependences(
        &self,
        part: &Traffic,
        egress: &[SideOutcome],
        ingress: &[SideOutcome],
    ) -> Vec<Dependence> {
        let mut found = self.egress(part, egress);
        found.extend(self.ingress(ingress));
        found
    }

    fn egress(&self, part: &Traffic, outcomes: &[SideOutcome]) -> Vec<Dependence> {
        let mut found: Vec<Dependence> = by_place(self.to, outcomes).into_iter().collect();
        if by_assumption(outcomes) {
            let policies = self.for_certain_nodes(part, outcomes);
            found.push(Dependence::SourceNode { end: self.from.clone(), policies });
        }
        found
    }

    /// The firewalls for certain nodes that have a rule for these connections.
    fn for_certain_nodes(&self, part: &Traffic, outcomes: &[SideOutcome]) -> Vec<PolicyId> {
        let plan = self.reach.plan_of(self.from);
        let all: Vec<PolicyId> = plan.into_iter().flat_map(Plan::all_in_doubt).collect();
        let has_rule = |policy| outcomes.iter().any(|outcome| self.reach.has_rule(policy, &outcome.settled.end, part));
        let policies: Vec<PolicyId> = all.iter().copied().filter(|&policy| has_rule(policy)).collect();
        // Through a node port, the rule may be about the node that passes the connection on.
        if policies.is_empty() { all } else { policies }
    }

    fn ingress(&self, outcomes: &[SideOutcome]) -> Vec<Dependence> {
        let mut found: Vec<Dependence> = by_place(self.from, outcomes).into_iter().collect();
        if by_assumption(outcomes) {
            found.push(Dependence::SameNode { from: self.from.clone(), to: self.to.clone() });
        }
        found
    }
}

/// Whether the outcome of one settled end differs with what is assumed. Outcomes of one end are neighbours.
fn by_assumption(outcomes: &[SideOutcome]) -> bool {
    outcomes.windows(2).any(|pair| {
        pair[0].settled.end == pair[1].settled.end
            && pair[0].assumption != pair[1].assumption
            && pair[0].open != pair[1].open
    })
}

fn by_place(end: &Endpoint, outcomes: &[SideOutcome]) -> Option<Dependence> {
    let first = outcomes.first()?.assumption;
    let alike: Vec<&SideOutcome> = outcomes.iter().filter(|outcome| outcome.assumption == first).collect();
    if alike.iter().all(|outcome| outcome.open) || !alike.iter().any(|outcome| outcome.open) {
        return None;
    }
    let nodes = |open: bool| {
        let mut nodes: Vec<NodeId> =
            alike.iter().filter(|outcome| outcome.open == open).filter_map(|outcome| outcome.settled.node).collect();
        nodes.dedup();
        nodes
    };
    let (open, closed) = (nodes(true), nodes(false));
    if !open.is_empty() || !closed.is_empty() {
        return Some(Dependence::HostNode { end: end.clone(), open, closed });
    }
    let spans = |open: bool| {
        let of = alike.iter().filter(|outcome| outcome.open == open).filter_map(|outcome| outcome.settled.span);
        of.collect::<AddrSet>()
    };
    Some(Dependence::Address { end: end.clone(), open: spans(true), closed: spans(false) })
}
