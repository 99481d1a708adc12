//! Does this rule speak of that end? Labels one at a time, blocks bit by bit,
//! names label by label.

use super::World;
use namewall_policy::addr::Cidr;
use namewall_policy::domain::{DomainName, DomainPattern};
use namewall_policy::labels::{Requirement, Selector};
use namewall_policy::model::{
    Action, NamespaceId, NamespaceScope, NodeId, Peer, Peers, PodSet, PortMatch, Ports, Subject, Workload,
};
use namewall_policy::{Endpoint, Flow};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl World<'_> {
    pub(super) fn selects(&self, subject: &Subject, pod: &Workload) -> bool {
        let on_node = match (&subject.nodes, pod.node) {
            (None, _) => true,
            (Some(nodes), _) if nodes.requirements.is_empty() => true,
            (Some(nodes), Some(node)) => self.node_matches(nodes, node.index()),
            (Some(nodes), None) => {
                let all = &self.snapshot.nodes;
                all.is_empty() || (0..all.len()).any(|node| self.node_matches(nodes, node))
            }
        };
        on_node && self.in_pod_set(&subject.pods, pod)
    }

    /// Whether nobody knows if the subject is on the right node.
    pub(super) fn in_doubt(&self, subject: &Subject, pod: &Workload) -> bool {
        let Some(nodes) = &subject.nodes else { return false };
        let all = &self.snapshot.nodes;
        let everywhere = !all.is_empty() && (0..all.len()).all(|node| self.node_matches(nodes, node));
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

    pub(super) fn peers_match(&self, peers: &Peers, end: &Endpoint, action: Action) -> bool {
        let Peers::Listed(peers) = peers else { return true };
        for peer in peers {
            let matches = match peer {
                Peer::Pods(set) => self.pod(end).is_some_and(|pod| self.in_pod_set(set, pod)),
                Peer::Nodes(selector) => end.node.is_some_and(|node| self.node_matches(selector, node.index())),
                Peer::Domain(pattern) => self.has_name(end, pattern),
                Peer::Network { .. } | Peer::ApiServer => false,
            };
            if matches {
                return true;
            }
        }
        match (end.address, &end.name) {
            (Some(address), _) => self.lists_address(peers, address),
            (None, Some(_)) => self.overlap(peers, &[all_of_ipv4()]).all,
            (None, None) => self.unknown_address(peers, end).counts_for(action),
        }
    }

    /// An end without an address: somewhere among those it may get.
    fn unknown_address(&self, peers: &[Peer], end: &Endpoint) -> Overlap {
        if self.pod(end).is_some() && !self.snapshot.pod_networks.is_empty() {
            return self.overlap(peers, &self.snapshot.pod_networks);
        }
        if self.pod(end).is_some() {
            return self.overlap_but(peers, &[all_of_ipv4()], &self.never_pods());
        }
        if end.node.is_some() {
            return self.overlap(peers, &[all_of_ipv4()]);
        }
        // A hostNetwork pod on a node nobody knows: on any of them.
        let selected = |node: usize| {
            peers.iter().any(|peer| matches!(peer, Peer::Nodes(selector) if self.node_matches(selector, node)))
        };
        let nodes = self.snapshot.nodes.len();
        if nodes > 0 && (0..nodes).all(selected) {
            return Overlap { all: true, some: true };
        }
        let blocks: Vec<Cidr> = self.all_node_addresses().map(Cidr::host).collect();
        let blocks = if blocks.is_empty() { vec![all_of_ipv4()] } else { blocks };
        let by_address = self.overlap(peers, &blocks);
        Overlap { all: by_address.all, some: by_address.some || (0..nodes).any(selected) }
    }

    fn has_name(&self, end: &Endpoint, pattern: &DomainPattern) -> bool {
        if let Some(name) = &end.name {
            return pattern_matches(pattern, name);
        }
        let opens = |address| {
            let mut leases = self.leases.iter();
            leases.any(|lease| lease.pattern == *pattern && lease.address == address && self.now < lease.expiry)
        };
        end.address.is_some_and(opens)
    }

    fn lists_address(&self, peers: &[Peer], address: IpAddr) -> bool {
        peers.iter().any(|peer| match peer {
            Peer::Network { cidr, except } => {
                in_block(cidr, address) && !except.iter().any(|hole| in_block(hole, address))
            }
            Peer::Nodes(selector) => {
                let mut nodes = 0..self.snapshot.nodes.len();
                nodes.any(|at| self.node_matches(selector, at) && self.node_addresses(at).contains(&address))
            }
            Peer::ApiServer => self.snapshot.api_server.contains(&address),
            Peer::Pods(_) | Peer::Domain(_) => false,
        })
    }

    /// Every address of the node: those it lists, and those of its `hostNetwork` pods.
    fn node_addresses(&self, at: usize) -> Vec<IpAddr> {
        let node = NodeId(at as u32);
        let on_host = self.snapshot.workloads.iter().filter(|pod| pod.host_network && pod.node == Some(node));
        let told = on_host.flat_map(|pod| pod.addresses.iter().copied());
        self.snapshot.node(node).addresses.iter().copied().chain(told).collect()
    }

    fn all_node_addresses(&self) -> impl Iterator<Item = IpAddr> {
        (0..self.snapshot.nodes.len()).flat_map(|at| self.node_addresses(at))
    }

    /// How the addresses the peers list stand to these blocks. Whether an address
    /// is listed can only change where some block begins, or just after one ends,
    /// so those are all the addresses that need a look.
    fn overlap(&self, peers: &[Peer], blocks: &[Cidr]) -> Overlap {
        self.overlap_but(peers, blocks, &[])
    }

    /// Addresses that no pod has, where the pods' networks are not known.
    fn never_pods(&self) -> Vec<Cidr> {
        let reserved = ["0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4"];
        let reserved = reserved.into_iter().map(|text| text.parse().expect("a block"));
        let services = self.snapshot.services.iter().flat_map(|service| service.addresses.iter().copied());
        let api_server = self.snapshot.api_server.iter().copied();
        let taken = self.all_node_addresses().chain(services).chain(api_server);
        reserved.chain(taken.map(Cidr::host)).collect()
    }

    fn overlap_but(&self, peers: &[Peer], blocks: &[Cidr], holes: &[Cidr]) -> Overlap {
        let mut edges = blocks.to_vec();
        edges.extend(holes);
        edges.extend(self.snapshot.api_server.iter().map(|&ip| Cidr::host(ip)));
        edges.extend(self.all_node_addresses().map(Cidr::host));
        for peer in peers {
            if let Peer::Network { cidr, except } = peer {
                edges.push(*cidr);
                edges.extend(except);
            }
        }
        let looked_at = edges.iter().flat_map(|block| [Some(block.address()), just_after(block)]).flatten();
        let mut overlap = Overlap { all: true, some: false };
        for address in looked_at
            .filter(|&ip| blocks.iter().any(|block| in_block(block, ip)))
            .filter(|&ip| !holes.iter().any(|hole| in_block(hole, ip)))
        {
            let listed = self.lists_address(peers, address);
            overlap.all &= listed;
            overlap.some |= listed;
        }
        overlap
    }

    pub(super) fn ports_match(&self, ports: &Ports, flow: &Flow) -> bool {
        let Ports::Listed(ports) = ports else { return true };
        let named = self.pod(&flow.to).map_or(&[][..], |pod| &pod.ports);
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

struct Overlap {
    all: bool,
    some: bool,
}

impl Overlap {
    /// What may cover a pod denies; only what surely covers it does anything else.
    fn counts_for(&self, action: Action) -> bool {
        self.all || (self.some && action == Action::Deny)
    }
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

fn all_of_ipv4() -> Cidr {
    Cidr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0)
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

/// The first address after the block, unless the block is the last of its family.
fn just_after(block: &Cidr) -> Option<IpAddr> {
    match block.address() {
        IpAddr::V4(v4) => {
            let size = 1u64 << (32 - block.prefix());
            let next = u64::from(v4.to_bits()) + size;
            u32::try_from(next).ok().map(|next| Ipv4Addr::from_bits(next).into())
        }
        IpAddr::V6(v6) => {
            let size = 1u128.checked_shl(128 - u32::from(block.prefix()))?;
            v6.to_bits().checked_add(size).map(|next| Ipv6Addr::from_bits(next).into())
        }
    }
}
