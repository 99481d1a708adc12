//! The definitions that `namewall crds` prints, before a real API server: it takes them, it takes what is meant to be
//! taken, and refuses the rest with a reason; and what it takes can be read. There is one control plane for all.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bad;
mod found;
mod good;
mod mutations;
mod server;
mod statuses;

use namewall_cluster::Settings;
use namewall_cluster::kinds::{Component, KINDS, Kind, NETWORK_POLICY_V1BETA1, ObjectScope};
use namewall_kubernetes::{Connection, Target, Watch, crds};
use namewall_policy::Severity;
use serde_json::{Value, json};
use server::Server;
use std::time::Duration;

const TEST_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn definitions_are_taken_and_what_they_let_in_can_be_read() {
    every_kind_has_objects_to_try();
    let server = Server::start();
    definitions_are_established(&server);
    rows_are_as_the_server_serves_them(&server);
    fields_are_explained(&server);
    bad::objects_are_refused_with_a_reason(&server);
    good::objects_are_taken_and_read(&server);
    found::objects_of_examples_and_scenarios_are_taken_if_they_can_be_read(&server);
    mutations::are_readable_if_they_are_taken(&server);
    statuses::are_written_and_read_back(&server);
    everything_is_read_through_the_watch(&server);
    definitions_are_taken_again(&server);
}

fn every_kind_has_objects_to_try() {
    let missing = |has: &dyn Fn(&str) -> bool| -> Vec<&str> {
        crds::kinds().iter().map(|kind| kind.name).filter(|name| !has(name)).collect()
    };
    let good = missing(&|name| good::GOOD.iter().any(|(kind, ..)| *kind == name));
    let bad = missing(&|name| bad::tables().iter().any(|(kind, ..)| *kind == name));
    assert!(good.is_empty() && bad.is_empty(), "good.rs has no {good:?}, bad.rs has no {bad:?}");
}

fn definitions_are_established(server: &Server) {
    let definitions = crds::definitions();
    server.plane.apply(&crds::to_yaml(&definitions).unwrap()).unwrap();
    for definition in definitions {
        let name = definition.object["metadata"]["name"].as_str().unwrap();
        let crd = format!("crd/{name}");
        server.plane.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", &crd]).unwrap();
        let known = server.plane.get(&[&crd]).unwrap();
        let conditions = known["status"]["conditions"].as_array().unwrap().clone();
        let is = |kind: &str| conditions.iter().any(|one| one["type"] == kind && one["status"] == "True");
        assert!(is("NamesAccepted") && !is("NonStructuralSchema"), "{name}: {conditions:?}");
        // A group under k8s.io is somebody's, who has to have approved.
        assert!(
            !conditions
                .iter()
                .any(|one| one["type"] == "KubernetesAPIApprovalPolicyConformant" && one["status"] != "True")
        );
        if definition.kind.is_own() {
            assert_eq!(known["spec"]["names"]["categories"], serde_json::json!(["namewall"]));
        }
    }
    // What `kubectl get` shows, and by which words.
    for kind in crds::kinds() {
        let words = kind.short_names.iter().chain([&kind.plural]);
        words.for_each(|word| drop(server.plane.kubectl(&["get", word]).unwrap()));
    }
    server.plane.kubectl(&["get", "namewall"]).unwrap();
}

/// Also the kinds of Kubernetes itself: names, scope and short names in the table are those of the server.
fn rows_are_as_the_server_serves_them(server: &Server) {
    // No server has it any more.
    let served = KINDS.iter().copied().filter(|kind| **kind != NETWORK_POLICY_V1BETA1);
    for versioned in served.flat_map(Kind::served) {
        let (kind, version) = (versioned.kind, versioned.version);
        let path = match kind.group {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        let list: Value = serde_json::from_str(&server.plane.kubectl(&["get", "--raw", &path]).unwrap()).unwrap();
        let resources = list["resources"].as_array().unwrap();
        let found = resources.iter().find(|one| one["name"] == kind.plural);
        let found = found.unwrap_or_else(|| panic!("{path} has no {}", kind.plural));
        let short_names = found["shortNames"].as_array().cloned().unwrap_or_default();
        let served = (found["kind"].clone(), found["namespaced"].clone(), Value::from(short_names));
        let is_namespaced = kind.scope == ObjectScope::Namespace;
        assert_eq!(served, (json!(kind.name), json!(is_namespaced), json!(kind.short_names)), "{path}");
    }
}

fn fields_are_explained(server: &Server) {
    for (field, said) in [
        ("clusteregressfirewalls.spec.rules.to.apiServer", "on the ports that it serves"),
        ("clusteregressfirewalls.status.offendingServices", "lead to a denied destination"),
        ("nodeaddresses.addresses", "without a zone"),
        ("egressfirewalls.spec.egress.to.dnsName", "exactly one label before"),
        ("dnsnameresolvers.spec.name", "with a dot at its end"),
        ("adminnetworkpolicies.spec.egress.ports.portRange.end", "The last port"),
        ("clusternetworkpolicies.spec.tier", "asked before NetworkPolicies"),
    ] {
        let told = server.plane.kubectl(&["explain", field]).unwrap();
        let told = told.split_whitespace().collect::<Vec<&str>>().join(" ");
        assert!(told.contains(said), "{field}: {told}");
    }
}

/// What is applied twice is the same, so that installing again is no change.
fn definitions_are_taken_again(server: &Server) {
    let definitions = crds::definitions();
    let generation = |name: &str| {
        let crd = server.plane.get(&["crd", name]).unwrap();
        crd["metadata"]["generation"].as_i64().unwrap()
    };
    let names: Vec<&str> = definitions.iter().map(|one| one.object["metadata"]["name"].as_str().unwrap()).collect();
    let before: Vec<i64> = names.iter().map(|name| generation(name)).collect();
    server.plane.apply(&crds::to_list(&definitions).to_string()).unwrap();
    let after: Vec<i64> = names.iter().map(|name| generation(name)).collect();
    assert_eq!(before, after);
}

fn everything_is_read_through_the_watch(server: &Server) {
    let target = Target { kubeconfig: Some(server.plane.kubeconfig()), context: None };
    let mut watch = Watch::start(&Connection::open(&target).unwrap(), Component::Agent);
    watch.wait_until_known(TEST_TIMEOUT).unwrap();
    assert_eq!(watch.absent(), Vec::<&Kind>::new());
    let read = watch.read(&Settings::default());
    let errors: Vec<_> = read.findings.iter().filter(|one| one.severity == Severity::Error).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    let snapshot = &read.lowered.snapshot;
    assert_eq!(snapshot.policies.len(), good::policies());
    let node = snapshot.nodes.iter().find(|node| &*node.name == "node-1").unwrap();
    assert_eq!(node.addresses.len(), 4, "{:?}", node.addresses);
    // The one whose status was written.
    let names = watch.new_names();
    let told: usize = names.iter().filter_map(|(_, object)| object.as_ref()).map(|one| one.addresses().count()).sum();
    assert_eq!(told, 2, "{names:?}");
}
