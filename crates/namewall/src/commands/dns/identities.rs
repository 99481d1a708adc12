//! Which pod a client is.

use anyhow::Result;
use namewall_cluster::yaml::{Node, Value};
use namewall_cluster::{self as cluster, Document};
use namewall_firewall::serve::Identities;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

/// Pods by their addresses; they may change at any moment.
#[derive(Debug, Default)]
pub(super) struct Pods(RwLock<HashMap<IpAddr, Pod>>);

#[derive(Debug)]
struct Pod {
    namespace: String,
    name: String,
    account: Option<String>,
    labels: Vec<(Box<str>, Box<str>)>,
}

/// Those of manifests.
pub(super) fn read(paths: &[PathBuf]) -> Result<Arc<Pods>> {
    let pods = Pods::default();
    if !paths.is_empty() {
        pods.set(cluster::load(paths)?.documents.iter());
    }
    Ok(Arc::new(pods))
}

impl Pods {
    /// From now on these are who clients are. Of objects that are no pods nothing is taken.
    pub(super) fn set<'d>(&self, documents: impl Iterator<Item = &'d Document>) {
        let mut by_address = HashMap::new();
        for document in documents.filter(|document| document.kind() == Some("Pod")) {
            for address in addresses(document) {
                by_address.insert(address, Pod::read(document));
            }
        }
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = by_address;
    }
}

impl Pod {
    fn read(document: &Document) -> Self {
        let text = |path: &[&str]| at(&document.node, path).and_then(Node::as_str).map(str::to_owned);
        let labels = at(&document.node, &["metadata", "labels"]).map(Node::entries).unwrap_or_default();
        let labels = labels.iter().filter_map(|entry| Some((entry.key.clone(), entry.node.as_str()?.into())));
        Self {
            namespace: document.namespace().filter(|name| !name.is_empty()).unwrap_or("default").to_owned(),
            name: document.name().unwrap_or_default().to_owned(),
            account: text(&["spec", "serviceAccountName"]),
            labels: labels.collect(),
        }
    }
}

/// Where it asks from. A pod that has ended has no address, and one of the node's network is not told apart.
fn addresses(document: &Document) -> Vec<IpAddr> {
    let get = |path: &[&str]| at(&document.node, path);
    let has_ended = matches!(get(&["status", "phase"]).and_then(Node::as_str), Some("Succeeded" | "Failed"));
    let is_of_host = matches!(get(&["spec", "hostNetwork"]), Some(Node { value: Value::Bool(true), .. }));
    if has_ended || is_of_host {
        return Vec::new();
    }
    let listed = match get(&["status", "podIPs"]).map(|node| &node.value) {
        Some(Value::Seq(items)) => items.iter().filter_map(|item| item.get("ip")?.as_str()).collect(),
        _ => Vec::new(),
    };
    let own = get(&["status", "podIP"]).and_then(Node::as_str);
    own.into_iter().chain(listed).filter_map(|text| text.parse().ok()).collect()
}

fn at<'n>(node: &'n Node, path: &[&str]) -> Option<&'n Node> {
    path.iter().try_fold(node, |node, key| node.get(key))
}

impl Identities for Pods {
    fn label(&self, client: IpAddr, label: &str) -> Option<String> {
        let pods = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let pod = pods.get(&client)?;
        match label.strip_prefix("kubernetes/")? {
            "client-namespace" => Some(pod.namespace.clone()),
            "client-pod-name" => Some(pod.name.clone()),
            "client-service-account" => pod.account.clone(),
            label => {
                let key = label.strip_prefix("client-label/")?;
                pod.labels.iter().find(|(known, _)| **known == *key).map(|(_, value)| value.to_string())
            }
        }
    }
}
