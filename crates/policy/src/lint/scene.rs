//! What the lints need to know of the cluster, worked out once.

use crate::addr::AddrSet;
use crate::bits::BitSet;
use crate::interval::IntervalSet;
use crate::model::{Direction, Enforcement, NamespaceScope, PodSet, Policy, PolicyId, RoleId, Rule, WorkloadId};
use crate::program::{CompiledRule, Plan, Program, RuleId, Tiers};
use crate::snapshot::Snapshot;
use rustc_hash::{FxHashMap, FxHashSet};
use std::net::IpAddr;
use std::sync::Arc;

pub(super) struct Scene<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) program: &'a Program,
    /// The Classes that have each policy, enforced or audited.
    pub(super) classes: Vec<BitSet>,
    /// The different ways out there are, and which of them each policy stands in.
    pub(super) exits: Vec<Exit<'a>>,
    pub(super) exits_of: Vec<BitSet>,
    /// Roles that pods play which policies can see as pods.
    pub(super) roles: BitSet,
    /// Addresses that pods have.
    pub(super) pod_addresses: AddrSet,
    /// Those, and the blocks pods get theirs from. Empty if nothing is known.
    pub(super) pod_space: AddrSet,
    /// The addresses a pod without one may get.
    pub(super) unassigned: AddrSet,
    /// Whether nodes were described, with their labels. A node that is only
    /// known because a pod names it has none, and selectors say nothing of it.
    pub(super) nodes_known: bool,
    /// Addresses of pods, nodes and the API server: all that is not outside.
    pub(super) inside: AddrSet,
    /// The names by which some pod carries port 53.
    pub(super) dns_port_names: FxHashSet<Arc<str>>,
}

/// The policies of a Class as far as they can matter on the way out. The
/// ordered tiers are the same on the way in.
pub(super) struct Exit<'a> {
    pub(super) plan: &'a Plan,
    /// Whether this is how things would be if what is audited were enforced.
    pub(super) audited: bool,
    /// One of those who go this way.
    pub(super) example: WorkloadId,
}

/// A rule, as it was written and as it was compiled.
#[derive(Clone, Copy)]
pub(super) struct RuleView<'a> {
    pub(super) id: RuleId,
    pub(super) policy: &'a Policy,
    pub(super) compiled: &'a CompiledRule,
    pub(super) written: &'a Rule,
}

impl<'a> Scene<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, program: &'a Program) -> Self {
        let (mut roles, mut pods) = (BitSet::default(), Vec::new());
        let mut dns_port_names: FxHashSet<Arc<str>> = FxHashSet::default();
        let mut examples: Vec<Option<WorkloadId>> = vec![None; program.classes.len()];
        for (id, workload) in snapshot.workload_ids().zip(&snapshot.workloads) {
            if !workload.host_network {
                roles.insert(workload.role.index());
                pods.extend(workload.addresses.iter());
                examples[program.member(id).class.index()].get_or_insert(id);
                for port in workload.ports.iter().filter(|port| port.port == 53) {
                    dns_port_names.insert(port.name.clone());
                }
            }
        }
        let pod_addresses = address_set(&pods);
        let pod_space = pod_addresses.union(&program.pod_networks);
        let nodes = snapshot.nodes.iter().flat_map(|node| &node.addresses);
        let api_server = snapshot.api_server.iter().map(|served| &served.address);
        let others: Vec<IpAddr> = nodes.chain(api_server).copied().collect();
        let inside = pod_space.union(&address_set(&others));
        let any_v4 = AddrSet { v4: IntervalSet::full(), v6: IntervalSet::empty() };
        let mut scene = Self {
            snapshot,
            program,
            classes: vec![BitSet::default(); snapshot.policies.len()],
            exits: Vec::new(),
            exits_of: vec![BitSet::default(); snapshot.policies.len()],
            roles,
            pod_addresses,
            pod_space,
            unassigned: if program.pod_networks.is_empty() { any_v4 } else { AddrSet::clone(&program.pod_networks) },
            nodes_known: snapshot.nodes.iter().any(|node| node.source.is_some() || !node.labels.is_empty()),
            inside,
            dns_port_names,
        };
        scene.walk_classes(&examples);
        scene
    }

    fn walk_classes(&mut self, examples: &[Option<WorkloadId>]) {
        type Key<'p> = (bool, &'p [PolicyId], &'p [PolicyId], &'p Tiers);
        let mut known: FxHashMap<Key<'a>, usize> = FxHashMap::default();
        for (at, class) in self.program.classes.iter().enumerate() {
            let plans =
                std::iter::once((&class.enforced, false)).chain(class.audited.as_ref().map(|plan| (plan, true)));
            let plans = plans.flat_map(|(plan, audited)| plan.each().map(move |plan| (plan, audited)));
            for (plan, audited) in plans {
                for &policy in egress_policies(plan).chain(&plan.ingress.network) {
                    self.classes[policy.index()].insert(at);
                }
                let Some(example) = examples[at] else { continue };
                let key = (audited, &*plan.cluster_gate, &*plan.namespace_gate, &plan.egress);
                let next = self.exits.len();
                if *known.entry(key).or_insert(next) != next {
                    continue;
                }
                self.exits.push(Exit { plan, audited, example });
                for &policy in egress_policies(plan) {
                    // What is enforced is judged as it is, not as it would be.
                    if (self.snapshot.policy(policy).enforcement == Enforcement::Audit) == audited {
                        self.exits_of[policy.index()].insert(next);
                    }
                }
            }
        }
    }

    pub(super) fn policies(&self) -> impl Iterator<Item = (PolicyId, &'a Policy)> + use<'a> {
        self.snapshot.policies.iter().enumerate().map(|(at, policy)| (PolicyId(at as u32), policy))
    }

    pub(super) fn rules(&self) -> impl Iterator<Item = RuleView<'a>> + use<'a, '_> {
        (0..self.program.rules.len() as u32).map(|at| self.rule(RuleId(at)))
    }

    pub(super) fn rule(&self, id: RuleId) -> RuleView<'a> {
        let compiled = self.program.rule(id);
        let policy = self.snapshot.policy(compiled.policy);
        RuleView { id, policy, compiled, written: &policy.rules(compiled.direction)[compiled.index as usize] }
    }

    pub(super) fn rules_of(&self, policy: PolicyId, direction: Direction) -> impl Iterator<Item = RuleView<'a>> {
        self.program.policy(policy).rules(direction).map(|id| self.rule(id))
    }

    /// The parts of the policy's rules: a rule is compiled to several where its peers differ in ports.
    pub(super) fn parts_of(&self, policy: PolicyId, direction: Direction) -> Vec<Vec<RuleView<'a>>> {
        let all: Vec<RuleView<'a>> = self.rules_of(policy, direction).collect();
        all.chunk_by(|one, next| one.compiled.index == next.compiled.index).map(<[_]>::to_vec).collect()
    }

    pub(super) fn exits_of(&self, policy: PolicyId) -> impl Iterator<Item = (usize, &Exit<'a>)> {
        self.exits_of[policy.index()].iter().map(|at| (at, &self.exits[at]))
    }

    pub(super) fn has_workloads(&self) -> bool {
        !self.snapshot.workloads.is_empty()
    }

    pub(super) fn in_set(&self, set: &PodSet, role: RoleId) -> bool {
        let role = self.snapshot.role(role);
        let namespace = self.snapshot.namespace(role.namespace);
        let here = match &set.namespaces {
            NamespaceScope::Named(name) => *name == namespace.name,
            NamespaceScope::Matching(selector) => selector.matches(&namespace.labels),
        };
        here && !role.host_network && set.pods.matches(&role.labels)
    }

    /// Whether pods have, or may get, IPv6 addresses as far as is known.
    pub(super) fn has_v6(&self) -> bool {
        !self.pod_space.v6.is_empty()
    }

    /// Whether every address a name may have is in the set.
    pub(super) fn covers_names(&self, addresses: &AddrSet) -> bool {
        addresses.v4.is_full() && (addresses.v6.is_full() || !self.has_v6())
    }

    /// Whether every pod is in the set by its address, those without one too.
    pub(super) fn covers_pods(&self, addresses: &AddrSet) -> bool {
        self.unassigned.is_subset(addresses) && self.pod_addresses.is_subset(addresses)
    }
}

/// The policies that can matter on the way out, in the order of S1.
pub(super) fn egress_policies(plan: &Plan) -> impl Iterator<Item = &PolicyId> {
    let Tiers { admin, network, baseline, .. } = &plan.egress;
    plan.cluster_gate.iter().chain(&plan.namespace_gate).chain(admin).chain(network).chain(baseline)
}

fn address_set(addresses: &[IpAddr]) -> AddrSet {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for address in addresses {
        match address {
            IpAddr::V4(address) => v4.push((address.to_bits(), address.to_bits())),
            IpAddr::V6(address) => v6.push((address.to_bits(), address.to_bits())),
        }
    }
    AddrSet { v4: IntervalSet::from_ranges(v4), v6: IntervalSet::from_ranges(v6) }
}
