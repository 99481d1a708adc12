//! Which pod a client is.

use anyhow::Result;
use namewall_cluster::{self as cluster, Described};
use namewall_dns_firewall::Identities;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Pods by their addresses; they may change at any moment.
#[derive(Debug, Default)]
pub(super) struct Pods {
    by_address: RwLock<HashMap<IpAddr, Arc<Described>>>,
    /// Whether an API server is watched that has not listed its pods yet.
    are_awaited: AtomicBool,
}

/// Those of manifests.
pub(super) fn read(paths: &[PathBuf]) -> Result<Arc<Pods>> {
    let pods = Pods::default();
    if !paths.is_empty() {
        pods.set(cluster::pods(cluster::load(paths)?.documents.iter()).iter());
    }
    Ok(Arc::new(pods))
}

impl Pods {
    /// From now on these are who clients are. One of the node's network is not told apart.
    pub(super) fn set<'d>(&self, pods: impl Iterator<Item = &'d Described>) {
        let mut by_address = HashMap::new();
        for pod in pods.filter(|pod| !pod.host_network).cloned().map(Arc::new) {
            by_address.extend(pod.addresses.iter().map(|&address| (address, pod.clone())));
        }
        *self.by_address.write().unwrap_or_else(PoisonError::into_inner) = by_address;
        self.are_awaited.store(false, Ordering::Release);
    }

    /// From now on it is not known who clients are, until pods are set.
    pub(super) fn await_list(&self) {
        self.are_awaited.store(true, Ordering::Release);
    }
}

impl Identities for Pods {
    fn label(&self, client: IpAddr, label: &str) -> Option<String> {
        let pods = self.by_address.read().unwrap_or_else(PoisonError::into_inner);
        let pod = pods.get(&client)?;
        match label.strip_prefix("kubernetes/")? {
            "client-namespace" => Some(pod.namespace.to_string()),
            "client-pod-name" => Some(pod.name.to_string()),
            "client-service-account" => pod.account.as_ref().map(ToString::to_string),
            label => {
                let key = label.strip_prefix("client-label/")?;
                pod.labels.get(key).map(str::to_owned)
            }
        }
    }

    fn are_known(&self) -> bool {
        !self.are_awaited.load(Ordering::Acquire)
    }
}
