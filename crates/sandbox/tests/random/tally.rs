//! What was tried: a generator that never comes to a rule tests nothing.

use namewall_policy::model::{Action, PolicyKind};
use namewall_policy::{Cause, Decision, Program, Reason, Stage, Verdict};
use std::collections::BTreeMap;
use std::fmt;

#[derive(Default, Debug)]
pub(crate) struct Tally {
    pub(crate) clusters: usize,
    pub(crate) allowed: usize,
    pub(crate) denied: usize,
    pub(crate) would_deny: usize,
    /// Allowed, and silent at first.
    pub(crate) repeated: usize,
    pub(crate) told: usize,
    /// Judged otherwise without leases.
    pub(crate) leased: usize,
    /// Through another node's port: allowed, and denied by the source's own cluster gate.
    passed_on: [usize; 2],
    /// Source NAT decides.
    pub(crate) depends: usize,
    /// How often each thing decided.
    by: BTreeMap<String, usize>,
}

impl Tally {
    pub(crate) fn count(&mut self, program: &Program, decision: &Decision) {
        match decision.verdict {
            Verdict::Allow => self.allowed += 1,
            Verdict::Deny => self.denied += 1,
        }
        self.would_deny += usize::from(decision.would_deny.is_some());
        let mut name = |direction: &str, cause: Cause| {
            let name = match cause {
                Cause::Rule(id) => {
                    let rule = program.rule(id);
                    decided_by(program.policy(rule.policy).id.kind, rule.action)
                }
                other => format!("{direction} {other:?}"),
            };
            *self.by.entry(name).or_default() += 1;
        };
        match decision.reason {
            Reason::Allowed { egress, ingress } => {
                name("egress", egress);
                name("ingress", ingress);
            }
            Reason::Denied { stage, cause } => name(&stage.to_string(), cause),
        }
    }

    pub(crate) fn count_passed_on(&mut self, decision: &Decision) {
        match decision.reason {
            Reason::Allowed { .. } => self.passed_on[0] += 1,
            Reason::Denied { stage: Stage::ClusterGate, .. } => self.passed_on[1] += 1,
            Reason::Denied { .. } => {}
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.clusters += other.clusters;
        self.depends += other.depends;
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.would_deny += other.would_deny;
        self.repeated += other.repeated;
        self.told += other.told;
        self.leased += other.leased;
        self.passed_on.iter_mut().zip(other.passed_on).for_each(|(all, more)| *all += more);
        for (name, count) in other.by {
            *self.by.entry(name).or_default() += count;
        }
    }

    /// Fails if there was something that never decided.
    pub(crate) fn is_worth_its_time(&self) {
        use PolicyKind::{
            AdminNetworkPolicy, BaselineAdminNetworkPolicy, ClusterEgressFirewall, ClusterNetworkPolicy,
            EgressFirewall, NetworkPolicy, NetworkPolicyV1Beta1,
        };
        let mut wanted: Vec<String> = Vec::new();
        for kind in [AdminNetworkPolicy, BaselineAdminNetworkPolicy, ClusterNetworkPolicy] {
            wanted.extend([Action::Allow, Action::Deny].map(|action| decided_by(kind, action)));
        }
        wanted.extend([ClusterEgressFirewall, EgressFirewall].map(|kind| decided_by(kind, Action::Deny)));
        wanted.extend([NetworkPolicy, NetworkPolicyV1Beta1].map(|kind| decided_by(kind, Action::Allow)));
        wanted.extend(["egress", "ingress"].map(|direction| format!("{direction} NetworkPolicy tier Isolated")));
        wanted.extend(["ingress OwnNode", "egress OwnAddress", "egress Default"].map(str::to_owned));
        let missing: Vec<&String> = wanted.iter().filter(|name| !self.by.contains_key(*name)).collect();
        assert!(missing.is_empty(), "never decided: {missing:?}");
        let tenth = (self.allowed + self.denied) / 10;
        assert!(self.clusters >= 200 && self.allowed > tenth && self.denied > tenth, "{self}");
        assert!(self.told > 100 && self.leased > 100, "{self}");
        assert!(self.passed_on.iter().all(|times| *times > 20) && self.depends > 20, "{self}");
    }
}

fn decided_by(kind: PolicyKind, action: Action) -> String {
    format!("{kind:?} {action}")
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clusters, allowed, denied, would_deny, repeated, told, leased, passed_on, depends, by } = self;
        writeln!(f, "{clusters} clusters, {} connections tried: {allowed} allowed,", allowed + denied)?;
        writeln!(
            f,
            "of which {would_deny} would be denied and {repeated} were tried again; {denied} denied, {told} told of;"
        )?;
        writeln!(
            f,
            "{leased} by a lease; through other nodes' ports: {} allowed, {} denied, {depends} depend on source NAT",
            passed_on[0], passed_on[1]
        )?;
        by.iter().try_for_each(|(name, count)| writeln!(f, "{count:8} {name}"))
    }
}
