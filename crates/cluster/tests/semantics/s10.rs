//! S10: bad input never widens access, and every rejection is said: the
//! object, the field, the place, and what would be accepted. That an object
//! keeps its last good version is for the agent's tests.

use crate::check::{Cluster, check, findings, messages, place};
use crate::world::*;
use expect_test::expect;

fn db(rules: &str) -> String {
    np("db", &format!("{{podSelector: {{matchLabels: {{app: db}}}}, ingress: [{rules}]}}"))
}

/// The rule allows nothing, the rule behind it stands, and one Finding says why:
/// `code path`, at the text.
#[track_caller]
fn check_left_out(rule: &str, code: &str, path: &str, at: &str) {
    let policy = db(&format!("{rule}, {{ports: [{{port: 9187}}]}}"));
    assert_eq!(
        findings(&policy),
        [format!("error[{code}] NetworkPolicy shop/db spec.ingress[0]{path} {}", place(&policy, at))],
        "{rule}"
    );
    check(
        world() + &policy,
        &[
            "shop/web -> shop/db:5432/TCP: deny by NetworkPolicy/shop/db",
            "ops/tool -> shop/db:1/TCP: deny by NetworkPolicy/shop/db",
            "10.9.9.9 -> shop/db:80/TCP: deny by NetworkPolicy/shop/db",
            "2001:db8::9 -> shop/db:ICMP: deny by NetworkPolicy/shop/db",
            "shop/web -> shop/db:9187/TCP: allow by NetworkPolicy/shop/db",
        ],
    );
    let egress = policy.replace("ingress:", "policyTypes: [Egress], egress:").replace("from:", "to:");
    check(
        world() + &egress,
        &[
            "shop/db -> 10.9.9.9:80/TCP: deny by NetworkPolicy/shop/db",
            "shop/db -> shop/web:1/TCP: deny by NetworkPolicy/shop/db",
        ],
    );
}

#[test]
fn s10_1_a_misspelt_field_never_becomes_a_missing_one() {
    for (rule, path, at) in [
        ("{frm: [{podSelector: {matchLabels: {app: none}}}]}", ".frm", "frm"),
        ("{From: []}", ".From", "From"),
        ("{port: [{port: 1}]}", ".port", "port:"),
        ("{from: [{podSelecter: {}}]}", ".from[0].podSelecter", "podSelecter"),
        ("{from: [{podSelector: {}, namespaceSelctor: {}}]}", ".from[0].namespaceSelctor", "namespaceSelctor"),
        ("{from: [{podSelector: {matchLabel: {app: none}}}]}", ".from[0].podSelector.matchLabel", "matchLabel:"),
        ("{from: [{podSelector: {app: none}}]}", ".from[0].podSelector.app", "app: none"),
        ("{from: [{ipBlock: {cidr: 10.0.0.0/8, exept: [10.9.0.0/16]}}]}", ".from[0].ipBlock.exept", "exept"),
        ("{ports: [{prot: UDP, port: 80}]}", ".ports[0].prot", "prot:"),
        ("{ports: [{port: 1, endport: 9}]}", ".ports[0].endport", "endport"),
    ] {
        check_left_out(rule, "unknown-field", path, at);
    }
}

#[test]
fn s10_1_a_bad_port_allows_nothing() {
    for (port, code, field) in [
        ("{port: 0}", "bad-port", "port"),
        ("{port: 65536}", "bad-port", "port"),
        ("{port: -80}", "bad-port", "port"),
        ("{port: '80'}", "bad-port", "port"),
        ("{port: HTTP}", "bad-port", "port"),
        ("{port: a--b}", "bad-port", "port"),
        ("{port: sixteen-letters-}", "bad-port", "port"),
        ("{port: ''}", "bad-port", "port"),
        ("{protocol: tcp}", "bad-protocol", "protocol"),
        ("{protocol: ICMP}", "bad-protocol", "protocol"),
        ("{protocol: ''}", "bad-protocol", "protocol"),
    ] {
        check_left_out(&format!("{{ports: [{port}]}}"), code, &format!(".ports[0].{field}"), &port[1..]);
    }
    // One bad port spoils its rule: who knows what was meant.
    check_left_out("{ports: [{port: 5432}, {port: 0}]}", "bad-port", ".ports[1].port", "port: 0");
}

#[test]
fn s10_1_what_is_of_the_wrong_type_allows_nothing() {
    for (rule, path, at) in [
        ("{ports: [{port: 80.5}]}", ".ports[0].port", "80.5"),
        ("{ports: [{port: [80]}]}", ".ports[0].port", "[80]"),
        ("{ports: [{protocol: 6}]}", ".ports[0].protocol", "6}"),
        ("{ports: 80}", ".ports", "80}"),
        ("{from: all}", ".from", "all}"),
        ("{from: [all]}", ".from[0]", "all]"),
        ("{from: [{podSelector: web}]}", ".from[0].podSelector", "web}"),
        ("{from: [{podSelector: {matchLabels: {version: 1}}}]}", ".from[0].podSelector.matchLabels.version", "1}"),
        ("{from: [{podSelector: {matchLabels: {canary: true}}}]}", ".from[0].podSelector.matchLabels.canary", "true"),
        ("all", "", "all,"),
        ("[{}]", "", "[{}]"),
    ] {
        check_left_out(rule, "unreadable-field", path, at);
    }
}

#[test]
fn s10_1_a_bad_block_allows_nothing() {
    for cidr in [
        "10.0.0.0",
        "10.0.0.0/33",
        "10.0.0.0/-1",
        "10.0.0/8",
        "'::/129'",
        "'::ffff:10.0.0.0/104'",
        "web",
        "''",
        "10.0.0.0/8/8",
        "256.0.0.0/8",
    ] {
        let rule = format!("{{from: [{{ipBlock: {{cidr: {cidr}}}}}]}}");
        check_left_out(&rule, "bad-network", ".from[0].ipBlock.cidr", "cidr");
        let rule = format!("{{from: [{{ipBlock: {{cidr: 0.0.0.0/0, except: [{cidr}]}}}}]}}");
        check_left_out(&rule, "bad-network", ".from[0].ipBlock.except[0]", &format!("{cidr}]"));
    }
    for except in ["11.0.0.0/8", "10.0.0.0/8", "0.0.0.0/0", "'2001:db8::/32'"] {
        let rule = format!("{{from: [{{ipBlock: {{cidr: 10.0.0.0/8, except: [{except}]}}}}]}}");
        check_left_out(&rule, "bad-except", ".from[0].ipBlock.except[0]", &format!("{except}]"));
    }
    check_left_out("{from: [{ipBlock: {except: [10.0.0.0/8]}}]}", "unreadable-field", ".from[0].ipBlock", "{except");
    check_left_out("{from: [{ipBlock: {cidr: 0.0.0.0/0}, podSelector: {}}]}", "bad-peer", ".from[0]", "{ipBlock");
    check_left_out("{from: [{ipBlock: {cidr: 0.0.0.0/0}, namespaceSelector: {}}]}", "bad-peer", ".from[0]", "{ipBlock");
    check_left_out("{from: [{}]}", "bad-peer", ".from[0]", "{}");
    check_left_out("{from: [{podSelector: {}}, {}]}", "bad-peer", ".from[1]", "{}]");
}

#[test]
fn s10_1_a_bad_selector_allows_nothing() {
    for (expression, field) in [
        ("{key: app, operator: in, values: [web]}", "operator"),
        ("{key: app, operator: Equals, values: [web]}", "operator"),
        ("{key: app, operator: In}", ""),
        ("{key: app, operator: NotIn, values: []}", "values"),
        ("{key: app, operator: Exists, values: [web]}", "values"),
        ("{key: app, operator: DoesNotExist, values: [web]}", "values"),
        ("{key: '', operator: DoesNotExist}", "key"),
        ("{key: app, operator: NotIn, values: ['a b']}", "values"),
        ("{key: app, operator: NotIn, values: ['-a']}", "values"),
    ] {
        let rule = format!("{{from: [{{podSelector: {{matchExpressions: [{expression}]}}}}]}}");
        let path = ".from[0].podSelector.matchExpressions[0]";
        let (path, at) = match field {
            "" => (format!("{path}.values"), "{key"),
            field => (format!("{path}.{field}"), field),
        };
        check_left_out(&rule, "bad-selector", &path, at);
    }
    check_left_out(
        "{from: [{podSelector: {matchExpressions: [{operator: DoesNotExist}]}}]}",
        "unreadable-field",
        ".from[0].podSelector.matchExpressions[0]",
        "{operator",
    );
}

#[test]
fn s10_1_a_policy_with_an_unknown_field_isolates_both_ways() {
    for field in ["ingres: [{}]", "Egress: []", "policyType: [Ingress]", "podSelectors: {}"] {
        let policy =
            np("db", &format!("{{podSelector: {{matchLabels: {{app: db}}}}, policyTypes: [Ingress], {field}}}"));
        check(
            world() + &policy,
            &[
                "shop/web -> shop/db:1/TCP: deny by NetworkPolicy/shop/db",
                "shop/db -> shop/web:1/TCP: deny by NetworkPolicy/shop/db",
                "shop/web -> ops/tool:1/TCP: allow by default",
            ],
        );
        let name = field.split(':').next().unwrap();
        assert_eq!(
            findings(&policy),
            [format!("error[unknown-field] NetworkPolicy shop/db spec.{name} {}", place(&policy, field))]
        );
    }
}

#[test]
fn s10_1_policy_types_that_cannot_be_read_isolate_both_ways() {
    for types in ["[ingress]", "[Ingress, Both]", "Ingress", "[5]", "[null]"] {
        let policy = np("db", &format!("{{podSelector: {{matchLabels: {{app: db}}}}, policyTypes: {types}}}"));
        check(
            world() + &policy,
            &[
                "shop/web -> shop/db:1/TCP: deny by NetworkPolicy/shop/db",
                "shop/db -> shop/web:1/TCP: deny by NetworkPolicy/shop/db",
            ],
        );
        assert_eq!(findings(&policy).len(), 1);
    }
    for list in ["ingress: {}", "egress: {to: []}", "ingress: all"] {
        let policy = np("db", &format!("{{podSelector: {{matchLabels: {{app: db}}}}, {list}}}"));
        check(
            world() + &policy,
            &[
                "shop/web -> shop/db:1/TCP: deny by NetworkPolicy/shop/db",
                "shop/db -> shop/web:1/TCP: deny by NetworkPolicy/shop/db",
            ],
        );
    }
}

#[test]
fn s10_1_an_admin_policy_the_api_would_refuse_keeps_its_denials_only() {
    let rules = "egress: [{action: Accept, to: [{networks: [203.0.113.0/24]}]}, {action: Deny, to: [{networks: [198.51.100.0/24]}]}]";
    let subject = "subject: {namespaces: {matchLabels: {team: shop}}}";
    for policy in [
        cnp("p", &format!("{{tier: Admin, priority: 1001, {subject}, {rules}}}")),
        cnp("p", &format!("{{tier: Admin, priority: -1, {subject}, {rules}}}")),
        cnp("p", &format!("{{tier: Admin, {subject}, {rules}}}")),
        cnp("p", &format!("{{tier: admin, priority: 1, {subject}, {rules}}}")),
        cnp("p", &format!("{{priority: 1, {subject}, {rules}}}")),
        cnp("p", &format!("{{tier: Baseline, priority: 1, {subject}, {rules}, kind: x}}")),
        anp("p", &format!("{{priority: 1001, {subject}, {rules}}}")),
        banp(&format!("{{{subject}, {}}}", rules.replace("Accept", "Allow"))).replace("name: default", "name: other"),
    ] {
        assert!(!findings(&policy).is_empty());
        let base = banp("{subject: {namespaces: {}}, egress: [{action: Deny, to: [{networks: [203.0.113.0/24]}]}]}");
        check(
            world() + &base + &policy,
            &[
                "shop/web -> 203.0.113.9:1/TCP: deny",
                "shop/web -> 198.51.100.9:1/TCP: deny",
                "ops/tool -> 198.51.100.9:1/TCP: allow by default",
            ],
        );
    }
}

#[test]
fn s10_1_a_broken_document_does_not_spoil_the_others() {
    let broken = "---\nkind: NetworkPolicy\n  bad: [\n";
    let twice = "---\napiVersion: v1\nkind: Pod\nkind: Pod\n";
    let policy = np("db", "{podSelector: {matchLabels: {app: db}}}");
    let yaml = world() + broken + &policy + twice;
    check(&yaml, &["shop/web -> shop/db:1/TCP: deny by NetworkPolicy/shop/db"]);
    let said = findings(&yaml);
    let codes: Vec<&str> = said.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(codes, ["error[unreadable-document]", "error[duplicate-key]", "error[missing-name]"], "{said:?}");
    assert!(messages("a: {{ .Values.x }}\nb: [\n").contains("render it first"));
}

#[test]
fn s10_1_a_bad_address_is_nobodys() {
    let pod = pod("shop/x", "x", "1.90", "").replace("10.244.1.90", "10.244.1.900");
    let cluster = Cluster::read(world() + &pod, &Default::default());
    assert_eq!(cluster.snapshot.workload(cluster.workload("shop/x")).addresses.len(), 1);
    assert!(cluster.findings.iter().all(|finding| finding.code == "bad-address" && finding.object == "Pod shop/x"));
}

#[test]
fn s10_2_objects_that_are_left_out_are_said() {
    let yaml = np("db", "{}").replace("networking.k8s.io/v1", "networking.k8s.io/v2")
        + &np("db", "{}").replace("name: db, ", "")
        + &cnp("p", "{tier: Admin, priority: 1}")
        + &cnp("q", "{tier: Admin, priority: 1, subject: {}}")
        + &cnp("r", "{tier: Admin, priority: 1, subject: {namespaces: {}, pods: {}}}");
    expect![[r#"
        all.yaml:2:1: error[unknown-version] NetworkPolicy shop/db apiVersion: version networking.k8s.io/v2 of NetworkPolicy is not read; v1 is
        all.yaml:9:1: error[missing-name] NetworkPolicy metadata.name: metadata.name is missing; every object has one
        all.yaml:15:1: error[bad-subject] ClusterNetworkPolicy p spec: `subject` is missing; without it nobody can tell whom the policy selects
        all.yaml:20:34: error[bad-subject] ClusterNetworkPolicy q spec.subject: exactly one of namespaces and pods is accepted
        all.yaml:25:34: error[bad-subject] ClusterNetworkPolicy r spec.subject: exactly one of namespaces and pods is accepted
    "#]]
    .assert_eq(&messages(yaml));
}

/// A kind that is read in two versions: the finding for any other version names both.
#[test]
fn s10_2_a_version_that_is_not_read_is_answered_with_all_that_are() {
    let policy = cnp("p", "{tier: Admin, priority: 1, subject: {namespaces: {}}}");
    let yaml = policy.replace("v1alpha2", "v1") + &policy.replace("policy.networking", "networking");
    expect![[r#"
        all.yaml:2:1: error[unknown-version] ClusterNetworkPolicy p apiVersion: version policy.networking.k8s.io/v1 of ClusterNetworkPolicy is not read; v1beta1 or v1alpha2 is
        all.yaml:7:1: error[unknown-version] ClusterNetworkPolicy p apiVersion: ClusterNetworkPolicy of networking.k8s.io/v1alpha2 is not read, and has no effect here; policy.networking.k8s.io/v1beta1 or policy.networking.k8s.io/v1alpha2 is
    "#]]
    .assert_eq(&messages(yaml));
}

#[test]
fn s10_2_a_rejection_says_what_would_be_accepted() {
    let ports = "ports: [{protocol: icmp}, {port: 0}, {port: 9, endPort: 5}, {port: Web}, {port: web, endPort: 5}]";
    let peers = "from: [{ipBlock: {cidr: 10.0.0.0}}, {podSelector: {matchExpressions: [{key: a, operator: Is}]}}, {}]";
    let yaml = db(&format!("{{{ports}}}, {{{peers}}}, {{form: []}}"))
        + &cnp(
            "p",
            "{tier: admin, priority: 9999, subject: {namespaces: {}}, egress: [{action: Allow, to: [{networks: ['10.0.0.0/99'], nodes: {}}]}]}",
        );
    expect![[r#"
        all.yaml:10:21: error[bad-priority] ClusterNetworkPolicy p spec.priority: a priority is a number from 0 to 1000; lower comes first
        all.yaml:10:8: error[bad-tier] ClusterNetworkPolicy p spec.tier: `admin` is not accepted; use Admin or Baseline
        all.yaml:10:74: error[bad-action] ClusterNetworkPolicy p spec.egress[0].action: `Allow` is not accepted; use Accept or Deny or Pass
        all.yaml:10:94: error[bad-peer] ClusterNetworkPolicy p spec.egress[0].to[0]: exactly one of namespaces, pods, nodes, networks and domainNames is accepted
        all.yaml:5:67: error[bad-protocol] NetworkPolicy shop/db spec.ingress[0].ports[0].protocol: `icmp` is not accepted; use TCP, UDP or SCTP
        all.yaml:5:85: error[bad-port] NetworkPolicy shop/db spec.ingress[0].ports[1].port: 0 is no port; use 1 to 65535
        all.yaml:5:105: error[bad-port] NetworkPolicy shop/db spec.ingress[0].ports[2].endPort: the range 9-5 ends before it starts
        all.yaml:5:119: error[bad-port] NetworkPolicy shop/db spec.ingress[0].ports[3].port: `Web` cannot be a port's name: at most 15 lower-case letters, digits and single `-`, with one letter
        all.yaml:5:143: error[bad-port] NetworkPolicy shop/db spec.ingress[0].ports[4].endPort: endPort needs a numeric port to start from
        all.yaml:5:177: error[bad-network] NetworkPolicy shop/db spec.ingress[1].from[0].ipBlock.cidr: `10.0.0.0` is not a CIDR block; write an address, a slash and a prefix length, like 10.0.0.0/8 or 2001:db8::/32
        all.yaml:5:238: error[bad-selector] NetworkPolicy shop/db spec.ingress[1].from[1].podSelector.matchExpressions[0].operator: `Is` is no operator; use In, NotIn, Exists or DoesNotExist
        all.yaml:5:256: error[bad-peer] NetworkPolicy shop/db spec.ingress[1].from[2]: an empty peer; give podSelector, namespaceSelector or ipBlock
        all.yaml:5:263: error[unknown-field] NetworkPolicy shop/db spec.ingress[2].form: this field is not known here; check its spelling and indentation
    "#]]
    .assert_eq(&messages(yaml));
}
