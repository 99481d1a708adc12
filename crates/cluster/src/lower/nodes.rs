//! Namespaces and nodes.

use super::scope::Scope;
use super::{Lowering, Reader, Sorted, parts, v1beta1};
use crate::api::node::NodeAddress;
use namewall_policy::addr::Cidr;
use namewall_policy::model::{Namespace, Node};
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

impl Lowering<'_> {
    pub(super) fn nodes(&mut self, sorted: &Sorted<'_>) {
        for document in sorted.of(Reader::Namespace) {
            let mut scope = Scope::new(document, &mut self.out.findings);
            let default_deny_ingress = v1beta1::isolates(&mut scope);
            let namespace = Namespace {
                name: scope.meta.name.as_str().into(),
                labels: scope.meta.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect(),
                default_deny_ingress,
                source: scope.place(""),
            };
            self.out.snapshot.add_namespace(namespace);
        }
        let mut pod_networks = self.settings.pod_networks.clone();
        let mut seen: HashSet<Cidr> = pod_networks.iter().copied().collect();
        for document in sorted.of(Reader::Node) {
            let mut scope = Scope::new(document, &mut self.out.findings);
            // A node is there even if a part of it cannot be read: rules may deny it.
            let pod_cidr: Option<String> = scope.read_part(scope.node(&["spec", "podCIDR"]), "spec.podCIDR");
            let pod_cidrs: Vec<String> = scope.read_items(scope.node(&["spec", "podCIDRs"]), "spec.podCIDRs");
            let listed: Vec<NodeAddress> = scope.read_items(scope.node(&["status", "addresses"]), "status.addresses");
            let blocks = pod_cidrs.iter().chain(&pod_cidr);
            let blocks: Vec<Cidr> = blocks.filter_map(|text| parts::cidr(&mut scope, text, "spec.podCIDRs")).collect();
            for block in blocks {
                if seen.insert(block) {
                    pod_networks.push(block);
                }
            }
            let mut addresses = Vec::new();
            for (at, item) in listed.iter().enumerate() {
                // Host names are no addresses; every type that is one counts.
                if item.kind.as_deref().is_none_or(|kind| kind.ends_with("IP")) {
                    addresses.extend(parts::address(
                        &mut scope,
                        &item.address,
                        &format!("status.addresses[{at}].address"),
                    ));
                }
            }
            self.out.snapshot.add_node(Node {
                name: scope.meta.name.as_str().into(),
                labels: scope.meta.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect(),
                addresses,
                source: scope.place(""),
            });
        }
        self.out.snapshot.pod_networks = Arc::new(pod_networks);
        for document in sorted.of(Reader::NodeAddresses) {
            let mut scope = Scope::new(document, &mut self.out.findings);
            let published: Vec<String> = scope.read_items(document.node.get("addresses"), "addresses");
            let read: Vec<_> =
                published.iter().filter_map(|text| parts::address(&mut scope, text, "addresses")).collect();
            let node = self.out.snapshot.ensure_node(&scope.meta.name.clone());
            let known = &mut Arc::make_mut(&mut self.out.snapshot.nodes)[node.index()].addresses;
            let mut seen: HashSet<IpAddr> = known.iter().copied().collect();
            known.extend(read.into_iter().filter(|address| seen.insert(*address)));
        }
    }
}
