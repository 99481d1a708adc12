//! The objects that a real API server has before a test begins.

use namewall_kubernetes::crds::{definitions, to_yaml};
use namewall_testbed::ControlPlane;
use serde_json::json;
use std::path::Path;

/// The address of the cluster's DNS Service.
pub(crate) const DNS_SERVICE: &str = "apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec: {clusterIP: 10.96.0.10, ports: [{name: dns, port: 53, protocol: UDP}]}
";

/// The nodes, namespaces and pods of a folder's cluster.yaml, as kubelets would tell of them.
pub(crate) fn populate(plane: &ControlPlane, folder: &Path) {
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
pub(crate) fn define(plane: &ControlPlane) {
    plane.apply(&to_yaml(&definitions()).unwrap()).unwrap();
    plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).unwrap();
}
