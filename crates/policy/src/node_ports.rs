//! Node ports, and what the cluster gates of pods deny behind them (S1.11).
//!
//! A pod's own node is the last that surely knows the pod: it may put its own
//! address in the place of the pod's. It does not know which backend the node
//! that is asked takes. So it asks the pod's cluster gates about every backend,
//! and one that is denied closes the node port.
//!
//! ```text
//! pod on n1 ─► n1: may the pod reach n2:30080, and each backend of it? source is n1 now ─► n2: DNAT ─► a backend
//! ```
//! Rules by name do not open a backend here: the packet does not carry its
//! address, so the kernel cannot look up a lease for it. A firewall that may be
//! for other nodes counts for a backend only where its first match denies.

use crate::evaluate::{Unwatched, Walk};
use crate::flow::{Cause, Endpoint, Flow};
use crate::lease::{Instant, LeaseTable};
use crate::model::{BackendTarget, Placement, PolicyId};
use crate::port::{Protocol, Traffic, TransportPort};
use crate::program::{Plan, Program, RuleId};
use crate::snapshot::Snapshot;
use crate::unknown::Assumption;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The backends behind each node port, and which node ports each cluster gate closes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodePorts {
    backends: BTreeMap<TransportPort, Vec<(IpAddr, u16)>>,
    denied: FxHashMap<GateKey, DeniedPorts>,
}

/// A node port, asked over one version of IP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NodePort {
    pub is_ipv4: bool,
    pub protocol: Protocol,
    pub port: u16,
}

/// Why a node port is closed: the first of its backends that is denied, and the rule that denies it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeniedBackend {
    pub rule: RuleId,
    pub address: IpAddr,
    pub port: u16,
}

pub type DeniedPorts = BTreeMap<NodePort, DeniedBackend>;

/// What was known before a change of pods alone.
pub(crate) struct Before<'a> {
    pub(crate) node_ports: &'a NodePorts,
    /// Addresses that changed pods have or had.
    pub(crate) touched: FxHashSet<IpAddr>,
}

impl Before<'_> {
    /// True if the node port has the same backends, and each is the pod that it was.
    fn has_same(&self, at: TransportPort, backends: &[(IpAddr, u16)]) -> bool {
        let known = self.node_ports.backends.get(&at).is_some_and(|known| known == backends);
        known && !backends.iter().any(|(address, _)| self.touched.contains(address))
    }
}

/// A cluster gate, as it counts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct GateKey {
    policies: Vec<PolicyId>,
    in_doubt: Vec<PolicyId>,
}

impl GateKey {
    fn new(plan: &Plan) -> Self {
        Self { policies: plan.cluster_gate.clone(), in_doubt: plan.in_doubt.clone() }
    }
}

impl NodePorts {
    /// Computes the node ports of a Program that has all else.
    pub(crate) fn new(snapshot: &Snapshot, program: &Program, before: Option<Before<'_>>) -> Self {
        let has_gates = snapshot.policies.iter().any(|one| matches!(one.placement, Placement::ClusterGate { .. }));
        if !has_gates {
            return Self::default();
        }
        let mut ports = Self { backends: backends(snapshot), denied: FxHashMap::default() };
        if ports.backends.is_empty() {
            return ports;
        }
        for class in program.classes.iter() {
            for plan in class.enforced.each().chain(class.audited.iter().flat_map(Plan::each)) {
                let key = GateKey::new(plan);
                if plan.cluster_gate.is_empty() || ports.denied.contains_key(&key) {
                    continue;
                }
                let known = before.as_ref().and_then(|before| Some((before, before.node_ports.denied.get(&key)?)));
                let denied = ports.denied_by(&Gate { program, plan }, known);
                ports.denied.insert(key, denied);
            }
        }
        ports
    }

    fn denied_by(&self, gate: &Gate<'_>, known: Option<(&Before<'_>, &DeniedPorts)>) -> DeniedPorts {
        let mut denied = DeniedPorts::new();
        for (&asked, backends) in &self.backends {
            for is_ipv4 in [true, false] {
                let at = NodePort { is_ipv4, protocol: asked.protocol, port: asked.port };
                let found = match known.filter(|(before, _)| before.has_same(asked, backends)) {
                    Some((_, known)) => known.get(&at).copied(),
                    None => gate.first_denied(at, backends),
                };
                denied.extend(found.map(|found| (at, found)));
            }
        }
        denied
    }

    /// The node ports that the cluster gate of a plan closes.
    pub(crate) fn denied(&self, plan: &Plan) -> Option<&DeniedPorts> {
        if plan.cluster_gate.is_empty() || self.denied.is_empty() {
            return None;
        }
        self.denied.get(&GateKey::new(plan)).filter(|denied| !denied.is_empty())
    }

    /// True if the same rules close the same node ports, whichever backend it is for.
    pub fn denies_as(&self, other: &Self) -> bool {
        let rules = |denied: &DeniedPorts| denied.iter().map(|(at, why)| (*at, why.rule)).collect::<Vec<_>>();
        let none = DeniedPorts::new();
        let agrees = |one: &Self, other: &Self| {
            one.denied.iter().all(|(gate, denied)| rules(denied) == rules(other.denied.get(gate).unwrap_or(&none)))
        };
        agrees(self, other) && agrees(other, self)
    }
}

/// The backends of all node ports, in the order of the Services.
fn backends(snapshot: &Snapshot) -> BTreeMap<TransportPort, Vec<(IpAddr, u16)>> {
    let mut all: BTreeMap<_, Vec<(IpAddr, u16)>> = BTreeMap::new();
    let ports = snapshot.services.iter().flat_map(|service| service.ports.iter().map(move |port| (service, port)));
    for (service, port) in ports {
        let Some(node_port) = port.node_port else { continue };
        let is_behind = |address: &IpAddr| service.is_served_over(address.is_ipv4());
        let known = all.entry(TransportPort { protocol: port.protocol, port: node_port }).or_default();
        for backend in &port.backends {
            match backend.target {
                BackendTarget::Address(address) => {
                    known.extend(Some(address).filter(is_behind).map(|address| (address, backend.port)));
                }
                BackendTarget::Workload(id) => {
                    let addresses = snapshot.workloads.get(id.index()).map(|pod| &*pod.addresses).unwrap_or_default();
                    let behind = addresses.iter().filter(|address| is_behind(address));
                    known.extend(behind.map(|&address| (address, backend.port)));
                }
            }
        }
    }
    all
}

/// A cluster gate that is asked about backends.
struct Gate<'a> {
    program: &'a Program,
    plan: &'a Plan,
}

impl Gate<'_> {
    fn first_denied(&self, at: NodePort, backends: &[(IpAddr, u16)]) -> Option<DeniedBackend> {
        let mut of_family = backends.iter().filter(|(address, _)| address.is_ipv4() == at.is_ipv4);
        of_family.find_map(|&(address, port)| {
            let to = self.program.endpoint_at(address);
            let flow =
                Flow { from: Endpoint::default(), to, protocol: at.protocol, port, via: None, hop: None, masker: None };
            let assumption = Assumption::default();
            let leases = LeaseTable::default();
            let walk =
                Walk { program: self.program, leases: &leases, flow: &flow, now: Instant::default(), assumption };
            match walk.cluster_gate(self.plan, &mut Unwatched) {
                Err((_, Cause::Rule(rule))) => Some(DeniedBackend { rule, address, port }),
                _ => None,
            }
        })
    }
}

impl Program {
    /// Whether the cluster gate of a plan closes what is asked for here, as a node port.
    pub(crate) fn denied_node_port(&self, plan: &Plan, flow: &Flow) -> Option<DeniedBackend> {
        let address = self.asked_node(&flow.to)?;
        let at = NodePort { is_ipv4: address.is_ipv4(), protocol: flow.protocol, port: flow.port };
        self.node_ports.denied(plan)?.get(&at).copied()
    }

    /// All that it closes so at this end.
    pub(crate) fn denied_node_ports(&self, plan: &Plan, to: &Endpoint) -> Traffic {
        let mut closed = Traffic::none();
        let denied = self.asked_node(to).zip(self.node_ports.denied(plan));
        if let Some((address, denied)) = denied {
            for at in denied.keys().filter(|at| at.is_ipv4 == address.is_ipv4()) {
                closed.insert(at.protocol, at.port, at.port);
            }
        }
        closed
    }

    /// All that the cluster gate of a plan closes at nodes.
    pub fn closed_node_ports(&self, plan: &Plan) -> Option<&DeniedPorts> {
        self.node_ports.denied(plan)
    }

    /// The address, if it is a node's. One that only stands for others is nobody's node port.
    fn asked_node(&self, end: &Endpoint) -> Option<IpAddr> {
        end.address.filter(|address| !end.assumed && self.is_node_address(*address))
    }
}
