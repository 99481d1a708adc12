//! Which pod a client is.

use anyhow::Result;
use namewall_cluster as cluster;
use namewall_firewall::serve::{Identities, Strangers};
use namewall_policy::Snapshot;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Pods by their addresses.
#[derive(Debug)]
struct Pods {
    snapshot: Snapshot,
    by_address: HashMap<IpAddr, usize>,
}

pub(super) fn read(paths: &[PathBuf]) -> Result<Arc<dyn Identities>> {
    if paths.is_empty() {
        return Ok(Arc::new(Strangers));
    }
    let manifests = cluster::load(paths)?;
    let snapshot = cluster::lower(&manifests.documents, &cluster::Settings::default()).snapshot;
    let mut by_address = HashMap::new();
    for (at, workload) in snapshot.workloads.iter().enumerate().filter(|(_, one)| !one.host_network) {
        workload.addresses.iter().for_each(|address| _ = by_address.insert(*address, at));
    }
    Ok(Arc::new(Pods { snapshot, by_address }))
}

impl Identities for Pods {
    fn label(&self, client: IpAddr, label: &str) -> Option<String> {
        let workload = &self.snapshot.workloads[*self.by_address.get(&client)?];
        let namespace = || self.snapshot.namespaces[workload.namespace.index()].name.to_string();
        match label.strip_prefix("kubernetes/")? {
            "client-namespace" => Some(namespace()),
            "client-pod-name" => Some(workload.name.to_string()),
            label => {
                let key = label.strip_prefix("client-label/")?;
                self.snapshot.roles[workload.role.index()].labels.get(key).map(ToString::to_string)
            }
        }
    }
}
