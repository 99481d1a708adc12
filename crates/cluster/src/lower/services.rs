//! Services and where their connections go after DNAT, and from them the
//! addresses of the API server.

use super::sort::Sorted;
use super::workloads::port_named;
use super::{Lowering, Settings};
use crate::kinds::meta::IntOrString;
use crate::kinds::{self, read_endpoints, read_service, read_slice};
use namewall_policy::labels::Selector;
use namewall_policy::model::{Backend, BackendTarget, ServedAddress, Service, ServiceForm, ServicePort, WorkloadId};
use namewall_policy::port::{Protocol, TransportPort};
use namewall_policy::{Snapshot, Source};
use rustc_hash::{FxHashMap, FxHashSet};
use std::net::IpAddr;
use std::sync::Arc;

/// A Service, as read.
#[derive(Clone, PartialEq, Debug)]
pub struct DescribedService {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) form: ServiceForm,
    /// Cluster, external and load-balancer addresses.
    pub(crate) addresses: Vec<IpAddr>,
    /// How many of them, the first, are the cluster's.
    pub(crate) own: usize,
    /// Those of them that no node translates (`ipMode: Proxy`).
    pub(crate) proxied: Vec<IpAddr>,
    pub(crate) ports: Vec<DescribedPort>,
    pub(crate) selector: Selector,
    pub(crate) source: Option<Source>,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct DescribedPort {
    pub(crate) name: Option<Arc<str>>,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
    pub(crate) node_port: Option<u16>,
    pub(crate) target: Option<IntOrString>,
}

impl DescribedService {
    /// The addresses that the cluster gave it.
    pub fn cluster_addresses(&self) -> &[IpAddr] {
        &self.addresses[..self.own]
    }

    pub(crate) fn is_api_server(&self) -> bool {
        (&*self.namespace, &*self.name) == API_SERVER
    }

    /// Its addresses, with its ports.
    pub(crate) fn served(&self) -> Vec<ServedAddress> {
        let ports = self.ports.iter().map(|port| TransportPort { protocol: port.protocol, port: port.port });
        served(&self.addresses, ports.collect(), SERVICE_PORT)
    }
}

/// S7.3.
const API_SERVER: (&str, &str) = ("default", "kubernetes");
/// The port of the Service, if it lists none.
const SERVICE_PORT: u16 = 443;
/// The port of the API server itself, where none is given.
pub const API_SERVER_PORT: u16 = 6443;

/// Endpoints of a Service, as an object lists them.
#[derive(Clone, PartialEq, Debug)]
pub struct Endpoints {
    pub(crate) namespace: Arc<str>,
    pub service: Arc<str>,
    /// Ready or not: a connection to one that is not ready is a connection to the Service's pods too.
    pub addresses: Vec<IpAddr>,
    /// Those of the addresses that are not ready to answer.
    pub unready: Vec<IpAddr>,
    /// Name, protocol, number: at each of the addresses.
    pub ports: Vec<(Option<Box<str>>, Protocol, u16)>,
}

impl Endpoints {
    pub(crate) fn is_api_server(&self) -> bool {
        (&*self.namespace, &*self.service) == API_SERVER
    }

    /// Its addresses, with its ports.
    pub(crate) fn served(&self) -> Vec<ServedAddress> {
        let ports = self.ports.iter().map(|&(_, protocol, port)| TransportPort { protocol, port });
        served(&self.addresses, ports.collect(), API_SERVER_PORT)
    }
}

/// Where a Service's connections go.
pub(crate) enum Behind<'a> {
    /// As objects list it.
    Listed(Vec<&'a Endpoints>),
    /// Without such objects: the pods and templates that its selector selects, if it has one.
    Selected(Vec<WorkloadId>),
}

impl Lowering<'_> {
    pub(super) fn services(&mut self, sorted: &Sorted<'_>) {
        let all = self.endpoints(sorted);
        let mut listed: FxHashMap<(&str, &str), Vec<&Endpoints>> = FxHashMap::default();
        for endpoints in &all {
            listed.entry((&endpoints.namespace, &endpoints.service)).or_default().push(endpoints);
        }
        add_api_server(&mut self.out.snapshot, self.settings.served());
        for endpoints in listed.get(&API_SERVER).into_iter().flatten() {
            add_api_server(&mut self.out.snapshot, endpoints.served());
        }
        for document in sorted.of(&kinds::SERVICE) {
            let service = read_service(document, &mut self.out.findings);
            let behind = match listed.get(&(&*service.namespace, &*service.name)) {
                Some(endpoints) => Behind::Listed(endpoints.clone()),
                None => Behind::Selected(self.by_namespace.get(&service.namespace).cloned().unwrap_or_default()),
            };
            let snapshot = &mut self.out.snapshot;
            if service.is_api_server() {
                add_api_server(snapshot, service.served());
            }
            let service = service_of(snapshot, &service, &behind);
            snapshot.services.push(service);
        }
    }

    fn endpoints(&mut self, sorted: &Sorted<'_>) -> Vec<Endpoints> {
        let findings = &mut self.out.findings;
        let slices = sorted.of(&kinds::ENDPOINT_SLICE);
        let mut all: Vec<Endpoints> = slices.filter_map(|document| read_slice(document, findings)).collect();
        all.extend(sorted.of(&kinds::ENDPOINTS).flat_map(|document| read_endpoints(document, findings)));
        all
    }
}

/// S7.3: where the API server is asked, each once.
pub(crate) fn add_api_server(snapshot: &mut Snapshot, served: Vec<ServedAddress>) {
    let known = &mut snapshot.api_server;
    let mut seen: FxHashSet<ServedAddress> = known.iter().copied().collect();
    known.extend(served.into_iter().filter(|one| seen.insert(*one)));
}

impl Settings {
    pub(super) fn served(&self) -> Vec<ServedAddress> {
        let tcp = |port| TransportPort { protocol: Protocol::Tcp, port };
        self.api_server.iter().map(|at| ServedAddress { address: at.ip(), port: tcp(at.port()) }).collect()
    }
}

/// Each of the addresses with each of the ports; with the usual port if none is listed.
fn served(addresses: &[IpAddr], mut ports: Vec<TransportPort>, usual: u16) -> Vec<ServedAddress> {
    if ports.is_empty() {
        ports.push(TransportPort { protocol: Protocol::Tcp, port: usual });
    }
    let at = |address: &IpAddr| ports.iter().map(|&port| ServedAddress { address: *address, port }).collect::<Vec<_>>();
    addresses.iter().flat_map(at).collect()
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
            Behind::Selected(pods) => selected_backends(snapshot, pods, &service.selector, port),
        },
    });
    Service {
        namespace,
        name: service.name.clone(),
        form: service.form.clone(),
        addresses: service.addresses.clone(),
        external: service.addresses[service.own..].to_vec(),
        proxied: service.proxied.clone(),
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
    selector: &Selector,
    port: &DescribedPort,
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
