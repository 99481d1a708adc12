//! An API server that is slow, silent or away, that has forgotten its history or lost a kind: nothing that was
//! known is let go, and all that changed is caught up with.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use namewall_cluster::Settings;
use namewall_cluster::kinds::{Component, EGRESS_FIREWALL};
use namewall_kubernetes::crds::{definitions, to_yaml};
use namewall_kubernetes::{Connection, Target, Watch};
use namewall_testbed::{ControlPlane, Proxy, ProxyMode};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// A watch that says nothing for so long is not believed to live.
const SILENCE: Duration = Duration::from_secs(2);
const LATE: Duration = Duration::from_secs(1);

struct World {
    plane: ControlPlane,
    proxy: Proxy,
    watch: Watch,
}

#[test]
fn nothing_is_let_go_and_all_is_caught_up_with() {
    let plane = ControlPlane::start().unwrap();
    plane.apply(&to_yaml(&definitions()).unwrap()).unwrap();
    plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).unwrap();
    plane.kubectl(&["create", "namespace", "shop"]).unwrap();
    let proxy = Proxy::start(&plane).unwrap();
    let target = Target { kubeconfig: Some(proxy.kubeconfig(&plane).unwrap()), context: None };
    let watch = Watch::start(&Connection::open(&target).unwrap().impatient(SILENCE), Component::Agent);
    watch.wait_until_known(TEST_TIMEOUT).unwrap();
    let mut world = World { plane, proxy, watch };
    a_slow_server_is_heard_late_and_in_full(&mut world);
    a_silent_server_takes_nothing_away(&mut world);
    connections_that_lead_nowhere_are_noticed(&mut world);
    a_kind_that_is_taken_away_goes_alone_and_comes_back(&mut world);
    a_history_that_is_gone_is_read_anew(&mut world);
}

fn a_slow_server_is_heard_late_and_in_full(world: &mut World) {
    world.make(&["a", "b"]);
    world.wait_for(&["a", "b"]);
    world.proxy.set(ProxyMode::Slow(LATE));
    let began = Instant::now();
    world.make(&["c"]);
    world.delete("a");
    world.wait_for(&["b", "c"]);
    assert!(began.elapsed() >= LATE, "it was slow: {:?}", began.elapsed());
    world.proxy.set(ProxyMode::Open);
}

fn a_silent_server_takes_nothing_away(world: &mut World) {
    world.proxy.set(ProxyMode::Stalled);
    world.delete("b");
    world.make(&["d"]);
    world.wait_for_trouble("nobody notices that it is silent");
    assert_eq!(world.policies(), ["b", "c"].map(str::to_owned).into());
    world.proxy.set(ProxyMode::Open);
    world.wait_for(&["c", "d"]);
    world.wait_until_heard();
}

/// As when a device between has forgotten them: nobody is told.
fn connections_that_lead_nowhere_are_noticed(world: &mut World) {
    world.proxy.lose_connections();
    world.make(&["e"]);
    world.delete("c");
    world.wait_for(&["d", "e"]);
    world.wait_until_heard();
}

fn a_kind_that_is_taken_away_goes_alone_and_comes_back(world: &mut World) {
    let firewall = "apiVersion: k8s.ovn.org/v1\nkind: EgressFirewall\nmetadata: {name: default, namespace: shop}\n\
                    spec: {egress: [{type: Deny, to: {cidrSelector: 0.0.0.0/0}}]}\n";
    world.plane.apply(firewall).unwrap();
    world.wait_for(&["d", "e", "default"]);
    world.plane.kubectl(&["delete", "crd", "egressfirewalls.k8s.ovn.org"]).unwrap();
    world.wait_for(&["d", "e"]);
    // Other kinds are followed as ever.
    world.make(&["f"]);
    world.wait_for(&["d", "e", "f"]);
    let began = Instant::now();
    while !world.watch.absent().contains(&&EGRESS_FIREWALL) {
        assert!(began.elapsed() < TEST_TIMEOUT, "{:?}", world.watch.trouble());
        world.watch.wait(Duration::from_millis(100));
    }
    world.plane.apply(&to_yaml(&definitions()).unwrap()).unwrap();
    world.plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).unwrap();
    world.plane.apply(firewall).unwrap();
    world.wait_for(&["d", "e", "f", "default"]);
    world.wait_until_heard();
}

/// Objects come and go while nobody hears of it, and the server no longer knows that they did.
fn a_history_that_is_gone_is_read_anew(world: &mut World) {
    const AT: &str = "/apis/networking.k8s.io/v1/networkpolicies";
    let listed: Value = serde_json::from_str(&world.plane.kubectl(&["get", "--raw", AT]).unwrap()).unwrap();
    let old = listed["metadata"]["resourceVersion"].as_str().unwrap();
    world.proxy.set(ProxyMode::Cut);
    world.delete("d");
    world.make(&["g", "h"]);
    world.delete("g");
    world.plane.kill_server();
    world.plane.compact().unwrap();
    world.plane.start_server().unwrap();
    let since = format!("{AT}?watch=1&timeoutSeconds=1&resourceVersion={old}");
    let told = world.plane.kubectl(&["get", "--raw", &since]).unwrap_or_else(|error| error.to_string());
    assert!(told.contains("too old resource version"), "the history is there still: {told}");
    world.proxy.set(ProxyMode::Open);
    world.wait_for(&["e", "f", "h", "default"]);
    world.wait_until_heard();
}

impl World {
    fn make(&self, names: &[&str]) {
        let policy = |name: &&str| {
            format!(
                "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: {name}, namespace: shop}}\n\
                 spec: {{podSelector: {{}}, policyTypes: [Ingress]}}\n---\n"
            )
        };
        self.plane.apply(&names.iter().map(policy).collect::<String>()).unwrap();
    }

    fn delete(&self, name: &str) {
        self.plane.kubectl(&["delete", "networkpolicy", name, "-n", "shop"]).unwrap();
    }

    fn policies(&mut self) -> BTreeSet<String> {
        let snapshot = self.watch.read(&Settings::default()).lowered.snapshot;
        snapshot.policies.iter().map(|policy| policy.id.name.to_string()).collect()
    }

    fn wait_for(&mut self, wanted: &[&str]) {
        let wanted: BTreeSet<String> = wanted.iter().map(ToString::to_string).collect();
        let began = Instant::now();
        while self.policies() != wanted {
            let (policies, trouble) = (self.policies(), self.watch.trouble());
            assert!(began.elapsed() < TEST_TIMEOUT, "{policies:?} is not {wanted:?}; {trouble:?}");
            self.watch.wait(Duration::from_millis(200));
        }
        println!("{wanted:?} after {:?}", began.elapsed());
    }

    fn wait_for_trouble(&self, otherwise: &str) {
        let began = Instant::now();
        while self.watch.trouble().is_empty() {
            assert!(began.elapsed() < TEST_TIMEOUT, "{otherwise}");
            self.watch.wait(Duration::from_millis(50));
        }
        println!("trouble after {:?}", began.elapsed());
    }

    /// Whoever asks what is wrong is told that nothing is, also of kinds of which nothing has changed.
    fn wait_until_heard(&self) {
        let began = Instant::now();
        while !self.watch.trouble().is_empty() {
            assert!(began.elapsed() < TEST_TIMEOUT, "{:?}", self.watch.trouble());
            std::thread::sleep(Duration::from_millis(50));
        }
        println!("heard after {:?}", began.elapsed());
    }
}
