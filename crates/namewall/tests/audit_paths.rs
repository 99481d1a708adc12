//! `namewall audit-paths`: every way to a destination, and what closes it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use namewall_testbed::run_with_input;
use serde_json::Value;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cluster-egress-firewall");

/// A pod, one on its node's network, and Services of every kind that lead to 192.0.2.66.
const CLUSTER: &str = r#"
{apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {podCIDRs: [10.244.1.0/24]}, status: {addresses: [{type: InternalIP, address: 172.18.0.2}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: n2}, spec: {podCIDRs: [10.244.2.0/24]}, status: {addresses: [{type: InternalIP, address: 172.18.0.3}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}, spec: {nodeName: n1, containers: []}, status: {podIP: 10.244.1.10, podIPs: [{ip: 10.244.1.10}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: host, namespace: shop}, spec: {nodeName: n1, hostNetwork: true, containers: []}, status: {podIP: 172.18.0.2, podIPs: [{ip: 172.18.0.2}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: tunnel, namespace: shop}, spec: {type: LoadBalancer, clusterIP: 10.96.0.1, externalIPs: [198.51.100.1], ports: [{port: 80, nodePort: 30080}]}, status: {loadBalancer: {ingress: [{ip: 198.51.100.2}]}}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: tunnel, namespace: shop, labels: {kubernetes.io/service-name: tunnel}}, addressType: IPv4, ports: [{port: 80, protocol: TCP}], endpoints: [{addresses: [192.0.2.66]}]}
---
{apiVersion: v1, kind: Service, metadata: {name: bare, namespace: shop}, spec: {clusterIP: None, ports: [{port: 81}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: bare, namespace: shop, labels: {kubernetes.io/service-name: bare}}, addressType: IPv4, ports: [{port: 81, protocol: TCP}], endpoints: [{addresses: [192.0.2.66]}]}
---
"#;

fn firewall(rules: &str) -> String {
    format!(
        "{CLUSTER}{{apiVersion: namewall.dev/v1alpha1, kind: ClusterEgressFirewall, metadata: {{name: shut}}, spec: {{priority: 5, rules: {rules}}}}}\n"
    )
}

/// The exit code, and each path as `OUTCOME WAY SERVICE AT <- FROM`, with `then` before FROM for a chain.
fn audit(arguments: &[&str], input: &str) -> (Option<i32>, Vec<String>) {
    let arguments = [&["audit-paths", "-o", "json"], arguments].concat();
    let output = run_with_input(env!("CARGO_BIN_EXE_namewall"), &arguments, input);
    let told: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let tell = |path: &Value| {
        let from: Vec<String> = path["from"].as_array().unwrap().iter().map(text).collect();
        let words = ["outcome", "way", "service", "at"].map(|key| text(&path[key]));
        let mut words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
        if let Some(then) = path["then"].as_array() {
            words.push(format!("then {}", then.iter().map(text).collect::<Vec<_>>().join(", ")));
        }
        format!("{} <- {}", words.join(" "), from.join(" "))
    };
    let paths: Vec<String> = told["paths"].as_array().unwrap().iter().map(tell).collect();
    assert_eq!(told["closed"] == true, output.status.code() == Some(0), "{told}");
    (output.status.code(), paths)
}

#[test]
fn every_kind_of_service_is_a_way_from_pods_and_from_outside() {
    let expected = |outcome: &str| {
        let ways = [
            "direct <- shop/web",
            "service shop/tunnel 10.96.0.1:80/TCP <- shop/web",
            "service shop/tunnel 10.96.0.1:80/TCP <- outside",
            "service shop/tunnel 198.51.100.1:80/TCP <- shop/web",
            "service shop/tunnel 198.51.100.1:80/TCP <- outside",
            "service shop/tunnel 198.51.100.2:80/TCP <- shop/web",
            "service shop/tunnel 198.51.100.2:80/TCP <- outside",
            "nodePort shop/tunnel 30080/TCP of every node <- outside",
            "nodePort shop/tunnel 30080/TCP of other nodes <- shop/web",
            "nodePort shop/tunnel 30080/TCP of the pod's own node <- shop/web",
            "headless shop/bare <- shop/web",
        ];
        let mut ways: Vec<String> = ways.iter().map(|way| format!("{outcome} {way}")).collect();
        ways.push("outOfReach hostNetwork <- shop/host".to_owned());
        ways
    };
    let closed = firewall("[{action: Deny, to: [{networks: [192.0.2.66/32]}]}]");
    assert_eq!(audit(&["192.0.2.66", "-"], &closed), (Some(0), expected("closed")));
    assert_eq!(audit(&["192.0.2.66", "-"], CLUSTER), (Some(1), expected("open")));
}

#[test]
fn a_part_that_is_open_is_told_apart_from_the_rest() {
    let but_dns =
        "[{action: Allow, to: [{nodes: {}}], ports: [{protocol: UDP, port: 53}]}, {action: Deny, to: [{nodes: {}}]}]";
    let (code, paths) = audit(&["n2", "-"], &firewall(but_dns));
    assert_eq!(code, Some(1));
    let wanted = [
        "open direct <- shop/web",
        "closed direct <- shop/web",
        // An Allow does not speak of addresses that another machine may have.
        "closed loopback <- shop/web",
        "closed linkLocal <- shop/web",
        "closed group <- shop/web",
        "outOfReach direct <- outside",
        "outOfReach hostNetwork <- shop/host",
    ];
    assert_eq!(paths, wanted);
}

#[test]
fn s7_2_loopback_link_local_and_groups_are_ways_to_a_node() {
    let ways = ["loopback", "linkLocal", "group"];
    // A list of the nodes' addresses does not have them.
    let (code, paths) = audit(&["nodes", "-"], &firewall("[{action: Deny, to: [{networks: [172.18.0.0/24]}]}]"));
    assert_eq!(code, Some(1));
    assert!(paths.contains(&"closed direct <- shop/web".to_owned()), "{paths:?}");
    for way in ways {
        assert!(paths.contains(&format!("open {way} <- shop/web")), "{way} in {paths:?}");
    }
    let (code, paths) = audit(&["nodes", "-"], &firewall("[{action: Deny, to: [{nodes: {}}]}]"));
    assert_eq!(code, Some(0), "{paths:?}");
    for way in ways {
        assert!(paths.contains(&format!("closed {way} <- shop/web")), "{way} in {paths:?}");
    }
    // What is no node has no such addresses.
    let (_, paths) = audit(&["192.0.2.66", "-"], CLUSTER);
    assert!(!paths.iter().any(|path| ways.iter().any(|way| path.contains(way))), "{paths:?}");
}

#[test]
fn outside_is_a_source_of_direct_ways_to_pods_and_nodes() {
    let (code, paths) = audit(&["10.244.1.10", "-"], CLUSTER);
    assert_eq!(
        (code, paths),
        (Some(1), vec!["open direct <- outside".to_owned(), "outOfReach hostNetwork <- shop/host".to_owned(),])
    );
    let policy = |from: &str| {
        format!(
            "{CLUSTER}{{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {{name: p, namespace: shop}}, spec: {{podSelector: {{}}, ingress: {from}}}}}\n"
        )
    };
    let (code, paths) = audit(&["10.244.1.10", "-"], &policy("[]"));
    assert_eq!(code, Some(0), "{paths:?}");
    assert!(paths.contains(&"closed direct <- outside".to_owned()), "{paths:?}");
    // Who is let in decides the address.
    let (code, paths) = audit(&["10.244.1.10", "-"], &policy("[{from: [{ipBlock: {cidr: 203.0.113.0/24}}]}]"));
    assert_eq!(code, Some(1));
    assert_eq!(paths[0], "open direct <- outside 203.0.113.0-203.0.113.255");
    assert!(paths[1].starts_with("closed direct <- outside 0.0.0.0-"), "{paths:?}");
    let (_, paths) = audit(&["n1", "-"], CLUSTER);
    assert!(paths.contains(&"outOfReach direct <- outside".to_owned()), "{paths:?}");
}

#[test]
fn a_name_opens_only_what_may_be_leased() {
    let names =
        "[{action: Allow, to: [{domainNames: ['*.example.com']}]}, {action: Deny, to: [{networks: [0.0.0.0/0]}]}]";
    let (code, paths) = audit(&["203.0.113.7", "-"], &firewall(names));
    assert_eq!((code, &*paths[0]), (Some(1), "depends name <- shop/web"));
    for never in ["metadata", "nodes", "169.254.169.254"] {
        let (_, paths) = audit(&[never, "-"], &firewall(names));
        assert!(paths.contains(&"closed name <- shop/web".to_owned()), "{never}: {paths:?}");
    }
    // A Deny before the rule by name leaves it nothing to open.
    let denied =
        "[{action: Deny, to: [{networks: [203.0.113.0/24]}]}, {action: Allow, to: [{domainNames: ['*.example.com']}]}]";
    assert_eq!(audit(&["203.0.113.0/24", "-"], &firewall(denied)).0, Some(0));
}

#[test]
fn the_examples_close_every_way_they_promise_to() {
    let all = |folder: &str| [format!("{EXAMPLE}/cluster.yaml"), format!("{EXAMPLE}/{folder}")];
    for (destination, folder) in [("metadata", "metadata"), ("198.51.100.66", "deny-all")] {
        let [cluster, folder] = all(folder);
        let (code, paths) = audit(&[destination, &cluster, &folder], "");
        let of_shop = paths.iter().filter(|path| path.contains("shop/web") || path.contains("outside"));
        let open: Vec<&String> = of_shop.filter(|path| path.starts_with("open")).collect();
        assert!(open.is_empty(), "{destination}: {open:?}");
        assert!(destination != "metadata" || code == Some(0), "{paths:?}");
    }
    let [cluster, folder] = all("api-server");
    let (_, paths) = audit(&["apiserver", &cluster, &folder], "");
    assert!(paths.contains(&"open direct <- operators/backups".to_owned()), "{paths:?}");
    assert!(paths.contains(&"closed direct <- shop/web shop/api".to_owned()), "{paths:?}");
}

#[test]
fn s7_4_a_further_network_is_a_way_of_its_own_that_the_same_policies_close() {
    let closed = "[{action: Deny, to: [{networks: [192.0.2.0/24]}]}]";
    let annotation = r#"annotations: {k8s.v1.cni.cncf.io/network-status: '[{"name": "a/b", "ips": ["10.99.0.1"]}]'}"#;
    let cluster = firewall(closed)
        .replace("{name: web, namespace: shop}", &format!("{{name: web, namespace: shop, {annotation}}}"));
    let (code, paths) = audit(&["192.0.2.1", "-"], &cluster);
    assert_eq!(code, Some(0));
    for path in ["closed direct <- shop/web", "closed secondInterface <- shop/web"] {
        assert!(paths.iter().any(|one| one == path), "{path} in {paths:?}");
    }
}

#[test]
fn what_depends_on_something_is_not_closed() {
    let template = "---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: db, namespace: shop}, spec: {template: {spec: {containers: []}}}}\n";
    let zone = "[{action: Deny, to: [{networks: [192.0.2.0/24]}]}]";
    let cluster = format!("{}{template}", firewall(zone))
        .replace("priority: 5,", "priority: 5, nodeSelector: {matchLabels: {zone: a}},");
    let (code, paths) =
        audit(&["192.0.2.1", "-"], &cluster.replace("metadata: {name: n2}", "metadata: {name: n2, labels: {zone: a}}"));
    assert_eq!(code, Some(1));
    assert!(paths.contains(&"depends direct <- shop/db".to_owned()), "{paths:?}");
}

#[test]
fn a_destination_that_is_not_there_is_an_error() {
    for (destination, words) in
        [("n9", "there is no node `n9`"), ("10.0.0.0/99", "10.0.0.0/99"), ("apiserver", "is known")]
    {
        let output = run_with_input(env!("CARGO_BIN_EXE_namewall"), &["audit-paths", destination, "-"], CLUSTER);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(words), "{told}");
    }
}

/// Services of `lab` that lead to each other by a ClusterIP, an external address and a node port, in a ring; and one of
/// them to 192.0.2.66.
const CHAINS: &str = r#"
---
{apiVersion: v1, kind: Service, metadata: {name: one, namespace: lab}, spec: {clusterIP: 10.96.1.1, ports: [{port: 80}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: one, namespace: lab, labels: {kubernetes.io/service-name: one}}, addressType: IPv4, ports: [{port: 80, protocol: TCP}], endpoints: [{addresses: [198.51.100.9]}]}
---
{apiVersion: v1, kind: Service, metadata: {name: two, namespace: lab}, spec: {clusterIP: 10.96.1.2, externalIPs: [198.51.100.9], ports: [{port: 80}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: two, namespace: lab, labels: {kubernetes.io/service-name: two}}, addressType: IPv4, ports: [{port: 30081, protocol: TCP}], endpoints: [{addresses: [172.18.0.3]}]}
---
{apiVersion: v1, kind: Service, metadata: {name: three, namespace: lab}, spec: {type: NodePort, clusterIP: 10.96.1.3, ports: [{port: 80, nodePort: 30081}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: three, namespace: lab, labels: {kubernetes.io/service-name: three}}, addressType: IPv4, ports: [{port: 80, protocol: TCP}], endpoints: [{addresses: [192.0.2.66]}, {addresses: [10.96.1.1]}]}
"#;

#[test]
fn s7_4_chains_of_services_are_ways_and_end_where_they_return() {
    let of_lab = |paths: Vec<String>| {
        let told = paths.into_iter().filter(|path| path.contains(" chain ") && path.contains("<- shop/web"));
        // Where both are closed for the same reason they are one entry.
        let mut told: Vec<String> = told.map(|path| path.replace(" outside", "")).collect();
        told.sort_by_key(|path| path.split_once(" chain ").map(|(_, chain)| chain.to_owned()));
        told
    };
    let (code, paths) = audit(&["192.0.2.66", "-"], &format!("{CLUSTER}{CHAINS}"));
    assert_eq!(code, Some(1));
    let expected = [
        // Whether another node gets what goes to an external address is up to routes.
        "depends chain lab/one 10.96.1.1:80/TCP then lab/two, lab/three <- shop/web",
        "open chain lab/two 10.96.1.2:80/TCP then lab/three <- shop/web",
        "open chain lab/two 198.51.100.9:80/TCP then lab/three <- shop/web",
    ];
    assert_eq!(of_lab(paths), expected);
    // A firewall of the client's closes all of them, and one of the Services' namespace those that others take.
    let closed = |team: &str| {
        let firewall = firewall("[{action: Deny, to: [{networks: [192.0.2.66/32]}]}]");
        let only =
            format!("priority: 5, subject: {{namespaces: {{matchLabels: {{kubernetes.io/metadata.name: {team}}}}}}},");
        format!("{}{CHAINS}", firewall.replace("priority: 5,", &only))
    };
    for team in ["shop", "lab"] {
        let (_, paths) = audit(&["192.0.2.66", "-"], &closed(team));
        let closed: Vec<String> = expected
            .iter()
            .filter_map(|path| Some(format!("closed chain {}", path.split_once(" chain ")?.1)))
            .collect();
        assert_eq!(of_lab(paths), closed, "{team}");
    }
    // In words.
    let output = run_with_input(
        env!("CARGO_BIN_EXE_namewall"),
        &["audit-paths", "192.0.2.66", "-"],
        &format!("{CLUSTER}{CHAINS}"),
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let line = "through Service lab/one at 10.96.1.1:80/TCP, which leads to Service lab/two and to Service lab/three";
    assert!(text.contains(line), "{text}");
}

/// Twelve Services have more than ten million chains.
#[test]
fn s7_4_services_that_all_lead_to_each_other_are_listed_in_part_and_it_is_said() {
    let address = |number: u8| format!("10.96.2.{number}");
    let service = |number: u8| {
        let others = (1..=12).filter(|other| *other != number).map(address);
        let to: Vec<String> = others.chain(["192.0.2.66".to_owned()]).map(|ip| format!("{{ip: {ip}}}")).collect();
        format!(
            "---\n{{apiVersion: v1, kind: Service, metadata: {{name: m{number}, namespace: shop}}, spec: {{clusterIP: {}, ports: [{{port: 80}}]}}}}\n---\n{{apiVersion: v1, kind: Endpoints, metadata: {{name: m{number}, namespace: shop}}, subsets: [{{addresses: [{}], ports: [{{port: 80}}]}}]}}\n",
            address(number),
            to.join(", ")
        )
    };
    let mesh: String = (1..=12).map(service).collect();
    let (code, paths) = audit(&["192.0.2.66", "-"], &format!("{CLUSTER}{mesh}"));
    assert_eq!(code, Some(1));
    let of_first: Vec<&String> = paths.iter().filter(|path| path.contains("chain shop/m1 ")).collect();
    assert!(of_first.iter().any(|path| path.starts_with("depends chain shop/m1 10.96.2.1:80/TCP then shop/m2 <-")));
    assert!(
        of_first.iter().any(|path| path.starts_with("depends chain shop/m1 10.96.2.1:80/TCP then  <-")),
        "{of_first:?}"
    );
    assert!(of_first.len() < 200, "{}", of_first.len());
    // A firewall of the client's closes every chain, those that are not listed too; nobody claims it of others.
    let closed = firewall("[{action: Deny, to: [{networks: [192.0.2.66/32]}]}]");
    let (code, paths) = audit(&["192.0.2.66", "-"], &format!("{closed}{mesh}"));
    assert_eq!(code, Some(1), "what is not listed is not called closed");
    assert!(paths.iter().all(|path| !path.starts_with("open ")), "{paths:?}");
}

#[test]
fn s1_11_a_load_balancer_of_mode_proxy_is_a_way_of_two_halves() {
    let proxy = |input: &str| input.replace("[{ip: 198.51.100.2}]", "[{ip: 198.51.100.2, ipMode: Proxy}]");
    let by_proxy =
        |paths: Vec<String>| paths.into_iter().filter(|path| path.contains("198.51.100.2")).collect::<Vec<_>>();
    let (_, paths) = audit(&["192.0.2.66", "-"], &proxy(CLUSTER));
    let way = "service shop/tunnel 198.51.100.2:80/TCP";
    assert_eq!(by_proxy(paths), [format!("open {way} <- shop/web"), format!("open {way} <- outside")]);
    // The client's own firewall closes it; for others the load balancer may need no node.
    let (_, paths) =
        audit(&["192.0.2.66", "-"], &proxy(&firewall("[{action: Deny, to: [{networks: [192.0.2.66/32]}]}]")));
    assert_eq!(by_proxy(paths), [format!("depends {way} <- outside"), format!("closed {way} <- shop/web")]);
    // A policy that allows the destination and not the load balancer closes it.
    let policy = "---\n{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: p, namespace: shop}, spec: {podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 192.0.2.66/32}}]}]}}\n";
    let (_, paths) = audit(&["192.0.2.66", "-"], &format!("{}{policy}", proxy(CLUSTER)));
    assert_eq!(by_proxy(paths), [format!("open {way} <- outside"), format!("closed {way} <- shop/web")]);
}
