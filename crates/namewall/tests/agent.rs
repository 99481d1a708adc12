//! `namewall agent` as a process, in a node of a sandbox, against a real API
//! server: what kubectl changes, packets find changed.

// All of it is a test, which cannot be seen where there is no harness.
#![allow(clippy::unwrap_used)]

mod world;

use namewall_sandbox::ensure_rights;
use namewall_testbed::ControlPlane;
use nix::sys::signal::Signal;
use std::io::copy;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread::spawn;
use world::{Process, World, example};

/// A definition that takes anything: what is refused is another test's matter.
const DEFINITION: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: clusternetworkpolicies.policy.networking.k8s.io
  annotations: {api-approved.kubernetes.io: unapproved}
spec:
  group: policy.networking.k8s.io
  scope: Cluster
  names: {kind: ClusterNetworkPolicy, plural: clusternetworkpolicies}
  versions:
    - name: v1alpha2
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

const NODE_STATUS: &str = r#"{"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.11"}]}}"#;

/// The node, namespace and pods of the example, as a kubelet would tell of them.
fn populate(plane: &ControlPlane) {
    let cluster = std::fs::read_to_string(example().join("cluster.yaml")).unwrap();
    for document in cluster.split("---\n") {
        let is_pod = document.contains("kind: Pod");
        let address = document.split("podIP: ").nth(1).and_then(|rest| rest.split(',').next());
        match (is_pod, address) {
            (true, Some(address)) => plane.run_pod(document, address).unwrap(),
            _ => plane.apply(document).unwrap(),
        }
    }
    plane.kubectl(&["patch", "node", "node-1", "--subresource=status", "--type=merge", "-p", NODE_STATUS]).unwrap();
}

/// The API server as the node can reach it: at a loopback of its own.
fn lead_to_server(world: &World, plane: &ControlPlane) {
    let at = (Ipv4Addr::LOCALHOST, plane.port());
    let node = world.sandbox.node("node-1").unwrap();
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

fn start(world: &World, plane: &ControlPlane) -> Process {
    lead_to_server(world, plane);
    let kubeconfig = plane.kubeconfig();
    world.spawn(&["agent", "--node", "node-1", "--kubeconfig", kubeconfig.to_str().unwrap()])
}

fn main() {
    // Before the first thread: without root it takes a user namespace.
    ensure_rights().expect("network namespaces can be made");
    what_kubectl_changes_packets_find_changed();
    println!("test agent: 1 passed");
}

fn what_kubectl_changes_packets_find_changed() {
    let mut plane = ControlPlane::start().unwrap();
    populate(&plane);
    let world = World::build("agent");
    let agent = start(&world, &plane);
    assert!(world.reaches_provider(), "there is no policy yet");

    // A kind the cluster did not have, and policies of it.
    plane.apply(DEFINITION).unwrap();
    plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).unwrap();
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
