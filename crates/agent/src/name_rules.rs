//! The rules by name that are enforced: whose they are, and which addresses they
//! never open.

use namewall_policy::bits::BitSet;
use namewall_policy::domain::{DomainName, PatternId, RulePattern};
use namewall_policy::lease::{NeverLeased, Refusal, Rules};
use namewall_policy::model::NodeId;
use namewall_policy::program::{ClassId, Holder};
use namewall_policy::{Lease, Program};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

#[derive(Debug)]
pub(crate) struct NameRules {
    program: Program,
    /// The node whose pods ask us.
    node: Option<NodeId>,
    never: NeverLeased,
    /// The patterns of each Class' rules, found when a pod of it asks first.
    names: Arc<Vec<OnceLock<BitSet>>>,
    /// The patterns of names that this node renews, found when they are first needed.
    renewed: OnceLock<BitSet>,
}

impl NameRules {
    pub(crate) fn new(before: Option<&Self>, node: Option<NodeId>, program: &Program, never: &NeverLeased) -> Self {
        // As long as only pods come and go, the patterns of each Class stay the same.
        let is_same = |before: &&Self| {
            let same_classes = Arc::ptr_eq(&before.program.classes, &program.classes);
            same_classes && Arc::ptr_eq(&before.program.rules, &program.rules)
        };
        let names = match before.filter(is_same) {
            Some(before) => before.names.clone(),
            None => Arc::new(program.classes.iter().map(|_| OnceLock::new()).collect()),
        };
        Self { program: program.clone(), node, never: never.clone(), names, renewed: OnceLock::new() }
    }

    /// What decides which leases there may be.
    pub(crate) fn of_leases(&self) -> Rules<'_> {
        Rules { program: &self.program, never_leased: &self.never }
    }

    /// True if the address is of a pod of this node.
    pub(crate) fn is_own(&self, client: IpAddr) -> bool {
        let Some(Holder::Pod(id)) = self.program.by_address.get(&client) else { return false };
        self.may_be_here(self.program.member(*id).node)
    }

    /// True unless the pod is known to be on another node.
    fn may_be_here(&self, node: Option<NodeId>) -> bool {
        self.node.is_none() || node.is_none() || node == self.node
    }

    /// True if this node renews the name while nobody publishes it: a rule of its own pods or one before Services
    /// speaks of it, or some rule denies it.
    pub(crate) fn renews(&self, name: &DomainName) -> bool {
        let renewed = self.renewed.get_or_init(|| self.renewed());
        self.program.patterns.matching(name).iter().any(|PatternId(id)| renewed.contains(*id as usize))
    }

    fn renewed(&self) -> BitSet {
        let mut renewed = self.program.denied_names();
        renewed.union_with(&self.program.names_before_services());
        let here = self.program.workloads.iter().filter(|member| !member.template && self.may_be_here(member.node));
        let classes: BTreeSet<ClassId> = here.map(|member| member.class).collect();
        classes.into_iter().for_each(|class| renewed.union_with(&self.program.names_of(class)));
        renewed
    }

    /// True if some rule denies a name.
    pub(crate) fn deny_names(&self) -> bool {
        self.program.patterns.iter().any(|(_, pattern)| pattern.denies())
    }

    /// The patterns of this pod's rules; None if it is no pod, or has no rule by name (S6.10).
    pub(crate) fn names_of(&self, client: IpAddr) -> Option<&BitSet> {
        let class = self.program.class_at(client)?;
        let names = self.names.get(class.index())?.get_or_init(|| self.program.names_of(class));
        (!names.is_empty()).then_some(names)
    }

    /// True if the rules of this pod speak of the same names as before.
    pub(crate) fn are_the_same_for(&self, client: IpAddr, before: &Self) -> bool {
        if Arc::ptr_eq(&self.names, &before.names) && self.program.class_at(client) == before.program.class_at(client) {
            return true;
        }
        let patterns = |rules: &Self| -> BTreeSet<RulePattern> {
            let ids = rules.names_of(client).into_iter().flat_map(BitSet::iter);
            ids.map(|id| rules.program.patterns.get(PatternId(id as u32)).clone()).collect()
        };
        patterns(self) == patterns(before)
    }

    /// The patterns among these that match the name.
    pub(crate) fn matching(&self, names: &BitSet, name: &DomainName) -> Vec<&RulePattern> {
        let all = self.program.patterns.matching(name).into_iter();
        all.filter(|PatternId(id)| names.contains(*id as usize)).map(|id| self.program.patterns.get(id)).collect()
    }

    /// All patterns that match the name, of every pod's rules.
    pub(crate) fn all_matching(&self, name: &DomainName) -> impl Iterator<Item = &RulePattern> {
        self.program.patterns.matching(name).into_iter().map(|id| self.program.patterns.get(id))
    }

    /// Why rules that allow the name must not open the address (S6.8); None if they may.
    pub(crate) fn refusal(&self, name: &DomainName, address: IpAddr) -> Option<Refusal> {
        self.never.refusal(&self.program, name, address)
    }

    /// Why the lease must not be there (S6.8); None if it may.
    pub(crate) fn refusal_of(&self, lease: &Lease) -> Option<Refusal> {
        self.never.refusal_of_lease(&self.program, lease.borrowed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{names_of, read};
    use namewall_policy::compile;

    const ELSEWHERE: &str = "
{apiVersion: v1, kind: Node, metadata: {name: n2}, status: {addresses: [{type: InternalIP, address: 192.0.2.2}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: far, namespace: away, labels: {app: far}}, spec: {nodeName: n2},
 status: {phase: Running, podIP: 10.0.1.1}}
---
{apiVersion: k8s.ovn.org/v1, kind: EgressFirewall, metadata: {name: default, namespace: shop},
 spec: {egress: [{type: Deny, to: {dnsName: '*.bad.example'}}, {type: Allow, to: {dnsName: shop.example}}]}}
";

    #[test]
    fn a_node_renews_the_names_of_its_own_pods_and_all_that_are_denied() {
        let policies = [ELSEWHERE.to_owned(), names_of("web", &["web.example"]), names_of("far", &["far.example"])];
        let snapshot = read(&policies).lowered.snapshot;
        let (program, _) = compile(&snapshot);
        let never = NeverLeased::new("cluster.local".parse().expect("a name"));
        let renewed = |node: Option<&str>| {
            let node = node.map(|name| snapshot.node_named(name).expect("there is such a node"));
            let rules = NameRules::new(None, node, &program, &never);
            let names = ["web.example", "far.example", "shop.example", "x.bad.example", "other.example"];
            let is_renewed = |name: &&str| rules.renews(&name.parse().expect("a name"));
            names.into_iter().filter(is_renewed).collect::<Vec<_>>()
        };
        assert_eq!(renewed(Some("n1")), ["web.example", "shop.example", "x.bad.example"]);
        assert_eq!(renewed(Some("n2")), ["far.example", "x.bad.example"]);
        assert_eq!(renewed(None), ["web.example", "far.example", "shop.example", "x.bad.example"]);
    }
}
