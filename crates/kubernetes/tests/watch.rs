//! A real API server is watched: what is there, what changes, what is taken away, and what becomes of all that
//! is known while the server is gone.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use namewall_cluster::Settings;
use namewall_cluster::kinds::{Component, EGRESS_FIREWALL};
use namewall_kubernetes::{Connection, Target, Watch};
use namewall_testbed::ControlPlane;
use std::time::{Duration, Instant};

const TEST_TIMEOUT: Duration = Duration::from_secs(30);

const NODE: &str = "apiVersion: v1
kind: Node
metadata: {name: one}
spec: {podCIDR: 10.244.1.0/24}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
";

const POD: &str = "apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {nodeName: one, containers: [{name: c, image: none}]}
";

const POLICY: &str = "apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed, namespace: shop}
spec: {podSelector: {}, policyTypes: [Ingress]}
";

fn watch(plane: &ControlPlane) -> Watch {
    let target = Target { kubeconfig: Some(plane.kubeconfig()), context: None };
    let watch = Watch::start(&Connection::open(&target).unwrap(), Component::Agent);
    watch.wait_until_known(TEST_TIMEOUT).unwrap();
    watch
}

/// Waits until the cluster has as many pods and policies.
fn wait_for(watch: &mut Watch, pods: usize, policies: usize) {
    let began = Instant::now();
    loop {
        let snapshot = watch.read(&Settings::default()).lowered.snapshot;
        let ours = |name: &str| name == "shop";
        let there = snapshot.workloads.iter().filter(|one| !one.is_vacant());
        let in_shop = there.filter(|one| ours(&snapshot.namespace(one.namespace).name)).count();
        if (in_shop, snapshot.policies.len()) == (pods, policies) {
            return;
        }
        assert!(began.elapsed() < TEST_TIMEOUT, "{in_shop} pods and {} policies", snapshot.policies.len());
        watch.wait(Duration::from_millis(200));
    }
}

#[test]
fn a_cluster_is_followed_through_changes_and_a_restart_of_its_server() {
    let mut plane = ControlPlane::start().unwrap();
    plane.apply(NODE).unwrap();
    let mut watch = watch(&plane);
    assert!(watch.absent().contains(&&EGRESS_FIREWALL), "{:?}", watch.absent());
    wait_for(&mut watch, 0, 0);
    plane.run_pod(POD, "10.244.1.5").unwrap();
    plane.apply(POLICY).unwrap();
    wait_for(&mut watch, 1, 1);
    let snapshot = watch.read(&Settings::default()).lowered.snapshot;
    assert_eq!(snapshot.workloads[0].addresses[..], ["10.244.1.5".parse::<std::net::IpAddr>().unwrap()]);

    // Nothing that policies can see has changed: nobody is bothered.
    plane.kubectl(&["annotate", "pod", "web", "-n", "shop", "seen=yes"]).unwrap();
    assert!(!watch.wait(Duration::from_secs(1)));

    plane.kill_server();
    let began = Instant::now();
    while watch.trouble().is_empty() {
        assert!(began.elapsed() < TEST_TIMEOUT, "nobody notices that the server is gone");
        std::thread::sleep(Duration::from_millis(50));
    }
    wait_for(&mut watch, 1, 1);
    plane.start_server().unwrap();
    plane.kubectl(&["delete", "networkpolicy", "closed", "-n", "shop"]).unwrap();
    wait_for(&mut watch, 1, 0);
    // Also where nothing has changed.
    let began = Instant::now();
    while !watch.trouble().is_empty() {
        assert!(began.elapsed() < TEST_TIMEOUT, "nobody notices that the server is back: {:?}", watch.trouble());
        std::thread::sleep(Duration::from_millis(50));
    }
    plane.kubectl(&["delete", "pod", "web", "-n", "shop", "--force", "--grace-period=0"]).unwrap();
    wait_for(&mut watch, 0, 0);
}
