//! `kubectl namewall` and `namewall doctor` against a real API server, with the
//! real kubectl: what they say of a cluster that lives is what the offline
//! commands say of the same objects.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use namewall_kubernetes::crds::{definitions, to_yaml};
use namewall_testbed::ControlPlane;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const NAMEWALL: &str = env!("CARGO_BIN_EXE_namewall");

const CLUSTER: &str = "
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDR: 10.244.1.0/24}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 5432}]}]
---
apiVersion: k8s.ovn.org/v1
kind: EgressFirewall
metadata: {name: default, namespace: shop}
spec: {egress: [{type: Allow, to: {dnsName: api.payments.example}}, {type: Deny, to: {cidrSelector: 0.0.0.0/0}}]}
---
apiVersion: network.openshift.io/v1alpha1
kind: DNSNameResolver
metadata: {name: dns-1, namespace: shop}
spec: {name: api.payments.example.}
";

/// A folder with the plugin in it, which goes with the test.
struct Plugins(PathBuf);

impl Drop for Plugins {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Plugins {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("namewall-plugins-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink(NAMEWALL, folder.join("kubectl-namewall")).unwrap();
        Self(folder)
    }

    /// `kubectl namewall …`, as a user types it.
    fn ask(&self, plane: &ControlPlane, arguments: &[&str]) -> Output {
        let mut path = self.0.clone().into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        Command::new(plane.kubectl_program())
            .arg("namewall")
            .args(arguments)
            .env("PATH", path)
            .env("HOME", &self.0)
            .env("KUBECONFIG", plane.kubeconfig())
            .output()
            .unwrap()
    }
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn doctor(kubeconfig: &Path) -> (Option<i32>, Value) {
    let told = Command::new(NAMEWALL)
        .args(["doctor", "--only", "cluster", "-o", "json", "--kubeconfig"])
        .arg(kubeconfig)
        .output()
        .unwrap();
    (told.status.code(), serde_json::from_slice(&told.stdout).unwrap())
}

/// What it says of one thing.
fn state(told: &Value, what: &str) -> String {
    let checks = told["cluster"].as_array().unwrap();
    let check = checks.iter().find(|check| check["what"] == what).unwrap_or(&Value::Null);
    check["state"].as_str().unwrap_or("not looked at").to_owned()
}

#[test]
fn a_cluster_that_lives_is_answered_for_as_its_manifests_are() {
    let mut plane = ControlPlane::start().unwrap();
    let plugins = Plugins::new();
    let (code, told) = doctor(&plane.kubeconfig());
    assert_eq!((code, state(&told, "kinds")), (Some(1), "missing".to_owned()), "{told}");
    assert_eq!(state(&told, "API server"), "good");

    plane.apply(&to_yaml(&definitions()).unwrap()).unwrap();
    plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).unwrap();
    plane.apply(CLUSTER).unwrap();
    for (name, address) in [("web", "10.244.1.10"), ("db", "10.244.1.11")] {
        let pod = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop, labels: {{app: {name}}}}}\n\
             spec: {{nodeName: node-1, containers: [{{name: c, image: none}}]}}\n"
        );
        plane.run_pod(&pod, address).unwrap();
    }
    say_looked_up(&plane);
    answers_are_the_same(&plane, &plugins);
    leases_are_those_of_the_statuses(&plane, &plugins);
    whoever_may_not_read_all_is_refused(&plane, &plugins);
    the_doctor_sees_what_is_installed(&plane);
    plane.kill_server();
    let (code, told) = doctor(&plane.kubeconfig());
    assert_eq!((code, state(&told, "API server")), (Some(1), "missing".to_owned()), "{told}");
}

fn say_looked_up(plane: &ControlPlane) {
    let now = plane.kubectl(&["get", "namespace", "shop", "-o", "jsonpath={.metadata.creationTimestamp}"]).unwrap();
    let address = json!({"ip": "198.51.100.7", "ttlSeconds": 3000, "lastLookupTime": now});
    let name = json!({"dnsName": "api.payments.example.", "resolvedAddresses": [address]});
    let patch = json!({"status": {"resolvedNames": [name]}}).to_string();
    let patched = ["patch", "dnsnameresolver", "dns-1", "-n", "shop", "--subresource=status", "--type=merge", "-p"];
    plane.kubectl(&[&patched[..], &[&patch]].concat()).unwrap();
}

/// Without the places that objects were read at, in which files and a cluster differ.
fn without_places(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.shift_remove("source");
            fields.values_mut().for_each(without_places);
        }
        Value::Array(items) => items.iter_mut().for_each(without_places),
        // A policy that isolates is named with its place.
        Value::String(text) if text.contains(" (") => *text = text.split(" (").next().unwrap_or_default().to_owned(),
        _ => {}
    }
}

fn answers_are_the_same(plane: &ControlPlane, plugins: &Plugins) {
    let kinds = "namespaces,nodes,pods,services,endpointslices,networkpolicies,egressfirewalls,dnsnameresolvers";
    let objects = plugins.0.join("objects.yaml");
    std::fs::write(&objects, plane.kubectl(&["get", kinds, "-A", "-o", "yaml"]).unwrap()).unwrap();
    for question in [
        "explain --from shop/web --to shop/db:5432",
        "explain --from shop/db --to shop/web:80",
        "explain --from 203.0.113.9 --to shop/db:5432",
        "explain --from shop/web --to api.payments.example:443",
        "explain --from shop/web --to 198.51.100.8:443",
        "matrix",
        "matrix --focus shop/db",
        "policies shop/web",
        "check",
    ] {
        let mut words: Vec<&str> = question.split(' ').collect();
        words.extend(["-o", "json"]);
        let offline = Command::new(NAMEWALL).args(&words).arg(&objects).output().unwrap();
        let live = plugins.ask(plane, &words);
        let [mut live, mut offline] = [&live, &offline].map(|told| serde_json::from_str::<Value>(&text(told)).unwrap());
        [&mut live, &mut offline].into_iter().for_each(without_places);
        if question == "check" {
            // A list may hold other kinds; a cluster is asked for those that count.
            (live["passedOver"], offline["passedOver"]) = (Value::Null, Value::Null);
        }
        assert_eq!(live, offline, "{question}");
    }
    let codes = ["10.244.1.11", "198.51.100.8", "metadata", "apiserver"]
        .map(|destination| ways_are_the_same(plane, plugins, &objects, destination));
    // The policy of the pod allows one port, a name may lead to the address, and no name leads to the metadata service.
    assert_eq!(codes[..3], [Some(1), Some(1), Some(0)]);
    let allowed = ["explain", "--from", "shop/web", "--to", "api.payments.example:443", "--expect"];
    assert_eq!(plugins.ask(plane, &[&allowed[..], &["allow"]].concat()).status.code(), Some(0));
    assert_eq!(plugins.ask(plane, &[&allowed[..], &["deny"]].concat()).status.code(), Some(1));
    assert!(text(&plugins.ask(plane, &["--help"])).contains("Usage: kubectl namewall <COMMAND>"));
}

/// `audit-paths` of manifests, with `--live`, and as kubectl calls it. Gives the exit code.
fn ways_are_the_same(plane: &ControlPlane, plugins: &Plugins, objects: &Path, destination: &str) -> Option<i32> {
    let asked = ["audit-paths", destination, "-o", "json"];
    let of = |told: &Output| -> Value {
        let mut value = serde_json::from_slice(&told.stdout).unwrap_or_else(|error| {
            panic!("{destination}: {error}: {}", String::from_utf8_lossy(&told.stderr));
        });
        without_places(&mut value);
        value
    };
    let offline = Command::new(NAMEWALL).args(asked).arg(objects).output().unwrap();
    let kubeconfig = plane.kubeconfig();
    let live = Command::new(NAMEWALL).args(asked).arg("--live").arg("--kubeconfig").arg(&kubeconfig).output().unwrap();
    let plugin = plugins.ask(plane, &asked);
    assert!(of(&offline)["paths"].as_array().is_some_and(|paths| !paths.is_empty()), "{destination}");
    for other in [live, plugin] {
        assert_eq!(other.status.code(), offline.status.code(), "{destination}");
        assert_eq!(of(&other), of(&offline), "{destination}");
    }
    offline.status.code()
}

fn leases_are_those_of_the_statuses(plane: &ControlPlane, plugins: &Plugins) {
    let told: Value = serde_json::from_str(&text(&plugins.ask(plane, &["leases", "-o", "json"]))).unwrap();
    assert_eq!(told.as_array().unwrap().len(), 1, "{told}");
    let lease = &told[0];
    assert_eq!((&lease["name"], &lease["address"]), (&json!("api.payments.example"), &json!("198.51.100.7")));
    assert_eq!(lease["rules"][0], "EgressFirewall/shop/default egress rule 0");
    let left = lease["secondsLeft"].as_u64().unwrap();
    assert!((1..=3000).contains(&left), "{left}");
    let shown = text(&plugins.ask(plane, &["leases", "payments.example"]));
    assert!(shown.contains("198.51.100.7") && shown.contains("EgressFirewall/shop/default"), "{shown}");
    assert_eq!(text(&plugins.ask(plane, &["leases", "other.example"])), "nothing is open by name\n");
}

fn whoever_may_not_read_all_is_refused(plane: &ControlPlane, plugins: &Plugins) {
    plane.kubectl(&["create", "serviceaccount", "reader", "-n", "shop"]).unwrap();
    plane
        .kubectl(&["create", "clusterrolebinding", "reader", "--clusterrole=view", "--serviceaccount=shop:reader"])
        .unwrap();
    let token = plane.kubectl(&["create", "token", "reader", "-n", "shop"]).unwrap();
    let kubeconfig = plane.kubeconfig_for("reader", token.trim()).unwrap();
    let asked = ["check", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let refused = plugins.ask(plane, &asked);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{why}");
    assert!(why.contains("cannot list Node") && why.contains("cannot be read as a whole"), "{why}");
    // No way is called closed of a cluster that is known in part.
    let audited = ["audit-paths", "metadata", "--live", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let refused = Command::new(NAMEWALL).args(audited).output().unwrap();
    assert_eq!((refused.status.code(), text_of(&refused.stdout)), (Some(2), String::new()));
    assert!(text_of(&refused.stderr).contains("cannot be read as a whole"), "{}", text_of(&refused.stderr));
    let (code, told) = doctor(&kubeconfig);
    assert_eq!((code, state(&told, "rights")), (Some(1), "missing".to_owned()), "{told}");
    assert_eq!(state(&told, "API server"), "good");
}

fn the_doctor_sees_what_is_installed(plane: &ControlPlane) {
    let (code, told) = doctor(&plane.kubeconfig());
    assert_eq!((code, state(&told, "kinds")), (Some(1), "good".to_owned()), "{told}");
    assert_eq!([state(&told, "agents"), state(&told, "controller")], ["missing", "missing"], "{told}");
    let nodes = "apiVersion: v1\nkind: Node\nmetadata: {name: node-2}\n---\n\
                 apiVersion: namewall.dev/v1alpha1\nkind: NodeAddresses\nmetadata: {name: node-1}\naddresses: [192.0.2.1]\n";
    plane.apply(nodes).unwrap();
    assert!(doctor(&plane.kubeconfig()).1.to_string().contains("1 of 2 nodes have none, and enforce nothing: node-2"));
    run(plane, "agent-2", "agent", "node-2");
    run(plane, "controller-1", "controller", "node-1");
    run(plane, "controller-2", "controller", "node-2");
    // Where agents are pods, one that is gone has left its addresses.
    assert!(doctor(&plane.kubeconfig()).1.to_string().contains("1 of 2 nodes have none, and enforce nothing: node-1"));
    run(plane, "agent-1", "agent", "node-1");
    let (code, told) = doctor(&plane.kubeconfig());
    assert_eq!(code, Some(0), "{told}");
}

/// A pod of a component.
fn run(plane: &ControlPlane, name: &str, component: &str, node: &str) {
    let labels = format!("{{app.kubernetes.io/name: namewall, app.kubernetes.io/component: {component}}}");
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: default, labels: {labels}}}\n\
         spec: {{nodeName: {node}, hostNetwork: true, containers: [{{name: c, image: none}}]}}\n"
    );
    plane.run_pod(&pod, "192.0.2.2").unwrap();
}

/// What it says of this machine, run by something that changes what it is or may do.
fn doctor_of_node(through: &[&str]) -> (Option<i32>, String) {
    let (program, arguments) = through.split_first().unwrap();
    let mut command = Command::new(program);
    command.args(arguments).args([NAMEWALL, "doctor", "--only", "node"]);
    let told = command.env("NAMEWALL_RUNTIME_DIR", "/proc/nowhere").output().unwrap();
    (told.status.code(), String::from_utf8_lossy(&[told.stdout, told.stderr].concat()).into_owned())
}

#[test]
fn a_node_without_rights_is_told_so_and_one_that_has_all_is_well() {
    let without = match nix::unistd::geteuid().is_root() {
        true => vec!["setpriv", "--inh-caps=-net_admin", "--bounding-set=-net_admin"],
        false => vec!["env"],
    };
    let (code, told) = doctor_of_node(&without);
    assert!(code == Some(1) && told.contains("✗ rights") && told.contains("NET_ADMIN"), "{told}");
    // A network of its own, with a view of it, has no bridges.
    let own = ["unshare", "--user", "--map-root-user", "--net", "--mount", "sh", "-c"];
    let (code, told) = doctor_of_node(&[&own[..], &["mount -t sysfs none /sys && \"$0\" \"$@\""]].concat());
    assert!(code == Some(0) && told.contains("✓ kernel") && told.contains("there are none"), "{told}");
    let bridge = "mount -t sysfs none /sys && ip link add cni0 type bridge && \"$0\" \"$@\"";
    let (code, told) = doctor_of_node(&[&own[..], &[bridge]].concat());
    assert!(told.contains("within cni0 are"), "{told}");
    assert_eq!(code == Some(1), told.contains("✗ bridges"), "{told}");
}
