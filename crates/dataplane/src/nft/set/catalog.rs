//! The sets and maps that tables have, by name: what each holds, and what is
//! said of it in its comment.

use super::Version;

/// Twins, one for each version of IP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Twins(pub &'static str, pub &'static str);

impl std::ops::Index<Version> for Twins {
    type Output = &'static str;
    fn index(&self, version: Version) -> &Self::Output {
        match version {
            Version::V4 => &self.0,
            Version::V6 => &self.1,
        }
    }
}

/// Address → chain, of the pods that are judged here: by their egress policies, and by their ingress policies.
pub const EGRESS: Twins = Twins("egress4", "egress6");
pub const INGRESS: Twins = Twins("ingress4", "ingress6");
/// Pods that are judged on other nodes and have cluster gates, and gate . address: which gates each has. A map to chains
/// would have as many elements as the cluster has pods, and the kernel looks at all of those at every change.
pub const GATED: Twins = Twins("gated4", "gated6");
pub const GATES: Twins = Twins("gate4", "gate6");
/// The same for policies that are only audited.
pub const AUDIT_EGRESS: Twins = Twins("audit-egress4", "audit-egress6");
pub const AUDIT_INGRESS: Twins = Twins("audit-ingress4", "audit-ingress6");
/// The pods that are judged here, where somebody asks for them: our DNS server, or the gates before Services.
pub const LOCAL: Twins = Twins("local4", "local6");
/// Group . address: which pods a rule speaks of.
pub const PEERS: Twins = Twins("peer4", "peer6");
/// Number of a joined look-up . address → the counter of the rule that allows the pod.
pub const JOINED: Twins = Twins("joined4", "joined6");
/// Group . address, with a timeout: where the names a rule speaks of lead.
pub const LEASE: Twins = Twins("lease4", "lease6");
/// Group . address . protocol . port: what pods call a port.
pub const NAMED: Twins = Twins("named4", "named6");
/// Pairs of addresses that one pod has.
pub const OWN: Twins = Twins("own4", "own6");
/// Addresses in the pod network that are no node's.
pub const POD_NETWORK: Twins = Twins("podnet4", "podnet6");
/// Addresses that this node's pods get, and that are no node's.
pub const CLOSED: Twins = Twins("closed4", "closed6");
/// Sources of pods that are not their own addresses, and are no node's.
pub const EXTRA: Twins = Twins("extra4", "extra6");
/// Every pod of the cluster.
pub const PODS: Twins = Twins("pod4", "pod6");
pub const NODES: Twins = Twins("node4", "node6");
/// The addresses of this node.
pub const THIS_NODE: Twins = Twins("this-node4", "this-node6");
/// Source . destination . protocol . their ports, with a timeout: packets of connections that were cut, either way.
pub const CUT: Twins = Twins("cut4", "cut6");
/// The set of the last change has the number of the change in its name, and every family in it.
const GENERATION: &str = "generation/";
/// Protocols DNS is taken over, with a timeout: our server lives.
pub const ALIVE: &str = "alive";
/// Address . protocol: Services that are asked at DNS's port.
pub const RESOLVERS: Twins = Twins("resolver4", "resolver6");
/// Pod . Service . protocol: who may ask which of them.
pub const ASKERS: Twins = Twins("asker4", "asker6");
/// Pods that answer for a server that ours asks.
pub const SERVERS: Twins = Twins("server4", "server6");
/// Address . protocol . port of a Service → the gate before it.
pub const SERVICES: Twins = Twins("service4", "service6");

pub const AUDIT_SERVICES: Twins = Twins("audit-service4", "audit-service6");

/// The name of the set of a change.
pub fn generation(number: u16) -> String {
    format!("{GENERATION}{number}")
}

/// The number of the change that a set is of, if it is one of these.
pub fn generation_of(set: &str) -> Option<u16> {
    set.strip_prefix(GENERATION)?.parse().ok()
}

/// What the sets of this name are there for. Those of networks and ports are named after their content.
pub(super) fn purpose(set: &str) -> Option<&'static str> {
    const PURPOSES: [(Twins, &str); 18] = [
        (EGRESS, "pods that are judged here, and the chain of their egress policies"),
        (INGRESS, "pods that are judged here, and the chain of their ingress policies"),
        (GATED, "pods of other nodes that cluster firewalls are for"),
        (GATES, "group of cluster firewalls . pod of another node that they are for"),
        (AUDIT_EGRESS, "pods that are judged here, and the chain of their audited egress policies"),
        (AUDIT_INGRESS, "pods that are judged here, and the chain of their audited ingress policies"),
        (LOCAL, "pods that are judged here"),
        (PEERS, "group of a rule . pod that the rule speaks of"),
        (LEASE, "group of a rule (two numbers) . address that a name of the rule leads to, until it expires"),
        (NAMED, "group of port names . pod . protocol . port that the pod calls so"),
        (OWN, "addresses of one pod, in pairs"),
        (POD_NETWORK, "pod network, without the nodes"),
        (CLOSED, "blocks of this node's pods: who is not known yet is closed"),
        (PODS, "all pods of the cluster"),
        (NODES, "all nodes of the cluster"),
        (CUT, "packets of connections that were cut: source . destination . protocol . ports"),
        (RESOLVERS, "Services that answer DNS: address . protocol"),
        (ASKERS, "pod . Service that it may ask DNS of . protocol"),
    ];
    const MORE: [(Twins, &str); 6] = [
        (EXTRA, "sources of pods that are not their own addresses"),
        (JOINED, "joined look-up . pod, and the counter of the rule that allows it"),
        (THIS_NODE, "this node"),
        (SERVERS, "pods that answer for a DNS server that namewall asks"),
        (SERVICES, "Services and the chain of the cluster firewalls before them"),
        (AUDIT_SERVICES, "Services and the chain of the audited cluster firewalls before them"),
    ];
    match set {
        ALIVE => Some("protocols over which pods' DNS is taken to namewall, while it is alive"),
        _ if generation_of(set).is_some() => {
            Some("the last change of this table; packets that met another are dropped")
        }
        _ => {
            let of = |(twins, _): &&(Twins, &str)| set == twins.0 || set == twins.1;
            PURPOSES.iter().chain(&MORE).find(of).map(|(_, purpose)| *purpose)
        }
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_known_by_the_name_of_its_set() {
        assert_eq!(generation_of(&generation(17)), Some(17));
        for other in ["generation", "generation/", "generation/x", "generation/65536", "peer4"] {
            assert_eq!(generation_of(other), None, "{other}");
        }
    }

    #[test]
    fn purposes_fit_into_a_comment() {
        let twins = [
            EGRESS,
            INGRESS,
            GATES,
            LOCAL,
            PEERS,
            LEASE,
            NAMED,
            OWN,
            CUT,
            CLOSED,
            EXTRA,
            ASKERS,
            AUDIT_SERVICES,
            JOINED,
        ];
        let names = twins.iter().flat_map(|twins| [twins.0, twins.1]).chain([ALIVE, "generation/3"]);
        for name in names {
            let purpose = purpose(name).unwrap_or_else(|| panic!("{name} says nothing"));
            assert!(purpose.len() <= crate::nft::batch::COMMENT_MAX, "{name}: {purpose}");
        }
    }
}
