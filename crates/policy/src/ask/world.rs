//! From a question to the connections that it stands for.

use super::nearest::{Written, did_you_mean};
use super::resolve::Meaning;
use super::{AskError, Host, Route, Target, World};
use crate::flow::{Endpoint, Flow, Hop, Masker};
use crate::model::{BackendTarget, ServiceForm, ServiceId, ServicePort, WorkloadId};
use crate::port::TransportPort;
use crate::program::Holder;
use crate::reach::Reach;
use crate::unknown::{Condition, Dependence, Described, Prediction};
use std::net::{IpAddr, SocketAddr};

impl World<'_> {
    /// The routes from one end to the other; none if a Service has no backend.
    pub fn routes(&self, from: &Host, target: &Target) -> Result<Vec<Route>, AskError> {
        let sources = self.sources(from)?;
        let Some(number) = target.port.or((!target.protocol.has_ports()).then_some(0)) else {
            return self.portless(from, &sources, target);
        };
        let port = TransportPort { protocol: target.protocol, port: number };
        let destinations = match self.meaning(from, &target.host)? {
            Meaning::Service(id) => return self.through(id, &sources, target),
            Meaning::Pod(id) => {
                return Ok(vec![self.route(&sources, &self.ends(id), port)]);
            }
            Meaning::Outside(name) => {
                let end = [Endpoint::name(name)];
                return Ok(vec![self.route(&sources, &end, port)]);
            }
            Meaning::Addresses(known) => known,
        };
        let several = destinations.len() > 1;
        let is_named = several || matches!(target.host, Host::Name(_) | Host::Absolute(_));
        let routes = destinations.into_iter().flat_map(|address| {
            let mut routes = self.address_routes(&sources, address, port);
            routes.iter_mut().filter(|_| is_named).for_each(|route| {
                route.label.get_or_insert_with(|| address.to_string());
            });
            routes
        });
        Ok(routes.collect())
    }

    /// The routes to an address and port.
    fn address_routes(&self, sources: &[Endpoint], address: IpAddr, port: TransportPort) -> Vec<Route> {
        if let Some((id, service_port)) = self.translate(address, port) {
            // An address leads to backends of its own family.
            let mut backends = self.backends(id, service_port, sources);
            for route in &mut backends {
                route.flows.retain(|flow| flow.to.address.is_none_or(|to| to.is_ipv4() == address.is_ipv4()));
            }
            backends.retain(|route| !route.flows.is_empty());
            // An address of the Service is translated wherever it is asked for, a node port only on that node.
            let service = &self.snapshot.services[id.index()];
            let is_node_port = !service.is_translated_at(address);
            for flow in backends.iter_mut().flat_map(|route| &mut route.flows) {
                flow.hop = self.program.hop_at(&flow.from, address, port.port).filter(|_| is_node_port);
                let is_external = is_node_port || service.external.contains(&address);
                flow.masker = self.program.masker_of(&flow.from).filter(|_| is_external && flow.hop.is_none());
            }
            backends.extend(self.further(id, service_port, sources));
            return backends;
        }
        if let Some((service, service_port)) = self.relayed(address, port) {
            let to_it = self.route_by_load_balancer(address, service_port, sources);
            return self.by_load_balancer(to_it, service, service_port);
        }
        vec![self.route(sources, &[self.program.endpoint_at(address)], port)]
    }

    /// Where a Service leads to another one: an endpoint is an address of that Service, or its node port. The node that
    /// has translated the first does not translate again, so what follows is up to the node that gets the connection
    /// next (S1.11).
    fn further(&self, id: ServiceId, port: &ServicePort, sources: &[Endpoint]) -> Vec<Route> {
        let (mut routes, mut seen) = (Vec::new(), vec![(id, port.port, port.protocol)]);
        let mut left: Vec<&ServicePort> = vec![port];
        while let Some(port) = left.pop() {
            for backend in &port.backends {
                let BackendTarget::Address(address) = backend.target else { continue };
                let at = TransportPort { protocol: port.protocol, port: backend.port };
                if self.program.pod_at(address).is_some() {
                    continue;
                }
                let relayed = self.relayed(address, at).map(|(next, next_port)| (next, next_port, true));
                let next = self.translate(address, at).map(|(next, next_port)| (next, next_port, false)).or(relayed);
                let Some((next, next_port, is_relayed)) = next else { continue };
                if seen.contains(&(next, next_port.port, next_port.protocol)) {
                    continue;
                }
                seen.push((next, next_port.port, next_port.protocol));
                let asked = SocketAddr::new(address, backend.port);
                let found = match is_relayed {
                    true => self.load_balancer_routes(next, next_port),
                    false => self.at_next_node(NextService { id: next, port: next_port, asked }, sources),
                };
                if !found.is_empty() {
                    routes.extend(found);
                    left.push(next_port);
                }
            }
        }
        routes
    }

    /// To each backend of a Service, by an address that another node translates. None if nobody does: a node port of
    /// the source's own node is not translated a second time.
    fn at_next_node(&self, next: NextService<'_>, sources: &[Endpoint]) -> Vec<Route> {
        let NextService { id, port, asked } = next;
        let (service, address) = (&self.snapshot.services[id.index()], asked.ip());
        if port.backends.is_empty() {
            let label = format!("by {asked}, a Service without endpoints");
            return vec![Route { label: Some(label), service_port: Some(port.port), flows: Vec::new(), relayed: true }];
        }
        // An address that several nodes have is translated by one of them.
        let is_of_one_node = !service.is_translated_at(address)
            && matches!(self.program.by_address.get(&address), Some(Holder::Node(_)));
        let mut routes = self.backends(id, port, sources);
        for route in &mut routes {
            route.relayed = true;
            route.flows.retain(|flow| flow.to.address.is_none_or(|to| to.is_ipv4() == address.is_ipv4()));
            for flow in &mut route.flows {
                flow.hop = match is_of_one_node {
                    true => self.program.hop_at(&flow.from, address, asked.port()),
                    false => Some(Hop { node: None, address, port: asked.port() }),
                };
            }
            route.flows.retain(|flow| flow.hop.is_some());
            route.label = route.label.take().map(|label| format!("by {asked}, {label}"));
        }
        routes.retain(|route| !route.flows.is_empty());
        routes
    }

    /// What the source reaches at this host.
    fn meaning(&self, from: &Host, host: &Host) -> Result<Meaning, AskError> {
        match host {
            Host::Object { .. } => match self.find(host)? {
                NamedObject::Workload(id) => Ok(Meaning::Pod(id)),
                NamedObject::Service(id) => self.behind(id),
            },
            Host::Address(address) => Ok(Meaning::Addresses(vec![*address])),
            Host::Name(_) | Host::Absolute(_) => self.resolve(from, host),
        }
    }

    /// Without a port: a Service's own ports, else the ends with no port yet,
    /// for questions about which ports are open.
    fn portless(&self, from: &Host, sources: &[Endpoint], target: &Target) -> Result<Vec<Route>, AskError> {
        let any = TransportPort { protocol: target.protocol, port: 0 };
        let every_port = |id: ServiceId| {
            let service = &self.snapshot.services[id.index()];
            if service.form == ServiceForm::Headless {
                return self.headless(id, sources, any);
            }
            service.ports.iter().flat_map(|port| self.backends(id, port, sources)).collect()
        };
        let addresses = match self.meaning(from, &target.host)? {
            Meaning::Service(id) => return Ok(every_port(id)),
            Meaning::Pod(id) => return Ok(vec![self.route(sources, &self.ends(id), any)]),
            Meaning::Outside(name) => return Ok(vec![self.route(sources, &[Endpoint::name(name)], any)]),
            Meaning::Addresses(known) => known,
        };
        let mut routes = Vec::new();
        for address in addresses {
            let mut services = self.snapshot.services.iter();
            if let Some(at) = services.position(|service| service.is_translated_at(address)) {
                routes.extend::<Vec<Route>>(every_port(ServiceId(at as u32)));
                continue;
            }
            let mut services = self.snapshot.services.iter();
            match services.position(|service| service.proxied.contains(&address)) {
                Some(at) => {
                    let (id, ports) = (ServiceId(at as u32), &self.snapshot.services[at].ports);
                    for port in ports {
                        let to_it = self.route_by_load_balancer(address, port, sources);
                        routes.extend(self.by_load_balancer(to_it, id, port));
                    }
                }
                None => {
                    let label = matches!(target.host, Host::Name(_) | Host::Absolute(_)).then(|| address.to_string());
                    routes.push(Route { label, ..self.route(sources, &[self.program.endpoint_at(address)], any) });
                }
            }
        }
        Ok(routes)
    }

    pub fn reach(&self) -> Reach<'_> {
        Reach { program: self.program, leases: self.leases, now: self.now }
    }

    /// Whether every route is open. It depends on something if none is surely closed and one is not surely open.
    pub fn predict(&self, routes: &[Route]) -> Prediction {
        let worst = routes.iter().map(|route| self.predict_route(route)).max_by_key(|one| one.rank());
        worst.unwrap_or(Prediction::Deny)
    }

    /// Whether it is open whatever the name resolves to, so that no rule by name is needed.
    pub fn is_open_without_name(&self, from: &Host, target: &Target) -> Result<bool, AskError> {
        let mut routes = self.routes(from, target)?;
        let ends = routes.iter_mut().flat_map(|route| &mut route.flows).map(|flow| &mut flow.to);
        ends.for_each(|end| end.name = None);
        Ok(self.predict(&routes) == Prediction::Allow)
    }

    /// What the prediction depends on, each thing once.
    pub fn depends_on(&self, routes: &[Route]) -> Vec<Dependence> {
        let reach = self.reach();
        let mut found: Vec<Dependence> = Vec::new();
        for route in routes.iter().filter(|route| self.predict_route(route) == Prediction::Depends) {
            for dependence in route.flows.iter().flat_map(|flow| reach.predict(flow).depends_on) {
                if !found.contains(&dependence) {
                    found.push(dependence);
                }
            }
        }
        found
    }

    /// What something depends on, in words and as data.
    pub fn describe(&self, depends_on: Vec<Dependence>) -> Vec<Described> {
        depends_on.into_iter().map(|on| Condition::from(on).describe(self.snapshot, self.program)).collect()
    }

    /// Whether one connection of the route is open.
    pub fn predict_route(&self, route: &Route) -> Prediction {
        let reach = self.reach();
        let best = route.flows.iter().map(|flow| reach.predict(flow).prediction).min_by_key(|one| one.rank());
        best.unwrap_or(Prediction::Deny)
    }

    fn ends(&self, id: WorkloadId) -> Vec<Endpoint> {
        self.program.endpoints(self.snapshot, id)
    }

    fn sources(&self, from: &Host) -> Result<Vec<Endpoint>, AskError> {
        match from {
            Host::Address(address) => Ok(vec![self.program.endpoint_at(*address)]),
            Host::Name(name) | Host::Absolute(name) => {
                Err(AskError::FromName(name.to_string(), self.suggestion_anywhere(name.as_str())))
            }
            Host::Object { .. } => match self.find(from)? {
                NamedObject::Workload(id) => Ok(self.ends(id)),
                NamedObject::Service(_) => Err(AskError::FromService(from.to_string())),
            },
        }
    }

    /// The workload of that name, for commands that speak of one.
    pub fn workload(&self, host: &Host) -> Result<WorkloadId, AskError> {
        match host {
            Host::Object { .. } => match self.find(host)? {
                NamedObject::Workload(id) => Ok(id),
                NamedObject::Service(_) => Err(AskError::NotAWorkload(host.to_string())),
            },
            Host::Address(address) => self.program.pod_at(*address).ok_or(AskError::NoPodAt(*address)),
            Host::Name(name) | Host::Absolute(name) => {
                Err(AskError::WithoutNamespace(name.to_string(), self.suggestion_anywhere(name.as_str())))
            }
        }
    }

    pub(super) fn find(&self, host: &Host) -> Result<NamedObject, AskError> {
        if let Host::Address(address) = host
            && let Some(Holder::Pod(id)) = self.program.by_address.get(address)
        {
            return Ok(NamedObject::Workload(*id));
        }
        let Host::Object { namespace, kind, name } = host else {
            return Err(AskError::NotFound(host.to_string(), String::new()));
        };
        let in_namespace = self.snapshot.namespace_named(namespace);
        let same_kind = |other: &str| kind.as_ref().is_none_or(|kind| kind.eq_ignore_ascii_case(other));
        let candidates: Vec<WorkloadId> = self
            .snapshot
            .workload_ids()
            .filter(|&id| {
                let workload = self.snapshot.workload(id);
                Some(workload.namespace) == in_namespace && *workload.name == **name && same_kind(workload.kind.name())
            })
            .collect();
        match candidates.as_slice() {
            [only] => return Ok(NamedObject::Workload(*only)),
            [] => {}
            several => {
                let kinds: Vec<&str> = several.iter().map(|&id| self.snapshot.workload(id).kind.name()).collect();
                return Err(AskError::Ambiguous(host.to_string(), kinds.join(", ")));
            }
        }
        let service = self.snapshot.services.iter().position(|service| {
            Some(service.namespace) == in_namespace && *service.name == **name && same_kind("Service")
        });
        match service {
            Some(at) => Ok(NamedObject::Service(ServiceId(at as u32))),
            None => Err(AskError::NotFound(host.to_string(), self.suggestion(namespace, name))),
        }
    }

    /// The nearest name there is, for a slip of the finger.
    pub(super) fn suggestion(&self, namespace: &str, name: &str) -> String {
        if self.snapshot.workloads.is_empty() {
            return "; it has no workloads. Give pods or Deployments too, such as what `kubectl get pods -A -o yaml` prints"
                .to_owned();
        }
        // Kubernetes has no capital letters in names.
        let (wanted, name) = (format!("{namespace}/{name}").to_ascii_lowercase(), &*name.to_ascii_lowercase());
        // A Deployment whose pods are here is played by them, under their names.
        let begins = format!("{wanted}-");
        let is_there = |id: &WorkloadId| !self.snapshot.workload(*id).is_vacant();
        let names = || self.snapshot.workload_ids().filter(is_there).map(|id| self.snapshot.workload_name(id));
        let pods: Vec<String> = names().filter(|known| known.starts_with(&begins)).take(3).collect();
        if !pods.is_empty() {
            return format!("; there are pods of such names: {}", pods.join(", "));
        }
        let services = self.snapshot.services.iter();
        let services = services.map(|one| format!("{}/{}", self.snapshot.namespace(one.namespace).name, one.name));
        did_you_mean(&Written { whole: &wanted, name }, names().chain(services).map(|known| (known.clone(), known)))
    }

    /// The nearest name in any namespace, for one that is written without.
    fn suggestion_anywhere(&self, name: &str) -> String {
        let is_there = |id: &WorkloadId| !self.snapshot.workload(*id).is_vacant();
        let known = self.snapshot.workload_ids().filter(is_there);
        let known = known.map(|id| (self.snapshot.workload(id).name.to_string(), self.snapshot.workload_name(id)));
        did_you_mean(&Written { whole: name, name }, known)
    }

    /// Where kube-proxy would send a connection to this address and port.
    pub fn translate(&self, address: IpAddr, port: TransportPort) -> Option<(ServiceId, &ServicePort)> {
        let is_node = self.program.is_node_address(address);
        self.snapshot.services.iter().enumerate().find_map(|(at, service)| {
            let serves = |candidate: &&ServicePort| {
                let by_address = service.is_translated_at(address) && candidate.port == port.port;
                let is_served = is_node && service.is_served_over(address.is_ipv4());
                let by_node_port = is_served && candidate.node_port == Some(port.port);
                candidate.protocol == port.protocol && (by_address || by_node_port)
            };
            service.ports.iter().find(serves).map(|port| (ServiceId(at as u32), port))
        })
    }

    /// The Service behind an address that no node translates: a load balancer outside takes what is sent there.
    pub fn relayed(&self, address: IpAddr, port: TransportPort) -> Option<(ServiceId, &ServicePort)> {
        let is_asked = |one: &&ServicePort| one.protocol == port.protocol && one.port == port.port;
        self.snapshot.services.iter().enumerate().find_map(|(at, service)| {
            let port = service.ports.iter().find(is_asked).filter(|_| service.proxied.contains(&address))?;
            Some((ServiceId(at as u32), port))
        })
    }

    /// To the load balancer, as an address outside; and from there to each backend, as from somewhere outside, since
    /// nobody knows by which of its addresses it comes in.
    fn by_load_balancer(&self, to_it: Route, id: ServiceId, port: &ServicePort) -> Vec<Route> {
        let mut routes = vec![Route { service_port: Some(port.port), ..to_it }];
        routes.extend(self.load_balancer_routes(id, port));
        routes
    }

    /// From a load balancer outside to each backend of its Service.
    fn load_balancer_routes(&self, id: ServiceId, port: &ServicePort) -> Vec<Route> {
        let mut routes = self.from_outside(id, port);
        for route in &mut routes {
            route.flows.iter_mut().for_each(|flow| flow.masker = Some(Masker::LoadBalancer));
            route.label = route.label.take().map(|label| format!("from the load balancer, {label}"));
        }
        routes
    }

    /// To an address of a load balancer, at the port of its Service.
    fn route_by_load_balancer(&self, address: IpAddr, port: &ServicePort, sources: &[Endpoint]) -> Route {
        let asked = TransportPort { protocol: port.protocol, port: port.port };
        let label = Some(format!("load balancer {address}"));
        Route { label, ..self.route(sources, &[self.program.endpoint_at(address)], asked) }
    }

    /// To each backend of a Service, for a client that is outside, or that its node cannot tell: where it comes from is
    /// not known.
    pub fn from_outside(&self, id: ServiceId, port: &ServicePort) -> Vec<Route> {
        let mut routes = self.backends(id, port, &[Endpoint::default()]);
        for route in &mut routes {
            route.relayed = true;
            for flow in &mut route.flows {
                flow.masker = self.program.masker_of(&flow.from);
            }
        }
        routes
    }

    fn through(&self, id: ServiceId, sources: &[Endpoint], target: &Target) -> Result<Vec<Route>, AskError> {
        let service = &self.snapshot.services[id.index()];
        let ports = &service.ports;
        if let (ServiceForm::Headless, Some(number)) = (&service.form, target.port) {
            return Ok(self.headless(id, sources, TransportPort { protocol: target.protocol, port: number }));
        }
        let asked = |port: &&ServicePort| port.protocol == target.protocol && Some(port.port) == target.port;
        match ports.iter().find(asked) {
            Some(port) => {
                let mut routes = self.backends(id, port, sources);
                routes.extend(self.further(id, port, sources));
                Ok(routes)
            }
            None => {
                let port = target.port.map_or_else(String::new, |port| format!("{port}/"));
                let has = ports.iter().map(|port| format!("{}/{}", port.port, port.protocol)).collect::<Vec<_>>();
                let has = if has.is_empty() { "none".to_owned() } else { has.join(", ") };
                let service = format!("Service {}", target.host);
                Err(AskError::NoServicePort(service, format!("{port}{}", target.protocol), has))
            }
        }
    }

    /// Without an address of its own a Service is only a name for its backends: no port is translated.
    fn headless(&self, id: ServiceId, sources: &[Endpoint], port: TransportPort) -> Vec<Route> {
        let mut targets: Vec<BackendTarget> = Vec::new();
        for backend in self.snapshot.services[id.index()].ports.iter().flat_map(|port| &port.backends) {
            if !targets.contains(&backend.target) {
                targets.push(backend.target);
            }
        }
        let routes = targets.into_iter().flat_map(|target| {
            let (ends, text) = self.backend(target);
            let mut routes = match target {
                // The client asks for the address itself, which its node may translate.
                BackendTarget::Address(address) => self.address_routes(sources, address, port),
                BackendTarget::Workload(_) => vec![self.route(sources, &ends, port)],
            };
            routes.iter_mut().for_each(|route| {
                route.label.get_or_insert_with(|| text.clone());
            });
            routes
        });
        routes.collect()
    }

    fn backend(&self, target: BackendTarget) -> (Vec<Endpoint>, String) {
        match target {
            BackendTarget::Workload(workload) => (self.ends(workload), self.snapshot.workload_name(workload)),
            BackendTarget::Address(address) => {
                let pod = self.program.pod_at(address).map(|pod| self.snapshot.workload_name(pod));
                (vec![self.program.endpoint_at(address)], pod.unwrap_or_else(|| address.to_string()))
            }
        }
    }

    fn backends(&self, id: ServiceId, port: &ServicePort, sources: &[Endpoint]) -> Vec<Route> {
        let service = &self.snapshot.services[id.index()];
        let namespace = &self.snapshot.namespace(service.namespace).name;
        let mut routes = Vec::new();
        for backend in &port.backends {
            let (ends, text) = self.backend(backend.target);
            let label = format!("Service {namespace}/{} to {text}:{}/{}", service.name, backend.port, port.protocol);
            let at = TransportPort { protocol: port.protocol, port: backend.port };
            let mut route = self.route(sources, &ends, at);
            route.flows.iter_mut().for_each(|flow| flow.via = Some(id));
            routes.push(Route { label: Some(label), service_port: Some(port.port), ..route });
        }
        routes
    }

    /// The connections from any of the sources to any of the ends.
    fn route(&self, from: &[Endpoint], to: &[Endpoint], port: TransportPort) -> Route {
        let TransportPort { protocol, port } = port;
        let pairs = self.program.address_pairs(from, to).into_iter();
        let flows =
            pairs.map(|(from, to)| Flow { from, to, protocol, port, via: None, hop: None, masker: None }).collect();
        Route { label: None, service_port: None, flows, relayed: false }
    }
}

/// A Service that another one leads to.
struct NextService<'a> {
    id: ServiceId,
    port: &'a ServicePort,
    /// The endpoint of the other: an address of this one, or a node port of it.
    asked: SocketAddr,
}

pub(super) enum NamedObject {
    Workload(WorkloadId),
    Service(ServiceId),
}
