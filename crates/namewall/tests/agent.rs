//! `namewall agent` as a process, in a node of a sandbox, against a real API
//! server: what kubectl changes, packets find changed.

// All of it is a test, which cannot be seen where there is no harness.
#![allow(clippy::unwrap_used)]

mod world;

use namewall_sandbox::ensure_rights;
use namewall_testbed::{ControlPlane, Proxy, ProxyMode};
use namewall_testbed::{give_up, output_with_input, program};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use world::plane::{DNS_SERVICE, define, populate};
use world::{PROVIDER, Process, World, address, example, lookup};

/// The API server as the node can reach it: at a loopback of its own.
fn lead_to_server(world: &World, node: &str, plane: &ControlPlane) -> Proxy {
    let at = (Ipv4Addr::LOCALHOST, plane.port());
    let node = world.sandbox.node(node).unwrap();
    Proxy::at(node.enter(|| TcpListener::bind(at)).unwrap().unwrap(), plane).unwrap()
}

const API: &str = "10.244.1.10";
const WEB: &str = "10.244.2.11";
const ELSEWHERE: &str = "198.51.100.8";
const CDN: &str = "198.51.100.9";
const TWO: &str = "198.51.100.10";
const THREE: &str = "198.51.100.11";
const SHUT: &str = "198.51.100.12";
/// Longer than a write is tried of what is not worth more.
const CUT_OFF: Duration = Duration::from_secs(32);
const LONG: Duration = Duration::from_secs(60);

fn start(world: &World, node: &str, plane: &ControlPlane) -> (Process, Proxy) {
    start_with(world, node, plane, &[])
}

fn start_with(world: &World, node: &str, plane: &ControlPlane, options: &[&str]) -> (Process, Proxy) {
    let proxy = lead_to_server(world, node, plane);
    let kubeconfig = plane.kubeconfig();
    let command = ["agent", "--node", node, "--kubeconfig", kubeconfig.to_str().unwrap()];
    (world.spawn_on(node, &[&command, options].concat()), proxy)
}

fn main() {
    // Before the first thread: without root it takes a user namespace.
    ensure_rights().unwrap_or_else(|error| give_up(error));
    program("nft");
    s10_3_after_a_reboot_without_an_api_server_the_stored_state_is_enforced();
    what_kubectl_changes_packets_find_changed();
    let nodes = TwoNodes::build();
    s8_a_name_in_an_egress_firewall_is_open_on_all_nodes(&nodes);
    an_agent_that_is_told_no_upstream_asks_the_clusters_dns_service(&nodes);
    an_agent_that_is_cut_off_goes_on_and_catches_up(&nodes);
    s8_all_is_gone_with_the_firewall(&nodes);
    drop(nodes);
    a_pod_is_closed_until_it_is_known();
    s1_9_a_pod_that_is_attached_is_open_before_the_api_server_has_its_address();
    println!("test agent: 10 passed");
}

fn s10_3_after_a_reboot_without_an_api_server_the_stored_state_is_enforced() {
    let mut plane = ControlPlane::start().unwrap();
    populate(&plane, &example());
    define(&plane);
    plane.apply(&std::fs::read_to_string(example().join("policies.yaml")).unwrap()).unwrap();
    let world = World::build("reboot");
    let (agent, _proxy) = start(&world, "node-1", &plane);
    world.wait_for(|| !world.reaches_provider());
    agent.signal(Signal::SIGKILL);
    drop(agent);
    // The node starts anew: its kernel has no rules.
    let mut delete = Command::new("nft");
    delete.args(["delete", "table", "inet", "namewall"]);
    assert!(world.sandbox.node("node-1").unwrap().enter(|| delete.status()).unwrap().unwrap().success());
    assert!(world.reaches_provider(), "nothing is enforced");
    plane.kill_server();
    let kubeconfig = plane.kubeconfig();
    let arguments = ["agent", "--node", "node-1", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let more = ["--upstream", "203.0.113.53", "--grace", "60s", "--hold-limit", "1500ms"];
    let _agent = world.start_on("node-1", &[&arguments[..], &more].concat());
    let stands_in = || {
        let told: Value = serde_json::from_slice(&world.ask(&["status", "-o", "json"]).stdout).unwrap_or_default();
        told["storage"]["standsIn"].as_str().map(str::to_owned)
    };
    world.wait_up_to(LONG, || stands_in().is_some());
    assert!(!world.reaches_provider(), "the log says:\n{}", world.log());
    assert_eq!(world.resolves("api.payments.example", 1), 1);
    assert!(world.reaches_provider(), "names are learned");
    plane.start_server().unwrap();
    world.wait_up_to(LONG, || world.ask(&["status"]).status.success() && stands_in().is_none());
    plane.kubectl(&["delete", "clusternetworkpolicy", "--all"]).unwrap();
    world.wait_up_to(LONG, || world.says(&["status"]).contains("policies  0 for"));
}

fn what_kubectl_changes_packets_find_changed() {
    let mut plane = ControlPlane::start().unwrap();
    populate(&plane, &example());
    let world = World::build("agent");
    let (agent, _proxy) = start(&world, "node-1", &plane);
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
    what_could_not_be_cut_is_cut_later(&world, &plane, &agent);
    users_are_told_that_a_node_does_not_enforce(&world, &plane);
    agent.signal(Signal::SIGTERM);
    world.wait_for(|| !world.ask(&["status"]).status.success());
}

/// A policy is in the kernel, but for a while connections cannot be listed: there is no handle left for it.
fn what_could_not_be_cut_is_cut_later(world: &World, plane: &ControlPlane, agent: &Process) {
    let pod = world.sandbox.place(address(API)).unwrap();
    let connected = pod.namespace.enter(|| TcpStream::connect((PROVIDER, 443))).unwrap().unwrap();
    let cuts = || world.log().matches("connections_cut=").count() - world.log().matches("connections_cut=0").count();
    let before = cuts();
    agent.allow_handles("3:");
    let policies = std::fs::read_to_string(example().join("policies.yaml")).unwrap();
    plane.apply(policies.split("---").next().unwrap()).unwrap();
    world.wait_for(|| world.log().contains("cannot read or cut connections"));
    assert!(!world.reaches_provider(), "nothing new is let through");
    agent.allow_handles("1024:");
    world.wait_for(|| cuts() > before);
    drop(connected);
}

/// An audited policy needs hooks of its own, and for a while there is no room for them.
fn users_are_told_that_a_node_does_not_enforce(world: &World, plane: &ControlPlane) {
    let describe = || plane.kubectl(&["describe", "node", "node-1"]).unwrap();
    let other = world.occupy_hooks();
    plane.kubectl(&["annotate", "clusternetworkpolicy", "outside", "namewall.dev/enforcement=audit"]).unwrap();
    world.wait_for(|| describe().contains("NamewallNotEnforcing"));
    let told = describe();
    assert!(told.contains("the kernel did not take the change") && !told.contains("NamewallEnforcing"), "{told}");
    // Long enough to be refused again.
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(describe().matches("NamewallNotEnforcing").count(), 1, "each trouble once");
    world.free_hooks(other);
    world.wait_for(|| describe().contains("NamewallEnforcing"));
    assert!(world.reaches_provider(), "what is meant is in force: nothing is denied any more");
}

/// Two nodes with a pod, an agent and a way to the API server each, and a controller beside the second.
struct TwoNodes {
    // Dropped in this order: whoever watches goes before what is watched.
    _processes: Vec<Process>,
    ways: [Proxy; 2],
    world: World,
    plane: ControlPlane,
}

impl TwoNodes {
    fn build() -> Self {
        let folder = folder();
        let plane = ControlPlane::start().unwrap();
        define(&plane);
        populate(&plane, &folder);
        plane.kubectl(&["create", "namespace", "namewall"]).unwrap();
        plane.apply(DNS_SERVICE).unwrap();
        let world = World::of("two-nodes", &folder);
        let ways = ["node-1", "node-2"].map(|node| lead_to_server(&world, node, &plane));
        let kubeconfig = plane.kubeconfig();
        let server = ["--kubeconfig", kubeconfig.to_str().unwrap()];
        let agent = |node| world.spawn_alone(node, &[&["agent", "--node", node], &server[..]].concat());
        let mut processes: Vec<Process> = ["node-1", "node-2"].map(agent).into();
        let controller = ["controller", "--namespace", "namewall", "--resolver", "203.0.113.53"];
        processes.push(world.start_on("node-2", &[&controller[..], &server].concat()));
        Self { _processes: processes, ways, world, plane }
    }

    fn resolvers(&self) -> String {
        self.plane.get(&["dnsnameresolvers", "-n", "namewall"]).unwrap().to_string()
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/two_nodes")
}

fn firewall() -> String {
    std::fs::read_to_string(folder().join("policies.yaml")).unwrap()
}

/// EgressFirewall → DNSNameResolver → lookup → lease on two nodes → packets.
fn s8_a_name_in_an_egress_firewall_is_open_on_all_nodes(nodes: &TwoNodes) {
    let TwoNodes { world, plane, .. } = nodes;
    assert!(world.reaches(API, PROVIDER) && world.reaches(WEB, ELSEWHERE), "there is no policy yet");
    plane.apply(&firewall()).unwrap();
    world.wait_for(|| !world.reaches(API, ELSEWHERE) && !world.reaches(WEB, ELSEWHERE));
    // Nobody has asked for it but the controller.
    world.wait_for(|| world.reaches(API, PROVIDER) && world.reaches(WEB, PROVIDER));
    let told = plane.get(&["dnsnameresolvers", "-n", "namewall"]).unwrap();
    assert_eq!(told["items"].as_array().unwrap().len(), 2, "{told}");

    // A name under the wildcard, which one node's pod asks for, is open on the other.
    assert!(!world.reaches(WEB, CDN));
    assert_eq!(world.resolves("one.cdn.example", 1), 1);
    assert!(world.reaches(API, CDN));
    world.wait_for(|| world.reaches(WEB, CDN));
    assert!(nodes.resolvers().contains("one.cdn.example."));

    // S8.1: scripts wait for what OVN-Kubernetes writes.
    let applied = "--for=jsonpath={.status.status}=EgressFirewall Rules applied";
    plane.kubectl(&["wait", "egressfirewall/default", "-n", "shop", "--timeout=60s", applied]).unwrap();
    let told = plane.get(&["egressfirewall", "default", "-n", "shop"]).unwrap();
    let messages = ["node-1: EgressFirewall Rules applied", "node-2: EgressFirewall Rules applied"];
    assert_eq!(told["status"]["messages"], serde_json::json!(messages));

    // S7.5: how many nodes enforce a firewall of the whole cluster.
    let firewall = "apiVersion: namewall.dev/v1alpha1\nkind: ClusterEgressFirewall\nmetadata: {name: shut}\n\
                    spec: {priority: 5, rules: [{name: r, action: Deny, to: [{networks: [198.51.100.12/32]}]}]}\n";
    plane.apply(firewall).unwrap();
    let enforcing = || plane.get(&["clusteregressfirewall", "shut"]).unwrap()["status"]["enforcingNodes"].take();
    world.wait_for(|| enforcing() == 2);
    // By what the agents themselves have said.
    let enforced = || {
        let told = plane.get(&["clusteregressfirewall", "shut"]).unwrap();
        let mut all = told["status"]["conditions"].as_array().cloned().unwrap_or_default().into_iter();
        all.find(|one| one["type"] == "Enforced").unwrap_or_default()
    };
    world.wait_for(|| enforced()["message"] == "all 2 nodes it is for enforce it");
    assert_eq!(enforced()["status"], "True");
    plane.kubectl(&["wait", "clusteregressfirewall/shut", "--timeout=60s", "--for=condition=Enforced"]).unwrap();
}

/// Whoever has the address of the kube-dns Service answers: here, where there is no kube-proxy, a server outside.
fn an_agent_that_is_told_no_upstream_asks_the_clusters_dns_service(nodes: &TwoNodes) {
    let TwoNodes { world, plane, .. } = nodes;
    let upstreams = || -> Value {
        let status: Value = serde_json::from_str(&world.says(&["status", "-o", "json"])).unwrap();
        status["dns"]["upstreams"].clone()
    };
    let answered = || upstreams()[0]["answered"].as_u64().unwrap();
    let before = answered();
    assert_eq!(world.resolves("one.cdn.example", 1), 1);
    world.wait_for(|| answered() > before);
    let told = upstreams();
    assert_eq!(told[0]["address"], "10.96.0.10:53", "{told}");
    assert_eq!(told.as_array().unwrap().len(), 1, "{told}");

    // It goes, and comes back at another address.
    plane.kubectl(&["delete", "service", "kube-dns", "-n", "kube-system"]).unwrap();
    assert_eq!(world.resolves("one.cdn.example", 1), 1, "meanwhile who was asked is asked");
    plane.apply(&DNS_SERVICE.replace("10.96.0.10", "10.96.0.11")).unwrap();
    let by_new = || {
        let all = upstreams().as_array().cloned().unwrap_or_default();
        all.iter().find(|one| one["address"] == "10.96.0.11:53").and_then(|one| one["answered"].as_u64())
    };
    world.wait_for(|| by_new().is_some());
    assert_eq!(world.resolves("one.cdn.example", 1), 1);
    world.wait_for(|| by_new() > Some(0));
}

/// The first node's way to the server is silent, then gone, for longer than a single write is tried. Meanwhile the
/// second loses a kind and gets it back, and learns a name.
fn an_agent_that_is_cut_off_goes_on_and_catches_up(nodes: &TwoNodes) {
    let TwoNodes { world, plane, ways, .. } = nodes;
    ways[0].set(ProxyMode::Stalled);
    let began = Instant::now();
    assert_eq!(world.resolves("two.cdn.example", 1), 1, "an answer does not wait for a server that is silent");
    assert!(world.reaches(API, TWO) && !world.reaches(API, ELSEWHERE));
    ways[0].set(ProxyMode::Cut);
    world.wait_for(|| world.says(&["status", "-o", "json"]).contains("\"what\""));
    assert_eq!(world.resolves("api.payments.example", 1), 1);
    assert!(world.reaches(API, PROVIDER) && world.reaches(API, TWO) && !world.reaches(API, ELSEWHERE));

    // A kind is taken away with its objects: only what those said changes, and only for who hears of it.
    plane.kubectl(&["delete", "crd", "egressfirewalls.k8s.ovn.org"]).unwrap();
    world.wait_for(|| world.reaches(WEB, ELSEWHERE));
    assert!(!world.reaches(WEB, SHUT), "the firewall of the whole cluster is of another kind");
    assert!(!world.reaches(API, ELSEWHERE), "it has heard nothing");
    define(plane);
    plane.apply(&firewall()).unwrap();
    world.wait_up_to(LONG, || !world.reaches(WEB, ELSEWHERE) && world.reaches(WEB, PROVIDER));
    assert!(!world.reaches(WEB, SHUT) && !world.reaches(WEB, TWO) && !world.reaches(WEB, THREE));

    world.wait_up_to(LONG, || nodes.resolvers().contains("*.cdn.example."));
    assert_eq!(world.answered(WEB, &[lookup("203.0.113.53:53", "three.cdn.example")]), 1);
    world.wait_for(|| world.reaches(WEB, THREE) && nodes.resolvers().contains("three.cdn.example."));
    assert!(!world.reaches(API, THREE) && !nodes.resolvers().contains("two.cdn.example."));

    world.wait_up_to(LONG, || began.elapsed() > CUT_OFF);
    ways[0].set(ProxyMode::Open);
    world.wait_up_to(LONG, || world.reaches(WEB, TWO) && world.reaches(API, THREE));
    assert!(nodes.resolvers().contains("two.cdn.example."));
    world.wait_up_to(LONG, || !world.says(&["status", "-o", "json"]).contains("\"what\""));
    assert!(!world.reaches(API, ELSEWHERE) && world.reaches(API, PROVIDER));
}

fn s8_all_is_gone_with_the_firewall(nodes: &TwoNodes) {
    let TwoNodes { world, plane, .. } = nodes;
    plane.kubectl(&["delete", "egressfirewall", "default", "-n", "shop"]).unwrap();
    world.wait_for(|| world.reaches(API, ELSEWHERE) && world.reaches(WEB, ELSEWHERE));
    let resolvers = || plane.get(&["dnsnameresolvers", "-n", "namewall"]).unwrap();
    world.wait_for(|| resolvers()["items"].as_array().unwrap().is_empty());
}

/// Its address is somebody's before the API server has it.
fn a_pod_is_closed_until_it_is_known() {
    let plane = ControlPlane::start().unwrap();
    define(&plane);
    populate(&plane, &example());
    plane.kubectl(&["delete", "pod", "api", "-n", "shop", "--force", "--grace-period=0"]).unwrap();
    let world = World::build("unknown");
    // It enforces although the address of its metrics is another's.
    let other = world.listener();
    let taken = other.local_addr().unwrap().to_string();
    let _agent = start_with(&world, "node-1", &plane, &["--metrics-address", &taken]);
    world.wait_for(|| world.log().contains("goes on without metrics and probes"));
    assert!(!world.reaches(API, PROVIDER), "nobody knows who that is");
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: api, namespace: shop}\n\
               spec: {nodeName: node-1, containers: [{name: c, image: none}]}\n";
    plane.run_pod(pod, API).unwrap();
    world.wait_for(|| world.reaches(API, PROVIDER));
    world.wait_for(|| world.log().contains("address of the pod network that no pod has"));

    // S7.2: what the node has, everybody may know.
    world
        .wait_for(|| plane.get(&["nodeaddresses", "node-1"]).is_ok_and(|told| told.to_string().contains("192.0.2.11")));
    let told = plane.get(&["nodeaddresses", "node-1"]).unwrap();
    assert_eq!(told["metadata"]["ownerReferences"][0]["kind"], "Node", "{told}");
}

/// The CNI plugin, as a container runtime of the node starts it for the pod at `API`.
fn plugin(world: &World, command: &str, uid: &str) -> Output {
    let (namespace, runtime) = (world.sandbox.place(address(API)).unwrap().namespace.path(), world.runtime("node-1"));
    let config = json!({
        "cniVersion": "1.0.0", "name": "pods", "type": "namewall", "timeoutSeconds": 3,
        "socket": runtime.join("run.sock"), "records": runtime.join("attachments"),
        "prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": namespace}],
                       "ips": [{"interface": 0, "address": format!("{API}/24")}]},
    });
    let mut plugin = Command::new(env!("CARGO_BIN_EXE_namewall"));
    plugin
        .env("CNI_COMMAND", command)
        .env("CNI_CONTAINERID", "c1")
        .env("CNI_IFNAME", "eth0")
        .env("CNI_NETNS", namespace)
        .env("CNI_ARGS", format!("K8S_POD_NAMESPACE=shop;K8S_POD_NAME=api;K8S_POD_UID={uid}"));
    let node = world.sandbox.node("node-1").unwrap();
    node.enter(|| output_with_input(&mut plugin, &config.to_string())).unwrap().unwrap()
}

/// Nobody writes a status: what the plugin says is all that is known of the address.
fn s1_9_a_pod_that_is_attached_is_open_before_the_api_server_has_its_address() {
    let plane = ControlPlane::start().unwrap();
    define(&plane);
    populate(&plane, &example());
    plane.kubectl(&["delete", "pod", "api", "-n", "shop", "--force", "--grace-period=0"]).unwrap();
    let world = World::build("attached");
    let (agent, _proxy) = start(&world, "node-1", &plane);
    let refused = plugin(&world, "ADD", "8f2a");
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stdout).contains("is not known here"));
    assert!(!world.reaches(API, PROVIDER), "nobody knows who that is");
    plane
        .apply(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: api, namespace: shop}\n\
             spec: {nodeName: node-1, containers: [{name: c, image: none}]}\n",
        )
        .unwrap();
    let uid = plane.get(&["pod", "api", "-n", "shop"]).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    assert!(!plugin(&world, "ADD", "8f2a").status.success(), "it is another pod of that name");
    let began = Instant::now();
    let added = plugin(&world, "ADD", &uid);
    println!("ADD took {:?}", began.elapsed());
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stdout));
    assert!(world.reaches(API, PROVIDER), "at once");
    assert!(plugin(&world, "CHECK", &uid).status.success());
    // A restart loses nothing.
    agent.signal(Signal::SIGKILL);
    drop(agent);
    let kubeconfig = plane.kubeconfig();
    let _agent = world.spawn_on("node-1", &["agent", "--node", "node-1", "--kubeconfig", kubeconfig.to_str().unwrap()]);
    assert!(world.reaches(API, PROVIDER) && plugin(&world, "CHECK", &uid).status.success());
    assert!(plugin(&world, "DEL", &uid).status.success());
    world.wait_for(|| !world.reaches(API, PROVIDER));
}
