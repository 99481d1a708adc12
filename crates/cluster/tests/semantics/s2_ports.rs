//! S2.5 to S2.8: ports and their names, protocols, pods that come and go and
//! the templates that stand for them, selectors.

use crate::check::{Cluster, check, findings};
use crate::world::*;

fn ingress(ports: &str) -> String {
    np("db", &format!("{{podSelector: {{matchLabels: {{app: db}}}}, ingress: [{{ports: [{ports}]}}]}}"))
}

fn egress(ports: &str) -> String {
    np(
        "web",
        &format!(
            "{{podSelector: {{matchLabels: {{app: web}}}}, policyTypes: [Egress], egress: [{{ports: [{ports}]}}]}}"
        ),
    )
}

#[test]
fn s2_5_the_protocol_is_tcp_unless_said() {
    check(
        world() + &ingress("{port: 5432}, {port: 53, protocol: UDP}, {port: 99, protocol: SCTP}"),
        &[
            "shop/web -> shop/db:5432/TCP: allow by NetworkPolicy/shop/db",
            "shop/web -> shop/db:5432/UDP: deny by NetworkPolicy/shop/db",
            "shop/web -> shop/db:53/UDP: allow by NetworkPolicy/shop/db",
            "shop/web -> shop/db:53/TCP: deny by NetworkPolicy/shop/db",
            "2001:db8::9 -> shop/db:99/SCTP: allow by NetworkPolicy/shop/db",
            "shop/web -> shop/db:99/TCP: deny by NetworkPolicy/shop/db",
        ],
    );
}

#[test]
fn s2_5_a_protocol_without_port_is_all_its_ports() {
    for port in ["{protocol: UDP}", "{protocol: UDP, port: null}"] {
        check(
            world() + &ingress(port),
            &[
                "shop/web -> shop/db:1/UDP: allow by NetworkPolicy/shop/db",
                "shop/web -> shop/db:65535/UDP: allow by NetworkPolicy/shop/db",
                "shop/web -> shop/db:53/TCP: deny by NetworkPolicy/shop/db",
                "shop/web -> shop/db:ICMP: deny by NetworkPolicy/shop/db",
            ],
        );
    }
    check(
        world() + &ingress("{}"),
        &[
            "shop/web -> shop/db:1/TCP: allow by NetworkPolicy/shop/db",
            "shop/web -> shop/db:1/UDP: deny by NetworkPolicy/shop/db",
        ],
    );
}

/// Nobody listens there, but the kernel lets it through where no port is asked for.
#[test]
fn s2_5_a_rule_without_ports_speaks_of_port_0_too() {
    let everything = np("db", "{podSelector: {matchLabels: {app: db}}, ingress: [{}]}");
    for policy in [everything, ingress("{protocol: TCP}")] {
        check(world() + &policy, &["shop/web -> shop/db:0/TCP: allow by NetworkPolicy/shop/db"]);
    }
    check(world(), &["shop/web -> shop/db:0/UDP: allow by default"]);
    check(
        world() + &ingress("{port: 1, endPort: 65535}"),
        &[
            "shop/web -> shop/db:0/TCP: deny by NetworkPolicy/shop/db",
            "shop/web -> shop/db:1/TCP: allow by NetworkPolicy/shop/db",
        ],
    );
}

#[test]
fn s2_5_named_ports_resolve_on_the_destination_pod_for_ingress() {
    check(
        world() + &ingress("{port: pg}, {port: gossip, protocol: UDP}"),
        &[
            "shop/web -> shop/db:5432/TCP: allow by NetworkPolicy/shop/db",
            "203.0.113.9 -> shop/db:5432/TCP: allow by NetworkPolicy/shop/db",
            "shop/web -> shop/db:5432/UDP: deny by NetworkPolicy/shop/db",
            "shop/web -> shop/db:7946/UDP: allow by NetworkPolicy/shop/db",
            // The same name is a TCP port too, and TCP was not asked for.
            "shop/web -> shop/db:7947/TCP: deny by NetworkPolicy/shop/db",
            "shop/web -> shop/db:9187/TCP: deny by NetworkPolicy/shop/db",
        ],
    );
}

#[test]
fn s2_5_named_ports_resolve_on_the_destination_pod_for_egress_too() {
    check(
        world() + &egress("{port: pg}"),
        &[
            "shop/web -> shop/db:5432/TCP: allow by NetworkPolicy/shop/web",
            "10.244.1.10 -> 10.244.2.20:5432/TCP: allow by NetworkPolicy/shop/web",
            "fd00:244:1::10 -> [fd00:244:2::20]:5432/TCP: allow by NetworkPolicy/shop/web",
            "shop/web -> ops/tool:5432/TCP: deny by NetworkPolicy/shop/web",
            // What is outside, or on a node, carries no name.
            "shop/web -> 203.0.113.9:5432/TCP: deny by NetworkPolicy/shop/web",
            "shop/web -> node/n2:5432/TCP: deny by NetworkPolicy/shop/web",
        ],
    );
    // The source's own name for a port means nothing.
    check(world() + &egress("{port: http}"), &["shop/web -> shop/db:8080/TCP: deny by NetworkPolicy/shop/web"]);
}

#[test]
fn s2_5_each_pod_resolves_a_name_for_itself() {
    let other = pod("shop/db2", "db", "1.21", "{name: pg, containerPort: 6432}");
    check(
        world() + &other + &ingress("{port: pg}"),
        &[
            "shop/web -> shop/db:5432/TCP: allow by NetworkPolicy/shop/db",
            "shop/web -> shop/db:6432/TCP: deny by NetworkPolicy/shop/db",
            "shop/web -> shop/db2:6432/TCP: allow by NetworkPolicy/shop/db",
            "shop/web -> shop/db2:5432/TCP: deny by NetworkPolicy/shop/db",
        ],
    );
}

#[test]
fn s2_5_a_name_nobody_carries_matches_nothing_never_everything() {
    for port in ["1", "5432", "65535"] {
        check(
            world() + &ingress("{port: nope}"),
            &[&format!("shop/web -> shop/db:{port}/TCP: deny by NetworkPolicy/shop/db")],
        );
        check(
            world() + &egress("{port: nope}"),
            &[&format!("shop/web -> shop/db:{port}/TCP: deny by NetworkPolicy/shop/web")],
        );
    }
}

#[test]
fn s2_5_ports_of_sidecars_count_and_those_of_other_init_containers_do_not() {
    let spec = "spec: {nodeName: n1, containers: [{ports: [{containerPort: 80}]}], initContainers: \
                [{restartPolicy: Always, ports: [{name: side, containerPort: 81}]}, {ports: [{name: init, containerPort: 82}]}]}";
    let pod = pod("shop/x", "db", "1.21", "").replace("spec: {nodeName: n1, containers: [{name: c, ports: []}]}", spec);
    check(
        world() + &pod + &ingress("{port: side}, {port: init}"),
        &[
            "shop/web -> shop/x:81/TCP: allow by NetworkPolicy/shop/db",
            "shop/web -> shop/x:82/TCP: deny by NetworkPolicy/shop/db",
            "shop/web -> shop/x:80/TCP: deny by NetworkPolicy/shop/db",
        ],
    );
}

#[test]
fn s2_5_end_port_is_inclusive() {
    check(
        world()
            + &ingress(
                "{port: 8000, endPort: 8002}, {port: 9000, endPort: 9000}, {port: 65534, endPort: 65535}, {port: 1, endPort: 2, protocol: UDP}",
            ),
        &[
            "shop/web -> shop/db:7999/TCP: deny by NetworkPolicy/shop/db",
            "shop/web -> shop/db:8000/TCP: allow by NetworkPolicy/shop/db",
            "shop/web -> shop/db:8002/TCP: allow by NetworkPolicy/shop/db",
            "shop/web -> shop/db:8003/TCP: deny by NetworkPolicy/shop/db",
            "shop/web -> shop/db:8001/UDP: deny by NetworkPolicy/shop/db",
            "shop/web -> shop/db:9000/TCP: allow by NetworkPolicy/shop/db",
            "shop/web -> shop/db:9001/TCP: deny by NetworkPolicy/shop/db",
            "shop/web -> shop/db:65533/TCP: deny by NetworkPolicy/shop/db",
            "shop/web -> shop/db:65535/TCP: allow by NetworkPolicy/shop/db",
            "shop/web -> shop/db:2/UDP: allow by NetworkPolicy/shop/db",
            "shop/web -> shop/db:3/UDP: deny by NetworkPolicy/shop/db",
        ],
    );
}

#[test]
fn s2_5_end_port_is_numeric_only() {
    for port in
        ["{port: pg, endPort: 6000}", "{endPort: 6000}", "{port: 6000, endPort: 5000}", "{port: 1, endPort: 65536}"]
    {
        check(
            world() + &ingress(port),
            &[
                "shop/web -> shop/db:5432/TCP: deny by NetworkPolicy/shop/db",
                "shop/web -> shop/db:6000/TCP: deny by NetworkPolicy/shop/db",
                "shop/web -> shop/db:1/TCP: deny by NetworkPolicy/shop/db",
            ],
        );
        let said = findings(ingress(port));
        assert!(
            said[0].starts_with("error[bad-port] NetworkPolicy shop/db spec.ingress[0].ports[0].endPort 5:"),
            "{said:?}"
        );
    }
}

#[test]
fn s2_6_an_isolated_pod_is_isolated_for_every_other_protocol() {
    check(
        world() + &ingress("{protocol: TCP}, {protocol: UDP}, {protocol: SCTP}") + &egress("{protocol: TCP}"),
        &[
            "ops/tool -> shop/db:1/TCP: allow by NetworkPolicy/shop/db",
            "ops/tool -> shop/db:1/UDP: allow by NetworkPolicy/shop/db",
            "ops/tool -> shop/db:1/SCTP: allow by NetworkPolicy/shop/db",
            "ops/tool -> shop/db:ICMP: deny by NetworkPolicy/shop/db",
            "fd00:244:1::30 -> [fd00:244:2::20]:ICMPv6: deny by NetworkPolicy/shop/db",
            "shop/web -> 203.0.113.9:ICMP: deny by NetworkPolicy/shop/web",
        ],
    );
}

#[test]
fn s2_7_pods_that_have_ended_have_no_address() {
    for phase in ["Succeeded", "Failed"] {
        let ended = pod("shop/old", "old", "1.50", "").replace("Running", phase);
        let heir = pod("shop/new", "new", "1.50", "");
        let policy = np("old", "{podSelector: {matchLabels: {app: old}}, policyTypes: [Ingress, Egress]}");
        let cluster = Cluster::read(world() + &ended + &heir + &policy, &Default::default());
        assert!(!cluster.workloads().contains(&"Pod shop/old".to_owned()));
        assert!(cluster.findings.is_empty(), "{:?}", cluster.findings);
        cluster.check(&[
            "10.244.1.50 -> 203.0.113.9:443/TCP: allow by default",
            "shop/web -> 10.244.1.50:80/TCP: allow by default",
        ]);
    }
}

#[test]
fn s2_7_terminating_pods_keep_their_address_until_they_are_gone() {
    let leaving = pod("shop/old", "old", "1.50", "")
        .replace("name: old,", "name: old, deletionTimestamp: '2026-01-01T00:00:00Z', deletionGracePeriodSeconds: 30,");
    let policy = np("old", "{podSelector: {matchLabels: {app: old}}, policyTypes: [Ingress, Egress]}");
    check(
        world() + &leaving + &policy,
        &[
            "10.244.1.50 -> 203.0.113.9:443/TCP: deny by NetworkPolicy/shop/old",
            "shop/web -> 10.244.1.50:80/TCP: deny by NetworkPolicy/shop/old",
        ],
    );
}

#[test]
fn s2_8_all_four_operators() {
    let peer = |expression: &str| {
        let peer = format!("{{namespaceSelector: {{}}, podSelector: {{matchExpressions: [{expression}]}}}}");
        np("db", &format!("{{podSelector: {{matchLabels: {{app: db}}}}, ingress: [{{from: [{peer}]}}]}}"))
    };
    let bare = pod("shop/bare", "x", "1.60", "").replace(", labels: {app: x}", "");
    for (expression, web, tool, bare_pod) in [
        ("{key: app, operator: In, values: [web, x]}", "allow", "deny", "deny"),
        ("{key: app, operator: NotIn, values: [web]}", "deny", "allow", "allow"),
        ("{key: app, operator: Exists}", "allow", "allow", "deny"),
        ("{key: app, operator: DoesNotExist}", "deny", "deny", "allow"),
        ("{key: app, operator: Exists}, {key: app, operator: NotIn, values: [web]}", "deny", "allow", "deny"),
        ("{key: tier, operator: NotIn, values: [x]}", "allow", "allow", "allow"),
    ] {
        check(
            world() + &bare + &peer(expression),
            &[
                &format!("shop/web -> shop/db:1/TCP: {web} by NetworkPolicy/shop/db"),
                &format!("ops/tool -> shop/db:1/TCP: {tool} by NetworkPolicy/shop/db"),
                &format!("shop/bare -> shop/db:1/TCP: {bare_pod} by NetworkPolicy/shop/db"),
            ],
        );
    }
}

#[test]
fn s2_8_match_labels_and_expressions_are_anded_in_subjects_and_namespaces_too() {
    let both = "{matchLabels: {app: web}, matchExpressions: [{key: app, operator: In, values: [db, web]}]}";
    check(
        world() + &np("p", &format!("{{podSelector: {both}}}")),
        &["shop/db -> shop/web:1/TCP: deny by NetworkPolicy/shop/p", "shop/web -> shop/db:1/TCP: allow by default"],
    );
    let namespaces =
        "{matchExpressions: [{key: team, operator: NotIn, values: [shop]}, {key: gone, operator: DoesNotExist}]}";
    check(
        world()
            + &np("p", &format!("{{podSelector: {{}}, ingress: [{{from: [{{namespaceSelector: {namespaces}}}]}}]}}")),
        &[
            "ops/tool -> shop/web:1/TCP: allow by NetworkPolicy/shop/p",
            "shop/db -> shop/web:1/TCP: deny by NetworkPolicy/shop/p",
        ],
    );
}

#[test]
fn s2_8_empty_matches_all_and_null_what_the_api_says() {
    // A null podSelector is the empty one: the field is no pointer.
    for selector in [
        "podSelector: {}",
        "podSelector: null",
        "policyTypes: [Ingress]",
        "podSelector: {matchLabels: {}}",
        "podSelector: {matchExpressions: null}",
    ] {
        check(
            world() + &np("p", &format!("{{{selector}}}")),
            &["shop/db -> shop/web:1/TCP: deny by NetworkPolicy/shop/p"],
        );
    }
    // A null namespaceSelector is none at all, and alone it is no peer.
    let peer = np("p", "{podSelector: {}, ingress: [{from: [{namespaceSelector: null}]}]}");
    assert_eq!(findings(&peer), ["error[bad-peer] NetworkPolicy shop/p spec.ingress[0].from[0] 5:43"]);
    check(world() + &peer, &["shop/db -> shop/web:1/TCP: deny by NetworkPolicy/shop/p"]);
    // A Service without a selector selects none.
    let service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: shop}\nspec: {selector: null, ports: [{port: 80}]}\n";
    let cluster = Cluster::read(world() + service, &Default::default());
    assert!(cluster.snapshot.services[0].ports[0].backends.is_empty());
}
