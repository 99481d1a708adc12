//! Random clusters, as manifests in JSON, and the connections to ask about.

use crate::policies;
use namewall_testbed::Dice;
use serde_json::{Map, Value, json};

pub(crate) struct Cluster {
    pub(crate) seed: u64,
    pub(crate) objects: Vec<Value>,
    pub(crate) ends: Vec<End>,
    /// Indices of `ends`: source and destination.
    pub(crate) pairs: Vec<[usize; 2]>,
    pub(crate) ports: Vec<Port>,
}

/// An address and what the manifests say about it.
#[derive(Clone)]
pub(crate) struct End {
    pub(crate) address: String,
    /// The pod that has the address. None for a pod on its node's network.
    pub(crate) pod: Option<String>,
    /// The node that has the address, or that the pod runs on.
    pub(crate) node: Option<usize>,
}

#[derive(Clone, Copy)]
pub(crate) struct Port {
    pub(crate) protocol: &'static str,
    pub(crate) port: u16,
}

pub(crate) const NAMESPACES: [&str; 3] = ["one", "two", "three"];
const NODES: usize = 2;
/// One of these addresses is in the pod network and belongs to no pod.
const OUTSIDE: [&str; 6] =
    ["203.0.113.10", "203.0.113.70", "198.51.100.7", "10.244.1.200", "2001:db8::1", "2001:db8:1::1"];
const PORTS: [Port; 7] = [
    Port { protocol: "TCP", port: 80 },
    Port { protocol: "TCP", port: 8080 },
    Port { protocol: "TCP", port: 9090 },
    Port { protocol: "TCP", port: 7 },
    Port { protocol: "UDP", port: 80 },
    Port { protocol: "UDP", port: 53 },
    Port { protocol: "SCTP", port: 9090 },
];

pub(crate) fn cluster(seed: u64) -> Cluster {
    let mut dice = Dice::new(seed);
    let mut objects: Vec<Value> = (0..NODES).map(node).collect();
    objects.extend(NAMESPACES.map(|name| namespace(&mut dice, name)));
    let mut ends: Vec<End> = Vec::new();
    for number in 0..NODES {
        ends.extend(node_addresses(number).map(|address| End { address, pod: None, node: Some(number) }));
    }
    for number in 0..dice.within(3..7) {
        pod(&mut dice, number, &mut objects, &mut ends);
    }
    ends.extend(OUTSIDE.map(|address| End { address: address.to_owned(), pod: None, node: None }));
    objects.extend(policies::all(&mut dice));
    Cluster { seed, objects, pairs: pairs(&ends), ends, ports: PORTS.to_vec() }
}

/// Every two addresses of one family, at least one of which is a pod's.
fn pairs(ends: &[End]) -> Vec<[usize; 2]> {
    let all = (0..ends.len()).flat_map(|from| (0..ends.len()).map(move |to| [from, to]));
    all.filter(|pair| {
        let [from, to] = pair.map(|at| &ends[at]);
        from.address.contains(':') == to.address.contains(':') && (from.pod.is_some() || to.pod.is_some())
    })
    .collect()
}

fn node(number: usize) -> Value {
    let addresses = node_addresses(number).map(|address| json!({"type": "InternalIP", "address": address}));
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": format!("n{number}"), "labels": {"zone": if number == 0 { "a" } else { "b" }}},
        "spec": {"podCIDRs": [format!("10.244.{}.0/24", number + 1), format!("fd00:244:{}::/64", number + 1)]},
        "status": {"addresses": addresses},
    })
}

pub(crate) fn node_addresses(number: usize) -> [String; 2] {
    [format!("192.168.0.{}", number + 1), format!("fd00:1::{}", number + 1)]
}

fn namespace(dice: &mut Dice, name: &str) -> Value {
    let labels = labels(dice, &policies::NAMESPACE_LABELS);
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

fn labels(dice: &mut Dice, from: &[(&str, &[&str])]) -> Value {
    let mut labels = Map::new();
    for (key, values) in from {
        if dice.chance(70) {
            labels.insert((*key).to_owned(), json!(dice.pick(values)));
        }
    }
    Value::Object(labels)
}

fn pod(dice: &mut Dice, number: usize, objects: &mut Vec<Value>, ends: &mut Vec<End>) {
    let node = dice.within(0..NODES);
    let (name, namespace) = (format!("p{number}"), dice.pick(&NAMESPACES));
    let host_network = dice.chance(8);
    let mut addresses = match host_network {
        true => node_addresses(node).to_vec(),
        false => {
            vec![format!("10.244.{}.{}", node + 1, number + 10), format!("fd00:244:{}::{}", node + 1, number + 10)]
        }
    };
    addresses.truncate(if dice.chance(75) { 2 } else { 1 });
    let mut spec = json!({
        "nodeName": format!("n{node}"),
        "containers": [container(dice, "main", number)],
    });
    if host_network {
        spec["hostNetwork"] = json!(true);
    }
    if dice.chance(12) {
        let mut sidecar = container(dice, "sidecar", number);
        sidecar["restartPolicy"] = json!("Always");
        spec["initContainers"] = json!([sidecar]);
    }
    let pod = |name: &str, labels: Value, phase: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": spec,
            "status": {
                "phase": phase, "podIP": addresses[0],
                "podIPs": addresses.iter().map(|ip| json!({"ip": ip})).collect::<Vec<_>>(),
            },
        })
    };
    // The address of a finished pod can belong to another pod by now.
    if dice.chance(10) {
        objects.push(pod(&format!("finished-{name}"), labels(dice, &policies::POD_LABELS), "Succeeded"));
    }
    objects.push(pod(&name, labels(dice, &policies::POD_LABELS), "Running"));
    if !host_network {
        let name = format!("{namespace}/{name}");
        ends.extend(addresses.into_iter().map(|address| End { address, pod: Some(name.clone()), node: Some(node) }));
    }
}

fn container(dice: &mut Dice, name: &str, pod: usize) -> Value {
    let mut ports = Vec::new();
    for port_name in policies::PORT_NAMES {
        if !dice.chance(45) {
            continue;
        }
        let mut port = json!({"name": port_name, "containerPort": dice.pick(&[80, 8080, 9090, 53])});
        match dice.within(0..4) {
            0 => port["protocol"] = json!("UDP"),
            1 => port["protocol"] = json!("TCP"),
            2 if pod.is_multiple_of(2) => port["protocol"] = json!("SCTP"),
            _ => {}
        }
        ports.push(port);
    }
    json!({"name": name, "image": "example", "ports": ports})
}
