//! Endpoints, the form that EndpointSlices have replaced, and what both have in common.

use crate::document::Document;
use crate::lower::{Endpoints, Scope, parts};
use namewall_policy::Finding;
use serde::Deserialize;

#[derive(Deserialize, Debug, Clone)]
pub(super) struct EndpointPort {
    name: Option<String>,
    protocol: Option<String>,
    port: Option<u16>,
}

#[derive(Deserialize, Debug, Clone)]
struct EndpointSubset {
    #[serde(default)]
    addresses: Vec<EndpointAddress>,
    #[serde(default)]
    ports: Vec<EndpointPort>,
}

#[derive(Deserialize, Debug, Clone)]
struct EndpointAddress {
    ip: String,
}

/// One for every subset. An object without any says that the Service has no endpoints.
pub(crate) fn read_endpoints(document: &Document, findings: &mut Vec<Finding>) -> Vec<Endpoints> {
    let mut scope = Scope::new(document, findings);
    let subsets: Vec<EndpointSubset> = scope.read_items(document.node.get("subsets"), "subsets");
    let service = scope.meta.name.clone();
    if subsets.is_empty() {
        return vec![endpoints_of(&mut scope, &service, std::iter::empty(), &[])];
    }
    let listed = subsets.iter().map(|subset| {
        let listed = subset.addresses.iter().map(|address| ListedAddress { text: &address.ip, is_ready: true });
        endpoints_of(&mut scope, &service, listed, &subset.ports)
    });
    listed.collect()
}

/// An address as an object lists it.
pub(super) struct ListedAddress<'t> {
    pub(super) text: &'t str,
    pub(super) is_ready: bool,
}

pub(super) fn endpoints_of<'t>(
    scope: &mut Scope<'_>,
    service: &str,
    listed: impl Iterator<Item = ListedAddress<'t>>,
    ports: &[EndpointPort],
) -> Endpoints {
    let (mut addresses, mut unready) = (Vec::new(), Vec::new());
    for ListedAddress { text, is_ready } in listed {
        let Some(address) = parts::address(scope, text, "endpoints") else { continue };
        addresses.push(address);
        if !is_ready {
            unready.push(address);
        }
    }
    let mut known = Vec::new();
    for port in ports {
        let protocol = parts::protocol(scope, port.protocol.as_deref(), "ports");
        if let (Some(protocol), Some(number)) = (protocol, port.port) {
            let name = port.name.as_deref().filter(|name| !name.is_empty()).map(Into::into);
            known.push((name, protocol, number));
        }
    }
    Endpoints { namespace: scope.namespace().into(), service: service.into(), addresses, unready, ports: known }
}
