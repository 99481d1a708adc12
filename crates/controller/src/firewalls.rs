//! What became of ClusterEgressFirewalls (S7.5): their rules with addresses in
//! place of selectors and names, and the Services that lead to what they deny.
//! Pure.

use crate::report::generation;
use namewall_cluster::kinds::Verb;
use namewall_cluster::kinds::cluster_egress_firewall::{
    ClusterEgressFirewallStatus, ConcreteRule, OffendingService, Port,
};
use namewall_cluster::{Document, Key, yaml};
use namewall_kubernetes::NameObject;
use namewall_policy::addr::AddrSet;
use namewall_policy::domain::DomainName;
use namewall_policy::model::{Action, BackendTarget, Direction, Enforcement, Policy, PolicyKind};
use namewall_policy::port::{PortSet, Protocol, Traffic, TransportPort};
use namewall_policy::program::{CompiledRule, Matcher};
use namewall_policy::{Program, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// What fits into a status: lists say how much more there is.
const MOST: usize = 100;

/// What a cluster is.
#[derive(Clone, Copy, Debug)]
pub struct World<'w> {
    pub snapshot: &'w Snapshot,
    pub program: &'w Program,
    /// Where names lead now.
    pub names: &'w [NameObject],
    /// The nodes there are.
    pub nodes: &'w BTreeSet<Arc<str>>,
}

/// A firewall as it is now, without what nodes say of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Firewall {
    pub generation: i64,
    pub status: ClusterEgressFirewallStatus,
    /// It is evaluated, and not enforced.
    pub is_audited: bool,
    /// The nodes whose pods it is for.
    pub nodes: BTreeSet<Arc<str>>,
}

/// A rule and the addresses it speaks of now.
struct Concrete<'p> {
    rule: &'p CompiledRule,
    addresses: AddrSet,
    ports: Traffic,
}

impl World<'_> {
    pub fn firewalls<'d>(&self, documents: impl Iterator<Item = (&'d Key, Document)>) -> BTreeMap<Key, Firewall> {
        documents.filter_map(|(key, document)| Some((key.clone(), self.firewall(key, &document)?))).collect()
    }

    fn firewall(&self, key: &Key, document: &Document) -> Option<Firewall> {
        let is_it = |id: &namewall_policy::model::PolicyRef| {
            id.kind == PolicyKind::ClusterEgressFirewall && *id.name == *key.name
        };
        let policy = self.program.policies.iter().find(|policy| is_it(&policy.id))?;
        let rules: Vec<Concrete<'_>> = policy
            .rules(Direction::Egress)
            .map(|id| self.program.rule(id))
            .map(|rule| Concrete { rule, addresses: self.addresses(rule), ports: self.ports(rule) })
            .collect();
        let (offending_services, count) = self.offending(&rules);
        let generation = generation(document);
        let status = ClusterEgressFirewallStatus {
            observed_generation: Some(generation),
            concrete_rules: rules.iter().take(MOST).map(|rule| concrete(rule, document)).collect(),
            offending_services,
            offending_services_count: Some(number(count)),
            ..ClusterEgressFirewallStatus::default()
        };
        let written = self.snapshot.policies.iter().find(|one| is_it(&one.id))?;
        let is_audited = written.enforcement == Enforcement::Audit;
        let nodes = self.nodes_of(written);
        Some(Firewall { generation, status, is_audited, nodes })
    }

    /// Only Node objects count: a node that a pod or an address speaks of may be gone.
    fn nodes_of(&self, policy: &Policy) -> BTreeSet<Arc<str>> {
        let selector = policy.subject.nodes.as_ref();
        let nodes = self.snapshot.nodes.iter().filter(|node| self.nodes.contains(&node.name));
        let nodes = nodes.filter(|node| selector.is_none_or(|selector| selector.matches(&node.labels)));
        nodes.map(|node| node.name.clone()).collect()
    }

    fn addresses(&self, rule: &CompiledRule) -> AddrSet {
        let Matcher::Clauses { peers, .. } = rule.matcher else {
            return if rule.matcher == Matcher::Everything { AddrSet::full() } else { AddrSet::default() };
        };
        let set = self.program.peer_set(peers);
        let mut addresses = if set.anyone { AddrSet::full() } else { set.addresses.clone() };
        let patterns: Vec<_> = set.domains.iter().map(|id| self.program.patterns.get(*id)).collect();
        if patterns.is_empty() {
            return addresses;
        }
        for told in self.names.iter().flat_map(NameObject::addresses) {
            let Ok(name) = told.name.parse::<DomainName>() else { continue };
            if patterns.iter().any(|pattern| pattern.names.matches(&name)) {
                addresses.insert_address(told.address);
            }
        }
        addresses
    }

    fn ports(&self, rule: &CompiledRule) -> Traffic {
        match rule.matcher {
            Matcher::Clauses { ports, .. } => self.program.port_spec(ports).numbered.clone(),
            Matcher::Everything => Traffic::all(),
            Matcher::Nothing => Traffic::none(),
        }
    }

    /// Services with a backend that is no pod and that a rule denies.
    fn offending(&self, rules: &[Concrete<'_>]) -> (Vec<OffendingService>, usize) {
        let (mut found, mut count) = (Vec::new(), 0);
        for service in &self.snapshot.services {
            let backends = service.ports.iter().flat_map(|port| port.backends.iter().map(move |one| (port, one)));
            let denied = backends.filter_map(|(port, backend)| match backend.target {
                BackendTarget::Address(address) if self.program.pod_at(address).is_none() => {
                    let port = TransportPort { protocol: port.protocol, port: backend.port };
                    Some((Self::denies(rules, address, port)?, address))
                }
                BackendTarget::Address(_) | BackendTarget::Workload(_) => None,
            });
            let Some((rule, address)) = denied.min() else { continue };
            count += 1;
            if found.len() < MOST {
                found.push(OffendingService {
                    namespace: self.snapshot.namespace(service.namespace).name.to_string(),
                    name: service.name.to_string(),
                    rule,
                    address: address.to_string(),
                });
            }
        }
        (found, count)
    }

    /// The rule that denies it; none if one before it allows it, or none speaks of it.
    fn denies(rules: &[Concrete<'_>], address: IpAddr, asked: TransportPort) -> Option<i32> {
        let TransportPort { protocol, port } = asked;
        let speaks = |one: &&Concrete<'_>| one.ports.contains(protocol, port) && one.addresses.contains(address);
        let first = rules.iter().find(speaks)?;
        (first.rule.action == Action::Deny).then_some(number(first.rule.index as usize))
    }
}

fn concrete(one: &Concrete<'_>, document: &Document) -> ConcreteRule {
    let index = one.rule.index as usize;
    let written = document.node.get("spec").and_then(|spec| spec.get("rules")).and_then(|rules| match &rules.value {
        yaml::Value::Seq(items) => items.get(index),
        _ => None,
    });
    let mut blocks = one.addresses.ranges().flat_map(|range| range.cidrs());
    let networks: Vec<String> = blocks.by_ref().take(MOST).map(|block| block.to_string()).collect();
    let count = networks.len() + blocks.count();
    ConcreteRule {
        rule: number(index),
        name: written.and_then(|rule| rule.get("name")).and_then(yaml::Node::as_str).map(str::to_owned),
        action: if one.rule.action == Action::Deny { Verb::Deny } else { Verb::Allow },
        networks,
        networks_count: number(count),
        ports: port_list(&one.ports),
    }
}

/// The ports, as ranges; none for all of them, and where a rule that cannot be read matches nothing.
fn port_list(traffic: &Traffic) -> Vec<Port> {
    if traffic.is_all() {
        return Vec::new();
    }
    let mut listed = Vec::new();
    for protocol in Protocol::WITH_PORTS {
        let ports = traffic.ports(protocol).into_iter().flat_map(PortSet::ranges);
        listed.extend(ports.map(|&(low, high)| {
            let (low, high) = (low.max(1), high.max(1));
            let is_every = (low, high) == (1, u16::MAX);
            Port {
                protocol: Some(protocol.to_string()),
                port: (!is_every).then_some(i64::from(low)),
                end_port: (!is_every && high > low).then_some(i64::from(high)),
            }
        }));
    }
    listed.truncate(MOST);
    listed
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
