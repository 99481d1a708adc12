//! Pods, Services and EndpointSlices as objects again, to be stored: of them only
//! what was read is kept. What no rule of the kernel depends on (how a pod looks
//! names up, its owner, its uid) is left out.

use crate::kinds::meta::IntOrString;
use crate::kinds::{ENDPOINT_SLICE, NETWORK_STATUS, POD, PROXY, SERVICE};
use crate::lower::{Described, DescribedService, Endpoints};
use crate::store::Key;
use namewall_policy::labels::Requirement;
use namewall_policy::model::ServiceForm;
use namewall_policy::port::Protocol;
use serde_json::{Map, Value, json};
use std::net::IpAddr;

/// A pod that is read again as it was.
pub(crate) fn pod(key: &Key, pod: &Described) -> Value {
    let labels: Map<String, Value> = pod.labels.iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
    let ports: Vec<Value> = pod
        .ports
        .iter()
        .map(|port| json!({"name": &*port.name, "containerPort": port.port, "protocol": port.protocol.to_string()}))
        .collect();
    let mut metadata = json!({"namespace": &*key.namespace, "name": &*key.name, "labels": labels});
    if !pod.second_addresses.is_empty() {
        let networks = json!([{"ips": texts(&pod.second_addresses)}]).to_string();
        metadata["annotations"] = json!({NETWORK_STATUS: networks});
    }
    json!({
        "apiVersion": POD.preferred().api_version(), "kind": POD.name, "metadata": metadata,
        "spec": {
            "nodeName": pod.node.as_deref(), "hostNetwork": pod.host_network,
            "serviceAccountName": pod.account.as_deref(), "containers": [{"name": "pod", "ports": ports}],
        },
        "status": {
            "phase": if pod.is_running { "Running" } else { "Pending" },
            "podIPs": texts(&pod.addresses).iter().map(|ip| json!({"ip": ip})).collect::<Vec<_>>(),
        },
    })
}

/// A Service that is read again as it was.
pub(crate) fn service(key: &Key, service: &DescribedService) -> Value {
    let (own, others) = service.addresses.split_at(service.own);
    let selector: Map<String, Value> = service
        .selector
        .requirements
        .iter()
        .filter_map(|one| match one {
            Requirement::In { key, values } => Some((key.to_string(), values.first()?.to_string().into())),
            _ => None,
        })
        .collect();
    let ports: Vec<Value> = service
        .ports
        .iter()
        .map(|port| {
            let target = port.target.as_ref().map(|target| match target {
                IntOrString::Int(number) => json!(number),
                IntOrString::String(name) => json!(name),
            });
            json!({
                "name": port.name.as_deref(), "protocol": port.protocol.to_string(), "port": port.port,
                "nodePort": port.node_port, "targetPort": target,
            })
        })
        .collect();
    let (proxied, others): (Vec<IpAddr>, Vec<IpAddr>) = others.iter().partition(|at| service.proxied.contains(at));
    let mut spec = json!({"externalIPs": texts(&others), "selector": selector, "ports": ports});
    match &service.form {
        ServiceForm::ExternalName(name) => {
            (spec["type"], spec["externalName"]) = (json!("ExternalName"), json!(name.to_string()));
        }
        ServiceForm::Headless => spec["clusterIP"] = json!("None"),
        ServiceForm::Balanced => spec["clusterIPs"] = json!(texts(own)),
    }
    let metadata = json!({"namespace": &*key.namespace, "name": &*key.name});
    let version = SERVICE.preferred().api_version();
    let mut stored = json!({"apiVersion": version, "kind": SERVICE.name, "metadata": metadata, "spec": spec});
    if !proxied.is_empty() {
        let ingress: Vec<Value> = texts(&proxied).into_iter().map(|ip| json!({"ip": ip, "ipMode": PROXY})).collect();
        stored["status"] = json!({"loadBalancer": {"ingress": ingress}});
    }
    stored
}

/// An EndpointSlice that is read again as it was.
pub(crate) fn slice(key: &Key, endpoints: &Endpoints) -> Value {
    let port = |(name, protocol, number): &(Option<Box<str>>, Protocol, u16)| json!({"name": name.as_deref(), "protocol": protocol.to_string(), "port": number});
    let labels = json!({"kubernetes.io/service-name": &*endpoints.service});
    let listed = |address: &IpAddr| {
        let is_ready = !endpoints.unready.contains(address);
        json!({"addresses": [address.to_string()], "conditions": {"ready": is_ready}})
    };
    let listed = match endpoints.unready.is_empty() {
        true => vec![json!({"addresses": texts(&endpoints.addresses)})],
        false => endpoints.addresses.iter().map(listed).collect(),
    };
    json!({
        "apiVersion": ENDPOINT_SLICE.preferred().api_version(), "kind": ENDPOINT_SLICE.name,
        "metadata": {"namespace": &*key.namespace, "name": &*key.name, "labels": labels},
        "endpoints": listed,
        "ports": endpoints.ports.iter().map(port).collect::<Vec<_>>(),
    })
}

fn texts(addresses: &[IpAddr]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}
