//! Served in a cluster with a real API server: clients are its pods, and names are kept in its objects.

use crate::dig::dig;
use crate::ports::free_port;
use crate::process::{Folder, Serving};
use namewall_kubernetes::crds::{definitions, to_yaml};
use namewall_testbed::ControlPlane;
use serde_json::Value;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

const OBJECTS: &str = "apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Namespace
metadata: {name: other}
---
apiVersion: network.openshift.io/v1alpha1
kind: DNSNameResolver
metadata: {name: dns-regular, namespace: shop}
spec: {name: www.example.com.}
---
apiVersion: network.openshift.io/v1alpha1
kind: DNSNameResolver
metadata: {name: dns-wildcard, namespace: shop}
spec: {name: \"*.example.org.\"}
---
apiVersion: network.openshift.io/v1alpha1
kind: DNSNameResolver
metadata: {name: dns-elsewhere, namespace: other}
spec: {name: www.example.com.}
";

const POD: &str = "apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {role: good}}
spec: {serviceAccountName: web, containers: [{name: c, image: none}]}
";

fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn s8_5_what_a_name_was_found_at_is_in_its_object_before_the_answer_is_out() {
    let plane = ControlPlane::start().unwrap();
    plane.apply(&to_yaml(&definitions()).unwrap()).unwrap();
    plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).unwrap();
    plane.apply(OBJECTS).unwrap();
    plane.run_pod(POD, "127.0.0.1").unwrap();

    let (outer, port) = (free_port(), free_port());
    let hosts = |more: &str| {
        format!(
            ".:{outer} {{\n bind lo\n hosts /no/such/file {{\n 192.0.2.1 www.example.com\n {more}\n ttl 30\n }}\n}}\n"
        )
    };
    let upstream = Serving::start(&hosts("192.0.2.7 a.example.org"));
    let corefile = format!(
        ".:{port} {{
   bind lo
   dnsnameresolver {{
      namespaces shop
   }}
   firewall query {{
      block [kubernetes/client-label/role] == 'evil'
      block [kubernetes/client-service-account] == 'mallory'
      default allow
   }}
   forward . 127.0.0.1:{outer}
}}
"
    );
    let kubeconfig = plane.kubeconfig().display().to_string();
    let _serving = Serving::start_with(Folder::new(&corefile), &["--kubeconfig", &kubeconfig]);
    let ask = |name: &str| dig(Ipv4Addr::LOCALHOST, port, &format!("{name} A"));
    let status = |namespace: &str, object: &str| -> Value {
        plane.get(&["dnsnameresolver", object, "-n", namespace]).unwrap()["status"]["resolvedNames"].take()
    };

    // Its objects are known a moment after it is there.
    wait_for("the name is never written down", || {
        assert!(ask("WWW.example.com").ends_with("192.0.2.1"));
        status("shop", "dns-regular")[0]["resolvedAddresses"][0]["ip"] == "192.0.2.1"
    });
    assert_eq!(status("shop", "dns-regular")[0]["dnsName"], "www.example.com.");
    assert_eq!(status("other", "dns-elsewhere"), Value::Null, "that namespace is not its own");

    // From then on before the answer.
    assert!(ask("a.example.org").ends_with("192.0.2.7"));
    let told = status("shop", "dns-wildcard");
    assert_eq!(
        (&told[0]["dnsName"], &told[0]["resolvedAddresses"][0]["ip"]),
        (&"a.example.org.".into(), &"192.0.2.7".into())
    );
    assert_eq!(told[0]["resolvedAddresses"][0]["ttlSeconds"], 30);

    // A failure is counted, and told of in a condition.
    upstream.reload(&hosts("192.0.2.9 b.example.org"));
    // As CoreDNS: `hosts` without `fallthrough` says SERVFAIL of a name that it does not have.
    assert!(ask("a.example.org").starts_with("SERVFAIL"));
    let told = status("shop", "dns-wildcard");
    assert_eq!((&told[0]["resolutionFailures"], &told[0]["conditions"][0]["status"]), (&1.into(), &"True".into()));
    assert_eq!(told[0]["conditions"][0]["reason"], "SERVFAIL");

    // Clients are pods: what their labels say now counts.
    plane.kubectl(&["label", "pod", "web", "-n", "shop", "role=evil", "--overwrite"]).unwrap();
    wait_for("the pod's label never counts", || ask("www.example.com").starts_with("NXDOMAIN"));
}

/// The directive that answers names of the cluster says who clients are, too: nothing else is set in a cluster.
#[test]
fn clients_are_the_pods_of_the_cluster_whose_names_are_answered() {
    let plane = ControlPlane::start().unwrap();
    plane.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n").unwrap();
    plane.run_pod(POD, "127.0.0.1").unwrap();
    let port = free_port();
    let corefile = format!(
        ".:{port} {{
   bind 127.0.0.1
   kubernetes cluster.local {{
      kubeconfig {}
   }}
   firewall query {{
      refuse [kubernetes/client-label/role] == 'good'
      default allow
   }}
   whoami
}}
",
        plane.kubeconfig().display()
    );
    let _serving = Serving::start(&corefile);
    let began = Instant::now();
    loop {
        let told = dig(Ipv4Addr::LOCALHOST, port, "www.example.com A");
        if told.starts_with("REFUSED") {
            break;
        }
        assert!(told.starts_with("SERVFAIL"), "nothing passes before it is known who asks: {told}");
        assert!(began.elapsed() < Duration::from_secs(120), "the pod is never known: {told}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
