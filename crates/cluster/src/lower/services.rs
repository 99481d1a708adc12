//! Services and where their connections go after DNAT, and from them the
//! addresses of the API server.

use super::scope::Scope;
use super::workloads::port_named;
use super::{Lowering, Reader, Sorted, parts};
use crate::api::meta::IntOrString;
use crate::api::service::{
    EndpointPort, EndpointSubset, LoadBalancerIngress, ServicePort as ApiPort, ServiceSpec, SliceEndpoint,
};
use namewall_policy::labels::{Requirement, Selector};
use namewall_policy::model::{Backend, BackendTarget, Service, ServicePort};
use namewall_policy::port::Protocol;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Endpoints of a service as objects list them.
#[derive(Default)]
struct Listed {
    addresses: Vec<IpAddr>,
    /// Port name, protocol, port, address.
    endpoints: Vec<(Option<String>, Protocol, u16, IpAddr)>,
}

impl Lowering<'_> {
    pub(super) fn services(&mut self, sorted: &Sorted<'_>) {
        let listed = self.endpoints(sorted);
        self.out.snapshot.api_server = self.settings.api_server.clone();
        if let Some(endpoints) = listed.get(&("default".to_owned(), "kubernetes".to_owned())) {
            self.add_api_server(&endpoints.addresses);
        }
        for document in sorted.of(Reader::Service) {
            let mut scope = Scope::new(document, &mut self.out.findings);
            let namespace_name = scope.namespace().to_owned();
            let spec = service_spec(&mut scope);
            let balanced: Vec<LoadBalancerIngress> =
                scope.read_items(scope.node(&["status", "loadBalancer", "ingress"]), "status.loadBalancer.ingress");
            let balanced = balanced.iter().filter_map(|ingress| ingress.ip.as_ref());
            let texts = spec.cluster_ip.iter().chain(&spec.cluster_ips).chain(&spec.external_ips).chain(balanced);
            let mut addresses: Vec<IpAddr> = Vec::new();
            for text in texts.filter(|text| !text.is_empty() && *text != "None") {
                if let Some(address) = parts::address(&mut scope, text, "spec.clusterIP")
                    && !addresses.contains(&address)
                {
                    addresses.push(address);
                }
            }
            let source = scope.place("");
            let key = (namespace_name.clone(), scope.meta.name.clone());
            let mut ports = Vec::new();
            for (at, port) in spec.ports.iter().enumerate() {
                let Some(protocol) =
                    parts::protocol(&mut scope, port.protocol.as_deref(), &format!("spec.ports[{at}].protocol"))
                else {
                    continue;
                };
                ports.push((protocol, port));
            }
            let named = self.out.snapshot.ensure_namespace(&namespace_name);
            let ports: Vec<ServicePort> = ports
                .into_iter()
                .map(|(protocol, port)| ServicePort {
                    name: port.name.as_deref().map(Into::into),
                    protocol,
                    port: port.port,
                    node_port: port.node_port,
                    backends: match listed.get(&key) {
                        Some(listed) => self.listed_backends(listed, (protocol, port)),
                        None => self.selected_backends(&namespace_name, &spec.selector, (protocol, port)),
                    },
                })
                .collect();
            if key.0 == "default" && key.1 == "kubernetes" {
                self.add_api_server(&addresses);
            }
            let name = key.1.as_str().into();
            self.out.snapshot.services.push(Service { namespace: named, name, addresses, ports, source });
        }
    }

    /// S7.3: the Service's own addresses, and those of its endpoints.
    fn add_api_server(&mut self, addresses: &[IpAddr]) {
        let known = &mut self.out.snapshot.api_server;
        let mut seen: FxHashSet<IpAddr> = known.iter().copied().collect();
        known.extend(addresses.iter().filter(|address| seen.insert(**address)));
    }

    fn endpoints(&mut self, sorted: &Sorted<'_>) -> FxHashMap<(String, String), Listed> {
        let mut all: FxHashMap<(String, String), Listed> = FxHashMap::default();
        for document in sorted.of(Reader::EndpointSlice) {
            let mut scope = Scope::new(document, &mut self.out.findings);
            let endpoints: Vec<SliceEndpoint> = scope.read_items(document.node.get("endpoints"), "endpoints");
            let ports: Vec<EndpointPort> = scope.read_items(document.node.get("ports"), "ports");
            let Some(service) = scope.meta.labels.get("kubernetes.io/service-name").cloned() else { continue };
            let addresses: Vec<&String> = endpoints.iter().flat_map(|endpoint| &endpoint.addresses).collect();
            let list = all.entry((scope.namespace().to_owned(), service)).or_default();
            list.add(&mut scope, &addresses, &ports);
        }
        for document in sorted.of(Reader::Endpoints) {
            let mut scope = Scope::new(document, &mut self.out.findings);
            let subsets: Vec<EndpointSubset> = scope.read_items(document.node.get("subsets"), "subsets");
            let list = all.entry((scope.namespace().to_owned(), scope.meta.name.clone())).or_default();
            for subset in &subsets {
                let addresses: Vec<&String> = subset.addresses.iter().map(|address| &address.ip).collect();
                list.add(&mut scope, &addresses, &subset.ports);
            }
        }
        all
    }

    fn listed_backends(&self, listed: &Listed, (protocol, port): (Protocol, &ApiPort)) -> Vec<Backend> {
        let mut seen: FxHashSet<(IpAddr, u16)> = FxHashSet::default();
        let mut backends = Vec::new();
        for (name, listed_protocol, number, address) in &listed.endpoints {
            let same_name = name.as_deref().unwrap_or_default() == port.name.as_deref().unwrap_or_default();
            if same_name && *listed_protocol == protocol {
                let target = match self.pods.by_address.get(address) {
                    Some(&pod) => BackendTarget::Workload(pod, Some(*address)),
                    None => BackendTarget::Address(*address),
                };
                if seen.insert((*address, *number)) {
                    backends.push(Backend { target, port: *number });
                }
            }
        }
        backends
    }

    /// Without endpoint objects: the pods and templates that the selector selects.
    fn selected_backends(
        &self,
        namespace: &str,
        selector: &BTreeMap<String, String>,
        (protocol, port): (Protocol, &ApiPort),
    ) -> Vec<Backend> {
        if selector.is_empty() {
            return Vec::new();
        }
        let requirements = selector.iter();
        let selector = Selector {
            requirements: requirements
                .map(|(key, value)| Requirement::In { key: key.as_str().into(), values: vec![value.as_str().into()] })
                .collect(),
        };
        let mut backends = Vec::new();
        for &id in self.pods.by_namespace.get(namespace).into_iter().flatten() {
            let workload = self.out.snapshot.workload(id);
            if !selector.matches(&self.out.snapshot.role(workload.role).labels) {
                continue;
            }
            let number = match &port.target_port {
                None => Some(port.port),
                Some(IntOrString::Int(number)) => u16::try_from(*number).ok(),
                Some(IntOrString::String(name)) => port_named(&workload.ports, name, protocol),
            };
            if let Some(port) = number {
                backends.push(Backend { target: BackendTarget::Workload(id, None), port });
            }
        }
        backends
    }
}

/// Piece by piece: a bad port must not lose the Service's addresses.
fn service_spec(scope: &mut Scope<'_>) -> ServiceSpec {
    ServiceSpec {
        cluster_ip: scope.read_part(scope.node(&["spec", "clusterIP"]), "spec.clusterIP"),
        cluster_ips: scope.read_items(scope.node(&["spec", "clusterIPs"]), "spec.clusterIPs"),
        external_ips: scope.read_items(scope.node(&["spec", "externalIPs"]), "spec.externalIPs"),
        selector: scope.read_part(scope.node(&["spec", "selector"]), "spec.selector"),
        ports: scope.read_items(scope.node(&["spec", "ports"]), "spec.ports"),
    }
}

impl Listed {
    fn add(&mut self, scope: &mut Scope<'_>, addresses: &[&String], ports: &[EndpointPort]) {
        for address in addresses {
            let Some(address) = parts::address(scope, address, "endpoints") else { continue };
            self.addresses.push(address);
            for port in ports {
                let protocol = parts::protocol(scope, port.protocol.as_deref(), "ports");
                if let (Some(protocol), Some(number)) = (protocol, port.port) {
                    let name = port.name.clone().filter(|name| !name.is_empty());
                    self.endpoints.push((name, protocol, number, address));
                }
            }
        }
    }
}
