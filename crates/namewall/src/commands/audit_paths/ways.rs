//! Every way to a destination, each judged by the Program that is enforced.

use super::destination::{Place, Spot};
use super::path::{Found, Outcome, Path, Paths, Way};
use crate::input::{FOREVER, Loaded, NOW};
use anyhow::Result;
use namewall_policy::addr::{next_address, parse_address};
use namewall_policy::ask::{Host, Target, World};
use namewall_policy::domain::{DomainPattern, PatternId};
use namewall_policy::explain::describe_reason;
use namewall_policy::lease::LeaseTable;
use namewall_policy::model::{BackendTarget, Node, Service, ServiceForm, ServiceId, ServicePort, WorkloadId};
use namewall_policy::port::{Protocol, Traffic, TransportPort};
use namewall_policy::reach::{Groups, Matrix, Reach};
use namewall_policy::unknown::Described;
use namewall_policy::{Endpoint, Flow, Lease, Prediction, evaluate};
use std::net::IpAddr;

/// Clients outside, one of which nobody in the cluster has.
const OUTSIDE: [&str; 6] =
    ["203.0.113.254", "198.51.100.254", "192.0.2.254", "2001:db8:ffff::fffe", "3fff::fffe", "2001:db8::fffe"];
/// Ports that say the most in an answer.
const COMMON: [u16; 6] = [443, 80, 22, 53, 6443, 10250];

pub(super) struct Audit<'a> {
    loaded: &'a Loaded,
    place: &'a Place,
    matrix: Matrix<'a>,
    groups: Groups,
    paths: Paths,
}

/// Where connections come from.
struct Source {
    /// As it is shown.
    name: String,
    hosts: Vec<Host>,
    ends: Vec<Endpoint>,
    workload: Option<WorkloadId>,
}

impl<'a> Audit<'a> {
    pub(super) fn new(loaded: &'a Loaded, place: &'a Place) -> Self {
        let matrix = loaded.matrix();
        let groups = Groups::by_workload(&matrix);
        Self { loaded, place, matrix, groups, paths: Paths::default() }
    }

    pub(super) fn run(mut self) -> Result<Vec<Path>> {
        let place = self.place;
        let (pods, on_hosts) = self.sources();
        for source in &pods {
            self.direct(source);
            self.by_name(source);
        }
        for source in on_hosts {
            let by = "a pod on its node's network cannot be told from the node, and no policy applies to it";
            let found = Found::new(Way::HostNetwork, Outcome::OutOfReach, by.to_owned());
            for spot in &place.spots {
                self.paths.add(&source.name, &found, spot.to_string());
            }
            if let Some(network) = place.network {
                self.paths.add(&source.name, &found, network.to_string());
            }
        }
        for at in 0..self.loaded.snapshot.services.len() {
            self.service(ServiceId(at as u32), &pods)?;
        }
        Ok(self.paths.list())
    }

    fn world(&self) -> World<'a> {
        self.loaded.world()
    }

    /// Workloads by their network: the pods' own, and their nodes'.
    fn sources(&self) -> (Vec<Source>, Vec<Source>) {
        let snapshot = &self.loaded.snapshot;
        let sources = self.groups.iter().map(|(id, group)| {
            let example = group.example();
            let workload = snapshot.workload(example);
            let source = Source {
                name: self.groups.name(snapshot, id),
                hosts: match workload.addresses.is_empty() {
                    false => workload.addresses.iter().map(|&address| Host::Address(address)).collect(),
                    true => vec![Host::Object {
                        namespace: snapshot.namespace(workload.namespace).name.to_string(),
                        kind: Some(workload.kind.name().to_owned()),
                        name: workload.name.to_string(),
                    }],
                },
                ends: self.loaded.program.endpoints(snapshot, example),
                workload: Some(example),
            };
            (workload.host_network, source)
        });
        let (on_hosts, pods): (Vec<_>, Vec<_>) = sources.partition(|(is_on_host, _)| *is_on_host);
        (pods.into_iter().map(|(_, source)| source).collect(), on_hosts.into_iter().map(|(_, source)| source).collect())
    }

    fn direct(&mut self, source: &Source) {
        let place = self.place;
        for spot in &place.spots {
            let to = spot.end(&self.loaded.program);
            if to.workload.is_some() && to.workload == source.workload {
                continue;
            }
            self.from_every_end(source, &to, spot);
        }
        let Some(example) = source.workload else { return };
        for outside in self.matrix.outside_to(example).iter() {
            let Some(blocks) = place.within(outside.range.first, outside.range.last) else { continue };
            // Within a range every address fares the same; those that somebody has are asked about above.
            let to = Endpoint { address: Some(blocks[0].address()), ..Endpoint::default() };
            let spot = Spot { address: blocks[0].address(), port: None };
            let Some(from) = source.ends.iter().find(|from| same_family(from, &to)) else { continue };
            for found in self.judged(&Way::Direct, from, &to, &spot.asked()) {
                blocks.iter().for_each(|block| self.paths.add(&source.name, &found, block.to_string()));
            }
        }
    }

    /// A pod's first address of a family is the cluster's network; others are those of further networks.
    fn from_every_end(&mut self, source: &Source, to: &Endpoint, spot: &Spot) {
        let ends = source.ends.iter().filter(|from| same_family(from, to));
        for (at, from) in ends.enumerate() {
            let way = if at == 0 { Way::Direct } else { Way::SecondInterface };
            for found in self.judged(&way, from, to, &spot.asked()) {
                self.paths.add(&source.name, &found, spot.to_string());
            }
        }
    }

    /// What is open, what depends on something, and what is closed, each with its reason.
    fn judged(&self, way: &Way, from: &Endpoint, to: &Endpoint, asked: &Traffic) -> Vec<Found> {
        let reach = self.loaded.reach();
        let reachable = reach.between(from, to).limit(asked);
        let parts = [
            (Outcome::Open, reachable.open.clone()),
            (Outcome::Depends, reachable.depends()),
            (Outcome::Closed, asked.subtract(&reachable.possible)),
        ];
        let found = parts.into_iter().filter(|(_, part)| !part.is_none()).map(|(outcome, part)| {
            let mut found = Found::new(way.clone(), outcome, String::new());
            if outcome == Outcome::Depends {
                let World { snapshot, program, .. } = self.world();
                let conditions = reach.depends_on(from, to, asked);
                found.depends_on = conditions.iter().map(|one| one.describe(snapshot, program)).collect();
                found.by = Described::join(&found.depends_on);
            } else {
                let TransportPort { protocol, port } = sample(&part);
                let (from, to) = (from.clone(), to.clone());
                found.by = self.reason(&Flow { from, to, protocol, port, via: None, hop: None });
            }
            found.connections = Some(part);
            found
        });
        found.collect()
    }

    fn reason(&self, flow: &Flow) -> String {
        let World { snapshot, program, leases, .. } = self.world();
        describe_reason(snapshot, program, &evaluate(program, leases, flow, NOW).reason, flow)
    }

    /// Rules by name that open it, should an answer point there.
    fn by_name(&mut self, source: &Source) {
        let (loaded, place) = (self.loaded, self.place);
        let (Some(example), program) = (source.workload, &loaded.program) else { return };
        let names = program.names_of(program.member(example).class);
        let patterns: Vec<&DomainPattern> = names.iter().map(|id| program.patterns.get(PatternId(id as u32))).collect();
        if patterns.is_empty() {
            return;
        }
        let refusal = |address: IpAddr| -> Option<String> {
            let all = patterns.iter().map(|pattern| loaded.never_leased(&pattern.example(), address));
            all.collect::<Option<Vec<String>>>()?.into_iter().next()
        };
        for spot in &place.spots {
            match refusal(spot.address) {
                Some(refusal) => {
                    let by = format!("no answer opens it: {refusal}");
                    let found = Found::new(Way::Name, Outcome::Closed, by);
                    self.paths.add(&source.name, &found, spot.to_string());
                }
                None => self.opened_by_name(source, &patterns, spot),
            }
        }
        let Some(network) = place.network else { return };
        for outside in self.matrix.outside_to(example).iter() {
            let blocks = place.within(outside.range.first, outside.range.last).unwrap_or_default();
            // Within a range every address fares the same, but for those that are never leased.
            let addresses = blocks.iter().flat_map(|block| [Some(block.address()), next_address(block.address())]);
            let inside = addresses.flatten().filter(|address| network.contains(*address));
            if let Some(address) = inside.into_iter().find(|address| refusal(*address).is_none()) {
                let spot = Spot { address, port: None };
                self.opened_by_name(source, &patterns, &spot);
            }
        }
    }

    fn opened_by_name(&mut self, source: &Source, patterns: &[&DomainPattern], spot: &Spot) {
        let program = &self.loaded.program;
        let to = spot.end(program);
        let Some(from) = source.ends.iter().find(|from| same_family(from, &to)) else { return };
        if to.workload.is_some() && to.workload == source.workload {
            return;
        }
        let without = self.loaded.reach().between(from, &to).limit(&spot.asked());
        for &pattern in patterns {
            let mut leases = LeaseTable::default();
            let (pattern, name) = (pattern.clone(), pattern.example());
            let by = format!("open if an answer for {pattern} points there");
            leases.grant(Lease { pattern, name, address: spot.address, expiry: FOREVER, asked_by: None });
            let with = Reach { program, leases: &leases, now: NOW }.between(from, &to).limit(&spot.asked());
            let more = with.possible.subtract(&without.open);
            if !more.is_none() {
                let found = Found { connections: Some(more), ..Found::new(Way::Name, Outcome::Depends, by) };
                // Of a network, addresses that nobody has stand for others.
                let is_known = self.place.spots.contains(spot);
                let label = self
                    .place
                    .network
                    .filter(|_| !is_known)
                    .map_or_else(|| spot.to_string(), |network| network.to_string());
                self.paths.add(&source.name, &found, label);
            }
        }
    }

    fn service(&mut self, id: ServiceId, pods: &[Source]) -> Result<()> {
        let loaded = self.loaded;
        let snapshot = &loaded.snapshot;
        let service = &snapshot.services[id.index()];
        let name = format!("{}/{}", snapshot.namespace(service.namespace).name, service.name);
        if let ServiceForm::ExternalName(target) = &service.form {
            let known = loaded.names.get(target).into_iter().flatten();
            let led: Vec<IpAddr> = known.copied().filter(|address| self.place.contains(*address)).collect();
            let by = format!("its name is an alias of {target}: a connection through it is a direct one");
            let found = Found::new(Way::ExternalName(name), Outcome::AsDirect, by);
            for source in pods {
                led.iter().for_each(|address| self.paths.add(&source.name, &found, address.to_string()));
            }
            return Ok(());
        }
        let ports: Vec<&ServicePort> = service.ports.iter().filter(|port| self.leads_here(port)).collect();
        for port in ports {
            let entries = Entry::all(service, port, &snapshot.nodes);
            for entry in entries {
                let outside = self.outside(entry.address);
                let is_open_outside = entry.address.is_some();
                for source in pods.iter().chain(outside.as_ref().filter(|_| is_open_outside)) {
                    self.enter(Door { service: id, name: &name, port, entry: &entry }, source)?;
                }
            }
        }
        Ok(())
    }

    fn leads_here(&self, port: &ServicePort) -> bool {
        let snapshot = &self.loaded.snapshot;
        port.backends.iter().any(|backend| {
            let at = TransportPort { protocol: port.protocol, port: backend.port };
            let addresses = match backend.target {
                BackendTarget::Address(address) => vec![address],
                BackendTarget::Workload(id) => snapshot.workload(id).addresses.to_vec(),
            };
            addresses.into_iter().any(|address| self.place.has(address, at))
        })
    }

    /// A client outside, of the family of the address.
    fn outside(&self, address: Option<IpAddr>) -> Option<Source> {
        let address = address?;
        let program = &self.loaded.program;
        let is_free = |one: &IpAddr| {
            one.is_ipv4() == address.is_ipv4()
                && program.endpoint_at(*one).node.is_none()
                && program.pod_at(*one).is_none()
        };
        let free = || OUTSIDE.iter().filter_map(|text| parse_address(text)).filter(is_free);
        let client = free().find(|one| !self.place.contains(*one)).or_else(|| free().next())?;
        let ends = vec![program.endpoint_at(client)];
        Some(Source { name: "outside".to_owned(), hosts: vec![Host::Address(client)], ends, workload: None })
    }

    fn enter(&mut self, door: Door<'_>, source: &Source) -> Result<()> {
        let world = self.world();
        let Door { service, name, port, entry } = door;
        let target = Target { host: entry.host(name), protocol: port.protocol, port: Some(entry.port) };
        let mut flows = Vec::new();
        for host in &source.hosts {
            flows.extend(world.routes(host, &target)?.into_iter().flat_map(|route| route.flows));
        }
        for flow in flows {
            let Some(address) = flow.to.address else { continue };
            let at = TransportPort { protocol: flow.protocol, port: flow.port };
            let is_entered = entry.address.is_none_or(|entry| entry.is_ipv4() == address.is_ipv4());
            let is_this = flow.via.is_none_or(|via| via == service) && same_family(&flow.from, &flow.to) && is_entered;
            if !is_this || !self.place.has(address, at) {
                continue;
            }
            let outlook = world.reach().predict(&flow);
            let way = entry.way(&door, source.workload.map(|_| flow.hop.is_some()));
            let found = match outlook.prediction {
                Prediction::Allow => Found::new(way, Outcome::Open, self.reason(&flow)),
                Prediction::Deny => Found::new(way, Outcome::Closed, self.reason(&flow)),
                Prediction::Depends => {
                    let depends_on = world.describe(outlook.depends_on);
                    let by = Described::join(&depends_on);
                    Found { depends_on, ..Found::new(way, Outcome::Depends, by) }
                }
            };
            let to = Spot { address, port: None };
            self.paths.add(&source.name, &found, format!("{to} port {}/{}", flow.port, flow.protocol));
        }
        Ok(())
    }
}

/// A way into a Service.
#[derive(Clone, Copy)]
struct Door<'a> {
    service: ServiceId,
    name: &'a str,
    port: &'a ServicePort,
    entry: &'a Entry,
}

/// Where a Service's port is entered.
struct Entry {
    /// None for one without addresses: its name leads to its backends.
    address: Option<IpAddr>,
    port: u16,
    is_node_port: bool,
}

impl Entry {
    fn all(service: &Service, port: &ServicePort, nodes: &[Node]) -> Vec<Self> {
        if service.form == ServiceForm::Headless {
            let mut numbers: Vec<u16> = port.backends.iter().map(|backend| backend.port).collect();
            numbers.dedup();
            return numbers.into_iter().map(|port| Self { address: None, port, is_node_port: false }).collect();
        }
        let own = service.addresses.iter().map(|&address| (Some(address), port.port, false));
        let on_nodes = port.node_port.into_iter().flat_map(|number| {
            let addresses = nodes.iter().flat_map(|node| &node.addresses);
            addresses.map(move |&address| (Some(address), number, true))
        });
        own.chain(on_nodes).map(|(address, port, is_node_port)| Self { address, port, is_node_port }).collect()
    }

    fn host(&self, name: &str) -> Host {
        match self.address {
            Some(address) => Host::Address(address),
            None => {
                let (namespace, name) = name.split_once('/').unwrap_or_default();
                Host::Object {
                    namespace: namespace.to_owned(),
                    kind: Some("Service".to_owned()),
                    name: name.to_owned(),
                }
            }
        }
    }

    /// `from_elsewhere` is whether a pod on another node comes in; None from outside.
    fn way(&self, door: &Door<'_>, from_elsewhere: Option<bool>) -> Way {
        let (name, protocol) = (door.name.to_owned(), door.port.protocol);
        match self.address {
            None => Way::Headless(name),
            Some(_) if self.is_node_port => {
                let nodes = match from_elsewhere {
                    None => "every node",
                    Some(false) => "the pod's own node",
                    Some(true) => "other nodes",
                };
                Way::NodePort(name, format!("{}/{protocol} of {nodes}", self.port))
            }
            Some(IpAddr::V4(address)) => Way::Service(name, format!("{address}:{}/{protocol}", self.port)),
            Some(IpAddr::V6(address)) => Way::Service(name, format!("[{address}]:{}/{protocol}", self.port)),
        }
    }
}

fn same_family(from: &Endpoint, to: &Endpoint) -> bool {
    match (from.address, to.address) {
        (Some(from), Some(to)) => from.is_ipv4() == to.is_ipv4(),
        _ => true,
    }
}

/// A connection that stands for all of them.
fn sample(traffic: &Traffic) -> TransportPort {
    for protocol in Protocol::WITH_PORTS {
        let has = |port: &u16| traffic.contains(protocol, *port);
        if let Some(port) = COMMON.into_iter().find(has).or_else(|| (1..=u16::MAX).find(has)) {
            return TransportPort { protocol, port };
        }
    }
    TransportPort { protocol: Protocol::Icmp, port: 0 }
}
