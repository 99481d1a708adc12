//! On what an answer depends, for users to read.

use super::predict::Outcome;
use super::{Family, families};
use crate::addr::{AddrRange, AddrSet, Cidr};
use crate::explain::describe_end;
use crate::flow::Endpoint;
use crate::model::{NodeId, PolicyId};
use crate::port::Traffic;
use crate::program::Program;
use crate::reach::{Reach, SideCase};
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

impl Reach<'_> {
    /// What the connections between two ends depend on.
    pub fn depends_on(&self, from: &Endpoint, to: &Endpoint) -> Vec<Dependence> {
        let mut found: Vec<Dependence> = Vec::new();
        for family in families(self.program, from, to) {
            let egress = outcomes(self.egress_cases(from, to, family));
            let ingress = outcomes(self.ingress_cases(from, to, family));
            for one in (Sides { reach: self, from, to }).dependences(&egress, &ingress) {
                if !found.contains(&one) {
                    found.push(one);
                }
            }
        }
        found
    }

    /// What the source's policies alone depend on.
    pub(crate) fn egress_depends_on(&self, from: &Endpoint, to: &Endpoint, family: Option<Family>) -> Vec<Dependence> {
        Sides { reach: self, from, to }.egress(&outcomes(self.egress_cases(from, to, family)))
    }

    /// What the destination's policies alone depend on, if the source is not the destination's own node.
    pub(crate) fn ingress_depends_on(&self, from: &Endpoint, to: &Endpoint, family: Option<Family>) -> Vec<Dependence> {
        Sides { reach: self, from, to }.ingress(&outcomes(self.ingress_cases_across(from, to, family)))
    }
}

/// A case counts as open if everything is that is open in any.
fn outcomes(cases: Vec<SideCase>) -> Vec<Outcome> {
    let possible = cases.iter().fold(Traffic::none(), |all, case| all.union(&case.traffic));
    let outcome = |case: SideCase| {
        let open = case.traffic == possible;
        Outcome { settled: case.settled, assumption: case.assumption, open }
    };
    cases.into_iter().map(outcome).collect()
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

/// `closed only if pods of shop/db get an address in 8.8.8.8/32`.
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
