//! The ways in which the unknown parts of a connection may turn out, one by one.
//! Whether a rule lists an address can only change where some block begins, or
//! just after one ends, so those are all the addresses that need a look.

use super::World;
use super::matching::in_block;
use namewall_policy::addr::Cidr;
use namewall_policy::model::{Clauses, NodeId, Peer, Peers};
use namewall_policy::{Endpoint, Flow};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A connection with nothing left open but what `nodes` and `same_node` say.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) flow: Flow,
    /// For each firewall, by its place in the Snapshot, whether it is for the source's node, where that is not known.
    pub(crate) for_source: Vec<bool>,
    pub(crate) same_node: bool,
}

impl World<'_> {
    /// All cases of a flow, by family: the ends may choose one.
    pub(crate) fn cases(&self, flow: &Flow) -> Vec<Vec<Case>> {
        let (sources, targets) = (self.candidates(&flow.from), self.candidates(&flow.to));
        let pairs = || sources.iter().flat_map(|from| targets.iter().map(move |to| (from, to)));
        let is_v4 = |end: &Endpoint| end.address.is_some_and(|address| address.is_ipv4());
        let of = |v4: bool| pairs().filter(move |(from, to)| is_v4(from) == v4 && is_v4(to) == v4).collect::<Vec<_>>();
        let mut families: Vec<Vec<(&Endpoint, &Endpoint)>> = vec![of(true), of(false)];
        families.retain(|pairs| !pairs.is_empty());
        if families.is_empty() {
            families.push(pairs().collect());
        }
        let mut found = Vec::new();
        for pairs in families {
            let mut cases = Vec::new();
            for (from, to) in pairs {
                for for_source in self.firewall_cases(from) {
                    for same_node in self.same_node_cases(from, to) {
                        let flow = Flow { from: from.clone(), to: to.clone(), ..flow.clone() };
                        cases.push(Case { flow, for_source: for_source.clone(), same_node });
                    }
                }
            }
            found.push(cases);
        }
        found
    }

    /// Every combination of firewalls that may or may not be for the source's node.
    fn firewall_cases(&self, from: &Endpoint) -> Vec<Vec<bool>> {
        let policies = &self.snapshot.policies;
        let mut cases = vec![Vec::new()];
        for policy in policies.iter() {
            let judged_as = self.pod(from).map(|pod| self.judged_as(pod)).unwrap_or_default();
            let in_doubt = judged_as.into_iter().any(|pod| self.in_doubt(&policy.subject, pod));
            let ways: &[bool] = if in_doubt { &[true, false] } else { &[true] };
            cases = cases
                .into_iter()
                .flat_map(|case: Vec<bool>| ways.iter().map(move |&way| [case.clone(), vec![way]].concat()))
                .collect();
        }
        cases
    }

    fn same_node_cases(&self, from: &Endpoint, to: &Endpoint) -> Vec<bool> {
        let unknown = self.pod(to).is_some_and(|pod| self.node_of(pod).is_none());
        if from.node.is_some() && unknown { vec![false, true] } else { vec![false] }
    }

    /// The end as it may turn out.
    fn candidates(&self, end: &Endpoint) -> Vec<Endpoint> {
        if end.address.is_some() {
            return vec![end.clone()];
        }
        let any_v4 = vec![Cidr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0)];
        let reserved = ["0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4"];
        let mut holes: Vec<Cidr> = reserved.into_iter().map(|text| text.parse().expect("a block")).collect();
        if self.pod(end).is_some() {
            if !self.snapshot.pod_networks.is_empty() {
                return self.looked_at(end, &self.snapshot.pod_networks, &[]);
            }
            let services = self.snapshot.services.iter().flat_map(|service| &service.addresses);
            holes.extend(services.copied().chain(self.api_server()).map(Cidr::host));
            holes.extend(self.all_node_addresses());
            return self.looked_at(end, &any_v4, &holes);
        }
        if end.node.is_none() && end.workload.is_none() && end.name.is_none() {
            let services = self.snapshot.services.iter().flat_map(|service| &service.addresses);
            holes.extend(services.copied().chain(self.api_server()).map(Cidr::host));
            holes.extend(self.all_node_addresses());
            holes.extend(self.snapshot.pod_networks.iter());
            let v6 = ["2000::/3", "fc00::/7"].map(|text| text.parse::<Cidr>().expect("a block"));
            return self.looked_at(end, &[any_v4, v6.to_vec()].concat(), &holes);
        }
        if end.node.is_none() && end.workload.is_none() {
            holes.extend(self.snapshot.pod_networks.iter());
            return self.looked_at(end, &any_v4, &holes);
        }
        let all = || (0..self.snapshot.nodes.len() as u32).map(NodeId).collect();
        let nodes: Vec<NodeId> = end.node.map_or_else(all, |node| vec![node]);
        if nodes.is_empty() {
            return self.looked_at(end, &any_v4, &[]);
        }
        let on = |node: NodeId| {
            let blocks: Vec<Cidr> = self.node_addresses(node.index()).into_iter().map(Cidr::host).collect();
            let end = Endpoint { node: Some(node), ..end.clone() };
            self.looked_at(&end, if blocks.is_empty() { &any_v4 } else { &blocks }, &[])
        };
        nodes.into_iter().flat_map(on).collect()
    }

    fn api_server(&self) -> impl Iterator<Item = IpAddr> {
        self.snapshot.api_server.iter().map(|served| served.address)
    }

    fn all_node_addresses(&self) -> impl Iterator<Item = Cidr> {
        (0..self.snapshot.nodes.len()).flat_map(|at| self.node_addresses(at)).map(Cidr::host)
    }

    fn looked_at(&self, end: &Endpoint, blocks: &[Cidr], holes: &[Cidr]) -> Vec<Endpoint> {
        let mut edges = [blocks, holes].concat();
        edges.extend(self.api_server().map(Cidr::host));
        edges.extend(self.all_node_addresses());
        edges.extend(self.leases.iter().map(|lease| Cidr::host(lease.address)));
        // What a Deny of nodes covers beside their addresses.
        let groups = ["127.0.0.0/8", "224.0.0.0/4", "255.255.255.255/32", "::1/128", "fe80::/10", "ff00::/8"];
        edges.extend(groups.into_iter().map(|text| text.parse::<Cidr>().expect("a block")));
        for policy in self.snapshot.policies.iter() {
            for rule in policy.egress.iter().chain(&policy.ingress) {
                let Clauses::Match { peers: Peers::Listed(peers), .. } = &rule.clauses else { continue };
                for peer in peers {
                    if let Peer::Network { cidr, except } = peer {
                        edges.push(*cidr);
                        edges.extend(except);
                    }
                }
            }
        }
        let mut addresses: Vec<IpAddr> =
            edges.iter().flat_map(|block| [Some(block.address()), just_after(block)]).flatten().collect();
        addresses.retain(|&ip| blocks.iter().any(|block| in_block(block, ip)));
        addresses.retain(|&ip| !holes.iter().any(|hole| in_block(hole, ip)));
        addresses.sort_unstable();
        addresses.dedup();
        let settled = |address| Endpoint { address: Some(address), assumed: true, ..end.clone() };
        addresses.into_iter().map(settled).collect()
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
