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
        let addresses = subset.addresses.iter().map(|address| address.ip.as_str());
        endpoints_of(&mut scope, &service, addresses, &subset.ports)
    });
    listed.collect()
}

pub(super) fn endpoints_of<'t>(
    scope: &mut Scope<'_>,
    service: &str,
    addresses: impl Iterator<Item = &'t str>,
    ports: &[EndpointPort],
) -> Endpoints {
    let addresses = addresses.filter_map(|text| parts::address(scope, text, "endpoints")).collect();
    let mut known = Vec::new();
    for port in ports {
        let protocol = parts::protocol(scope, port.protocol.as_deref(), "ports");
        if let (Some(protocol), Some(number)) = (protocol, port.port) {
            let name = port.name.as_deref().filter(|name| !name.is_empty()).map(Into::into);
            known.push((name, protocol, number));
        }
    }
    Endpoints { namespace: scope.namespace().into(), service: service.into(), addresses, ports: known }
}
