//! What a name of the cluster stands for.

use super::index::Objects;
use super::name::Parts;
use super::objects::{ClusterKey, PortRecord, ServiceForm};
use namewall_corefile::{Kubernetes, PodMode};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// What stands behind a name.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Target {
    /// A name with nothing of its own, like that of a namespace.
    Empty,
    Places(Vec<Place>),
    /// An alias.
    Alias(Arc<str>),
}

/// An address, and a port there.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Place {
    pub(super) address: IpAddr,
    pub(super) port: Option<u16>,
    /// The labels of its name before the zone.
    pub(super) labels: Vec<String>,
}

/// Objects, as a directive shows them.
pub(super) struct Shown<'a> {
    pub(super) objects: &'a Objects,
    pub(super) directive: &'a Kubernetes,
}

impl Shown<'_> {
    /// None if there is no such name.
    pub(super) fn find(&self, parts: &Parts<'_>) -> Option<Target> {
        match parts.kind {
            "" => Some(Target::Empty),
            _ if !self.shows_namespace(parts.namespace) => None,
            "pod" => self.pod(parts),
            _ => self.service(parts),
        }
    }

    fn shows_namespace(&self, name: &str) -> bool {
        self.is_chosen(name) && self.objects.has_namespace(name)
    }

    fn is_chosen(&self, namespace: &str) -> bool {
        let chosen = &self.directive.namespaces;
        chosen.is_empty() || chosen.iter().any(|one| **one == *namespace)
    }

    fn pod(&self, parts: &Parts<'_>) -> Option<Target> {
        let mode = self.directive.pods;
        if mode == PodMode::Disabled {
            return None;
        }
        if parts.service.is_empty() {
            return Some(Target::Empty);
        }
        let (address, written) = pod_address(parts.service)?;
        // A pod is found by its address as it is written in its status.
        let is_there = mode == PodMode::Insecure
            || written == address.to_string() && self.objects.has_pod(parts.namespace, address);
        let labels = [parts.service, parts.namespace, "pod"].map(str::to_owned).to_vec();
        let address = address.to_canonical();
        is_there.then(|| Target::Places(vec![Place { address, port: Some(0), labels }]))
    }

    fn service(&self, parts: &Parts<'_>) -> Option<Target> {
        if parts.service.is_empty() {
            return Some(Target::Empty);
        }
        let key = ClusterKey { namespace: parts.namespace.into(), name: parts.service.into() };
        let service = self.objects.service(&key)?;
        let is_meant = |port: &&PortRecord| {
            let fits = |asked: &str, own: &str| asked.is_empty() || asked.eq_ignore_ascii_case(own);
            fits(parts.port, &port.name) && fits(parts.protocol, &port.protocol)
        };
        let mut labels = vec![parts.service.to_owned(), parts.namespace.to_owned(), "svc".to_owned()];
        match &service.form {
            ServiceForm::ExternalName(name) => {
                let is_bare = parts.endpoint.is_empty() && parts.port.is_empty() && parts.protocol.is_empty();
                // An address is no name.
                (is_bare && name.parse::<IpAddr>().is_err()).then(|| Target::Alias(name.clone()))
            }
            ServiceForm::Balanced(_) if self.directive.ignore_empty_services && !self.has_endpoints(&key) => None,
            ServiceForm::Balanced(addresses) if parts.endpoint.is_empty() => {
                let ports: Vec<&PortRecord> = service.ports.iter().filter(is_meant).collect();
                let places = ports.iter().flat_map(|port| {
                    let at = |address: &IpAddr| Place { address: *address, port: port.number, labels: labels.clone() };
                    addresses.iter().map(at).collect::<Vec<_>>()
                });
                (!ports.is_empty()).then(|| Target::Places(places.collect()))
            }
            ServiceForm::Balanced(_) | ServiceForm::Headless => {
                let mut places = Vec::new();
                labels.insert(0, String::new());
                for slice in self.objects.slices_of(&key) {
                    for endpoint in &slice.endpoints {
                        labels[0] = endpoint.label(self.directive.endpoint_pod_names);
                        if !parts.endpoint.is_empty() && !parts.endpoint.eq_ignore_ascii_case(&labels[0]) {
                            continue;
                        }
                        let ports = slice.ports.iter().filter(is_meant);
                        let address = endpoint.address;
                        places.extend(ports.map(|port| Place { address, port: port.number, labels: labels.clone() }));
                    }
                }
                (!places.is_empty()).then_some(Target::Places(places))
            }
        }
    }

    fn has_endpoints(&self, service: &ClusterKey) -> bool {
        self.objects.slices_of(service).any(|slice| !slice.endpoints.is_empty())
    }

    /// The names of an address, as labels before the zone: of the Service that has it, or else of endpoints.
    pub(super) fn names_of(&self, address: IpAddr) -> Vec<Vec<String>> {
        let is_shown = |key: &&ClusterKey| self.is_chosen(&key.namespace) && self.is_there(&key.namespace);
        if let Some(service) = self.objects.services_at(address).find(is_shown) {
            return vec![vec![service.name.to_string(), service.namespace.to_string(), "svc".to_owned()]];
        }
        let mut names = Vec::new();
        for (key, slice) in self.objects.slices_at(address).filter(|(key, _)| is_shown(key)) {
            for endpoint in slice.endpoints.iter().filter(|endpoint| endpoint.address == address) {
                let first = endpoint.label(self.directive.endpoint_pod_names);
                let name = vec![first, slice.service.to_string(), key.namespace.to_string(), "svc".to_owned()];
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        names
    }

    /// As with CoreDNS, only a choice of namespaces hides the names of addresses.
    fn is_there(&self, namespace: &str) -> bool {
        self.directive.namespaces.is_empty() || self.objects.has_namespace(namespace)
    }
}

/// The address of a name like `10-0-0-1` or `fd00--1`, and how it would be written.
fn pod_address(label: &str) -> Option<(IpAddr, String)> {
    if label.matches('-').count() == 3 && !label.contains("--") {
        let written = label.replace('-', ".");
        let address: Ipv4Addr = written.parse().ok()?;
        return Some((address.into(), written));
    }
    let written = label.replace('-', ":");
    let address: Ipv6Addr = written.parse().ok()?;
    Some((address.into(), written))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_the_names_of_pods() {
        let read = |label: &str| pod_address(label).map(|(address, _)| address.to_string());
        for (label, expected) in [
            ("10-0-0-1", Some("10.0.0.1")),
            ("fd00--1", Some("fd00::1")),
            ("1-2-3-4-5-6-7-8", Some("1:2:3:4:5:6:7:8")),
            ("10-0-0", None),
            ("10-0-0-256", None),
            ("010-0-0-1", None),
            ("10-0--1", Some("10::1")),
            ("web", None),
            ("", None),
        ] {
            assert_eq!(read(label).as_deref(), expected, "{label}");
        }
    }
}
