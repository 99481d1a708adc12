//! The walk of S1, for one connection: gates, egress tiers, ingress tiers.
//! `explain` takes the same walk and only listens in ([`Watch`]), so the two
//! cannot disagree.

use crate::addr::is_own_to_each_machine;
use crate::domain::RulePattern;
use crate::flow::{Cause, Decision, Endpoint, Flow, Hop, Reason, Stage, Verdict};
use crate::lease::{Instant, LeaseRef, LeaseTable};
use crate::model::{Action, Direction, Enforcement, NodeId, PolicyId};
use crate::program::{
    Class, CompiledRule, Holder, Matcher, Member, PeerSet, Plan, Program, RuleId, ServiceGate, Tiers,
};
use crate::reach::Reach;
use crate::unknown::{Assumption, Case, SourceNode};
use std::borrow::Cow;

/// May this connection be opened, and why? Where the input leaves something
/// open, the answer is yes only if it is so in every case (S10.5);
/// [`Reach::predict`] tells the cases apart.
pub fn evaluate(program: &Program, leases: &LeaseTable, flow: &Flow, now: Instant) -> Decision {
    let case = settled(&Reach { program, leases, now }, flow);
    let (flow, assumption) = (&case.flow, case.assumption);
    let walk = Walk { program, leases, flow, now, assumption };
    let reason = walk.run(Counting::Enforced, &mut Unwatched);
    let would_deny = walk.audit(reason);
    Decision { verdict: reason.verdict(), reason, would_deny }
}

/// A flow, and what is assumed about its nodes.
pub(crate) struct SettledFlow<'a> {
    pub(crate) flow: Cow<'a, Flow>,
    pub(crate) assumption: Assumption,
}

/// The flow itself if both addresses are known, else the case that closes it, if there is one.
pub(crate) fn settled<'a>(reach: &Reach<'_>, flow: &'a Flow) -> SettledFlow<'a> {
    let unchanged = || SettledFlow { flow: Cow::Borrowed(flow), assumption: Assumption::default() };
    if flow.from.address.is_some() && flow.to.address.is_some() {
        return unchanged();
    }
    match reach.predict(flow).closed_case() {
        Some(Case { flow, assumption }) => SettledFlow { flow: Cow::Owned(flow), assumption },
        None => unchanged(),
    }
}

/// Listens to a walk.
pub(crate) trait Watch {
    /// From here on it is about this part of the way.
    fn turn(&mut self, _flow: &Flow) {}
    fn enter(&mut self, _stage: Stage) {}
    fn looked_at(&mut self, _rule: RuleId, _seen: RuleMatch<'_>) {}
    fn left(&mut self, _stage: Stage, _outcome: StageOutcome) {}
    fn exempt(&mut self, _direction: Direction, _cause: Cause) {}
}

pub(crate) struct Unwatched;
impl Watch for Unwatched {}

/// How a rule met a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RuleMatch<'l> {
    Matched(Option<LeaseRef<'l>>),
    OtherPeer,
    OtherPort,
    /// An unreadable Allow: never matches.
    Unreadable,
    /// It matches, but its policy may be for other pods, so it does not count.
    InDoubt,
}

/// How a stage ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StageOutcome {
    Allowed(RuleId),
    Denied(Cause),
    Passed(RuleId),
    NoMatch,
    /// The gate is only for destinations outside the pod network.
    OutOfScope,
}

/// Which policies a walk goes by (S11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counting {
    Enforced,
    /// Audited ones too, as if they were enforced.
    Audited,
}

impl Counting {
    pub(crate) fn plan(self, class: &Class) -> &Plan {
        match (self, &class.audited) {
            (Self::Audited, Some(plan)) => plan,
            _ => &class.enforced,
        }
    }
}

/// A policy at a gate.
struct Gate {
    policy: PolicyId,
    counts: Counts,
}

/// How a policy at a gate counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counts {
    Fully,
    /// Its Deny rules count, its Allow rules do not.
    Denying,
    /// Only if its first matching rule has this action.
    IfFirst(Action),
}

pub(crate) struct Walk<'a> {
    pub(crate) program: &'a Program,
    pub(crate) leases: &'a LeaseTable,
    pub(crate) flow: &'a Flow,
    pub(crate) now: Instant,
    pub(crate) assumption: Assumption,
}

impl<'a> Walk<'a> {
    /// The whole walk, over the policies that count.
    pub(crate) fn run(&self, counting: Counting, watch: &mut impl Watch) -> Reason {
        if self.own_address() {
            watch.exempt(Direction::Egress, Cause::OwnAddress);
            return Reason::Allowed { egress: Cause::OwnAddress, ingress: Cause::OwnAddress };
        }
        let egress = match self.egress_side(counting, watch) {
            Ok(cause) => cause,
            Err((stage, cause)) => return Reason::Denied { stage, cause },
        };
        match self.ingress_side(counting, watch) {
            Ok(ingress) => Reason::Allowed { egress, ingress },
            Err((stage, cause)) => Reason::Denied { stage, cause },
        }
    }

    /// The gates and the source's tiers.
    pub(crate) fn egress_side(&self, counting: Counting, watch: &mut impl Watch) -> Result<Cause, (Stage, Cause)> {
        let Some(member) = self.program.pod(&self.flow.from) else {
            self.service_gate(counting, watch)?;
            watch.exempt(Direction::Egress, Cause::NoSubject);
            return Ok(Cause::NoSubject);
        };
        let plan = counting.plan(self.program.class(member.class));
        let Some(hop) = self.flow.hop else { return all_allow(plan, |plan| self.egress(plan, watch)) };
        let cause = all_allow(plan, |plan| self.passed_on(plan, hop, watch))?;
        self.service_gate(counting, watch)?;
        Ok(cause)
    }

    /// The destination's tiers.
    pub(crate) fn ingress_side(&self, counting: Counting, watch: &mut impl Watch) -> Result<Cause, (Stage, Cause)> {
        let Some(member) = self.program.pod(&self.flow.to) else {
            watch.exempt(Direction::Ingress, Cause::NoSubject);
            return Ok(Cause::NoSubject);
        };
        let from_node = self.flow.from.node;
        if from_node.is_some() && (member.node == from_node || self.assumption.same_node) {
            watch.exempt(Direction::Ingress, Cause::OwnNode);
            return Ok(Cause::OwnNode);
        }
        let plan = counting.plan(self.program.class(member.class));
        all_allow(plan, |plan| self.tiers(&plan.ingress, Direction::Ingress, watch))
    }

    /// What audited policies would have denied of what was allowed (S11).
    pub(crate) fn audit(&self, enforced: Reason) -> Option<Reason> {
        if enforced.verdict() == Verdict::Deny || !self.meets_audited() {
            return None;
        }
        let reason = self.run(Counting::Audited, &mut Unwatched);
        (reason.verdict() == Verdict::Deny).then_some(reason)
    }

    fn meets_audited(&self) -> bool {
        let Flow { from, to, via, .. } = self.flow;
        let audited = |end| self.program.pod(end).is_some_and(|m| self.program.class(m.class).audited.is_some());
        let gates = via.and_then(|service| self.program.gates_before(service));
        audited(from) || audited(to) || gates.into_iter().flatten().any(|gate| self.is_audited(gate.policy))
    }

    fn is_audited(&self, policy: PolicyId) -> bool {
        self.program.policy(policy).enforcement == Enforcement::Audit
    }

    pub(crate) fn own_address(&self) -> bool {
        let Flow { from, to, .. } = self.flow;
        // Two pods of one template are two pods.
        let itself = self.program.is_same_pod(from, to) && self.flow.hop.is_none();
        itself && self.program.pod(from).is_some_and(|m| !m.template)
    }

    /// On its own node it is a connection to the node that passes it on. There the cluster gates are asked once more,
    /// by where it goes on to: denied stays denied through a Service (S7.4).
    fn passed_on(&self, plan: &Plan, hop: Hop, watch: &mut impl Watch) -> Result<Cause, (Stage, Cause)> {
        let first = self.flow.before(hop);
        watch.turn(&first);
        let cause = Walk { flow: &first, ..*self }.egress(plan, watch)?;
        watch.turn(self.flow);
        self.cluster_gate(plan, watch)?;
        Ok(cause)
    }

    pub(crate) fn cluster_gate(&self, plan: &Plan, watch: &mut impl Watch) -> Result<(), (Stage, Cause)> {
        let in_doubt = match self.assumption.source_node {
            SourceNode::Unfavourable => Counts::IfFirst(Action::Deny),
            SourceNode::Favourable => Counts::IfFirst(Action::Allow),
        };
        let counts = |policy| if plan.in_doubt.contains(policy) { in_doubt } else { Counts::Fully };
        let gates = plan.cluster_gate.iter().map(|policy| Gate { policy: *policy, counts: counts(policy) });
        self.gate(Stage::ClusterGate, gates, watch)
    }

    /// Where a frontend is asked for that another node translates, the cluster gate must let every backend pass: this is the last place that surely
    /// knows the pod (S1.11, see [`crate::node_ports`]).
    fn node_port_gate(&self, plan: &Plan, watch: &mut impl Watch) -> Result<(), (Stage, Cause)> {
        let Some(denied) = self.program.denied_frontend(plan, self.flow) else { return Ok(()) };
        let to = self.program.endpoint_at(denied.address);
        let backend = Flow { to, port: denied.port, via: None, hop: None, masker: None, ..self.flow.clone() };
        watch.turn(&backend);
        let leases = LeaseTable::default();
        let assumption = Assumption::default();
        Walk { flow: &backend, leases: &leases, assumption, ..*self }.cluster_gate(plan, watch)
    }

    fn egress(&self, plan: &Plan, watch: &mut impl Watch) -> Result<Cause, (Stage, Cause)> {
        self.cluster_gate(plan, watch)?;
        self.node_port_gate(plan, watch)?;
        if !plan.namespace_gate.is_empty() {
            if self.in_pod_network(&self.flow.to) {
                watch.enter(Stage::NamespaceGate);
                watch.left(Stage::NamespaceGate, StageOutcome::OutOfScope);
            } else {
                let gates = plan.namespace_gate.iter().map(|&policy| Gate { policy, counts: Counts::Fully });
                self.gate(Stage::NamespaceGate, gates, watch)?;
            }
        }
        self.tiers(&plan.egress, Direction::Egress, watch)
    }

    fn in_pod_network(&self, end: &Endpoint) -> bool {
        self.program.pod(end).is_some()
            || end.address.is_some_and(|address| {
                end.node.is_none()
                    && self.program.pod_networks.contains(address)
                    && !self.program.is_node_address(address)
            })
    }

    /// First match wins; Allow only passes the gate. A policy that may be for other pods counts as far as `Gate` says.
    fn gate(
        &self,
        stage: Stage,
        gates: impl Iterator<Item = Gate>,
        watch: &mut impl Watch,
    ) -> Result<(), (Stage, Cause)> {
        let mut gates = gates.peekable();
        if gates.peek().is_none() {
            return Ok(());
        }
        watch.enter(stage);
        for gate in gates {
            for id in self.program.policy(gate.policy).rules(Direction::Egress) {
                let rule = self.program.rule(id);
                let seen = match (self.meet(rule, Direction::Egress), gate.counts) {
                    (RuleMatch::Matched(_), Counts::Denying) if rule.action == Action::Allow => RuleMatch::InDoubt,
                    (RuleMatch::Matched(_), Counts::IfFirst(action)) if rule.action != action => {
                        watch.looked_at(id, RuleMatch::InDoubt);
                        break;
                    }
                    (seen, _) => seen,
                };
                watch.looked_at(id, seen);
                if let RuleMatch::Matched(_) = seen {
                    let denied = rule.action == Action::Deny;
                    let outcome =
                        if denied { StageOutcome::Denied(Cause::Rule(id)) } else { StageOutcome::Allowed(id) };
                    watch.left(stage, outcome);
                    return if denied { Err((stage, Cause::Rule(id))) } else { Ok(()) };
                }
            }
        }
        watch.left(stage, StageOutcome::NoMatch);
        Ok(())
    }

    /// A connection to a Service whose client is not known where it is translated must not lead where the tenants' may
    /// not: one from outside (S7.4), and one that a node passes on for a client on another (S1.11).
    fn service_gate(&self, counting: Counting, watch: &mut impl Watch) -> Result<(), (Stage, Cause)> {
        let Flow { from, to, via, hop, .. } = self.flow;
        let outside = from.workload.is_none() && from.node.is_none();
        let service = via.filter(|_| (outside || hop.is_some()) && self.program.pod(to).is_none());
        let Some(gates) = service.and_then(|service| self.program.gates_before(service)) else { return Ok(()) };
        let counts = |gate: &&ServiceGate| counting == Counting::Audited || !self.is_audited(gate.policy);
        let stage = |gates: &'a [ServiceGate]| {
            gates.iter().filter(counts).map(|gate| Gate {
                policy: gate.policy,
                counts: if gate.selects_all { Counts::Fully } else { Counts::Denying },
            })
        };
        self.gate(Stage::ServiceGate, stage(&gates.cluster), watch)?;
        if stage(&gates.namespace).next().is_some() && self.in_pod_network(to) {
            watch.enter(Stage::ServiceGate);
            watch.left(Stage::ServiceGate, StageOutcome::OutOfScope);
            return Ok(());
        }
        self.gate(Stage::ServiceGate, stage(&gates.namespace), watch)
    }

    /// Admin → NetworkPolicy → Baseline → default allow.
    fn tiers(&self, tiers: &Tiers, direction: Direction, watch: &mut impl Watch) -> Result<Cause, (Stage, Cause)> {
        if let Some(settled) = self.ordered(Stage::Admin(direction), &tiers.admin, watch) {
            return settled;
        }
        if tiers.isolated {
            return self.network(tiers, direction, watch);
        }
        match self.ordered(Stage::Baseline(direction), &tiers.baseline, watch) {
            Some(settled) => settled,
            None => {
                watch.exempt(direction, Cause::Default);
                Ok(Cause::Default)
            }
        }
    }

    /// An ordered tier; `None` if it leaves the connection to the next.
    fn ordered(
        &self,
        stage: Stage,
        policies: &[PolicyId],
        watch: &mut impl Watch,
    ) -> Option<Result<Cause, (Stage, Cause)>> {
        if policies.is_empty() {
            return None;
        }
        watch.enter(stage);
        let (outcome, settled) = match self.first_match(policies, stage.direction(), watch) {
            Some((rule, Action::Allow)) => (StageOutcome::Allowed(rule), Some(Ok(Cause::Rule(rule)))),
            Some((rule, Action::Deny)) => {
                let cause = Cause::Rule(rule);
                (StageOutcome::Denied(cause), Some(Err((stage, cause))))
            }
            Some((rule, Action::Pass)) => (StageOutcome::Passed(rule), None),
            None => (StageOutcome::NoMatch, None),
        };
        watch.left(stage, outcome);
        settled
    }

    /// One matching rule of one policy is enough; none at all is a denial.
    fn network(&self, tiers: &Tiers, direction: Direction, watch: &mut impl Watch) -> Result<Cause, (Stage, Cause)> {
        let stage = Stage::Network(direction);
        watch.enter(stage);
        match self.first_match(&tiers.network, direction, watch) {
            Some((rule, _)) => {
                watch.left(stage, StageOutcome::Allowed(rule));
                Ok(Cause::Rule(rule))
            }
            None => {
                watch.left(stage, StageOutcome::Denied(Cause::Isolated));
                Err((stage, Cause::Isolated))
            }
        }
    }

    fn first_match(
        &self,
        policies: &[PolicyId],
        direction: Direction,
        watch: &mut impl Watch,
    ) -> Option<(RuleId, Action)> {
        for &policy in policies {
            for id in self.program.policy(policy).rules(direction) {
                let rule = self.program.rule(id);
                let seen = self.meet(rule, direction);
                watch.looked_at(id, seen);
                if let RuleMatch::Matched(_) = seen {
                    return Some((id, rule.action));
                }
            }
        }
        None
    }

    fn meet(&self, rule: &CompiledRule, direction: Direction) -> RuleMatch<'a> {
        let (peers, ports) = match rule.matcher {
            Matcher::Clauses { peers, ports } => (peers, ports),
            Matcher::Nothing => return RuleMatch::Unreadable,
            Matcher::Everything => return RuleMatch::Matched(None),
        };
        let peer = match direction {
            Direction::Egress => &self.flow.to,
            Direction::Ingress => &self.flow.from,
        };
        let Some(lease) = self.meets_peer(self.program.peer_set(peers), peer) else {
            return RuleMatch::OtherPeer;
        };
        let named = self.program.pod(&self.flow.to).map(Member::named_ports).unwrap_or_default();
        if self.program.port_spec(ports).matches(self.flow.protocol, self.flow.port, named) {
            RuleMatch::Matched(lease)
        } else {
            RuleMatch::OtherPort
        }
    }

    /// `None` if the peer is not in the set; else the lease that put it there, if it was one.
    fn meets_peer(&self, set: &PeerSet, peer: &Endpoint) -> Option<Option<LeaseRef<'a>>> {
        if self.program.in_peer_set(set, peer) {
            return Some(None);
        }
        if set.domains.is_empty() {
            return None;
        }
        let wanted = |pattern: &RulePattern| self.program.lists_pattern(set, pattern);
        self.leases.opening(peer.address?, self.now, wanted).map(Some)
    }
}

/// Pods that share an address must all allow (S1.9); the first of them that has a rule says why it is allowed.
fn all_allow(
    plan: &Plan,
    mut walk: impl FnMut(&Plan) -> Result<Cause, (Stage, Cause)>,
) -> Result<Cause, (Stage, Cause)> {
    plan.each().try_fold(Cause::Default, |cause, plan| {
        let own = walk(plan)?;
        Ok(if cause == Cause::Default { own } else { cause })
    })
}

impl Program {
    /// Whether one of the set's patterns is this one.
    pub(crate) fn lists_pattern(&self, set: &PeerSet, pattern: &RulePattern) -> bool {
        set.domains.iter().any(|&id| self.patterns.get(id) == pattern)
    }

    /// Whether the peer is in the set, leases aside. A peer without an address is in none of its networks: such peers
    /// are settled first (see [`crate::unknown`]).
    pub(crate) fn in_peer_set(&self, set: &PeerSet, peer: &Endpoint) -> bool {
        if set.anyone {
            return true;
        }
        if let Some(member) = self.pod(peer)
            && set.roles.contains(member.role.index())
        {
            return true;
        }
        if peer.node.is_some_and(|node| set.nodes.contains(node.index()) && self.tells_node(peer, node)) {
            return true;
        }
        let named = |name| set.domains.iter().any(|&id| self.patterns.get(id).names.matches(name));
        peer.address.is_some_and(|address| set.addresses.contains(address)) || peer.name.as_ref().is_some_and(named)
    }

    /// Whether a rule for the node is one for this end of it. Packets carry no more than the address, so where that may
    /// be another's, the addresses of the rule decide (S7.2).
    fn tells_node(&self, end: &Endpoint, node: NodeId) -> bool {
        let Some(address) = end.address.filter(|_| !end.assumed) else { return true };
        let is_its_own = |holder: &Holder| *holder == Holder::Node(node);
        !is_own_to_each_machine(address) && self.by_address.get(&address).is_none_or(is_its_own)
    }
}
