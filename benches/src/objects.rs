//! Namespaces, nodes, pods and Deployments as manifests, with about as much in
//! them as `kubectl get -o yaml` gives once `managedFields` are left out.

use crate::File;
use crate::layout::{App, Layout, Pod, node_address, pod_network};
use std::fmt::Write;
use std::net::Ipv4Addr;

const PODS_A_FILE: usize = 1_000;

pub(crate) fn files(layout: &Layout) -> Vec<File> {
    let mut files = vec![namespaces(layout), nodes(layout)];
    if layout.cluster.templates {
        let text: String = layout.apps.iter().map(|app| deployment(layout, app)).collect();
        files.push(File { name: "deployments.yaml".into(), text });
        return files;
    }
    let pods: Vec<String> = layout.pods().map(|it| pod(layout, &it)).collect();
    for (at, chunk) in pods.chunks(PODS_A_FILE).enumerate() {
        files.push(File { name: format!("pods-{at:03}.yaml"), text: chunk.concat() });
    }
    files
}

/// Pods with their Deployments and Services, as a cluster that lives has them.
pub(crate) fn everything(layout: &Layout) -> Vec<String> {
    let pods = layout.pods().map(|it| pod(layout, &it));
    let deployments = layout.apps.iter().map(|app| deployment(layout, app));
    pods.chain(deployments).chain(layout.apps.iter().map(|app| service(layout, app))).collect()
}

fn service(layout: &Layout, app: &App) -> String {
    let (name, namespace) = (&app.name, &layout.namespace(app).name);
    let address = Ipv4Addr::from_bits(Ipv4Addr::new(10, 96, 0, 1).to_bits() + app.number as u32);
    let mut text = format!(
        "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  namespace: {namespace}\nspec:\n  clusterIP: {address}\n  selector:\n    app: {name}\n  ports:\n"
    );
    for (port, number) in app.trade.ports {
        let _ = write!(text, "  - name: {port}\n    port: {number}\n    targetPort: {port}\n");
    }
    text
}

fn namespaces(layout: &Layout) -> File {
    let mut text = String::new();
    for namespace in &layout.namespaces {
        let (name, team, env) = (&namespace.name, &namespace.team, namespace.environment);
        text += &format!(
            "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n  labels:\n    team: {team}\n    env: {env}\n"
        );
    }
    File { name: "namespaces.yaml".into(), text }
}

fn nodes(layout: &Layout) -> File {
    let mut text = String::new();
    for node in 0..layout.cluster.nodes {
        let (network, address, zone) = (pod_network(node), node_address(node), node % 3);
        let role = if node < 3 { "control-plane" } else { "worker" };
        text += &format!(
            "---
apiVersion: v1
kind: Node
metadata:
  name: node-{node:04}
  labels:
    kubernetes.io/hostname: node-{node:04}
    kubernetes.io/os: linux
    role: {role}
    topology.kubernetes.io/zone: zone-{zone}
spec:
  podCIDR: {network}/22
  podCIDRs:
  - {network}/22
status:
  addresses:
  - address: {address}
    type: InternalIP
  - address: node-{node:04}
    type: Hostname
"
        );
    }
    File { name: "nodes.yaml".into(), text }
}

fn labels(layout: &Layout, app: &App, indent: &str) -> String {
    let mut text = String::new();
    let team = &layout.namespace(app).team;
    let mut label = |key: &str, value: &str| text += &format!("{indent}{key}: {value}\n");
    label("app", &app.name);
    label("app.kubernetes.io/part-of", team);
    if app.trade.name == "coredns" {
        label("k8s-app", "kube-dns");
    }
    label("tier", app.trade.tier);
    label("version", &format!("v{}", app.version()));
    text
}

fn containers(app: &App, indent: &str) -> String {
    let (name, version) = (&app.name, app.version());
    let mut text = format!(
        "{indent}containers:\n{indent}- image: images.example/{name}:1.{version}.0\n{indent}  name: {name}\n{indent}  ports:\n"
    );
    for (port, number) in app.trade.ports {
        let protocol = if *port == "dns" { "UDP" } else { "TCP" };
        let _ = write!(
            text,
            "{indent}  - containerPort: {number}\n{indent}    name: {port}\n{indent}    protocol: {protocol}\n"
        );
    }
    text
}

fn pod(layout: &Layout, pod: &Pod<'_>) -> String {
    let app = pod.app;
    let (namespace, hash) = (&layout.namespace(app).name, app.hash());
    let host_network = if pod.host_network { "  hostNetwork: true\n" } else { "" };
    format!(
        "---
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: {namespace}
  labels:
{labels}    pod-template-hash: {hash}
  ownerReferences:
  - apiVersion: apps/v1
    controller: true
    kind: ReplicaSet
    name: {app_name}-{hash}
spec:
{containers}{host_network}  nodeName: node-{node:04}
  serviceAccountName: {app_name}
status:
  hostIP: {host}
  phase: Running
  podIP: {address}
  podIPs:
  - ip: {address}
",
        name = pod.name,
        labels = labels(layout, app, "    "),
        app_name = app.name,
        containers = containers(app, "  "),
        node = pod.node,
        host = node_address(pod.node),
        address = pod.address,
    )
}

fn deployment(layout: &Layout, app: &App) -> String {
    format!(
        "---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
  namespace: {namespace}
spec:
  replicas: {replicas}
  selector:
    matchLabels:
      app: {name}
  template:
    metadata:
      labels:
{labels}    spec:
{containers}      serviceAccountName: {name}
",
        name = app.name,
        namespace = layout.namespace(app).name,
        replicas = layout.cluster.replicas,
        labels = labels(layout, app, "        "),
        containers = containers(app, "      "),
    )
}
