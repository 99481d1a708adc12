//! On what an answer depends, for users to read.

use super::predict::Outcome;
use super::{Family, families};
use crate::addr::{AddrRange, AddrSet, Cidr};
use crate::explain::describe_end;
use crate::flow::Endpoint;
use crate::model::{NodeId, PolicyId};
use crate::port::Traffic;
use crate::program::Program;
use crate::reach::{Inward, Reach, Reachable, SideCase};
use crate::snapshot::Snapshot;
use std::net::IpAddr;

/// Something that the input does not say and that decides about a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Dependence {
    /// The address that a pod will get, or that a name resolves to.
    Address { end: Endpoint, open: AddrSet, closed: AddrSet },
    /// The node that a `hostNetwork` pod runs on.
    HostNode { end: Endpoint, open: Vec<NodeId>, closed: Vec<NodeId> },
    /// The node that the source runs on: these firewalls are for certain nodes.
    SourceNode { end: Endpoint, policies: Vec<PolicyId> },
    /// Whether the destination runs on the source's node, which may always reach its own pods.
    SameNode { from: Endpoint, to: Endpoint },
}

/// Both sides of a connection whose verdict depends on something.
pub(super) struct Sides<'a> {
    pub(super) reach: &'a Reach<'a>,
    pub(super) from: &'a Endpoint,
    pub(super) to: &'a Endpoint,
}

/// What a part of the connections between two ends depends on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    /// The part; None for all that were asked about.
    pub part: Option<Traffic>,
    pub on: Dependence,
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
        self.find_conditions((from, to), &mut conditions);
        conditions.list()
    }

    /// Adds what the connections between these two ends depend on.
    pub fn find_conditions(&self, (from, to): (&Endpoint, &Endpoint), conditions: &mut Conditions<'_>) {
        for family in families(self.program, from, to) {
            let mut egress = SideCases::new(self.egress_cases(from, to, family));
            let inward = Inward { family, across: conditions.across };
            let mut ingress = SideCases::new(self.ingress_cases(from, to, inward));
            let in_doubt = egress.reachable().intersect(&ingress.reachable()).limit(conditions.asked).depends();
            let sides = Sides { reach: self, from, to };
            for part in parts(in_doubt, egress.traffic.iter().chain(&ingress.traffic)) {
                egress.judge(&part);
                ingress.judge(&part);
                for on in sides.dependences(&egress.outcomes, &ingress.outcomes) {
                    conditions.add(on, &part);
                }
            }
        }
    }

    /// What the source's policies alone depend on, and for which connections.
    pub(crate) fn egress_depends_on(
        &self,
        (from, to): (&Endpoint, &Endpoint),
        family: Option<Family>,
    ) -> Vec<(Dependence, Traffic)> {
        let sides = Sides { reach: self, from, to };
        SideCases::new(self.egress_cases(from, to, family)).by_part(|outcomes| sides.egress(outcomes))
    }

    /// What the destination's policies alone depend on, if both ends are on different nodes.
    pub(crate) fn ingress_depends_on(
        &self,
        (from, to): (&Endpoint, &Endpoint),
        family: Option<Family>,
    ) -> Vec<(Dependence, Traffic)> {
        let sides = Sides { reach: self, from, to };
        let inward = Inward { family, across: true };
        SideCases::new(self.ingress_cases(from, to, inward)).by_part(|outcomes| sides.ingress(outcomes))
    }
}

/// The cases of one side, with what each of them lets pass.
struct SideCases {
    outcomes: Vec<Outcome>,
    traffic: Vec<Traffic>,
}

impl SideCases {
    fn new(cases: Vec<SideCase>) -> Self {
        let split = |case: SideCase| {
            let SideCase { settled, assumption, traffic } = case;
            (Outcome { settled, assumption, open: false }, traffic)
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
    fn by_part(mut self, find: impl Fn(&[Outcome]) -> Vec<Dependence>) -> Vec<(Dependence, Traffic)> {
        let mut found = Vec::new();
        for part in parts(self.reachable().depends(), self.traffic.iter()) {
            self.judge(&part);
            found.extend(find(&self.outcomes).into_iter().map(|on| (on, part.clone())));
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
    pub(super) fn dependences(&self, egress: &[Outcome], ingress: &[Outcome]) -> Vec<Dependence> {
        let mut found = self.egress(egress);
        found.extend(self.ingress(ingress));
        found
    }

    fn egress(&self, outcomes: &[Outcome]) -> Vec<Dependence> {
        let mut found: Vec<Dependence> = by_place(self.to, outcomes).into_iter().collect();
        if by_assumption(outcomes) {
            let policies = self.reach.plan_of(self.from).map(|plan| plan.in_doubt.clone()).unwrap_or_default();
            found.push(Dependence::SourceNode { end: self.from.clone(), policies });
        }
        found
    }

    fn ingress(&self, outcomes: &[Outcome]) -> Vec<Dependence> {
        let mut found: Vec<Dependence> = by_place(self.from, outcomes).into_iter().collect();
        if by_assumption(outcomes) {
            found.push(Dependence::SameNode { from: self.from.clone(), to: self.to.clone() });
        }
        found
    }
}

/// Whether the outcome of one settled end differs with what is assumed. Outcomes of one end are neighbours.
fn by_assumption(outcomes: &[Outcome]) -> bool {
    outcomes.windows(2).any(|pair| {
        pair[0].settled.end == pair[1].settled.end
            && pair[0].assumption != pair[1].assumption
            && pair[0].open != pair[1].open
    })
}

fn by_place(end: &Endpoint, outcomes: &[Outcome]) -> Option<Dependence> {
    let first = outcomes.first()?.assumption;
    let alike: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.assumption == first).collect();
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

/// `TCP 80: closed only if pods of shop/db live in 8.8.8.8/32`.
pub fn describe_condition(world: (&Snapshot, &Program), condition: &Condition) -> String {
    let text = describe_dependence(world, &condition.on);
    match &condition.part {
        Some(part) => format!("{part}: {text}"),
        None => text,
    }
}

/// `closed only if pods of shop/db live in 8.8.8.8/32`.
pub fn describe_dependence((snapshot, program): (&Snapshot, &Program), dependence: &Dependence) -> String {
    describe_with((snapshot, program), dependence, &|end| describe_end(snapshot, end))
}

/// The same with other words for the ends.
pub(crate) fn describe_with(
    (snapshot, program): (&Snapshot, &Program),
    dependence: &Dependence,
    name_of: &dyn Fn(&Endpoint) -> String,
) -> String {
    match dependence {
        Dependence::Address { end, open, closed } => {
            let (state, addresses) = shorter(open, closed);
            let name = name_of(end);
            match (&end.name, end.workload) {
                (Some(_), _) => format!("{state} only if {name} resolves to an address in {addresses}"),
                (None, Some(_)) => format!("{state} only if pods of {name} live in {addresses}"),
                (None, None) => format!("{state} only if {name} has an address in {addresses}"),
            }
        }
        Dependence::HostNode { end, open, closed } => {
            let names = |nodes: &[NodeId]| {
                let names: Vec<&str> = nodes.iter().map(|&node| &*snapshot.node(node).name).collect();
                some_of(&names)
            };
            let (state, nodes) = if closed.len() <= open.len() { ("closed", closed) } else { ("open", open) };
            format!("{state} only if {} runs on node {}", name_of(end), names(nodes))
        }
        Dependence::SourceNode { end, policies } => {
            let names: Vec<String> = policies.iter().map(|&id| program.policy(id).id.to_string()).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let end = name_of(end);
            format!("the node that {end} runs on decides: {} is for certain nodes", some_of(&names))
        }
        Dependence::SameNode { from, to } => {
            let (from, to) = (name_of(from), name_of(to));
            format!("open only if {to} runs on the node of {from}: a node may always reach its own pods")
        }
    }
}

/// The state that takes fewer words to say where it holds.
fn shorter(open: &AddrSet, closed: &AddrSet) -> (&'static str, String) {
    let cidrs = |set: &AddrSet| set.ranges().flat_map(|range: AddrRange| range.cidrs()).collect::<Vec<Cidr>>();
    let (open, closed) = (cidrs(open), cidrs(closed));
    let (state, list) = if closed.len() <= open.len() { ("closed", closed) } else { ("open", open) };
    let texts: Vec<String> = list.iter().map(ToString::to_string).collect();
    (state, some_of(&texts.iter().map(String::as_str).collect::<Vec<_>>()))
}

fn some_of(texts: &[&str]) -> String {
    const SHOWN: usize = 6;
    let more = texts.len().saturating_sub(SHOWN);
    let listed = texts[..texts.len() - more].join(", ");
    if more > 0 { format!("{listed} and {more} more") } else { listed }
}

/// The network that the pods with addresses seem to be in: a hint, never the base of an answer.
pub fn guessed_pod_network(snapshot: &Snapshot) -> Option<Cidr> {
    const PREFIX: u8 = 16;
    let pods = snapshot.workloads.iter().filter(|workload| !workload.host_network);
    let v4 = pods.flat_map(|workload| workload.addresses.iter()).filter(|address| address.is_ipv4());
    let mut networks = v4.map(|&address: &IpAddr| Cidr::new(Cidr::new(address, PREFIX).address(), PREFIX));
    let first = networks.next()?;
    networks.all(|other| other == first).then_some(first)
}
