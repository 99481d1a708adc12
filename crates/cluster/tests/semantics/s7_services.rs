//! S7.4: a denied destination stays denied through a Service, from a pod and
//! from outside, and through a second interface.

use crate::check::{Cluster, check};
use crate::world::*;

/// A Service of shop whose endpoints are these addresses.
fn service(spec: &str, addresses: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: ext, namespace: shop}}\nspec: {{{spec}, ports: [{{port: 80, targetPort: 8080, nodePort: 30080}}]}}\n\
         status: {{loadBalancer: {{ingress: [{{ip: 192.0.2.80}}]}}}}\n\
         ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: ext-1, namespace: shop, labels: {{kubernetes.io/service-name: ext}}}}\n\
         endpoints: [{{addresses: [{addresses}]}}]\nports: [{{port: 8080}}]\n"
    )
}

fn deny(to: &str) -> String {
    cef("f", &format!("{{priority: 5, rules: [{{action: Deny, to: [{to}]}}]}}"))
}

const DENIED: &[&str] = &[
    "shop/web -> service/shop/ext:80/TCP: deny by ClusterEgressFirewall/f",
    "ops/tool -> service/shop/ext:80/TCP: deny by ClusterEgressFirewall/f",
    "198.51.100.1 -> service/shop/ext:80/TCP: deny by ClusterEgressFirewall/f",
    "2001:db8:ffff::1 -> service/shop/ext:80/TCP: deny by ClusterEgressFirewall/f",
    // S7.6
    "ops/agent -> service/shop/ext:80/TCP: allow by default",
];

#[test]
fn s7_4_through_a_service_of_any_type() {
    for spec in [
        "clusterIP: 10.96.0.9",
        "type: NodePort",
        "type: ClusterIP, externalIPs: [192.0.2.9]",
        "type: LoadBalancer",
        "clusterIP: None",
    ] {
        check(world() + &service(spec, "203.0.113.9") + &deny("{networks: [203.0.113.0/24]}"), DENIED);
        check(world() + &service(spec, "'2001:db8::9'") + &deny("{networks: ['2001:db8::/64']}"), DENIED);
    }
}

#[test]
fn s7_4_whatever_way_it_is_denied() {
    let api = "---\napiVersion: v1\nkind: Service\nmetadata: {name: kubernetes}\nspec: {clusterIP: 203.0.113.9, ports: [{port: 8080}]}\n";
    check(world() + api + &service("type: NodePort", "203.0.113.9") + &deny("{apiServer: {}}"), DENIED);
    check(world() + &service("type: NodePort", "192.168.0.1") + &deny("{nodes: {}}"), DENIED);
    let published =
        "---\napiVersion: namewall.dev/v1alpha1\nkind: NodeAddresses\nmetadata: {name: n1}\naddresses: [172.17.0.1]\n";
    check(world() + published + &service("type: NodePort", "172.17.0.1") + &deny("{nodes: {}}"), DENIED);
    // A pod on its node's network is no pod of its own.
    check(world() + &service("type: NodePort", "192.168.0.2") + &deny("{nodes: {}}"), DENIED);
}

#[test]
fn s7_4_endpoints_objects_count_too() {
    let service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: ext, namespace: shop}\nspec: {ports: [{port: 80}]}\n\
                   ---\napiVersion: v1\nkind: Endpoints\nmetadata: {name: ext, namespace: shop}\nsubsets: [{addresses: [{ip: 203.0.113.9}], ports: [{port: 8080}]}]\n";
    check(world() + service + &deny("{networks: [203.0.113.0/24]}"), DENIED);
}

#[test]
fn s7_4_the_port_after_dnat_is_judged() {
    let rule = |port: u16| {
        cef(
            "f",
            &format!(
                "{{priority: 5, rules: [{{action: Deny, to: [{{networks: [203.0.113.0/24]}}], ports: [{{port: {port}}}]}}]}}"
            ),
        )
    };
    check(world() + &service("type: NodePort", "203.0.113.9") + &rule(8080), DENIED);
    for other in [80, 30080] {
        check(
            world() + &service("type: NodePort", "203.0.113.9") + &rule(other),
            &[
                "shop/web -> service/shop/ext:80/TCP: allow by default",
                "198.51.100.1 -> service/shop/ext:80/TCP: allow by default",
            ],
        );
    }
}

#[test]
fn s7_4_what_is_not_denied_stays_open() {
    let allow = cef(
        "f",
        "{priority: 5, rules: [{action: Allow, to: [{networks: [203.0.113.9/32]}]}, {action: Deny, to: [{networks: [203.0.113.0/24]}]}]}",
    );
    let open = [
        "shop/web -> service/shop/ext:80/TCP: allow by default",
        "198.51.100.1 -> service/shop/ext:80/TCP: allow by default",
    ];
    check(world() + &service("type: NodePort", "203.0.113.9") + &allow, &open);
    check(world() + &service("type: NodePort", "203.0.113.10") + &allow, DENIED);
    check(world() + &service("type: NodePort", "198.51.100.200") + &deny("{networks: [203.0.113.0/24]}"), &open);
    // Nobody denies the same address to those who do not come through a Service.
    check(
        world() + &service("type: NodePort", "203.0.113.9") + &deny("{networks: [203.0.113.0/24]}"),
        &["198.51.100.1 -> 203.0.113.9:8080/TCP: allow by default"],
    );
}

#[test]
fn s7_4_a_service_of_a_namespace_that_is_not_denied_leads_there() {
    let only = |team: &str| {
        cef(
            "f",
            &format!(
                "{{priority: 5, subject: {{namespaces: {{matchLabels: {{team: {team}}}}}}}, rules: [{{action: Deny, to: [{{networks: [203.0.113.0/24]}}]}}]}}"
            ),
        )
    };
    check(
        world() + &service("type: NodePort", "203.0.113.9") + &only("ops"),
        &[
            "198.51.100.1 -> service/shop/ext:80/TCP: allow by default",
            "shop/web -> service/shop/ext:80/TCP: allow by default",
            // The pod's own gate goes with it, whoever's the Service is.
            "ops/tool -> service/shop/ext:80/TCP: deny by ClusterEgressFirewall/f",
        ],
    );
    check(
        world() + &service("type: NodePort", "203.0.113.9") + &only("shop"),
        &[
            "198.51.100.1 -> service/shop/ext:80/TCP: deny by ClusterEgressFirewall/f",
            "ops/tool -> service/shop/ext:80/TCP: allow by default",
        ],
    );
}

#[test]
fn s7_4_a_deny_for_some_pods_of_the_namespace_is_enough() {
    let some = |rules: &str| {
        cef(
            "f",
            &format!(
                "{{priority: 5, subject: {{pods: {{podSelector: {{matchLabels: {{app: web}}}}}}}}, rules: [{rules}]}}"
            ),
        )
    };
    let deny = "{action: Deny, to: [{networks: [203.0.113.0/24]}]}";
    let outside = "198.51.100.1 -> service/shop/ext:80/TCP: deny by ClusterEgressFirewall/f";
    check(world() + &service("type: NodePort", "203.0.113.9") + &some(deny), &[outside]);
    // What it allows those pods it does not allow the world.
    let first = "{action: Allow, to: [{networks: [203.0.113.9/32]}]}";
    check(world() + &service("type: NodePort", "203.0.113.9") + &some(&format!("{first}, {deny}")), &[outside]);
}

#[test]
fn s7_4_a_service_of_pods_is_judged_at_the_pods() {
    let selecting = "---\napiVersion: v1\nkind: Service\nmetadata: {name: db, namespace: shop}\n\
                     spec: {selector: {app: db}, ports: [{name: pg, port: 80, targetPort: pg}, {name: raw, port: 81}]}\n";
    let policy = np("db", "{podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: 5432}]}]}");
    check(
        world() + selecting + &policy,
        &[
            "ops/tool -> service/shop/db:80/TCP: allow by NetworkPolicy/shop/db",
            "ops/tool -> service/shop/db:81/TCP: deny by NetworkPolicy/shop/db",
            "198.51.100.1 -> service/shop/db:80/TCP: allow by NetworkPolicy/shop/db",
        ],
    );
}

#[test]
fn s7_4_through_a_second_interface_of_the_pod() {
    let status = r#"k8s.v1.cni.cncf.io/network-status: '[{"name": "pods", "ips": ["10.244.1.88"]}, {"name": "lan", "interface": "net1", "ips": ["172.30.0.88", "fd30::88"]}]'"#;
    let two = pod("shop/two", "two", "1.88", "").replace("labels:", &format!("annotations: {{{status}}}, labels:"));
    check(
        world() + &two + &deny("{networks: [203.0.113.0/24, '2001:db8::/32', 172.30.0.0/24, 'fd30::/64']}"),
        &[
            "shop/two -> 203.0.113.9:1/TCP: deny by ClusterEgressFirewall/f",
            "shop/web -> 172.30.0.88:1/TCP: deny by ClusterEgressFirewall/f",
            "shop/web -> [fd30::88]:1/TCP: deny by ClusterEgressFirewall/f",
            "shop/web -> 10.244.1.88:1/TCP: allow by default",
        ],
    );
    let cluster = Cluster::read(two.replace("'[{", "'{"), &Default::default());
    assert_eq!(cluster.findings.len(), 1);
    assert_eq!(cluster.findings[0].code, "bad-network-status");
}

#[test]
fn s1_11_the_mode_of_a_load_balancers_address_says_who_translates_it() {
    let balanced = |spec: &str, ingress: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: s, namespace: shop}}\nspec: {{{spec}, ports: [{{port: 80}}]}}\n\
             status: {{loadBalancer: {{ingress: [{ingress}]}}}}\n"
        );
        let cluster = Cluster::read(text, &Default::default());
        let service = cluster.snapshot.services.get(0).unwrap();
        let texts = |all: &[std::net::IpAddr]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let codes: Vec<&str> = cluster.findings.iter().map(|finding| finding.code).collect();
        (texts(&service.addresses), texts(&service.proxied), codes.join(" "))
    };
    let check = |spec: &str, ingress: &str, expected: [&str; 3]| {
        let [addresses, proxied, codes] = expected.map(str::to_owned);
        assert_eq!(balanced(spec, ingress), (addresses, proxied, codes), "{spec} {ingress}");
    };
    let cluster_ip = "clusterIP: 10.96.0.9";
    check(cluster_ip, "{ip: 192.0.2.80}", ["10.96.0.9 192.0.2.80", "", ""]);
    check(cluster_ip, "{ip: 192.0.2.80, ipMode: VIP}", ["10.96.0.9 192.0.2.80", "", ""]);
    check(cluster_ip, "{ip: 192.0.2.80, ipMode: Proxy}", ["10.96.0.9 192.0.2.80", "192.0.2.80", ""]);
    // As in kube-proxy, what is not VIP is not translated.
    check(cluster_ip, "{ip: 192.0.2.80, ipMode: proxy}", ["10.96.0.9 192.0.2.80", "192.0.2.80", "bad-ip-mode"]);
    // An address that is an external one, too, is translated.
    let external = "clusterIP: 10.96.0.9, externalIPs: [192.0.2.80]";
    check(external, "{ip: 192.0.2.80, ipMode: Proxy}", ["10.96.0.9 192.0.2.80", "", ""]);
    let both = "{ip: 192.0.2.80, ipMode: Proxy}, {ip: 192.0.2.80}, {hostname: lb.example}";
    check(cluster_ip, both, ["10.96.0.9 192.0.2.80", "", ""]);
}
