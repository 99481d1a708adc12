//! Frontends that another node translates, and what the cluster gates of pods
//! deny behind them (S1.11): node ports, addresses of Services that are
//! themselves a backend of a Service, and addresses of load balancers outside
//! that no node translates (`ipMode: Proxy`).
//!
//! A pod's own node is the last that surely knows the pod: it may put its own
//! address in the place of the pod's. It does not know which backend the node
//! that is asked takes. So it asks the pod's cluster gates about every backend,
//! and one that is denied closes the frontend.
//!
//! ```text
//! pod on n1 ─► n1: may the pod reach n2:30080, and each backend of it? source is n1 now ─► n2: DNAT ─► a backend
//! ```
//! A backend may be a frontend again. What that leads to counts, too.
//!
//! Rules by name do not open a backend here: the packet does not carry its
//! address, so the kernel cannot look up a lease for it. A firewall that may be
//! for other nodes counts for a backend only where its first match denies.

use crate::evaluate::{Unwatched, Walk};
use crate::flow::{Cause, Endpoint, Flow};
use crate::lease::{Instant, LeaseTable};
use crate::model::{Backend, BackendTarget, Placement, PolicyId, Service};
use crate::port::{Protocol, Traffic};
use crate::program::{Plan, Program, RuleId};
use crate::snapshot::Snapshot;
use crate::unknown::Assumption;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// What is behind each frontend, and which frontends each cluster gate closes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodePorts {
    backends: Backends,
    /// The addresses of Services that are backends of Services.
    chained: BTreeSet<IpAddr>,
    denied: FxHashMap<GateKey, DeniedPorts>,
}

type Backends = BTreeMap<Frontend, Vec<(IpAddr, u16)>>;

/// Where a connection is translated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Frontend {
    pub at: FrontendAt,
    pub protocol: Protocol,
    pub port: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FrontendAt {
    /// A node port, over one version of IP.
    EveryNode { is_ipv4: bool },
    /// An address of a Service.
    Address(IpAddr),
}

impl FrontendAt {
    pub fn is_ipv4(self) -> bool {
        match self {
            Self::EveryNode { is_ipv4 } => is_ipv4,
            Self::Address(address) => address.is_ipv4(),
        }
    }
}

/// Why a frontend is closed: the first of its backends that is denied, and the rule that denies it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeniedBackend {
    pub rule: RuleId,
    pub address: IpAddr,
    pub port: u16,
}

pub type DeniedPorts = BTreeMap<Frontend, DeniedBackend>;

/// What was known before a change of pods alone.
pub(crate) struct Before<'a> {
    pub(crate) node_ports: &'a NodePorts,
    /// Addresses that changed pods have or had.
    pub(crate) touched: FxHashSet<IpAddr>,
}

impl Before<'_> {
    /// True if the frontend has the same backends, and each is the pod that it was.
    fn has_same(&self, at: Frontend, backends: &[(IpAddr, u16)]) -> bool {
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
    /// Computes the frontends of a Program that has all else. Where only pods have changed, no Service leads to others
    /// than before.
    pub(crate) fn new(snapshot: &Snapshot, program: &Program, before: Option<Before<'_>>) -> Self {
        let has_gates = snapshot.policies.iter().any(|one| matches!(one.placement, Placement::ClusterGate { .. }));
        if !has_gates {
            return Self::default();
        }
        let chained = match &before {
            Some(before) => before.node_ports.chained.clone(),
            None => chained(snapshot, program),
        };
        let backends = backends(snapshot, program, &chained);
        let mut ports = Self { backends, chained, denied: FxHashMap::default() };
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
        for (&at, backends) in &self.backends {
            let found = match known.filter(|(before, _)| before.has_same(at, backends)) {
                Some((_, known)) => known.get(&at).copied(),
                None => gate.first_denied(at, backends),
            };
            denied.extend(found.map(|found| (at, found)));
        }
        denied
    }

    /// The frontends that the cluster gate of a plan closes.
    pub(crate) fn denied(&self, plan: &Plan) -> Option<&DeniedPorts> {
        if plan.cluster_gate.is_empty() || self.denied.is_empty() {
            return None;
        }
        self.denied.get(&GateKey::new(plan)).filter(|denied| !denied.is_empty())
    }

    /// True if the same rules close the same frontends, whichever backend it is for.
    pub fn denies_as(&self, other: &Self) -> bool {
        let rules = |denied: &DeniedPorts| denied.iter().map(|(at, why)| (*at, why.rule)).collect::<Vec<_>>();
        let none = DeniedPorts::new();
        let agrees = |one: &Self, other: &Self| {
            one.denied.iter().all(|(gate, denied)| rules(denied) == rules(other.denied.get(gate).unwrap_or(&none)))
        };
        agrees(self, other) && agrees(other, self)
    }
}

/// The addresses of Services that are backends of Services.
fn chained(snapshot: &Snapshot, program: &Program) -> BTreeSet<IpAddr> {
    snapshot.services.iter().flat_map(|service| leads_on(program, service)).collect()
}

/// The backends of a Service that are addresses of Services.
pub(crate) fn leads_on<'a>(program: &'a Program, service: &'a Service) -> impl Iterator<Item = IpAddr> + 'a {
    let backends = service.ports.iter().flat_map(|port| &port.backends);
    backends.filter_map(|backend| match backend.target {
        BackendTarget::Address(address) => {
            let is_chained = program.pod_at(address).is_none() && program.service_addresses.contains(address);
            is_chained.then_some(address)
        }
        BackendTarget::Workload(_) => None,
    })
}

/// What is behind all node ports and all chained addresses, in the order of the Services.
fn backends(snapshot: &Snapshot, program: &Program, chained: &BTreeSet<IpAddr>) -> Backends {
    let mut direct = Backends::new();
    let ports = snapshot.services.iter().flat_map(|service| service.ports.iter().map(move |port| (service, port)));
    for (service, port) in ports {
        let is_frontend = |address: &&IpAddr| chained.contains(*address) || service.proxied.contains(address);
        let addresses = service.addresses.iter().filter(is_frontend);
        let by_address = addresses.map(|address| (FrontendAt::Address(*address), port.port));
        let versions = [true, false].into_iter().filter(|is_ipv4| service.is_served_over(*is_ipv4));
        let by_node = port
            .node_port
            .into_iter()
            .flat_map(|number| versions.clone().map(move |is_ipv4| (FrontendAt::EveryNode { is_ipv4 }, number)));
        for (at, number) in by_address.chain(by_node) {
            let known = direct.entry(Frontend { at, protocol: port.protocol, port: number }).or_default();
            let behind = port.backends.iter().flat_map(|one| target(snapshot, one).map(|address| (address, one.port)));
            // A load balancer may speak another version of IP to its backends than to its clients.
            let is_proxied = matches!(at, FrontendAt::Address(address) if service.proxied.contains(&address));
            known.extend(behind.filter(|(address, _)| is_proxied || address.is_ipv4() == at.is_ipv4()));
        }
    }
    let all = direct.keys().map(|frontend| (*frontend, all_behind(program, &direct, *frontend)));
    all.collect()
}

fn target<'a>(snapshot: &'a Snapshot, backend: &Backend) -> impl Iterator<Item = IpAddr> + 'a {
    let (one, several) = match backend.target {
        BackendTarget::Address(address) => (Some(address), None),
        BackendTarget::Workload(id) => (None, snapshot.workloads.get(id.index()).map(|pod| &*pod.addresses)),
    };
    one.into_iter().chain(several.into_iter().flatten().copied())
}

/// The backends of a frontend, and those of frontends among them.
fn all_behind(program: &Program, direct: &Backends, frontend: Frontend) -> Vec<(IpAddr, u16)> {
    let (mut seen, mut found, mut left) = (BTreeSet::from([frontend]), Vec::new(), vec![frontend]);
    while let Some(next) = left.pop() {
        for &(address, port) in direct.get(&next).into_iter().flatten() {
            found.push((address, port));
            let again = program.frontends_at(address).map(|at| Frontend { at, protocol: frontend.protocol, port });
            left.extend(again.filter(|one| direct.contains_key(one) && seen.insert(*one)));
        }
    }
    found
}

/// A cluster gate that is asked about backends.
struct Gate<'a> {
    program: &'a Program,
    plan: &'a Plan,
}

impl Gate<'_> {
    fn first_denied(&self, at: Frontend, backends: &[(IpAddr, u16)]) -> Option<DeniedBackend> {
        backends.iter().find_map(|&(address, port)| {
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
    /// Whether the cluster gate of a plan closes what is asked for here, as a frontend.
    pub(crate) fn denied_frontend(&self, plan: &Plan, flow: &Flow) -> Option<DeniedBackend> {
        let address = asked(&flow.to)?;
        let denied = self.node_ports.denied(plan)?;
        let (protocol, port) = (flow.protocol, flow.port);
        self.frontends_at(address).find_map(|at| denied.get(&Frontend { at, protocol, port }).copied())
    }

    /// All that it closes so at this end.
    pub(crate) fn denied_at(&self, plan: &Plan, to: &Endpoint) -> Traffic {
        let mut closed = Traffic::none();
        if let Some((address, denied)) = asked(to).zip(self.node_ports.denied(plan)) {
            for at in self.frontends_at(address) {
                for frontend in denied.keys().filter(|frontend| frontend.at == at) {
                    closed.insert(frontend.protocol, frontend.port, frontend.port);
                }
            }
        }
        closed
    }

    /// All frontends that the cluster gate of a plan closes.
    pub fn closed_frontends(&self, plan: &Plan) -> Option<&DeniedPorts> {
        self.node_ports.denied(plan)
    }

    /// As what an address may be translated: as itself and, if it is a node's, by node ports.
    fn frontends_at(&self, address: IpAddr) -> impl Iterator<Item = FrontendAt> {
        let is_ipv4 = address.is_ipv4();
        let of_node = self.is_node_address(address).then_some(FrontendAt::EveryNode { is_ipv4 });
        [FrontendAt::Address(address)].into_iter().chain(of_node)
    }
}

/// The address that is asked. One that only stands for others is no frontend.
fn asked(end: &Endpoint) -> Option<IpAddr> {
    end.address.filter(|_| !end.assumed)
}
