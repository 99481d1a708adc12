//! `namewall agent` as a process, in a node of a sandbox, against a real API
//! server: what kubectl changes, packets find changed.

// All of it is a test, which cannot be seen where there is no harness.
#![allow(clippy::unwrap_used)]

mod world;

use namewall_kubernetes::crds::{definitions, to_yaml};
use namewall_sandbox::ensure_rights;
use namewall_testbed::ControlPlane;
use nix::sys::signal::Signal;
use serde_json::json;
use std::io::copy;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::thread::spawn;
use world::{PROVIDER, Process, World, example};

/// The nodes, namespaces and pods of a folder's cluster.yaml, as kubelets would tell of them.
fn populate(plane: &ControlPlane, folder: &Path) {
    let cluster = std::fs::read_to_string(folder.join("cluster.yaml")).unwrap();
    for document in cluster.split("---\n") {
        let after = |key: &str| document.split(key).nth(1).and_then(|rest| rest.split([',', '}']).next());
        match (after("podIP: "), after("{type: InternalIP, address: ")) {
            (Some(address), _) => plane.run_pod(document, address).unwrap(),
            (None, Some(address)) => {
                plane.apply(document).unwrap();
                let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}});
                let (node, status) = (after("{name: ").unwrap(), status.to_string());
                plane.kubectl(&["patch", "node", node, "--subresource=status", "--type=merge", "-p", &status]).unwrap();
            }
            (None, None) => plane.apply(document).unwrap(),
        }
    }
}

/// Definitions of all kinds that a cluster may lack.
fn define(plane: &ControlPlane) {
    plane.apply(&to_yaml(&definitions()).unwrap()).unwrap();
    plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).unwrap();
}

/// The API server as the node can reach it: at a loopback of its own.
fn lead_to_server(world: &World, node: &str, plane: &ControlPlane) {
    let at = (Ipv4Addr::LOCALHOST, plane.port());
    let node = world.sandbox.node(node).unwrap();
    let listener = node.enter(|| TcpListener::bind(at)).unwrap().unwrap();
    spawn(move || {
        for inside in listener.incoming().flatten() {
            let Ok(outside) = TcpStream::connect(at) else { continue };
            for (mut from, mut to) in [(&inside, &outside), (&outside, &inside)].map(both) {
                spawn(move || {
                    let _ = copy(&mut from, &mut to);
                    // Whoever has nothing more to say is heard to the end.
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
}

fn both((from, to): (&TcpStream, &TcpStream)) -> (TcpStream, TcpStream) {
    (from.try_clone().unwrap(), to.try_clone().unwrap())
}

const API: &str = "10.244.1.10";
const WEB: &str = "10.244.2.11";
const ELSEWHERE: &str = "198.51.100.8";
const CDN: &str = "198.51.100.9";

fn start(world: &World, node: &str, plane: &ControlPlane) -> Process {
    lead_to_server(world, node, plane);
    let kubeconfig = plane.kubeconfig();
    world.spawn_on(node, &["agent", "--node", node, "--kubeconfig", kubeconfig.to_str().unwrap()])
}

fn main() {
    // Before the first thread: without root it takes a user namespace.
    ensure_rights().expect("network namespaces can be made");
    what_kubectl_changes_packets_find_changed();
    s8_a_name_in_an_egress_firewall_is_open_on_all_nodes_until_it_goes();
    a_pod_is_closed_until_it_is_known();
    println!("test agent: 3 passed");
}

fn what_kubectl_changes_packets_find_changed() {
    let mut plane = ControlPlane::start().unwrap();
    populate(&plane, &example());
    let world = World::build("agent");
    let agent = start(&world, "node-1", &plane);
    assert!(world.reaches_provider(), "there is no policy yet");

    // Kinds the cluster did not have, and policies of them.
    define(&plane);
    let policies = std::fs::read_to_string(example().join("policies.yaml")).unwrap();
    plane.apply(&policies).unwrap();
    world.wait_for(|| !world.reaches_provider());
    assert_eq!(world.resolves("api.payments.example", 1), 1);
    assert!(world.reaches_provider(), "what was looked up is open at once");

    // While the server is away all of it stays as it is, and names are learned.
    plane.kill_server();
    world.wait_for(|| world.says(&["status", "-o", "json"]).contains("\"what\""));
    assert_eq!(world.resolves("api.payments.example", 1), 1);
    assert!(world.reaches_provider());
    plane.start_server().unwrap();
    plane.kubectl(&["delete", "clusternetworkpolicy", "payments"]).unwrap();
    world.wait_for(|| !world.reaches_provider());
    plane.kubectl(&["delete", "clusternetworkpolicy", "outside"]).unwrap();
    world.wait_for(|| world.reaches_provider());
    agent.signal(Signal::SIGTERM);
    world.wait_for(|| !world.ask(&["status"]).status.success());
}

/// EgressFirewall → DNSNameResolver → lookup → lease on two nodes → packets; and all of it gone again.
fn s8_a_name_in_an_egress_firewall_is_open_on_all_nodes_until_it_goes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/two_nodes");
    let plane = ControlPlane::start().unwrap();
    define(&plane);
    populate(&plane, &folder);
    plane.kubectl(&["create", "namespace", "namewall"]).unwrap();
    let world = World::of("two-nodes", &folder);
    let _agents = ["node-1", "node-2"].map(|node| start(&world, node, &plane));
    let kubeconfig = plane.kubeconfig();
    let controller = ["controller", "--kubeconfig", kubeconfig.to_str().unwrap(), "--namespace", "namewall"];
    let _controller = world.start_on("node-1", &[&controller[..], &["--resolver", "203.0.113.53"]].concat());
    assert!(world.reaches(API, PROVIDER) && world.reaches(WEB, ELSEWHERE), "there is no policy yet");

    plane.apply(&std::fs::read_to_string(folder.join("policies.yaml")).unwrap()).unwrap();
    world.wait_for(|| !world.reaches(API, ELSEWHERE) && !world.reaches(WEB, ELSEWHERE));
    // Nobody has asked for it but the controller.
    world.wait_for(|| world.reaches(API, PROVIDER) && world.reaches(WEB, PROVIDER));
    let resolvers = || plane.get(&["dnsnameresolvers", "-n", "namewall"]).unwrap();
    let told = resolvers();
    assert_eq!(told["items"].as_array().unwrap().len(), 2, "{told}");

    // A name under the wildcard, which one node's pod asks for, is open on the other.
    assert!(!world.reaches(WEB, CDN));
    assert_eq!(world.resolves("one.cdn.example", 1), 1);
    assert!(world.reaches(API, CDN));
    world.wait_for(|| world.reaches(WEB, CDN));
    assert!(resolvers().to_string().contains("one.cdn.example."));

    // S7.5: how many nodes enforce a firewall of the whole cluster.
    let firewall = "apiVersion: namewall.dev/v1alpha1\nkind: ClusterEgressFirewall\nmetadata: {name: none}\n\
                    spec: {priority: 5, rules: [{name: r, action: Deny, to: [{networks: [198.18.0.0/15]}]}]}\n";
    plane.apply(firewall).unwrap();
    let enforcing = || plane.get(&["clusteregressfirewall", "none"]).unwrap()["status"]["enforcingNodes"].take();
    world.wait_for(|| enforcing() == 2);

    plane.kubectl(&["delete", "egressfirewall", "default", "-n", "shop"]).unwrap();
    world.wait_for(|| world.reaches(API, ELSEWHERE) && world.reaches(WEB, ELSEWHERE));
    world.wait_for(|| resolvers()["items"].as_array().unwrap().is_empty());
}

/// Its address is somebody's before the API server has it.
fn a_pod_is_closed_until_it_is_known() {
    let plane = ControlPlane::start().unwrap();
    define(&plane);
    populate(&plane, &example());
    plane.kubectl(&["delete", "pod", "api", "-n", "shop", "--force", "--grace-period=0"]).unwrap();
    let world = World::build("unknown");
    let _agent = start(&world, "node-1", &plane);
    assert!(!world.reaches(API, PROVIDER), "nobody knows who that is");
    assert!(world.log().is_empty() || !world.log().contains("cannot"), "{}", world.log());
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: api, namespace: shop}\n\
               spec: {nodeName: node-1, containers: [{name: c, image: none}]}\n";
    plane.run_pod(pod, API).unwrap();
    world.wait_for(|| world.reaches(API, PROVIDER));
    world.wait_for(|| world.log().contains("by no pod that is known yet"));

    // S7.2: what the node has, everybody may know.
    world
        .wait_for(|| plane.get(&["nodeaddresses", "node-1"]).is_ok_and(|told| told.to_string().contains("192.0.2.11")));
    let told = plane.get(&["nodeaddresses", "node-1"]).unwrap();
    assert_eq!(told["metadata"]["ownerReferences"][0]["kind"], "Node", "{told}");
}
