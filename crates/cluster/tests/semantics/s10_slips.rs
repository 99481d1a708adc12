//! Slips of the pen that once opened more than was meant, or passed in
//! silence, each with its smallest case.

use crate::check::{Cluster, check, findings, messages, place};
use crate::s4::admin;
use crate::world::*;
use namewall_policy::explain::StepResult;
use namewall_policy::{Endpoint, Flow, explain};

fn closed() -> String {
    np("closed", "{podSelector: {}}")
}

// --- S10.1: bad input never widens access ---

#[test]
fn s10_2_a_misspelt_field_of_a_pod_node_or_namespace_is_an_error() {
    let object = |kind: &str, rest: &str| format!("---\n{{apiVersion: v1, kind: {kind}, {rest}}}\n");
    for (kind, rest, path) in [
        ("Pod", "metadata: {name: a, lables: {app: web}}", "metadata.lables"),
        ("Pod", "metadata: {name: a, namespce: shop}", "metadata.namespce"),
        ("Pod", "metadata: {name: a}, spec: {hostNetwrok: true}", "spec.hostNetwrok"),
        ("Pod", "metadata: {name: a}, status: {podIps: [{ip: 10.0.0.1}]}", "status.podIps"),
        ("Pod", "metadata: {name: a}, staus: {podIP: 10.0.0.1}", "staus"),
        ("Node", "metadata: {name: a}, spec: {podCidrs: [10.0.0.0/24]}", "spec.podCidrs"),
        ("Node", "metadata: {name: a}, status: {adresses: []}", "status.adresses"),
        ("Namespace", "metadata: {name: a, label: {team: a}}", "metadata.label"),
        ("Service", "metadata: {name: a}, spec: {selectors: {app: web}}", "spec.selectors"),
    ] {
        let mut told = findings(object(kind, rest));
        if path.contains("la") {
            assert!(told.pop().is_some_and(|last| last.starts_with("error[unreadable-labels]")), "{told:?}");
        }
        assert_eq!(told.len(), 1, "{rest}: {told:?}");
        assert!(told[0].starts_with("error[unknown-field]") && told[0].contains(path), "{told:?}");
    }
    for (kind, labels, path) in [
        ("Pod", "{app: 'p 2!'}", "labels.app"),
        ("Namespace", "{team: -ops}", "labels.team"),
        ("Pod", "{'a b': c}", "labels"),
    ] {
        let told = findings(object(kind, &format!("metadata: {{name: a, labels: {labels}}}")));
        assert_eq!(told.len(), 2, "{labels}: {told:?}");
        assert!(told[1].starts_with("error[unreadable-labels]"), "{told:?}");
        assert!(told[0].starts_with("error[bad-label]") && told[0].contains(path), "{told:?}");
    }
    // Fields that do not matter here, and those that are nearly one that is there.
    let others =
        "metadata: {name: a, labels: {}, label: {}, uid: x}, spec: {hostname: a, hostPID: true, containers: []}";
    assert_eq!(findings(object("Pod", others)), Vec::<String>::new());
}

#[test]
fn s10_1_a_misspelt_subject_does_not_open_other_pods() {
    let policy = np("web", "{podSelecter: {matchLabels: {app: web}}, ingress: [{}]}");
    check(world() + &closed() + &policy, &["ops/tool -> shop/db:1/TCP: deny by NetworkPolicy/shop/closed"]);
}

#[test]
fn s10_1_a_misspelt_subject_of_v1beta1_does_not_open_other_pods() {
    let isolated = world().replace(&namespace("shop", ""), &namespace("shop", DEFAULT_DENY));
    let policy = old_np("web", "{podSelecter: {matchLabels: {app: web}}, ingress: [{}]}");
    check(isolated + &policy, &["ops/tool -> shop/db:1/TCP: deny"]);
}

#[test]
fn s10_1_a_misspelt_list_of_rules_isolates_what_the_object_selects() {
    let line = ["shop/web -> 203.0.113.9:1/TCP: deny"];
    check(world() + &ef("").replace("egress: []", "egres: [{type: Deny, to: {cidrSelector: 0.0.0.0/0}}]"), &line);
}

#[test]
fn s10_1_a_misspelt_list_of_rules_isolates_what_a_cluster_firewall_selects() {
    let policy = cef("f", "{priority: 1, rule: [{action: Deny, to: [{networks: [203.0.113.0/24]}]}]}");
    check(world() + &policy, &["shop/web -> 203.0.113.9:1/TCP: deny"]);
}

#[test]
fn s10_1_a_misspelt_list_of_rules_isolates_what_an_admin_policy_selects() {
    let policy = admin("egres: [{action: Deny, to: [{networks: [203.0.113.0/24]}]}]");
    check(world() + &policy, &["shop/web -> 203.0.113.9:1/TCP: deny"]);
}

#[test]
fn s10_1_a_namespace_stays_isolated_when_another_annotation_cannot_be_read() {
    let shop = namespace("shop", &format!("{DEFAULT_DENY}, build: 7"));
    check(world().replace(&namespace("shop", ""), &shop), &["ops/tool -> shop/db:1/TCP: deny by Namespace/shop"]);
}

#[test]
fn s10_1_one_unreadable_label_does_not_take_a_namespace_out_of_a_policy() {
    let shop = namespace("shop", "").replace("{team: shop}", "{team: shop, tier: 5}");
    let policy = admin("egress: [{action: Deny, to: [{networks: [203.0.113.0/24]}]}]")
        .replace("{namespaces: {}}", "{namespaces: {matchLabels: {team: shop}}}");
    check(world().replace(&namespace("shop", ""), &shop) + &policy, &["shop/web -> 203.0.113.9:1/TCP: deny"]);
}

#[test]
fn s10_1_one_unreadable_label_does_not_free_a_pod_of_every_policy() {
    let pod = pod("shop/x", "x", "1.40", "").replace("{app: x}", "{app: x, version: 5}");
    check(world() + &pod + &closed(), &["ops/tool -> 10.244.1.40:1/TCP: deny by NetworkPolicy/shop/closed"]);
}

/// Which policies are meant nobody can tell, so it is closed, whatever others allow.
#[test]
fn s10_1_a_pod_whose_labels_cannot_be_read_is_isolated() {
    let web = pod("shop/web", "web", "1.10", "{name: http, containerPort: 8080}");
    let everything = admin(
        "egress: [{action: Accept, to: [{networks: [0.0.0.0/0]}]}], ingress: [{action: Accept, from: [{namespaces: {}}]}]",
    );
    for labels in [
        "labels: app=web",
        "labels: [app, web]",
        "labels: {app: {web: true}}",
        "labels: {app: 'w b!'}",
        "lables: {app: web}",
    ] {
        let bad = world().replace(&web, &web.replace("labels: {app: web}", labels));
        assert_ne!(bad, world());
        for others in [String::new(), everything.clone()] {
            let cluster = Cluster::read(bad.clone() + &others, &Default::default());
            let lines = [
                "shop/web -> 203.0.113.9:1/TCP: deny",
                "shop/web -> ops/tool:1/TCP: deny",
                "shop/web -> 192.168.0.2:1/UDP: deny",
                "ops/tool -> shop/web:8080/TCP: deny",
                "203.0.113.9 -> shop/web:8080/TCP: deny",
                "ops/tool -> shop/db:1/TCP: allow",
            ];
            cluster.check(&lines);
        }
        let told = findings(bad);
        assert!(told.iter().any(|one| one.starts_with("error[unreadable-labels] Pod shop/web")), "{told:?}");
    }
}

#[test]
fn s10_1_pods_of_a_namespace_whose_labels_cannot_be_read_are_isolated() {
    let shop = namespace("shop", "").replace("{team: shop}", "team");
    let lines = ["shop/web -> 203.0.113.9:1/TCP: deny", "ops/tool -> shop/db:1/TCP: deny"];
    check(world().replace(&namespace("shop", ""), &shop), &lines);
}

#[test]
fn s10_1_one_unreadable_label_does_not_take_a_node_out_of_all_nodes() {
    let node = node("n3", "zone: 5", "3");
    let deny = cef("f", "{priority: 1, rules: [{action: Deny, to: [{nodes: {}}]}]}");
    check(world() + &node + &deny, &["shop/web -> 192.168.0.3:22/TCP: deny by ClusterEgressFirewall/f"]);
}

#[test]
fn s10_1_a_selector_over_a_key_that_no_label_can_have_allows_nothing() {
    for key in ["'a b'", "a/b/c", "-a"] {
        let peer = format!("{{podSelector: {{matchExpressions: [{{key: {key}, operator: DoesNotExist}}]}}}}");
        let policy = np("p", &format!("{{podSelector: {{}}, ingress: [{{from: [{peer}]}}]}}"));
        check(world() + &policy, &["shop/web -> shop/db:1/TCP: deny by NetworkPolicy/shop/p"]);
    }
}

#[test]
fn s10_1_one_object_without_and_with_its_namespace_is_one_object() {
    let pod = pod("default/x", "x", "1.40", "");
    let open = np("p", "{podSelector: {}, ingress: [{}]}").replace(", namespace: shop", "");
    let later = np("p", "{podSelector: {}}").replace("namespace: shop", "namespace: default");
    check(world() + &pod + &open + &later, &["shop/web -> default/x:1/TCP: deny by NetworkPolicy/default/p"]);
}

// --- S10.2: nothing is skipped silently, and the path is the field's ---

#[test]
fn s10_2_a_misspelt_spec_is_said() {
    let misspelt = |object: String| object.replace("\nspec:", "\nsepc:");
    for object in [
        np("p", "{podSelector: {}}"),
        old_np("p", "{podSelector: {}}"),
        ef("{type: Deny, to: {cidrSelector: 0.0.0.0/0}}"),
    ] {
        assert!(!findings(misspelt(object.clone())).is_empty(), "{object}");
    }
}

#[test]
fn s10_2_a_spec_that_is_no_map_is_said() {
    for spec in ["[]", "closed", "5"] {
        let firewall = ef("").replace("{egress: []}", spec);
        for object in [np("p", spec), old_np("p", spec), firewall] {
            assert!(!findings(&object).is_empty(), "{object}");
        }
    }
}

#[test]
fn s10_2_a_misspelt_isolation_annotation_is_said() {
    for json in [r#"'{"ingres": {"isolation": "DefaultDeny"}}'"#, r#"'{"ingress": {"isolatoin": "DefaultDeny"}}'"#] {
        let shop = namespace("shop", &format!("net.beta.kubernetes.io/network-policy: {json}"));
        assert_eq!(findings(&shop).len(), 1, "{json}");
    }
}

#[test]
fn s10_2_a_policy_in_another_group_is_said() {
    for version in ["v1", "networking.k8s.io", "policy/v1", "networking.k8s.io.io/v1"] {
        let policy = np("p", "{podSelector: {}}").replace("networking.k8s.io/v1", version);
        assert_eq!(findings(&policy).len(), 1, "{version}");
    }
}

#[test]
fn s10_2_an_object_without_kind_is_said() {
    let policy = np("p", "{podSelector: {}}");
    assert_eq!(findings(policy.replace("kind:", "knd:")).len(), 1);
    assert_eq!(findings(policy.replace("apiVersion:", "apiversion:")).len(), 1);
    // Without its name as well.
    for object in
        ["kind: NetworkPolicy\nspec: {podSelector: {}}", "apiVersion: networking.k8s.io/v1\nspec: {podSelector: {}}"]
    {
        assert_eq!(findings(object), ["error[missing-kind]   1:1"], "{object}");
    }
    // Settings of a chart.
    assert_eq!(findings("kind: Deployment\nreplicas: 2"), [""; 0]);
}

#[test]
fn s10_2_one_fault_is_said_once() {
    let pod = pod("shop/x", "x", "1.40", "").replace("{app: x}", "{app: 5}");
    let said = findings(&pod);
    assert_eq!(said.len(), 1, "{said:?}");
}

#[test]
fn s4_4_the_path_of_a_refused_name_is_its_peers() {
    let policy = admin(
        "egress: [{action: Deny, to: [{networks: [203.0.113.0/24, 198.51.100.0/24]}, {domainNames: [a.example]}]}]",
    );
    let at = place(&policy, "domainNames");
    assert_eq!(
        findings(&policy),
        [format!("error[bad-domain-rule] ClusterNetworkPolicy p spec.egress[0].to[1].domainNames {at}")]
    );
}

#[test]
fn s4_1_a_rules_name_has_at_most_100_characters_not_bytes() {
    let policy = |many: usize| {
        admin(&format!("egress: [{{name: {}, action: Deny, to: [{{namespaces: {{}}}}]}}]", "ü".repeat(many)))
    };
    assert_eq!(findings(policy(100)), Vec::<String>::new());
    assert_eq!(findings(policy(101)).len(), 1);
}

// --- S1: hostNetwork pods that do not exist yet ---

fn host_template() -> &'static str {
    "---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: log, namespace: ops}\n\
     spec: {template: {metadata: {labels: {app: log}}, spec: {hostNetwork: true}}}\n"
}

#[test]
fn s4_3_nodes_match_a_host_network_template_which_may_be_there() {
    let policy = admin("egress: [{action: Deny, to: [{nodes: {}}]}]");
    check(world() + host_template() + &policy, &["shop/web -> ops/log:9100/TCP: deny by ClusterNetworkPolicy/p"]);
}

#[test]
fn s1_a_host_network_template_has_no_address_of_the_pod_network() {
    // To allow the pod network is not to allow the nodes,
    let pods = "{ipBlock: {cidr: 10.244.0.0/16}}, {ipBlock: {cidr: 'fd00:244::/32'}}";
    let policy = np("db", &format!("{{podSelector: {{matchLabels: {{app: db}}}}, ingress: [{{from: [{pods}]}}]}}"));
    check(world() + host_template() + &policy, &["ops/log -> shop/db:5432/TCP: deny by NetworkPolicy/shop/db"]);
}

#[test]
fn s1_a_host_network_template_has_an_address_of_a_node() {
    // and to deny the nodes' network denies it.
    let policy = admin("egress: [{action: Deny, to: [{networks: [192.168.0.0/16, 'fd00:1::/64']}]}]");
    check(world() + host_template() + &policy, &["shop/web -> ops/log:9100/TCP: deny by ClusterNetworkPolicy/p"]);
}

// --- S7 ---

#[test]
fn s7_3_the_endpoints_of_the_api_server_count_without_its_service() {
    let slice = "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: kubernetes, namespace: default, \
                 labels: {kubernetes.io/service-name: kubernetes}}\nendpoints: [{addresses: [172.20.0.5]}]\nports: [{name: https, port: 6443}]\n";
    let deny = cef("f", "{priority: 1, rules: [{action: Deny, to: [{apiServer: {}}]}]}");
    check(world() + slice + &deny, &["shop/web -> 172.20.0.5:6443/TCP: deny by ClusterEgressFirewall/f"]);
}

// --- S11 ---

#[test]
fn s11_1_an_audited_firewall_is_reported_before_services_too() {
    let service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: ext, namespace: shop}\nspec: {type: NodePort, ports: [{port: 80}]}\n\
                   ---\napiVersion: v1\nkind: Endpoints\nmetadata: {name: ext, namespace: shop}\nsubsets: [{addresses: [{ip: 203.0.113.9}], ports: [{port: 80}]}]\n";
    let deny =
        annotated(&cef("f", "{priority: 1, rules: [{action: Deny, to: [{networks: [203.0.113.0/24]}]}]}"), "audit");
    check(
        world() + service + &deny,
        &["198.51.100.1 -> service/shop/ext:80/TCP: allow by default, would deny by ClusterEgressFirewall/f"],
    );
}

#[test]
fn s11_1_the_audit_names_the_policies_that_would_isolate() {
    let cluster = Cluster::read(world() + &annotated(&closed(), "audit"), &Default::default());
    let end = |name| cluster.program.endpoints(&cluster.snapshot, cluster.workload(name))[0].clone();
    let (from, to): (Endpoint, Endpoint) = (end("ops/tool"), end("shop/db"));
    let flow = Flow { from, to, protocol: "TCP".parse().unwrap(), port: 1, via: None, hop: None, masker: None };
    let told = explain(&cluster.snapshot, &cluster.reach(), &flow);
    let named = told.audit.iter().any(|step| matches!(&step.result, StepResult::Isolated(by) if !by.is_empty()));
    assert!(named, "{:?}", told.audit);
}

// --- A misspelt kind ---

#[test]
fn s10_1_a_misspelt_policy_kind_isolates_what_the_object_selects_and_is_an_error() {
    let policy = np("db", "{podSelector: {matchLabels: {app: db}}, ingress: [{}]}");
    for written in ["NetworkPolcy", "NetwrokPolicy", "NetworkPolic", "Networkpolicy", "NetworkPolicys", "Netw"] {
        let yaml = world() + &policy.replace("kind: NetworkPolicy", &format!("kind: {written}"));
        assert!(yaml.contains(written), "{yaml}");
        check(&yaml, &["ops/tool -> shop/db:1/TCP: deny", "ops/tool -> shop/web:1/TCP: allow"]);
        let said = findings(&yaml);
        assert!(said.len() == 1 && said[0].starts_with("error[unknown-kind]"), "{written}: {said:?}");
        assert!(messages(&yaml).contains("did you mean NetworkPolicy?"), "{written}");
    }
}

#[test]
fn s10_2_kinds_of_others_that_only_resemble_a_policy_are_passed_over() {
    for (group, kind) in [
        ("cilium.io/v2", "CiliumNetworkPolicy"),
        ("networking.k8s.io/v1", "Ingress"),
        ("config.openshift.io/v1", "Network"),
        ("cluster.x-k8s.io/v1beta1", "Cluster"),
        ("k8s.ovn.org/v1", "EgressIP"),
    ] {
        let other = format!("---\n{{apiVersion: {group}, kind: {kind}, metadata: {{name: x}}, spec: {{}}}}\n");
        assert_eq!(findings(world() + &other), [""; 0], "{kind}");
    }
}
