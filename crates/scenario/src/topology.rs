//! The `topology` of a scenario: manifests, whole objects, and short forms of
//! namespaces, nodes and pods, which are written out as objects; and the DNS of
//! the world outside.

use crate::file::{Reader, ScenarioError};
use crate::zones::{self, Zones};
use namewall_cluster::yaml::{Entry, Node, Value};
use namewall_cluster::{Document, Manifests};
use namewall_policy::Finding;
use std::path::PathBuf;

type Result<T> = std::result::Result<T, ScenarioError>;

#[derive(Default)]
pub(crate) struct Topology {
    pub(crate) objects: Vec<Document>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) zones: Zones,
}

pub(crate) fn read(reader: &Reader<'_>, topology: &Node) -> Result<Topology> {
    reader.only(topology, &["manifests", "objects", "namespaces", "nodes", "pods", "dns"])?;
    let mut paths = Vec::new();
    for path in reader.items(topology.get("manifests"))? {
        paths.push(reader.folder.join(reader.text(path)?));
    }
    let Manifests { mut documents, findings } = load(reader, &paths)?;
    let mut findings = findings;
    for node in reader.items(topology.get("objects"))? {
        let (objects, found) = Document::from_tree(reader.file, node.clone());
        documents.extend(objects);
        findings.extend(found);
    }
    let short = [("namespaces", namespace as Write), ("nodes", node), ("pods", pod)];
    for (key, write) in short {
        let short = topology.get(key).filter(|node| !node.is_null());
        if let Some(node) = short.filter(|node| !matches!(node.value, Value::Map(_))) {
            return reader.wrong(node, format!("`{key}` is a map, by name"));
        }
        for entry in short.map(Node::entries).unwrap_or_default() {
            let object = write(reader, entry)?;
            documents.push(reader.document(&object));
        }
    }
    let zones = match topology.get("dns").filter(|node| !node.is_null()) {
        Some(node) => zones::read(reader, node)?,
        None => Zones::default(),
    };
    Ok(Topology { objects: documents, findings, zones })
}

type Write = fn(&Reader<'_>, &Entry) -> Result<Node>;

pub(crate) fn load(reader: &Reader<'_>, paths: &[PathBuf]) -> Result<Manifests> {
    if paths.is_empty() {
        return Ok(Manifests::default());
    }
    namewall_cluster::load_regular(paths)
        .map_err(|source| ScenarioError::Manifests { file: reader.file.to_string(), source })
}

/// `shop: {team: red}`: the labels.
fn namespace(_: &Reader<'_>, entry: &Entry) -> Result<Node> {
    let mut object = object("v1", "Namespace", entry);
    set(&mut object, &["metadata", "name"], Node::string(&entry.key));
    if !entry.node.is_null() {
        set(&mut object, &["metadata", "labels"], entry.node.clone());
    }
    Ok(object)
}

/// `n1: {labels: …, addresses: […], podCIDRs: […]}`.
fn node(reader: &Reader<'_>, entry: &Entry) -> Result<Node> {
    reader.only(&entry.node, &["labels", "addresses", "podCIDRs"])?;
    let mut object = object("v1", "Node", entry);
    set(&mut object, &["metadata", "name"], Node::string(&entry.key));
    copy(&mut object, &["metadata", "labels"], entry.node.get("labels"));
    copy(&mut object, &["spec", "podCIDRs"], entry.node.get("podCIDRs"));
    let addresses = reader.items(entry.node.get("addresses"))?;
    let addresses =
        addresses.iter().map(|address| map([("type", Node::string("InternalIP")), ("address", address.clone())]));
    set(&mut object, &["status", "addresses"], list(addresses));
    Ok(object)
}

/// `shop/web: {labels: …, ips: […], node: n1, ports: {http: 80/TCP}, hostNetwork: true}`.
fn pod(reader: &Reader<'_>, entry: &Entry) -> Result<Node> {
    reader.only(&entry.node, &["labels", "ip", "ips", "node", "ports", "hostNetwork", "phase", "annotations"])?;
    let Some((namespace, name)) = entry.key.split_once('/') else {
        return reader.wrong(&entry.node, format!("`{}`: a pod is written NAMESPACE/NAME", entry.key));
    };
    let mut object = object("v1", "Pod", entry);
    set(&mut object, &["metadata", "name"], Node::string(name));
    set(&mut object, &["metadata", "namespace"], Node::string(namespace));
    copy(&mut object, &["metadata", "labels"], entry.node.get("labels"));
    copy(&mut object, &["metadata", "annotations"], entry.node.get("annotations"));
    copy(&mut object, &["spec", "nodeName"], entry.node.get("node"));
    copy(&mut object, &["spec", "hostNetwork"], entry.node.get("hostNetwork"));
    copy(&mut object, &["status", "phase"], entry.node.get("phase"));
    copy(&mut object, &["status", "podIP"], entry.node.get("ip"));
    let ips = reader.items(entry.node.get("ips"))?;
    if let Some(first) = ips.first() {
        set(&mut object, &["status", "podIP"], first.clone());
        set(&mut object, &["status", "podIPs"], list(ips.iter().map(|ip| map([("ip", ip.clone())]))));
    }
    let mut ports = Vec::new();
    for port in entry.node.get("ports").map(Node::entries).unwrap_or_default() {
        ports.push(container_port(reader, port)?);
    }
    let container = map([("name", Node::string("main")), ("ports", list(ports.into_iter()))]);
    set(&mut object, &["spec", "containers"], list(std::iter::once(container)));
    Ok(object)
}

/// `http: 80/TCP`, `http: 80`.
fn container_port(reader: &Reader<'_>, entry: &Entry) -> Result<Node> {
    let (number, protocol) = match entry.node.plain() {
        Value::Int(number) => (*number, "TCP"),
        Value::String(text) => {
            let (number, protocol) = text.split_once('/').unwrap_or((text, "TCP"));
            match number.parse() {
                Ok(number) => (number, protocol),
                Err(_) => return reader.wrong(&entry.node, "a port is written like 80/TCP"),
            }
        }
        _ => return reader.wrong(&entry.node, "a port is written like 80/TCP"),
    };
    let number = Node { mark: entry.mark, value: Value::Int(number) };
    Ok(map([("name", Node::string(&entry.key)), ("containerPort", number), ("protocol", Node::string(protocol))]))
}

fn object(api_version: &str, kind: &str, entry: &Entry) -> Node {
    let mut object = map([("apiVersion", Node::string(api_version)), ("kind", Node::string(kind))]);
    object.mark = entry.mark;
    object
}

fn map<const N: usize>(entries: [(&str, Node); N]) -> Node {
    let entries = entries.into_iter().map(|(key, node)| Entry { key: key.into(), mark: node.mark, node });
    Node { mark: Default::default(), value: Value::Map(entries.collect()) }
}

fn list(items: impl Iterator<Item = Node>) -> Node {
    Node { mark: Default::default(), value: Value::Seq(items.collect()) }
}

fn copy(object: &mut Node, path: &[&str], value: Option<&Node>) {
    if let Some(value) = value {
        set(object, path, value.clone());
    }
}

fn set(object: &mut Node, path: &[&str], value: Node) {
    let mut here = object;
    for key in path {
        let Some(next) = here.entry(key) else { return };
        here = next;
    }
    *here = value;
}
