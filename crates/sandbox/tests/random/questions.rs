//! Every connection that can be tried in a cluster, as the core sees it and as
//! a client asks for it.

use super::world::PORTS;
use namewall_policy::model::{BackendTarget, ServiceId};
use namewall_policy::port::{Protocol, TransportPort};
use namewall_policy::{Endpoint, Flow, Program, Snapshot};
use namewall_sandbox::{Listen, ProbeSource, Sandbox};
use namewall_testbed::Dice;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) flow: Flow,
    pub(crate) asked: SocketAddr,
    pub(crate) from: ProbeSource,
}

/// What the ends of a cluster can ask of each other.
pub(crate) struct Asking<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) program: &'a Program,
    places: Vec<ProbeSource>,
}

impl<'a> Asking<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, program: &'a Program, sandbox: &Sandbox) -> Self {
        let place = |address| sandbox.place(address).expect("the topology's addresses are somebody's");
        Self { snapshot, program, places: sandbox.topology().addresses().map(place).collect() }
    }

    pub(crate) fn listens(&self) -> Vec<Listen> {
        let mut listens = Vec::new();
        for place in &self.places {
            for protocol in Protocol::WITH_PORTS {
                listens.extend(PORTS.map(|port| Listen { address: place.source, protocol, port }));
            }
        }
        listens
    }

    pub(crate) fn questions(&self, dice: &mut Dice) -> Vec<Question> {
        let mut questions = Vec::new();
        for (from, to) in self.pairs() {
            let left_out = dice.pick(&PORTS);
            let tcp = PORTS.into_iter().filter(|port| *port != left_out).map(|port| (Protocol::Tcp, port));
            let others = [Protocol::Udp, Protocol::Sctp].map(|protocol| (protocol, dice.pick(&PORTS)));
            for (protocol, port) in tcp.chain(others).chain([(Protocol::Icmp, 0)]) {
                let to = self.program.endpoint_at(to);
                questions.extend(self.question(from, to, TransportPort { protocol, port }));
            }
        }
        self.through_services(&mut questions);
        self.through_node_ports(&mut questions);
        questions
    }

    /// Whoever shares a namespace needs no network.
    fn pairs(&self) -> impl Iterator<Item = (&ProbeSource, IpAddr)> {
        let apart = |from: &ProbeSource, to: &ProbeSource| {
            from.source.is_ipv4() == to.source.is_ipv4() && !Arc::ptr_eq(&from.namespace, &to.namespace)
        };
        self.places
            .iter()
            .flat_map(move |from| self.places.iter().filter(move |to| apart(from, to)).map(move |to| (from, to.source)))
    }

    fn question(&self, from: &ProbeSource, to: Endpoint, port: TransportPort) -> Option<Question> {
        let TransportPort { protocol, port } = port;
        let asked = SocketAddr::new(to.address?, port);
        let flow = Flow {
            from: self.program.endpoint_at(from.source),
            to,
            protocol,
            port,
            via: None,
            hop: None,
            masker: None,
        };
        Some(Question { flow, asked, from: from.clone() })
    }

    fn through_services(&self, questions: &mut Vec<Question>) {
        for (at, service) in self.snapshot.services.iter().enumerate() {
            for (port, &address) in service.ports.iter().flat_map(|p| service.addresses.iter().map(move |a| (p, a))) {
                let found = port
                    .backends
                    .iter()
                    .find_map(|backend| Some((self.address_of(backend.target, address.is_ipv4())?, backend.port)));
                let Some((backend, backend_port)) = found else { continue };
                let to = self.program.endpoint_at(backend);
                let backend_port = TransportPort { protocol: port.protocol, port: backend_port };
                for from in self.places.iter().filter(|from| self.comes_as_itself(from.source, &to)) {
                    questions.extend(self.question(from, to.clone(), backend_port).map(|direct| Question {
                        flow: Flow { via: Some(ServiceId(at as u32)), ..direct.flow },
                        asked: SocketAddr::new(address, port.port),
                        ..direct
                    }));
                }
            }
        }
    }

    /// Node ports of nodes that the source is not on. The backend's node may see another source, and then what a pod
    /// lets in depends on that.
    fn through_node_ports(&self, questions: &mut Vec<Question>) {
        for (at, service) in self.snapshot.services.iter().enumerate() {
            for (port, node_port) in service.ports.iter().filter_map(|port| Some((port, port.node_port?))) {
                let nodes = self.snapshot.nodes.iter().flat_map(|node| &node.addresses);
                for &node in nodes.filter(|address| service.is_served_over(address.is_ipv4())) {
                    let behind = port.backends.iter();
                    let mut found =
                        behind.filter_map(|one| Some((self.address_of(one.target, node.is_ipv4())?, one.port)));
                    let Some((backend, backend_port)) = found.next() else { continue };
                    let to = self.program.endpoint_at(backend);
                    let backend_port = TransportPort { protocol: port.protocol, port: backend_port };
                    for from in self.places.iter().filter(|from| self.comes_as_itself(from.source, &to)) {
                        let Some(direct) = self.question(from, to.clone(), backend_port) else { continue };
                        let Some(hop) = self.program.hop_at(&direct.flow.from, node, node_port) else { continue };
                        questions.push(Question {
                            flow: Flow { via: Some(ServiceId(at as u32)), hop: Some(hop), ..direct.flow },
                            asked: SocketAddr::new(node, node_port),
                            ..direct
                        });
                    }
                }
            }
        }
    }

    fn address_of(&self, target: BackendTarget, is_ipv4: bool) -> Option<IpAddr> {
        let addresses = match target {
            BackendTarget::Address(address) => vec![address],
            BackendTarget::Workload(id) => self.snapshot.workload(id).addresses.to_vec(),
        };
        addresses.into_iter().find(|address| address.is_ipv4() == is_ipv4)
    }

    /// kube-proxy hides a node's further addresses behind its first, and a pod
    /// that calls itself by another address of its own is lost without us.
    fn comes_as_itself(&self, source: IpAddr, to: &Endpoint) -> bool {
        let Some(address) = to.address else { return false };
        let from = self.program.endpoint_at(source);
        let is_first = |node: &namewall_policy::model::Node| {
            node.addresses.iter().find(|address| address.is_ipv4() == source.is_ipv4()) == Some(&source)
        };
        let own = from.workload.is_some() && from.workload == to.workload;
        source.is_ipv4() == address.is_ipv4()
            && from.node.is_none_or(|node| is_first(self.snapshot.node(node)))
            && (!own || source == address)
    }
}
