//! Does this rule speak of that end? Labels one at a time, blocks bit by bit,
//! names label by label.

use super::World;
use namewall_policy::addr::Cidr;
use namewall_policy::domain::{DomainName, DomainPattern};
use namewall_policy::labels::{Requirement, Selector};
use namewall_policy::model::{
    Action, NamespaceId, NamespaceScope, NodeId, Peer, Peers, PodSet, PortMatch, Ports, Subject, Workload,
};
use namewall_policy::port::TransportPort;
use namewall_policy::{Endpoint, Flow};
use std::net::IpAddr;

/// A connection that a rule is asked about, and what the rule does.
pub(super) struct Asked<'a> {
    pub(super) action: Action,
    pub(super) flow: &'a Flow,
}

impl World<'_> {
    pub(super) fn selects(&self, subject: &Subject, pod: &Workload) -> bool {
        let on_node = match (&subject.nodes, pod.node) {
            (None, _) => true,
            (Some(nodes), _) if nodes.requirements.is_empty() => true,
            (Some(nodes), Some(node)) => self.node_matches(nodes, node.index()),
            (Some(nodes), None) => {
                let all = 0..self.snapshot.nodes.len();
                !self.describes_nodes() || all.into_iter().any(|node| self.node_matches(nodes, node))
            }
        };
        on_node && self.in_pod_set(&subject.pods, pod)
    }

    /// Whether the labels of any node are known.
    fn describes_nodes(&self) -> bool {
        self.snapshot.nodes.iter().any(|node| node.source.is_some() || node.labels.iter().next().is_some())
    }

    /// Whether nobody knows if the subject is on the right node.
    pub(super) fn in_doubt(&self, subject: &Subject, pod: &Workload) -> bool {
        let Some(nodes) = &subject.nodes else { return false };
        let all = &self.snapshot.nodes;
        let everywhere = self.describes_nodes() && (0..all.len()).all(|node| self.node_matches(nodes, node));
        pod.node.is_none() && !nodes.requirements.is_empty() && !everywhere
    }

    fn in_pod_set(&self, set: &PodSet, pod: &Workload) -> bool {
        let labels: Vec<_> = self.snapshot.role(pod.role).labels.iter().collect();
        !pod.host_network && self.scope_includes(&set.namespaces, pod.namespace) && selector_matches(&set.pods, &labels)
    }

    pub(super) fn scope_includes(&self, scope: &NamespaceScope, namespace: NamespaceId) -> bool {
        match scope {
            NamespaceScope::Named(name) => *name == self.snapshot.namespace(namespace).name,
            NamespaceScope::Matching(selector) => selector_matches(selector, &self.namespace_labels(namespace)),
        }
    }

    fn node_matches(&self, selector: &Selector, node: usize) -> bool {
        let labels: Vec<_> = self.snapshot.nodes[node].labels.iter().collect();
        selector_matches(selector, &labels)
    }

    pub(super) fn peers_match(&self, peers: &Peers, end: &Endpoint, asked: &Asked<'_>) -> bool {
        let Peers::Listed(peers) = peers else { return true };
        for peer in peers {
            let matches = match peer {
                Peer::Pods(set) => self.pod(end).is_some_and(|pod| self.in_pod_set(set, pod)),
                Peer::Nodes(selector) => self.is_at_node(end, |node| self.node_matches(selector, node)),
                Peer::Domain(pattern) => self.has_name(end, pattern, asked.action),
                Peer::Network { .. } | Peer::ApiServer => false,
            };
            if matches {
                return true;
            }
        }
        end.address.is_some_and(|address| self.lists_address(peers, address, asked))
    }

    /// Whether it is at such a node, and its address is not known or could be nobody else's.
    fn is_at_node(&self, end: &Endpoint, is_such: impl Fn(usize) -> bool) -> bool {
        let Some(node) = end.node.map(NodeId::index) else { return false };
        let is_sure = match end.address {
            Some(address) if !end.assumed => {
                let nodes = self.nodes_with(address);
                let is_its_own = nodes.is_empty() || (nodes == [node] && !self.is_pods(address));
                is_its_own && !is_of_every_machine(address)
            }
            _ => true,
        };
        is_such(node) && is_sure
    }

    pub(super) fn is_pods(&self, address: IpAddr) -> bool {
        self.snapshot.workloads.iter().any(|pod| !pod.host_network && pod.addresses.contains(&address))
    }

    pub(super) fn nodes_with(&self, address: IpAddr) -> Vec<usize> {
        (0..self.snapshot.nodes.len()).filter(|&at| self.node_addresses(at).contains(&address)).collect()
    }

    /// Rules that deny have leases of their own.
    fn has_name(&self, end: &Endpoint, pattern: &DomainPattern, action: Action) -> bool {
        if end.name.as_ref().is_some_and(|name| pattern_matches(pattern, name)) {
            return true;
        }
        let opens = |address| {
            let mut leases = self.leases.iter().filter(|lease| lease.pattern.denies() == (action == Action::Deny));
            leases.any(|lease| lease.pattern.names == *pattern && lease.address == address && self.now < lease.expiry)
        };
        end.address.is_some_and(opens)
    }

    fn lists_address(&self, peers: &[Peer], address: IpAddr, asked: &Asked<'_>) -> bool {
        let Asked { action, flow } = *asked;
        peers.iter().any(|peer| match peer {
            Peer::Network { cidr, except } => {
                in_block(cidr, address) && !except.iter().any(|hole| in_block(hole, address))
            }
            Peer::Nodes(selector) => {
                let nodes = self.nodes_with(address);
                let is_meant = |at: &usize| self.node_matches(selector, *at);
                let mut all = 0..self.snapshot.nodes.len();
                match action {
                    Action::Deny if is_of_every_machine(address) || is_group(address) => all.any(|at| is_meant(&at)),
                    Action::Deny => nodes.iter().any(is_meant),
                    _ => {
                        let is_nodes_alone = !self.is_pods(address) && !is_of_every_machine(address);
                        !nodes.is_empty() && nodes.iter().all(is_meant) && is_nodes_alone
                    }
                }
            }
            Peer::ApiServer => {
                let asked = TransportPort { protocol: flow.protocol, port: flow.port };
                let mut served = self.snapshot.api_server.iter().filter(|served| served.port == asked);
                served.any(|served| {
                    let nodes = self.nodes_with(served.address);
                    let is_of_its_node = || {
                        let has_it = |at: &usize| self.node_addresses(*at).contains(&address);
                        nodes.iter().any(has_it) || (!nodes.is_empty() && is_of_every_machine(address))
                    };
                    served.address == address || (action == Action::Deny && is_of_its_node())
                })
            }
            Peer::Pods(_) | Peer::Domain(_) => false,
        })
    }

    /// Every address of the node: those it lists, and those of its `hostNetwork` pods.
    pub(super) fn node_addresses(&self, at: usize) -> Vec<IpAddr> {
        let node = NodeId(at as u32);
        let on_host = self.snapshot.workloads.iter().filter(|pod| pod.host_network && pod.node == Some(node));
        let told = on_host.flat_map(|pod| pod.addresses.iter().copied());
        self.snapshot.node(node).addresses.iter().copied().chain(told).collect()
    }

    pub(super) fn ports_match(&self, ports: &Ports, flow: &Flow, to: &Endpoint) -> bool {
        let Ports::Listed(ports) = ports else { return true };
        let named = self.pod(to).map_or(&[][..], |pod| &pod.ports);
        ports.iter().any(|port| match port {
            PortMatch::Range { protocol, low, high } => {
                *protocol == flow.protocol && *low <= flow.port && flow.port <= *high
            }
            PortMatch::Named { protocol, name } => named.iter().any(|named| {
                named.name == *name
                    && (*protocol == Some(named.protocol) || protocol.is_none())
                    && (named.protocol, named.port) == (flow.protocol, flow.port)
            }),
        })
    }
}

/// S1.10: what every host on the link takes.
fn is_group(address: IpAddr) -> bool {
    address.is_multicast() || address == IpAddr::from([255, 255, 255, 255])
}

/// Loopback, and what every interface has on its own link.
pub(super) fn is_of_every_machine(address: IpAddr) -> bool {
    ["127.0.0.0/8", "::1/128", "fe80::/10"].iter().any(|block| in_block(&block.parse().expect("a block"), address))
}

fn selector_matches(selector: &Selector, labels: &[(&str, &str)]) -> bool {
    selector.requirements.iter().all(|requirement| {
        let has_key = |wanted: &str| labels.iter().any(|(key, _)| *key == wanted);
        let has_one_of = |wanted: &str, values: &[std::sync::Arc<str>]| {
            labels.iter().any(|(key, value)| *key == wanted && values.iter().any(|v| &**v == *value))
        };
        match requirement {
            Requirement::In { key, values } => has_one_of(key, values),
            Requirement::NotIn { key, values } => !has_one_of(key, values),
            Requirement::Exists { key } => has_key(key),
            Requirement::DoesNotExist { key } => !has_key(key),
        }
    })
}

fn pattern_matches(pattern: &DomainPattern, name: &DomainName) -> bool {
    let domain: Vec<&str> = pattern.domain().as_str().split('.').collect();
    let name: Vec<&str> = name.as_str().split('.').collect();
    if !name.ends_with(&domain) {
        return false;
    }
    let in_front = name.len() - domain.len();
    match pattern {
        DomainPattern::Exact(_) => in_front == 0,
        DomainPattern::Subdomains(_) => in_front >= 1,
        DomainPattern::OneLabel(_) => in_front == 1,
    }
}

pub(super) fn in_block(block: &Cidr, address: IpAddr) -> bool {
    let (block_octets, octets) = (octets(block.address()), octets(address));
    let bit = |octets: &[u8], at: usize| octets[at / 8] >> (7 - at % 8) & 1;
    block_octets.len() == octets.len()
        && (0..usize::from(block.prefix())).all(|at| bit(&block_octets, at) == bit(&octets, at))
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}
