//! Where kube-network-policies is known to differ, and why.
//!
//! An entry does not excuse a kind of difference. It either says which
//! connections have a verdict that the engine does not give, or it spells the
//! manifests in another way that means the same and that the engine reads as
//! the API documents it. Under that spelling both must agree, so namewall's
//! reading of the original is still tested.

use crate::generate::{End, node_addresses};
use serde_json::{Value, json};

pub(crate) struct KnownDifference {
    pub(crate) name: &'static str,
    /// What the engine does, and where the documentation says otherwise.
    pub(crate) why: &'static str,
    pub(crate) difference: Difference,
}

#[derive(Clone, Copy)]
pub(crate) enum Difference {
    /// The connection is allowed whatever the policies say.
    Exempt(fn(&End, &End) -> bool),
    /// The same cluster in other words. Where there are several clusters, each decides a part, and all must allow.
    Spelling(fn(Vec<Value>) -> Vec<Vec<Value>>),
}

pub(crate) const KNOWN: [KnownDifference; 6] = [
    KnownDifference {
        name: "own address",
        why: "The engine denies a pod its own address if a policy isolates the pod. \
              kubernetes.io, Network Policies: \"a pod cannot block access to itself\". \
              On a node no such packet reaches the engine.",
        difference: Difference::Exempt(own_address),
    },
    KnownDifference {
        name: "own node",
        why: "The engine judges connections from the pod's own node. \
              NetworkPolicySpec.ingress: traffic is allowed \"if the traffic source is the pod's local node\". \
              On a node the rules before the engine accept them.",
        difference: Difference::Exempt(own_node),
    },
    KnownDifference {
        name: "one direction hides the baseline",
        why: "A NetworkPolicy that selects a pod for ingress only makes the engine accept all egress of the pod without \
              the Baseline tier, and the reverse. NetworkPolicySpec.policyTypes: a policy without a direction does not \
              affect it; BaselineAdminNetworkPolicy decides what no NetworkPolicy does.",
        difference: Difference::Spelling(one_direction_each),
    },
    KnownDifference {
        name: "ports of sidecars",
        why: "The engine knows the ports of `containers` only. \
              Container.restartPolicy: an init container with `Always` is a sidecar that runs beside the containers.",
        difference: Difference::Spelling(sidecars_as_containers),
    },
    KnownDifference {
        name: "nodes in v1alpha1",
        why: "The engine matches `nodes` of v1alpha1 with the pods that run on them, and not with the nodes. \
              AdminNetworkPolicyEgressPeer.nodes: \"selects the nodeIPs as the peer type\".",
        difference: Difference::Spelling(nodes_as_networks),
    },
    KnownDifference {
        name: "named ports in v1alpha1",
        why: "The engine matches `namedPort` of v1alpha1 with every port of a pod that has a port of that name. \
              AdminNetworkPolicyPort.namedPort: \"selects a port on a pod(s) based on name\".",
        difference: Difference::Spelling(v1alpha1_as_v1alpha2),
    },
];

fn own_address(from: &End, to: &End) -> bool {
    from.pod.is_some() && from.address == to.address
}

fn own_node(from: &End, to: &End) -> bool {
    from.pod.is_none() && to.pod.is_some() && from.node.is_some() && from.node == to.node
}

/// Two clusters, each with the policies of one direction.
fn one_direction_each(objects: Vec<Value>) -> Vec<Vec<Value>> {
    [("Ingress", "egress"), ("Egress", "ingress")]
        .map(|(kept, other)| objects.iter().filter_map(|object| only(object, kept, other)).collect())
        .into()
}

/// The object with the rules of one direction. None for a NetworkPolicy that has no say there.
fn only(object: &Value, kept: &str, other: &str) -> Option<Value> {
    let mut object = object.clone();
    let Some(spec) = object.get_mut("spec").filter(|spec| spec.get("podSelector").or(spec.get("subject")).is_some())
    else {
        return Some(object);
    };
    if spec.get("podSelector").is_some() {
        let listed = spec["policyTypes"].as_array().filter(|types| !types.is_empty());
        let counts = match listed {
            Some(types) => types.iter().any(|kind| kind == kept),
            None => kept == "Ingress" || spec["egress"].as_array().is_some_and(|rules| !rules.is_empty()),
        };
        if !counts {
            return None;
        }
        spec["policyTypes"] = json!([kept]);
    }
    spec.as_object_mut()?.remove(other);
    Some(object)
}

fn sidecars_as_containers(mut objects: Vec<Value>) -> Vec<Vec<Value>> {
    for object in &mut objects {
        let Some(Value::Array(mut sidecars)) =
            object.get_mut("spec").and_then(|spec| spec.as_object_mut()?.remove("initContainers"))
        else {
            continue;
        };
        for sidecar in &mut sidecars {
            sidecar.as_object_mut().map(|sidecar| sidecar.remove("restartPolicy"));
        }
        object["spec"]["containers"].as_array_mut().expect("a pod has containers").append(&mut sidecars);
    }
    vec![objects]
}

/// The addresses of the selected nodes. The generator selects all nodes, or those of zone a.
fn nodes_as_networks(mut objects: Vec<Value>) -> Vec<Vec<Value>> {
    for peer in v1alpha1(&mut objects).flat_map(rules).filter_map(|rule| rule.get_mut("to")?.as_array_mut()).flatten() {
        let Some(nodes) = peer.get("nodes") else { continue };
        let selected: &[usize] = if nodes["matchLabels"]["zone"] == "a" { &[0] } else { &[0, 1] };
        let addresses = selected.iter().flat_map(|&number| node_addresses(number));
        let networks = addresses.map(|address| format!("{address}/{}", if address.contains(':') { 128 } else { 32 }));
        *peer = json!({"networks": networks.collect::<Vec<_>>()});
    }
    vec![objects]
}

/// AdminNetworkPolicies and the baseline as ClusterNetworkPolicies of the two tiers.
fn v1alpha1_as_v1alpha2(mut objects: Vec<Value>) -> Vec<Vec<Value>> {
    for object in v1alpha1(&mut objects) {
        let baseline = object["kind"] == "BaselineAdminNetworkPolicy";
        rules(object).for_each(translate);
        object["apiVersion"] = json!("policy.networking.k8s.io/v1alpha2");
        object["kind"] = json!("ClusterNetworkPolicy");
        object["spec"]["tier"] = json!(if baseline { "Baseline" } else { "Admin" });
        if baseline {
            object["spec"]["priority"] = json!(0);
        }
    }
    vec![objects]
}

fn translate(rule: &mut Value) {
    if rule["action"] == "Allow" {
        rule["action"] = json!("Accept");
    }
    if let Some(Value::Array(ports)) = rule.as_object_mut().and_then(|rule| rule.remove("ports")) {
        rule["protocols"] = ports.iter().map(protocol).collect();
    }
}

fn protocol(port: &Value) -> Value {
    if let Some(name) = port.get("namedPort") {
        return json!({"destinationNamedPort": name});
    }
    let (of, port) = match (port.get("portNumber"), port.get("portRange")) {
        (Some(number), _) => (number, json!({"number": number["port"]})),
        (_, Some(range)) => (range, json!({"range": {"start": range["start"], "end": range["end"]}})),
        _ => unreachable!("a port has a name, a number or a range"),
    };
    let protocol = of["protocol"].as_str().unwrap_or("TCP").to_lowercase();
    json!({protocol: {"destinationPort": port}})
}

fn v1alpha1(objects: &mut [Value]) -> impl Iterator<Item = &mut Value> {
    objects.iter_mut().filter(|object| object["apiVersion"] == "policy.networking.k8s.io/v1alpha1")
}

fn rules(policy: &mut Value) -> impl Iterator<Item = &mut Value> {
    let spec = policy["spec"].as_object_mut().into_iter().flatten();
    spec.filter(|(key, _)| *key == "ingress" || *key == "egress").flat_map(|(_, rules)| rules.as_array_mut()).flatten()
}
