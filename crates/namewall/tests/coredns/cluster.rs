//! A cluster of random Services, EndpointSlices and pods, and questions about it.

use crate::ask::Question;
use namewall_testbed::{ControlPlane, Dice};
use serde_json::{Value, json};
use std::fmt::Write;

pub(crate) const NAMESPACES: [&str; 4] = ["shop", "bank", "default", "edge"];
const TYPES: [&str; 12] = ["A", "AAAA", "SRV", "PTR", "TXT", "CNAME", "MX", "NS", "SOA", "HTTPS", "ANY", "DS"];

/// What was made, by the labels that names of it begin with.
pub(crate) struct Made {
    pub(crate) labels: Vec<String>,
    pub(crate) addresses: Vec<String>,
}

/// The Service of a slice.
struct Owner<'a> {
    namespace: &'a str,
    service: &'a str,
    labels: &'a Value,
}

fn ports(dice: &mut Dice) -> Vec<Value> {
    let all = [("http", "TCP", 80), ("dns", "UDP", 53), ("dns-tcp", "TCP", 53), ("https", "TCP", 443)];
    let from = dice.within(0..all.len());
    let count = dice.within(1..3);
    let chosen = all.iter().cycle().skip(from).take(count);
    chosen.map(|(name, protocol, port)| json!({"name": name, "protocol": protocol, "port": port})).collect()
}

/// Makes objects, and names and addresses that are worth asking for.
pub(crate) fn make(plane: &ControlPlane, dice: &mut Dice) -> Made {
    let mut objects = Vec::new();
    let mut made = Made { labels: Vec::new(), addresses: Vec::new() };
    for namespace in NAMESPACES.iter().filter(|name| **name != "default") {
        let labels = json!({"team": if *namespace == "bank" { "money" } else { "goods" }});
        objects
            .push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}));
    }
    for number in 0..40 {
        let namespace = dice.pick(&NAMESPACES);
        let name = format!("s{number}");
        let labels = json!({"tier": dice.pick(&["front", "back"])});
        let mut spec = json!({"ports": ports(dice)});
        match number % 8 {
            0..=2 => {}
            3..=5 => spec["clusterIP"] = "None".into(),
            6 if dice.chance(50) => spec = json!({"clusterIP": "None"}),
            6 => spec["ports"] = json!([{"port": 8080}]),
            _ => {
                let targets = [
                    "www.example.com".to_owned(),
                    "10.1.2.3".to_owned(),
                    format!("s1.{namespace}.svc.cluster.local"),
                    format!("s{}.{}.svc.cluster.local", dice.within(0..40), dice.pick(&NAMESPACES)),
                    format!("{name}.{namespace}.svc.cluster.local"),
                    "nothing.shop.svc.cluster.local".to_owned(),
                    "denied.example.com".to_owned(),
                ];
                spec = json!({"type": "ExternalName", "externalName": dice.pick(&targets)});
            }
        }
        let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
        objects.push(json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}));
        made.labels.push(format!("{name}.{namespace}.svc"));
        for part in 0..dice.within(0..3) {
            let owner = Owner { namespace, service: &name, labels: &labels };
            objects.push(slice(dice, &format!("{name}-{part}"), &owner, &mut made));
        }
    }
    let stray = json!({"name": "stray", "namespace": "shop"});
    objects.push(json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": stray,
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.7.7.7"]}], "ports": []}));
    // Nobody asks for its address: CoreDNS makes a name with an empty label of it, and cannot send it.
    let texts: Vec<String> = objects.iter().map(ToString::to_string).collect();
    plane.apply(&texts.join("\n---\n")).unwrap();
    for (number, namespace) in [(1, "shop"), (2, "bank")] {
        let address = format!("10.8.0.{number}");
        let manifest = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p{number}, namespace: {namespace}, labels: {{tier: front}}}}\n\
             spec: {{containers: [{{name: c, image: none}}]}}\n"
        );
        plane.run_pod(&manifest, &address).unwrap();
        let label = address.replace('.', "-");
        made.labels.extend(NAMESPACES.iter().map(|namespace| format!("{label}.{namespace}.pod")));
        made.addresses.push(address);
    }
    let services = plane.get(&["services", "-A"]).unwrap();
    for service in services["items"].as_array().unwrap() {
        made.addresses.extend(service["spec"]["clusterIP"].as_str().filter(|ip| *ip != "None").map(str::to_owned));
    }
    made
}

fn slice(dice: &mut Dice, name: &str, of: &Owner<'_>, made: &mut Made) -> Value {
    let Owner { namespace, service, labels } = *of;
    let is_v6 = dice.chance(30);
    let mut endpoints = Vec::new();
    for _ in 0..dice.within(0..4) {
        let last = dice.within(1..60);
        let address = if is_v6 { format!("fd00::{last:x}") } else { format!("10.9.0.{last}") };
        let mut endpoint = json!({"addresses": [address]});
        let mut first = address.replace(['.', ':'], "-");
        if dice.chance(30) {
            first = format!("host-{last}");
            endpoint["hostname"] = first.clone().into();
        }
        if dice.chance(40) {
            let pod = format!("pod-{last}");
            endpoint["targetRef"] = json!({"kind": "Pod", "name": pod, "namespace": namespace});
            made.labels.push(format!("{pod}.{service}.{namespace}.svc"));
        }
        if dice.chance(60) {
            endpoint["conditions"] = json!({"ready": dice.chance(70)});
        }
        made.labels.push(format!("{first}.{service}.{namespace}.svc"));
        made.addresses.push(address);
        endpoints.push(endpoint);
    }
    let mut labels = labels.clone();
    labels["kubernetes.io/service-name"] = service.into();
    let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
    let ports = if dice.chance(15) { Vec::new() } else { ports(dice) };
    let kind = if is_v6 { "IPv6" } else { "IPv4" };
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
        "addressType": kind, "endpoints": endpoints, "ports": ports})
}

/// Questions about a cluster: about all that was made, and about what nobody made.
pub(crate) fn questions(made: &Made, dice: &mut Dice, count: usize) -> Vec<Question> {
    let mut texts = Vec::new();
    let fixed = [
        "",
        "svc",
        "pod",
        "dns-version",
        "ns.dns",
        "other",
        "x.svc",
        "kubernetes.default.svc",
        "a.b.c.d.e.svc",
        "shop.svc",
        "shop.pod",
        "none.svc",
        "_tcp.s1.shop.svc",
        "_https._tcp.kubernetes.default.svc",
        "1-2-3.shop.pod",
        "--ffff-102-304.shop.pod",
        "fd00--1.shop.pod",
        "1-2-3-4.none.pod",
        "x.1-2-3-4.shop.pod",
        "s1.shop.other",
    ];
    for name in fixed {
        texts.extend(TYPES.map(|kind| format!("{kind} {}", zoned(name))));
    }
    for address in &made.addresses {
        texts.push(format!("PTR {}", reverse(address)));
        if dice.chance(20) {
            texts.push(format!("{} {}", dice.pick(&TYPES), reverse(address)));
        }
    }
    for text in ["1.2.3.4", "10.96.255.254", "fd00::ffff"] {
        texts.push(format!("PTR {}", reverse(text)));
    }
    for name in ["in-addr.arpa", "10.in-addr.arpa", "1.0.10.in-addr.arpa", "x.0.0.10.in-addr.arpa", "8.ip6.arpa"] {
        texts.extend(["PTR", "SOA", "NS", "A"].map(|kind| format!("{kind} {name}")));
    }
    for label in &made.labels {
        texts.extend(["A", "AAAA", "SRV"].map(|kind| format!("{kind} {}", zoned(label))));
    }
    while texts.len() < count {
        let mut name = dice.pick(&made.labels);
        let before = ["_http._tcp", "_dns._udp", "http.tcp", "_https._udp", "_dns-tcp._tcp", "x.y.z", "host-1", ""];
        if dice.chance(60) {
            name = format!("{}.{name}", dice.pick(&before));
        }
        if dice.chance(20) {
            name = name.to_uppercase();
        }
        if dice.chance(5) {
            name = name.replace(".svc", ".pod");
        }
        texts.push(format!("{} {}", dice.pick(&TYPES), zoned(name.trim_start_matches('.'))));
    }
    texts.iter().map(|text| Question::new(text)).collect()
}

fn zoned(name: &str) -> String {
    if name.is_empty() { "cluster.local".to_owned() } else { format!("{name}.cluster.local") }
}

/// The name of an address.
fn reverse(address: &str) -> String {
    match address.parse().unwrap() {
        std::net::IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        std::net::IpAddr::V6(v6) => {
            let mut name = String::new();
            format!("{:032x}", v6.to_bits()).chars().rev().for_each(|digit| write!(name, "{digit}.").unwrap());
            name + "ip6.arpa"
        }
    }
}
