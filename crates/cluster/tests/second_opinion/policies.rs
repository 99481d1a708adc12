//! Random policies: NetworkPolicy, and the admin policies of one of two versions.

use crate::generate::NAMESPACES;
use namewall_testbed::Dice;
use serde_json::{Value, json};

type Labels = [(&'static str, &'static [&'static str]); 2];

pub(crate) const NAMESPACE_LABELS: Labels = [("team", &["a", "b"]), ("env", &["dev", "prod"])];
pub(crate) const POD_LABELS: Labels = [("app", &["web", "db", "api"]), ("layer", &["front", "back"])];
pub(crate) const PORT_NAMES: [&str; 3] = ["http", "dns", "metrics"];

const NETWORKS: [&str; 12] = [
    "0.0.0.0/0",
    "10.244.0.0/16",
    "10.244.1.0/24",
    "10.244.2.12/32",
    "192.168.0.0/24",
    "203.0.113.0/24",
    "203.0.113.64/26",
    "::/0",
    "fd00:244::/32",
    "fd00:244:1::/64",
    "2001:db8::/32",
    "2001:db8:1::/48",
];
/// Blocks with what can be excepted from them. One has host bits.
const BLOCKS: [(&str, &[&str]); 6] = [
    ("0.0.0.0/0", &["10.244.0.0/16", "203.0.113.0/24", "10.244.1.0/24"]),
    ("10.244.0.0/16", &["10.244.1.0/24", "10.244.2.12/32"]),
    ("10.244.1.7/24", &["10.244.1.11/32"]),
    ("203.0.113.0/24", &["203.0.113.64/26"]),
    ("::/0", &["fd00:244::/32", "2001:db8:1::/48"]),
    ("fd00:244::/32", &["fd00:244:1::/64"]),
];
const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];
const NUMBERS: [u16; 4] = [80, 8080, 9090, 53];

pub(crate) fn all(dice: &mut Dice) -> Vec<Value> {
    let mut policies: Vec<Value> = (0..dice.within(0..5)).map(|number| network_policy(dice, number)).collect();
    match dice.within(0..5) {
        0 | 1 => {
            policies.extend((0..dice.within(0..4)).map(|number| admin(dice, number)));
            if dice.chance(70) {
                policies.push(baseline(dice));
            }
        }
        2 | 3 => policies.extend((0..dice.within(1..6)).map(|number| cluster(dice, number))),
        _ => {}
    }
    policies
}

fn network_policy(dice: &mut Dice, number: usize) -> Value {
    let mut spec = json!({"podSelector": selector(dice, &POD_LABELS)});
    let types: &[&[&str]] = &[&[], &["Ingress"], &["Egress"], &["Ingress", "Egress"]];
    let types = dice.pick(types);
    if !types.is_empty() || dice.chance(50) {
        spec["policyTypes"] = json!(types);
    }
    // Rules of a direction that is not among the types are legal and mean nothing.
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        if dice.chance(75) {
            spec[direction] = json!(dice.times(0..3, |dice| network_rule(dice, peers)));
        }
    }
    let name = format!("np{number}");
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": dice.pick(&NAMESPACES)}, "spec": spec,
    })
}

fn network_rule(dice: &mut Dice, peers: &str) -> Value {
    let mut rule = json!({});
    if dice.chance(80) {
        rule[peers] = json!(dice.times(0..3, network_peer));
    }
    if dice.chance(60) {
        rule["ports"] = json!(dice.times(0..3, network_port));
    }
    rule
}

fn network_peer(dice: &mut Dice) -> Value {
    match dice.within(0..4) {
        0 => json!({"podSelector": selector(dice, &POD_LABELS)}),
        1 => json!({"namespaceSelector": namespaces(dice)}),
        2 => json!({"podSelector": selector(dice, &POD_LABELS), "namespaceSelector": namespaces(dice)}),
        _ => {
            let (cidr, within) = dice.pick(&BLOCKS);
            let mut block = json!({"cidr": cidr});
            if dice.chance(50) {
                block["except"] = json!(dice.times(0..3, |dice| dice.pick(within)));
            }
            json!({"ipBlock": block})
        }
    }
}

fn network_port(dice: &mut Dice) -> Value {
    let mut port = json!({});
    if dice.chance(60) {
        port["protocol"] = json!(dice.pick(&PROTOCOLS));
    }
    match dice.within(0..8) {
        0 => {}
        1..4 => port["port"] = json!(dice.pick(&PORT_NAMES)),
        4..7 => port["port"] = json!(dice.pick(&NUMBERS)),
        _ => {
            port["port"] = json!(dice.pick(&[1, 80, 443]));
            port["endPort"] = json!(dice.pick(&[443, 8080, 9000]));
        }
    }
    port
}

fn admin(dice: &mut Dice, number: usize) -> Value {
    let name = format!("admin{}{number}", dice.within(0..9));
    let mut spec = v1alpha1_rules(dice, &["Allow", "Deny", "Pass"]);
    spec["priority"] = json!(dice.within(0..6));
    policy("v1alpha1", "AdminNetworkPolicy", &name, spec)
}

fn baseline(dice: &mut Dice) -> Value {
    let spec = v1alpha1_rules(dice, &["Allow", "Deny", "Deny"]);
    policy("v1alpha1", "BaselineAdminNetworkPolicy", "default", spec)
}

fn cluster(dice: &mut Dice, number: usize) -> Value {
    let name = format!("cluster{}{number}", dice.within(0..9));
    let mut spec = rules(dice, &["Accept", "Deny", "Pass"], ("protocols", protocol));
    spec["priority"] = json!(dice.within(0..6));
    spec["tier"] = json!(dice.pick(&["Admin", "Baseline"]));
    policy("v1alpha2", "ClusterNetworkPolicy", &name, spec)
}

fn policy(version: &str, kind: &str, name: &str, spec: Value) -> Value {
    let version = format!("policy.networking.k8s.io/{version}");
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn v1alpha1_rules(dice: &mut Dice, actions: &[&str]) -> Value {
    rules(dice, actions, ("ports", admin_port))
}

/// The name of the field that has ports, and what makes one: of a pod by name, or of any end by number.
type Ports = (&'static str, fn(&mut Dice, bool) -> Value);

fn rules(dice: &mut Dice, actions: &[&str], ports: Ports) -> Value {
    let mut spec = json!({"subject": subject(dice)});
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        if dice.chance(75) {
            spec[direction] = json!(dice.times(1..4, |dice| rule(dice, actions, peers, ports)));
        }
    }
    spec
}

fn rule(dice: &mut Dice, actions: &[&str], peers: &str, ports: Ports) -> Value {
    let of = dice.times(1..4, |dice| if peers == "from" { subject(dice) } else { egress_peer(dice) });
    // The API has no named ports of nodes and networks.
    let named = of.iter().all(|peer| peer.get("nodes").is_none() && peer.get("networks").is_none());
    let mut rule = json!({"action": dice.pick(actions), peers: of});
    if dice.chance(60) {
        rule[ports.0] = json!(dice.times(1..4, |dice| ports.1(dice, named)));
    }
    rule
}

/// The subject of a policy, which reads like a peer of an ingress rule.
fn subject(dice: &mut Dice) -> Value {
    match dice.chance(50) {
        true => json!({"namespaces": namespaces(dice)}),
        false => json!({"pods": {"namespaceSelector": namespaces(dice), "podSelector": selector(dice, &POD_LABELS)}}),
    }
}

fn egress_peer(dice: &mut Dice) -> Value {
    match dice.within(0..5) {
        0 => json!({"nodes": dice.pick(&[json!({}), json!({"matchLabels": {"zone": "a"}})])}),
        1 => json!({"networks": dice.times(1..4, |dice| dice.pick(&NETWORKS))}),
        _ => subject(dice),
    }
}

fn admin_port(dice: &mut Dice, named: bool) -> Value {
    let mut port = match dice.within(0..4) {
        0 | 1 if named => return json!({"namedPort": dice.pick(&PORT_NAMES)}),
        0 | 1 => json!({"portNumber": {"port": dice.pick(&NUMBERS)}}),
        2 => json!({"portNumber": {"port": dice.pick(&[7, 53, 80])}}),
        _ => json!({"portRange": {"start": dice.pick(&[1, 53, 80]), "end": dice.pick(&[81, 443, 9000])}}),
    };
    if dice.chance(70) {
        let kind = if port.get("portNumber").is_some() { "portNumber" } else { "portRange" };
        port[kind]["protocol"] = json!(dice.pick(&PROTOCOLS));
    }
    port
}

fn protocol(dice: &mut Dice, named: bool) -> Value {
    if named && dice.chance(35) {
        return json!({"destinationNamedPort": dice.pick(&PORT_NAMES)});
    }
    let port = match dice.chance(50) {
        true => json!({"number": dice.pick(&NUMBERS)}),
        false => json!({"range": {"start": dice.pick(&[1, 53, 80]), "end": dice.pick(&[81, 443, 9000])}}),
    };
    let protocol = dice.pick(&["tcp", "udp", "sctp"]);
    json!({protocol: {"destinationPort": port}})
}

fn namespaces(dice: &mut Dice) -> Value {
    match dice.chance(15) {
        true => json!({"matchLabels": {"kubernetes.io/metadata.name": dice.pick(&NAMESPACES)}}),
        false => selector(dice, &NAMESPACE_LABELS),
    }
}

fn selector(dice: &mut Dice, labels: &Labels) -> Value {
    let mut selector = json!({});
    if dice.chance(40) {
        let (key, values) = dice.pick(labels);
        selector["matchLabels"] = json!({key: dice.pick(values)});
    }
    if dice.chance(40) {
        selector["matchExpressions"] = json!(dice.times(1..3, |dice| expression(dice, labels)));
    }
    selector
}

fn expression(dice: &mut Dice, labels: &Labels) -> Value {
    let (key, values) = dice.pick(labels);
    match dice.within(0..4) {
        0 => json!({"key": key, "operator": "In", "values": dice.times(1..3, |dice| dice.pick(values))}),
        1 => json!({"key": key, "operator": "NotIn", "values": dice.times(1..3, |dice| dice.pick(values))}),
        2 => json!({"key": key, "operator": "Exists"}),
        _ => json!({"key": key, "operator": "DoesNotExist"}),
    }
}
