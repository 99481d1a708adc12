//! The verdict on one connection, as far as the input determines it.

use super::dependence::Sides;
use super::{Assumption, Dependence, Family, Settled, Side, SourceNode, families};
use crate::addr::is_own_to_each_machine;
use crate::evaluate::{Counting, Unwatched, Walk};
use crate::flow::{Flow, Hop, Masker, Verdict};
use crate::model::{Direction, NodeId};
use crate::port::Traffic;
use crate::program::Plan;
use crate::reach::Reach;
use std::fmt;
use std::net::IpAddr;

/// A verdict, or that it depends on something the input does not say (S10.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Prediction {
    Allow,
    Deny,
    Depends,
}

impl fmt::Display for Prediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Depends => "depends",
        })
    }
}

impl Prediction {
    /// Lower is more open.
    pub(crate) fn rank(self) -> u8 {
        match self {
            Self::Allow => 0,
            Self::Depends => 1,
            Self::Deny => 2,
        }
    }
}

impl From<Verdict> for Prediction {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Allow => Self::Allow,
            Verdict::Deny => Self::Deny,
        }
    }
}

/// A connection with nothing left open.
#[derive(Clone, Debug)]
pub struct Case {
    pub flow: Flow,
    pub assumption: Assumption,
}

/// What is to be expected of a connection.
#[derive(Clone, Debug)]
pub struct Outlook {
    pub prediction: Prediction,
    /// A case in which it is allowed, and one in which it is denied, if there are any.
    pub allowed: Option<Case>,
    pub denied: Option<Case>,
    /// What the verdict depends on; empty unless it does.
    pub depends_on: Vec<Dependence>,
}

/// How one side of the walk ends in each way its unknowns may turn out.
pub(super) struct SideOutcome {
    pub(super) settled: Settled,
    pub(super) assumption: Assumption,
    pub(super) open: bool,
}

impl Outlook {
    /// The case that stands for all of them where only two verdicts can be told: open only if it is surely open.
    pub(crate) fn closed_case(self) -> Option<Case> {
        match self.prediction {
            Prediction::Allow => self.allowed,
            Prediction::Deny | Prediction::Depends => self.denied.or(self.allowed),
        }
    }
}

impl Reach<'_> {
    /// May this connection be opened, as far as the input says?
    pub fn predict(&self, flow: &Flow) -> Outlook {
        let outlook = self.by_nodes(flow);
        if let Some(Hop { node: None, address, .. }) = flow.hop
            && outlook.prediction != Prediction::Deny
        {
            let mut depends_on = outlook.depends_on;
            depends_on.push(Dependence::NextNode { to: self.program.endpoint_at(address) });
            return Outlook { prediction: Prediction::Depends, depends_on, ..outlook };
        }
        let past_nodes = flow.masker == Some(Masker::LoadBalancer) && self.program.pod(&flow.to).is_none();
        if outlook.prediction == Prediction::Allow || !past_nodes {
            return outlook;
        }
        // No policy of ours is asked there.
        let past = Flow { via: None, masker: None, ..flow.clone() };
        let allowed = Some(Case { flow: past, assumption: Assumption::default() });
        let depends_on = vec![Dependence::PastNodes { to: flow.to.clone() }];
        Outlook { prediction: Prediction::Depends, allowed, depends_on, ..outlook }
    }

    /// The same for a connection that comes by a node.
    fn by_nodes(&self, flow: &Flow) -> Outlook {
        let mut outlooks = families(self.program, &flow.from, &flow.to).into_iter().map(|one| self.over(flow, one));
        let mut best = outlooks.next().unwrap_or_else(|| self.over(flow, None));
        // The ends may choose the family: one that is open is enough.
        for other in outlooks {
            let is_better = other.prediction.rank() < best.prediction.rank();
            let (better, worse) = if is_better { (other, best) } else { (best, other) };
            best = Outlook { denied: better.denied.or(worse.denied), ..better };
        }
        best
    }

    fn over(&self, flow: &Flow, family: Option<Family>) -> Outlook {
        if self.walk(flow, Assumption::default()).own_address() {
            let case = Case { flow: flow.clone(), assumption: Assumption::default() };
            return Outlook {
                prediction: Prediction::Allow,
                allowed: Some(case),
                denied: None,
                depends_on: Vec::new(),
            };
        }
        let egress = self.egress_outcomes(flow, family);
        let mut ingress = self.ingress_outcomes(flow, family);
        let as_itself = ingress.len();
        let maskers = self.maskers(flow);
        ingress.extend(self.masked_outcomes(flow, &maskers));
        let find = |outcomes: &[SideOutcome], open: bool| outcomes.iter().position(|outcome| outcome.open == open);
        let (out_open, in_open) = (find(&egress, true), find(&ingress, true));
        let (out_closed, in_closed) = (find(&egress, false), find(&ingress, false));
        let case = |out: usize, inward: usize| {
            let (out, inward) = (&egress[out], &ingress[inward]);
            let source_node = out.assumption.source_node;
            let assumption = Assumption { source_node, same_node: inward.assumption.same_node };
            let (to, from) = (out.settled.end.clone(), inward.settled.end.clone());
            Case { flow: Flow { to, from, ..flow.clone() }, assumption }
        };
        // What the destination's node sees of a source that others have masked.
        let case = |out: usize, inward: usize| match case(out, inward) {
            Case { flow, assumption } if inward >= as_itself => {
                Case { flow: Flow { hop: None, masker: None, ..flow }, assumption }
            }
            case => case,
        };
        let allowed = out_open.zip(in_open).map(|(out, inward)| case(out, inward));
        let denied = match (out_closed, in_closed) {
            // With the source as itself: its own policies deny.
            (Some(out), _) => Some(case(out, in_open.filter(|inward| *inward < as_itself).unwrap_or(0))),
            (None, Some(inward)) => Some(case(out_open.unwrap_or(0), inward)),
            (None, None) => None,
        };
        let prediction = match (&allowed, &denied) {
            (Some(_), Some(_)) => Prediction::Depends,
            (Some(_), None) => Prediction::Allow,
            (None, _) => Prediction::Deny,
        };
        let depends_on = match prediction {
            Prediction::Depends => {
                let mut one = Traffic::none();
                one.insert(flow.protocol, flow.port, flow.port);
                let (seen, masked) = ingress.split_at(as_itself);
                let mut on = Sides { reach: self, from: &flow.from, to: &flow.to }.dependences(&one, &egress, seen);
                if masked.iter().any(|one| seen.iter().any(|other| other.open != one.open)) {
                    on.push(Dependence::PassedOn { from: flow.from.clone(), nodes: maskers });
                }
                on
            }
            _ => Vec::new(),
        };
        Outlook { prediction, allowed, denied, depends_on }
    }

    fn walk<'w>(&'w self, flow: &'w Flow, assumption: Assumption) -> Walk<'w> {
        Walk { program: self.program, leases: self.leases, flow, now: self.now, assumption }
    }

    fn egress_outcomes(&self, flow: &Flow, family: Option<Family>) -> Vec<SideOutcome> {
        let none = Plan::default();
        let plan = self.plan_of(&flow.from).unwrap_or(&none);
        let mut outcomes = Vec::new();
        for settled in self.settle_destination(flow, family) {
            for &source_node in SourceNode::cases(plan) {
                let assumption = Assumption { source_node, ..Assumption::default() };
                let case = Flow { to: settled.end.clone(), ..flow.clone() };
                let open = self.walk(&case, assumption).egress_side(Counting::Enforced, &mut Unwatched).is_ok();
                outcomes.push(SideOutcome { settled: settled.clone(), assumption, open });
            }
        }
        outcomes
    }

    fn ingress_outcomes(&self, flow: &Flow, family: Option<Family>) -> Vec<SideOutcome> {
        let side = Side { direction: Direction::Ingress, family };
        let none = Plan::default();
        let plan = self.plan_of(&flow.to).unwrap_or(&none);
        let mut outcomes = Vec::new();
        for settled in self.settle(&flow.from, plan, side) {
            for same_node in self.same_node_cases(&settled.end, &flow.to) {
                let assumption = Assumption { same_node, ..Assumption::default() };
                let case = Flow { from: settled.end.clone(), ..flow.clone() };
                let open = self.walk(&case, assumption).ingress_side(Counting::Enforced, &mut Unwatched).is_ok();
                outcomes.push(SideOutcome { settled: settled.clone(), assumption, open });
            }
        }
        outcomes
    }

    /// The nodes that may put their own address in the place of the source's, before the destination's node sees it
    /// (S1.11): the source's own node and, if the destination is elsewhere, the node that passes the connection on; or
    /// the node that translates it.
    fn maskers(&self, flow: &Flow) -> Vec<NodeId> {
        let Some(to) = self.program.pod(&flow.to) else { return Vec::new() };
        let all = || (0..self.program.whereabouts.nodes.len() as u32).map(NodeId).collect();
        let Some(Hop { node: Some(hop), .. }) = flow.hop else {
            let nodes: Vec<NodeId> = match flow.masker {
                _ if flow.hop.is_some() => all(),
                None => Vec::new(),
                Some(Masker::Node(node)) => vec![node],
                Some(Masker::AnyNode | Masker::LoadBalancer) => all(),
            };
            // The destination's own node judges before it replaces the source's address.
            return nodes.into_iter().filter(|node| to.node != Some(*node)).collect();
        };
        let source =
            self.program.pod(&flow.from).and_then(|pod| pod.node).filter(|_| to.node.is_none_or(|at| at == hop));
        let passing = Some(hop).filter(|_| to.node != Some(hop));
        source.into_iter().chain(passing).collect()
    }

    /// Ingress by every address that these nodes may put in the place of the source's.
    fn masked_outcomes(&self, flow: &Flow, maskers: &[NodeId]) -> Vec<SideOutcome> {
        let family = flow.hop.map(|hop| hop.address).or(flow.to.address).map(|address| address.is_ipv4());
        let nodes = maskers.iter().filter_map(|node| self.program.whereabouts.nodes.get(node.index())).flatten();
        let usable =
            nodes.filter(|at| family.is_none_or(|is_ipv4| at.is_ipv4() == is_ipv4) && !is_own_to_each_machine(**at));
        let judge = |&address: &IpAddr| {
            let end = self.program.endpoint_at(address);
            let case = Flow { from: end.clone(), hop: None, masker: None, ..flow.clone() };
            let assumption = Assumption::default();
            let open = self.walk(&case, assumption).ingress_side(Counting::Enforced, &mut Unwatched).is_ok();
            SideOutcome { settled: Settled { end, span: None, node: None }, assumption, open }
        };
        usable.map(judge).collect()
    }

    /// The destination by what the source's own policies see of it and, from outside or another node, the gates before a
    /// Service.
    fn settle_destination(&self, flow: &Flow, family: Option<Family>) -> Vec<Settled> {
        let side = Side { direction: Direction::Egress, family };
        let own = self.plan_of(&flow.from);
        let service = flow.via.filter(|_| own.is_none() || flow.hop.is_some());
        let Some(gates) = service.and_then(|service| self.program.gates_before(service)) else {
            return self.settle(&flow.to, own.unwrap_or(&Plan::default()), side);
        };
        let mut plan = own.cloned().unwrap_or_default();
        plan.cluster_gate.extend(gates.cluster.iter().map(|gate| gate.policy));
        plan.namespace_gate.extend(gates.namespace.iter().map(|gate| gate.policy));
        self.settle(&flow.to, &plan, side)
    }
}
