//! EndpointSlices: the addresses behind a Service.

use super::endpoints::{EndpointPort, ListedAddress, endpoints_of};
use crate::document::Document;
use crate::lower::{Endpoints, Scope};
use namewall_policy::Finding;
use serde::Deserialize;

#[derive(Deserialize, Debug, Clone)]
struct SliceEndpoint {
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    conditions: Option<Conditions>,
}

#[derive(Deserialize, Debug, Clone)]
struct Conditions {
    /// None counts as ready.
    ready: Option<bool>,
}

impl SliceEndpoint {
    fn is_ready(&self) -> bool {
        self.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
    }
}

/// None if it is of no Service.
pub(crate) fn read_slice(document: &Document, findings: &mut Vec<Finding>) -> Option<Endpoints> {
    let mut scope = Scope::new(document, findings);
    let endpoints: Vec<SliceEndpoint> = scope.read_items(document.node.get("endpoints"), "endpoints");
    let ports: Vec<EndpointPort> = scope.read_items(document.node.get("ports"), "ports");
    let service = scope.meta.labels.get("kubernetes.io/service-name").cloned()?;
    let listed = endpoints.iter().flat_map(|endpoint| {
        let is_ready = endpoint.is_ready();
        endpoint.addresses.iter().map(move |text| ListedAddress { text, is_ready })
    });
    Some(endpoints_of(&mut scope, &service, listed, &ports))
}
