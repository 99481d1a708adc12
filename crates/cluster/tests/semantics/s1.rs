//! S1: one connection, one verdict. The gates, the tiers, their order, and who
//! is exempt. That packets of an allowed connection pass, and that denied ones
//! are dropped on the wire, is for the agent's tests.

use crate::check::{Cluster, check};
use crate::world::*;
use namewall_policy::Verdict;
use namewall_policy::model::Action;

const ALL: &str = "{namespaces: {}}";

#[test]
fn s1_without_any_policy_everything_is_allowed() {
    check(
        world(),
        &[
            "shop/web -> shop/db:5432/TCP: allow by default",
            "shop/web -> 203.0.113.9:443/TCP: allow by default",
            "shop/web -> [2001:db8::9]:443/UDP: allow by default",
            "203.0.113.9 -> shop/web:ICMP: allow by default",
            "ops/agent -> shop/web:8080/SCTP: allow by default",
            "shop/web -> node/n1:22/TCP: allow by default",
            "shop/web -> api.example.com:443/TCP: allow by default",
        ],
    );
}

#[test]
fn s1_1_the_first_matching_rule_of_the_cluster_gate_wins() {
    let rules = "rules: [{action: Allow, to: [{networks: [203.0.113.0/28, '2001:db8::/64']}]},
        {action: Deny, to: [{networks: [203.0.113.0/24, '2001:db8::/32']}]},
        {action: Allow, to: [{networks: [203.0.113.200/32]}]}]";
    check(
        world() + &cef("edge", &format!("{{priority: 5, {rules}}}")),
        &[
            "shop/web -> 203.0.113.9:443/TCP: allow by default",
            "shop/web -> 203.0.113.16:443/TCP: deny by ClusterEgressFirewall/edge",
            "shop/web -> 203.0.113.200:443/TCP: deny by ClusterEgressFirewall/edge",
            "shop/web -> 203.0.113.200:ICMP: deny by ClusterEgressFirewall/edge",
            "shop/web -> [2001:db8::9]:443/UDP: allow by default",
            "shop/web -> [2001:db8:1::9]:443/UDP: deny by ClusterEgressFirewall/edge",
            "shop/web -> 198.51.100.1:443/TCP: allow by default",
            // It is a gate for what goes out.
            "203.0.113.200 -> shop/web:8080/TCP: allow by default",
        ],
    );
}

#[test]
fn s1_1_cluster_gates_are_asked_by_priority_then_name() {
    let rule = |action: &str, to: &str| format!("rules: [{{action: {action}, to: [{{networks: [{to}]}}]}}]");
    let objects = [
        cef("z-first", &format!("{{priority: 1, {}}}", rule("Allow", "203.0.113.1/32"))),
        cef("b-second", &format!("{{priority: 2, {}}}", rule("Deny", "203.0.113.0/30"))),
        cef("a-second", &format!("{{priority: 2, {}}}", rule("Allow", "203.0.113.2/32"))),
        cef("a-last", &format!("{{priority: 1000, {}}}", rule("Allow", "203.0.113.3/32"))),
    ];
    let lines = [
        "shop/web -> 203.0.113.1:1/TCP: allow",
        "shop/web -> 203.0.113.2:1/TCP: allow",
        "shop/web -> 203.0.113.3:1/TCP: deny by ClusterEgressFirewall/b-second",
    ];
    check(world() + &objects.concat(), &lines);
    // The order of the manifests says nothing.
    check(objects.iter().rev().cloned().collect::<String>() + &world(), &lines);
}

#[test]
fn s1_1_a_cluster_gate_stands_only_before_those_it_selects() {
    let deny = "rules: [{action: Deny, to: [{networks: [10.0.0.0/8, 203.0.113.0/24]}]}]";
    check(
        world()
            + &cef(
                "edge",
                &format!("{{priority: 5, subject: {{namespaces: {{matchLabels: {{team: shop}}}}}}, {deny}}}"),
            ),
        &[
            "shop/web -> 203.0.113.9:443/TCP: deny by ClusterEgressFirewall/edge",
            "ops/tool -> 203.0.113.9:443/TCP: allow by default",
            "ops/agent -> 203.0.113.9:443/TCP: allow by default",
            // Pods inside the network are no exception: this gate is for every destination.
            "10.244.1.10 -> 10.244.2.20:5432/TCP: deny by ClusterEgressFirewall/edge",
            "fd00:244:1::10 -> [fd00:244:2::20]:5432/TCP: allow by default",
            "ops/tool -> shop/db:5432/TCP: allow by default",
        ],
    );
}

#[test]
fn s1_a_gates_allow_is_not_a_final_accept() {
    let allow = "{priority: 0, rules: [{action: Allow, to: [{networks: [0.0.0.0/0, '::/0']}]}]}";
    let firewall = ef("{type: Allow, to: {cidrSelector: 203.0.113.0/24}}, {type: Deny, to: {cidrSelector: 0.0.0.0/0}}");
    let policy = np("web", "{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}");
    check(
        world() + &cef("all", allow) + &firewall,
        &[
            "shop/web -> 203.0.113.9:443/TCP: allow by default",
            "shop/web -> 198.51.100.1:443/TCP: deny by EgressFirewall/shop/default",
        ],
    );
    check(
        world() + &cef("all", allow) + &firewall + &policy,
        &["shop/web -> 203.0.113.9:443/TCP: deny by NetworkPolicy/shop/web"],
    );
}

#[test]
fn s1_no_accept_of_the_tiers_opens_a_gate() {
    let accept = format!(
        "{{tier: Admin, priority: 0, subject: {ALL}, egress: [{{action: Accept, to: [{{networks: [0.0.0.0/0]}}]}}]}}"
    );
    let deny = "{priority: 1000, rules: [{action: Deny, to: [{networks: [203.0.113.0/24]}]}]}";
    check(
        world() + &cnp("open", &accept) + &cef("edge", deny) + &ef("{type: Deny, to: {cidrSelector: 198.51.100.0/24}}"),
        &[
            "shop/web -> 203.0.113.9:443/TCP: deny by ClusterEgressFirewall/edge",
            "shop/web -> 198.51.100.9:443/TCP: deny by EgressFirewall/shop/default",
            "shop/web -> 192.0.2.1:443/TCP: allow by ClusterNetworkPolicy/open",
        ],
    );
}

#[test]
fn s1_2_the_namespace_gate_is_only_for_what_is_outside_the_pod_network() {
    check(
        world() + &ef("{type: Deny, to: {cidrSelector: 0.0.0.0/0}}, {type: Deny, to: {cidrSelector: '::/0'}}"),
        &[
            "shop/web -> shop/db:5432/TCP: allow by default",
            "shop/web -> ops/tool:ICMP: allow by default",
            // Nobody is known there, but it is a pod's address.
            "shop/web -> 10.244.2.99:80/TCP: allow by default",
            "shop/web -> [fd00:244:2::99]:80/TCP: allow by default",
            "shop/web -> 10.244.3.1:80/TCP: deny by EgressFirewall/shop/default",
            "shop/web -> [2001:db8::1]:80/TCP: deny by EgressFirewall/shop/default",
            "shop/web -> node/n1:10250/TCP: deny by EgressFirewall/shop/default",
            "shop/web -> ops/agent:9100/TCP: deny by EgressFirewall/shop/default",
            "ops/tool -> 203.0.113.9:443/TCP: allow by default",
        ],
    );
}

#[test]
fn s1_2_rules_of_the_namespace_gate_are_taken_in_order_and_no_match_passes() {
    check(
        world()
            + &ef(
                "{type: Allow, to: {cidrSelector: 203.0.113.9/32}}, {type: Deny, to: {cidrSelector: 203.0.113.0/24}}, \
                   {type: Allow, to: {cidrSelector: 203.0.113.10/32}}",
            ),
        &[
            "shop/web -> 203.0.113.9:443/TCP: allow by default",
            "shop/web -> 203.0.113.10:443/TCP: deny by EgressFirewall/shop/default",
            "shop/web -> 198.51.100.1:443/SCTP: allow by default",
        ],
    );
}

#[test]
fn s1_3_and_4_both_ends_must_agree() {
    let out = "{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{ports: [{port: 5432}]}]}";
    let inward = "{podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: 5432}, {port: 9187}]}]}";
    check(
        world() + &np("out", out) + &np("in", inward),
        &[
            "shop/web -> shop/db:5432/TCP: allow by NetworkPolicy/shop/out",
            "shop/web -> shop/db:5432/TCP: allow by NetworkPolicy/shop/in",
            "shop/web -> shop/db:9187/TCP: deny by NetworkPolicy/shop/out",
            "ops/tool -> shop/db:9187/TCP: allow by NetworkPolicy/shop/in",
            "ops/tool -> shop/db:22/TCP: deny by NetworkPolicy/shop/in",
            "shop/db -> shop/web:1/TCP: allow by default",
        ],
    );
}

#[test]
fn s1_3_and_4_an_accept_ends_the_tiers_of_its_own_direction_only() {
    let accept = format!(
        "{{tier: Admin, priority: 0, subject: {ALL}, egress: [{{action: Accept, to: [{{namespaces: {{}}}}]}}]}}"
    );
    let closed = np("db", "{podSelector: {matchLabels: {app: db}}}");
    check(world() + &cnp("out", &accept) + &closed, &["shop/web -> shop/db:5432/TCP: deny by NetworkPolicy/shop/db"]);
    let accept = accept.replace("egress", "ingress").replace("to:", "from:");
    let closed = np("web", "{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}");
    check(world() + &cnp("in", &accept) + &closed, &["shop/web -> shop/db:5432/TCP: deny by NetworkPolicy/shop/web"]);
}

#[test]
fn s1_4_only_pods_have_ingress_tiers() {
    let deny = format!(
        "{{tier: Admin, priority: 0, subject: {ALL}, ingress: [{{action: Deny, from: [{{namespaces: {{}}}}]}}]}}"
    );
    check(
        world() + &cnp("in", &deny),
        &[
            "shop/web -> shop/db:5432/TCP: deny by ClusterNetworkPolicy/in",
            "shop/web -> ops/agent:9100/TCP: allow by default",
            "shop/web -> 203.0.113.9:443/TCP: allow by default",
        ],
    );
}

fn admin_rule(action: &str, port: u16) -> String {
    format!(
        "{{action: {action}, from: [{{namespaces: {{}}}}], protocols: [{{tcp: {{destinationPort: {{number: {port}}}}}}}]}}"
    )
}

fn admin(name: &str, tier: &str, priority: u32, rules: &[String]) -> String {
    cnp(name, &format!("{{tier: {tier}, priority: {priority}, subject: {ALL}, ingress: [{}]}}", rules.join(", ")))
}

#[test]
fn s1_5_the_admin_tier_is_one_list_by_priority_kind_and_name() {
    let old = |name: &str, priority: u32, action: &str, port: u16| {
        let ports = format!("ports: [{{portNumber: {{port: {port}}}}}]");
        let rule = format!("{{action: {action}, from: [{{namespaces: {{}}}}], {ports}}}");
        anp(name, &format!("{{priority: {priority}, subject: {ALL}, ingress: [{rule}]}}"))
    };
    let objects = [
        // Port 1: the lower priority wins, whatever its kind.
        admin("z", "Admin", 3, &[admin_rule("Deny", 1)]),
        old("a", 4, "Allow", 1),
        // Port 2: of one priority AdminNetworkPolicy comes before ClusterNetworkPolicy, whatever its name.
        admin("a", "Admin", 5, &[admin_rule("Deny", 2)]),
        old("z", 5, "Allow", 2),
        // Port 3: of one kind and priority the name decides.
        admin("k2", "Admin", 7, &[admin_rule("Accept", 3)]),
        admin("k1", "Admin", 7, &[admin_rule("Deny", 3)]),
    ];
    let lines = [
        "shop/web -> shop/db:1/TCP: deny by ClusterNetworkPolicy/z",
        "shop/web -> shop/db:2/TCP: allow by AdminNetworkPolicy/z",
        "shop/web -> shop/db:3/TCP: deny by ClusterNetworkPolicy/k1",
        "shop/web -> shop/db:4/TCP: allow by default",
    ];
    check(world() + &objects.concat(), &lines);
    check(world() + &objects.iter().rev().cloned().collect::<String>(), &lines);
}

#[test]
fn s1_5_accept_ends_the_tiers_deny_ends_all_pass_leaves_the_tier() {
    let first = admin("first", "Admin", 1, &[admin_rule("Accept", 1), admin_rule("Deny", 2), admin_rule("Pass", 3)]);
    let second = admin("second", "Admin", 2, &[admin_rule("Deny", 1), admin_rule("Accept", 2), admin_rule("Deny", 3)]);
    let policy = np("db", "{podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: 3}, {port: 2}]}]}");
    check(
        world() + &first + &second + &policy,
        &[
            "shop/web -> shop/db:1/TCP: allow by ClusterNetworkPolicy/first",
            "shop/web -> shop/db:2/TCP: deny by ClusterNetworkPolicy/first",
            "shop/web -> shop/db:3/TCP: allow by NetworkPolicy/shop/db",
            // No match goes on.
            "shop/web -> shop/db:4/TCP: deny by NetworkPolicy/shop/db",
            "ops/tool -> shop/web:4/TCP: allow by default",
            "ops/tool -> shop/web:3/TCP: allow by default",
            "ops/tool -> shop/web:3/UDP: allow by default",
        ],
    );
}

#[test]
fn s1_6_isolation_is_per_direction() {
    let base = admin("base", "Baseline", 1, &[admin_rule("Deny", 8080)]);
    check(
        world()
            + &base
            + &np(
                "web",
                "{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}]}]}",
            ),
        &[
            "shop/web -> shop/db:1/TCP: allow by NetworkPolicy/shop/web",
            "shop/web -> ops/tool:1/TCP: deny by NetworkPolicy/shop/web",
            // Nobody isolates it for ingress, so Baseline is asked.
            "ops/tool -> shop/web:8080/TCP: deny by ClusterNetworkPolicy/base",
            "ops/tool -> shop/web:80/TCP: allow by default",
        ],
    );
}

#[test]
fn s1_6_an_isolated_pod_never_reaches_baseline() {
    let base = admin("base", "Baseline", 1, &[admin_rule("Deny", 1), admin_rule("Accept", 2)]);
    check(
        world() + &base + &np("db", "{podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: 1}]}]}"),
        &[
            "shop/web -> shop/db:1/TCP: allow by NetworkPolicy/shop/db",
            "shop/web -> shop/db:2/TCP: deny by NetworkPolicy/shop/db",
            "shop/db -> shop/web:1/TCP: deny by ClusterNetworkPolicy/base",
            "shop/db -> shop/web:2/TCP: allow by ClusterNetworkPolicy/base",
        ],
    );
}

#[test]
fn s1_6_one_rule_of_one_policy_is_enough_but_only_of_those_that_isolate() {
    let one = np("one", "{podSelector: {}, ingress: [{ports: [{port: 1}]}]}");
    let two =
        np("two", "{podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: 9}]}, {ports: [{port: 2}]}]}");
    // Its policyTypes leave Ingress out: its ingress rules say nothing.
    let three = np("three", "{podSelector: {}, policyTypes: [Egress], egress: [{}], ingress: [{}]}");
    let elsewhere = np("four", "{podSelector: {}, ingress: [{}]}").replace("namespace: shop", "namespace: ops");
    check(
        world() + &one + &two + &three + &elsewhere,
        &[
            "shop/web -> shop/db:1/TCP: allow by NetworkPolicy/shop/one",
            "shop/web -> shop/db:2/TCP: allow by NetworkPolicy/shop/two",
            "shop/db -> shop/web:2/TCP: deny by NetworkPolicy/shop/one",
            "shop/web -> shop/db:3/TCP: deny by NetworkPolicy/shop/two",
        ],
    );
}

#[test]
fn s1_7_baseline_is_by_priority_and_name_then_the_admins_default() {
    let banp_rule = |action: &str, port: u16| {
        format!("{{action: {action}, from: [{{namespaces: {{}}}}], ports: [{{portNumber: {{port: {port}}}}}]}}")
    };
    let last = [banp_rule("Deny", 1), banp_rule("Deny", 2), banp_rule("Deny", 4)].join(", ");
    check(
        world()
            + &banp(&format!("{{subject: {ALL}, ingress: [{last}]}}"))
            + &admin("b", "Baseline", 1000, &[admin_rule("Accept", 1), admin_rule("Accept", 3)])
            + &admin("a", "Baseline", 1000, &[admin_rule("Deny", 3)])
            // Pass leaves the tier, and nothing comes after Baseline.
            + &admin("z", "Baseline", 0, &[admin_rule("Pass", 4)]),
        &[
            "shop/web -> shop/db:1/TCP: allow by ClusterNetworkPolicy/b",
            "shop/web -> shop/db:2/TCP: deny by BaselineAdminNetworkPolicy/default",
            "shop/web -> shop/db:3/TCP: deny by ClusterNetworkPolicy/a",
            "shop/web -> shop/db:4/TCP: allow by default",
            "shop/web -> shop/db:5/TCP: allow by default",
        ],
    );
}

#[test]
fn s1_8_there_is_one_way_to_be_denied() {
    // Nothing in the model could ask for a reject: whoever adds it must answer here.
    let kinds = |verdict: Verdict| match verdict {
        Verdict::Allow | Verdict::Deny => 2,
    };
    let actions = |action: Action| match action {
        Action::Allow | Action::Deny | Action::Pass => 3,
    };
    assert_eq!((kinds(Verdict::Deny), actions(Action::Deny)), (2, 3));
    let cluster = Cluster::read(
        world() + &cef("r", "{priority: 1, rules: [{action: Reject, to: [{networks: [203.0.113.0/24]}]}]}"),
        &Default::default(),
    );
    assert_eq!(cluster.findings[0].code, "bad-action");
    cluster.check(&["shop/web -> 203.0.113.9:443/TCP: deny by ClusterEgressFirewall/r"]);
}

#[test]
fn s1_10_a_packet_for_a_group_reaches_nodes_and_is_denied_with_them() {
    let rules = "rules: [{action: Deny, to: [{nodes: {}}]}]";
    let allow = "rules: [{action: Allow, to: [{nodes: {}}]}, {action: Deny, to: [{networks: [0.0.0.0/0, '::/0']}]}]";
    let groups = ["224.0.0.1:9/UDP", "239.255.255.250:1900/UDP", "255.255.255.255:67/UDP", "[ff02::1]:9/UDP"];
    let lines = |name: &str| groups.map(|to| format!("shop/web -> {to}: deny by ClusterEgressFirewall/{name}"));
    let denied = lines("no-nodes");
    check(
        world() + &cef("no-nodes", &format!("{{priority: 1, {rules}}}")),
        &denied.iter().map(String::as_str).chain(["shop/web -> 203.0.113.9:9/UDP: allow"]).collect::<Vec<_>>(),
    );
    // An Allow of nodes opens no group.
    let denied = lines("only-nodes");
    check(
        world() + &cef("only-nodes", &format!("{{priority: 1, {allow}}}")),
        &denied.iter().map(String::as_str).chain(["shop/web -> node/n1:22/TCP: allow"]).collect::<Vec<_>>(),
    );
}
