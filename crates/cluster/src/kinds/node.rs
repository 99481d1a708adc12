//! Nodes.

use crate::document::Document;
use crate::lower::{Scope, parts};
use namewall_policy::Finding;
use namewall_policy::addr::Cidr;
use namewall_policy::model::Node;
use serde::Deserialize;

#[derive(Deserialize, Debug, Clone)]
struct NodeAddress {
    /// InternalIP, ExternalIP, Hostname; without one it counts as an address.
    #[serde(rename = "type")]
    kind: Option<String>,
    address: String,
}

/// A Node, and the blocks that its pods get their addresses from.
pub(crate) struct ReadNode {
    pub(crate) node: Node,
    pub(crate) pod_blocks: Vec<Cidr>,
}

/// A node is there even if a part of it cannot be read: rules may deny it.
pub(crate) fn read_node(document: &Document, findings: &mut Vec<Finding>) -> ReadNode {
    let mut scope = Scope::of_fact(document, findings);
    scope.find_misspelt(document.node.get("spec"), "spec", &["podCIDR", "podCIDRs"]);
    scope.find_misspelt(document.node.get("status"), "status", &["addresses"]);
    let pod_cidr: Option<String> = scope.read_part(scope.node(&["spec", "podCIDR"]), "spec.podCIDR");
    let pod_cidrs: Vec<String> = scope.read_items(scope.node(&["spec", "podCIDRs"]), "spec.podCIDRs");
    let listed: Vec<NodeAddress> = scope.read_items(scope.node(&["status", "addresses"]), "status.addresses");
    let blocks = pod_cidrs.iter().chain(&pod_cidr);
    let pod_blocks = blocks.filter_map(|text| parts::cidr(&mut scope, text, "spec.podCIDRs")).collect();
    let mut addresses = Vec::new();
    for (at, item) in listed.iter().enumerate() {
        // Host names are no addresses; every type that is one counts.
        if item.kind.as_deref().is_none_or(|kind| kind.ends_with("IP")) {
            let path = format!("status.addresses[{at}].address");
            addresses.extend(parts::address(&mut scope, &item.address, &path));
        }
    }
    let node = Node {
        name: scope.meta.name.as_str().into(),
        labels: scope.meta.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect(),
        addresses,
        source: scope.place(""),
    };
    ReadNode { node, pod_blocks }
}
