//! The Corefiles of clusters, as they are printed but for addresses and ports, served beside a real API server.

use crate::dig::dig;
use crate::ports::free_port;
use crate::process::{Folder, Serving};
use namewall_kubernetes::crds::{definitions, to_yaml};
use namewall_testbed::ControlPlane;
use std::net::Ipv4Addr;

macro_rules! sample {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../../tests/corefiles/clusters/", $name, ".corefile")))
    };
}

const OBJECTS: &str = "apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: None, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [10.9.0.7]}]
ports: [{name: http, port: 80}]
";

/// A Corefile at one port, whose upstreams are one of ours: on its addresses there is nobody here.
fn moved(text: &str, port: u16, above: u16) -> String {
    let mut moved = String::new();
    for line in text.lines() {
        let indent = &line[..line.len() - line.trim_start().len()];
        let words: Vec<&str> = line.split_whitespace().collect();
        let new = match &words[..] {
            ["bind", ..] => "bind 127.0.0.1".to_owned(),
            ["forward", zone, _, rest @ ..] => format!("forward {zone} 127.0.0.1:{above} {}", rest.join(" ")),
            ["prometheus", ..] => format!("prometheus 127.0.0.1:{}", free_port()),
            ["ready", ..] => format!("ready 127.0.0.1:{}", free_port()),
            ["health", rest @ ..] => {
                let block = if rest.last() == Some(&"{") { " {" } else { "" };
                format!("health 127.0.0.1:{}{block}", free_port())
            }
            // A server that is told to end serves on for so long.
            ["lameduck", _] => "lameduck 0s".to_owned(),
            _ => line.trim().replace(":53 ", &format!(":{port} ")).replace(":5353 ", &format!(":{port} ")),
        };
        moved += &format!("{indent}{new}\n");
        if words.last() == Some(&"{")
            && line.starts_with(|letter: char| !letter.is_whitespace())
            && !text.contains("bind")
        {
            moved += "    bind 127.0.0.1\n";
        }
    }
    moved
}

#[test]
fn the_corefiles_of_clusters_start_and_serve() {
    let plane = ControlPlane::start().unwrap();
    plane.apply(&to_yaml(&definitions()).unwrap()).unwrap();
    plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).unwrap();
    plane.apply(OBJECTS).unwrap();
    let kubeconfig = plane.kubeconfig().display().to_string();
    let (above, cluster) = (free_port(), free_port());
    let answers = format!(
        ".:{above} {{\n bind 127.0.0.1\n template IN A . {{\n  match ^www\n  answer \"{{{{ .Name }}}} 60 IN A 192.0.2.7\"\n  \
         fallthrough\n }}\n template ANY ANY . {{\n  rcode NXDOMAIN\n }}\n}}\n"
    );
    let _upstream = Serving::start(&answers);
    // node-local-dns and GKE's form ask the cluster's own DNS, which is the default one.
    let (_, default) = sample!("kubernetes");
    let arguments = ["--kubeconfig", &kubeconfig];
    let _cluster = Serving::start_with(Folder::new(&moved(default, cluster, above)), &arguments);
    let samples = [
        (sample!("kubernetes"), true, above),
        (sample!("aks"), true, above),
        (sample!("openshift-default"), true, above),
        (sample!("openshift"), false, above),
        (sample!("node-local-dns"), true, cluster),
        (sample!("gke"), true, cluster),
    ];
    for ((name, text), knows_cluster, upstream) in samples {
        let port = free_port();
        let corefile = moved(text, port, upstream);
        let _serving = Serving::start_with(Folder::new(&corefile), &arguments);
        let ask = |words: &str| dig(Ipv4Addr::LOCALHOST, port, words);
        for over in ["+notcp", "+tcp"] {
            let told = ask(&format!("www.example.com A {over}"));
            assert!(
                told.starts_with("NOERROR\nwww.example.com. ") && told.ends_with("IN A 192.0.2.7"),
                "{name}: {told}\n{corefile}"
            );
        }
        assert_eq!(ask("nothing.example.com A").lines().next(), Some("NXDOMAIN"), "{name}");
        if knows_cluster {
            let told = ask("web.shop.svc.cluster.local A");
            assert!(told.ends_with("IN A 10.9.0.7"), "{name}: {told}\n{corefile}");
            let told = ask("_http._tcp.web.shop.svc.cluster.local SRV");
            assert!(told.contains("IN SRV 0 100 80 10-9-0-7.web.shop.svc.cluster.local."), "{name}: {told}");
            let told = ask("-x 10.9.0.7");
            assert!(told.ends_with("IN PTR 10-9-0-7.web.shop.svc.cluster.local."), "{name}: {told}");
            assert_eq!(ask("none.shop.svc.cluster.local A").lines().next(), Some("NXDOMAIN"), "{name}");
        }
    }
}
