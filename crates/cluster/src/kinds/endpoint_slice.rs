//! EndpointSlices: the addresses behind a Service.

use super::endpoints::{EndpointPort, endpoints_of};
use crate::document::Document;
use crate::lower::{Endpoints, Scope};
use namewall_policy::Finding;
use serde::Deserialize;

#[derive(Deserialize, Debug, Clone)]
struct SliceEndpoint {
    #[serde(default)]
    addresses: Vec<String>,
}

/// None if it is of no Service.
pub(crate) fn read_slice(document: &Document, findings: &mut Vec<Finding>) -> Option<Endpoints> {
    let mut scope = Scope::new(document, findings);
    let endpoints: Vec<SliceEndpoint> = scope.read_items(document.node.get("endpoints"), "endpoints");
    let ports: Vec<EndpointPort> = scope.read_items(document.node.get("ports"), "ports");
    let service = scope.meta.labels.get("kubernetes.io/service-name").cloned()?;
    let addresses = endpoints.iter().flat_map(|endpoint| &endpoint.addresses).map(String::as_str);
    Some(endpoints_of(&mut scope, &service, addresses, &ports))
}
