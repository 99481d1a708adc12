//! Services that lead to a destination: at each of their addresses, at the node ports of every node, and by their names;
//! from pods and from outside.

use super::attack::Attempt;
use super::chains::PortRef;
use super::destination::Spot;
use super::path::{Found, Outcome, Way};
use super::trial::{Trial, Untried};
use super::ways::{Audit, Source, same_family};
use anyhow::Result;
use namewall_policy::ask::{Host, Route, Target};
use namewall_policy::model::{BackendTarget, Node, Service, ServiceForm, ServiceId, ServicePort};
use namewall_policy::port::TransportPort;
use std::net::IpAddr;

impl Audit<'_> {
    pub(super) fn service(&mut self, id: ServiceId, pods: &[Source]) -> Result<()> {
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
                for address in &led {
                    self.paths.add(&source.name, &found, Trial::Never(Untried::Alias).at(address));
                }
            }
            return Ok(());
        }
        for (at, port) in service.ports.iter().enumerate() {
            let chains = self.chains_from(PortRef { service: id, port: at });
            let is_way = self.leads_here(port);
            let entries =
                if is_way || !chains.is_empty() { Entry::all(service, port, &snapshot.nodes) } else { vec![] };
            for entry in entries {
                let outside = self.outside(entry.address);
                let is_open_outside = entry.address.is_some();
                let door = Door { service: id, name: &name, port, entry: &entry };
                for source in pods.iter().chain(outside.as_ref().filter(|_| is_open_outside)) {
                    if is_way {
                        self.enter(door, source)?;
                    }
                    for chain in &chains.found {
                        self.enter_chain(door, chain, source)?;
                    }
                    if chains.is_cut {
                        self.note_cut(door, source);
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn leads_here(&self, port: &ServicePort) -> bool {
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

    fn enter(&mut self, door: Door<'_>, source: &Source) -> Result<()> {
        let world = self.world();
        let Door { service, name, port, entry } = door;
        let target = Target { host: entry.host(name), protocol: port.protocol, port: Some(entry.port) };
        let mut flows = Vec::new();
        for host in &source.hosts {
            let routes = world.routes(host, &target)?;
            // To a load balancer outside, before what it passes on.
            let through_it = |route: &Route| route.flows.iter().any(|flow| flow.via == Some(service));
            let is_relayed = routes.iter().any(|route| route.relayed && through_it(route));
            let first = routes.first().and_then(|route| route.flows.first()).filter(|_| is_relayed).cloned();
            let all = routes.into_iter().flat_map(|route| route.flows);
            flows.extend(all.map(|flow| (host, first.clone(), flow)));
        }
        for (host, first, flow) in flows {
            let Some(address) = flow.to.address else { continue };
            let at = TransportPort { protocol: flow.protocol, port: flow.port };
            let is_entered = first.is_some() || entry.address.is_none_or(|entry| entry.is_ipv4() == address.is_ipv4());
            let is_this = flow.via.is_none_or(|via| via == service) && same_family(&flow.from, &flow.to) && is_entered;
            if !is_this || !self.place.has(address, at) {
                continue;
            }
            let way = entry.way(&door, source.workload.map(|_| flow.hop.is_some()));
            let found = self.judged_steps(&way, first.iter().chain([&flow]), None);
            let (source_name, from, to) = (source.name.clone(), host.clone(), target.clone());
            let trial = self.attempt(Attempt {
                way: found.way.clone(),
                source: source_name,
                from,
                to,
                through: PortRef::new(&world, service, port),
            });
            let to = Spot { address, port: None };
            self.paths.add(&source.name, &found, trial.at(format!("{to} port {}/{}", flow.port, flow.protocol)));
        }
        Ok(())
    }
}

/// A way into a Service.
#[derive(Clone, Copy)]
pub(super) struct Door<'a> {
    pub(super) service: ServiceId,
    pub(super) name: &'a str,
    pub(super) port: &'a ServicePort,
    pub(super) entry: &'a Entry,
}

/// Where a Service's port is entered.
pub(super) struct Entry {
    /// None for one without addresses: its name leads to its backends.
    pub(super) address: Option<IpAddr>,
    pub(super) port: u16,
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
    pub(super) fn way(&self, door: &Door<'_>, from_elsewhere: Option<bool>) -> Way {
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
