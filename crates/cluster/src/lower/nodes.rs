//! Namespaces and nodes.

use super::scope::Scope;
use super::{Lowering, Reader, Sorted, parts, v1beta1};
use crate::api::node::{NodeAddresses, NodeSpec, NodeStatus};
use namewall_policy::addr::Cidr;
use namewall_policy::model::{Namespace, Node};

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
        self.out.snapshot.pod_networks = self.settings.pod_networks.clone();
        for document in sorted.of(Reader::Node) {
            let mut scope = Scope::new(document, &mut self.out.findings);
            // A node is there even if a part of it cannot be read: rules may deny it.
            let spec: NodeSpec = scope.read_part(document.node.get("spec"), "spec");
            let status: NodeStatus = scope.read_part(document.node.get("status"), "status");
            let blocks = spec.pod_cidrs.iter().chain(&spec.pod_cidr);
            let blocks: Vec<Cidr> = blocks.filter_map(|text| parts::cidr(&mut scope, text, "spec.podCIDRs")).collect();
            for block in blocks {
                if !self.out.snapshot.pod_networks.contains(&block) {
                    self.out.snapshot.pod_networks.push(block);
                }
            }
            let mut addresses = Vec::new();
            for (at, item) in status.addresses.iter().enumerate() {
                // Host names are no addresses; every type that is one counts.
                if item.kind.ends_with("IP") {
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
        for document in sorted.of(Reader::NodeAddresses) {
            let mut scope = Scope::new(document, &mut self.out.findings);
            let Some(published) = scope.read_whole::<NodeAddresses>() else { continue };
            let read = published.addresses.iter().filter_map(|text| parts::address(&mut scope, text, "addresses"));
            let read: Vec<_> = read.collect();
            let node = self.out.snapshot.ensure_node(&scope.meta.name.clone());
            let known = &mut self.out.snapshot.nodes[node.index()].addresses;
            for address in read {
                if !known.contains(&address) {
                    known.push(address);
                }
            }
        }
    }
}
