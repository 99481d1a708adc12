//! Services and where their connections go after DNAT, and from them the
//! addresses of the API server.

use super::scope::Scope;
use super::workloads::port_named;
use super::{Lowering, Reader, Sorted, parts};
use crate::api::meta::IntOrString;
use crate::api::service::{EndpointPort, EndpointSubset, LoadBalancerIngress, ServiceSpec, SliceEndpoint};
use crate::document::Document;
use namewall_policy::labels::{Requirement, Selector};
use namewall_policy::model::{Backend, BackendTarget, Service, ServiceForm, ServicePort, WorkloadId};
use namewall_policy::port::Protocol;
use namewall_policy::{Finding, Snapshot, Source};
use rustc_hash::{FxHashMap, FxHashSet};
use std::net::IpAddr;
use std::sync::Arc;

/// A Service, as read.
#[derive(Clone, PartialEq, Debug)]
pub struct DescribedService {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    form: ServiceForm,
    /// Cluster, external and load-balancer addresses.
    pub(crate) addresses: Vec<IpAddr>,
    /// How many of them, the first, are the cluster's.
    own: usize,
    ports: Vec<DescribedPort>,
    pub(crate) selector: Selector,
    pub(crate) source: Option<Source>,
}

#[derive(Clone, PartialEq, Debug)]
struct DescribedPort {
    name: Option<Arc<str>>,
    protocol: Protocol,
    port: u16,
    node_port: Option<u16>,
    target: Option<IntOrString>,
}

impl DescribedService {
    /// The addresses that the cluster gave it.
    pub fn cluster_addresses(&self) -> &[IpAddr] {
        &self.addresses[..self.own]
    }

    pub(crate) fn is_api_server(&self) -> bool {
        (&*self.namespace, &*self.name) == API_SERVER
    }
}

/// S7.3.
const API_SERVER: (&str, &str) = ("default", "kubernetes");

/// Endpoints of a Service, as an object lists them.
#[derive(Clone, PartialEq, Debug)]
pub struct Endpoints {
    pub(crate) namespace: Arc<str>,
    pub service: Arc<str>,
    pub addresses: Vec<IpAddr>,
    /// Name, protocol, number: at each of the addresses.
    pub ports: Vec<(Option<Box<str>>, Protocol, u16)>,
}

impl Endpoints {
    pub(crate) fn is_api_server(&self) -> bool {
        (&*self.namespace, &*self.service) == API_SERVER
    }
}

/// Where a Service's connections go.
pub(crate) enum Behind<'a> {
    /// As objects list it.
    Listed(Vec<&'a Endpoints>),
    /// Without such objects: the pods and templates that its selector selects, if it has one.
    Selected(Vec<WorkloadId>),
}

pub(crate) fn read_service(document: &Document, findings: &mut Vec<Finding>) -> DescribedService {
    let mut scope = Scope::new(document, findings);
    let spec = service_spec(&mut scope);
    let balanced: Vec<LoadBalancerIngress> =
        scope.read_items(scope.node(&["status", "loadBalancer", "ingress"]), "status.loadBalancer.ingress");
    let balanced = balanced.iter().filter_map(|ingress| ingress.ip.as_ref());
    let mut addresses: Vec<IpAddr> = Vec::new();
    let mut take = |text: &String| {
        if text.is_empty() || text == "None" {
            return;
        }
        if let Some(address) = parts::address(&mut scope, text, "spec.clusterIP")
            && !addresses.contains(&address)
        {
            addresses.push(address);
        }
    };
    spec.cluster_ip.iter().chain(&spec.cluster_ips).for_each(&mut take);
    spec.external_ips.iter().chain(balanced).for_each(&mut take);
    let own = spec.cluster_ip.iter().chain(&spec.cluster_ips).filter_map(|text| text.parse::<IpAddr>().ok());
    let own: FxHashSet<IpAddr> = own.collect();
    let own = addresses.iter().take_while(|address| own.contains(address)).count();
    let form = form(&mut scope, &spec);
    let mut ports = Vec::new();
    for (at, port) in spec.ports.iter().enumerate() {
        let path = format!("spec.ports[{at}].protocol");
        let Some(protocol) = parts::protocol(&mut scope, port.protocol.as_deref(), &path) else { continue };
        ports.push(DescribedPort {
            name: port.name.as_deref().map(Into::into),
            protocol,
            port: port.port,
            node_port: port.node_port,
            target: port.target_port.clone(),
        });
    }
    let requirements = spec.selector.iter();
    let selector = Selector {
        requirements: requirements
            .map(|(key, value)| Requirement::In { key: key.as_str().into(), values: vec![value.as_str().into()] })
            .collect(),
    };
    DescribedService {
        namespace: scope.namespace().into(),
        name: scope.meta.name.as_str().into(),
        form,
        addresses,
        own,
        ports,
        selector,
        source: scope.place(""),
    }
}

/// S10.4: a Service without a cluster address is one that is not applied yet, not a headless one.
fn form(scope: &mut Scope<'_>, spec: &ServiceSpec) -> ServiceForm {
    if spec.kind.as_deref() == Some("ExternalName") {
        let written = spec.external_name.as_deref().unwrap_or_default();
        match written.parse() {
            Ok(name) => return ServiceForm::ExternalName(name),
            Err(error) => {
                scope.error("bad-name", "spec.externalName", format!("`{written}` is not a DNS name: {error}"));
                // It leads nowhere.
                return ServiceForm::Headless;
            }
        }
    }
    let mut addresses = spec.cluster_ip.iter().chain(&spec.cluster_ips);
    if addresses.any(|text| text == "None") { ServiceForm::Headless } else { ServiceForm::Balanced }
}

/// None if it is of no Service.
pub(crate) fn read_slice(document: &Document, findings: &mut Vec<Finding>) -> Option<Endpoints> {
    let mut scope = Scope::new(document, findings);
    let endpoints: Vec<SliceEndpoint> = scope.read_items(document.node.get("endpoints"), "endpoints");
    let ports: Vec<EndpointPort> = scope.read_items(document.node.get("ports"), "ports");
    let service = scope.meta.labels.get("kubernetes.io/service-name").cloned()?;
    let addresses = endpoints.iter().flat_map(|endpoint| &endpoint.addresses).map(String::as_str);
    Some(endpoints_of(&mut scope, &service, (addresses, &ports)))
}

fn endpoints_of<'t>(
    scope: &mut Scope<'_>,
    service: &str,
    (addresses, ports): (impl Iterator<Item = &'t str>, &[EndpointPort]),
) -> Endpoints {
    let addresses = addresses.filter_map(|text| parts::address(scope, text, "endpoints")).collect();
    let mut known = Vec::new();
    for port in ports {
        let protocol = parts::protocol(scope, port.protocol.as_deref(), "ports");
        if let (Some(protocol), Some(number)) = (protocol, port.port) {
            let name = port.name.as_deref().filter(|name| !name.is_empty()).map(Into::into);
            known.push((name, protocol, number));
        }
    }
    Endpoints { namespace: scope.namespace().into(), service: service.into(), addresses, ports: known }
}

impl Lowering<'_> {
    pub(super) fn services(&mut self, sorted: &Sorted<'_>) {
        let all = self.endpoints(sorted);
        let mut listed: FxHashMap<(&str, &str), Vec<&Endpoints>> = FxHashMap::default();
        for endpoints in &all {
            listed.entry((&endpoints.namespace, &endpoints.service)).or_default().push(endpoints);
        }
        self.out.snapshot.api_server = self.settings.api_server.clone();
        for endpoints in listed.get(&API_SERVER).into_iter().flatten() {
            add_api_server(&mut self.out.snapshot, &endpoints.addresses);
        }
        for document in sorted.of(Reader::Service) {
            let service = read_service(document, &mut self.out.findings);
            let behind = match listed.get(&(&*service.namespace, &*service.name)) {
                Some(endpoints) => Behind::Listed(endpoints.clone()),
                None => Behind::Selected(self.by_namespace.get(&service.namespace).cloned().unwrap_or_default()),
            };
            let snapshot = &mut self.out.snapshot;
            if service.is_api_server() {
                add_api_server(snapshot, &service.addresses);
            }
            let service = service_of(snapshot, &service, &behind);
            snapshot.services.push(service);
        }
    }

    fn endpoints(&mut self, sorted: &Sorted<'_>) -> Vec<Endpoints> {
        let findings = &mut self.out.findings;
        let slices = sorted.of(Reader::EndpointSlice).iter();
        let mut all: Vec<Endpoints> = slices.filter_map(|document| read_slice(document, findings)).collect();
        for document in sorted.of(Reader::Endpoints) {
            let mut scope = Scope::new(document, findings);
            let subsets: Vec<EndpointSubset> = scope.read_items(document.node.get("subsets"), "subsets");
            let service = scope.meta.name.clone();
            if subsets.is_empty() {
                // It lists that there are none.
                all.push(endpoints_of(&mut scope, &service, (std::iter::empty(), &[])));
            }
            for subset in &subsets {
                let addresses = subset.addresses.iter().map(|address| address.ip.as_str());
                all.push(endpoints_of(&mut scope, &service, (addresses, &subset.ports)));
            }
        }
        all
    }
}

/// S7.3: the Service's own addresses, and those of its endpoints.
pub(crate) fn add_api_server(snapshot: &mut Snapshot, addresses: &[IpAddr]) {
    let known = &mut snapshot.api_server;
    let mut seen: FxHashSet<IpAddr> = known.iter().copied().collect();
    known.extend(addresses.iter().filter(|address| seen.insert(**address)));
}

/// The Service that was described, and where it leads.
pub(crate) fn service_of(snapshot: &mut Snapshot, service: &DescribedService, behind: &Behind<'_>) -> Service {
    let namespace = snapshot.ensure_namespace(&service.namespace);
    let ports = service.ports.iter().map(|port| ServicePort {
        name: port.name.clone(),
        protocol: port.protocol,
        port: port.port,
        node_port: port.node_port,
        backends: match behind {
            Behind::Listed(endpoints) => listed_backends(endpoints, port),
            Behind::Selected(pods) => selected_backends(snapshot, pods, (&service.selector, port)),
        },
    });
    Service {
        namespace,
        name: service.name.clone(),
        form: service.form.clone(),
        addresses: service.addresses.clone(),
        ports: ports.collect(),
        source: service.source.clone(),
    }
}

fn listed_backends(endpoints: &[&Endpoints], port: &DescribedPort) -> Vec<Backend> {
    let mut seen: FxHashSet<(IpAddr, u16)> = FxHashSet::default();
    let mut backends = Vec::new();
    for listed in endpoints {
        let is_meant = |(name, protocol, _): &&(Option<Box<str>>, Protocol, u16)| {
            name.as_deref().unwrap_or_default() == port.name.as_deref().unwrap_or_default()
                && *protocol == port.protocol
        };
        for &address in &listed.addresses {
            for &(_, _, number) in listed.ports.iter().filter(is_meant) {
                if seen.insert((address, number)) {
                    backends.push(Backend { target: BackendTarget::Address(address), port: number });
                }
            }
        }
    }
    backends
}

fn selected_backends(
    snapshot: &Snapshot,
    pods: &[WorkloadId],
    (selector, port): (&Selector, &DescribedPort),
) -> Vec<Backend> {
    if selector.is_everything() {
        return Vec::new();
    }
    let mut backends = Vec::new();
    for &id in pods {
        let workload = snapshot.workload(id);
        if !selector.matches(&snapshot.role(workload.role).labels) {
            continue;
        }
        let number = match &port.target {
            None => Some(port.port),
            Some(IntOrString::Int(number)) => u16::try_from(*number).ok(),
            Some(IntOrString::String(name)) => port_named(&workload.ports, name, port.protocol),
        };
        if let Some(port) = number {
            backends.push(Backend { target: BackendTarget::Workload(id), port });
        }
    }
    backends
}

/// Piece by piece: a bad port must not lose the Service's addresses.
fn service_spec(scope: &mut Scope<'_>) -> ServiceSpec {
    ServiceSpec {
        kind: scope.read_part(scope.node(&["spec", "type"]), "spec.type"),
        external_name: scope.read_part(scope.node(&["spec", "externalName"]), "spec.externalName"),
        cluster_ip: scope.read_part(scope.node(&["spec", "clusterIP"]), "spec.clusterIP"),
        cluster_ips: scope.read_items(scope.node(&["spec", "clusterIPs"]), "spec.clusterIPs"),
        external_ips: scope.read_items(scope.node(&["spec", "externalIPs"]), "spec.externalIPs"),
        selector: scope.read_part(scope.node(&["spec", "selector"]), "spec.selector"),
        ports: scope.read_items(scope.node(&["spec", "ports"]), "spec.ports"),
    }
}
