//! Services.

use super::meta::IntOrString;
use crate::document::Document;
use crate::lower::{DescribedPort, DescribedService, Scope, parts};
use namewall_policy::Finding;
use namewall_policy::addr::parse_address;
use namewall_policy::labels::{Requirement, Selector};
use namewall_policy::model::ServiceForm;
use rustc_hash::FxHashSet;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The fields that the store keeps of a Service.
pub(super) const KEPT: &[&str] = &[
    "spec.type",
    "spec.externalName",
    "spec.clusterIP",
    "spec.clusterIPs",
    "spec.externalIPs",
    "spec.selector",
    "spec.ports",
    "status.loadBalancer",
];

/// Read piece by piece: see `lower`.
#[derive(Default, Debug, Clone)]
struct ServiceSpec {
    kind: Option<String>,
    external_name: Option<String>,
    cluster_ip: Option<String>,
    cluster_ips: Vec<String>,
    external_ips: Vec<String>,
    selector: BTreeMap<String, String>,
    ports: Vec<ServicePort>,
}

/// The fields of a spec that matter here.
const SPEC_FIELDS: [&str; 7] = ["type", "externalName", "clusterIP", "clusterIPs", "externalIPs", "selector", "ports"];

#[derive(Deserialize, Debug, Clone)]
#[serde(rename_all = "camelCase")]
struct ServicePort {
    name: Option<String>,
    protocol: Option<String>,
    port: u16,
    target_port: Option<IntOrString>,
    node_port: Option<u16>,
}

#[derive(Deserialize, Debug, Clone)]
#[serde(rename_all = "camelCase")]
struct LoadBalancerIngress {
    ip: Option<String>,
    ip_mode: Option<String>,
}

/// The modes of a load balancer's address. Without one it is `VIP`.
const VIP: &str = "VIP";
pub(crate) const PROXY: &str = "Proxy";

/// The addresses of load balancers, by their mode.
#[derive(Default)]
struct Balanced {
    /// Nodes translate them.
    translated: Vec<String>,
    /// Nobody but the load balancer does.
    proxied: Vec<String>,
}

fn balanced(scope: &mut Scope<'_>) -> Balanced {
    let listed: Vec<LoadBalancerIngress> =
        scope.read_items(scope.node(&["status", "loadBalancer", "ingress"]), "status.loadBalancer.ingress");
    let mut balanced = Balanced::default();
    for (at, LoadBalancerIngress { ip, ip_mode }) in listed.into_iter().enumerate() {
        let mode = ip_mode.as_deref().unwrap_or(VIP);
        if ![VIP, PROXY].contains(&mode) {
            // kube-proxy takes every mode but VIP for Proxy, and so does what follows.
            let path = format!("status.loadBalancer.ingress[{at}].ipMode");
            scope.error("bad-ip-mode", &path, format!("`{mode}` is not accepted; use {VIP} or {PROXY}"));
        }
        let known = if mode == VIP { &mut balanced.translated } else { &mut balanced.proxied };
        known.extend(ip);
    }
    balanced
}

pub(crate) fn read_service(document: &Document, findings: &mut Vec<Finding>) -> DescribedService {
    let mut scope = Scope::of_fact(document, findings);
    scope.find_misspelt(document.node.get("spec"), "spec", &SPEC_FIELDS);
    let spec = service_spec(&mut scope);
    let Balanced { translated, proxied } = balanced(&mut scope);
    let mut addresses: Vec<IpAddr> = Vec::new();
    let mut take = |text: &String| {
        if text.is_empty() || text == "None" {
            return;
        }
        if let Some(address) = parts::address(&mut scope, text, "spec.clusterIP")
            && !addresses.contains(&address)
        {
            addresses.push(address);
        }
    };
    spec.cluster_ip.iter().chain(&spec.cluster_ips).for_each(&mut take);
    spec.external_ips.iter().chain(&translated).for_each(&mut take);
    proxied.iter().for_each(&mut take);
    // An address that is listed in another way as well is translated.
    let of_proxies: FxHashSet<IpAddr> = proxied.iter().filter_map(|text| parse_address(text)).collect();
    let others = spec.cluster_ip.iter().chain(&spec.cluster_ips).chain(&spec.external_ips).chain(&translated);
    let others: FxHashSet<IpAddr> = others.filter_map(|text| parse_address(text)).collect();
    let is_proxied = |address: &IpAddr| of_proxies.contains(address) && !others.contains(address);
    let proxied = addresses.iter().copied().filter(is_proxied).collect();
    let own = spec.cluster_ip.iter().chain(&spec.cluster_ips).filter_map(|text| text.parse::<IpAddr>().ok());
    let own: FxHashSet<IpAddr> = own.collect();
    let own = addresses.iter().take_while(|address| own.contains(address)).count();
    let form = form(&mut scope, &spec);
    let mut ports = Vec::new();
    for (at, port) in spec.ports.iter().enumerate() {
        let path = format!("spec.ports[{at}].protocol");
        let Some(protocol) = parts::protocol(&mut scope, port.protocol.as_deref(), &path) else { continue };
        ports.push(DescribedPort {
            name: port.name.as_deref().map(Into::into),
            protocol,
            port: port.port,
            node_port: port.node_port,
            target: port.target_port.clone(),
        });
    }
    let requirements = spec.selector.iter();
    let selector = Selector {
        requirements: requirements
            .map(|(key, value)| Requirement::In { key: key.as_str().into(), values: vec![value.as_str().into()] })
            .collect(),
    };
    DescribedService {
        namespace: scope.namespace().into(),
        name: scope.meta.name.as_str().into(),
        form,
        addresses,
        own,
        proxied,
        ports,
        selector,
        source: scope.place(""),
    }
}

/// Piece by piece: a bad port must not lose the Service's addresses.
fn service_spec(scope: &mut Scope<'_>) -> ServiceSpec {
    ServiceSpec {
        kind: scope.read_part(scope.node(&["spec", "type"]), "spec.type"),
        external_name: scope.read_part(scope.node(&["spec", "externalName"]), "spec.externalName"),
        cluster_ip: scope.read_part(scope.node(&["spec", "clusterIP"]), "spec.clusterIP"),
        cluster_ips: scope.read_items(scope.node(&["spec", "clusterIPs"]), "spec.clusterIPs"),
        external_ips: scope.read_items(scope.node(&["spec", "externalIPs"]), "spec.externalIPs"),
        selector: scope.read_part(scope.node(&["spec", "selector"]), "spec.selector"),
        ports: scope.read_items(scope.node(&["spec", "ports"]), "spec.ports"),
    }
}

/// S10.4: a Service without a cluster address is one that is not applied yet, not a headless one.
fn form(scope: &mut Scope<'_>, spec: &ServiceSpec) -> ServiceForm {
    if spec.kind.as_deref() == Some("ExternalName") {
        let written = spec.external_name.as_deref().unwrap_or_default();
        match written.parse() {
            Ok(name) => return ServiceForm::ExternalName(name),
            Err(error) => {
                scope.error("bad-name", "spec.externalName", format!("`{written}` is not a DNS name: {error}"));
                // It leads nowhere.
                return ServiceForm::Headless;
            }
        }
    }
    let mut addresses = spec.cluster_ip.iter().chain(&spec.cluster_ips);
    if addresses.any(|text| text == "None") { ServiceForm::Headless } else { ServiceForm::Balanced }
}
