//! Small clusters for the tests of this crate.

use namewall_policy::labels::{Labels, Selector};
use namewall_policy::lease::NeverLeased;
use namewall_policy::model::{
    Action, Clauses, Direction, Enforcement, NamedPort, NamespaceScope, Peer, Peers, Placement, PodSet, Policy,
    PolicyKind, PolicyRef, Ports, Role, Rule, Subject, Workload, WorkloadKind,
};
use namewall_policy::port::Protocol;
use namewall_policy::{Program, Snapshot, compile};
use std::sync::Arc;

pub(crate) const NAMESPACE: &str = "shop";

/// A cluster of one namespace. Pods have the label `app`.
#[derive(Clone, Default)]
pub(crate) struct Sample {
    pub(crate) snapshot: Snapshot,
}

impl Sample {
    /// A pod with the port `http` (TCP 8080), which is called after its app and the first of its addresses.
    pub(crate) fn pod(mut self, app: &str, addresses: &[&str], node: &str) -> Self {
        let namespace = self.snapshot.ensure_namespace(NAMESPACE);
        let node = self.snapshot.ensure_node(node);
        let labels: Labels = std::iter::once(("app", app)).collect();
        let role = self.snapshot.role_of(Role { namespace, labels, host_network: false });
        let http = NamedPort { name: "http".into(), protocol: Protocol::Tcp, port: 8080 };
        self.snapshot.add_workload(Workload {
            kind: WorkloadKind::Pod,
            namespace,
            name: format!("{app}-{}", addresses[0]).into(),
            role,
            addresses: addresses.iter().map(|address| address.parse().expect("an address")).collect(),
            second_addresses: [].into(),
            node: Some(node),
            host_network: false,
            ports: [http].into(),
            owner: None,
            source: None,
        });
        self
    }

    pub(crate) fn node(mut self, name: &str, addresses: &[&str]) -> Self {
        let addresses = addresses.iter().map(|address| address.parse().expect("an address")).collect();
        self.snapshot.add_node(namewall_policy::model::Node {
            name: name.into(),
            labels: Labels::default(),
            addresses,
            source: None,
        });
        self
    }

    pub(crate) fn policy(mut self, policy: Policy) -> Self {
        Arc::make_mut(&mut self.snapshot.policies).push(policy);
        self
    }

    pub(crate) fn program(&self) -> Program {
        compile(&self.snapshot).0
    }
}

/// What no name opens, in a cluster with the usual domain.
pub(crate) fn never_leased() -> NeverLeased {
    NeverLeased::new("cluster.local".parse().expect("it is a name"))
}

pub(crate) fn pods(app: &str) -> PodSet {
    PodSet { namespaces: NamespaceScope::Named(NAMESPACE.into()), pods: Selector::label("app", app) }
}

/// A policy without rules for the pods of an app.
pub(crate) fn policy(kind: PolicyKind, name: &str, app: &str) -> Policy {
    let placement = match kind {
        PolicyKind::ClusterEgressFirewall => Placement::ClusterGate { priority: 0 },
        PolicyKind::EgressFirewall => Placement::NamespaceGate,
        PolicyKind::AdminNetworkPolicy | PolicyKind::ClusterNetworkPolicy => Placement::Admin { priority: 0 },
        PolicyKind::BaselineAdminNetworkPolicy => Placement::Baseline { priority: None },
        PolicyKind::NetworkPolicy | PolicyKind::NetworkPolicyV1Beta1 => {
            Placement::Network { isolates_ingress: true, isolates_egress: true }
        }
    };
    let is_namespaced = matches!(placement, Placement::Network { .. } | Placement::NamespaceGate);
    let namespace = is_namespaced.then(|| NAMESPACE.into());
    Policy {
        id: PolicyRef { kind, namespace, name: name.into() },
        placement,
        enforcement: Enforcement::Enforce,
        subject: Subject { pods: pods(app), nodes: None },
        egress: Vec::new(),
        ingress: Vec::new(),
        source: None,
    }
}

pub(crate) trait WithRules {
    fn rule(self, direction: Direction, action: Action, clauses: Clauses) -> Self;
}

impl WithRules for Policy {
    fn rule(mut self, direction: Direction, action: Action, clauses: Clauses) -> Self {
        let rule = Rule { name: None, action, clauses, source: None };
        match direction {
            Direction::Egress => self.egress.push(rule),
            Direction::Ingress => self.ingress.push(rule),
        }
        self
    }
}

/// What a rule matches.
pub(crate) fn clauses(peers: Peers, ports: Ports) -> Clauses {
    Clauses::Match { peers, ports }
}

/// The pods of an app as peers.
pub(crate) fn app(name: &str) -> Peers {
    Peers::Listed(vec![Peer::Pods(pods(name))])
}
