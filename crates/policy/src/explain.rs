//! The whole walk of S1 for one connection, told: each gate and tier, each rule
//! looked at, and for those that did not match the first clause that failed.

use crate::evaluate::{Counting, RuleMatch, StageOutcome, Walk, Watch, settled};
use crate::flow::{Cause, Decision, Endpoint, Flow, Reason, Stage, Verdict};
use crate::lease::{Instant, Lease, LeaseRef};
use crate::model::{Action, Clauses, Direction, NamespaceScope, Peer, Peers, PodSet, PolicyId, PortMatch, Ports};
use crate::program::{Program, RuleId};
use crate::reach::Reach;
use crate::snapshot::Snapshot;
use crate::unknown::Case;
use std::time::Duration;

/// A decision and the way to it.
#[derive(Clone, Debug)]
pub struct Explanation {
    pub decision: Decision,
    pub steps: Vec<WalkStep>,
    /// The walk with audited policies counted, where it ends otherwise (S11).
    pub audit: Vec<WalkStep>,
}

#[derive(Clone, Debug)]
pub struct WalkStep {
    pub direction: Direction,
    pub at: StepAt,
    pub rules: Vec<RuleStep>,
    pub result: StepResult,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepAt {
    Stage(Stage),
    /// No stage has a say: an exemption of S1, or the default.
    Exempt(Cause),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StepResult {
    Allowed,
    Denied,
    Passed,
    NoMatch,
    OutOfScope,
    /// Isolated by these policies, and none allows it.
    Isolated(Vec<PolicyId>),
}

#[derive(Clone, Debug)]
pub struct RuleStep {
    pub rule: RuleId,
    pub action: Action,
    pub matched: bool,
    /// Why it matched, or the first clause that failed.
    pub why: String,
    pub lease: Option<Lease>,
}

/// Explains one connection, as [`evaluate`](crate::evaluate()) judges it.
pub fn explain(snapshot: &Snapshot, reach: &Reach<'_>, flow: &Flow) -> Explanation {
    let settled = settled(reach, flow);
    let case = Case { flow: settled.flow.into_owned(), assumption: settled.assumption };
    explain_case(snapshot, reach, &case)
}

/// Explains one case of a connection of which the input leaves something open.
pub fn explain_case(snapshot: &Snapshot, reach: &Reach<'_>, case: &Case) -> Explanation {
    let Reach { program, leases, now } = *reach;
    let flow = &case.flow;
    let walk = Walk { program, leases, flow, now, assumption: case.assumption };
    let counting = Counting::Enforced;
    let mut teller =
        Teller { snapshot, program, flow: flow.clone(), now, counting, steps: Vec::new(), pending: Vec::new() };
    let reason = walk.run(Counting::Enforced, &mut teller);
    // The destination's side is told too: a user who opens the one must know about the other.
    if matches!(reason, Reason::Denied { stage, .. } if stage.direction() == Direction::Egress) {
        teller.flow = flow.clone();
        _ = walk.ingress_side(Counting::Enforced, &mut teller);
    }
    let steps = std::mem::take(&mut teller.steps);
    let would_deny = walk.audit(reason);
    if would_deny.is_some() {
        teller.counting = Counting::Audited;
        walk.run(Counting::Audited, &mut teller);
    }
    let decision = Decision { verdict: reason.verdict(), reason, would_deny };
    debug_assert!(decision.verdict == Verdict::Allow || would_deny.is_none());
    Explanation { decision, steps, audit: teller.steps }
}

/// Writes down what the walk does.
struct Teller<'a> {
    snapshot: &'a Snapshot,
    program: &'a Program,
    flow: Flow,
    now: Instant,
    counting: Counting,
    steps: Vec<WalkStep>,
    pending: Vec<RuleStep>,
}

impl Watch for Teller<'_> {
    fn turn(&mut self, flow: &Flow) {
        self.flow = flow.clone();
    }

    fn looked_at(&mut self, id: RuleId, seen: RuleMatch<'_>) {
        let (matched, why, lease) = match seen {
            RuleMatch::Matched(lease) => (true, self.why_matched(id, lease), lease.map(LeaseRef::to_lease)),
            RuleMatch::OtherPeer => (false, self.why_other_peer(id), None),
            RuleMatch::OtherPort => (false, self.why_other_port(id), None),
            RuleMatch::Unreadable => (false, "it could not be read in full, so it allows nothing".to_owned(), None),
            RuleMatch::InDoubt => (false, "it matches, but its policy may be for pods on other nodes".to_owned(), None),
        };
        let step = RuleStep { rule: id, action: self.program.rule(id).action, matched, why, lease };
        // A rule that was compiled to several is one rule to users: the part that came closest is shown.
        match self.pending.last_mut().filter(|last| self.program.is_part_of_same(last.rule, id)) {
            Some(last) if matched || !matches!(seen, RuleMatch::OtherPeer) => *last = step,
            Some(_) => {}
            None => self.pending.push(step),
        }
    }

    fn left(&mut self, stage: Stage, outcome: StageOutcome) {
        let result = match outcome {
            StageOutcome::Allowed(_) => StepResult::Allowed,
            StageOutcome::Denied(Cause::Isolated) => StepResult::Isolated(self.isolating(stage.direction())),
            StageOutcome::Denied(_) => StepResult::Denied,
            StageOutcome::Passed(_) => StepResult::Passed,
            StageOutcome::NoMatch => StepResult::NoMatch,
            StageOutcome::OutOfScope => StepResult::OutOfScope,
        };
        let rules = std::mem::take(&mut self.pending);
        self.steps.push(WalkStep { direction: stage.direction(), at: StepAt::Stage(stage), rules, result });
    }

    fn exempt(&mut self, direction: Direction, cause: Cause) {
        self.steps.push(WalkStep {
            direction,
            at: StepAt::Exempt(cause),
            rules: Vec::new(),
            result: StepResult::Allowed,
        });
    }
}

impl Teller<'_> {
    /// The policies that isolate the subject, of those that count.
    fn isolating(&self, direction: Direction) -> Vec<PolicyId> {
        let subject = match direction {
            Direction::Egress => &self.flow.from,
            Direction::Ingress => &self.flow.to,
        };
        self.program.pod(subject).map_or_else(Vec::new, |member| {
            let plans = self.counting.plan(self.program.class(member.class)).each();
            let listed = plans.flat_map(|plan| &plan.tiers(direction).network);
            listed.copied().filter(|&id| self.program.isolates(id, direction)).collect()
        })
    }

    fn peer_of(&self, id: RuleId) -> &Endpoint {
        match self.program.rule(id).direction {
            Direction::Egress => &self.flow.to,
            Direction::Ingress => &self.flow.from,
        }
    }

    fn clauses(&self, id: RuleId) -> &Clauses {
        let rule = self.program.rule(id);
        &self.snapshot.policy(rule.policy).rules(rule.direction)[rule.index as usize].clauses
    }

    fn why_matched(&self, id: RuleId, lease: Option<LeaseRef<'_>>) -> String {
        let Clauses::Match { peers, ports } = self.clauses(id) else {
            return "it could not be read in full, so it denies everything here".to_owned();
        };
        if let Some(lease) = lease {
            let left = lease.expiry.0.saturating_sub(self.now.0);
            let left = if left == Duration::MAX { String::new() } else { format!(", for {} s more", left.as_secs()) };
            return format!("{} is leased to {} by {}{left}; {ports}", lease.address, lease.name, lease.pattern);
        }
        let peer = self.peer_of(id);
        let by_address = peer.assumed && matches!(peers, Peers::Listed(_)) && !self.lists_pods(peers, peer);
        match peer.address.filter(|_| by_address) {
            Some(address) => format!("{peers}: if it has an address such as {address}; {ports}"),
            None => format!("{peers}; {ports}"),
        }
    }

    /// Whether the peer is met as a pod, by its labels.
    fn lists_pods(&self, peers: &Peers, end: &Endpoint) -> bool {
        let Peers::Listed(list) = peers else { return true };
        list.iter().any(|peer| match (peer, end.workload) {
            (Peer::Pods(pods), Some(workload)) if self.program.pod(end).is_some() => {
                let role = self.snapshot.role(self.snapshot.workload(workload).role);
                let namespace = self.snapshot.namespace(role.namespace);
                let in_scope = match &pods.namespaces {
                    NamespaceScope::Named(name) => *name == namespace.name,
                    NamespaceScope::Matching(selector) => selector.matches(&namespace.labels),
                };
                in_scope && pods.pods.matches(&role.labels)
            }
            _ => false,
        })
    }

    fn why_other_peer(&self, id: RuleId) -> String {
        let Clauses::Match { peers, .. } = self.clauses(id) else { return String::new() };
        let peer = self.peer_of(id);
        match peers {
            Peers::Anyone => String::new(),
            Peers::Listed(list) => match list.as_slice() {
                [] => "its list of peers is empty: it matches nobody".to_owned(),
                [only] => self.miss(only, peer),
                [first, ..] => {
                    format!("none of its {} peers matches; the first: {}", list.len(), self.miss(first, peer))
                }
            },
        }
    }

    /// Why this peer is not that end.
    fn miss(&self, peer: &Peer, end: &Endpoint) -> String {
        let end_text = self.describe(end);
        match peer {
            Peer::Pods(pods) => self.pods_miss(pods, end),
            Peer::Network { cidr, except } => match end.address {
                Some(address) if end.assumed => format!("an address such as {address} is not in {cidr}"),
                Some(address) => match except.iter().find(|hole| hole.contains(address)) {
                    Some(hole) => format!("{address} is in {cidr}, but in its exception {hole}"),
                    None => format!("{address} is not in {cidr}"),
                },
                None => format!("the address of {end_text} is not known"),
            },
            Peer::Nodes(selector) => match end.node {
                Some(node) => {
                    let node = self.snapshot.node(node);
                    let miss = selector.first_miss(&node.labels).map(ToString::to_string).unwrap_or_default();
                    format!("node {} does not have {miss}", node.name)
                }
                None => format!("{end_text} is no node"),
            },
            Peer::ApiServer => format!("{end_text} is not the API server"),
            Peer::Domain(pattern) => match &end.name {
                Some(name) => format!("{name} does not match {pattern}"),
                None => format!("{end_text} is not leased to a name that matches {pattern}"),
            },
        }
    }

    fn pods_miss(&self, pods: &PodSet, end: &Endpoint) -> String {
        let end_text = self.describe(end);
        let Some(workload) = end.workload.map(|id| self.snapshot.workload(id)) else {
            return format!("{end_text} is no pod ({pods} wanted)");
        };
        if workload.host_network {
            return format!("{end_text} is on its node's network: no pod to pod and namespace peers");
        }
        let namespace = self.snapshot.namespace(workload.namespace);
        let namespace_miss = match &pods.namespaces {
            NamespaceScope::Named(name) => {
                (*name != namespace.name).then(|| format!("{end_text} is not in namespace {name}"))
            }
            NamespaceScope::Matching(selector) => selector
                .first_miss(&namespace.labels)
                .map(|miss| format!("namespace {} does not have {miss}", namespace.name)),
        };
        namespace_miss.unwrap_or_else(|| {
            let labels = &self.snapshot.role(workload.role).labels;
            match pods.pods.first_miss(labels) {
                Some(miss) => format!("{end_text} does not have {miss}"),
                None => format!("{end_text} is not among {pods}"),
            }
        })
    }

    fn why_other_port(&self, id: RuleId) -> String {
        let Clauses::Match { ports, .. } = self.clauses(id) else { return String::new() };
        let asked = match self.flow.protocol.has_ports() {
            true => format!("{} {}", self.flow.protocol, self.flow.port),
            false => self.flow.protocol.to_string(),
        };
        if let Ports::Listed(list) = ports
            && let [PortMatch::Named { name, .. }] = list.as_slice()
        {
            let to = self.describe(&self.flow.to);
            let known = self.program.pod(&self.flow.to).map_or(&[][..], |member| &member.ports);
            return match known.iter().find(|port| port.name == *name) {
                Some(port) => format!("the port named {name} of {to} is {} {}, not {asked}", port.protocol, port.port),
                None => format!("{to} has no port named {name}"),
            };
        }
        format!("{asked} is not among its ports: {ports}")
    }

    fn describe(&self, end: &Endpoint) -> String {
        describe_end(self.snapshot, end)
    }
}

/// An end of a connection, as a user would name it.
pub fn describe_end(snapshot: &Snapshot, end: &Endpoint) -> String {
    match (end.workload, end.node, end.address, &end.name) {
        (Some(id), ..) => snapshot.workload_name(id),
        (.., Some(name)) => name.to_string(),
        (_, Some(node), Some(address), _) => format!("node {} ({address})", snapshot.node(node).name),
        (_, Some(node), None, _) => format!("node {}", snapshot.node(node).name),
        (_, _, Some(address), _) => address.to_string(),
        _ => "a host outside".to_owned(),
    }
}

/// `Kind/name rule 2 "web"`: the rule as output names it.
pub fn describe_rule(snapshot: &Snapshot, program: &Program, id: RuleId) -> String {
    let rule = program.rule(id);
    let policy = snapshot.policy(rule.policy);
    let name = policy.rules(rule.direction)[rule.index as usize].name.as_ref();
    let name = name.map(|name| format!(" \"{name}\"")).unwrap_or_default();
    format!("{} {} rule {}{name}", policy.id, rule.direction, rule.index)
}

/// A reason in a sentence.
pub fn describe_reason(snapshot: &Snapshot, program: &Program, reason: &Reason, flow: &Flow) -> String {
    let rule = |id| describe_rule(snapshot, program, id);
    let cause_text = |cause: &Cause| match cause {
        Cause::OwnAddress => "a pod may always reach its own address".to_owned(),
        Cause::OwnNode => "a pod's own node may always reach it".to_owned(),
        Cause::NoSubject => "no pod with policies of its own".to_owned(),
        Cause::Rule(id) => format!("by {}", rule(*id)),
        Cause::Isolated => "isolated, and no rule allows it".to_owned(),
        Cause::Default => "by default: no policy has a say".to_owned(),
    };
    match reason {
        Reason::Allowed { egress: Cause::OwnAddress, .. } => cause_text(&Cause::OwnAddress),
        Reason::Allowed { egress, ingress } => {
            format!("egress {}; ingress {}", cause_text(egress), cause_text(ingress))
        }
        Reason::Denied { stage, cause: Cause::Isolated } => {
            let subject = match stage.direction() {
                Direction::Egress => &flow.from,
                Direction::Ingress => &flow.to,
            };
            let names = subject.workload.map_or_else(Vec::new, |id| {
                let class = program.class(program.member(id).class);
                let plan = class.audited.as_ref().unwrap_or(&class.enforced);
                let listed = plan.each().flat_map(|plan| &plan.tiers(stage.direction()).network);
                let isolating = listed.filter(|id| program.isolates(**id, stage.direction()));
                isolating.map(|&id| program.policy(id).id.to_string()).collect()
            });
            let (who, direction) = (describe_end(snapshot, subject), stage.direction());
            if subject.workload.is_some_and(|id| snapshot.labels_are_in_doubt(id)) {
                return format!("{who} is isolated, since labels of it or of its namespace cannot be read");
            }
            let by = if names.is_empty() { "its namespace".to_owned() } else { names.join(", ") };
            format!("{who} is isolated for {direction} by {by}, and no rule allows this")
        }
        Reason::Denied { stage, cause } => format!("denied in the {stage} {}", cause_text(cause)),
    }
}
