//! Questions as users write them: `shop/web -> api.github.com:443/TCP`.
//!
//! A question may stand for several connections. A Service sends a client to
//! one of its backends and a name to one of its addresses, so *every* [`Route`]
//! must be open for the answer to be yes; two pods with several addresses may
//! choose, so one open connection of a Route is enough.

use crate::addr::parse_address;
use crate::domain::{DomainName, NameError};
use crate::flow::{Endpoint, Flow};
use crate::lease::{Instant, LeaseTable};
use crate::model::{BackendTarget, ServiceId, ServicePort, WorkloadId};
use crate::port::Protocol;
use crate::program::{Holder, Program};
use crate::reach::Reach;
use crate::snapshot::Snapshot;
use crate::unknown::{Dependence, Prediction, describe_dependence};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// One end, as written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Host {
    /// `NS/NAME`, or `NS/KIND/NAME` where two kinds share a name.
    Object {
        namespace: String,
        kind: Option<String>,
        name: String,
    },
    Address(IpAddr),
    Name(DomainName),
}

/// `HOST[:PORT[/PROTO]]`, `HOST/ICMP`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    pub host: Host,
    pub protocol: Protocol,
    /// None: whatever port.
    pub port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    #[error("`{0}` is not an end of a connection; write NAMESPACE/POD, an address, or a name")]
    Host(String),
    #[error("`{0}`: {1}")]
    Name(String, NameError),
    #[error("`{0}` is no port; use 1 to 65535")]
    Port(String),
    #[error("`{0}` is not a protocol; use TCP, UDP, SCTP or ICMP")]
    Protocol(String),
    #[error("there is no workload or Service {0} in the input{1}")]
    NotFound(String, String),
    #[error("{0} is several things: {1}. Write NAMESPACE/KIND/NAME")]
    Ambiguous(String, String),
    #[error("a connection starts at a pod or an address, not at a name ({0})")]
    FromName(String),
    #[error("a connection starts at a pod or an address, and {0} is a Service")]
    FromService(String),
    #[error("{0} has no port {1}")]
    NoServicePort(String, String),
}

impl FromStr for Host {
    type Err = AskError;

    fn from_str(text: &str) -> Result<Self, AskError> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Some(address) = parse_address(bare) {
            return Ok(Self::Address(address));
        }
        let parts: Vec<&str> = text.split('/').collect();
        match parts.as_slice() {
            [name] => {
                let looks_like_name = name.contains('.') || *name == "localhost";
                if !looks_like_name {
                    return Err(AskError::Host(text.to_owned()));
                }
                name.parse().map(Self::Name).map_err(|error| AskError::Name(text.to_owned(), error))
            }
            [namespace, name] if !namespace.is_empty() && !name.is_empty() => {
                Ok(Self::Object { namespace: (*namespace).to_owned(), kind: None, name: (*name).to_owned() })
            }
            [namespace, kind, name] if !namespace.is_empty() && !kind.is_empty() && !name.is_empty() => {
                Ok(Self::Object {
                    namespace: (*namespace).to_owned(),
                    kind: Some((*kind).to_owned()),
                    name: (*name).to_owned(),
                })
            }
            _ => Err(AskError::Host(text.to_owned())),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.host, self.port) {
            (Host::Address(IpAddr::V6(v6)), Some(port)) => write!(f, "[{v6}]:{port}/{}", self.protocol),
            (host, Some(port)) => write!(f, "{host}:{port}/{}", self.protocol),
            (host, None) if self.protocol.has_ports() => write!(f, "{host}"),
            (host, None) => write!(f, "{host}/{}", self.protocol),
        }
    }
}

impl FromStr for Target {
    type Err = AskError;

    fn from_str(text: &str) -> Result<Self, AskError> {
        // A protocol is the last part after a slash, if that is one.
        let (rest, protocol) = match text.rsplit_once('/') {
            Some((rest, last)) if last.parse::<Protocol>().is_ok() => (rest, last.parse().ok()),
            // `host:80/XYZ` can only be a protocol that is none.
            Some((rest, last)) if rest.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) => {
                return Err(AskError::Protocol(last.to_owned()));
            }
            _ => (text, None),
        };
        let protocol = protocol.unwrap_or(Protocol::Tcp);
        // An IPv6 address has colons of its own: with a port it stands in brackets.
        let bare = rest.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(rest);
        if parse_address(bare).is_some() {
            return Ok(Self { host: bare.parse()?, protocol, port: None });
        }
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) => match port.parse::<u16>() {
                Ok(number @ 1..) => (host, Some(number)),
                _ => return Err(AskError::Port(port.to_owned())),
            },
            None => (rest, None),
        };
        Ok(Self { host: host.parse()?, protocol, port: port.filter(|_| protocol.has_ports()) })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object { namespace, kind: Some(kind), name } => write!(f, "{namespace}/{kind}/{name}"),
            Self::Object { namespace, kind: None, name } => write!(f, "{namespace}/{name}"),
            Self::Address(address) => write!(f, "{address}"),
            Self::Name(name) => write!(f, "{name}"),
        }
    }
}

/// Connections that stand for each other: one open is enough.
#[derive(Clone, Debug)]
pub struct Route {
    /// What this route is, where a question has several: a backend, an address.
    pub label: Option<String>,
    pub flows: Vec<Flow>,
}

/// Who asks of what.
#[derive(Clone, Copy, Debug)]
pub struct World<'a> {
    pub snapshot: &'a Snapshot,
    pub program: &'a Program,
    pub leases: &'a LeaseTable,
    /// What names were answered with, leased or not.
    pub names: &'a Names,
    pub cluster_domain: &'a DomainName,
    pub now: Instant,
}

pub type Names = std::collections::BTreeMap<DomainName, Vec<IpAddr>>;

impl World<'_> {
    /// The routes from one end to the other; none if a Service has no backend.
    pub fn routes(&self, from: &Host, target: &Target) -> Result<Vec<Route>, AskError> {
        let sources = self.sources(from)?;
        let Some(port) = target.port.or((!target.protocol.has_ports()).then_some(0)) else {
            return self.portless(&sources, target);
        };
        let destinations = match &target.host {
            Host::Object { .. } => match self.find(&target.host)? {
                Found::Workload(id) => {
                    return Ok(vec![self.route(None, (&sources, &self.ends(id)), (target.protocol, port))]);
                }
                Found::Service(id) => return self.through(id, &sources, target),
            },
            Host::Address(address) => vec![*address],
            Host::Name(name) => {
                if let Some(service) = self.service_named(name) {
                    return self.through(service, &sources, target);
                }
                let known = self.addresses_of(name);
                if known.is_empty() {
                    let end = [Endpoint::name(name.clone())];
                    return Ok(vec![self.route(None, (&sources, &end), (target.protocol, port))]);
                }
                known
            }
        };
        let several = destinations.len() > 1;
        let mut routes = Vec::new();
        for address in destinations {
            if let Some((service, service_port)) = self.translate(address, target.protocol, port) {
                // An address leads to backends of its own family.
                let mut backends = self.backends(service, service_port, &sources);
                for route in &mut backends {
                    route.flows.retain(|flow| flow.to.address.is_none_or(|to| to.is_ipv4() == address.is_ipv4()));
                }
                backends.retain(|route| !route.flows.is_empty());
                // An address of the Service is translated wherever it is asked for, a node port only on that node.
                if !self.snapshot.services[service.index()].addresses.contains(&address) {
                    let flows = backends.iter_mut().flat_map(|route| &mut route.flows);
                    flows.for_each(|flow| flow.hop = self.program.hop_at(&flow.from, (address, port)));
                }
                routes.extend(backends);
                continue;
            }
            let label = (several || matches!(target.host, Host::Name(_))).then(|| address.to_string());
            let end = [self.program.endpoint_at(address)];
            routes.push(self.route(label, (&sources, &end), (target.protocol, port)));
        }
        Ok(routes)
    }

    /// Without a port: a Service's own ports, else the ends with no port yet,
    /// for whoever asks which ports are open.
    fn portless(&self, sources: &[Endpoint], target: &Target) -> Result<Vec<Route>, AskError> {
        let every_port = |id: ServiceId| {
            let service = &self.snapshot.services[id.index()];
            if service.addresses.is_empty() {
                return self.headless(id, sources, (target.protocol, 0));
            }
            service.ports.iter().flat_map(|port| self.backends(id, port, sources)).collect()
        };
        let any = (target.protocol, 0);
        let addresses = match &target.host {
            Host::Object { .. } => match self.find(&target.host)? {
                Found::Workload(id) => return Ok(vec![self.route(None, (sources, &self.ends(id)), any)]),
                Found::Service(id) => return Ok(every_port(id)),
            },
            Host::Address(address) => vec![*address],
            Host::Name(name) => {
                if let Some(id) = self.service_named(name) {
                    return Ok(every_port(id));
                }
                let known = self.addresses_of(name);
                if known.is_empty() {
                    return Ok(vec![self.route(None, (sources, &[Endpoint::name(name.clone())]), any)]);
                }
                known
            }
        };
        let mut routes = Vec::new();
        for address in addresses {
            let service = self.snapshot.services.iter().position(|service| service.addresses.contains(&address));
            match service {
                Some(at) => routes.extend::<Vec<Route>>(every_port(ServiceId(at as u32))),
                None => {
                    let label = matches!(target.host, Host::Name(_)).then(|| address.to_string());
                    routes.push(self.route(label, (sources, &[self.program.endpoint_at(address)]), any));
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

    /// In words what something depends on.
    pub fn describe(&self, depends_on: &[Dependence]) -> String {
        let words = |one| describe_dependence((self.snapshot, self.program), one);
        depends_on.iter().map(words).collect::<Vec<_>>().join("; ")
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
            Host::Name(name) => Err(AskError::FromName(name.to_string())),
            Host::Object { .. } => match self.find(from)? {
                Found::Workload(id) => Ok(self.ends(id)),
                Found::Service(_) => Err(AskError::FromService(from.to_string())),
            },
        }
    }

    /// The workload of that name, for commands that speak of one.
    pub fn workload(&self, host: &Host) -> Result<WorkloadId, AskError> {
        match (host, self.find(host)?) {
            (_, Found::Workload(id)) => Ok(id),
            _ => Err(AskError::NotFound(host.to_string(), String::new())),
        }
    }

    fn find(&self, host: &Host) -> Result<Found, AskError> {
        if let Host::Address(address) = host
            && let Some(Holder::Pod(id)) = self.program.by_address.get(address)
        {
            return Ok(Found::Workload(*id));
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
            [only] => return Ok(Found::Workload(*only)),
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
            Some(at) => Ok(Found::Service(ServiceId(at as u32))),
            None => Err(AskError::NotFound(host.to_string(), self.suggestion(namespace, name))),
        }
    }

    /// The nearest name there is, for a slip of the finger.
    fn suggestion(&self, namespace: &str, name: &str) -> String {
        let wanted = format!("{namespace}/{name}");
        // A Deployment whose pods are here is played by them, under their names.
        let begins = format!("{wanted}-");
        let is_there = |id: &WorkloadId| !self.snapshot.workload(*id).is_vacant();
        let names = || self.snapshot.workload_ids().filter(is_there).map(|id| self.snapshot.workload_name(id));
        let pods: Vec<String> = names().filter(|known| known.starts_with(&begins)).take(3).collect();
        if !pods.is_empty() {
            return format!("; there are pods of such names: {}", pods.join(", "));
        }
        let nearest = names().map(|known| (distance(&known, &wanted), known)).min();
        match nearest {
            Some((apart, known)) if apart <= 3.max(wanted.len() / 4) => format!("; did you mean {known}?"),
            _ => String::new(),
        }
    }

    /// Where kube-proxy would send a connection to this address and port.
    pub fn translate(&self, address: IpAddr, protocol: Protocol, port: u16) -> Option<(ServiceId, &ServicePort)> {
        let is_node = matches!(self.program.by_address.get(&address), Some(Holder::Node(_)));
        self.snapshot.services.iter().enumerate().find_map(|(at, service)| {
            let serves = |candidate: &&ServicePort| {
                let by_address = service.addresses.contains(&address) && candidate.port == port;
                let by_node_port = is_node && candidate.node_port == Some(port);
                candidate.protocol == protocol && (by_address || by_node_port)
            };
            service.ports.iter().find(serves).map(|port| (ServiceId(at as u32), port))
        })
    }

    fn through(&self, id: ServiceId, sources: &[Endpoint], target: &Target) -> Result<Vec<Route>, AskError> {
        let service = &self.snapshot.services[id.index()];
        let ports = &service.ports;
        if let (true, Some(port)) = (service.addresses.is_empty(), target.port) {
            return Ok(self.headless(id, sources, (target.protocol, port)));
        }
        let asked = |port: &&ServicePort| port.protocol == target.protocol && Some(port.port) == target.port;
        match ports.iter().find(asked) {
            Some(port) => Ok(self.backends(id, port, sources)),
            None => {
                let port = target.port.map_or_else(String::new, |port| format!("{port}/"));
                Err(AskError::NoServicePort(format!("Service {}", target.host), format!("{port}{}", target.protocol)))
            }
        }
    }

    /// Without an address of its own a Service is only a name for its backends: no port is translated.
    fn headless(&self, id: ServiceId, sources: &[Endpoint], at: (Protocol, u16)) -> Vec<Route> {
        let mut targets: Vec<BackendTarget> = Vec::new();
        for backend in self.snapshot.services[id.index()].ports.iter().flat_map(|port| &port.backends) {
            if !targets.contains(&backend.target) {
                targets.push(backend.target);
            }
        }
        let routes = targets.into_iter().map(|target| {
            let (ends, text) = self.backend(target);
            self.route(Some(text), (sources, &ends), at)
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
            let mut route = self.route(Some(label), (sources, &ends), (port.protocol, backend.port));
            route.flows.iter_mut().for_each(|flow| flow.via = Some(id));
            routes.push(route);
        }
        routes
    }

    /// `SERVICE.NAMESPACE.svc[.cluster.local]`.
    fn service_named(&self, name: &DomainName) -> Option<ServiceId> {
        let inside = match name.as_str().strip_suffix(self.cluster_domain.as_str()) {
            Some(inside) => inside.strip_suffix('.')?,
            None => name.as_str(),
        };
        let labels: Vec<&str> = inside.split('.').collect();
        let [service, namespace, "svc"] = labels.as_slice() else { return None };
        let namespace = self.snapshot.namespace_named(namespace)?;
        let at = self.snapshot.services.iter().position(|s| s.namespace == namespace && *s.name == **service)?;
        Some(ServiceId(at as u32))
    }

    fn route(
        &self,
        label: Option<String>,
        (from, to): (&[Endpoint], &[Endpoint]),
        (protocol, port): (Protocol, u16),
    ) -> Route {
        let pairs = self.program.address_pairs(from, to).into_iter();
        let flows = pairs.map(|(from, to)| Flow { from, to, protocol, port, via: None, hop: None }).collect();
        Route { label, flows }
    }

    fn addresses_of(&self, name: &DomainName) -> Vec<IpAddr> {
        self.names.get(name).cloned().unwrap_or_default()
    }
}


enum Found {
    Workload(WorkloadId),
    Service(ServiceId),
}

/// How many slips lie between two words: a character changed, missing, too many, or swapped with its neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let same = a[i - 1] == b[j - 1];
            let mut best = (rows[i - 1][j - 1] + usize::from(!same)).min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> (String, Protocol, Option<u16>) {
        let target: Target = text.parse().unwrap();
        (target.host.to_string(), target.protocol, target.port)
    }

    #[test]
    fn targets_are_read_as_written() {
        use Protocol::{Icmp, Sctp, Tcp, Udp};
        assert_eq!(target("shop/web:80/TCP"), ("shop/web".into(), Tcp, Some(80)));
        assert_eq!(target("shop/web"), ("shop/web".into(), Tcp, None));
        assert_eq!(target("shop/Deployment/web:53/udp"), ("shop/Deployment/web".into(), Udp, Some(53)));
        assert_eq!(target("10.0.0.1:9/SCTP"), ("10.0.0.1".into(), Sctp, Some(9)));
        assert_eq!(target("2001:db8::1"), ("2001:db8::1".into(), Tcp, None));
        assert_eq!(target("[2001:db8::1]/ICMP"), ("2001:db8::1".into(), Icmp, None));
        assert_eq!(target("[::ffff:10.0.0.1]:443"), ("10.0.0.1".into(), Tcp, Some(443)));
        assert_eq!(target("[2001:db8::1]:443"), ("2001:db8::1".into(), Tcp, Some(443)));
        assert_eq!(target("10.0.0.1/ICMP"), ("10.0.0.1".into(), Icmp, None));
        assert_eq!(target("API.github.com:443"), ("api.github.com".into(), Tcp, Some(443)));
    }

    #[test]
    fn bad_targets_say_what_is_wrong() {
        for bad in ["", "web", "shop/", "/web", "shop/web:0", "shop/web:70000", "shop/web:80/XYZ", "a/b/c/d", "x y.z:1"]
        {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
