//! Which policies a workload has, in the order of S1: its Class.

use super::roles::RoleIndex;
use crate::labels::Selector;
use crate::model::{Enforcement, NamespaceId, NamespaceScope, Node, NodeId, Placement, PolicyId, PolicyKind, RoleId};
use crate::program::{Class, ClassId, Plan, Program, ServiceGate, ServiceGates};
use crate::shards::Shards;
use crate::snapshot::Snapshot;
use rustc_hash::FxHashMap;

pub(super) struct PlanBuilder<'s> {
    snapshot: &'s Snapshot,
    /// The policies that select a Role, in the order of S1, where that is known.
    by_role: Vec<Vec<PolicyId>>,
    classes: Shards<(RoleId, Option<NodeId>), ClassId>,
    /// Whether any policy looks at the node; if none does, Roles alone decide.
    nodes_matter: bool,
    has_audit: bool,
}

impl<'s> PlanBuilder<'s> {
    /// With the classes of a Program of the same policies: selectors are matched only for Roles nobody played in it.
    pub(super) fn knowing(snapshot: &'s Snapshot, program: &Program) -> Self {
        Self { classes: program.class_of.clone(), ..Self::with(snapshot, Vec::new()) }
    }

    pub(super) fn new(snapshot: &'s Snapshot, index: &mut RoleIndex<'s>) -> Self {
        let mut by_role = vec![Vec::new(); snapshot.roles.len()];
        for id in in_order(snapshot) {
            for role in index.select(&snapshot.policy(id).subject.pods).iter() {
                by_role[role].push(id);
            }
        }
        Self::with(snapshot, by_role)
    }

    fn with(snapshot: &'s Snapshot, by_role: Vec<Vec<PolicyId>>) -> Self {
        Self {
            snapshot,
            by_role,
            classes: Shards::default(),
            nodes_matter: snapshot.policies.iter().any(|policy| policy.subject.nodes.is_some()),
            has_audit: snapshot.policies.iter().any(|policy| policy.enforcement == Enforcement::Audit),
        }
    }

    /// The classes that are known now.
    pub(super) fn finish(self) -> Shards<(RoleId, Option<NodeId>), ClassId> {
        self.classes
    }

    /// The policies that select a Role, in order.
    fn selecting(&self, role: RoleId) -> Vec<PolicyId> {
        if let Some(known) = self.by_role.get(role.index()) {
            return known.clone();
        }
        let role = self.snapshot.role(role);
        let namespace = self.snapshot.namespace(role.namespace);
        let ids = (0..self.snapshot.policies.len() as u32).map(PolicyId);
        let mut selecting: Vec<PolicyId> =
            ids.filter(|&id| self.snapshot.policy(id).subject.pods.selects(role, namespace)).collect();
        selecting.sort_by_cached_key(|&id| precedence(self.snapshot, id));
        selecting
    }

    pub(super) fn class_of(
        &mut self,
        role: RoleId,
        node: Option<NodeId>,
        intern: impl FnOnce(Class) -> ClassId,
    ) -> ClassId {
        let key = (role, node.filter(|_| self.nodes_matter));
        if let Some(&class) = self.classes.get(&key) {
            return class;
        }
        let class = intern(self.build(role, node));
        self.classes.insert(key, class);
        class
    }

    fn build(&self, role: RoleId, node: Option<NodeId>) -> Class {
        let by_node = self.selecting(role).into_iter().map(|id| (id, self.on_node(id, node)));
        let by_node: Vec<(PolicyId, Overlap)> = by_node.filter(|(_, placed)| *placed != Overlap::None).collect();
        let in_doubt: Vec<PolicyId> =
            by_node.iter().filter(|(_, placed)| *placed == Overlap::Some).map(|(id, _)| *id).collect();
        let selected: Vec<PolicyId> = by_node.into_iter().map(|(id, _)| id).collect();
        let enforced = |&id: &PolicyId| self.snapshot.policy(id).enforcement == Enforcement::Enforce;
        let audited = (self.has_audit && !selected.iter().all(enforced)).then(|| self.plan(role, &selected, &in_doubt));
        let selected: Vec<PolicyId> = selected.into_iter().filter(enforced).collect();
        Class { enforced: self.plan(role, &selected, &in_doubt), audited }
    }

    /// Whether the policy is for pods on the node; on a node nobody knows, for some of the nodes there are.
    fn on_node(&self, id: PolicyId, node: Option<NodeId>) -> Overlap {
        let Some(selector) = self.snapshot.policy(id).subject.nodes.as_ref().filter(|nodes| !nodes.is_everything())
        else {
            return Overlap::All;
        };
        let matches = |node: &Node| selector.matches(&node.labels);
        let (all, some) = match node {
            Some(node) => (matches(self.snapshot.node(node)), false),
            None => {
                let nodes = &self.snapshot.nodes;
                // Nodes that are only mentioned say nothing of the labels that nodes have.
                let is_undescribed = |node: &Node| node.labels.is_empty() && node.source.is_none();
                let nothing_is_known = nodes.iter().all(is_undescribed);
                (!nothing_is_known && nodes.iter().all(matches), nothing_is_known || nodes.iter().any(matches))
            }
        };
        match (all, some) {
            (true, _) => Overlap::All,
            (false, true) => Overlap::Some,
            (false, false) => Overlap::None,
        }
    }

    fn plan(&self, role: RoleId, selected: &[PolicyId], in_doubt: &[PolicyId]) -> Plan {
        let mut plan = Plan::default();
        let role = self.snapshot.role(role);
        if role.host_network {
            return plan;
        }
        if role.labels.are_in_doubt() || self.snapshot.namespace(role.namespace).labels.are_in_doubt() {
            plan.ingress.isolated = true;
            plan.egress.isolated = true;
            return plan;
        }
        // S3.1: isolation by annotation, and v1beta1 policies only under it.
        let annotated = self.snapshot.namespace(role.namespace).default_deny_ingress;
        plan.ingress.isolated = annotated;
        for &id in selected {
            let policy = self.snapshot.policy(id);
            // A policy that says nothing of a direction has no place in it.
            let (speaks_out, speaks_in) = (!policy.egress.is_empty(), !policy.ingress.is_empty());
            match policy.placement {
                Placement::ClusterGate { .. } if speaks_out => {
                    plan.cluster_gate.push(id);
                    plan.in_doubt.extend(in_doubt.contains(&id).then_some(id));
                }
                Placement::NamespaceGate if speaks_out => plan.namespace_gate.push(id),
                Placement::ClusterGate { .. } | Placement::NamespaceGate => {}
                Placement::Admin { .. } => {
                    plan.egress.admin.extend(speaks_out.then_some(id));
                    plan.ingress.admin.extend(speaks_in.then_some(id));
                }
                Placement::Baseline { .. } => {
                    plan.egress.baseline.extend(speaks_out.then_some(id));
                    plan.ingress.baseline.extend(speaks_in.then_some(id));
                }
                Placement::Network { .. } if policy.id.kind == PolicyKind::NetworkPolicyV1Beta1 => {
                    plan.ingress.network.extend(annotated.then_some(id));
                }
                Placement::Network { isolates_ingress, isolates_egress } => {
                    for (isolates, tiers) in
                        [(isolates_egress, &mut plan.egress), (isolates_ingress, &mut plan.ingress)]
                    {
                        if isolates {
                            tiers.isolated = true;
                            tiers.network.push(id);
                        }
                    }
                }
            }
        }
        plan
    }

    /// S1.11 and S7.4: a denied destination stays denied through a Service, also for clients outside and on other
    /// nodes, whose own policies are not known where the Service is translated.
    pub(super) fn service_gates(&self) -> FxHashMap<NamespaceId, ServiceGates> {
        let gates: Vec<PolicyId> = in_order(self.snapshot)
            .into_iter()
            .filter(|&id| !self.snapshot.policy(id).egress.is_empty())
            .filter(|&id| matches!(self.placement(id), Placement::ClusterGate { .. } | Placement::NamespaceGate))
            .collect();
        let mut by_namespace: FxHashMap<NamespaceId, ServiceGates> = FxHashMap::default();
        for service in &self.snapshot.services {
            by_namespace.entry(service.namespace).or_insert_with(|| {
                let mut before = ServiceGates::default();
                for &policy in gates.iter().filter(|&&id| self.selects_namespace(id, service.namespace)) {
                    let gate = ServiceGate { policy, selects_all: self.selects_all(policy) };
                    match self.placement(policy) {
                        Placement::NamespaceGate => before.namespace.push(gate),
                        _ => before.cluster.push(gate),
                    }
                }
                before
            });
        }
        by_namespace
    }

    fn placement(&self, id: PolicyId) -> Placement {
        self.snapshot.policy(id).placement
    }

    fn selects_namespace(&self, id: PolicyId, namespace: NamespaceId) -> bool {
        let namespace = self.snapshot.namespace(namespace);
        match &self.snapshot.policy(id).subject.pods.namespaces {
            NamespaceScope::Named(name) => *name == namespace.name,
            NamespaceScope::Matching(selector) => selector.matches(&namespace.labels),
        }
    }

    fn selects_all(&self, id: PolicyId) -> bool {
        let subject = &self.snapshot.policy(id).subject;
        subject.pods.pods.is_everything() && subject.nodes.as_ref().is_none_or(Selector::is_everything)
    }
}

/// For how many of the nodes that a pod may run on a policy is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overlap {
    None,
    Some,
    All,
}

fn in_order(snapshot: &Snapshot) -> Vec<PolicyId> {
    let mut order: Vec<PolicyId> = (0..snapshot.policies.len() as u32).map(PolicyId).collect();
    order.sort_by_cached_key(|&id| precedence(snapshot, id));
    order
}

/// Lower comes first within its gate or tier.
fn precedence(
    snapshot: &Snapshot,
    id: PolicyId,
) -> (i64, PolicyKind, std::sync::Arc<str>, Option<std::sync::Arc<str>>) {
    let policy = snapshot.policy(id);
    let priority = match policy.placement {
        Placement::ClusterGate { priority } | Placement::Admin { priority } => i64::from(priority),
        Placement::Baseline { priority } => priority.map_or(i64::MAX, i64::from),
        // One of another name only denies, and only what `default` does not allow.
        Placement::NamespaceGate => i64::from(&*policy.id.name != "default"),
        Placement::Network { .. } => 0,
    };
    (priority, policy.id.kind, policy.id.name.clone(), policy.id.namespace.clone())
}
