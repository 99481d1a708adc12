//! Texts that are not what they should be: keys that are there twice, documents
//! that break off, values that Kubernetes does not read as they look (S10.1, S10.2).

use crate::check::{Cluster, check, findings, messages};
use crate::world::*;

const DENIED: [&str; 2] =
    ["ops/tool -> shop/db:1/TCP: deny by NetworkPolicy/shop/db", "ops/tool -> shop/web:1/TCP: allow"];

fn policy(rest: &str) -> String {
    format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n  name: db\n  namespace: shop\n{rest}"
    )
}

#[test]
fn s10_1_a_policy_with_a_key_twice_isolates_what_it_selects() {
    let selector = "  podSelector: {matchLabels: {app: db}}\n";
    for rest in [
        format!("spec:\n{selector}  ingress: [{{}}]\n  ingress: [{{}}]\n"),
        format!("spec:\n{selector}  ingress:\n  - from: []\n    from: []\n"),
        format!("  labels: {{a: b}}\n  labels: {{a: b}}\nspec:\n{selector}  ingress: [{{}}]\n"),
        format!("kind: NetworkPolicy\nspec:\n{selector}  ingress: [{{}}]\n"),
    ] {
        let yaml = world() + &policy(&rest);
        check(&yaml, &DENIED);
        let said = findings(&yaml);
        assert!(said.len() == 1 && said[0].starts_with("error[duplicate-key] NetworkPolicy shop/db "), "{said:?}");
    }
}

#[test]
fn s10_1_a_subject_in_doubt_is_the_whole_namespace() {
    let all =
        ["ops/tool -> shop/db:1/TCP: deny", "ops/tool -> shop/web:1/TCP: deny", "shop/db -> ops/tool:1/TCP: deny"];
    for rest in [
        "spec:\n  podSelector: {matchLabels: {app: db}}\n  podSelector: {matchLabels: {app: web}}\n",
        "spec:\n  podSelector: {matchLabels: {app: db, app: web}}\n",
        "spec: {podSelector: {matchLabels: {app: db}}}\nspec: {podSelector: {matchLabels: {app: web}}}\n",
        "spec:\n  ingress: [{}\n",
    ] {
        check(world() + &policy(rest), &all);
    }
}

#[test]
fn s10_1_a_policy_with_two_namespaces_isolates_in_both() {
    let twice = policy("  namespace: ops\nspec: {podSelector: {}, ingress: [{}]}\n");
    check(world() + &twice, &["shop/db -> ops/tool:1/TCP: deny", "ops/tool -> shop/db:1/TCP: deny"]);
}

#[test]
fn s10_1_a_policy_that_breaks_off_isolates_what_is_known() {
    let rest = "spec:\n  podSelector: {matchLabels: {app: db}}\n  ingress:\n  - from: [{}\n  - oops: {\n";
    let yaml = world() + &policy(rest);
    check(&yaml, &DENIED);
    assert!(
        findings(&yaml)[0].starts_with("error[unreadable-document] NetworkPolicy shop/db "),
        "{:?}",
        findings(&yaml)
    );
    // Nobody can tell where this one is.
    let lost = world() + "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: db,\n";
    check(&lost, &["ops/tool -> shop/db:1/TCP: allow"]);
    assert!(!findings(&lost).is_empty());
}

#[test]
fn s10_1_a_cluster_wide_policy_with_a_key_twice_keeps_its_denials() {
    let deny = "[{action: Deny, to: [{networks: [203.0.113.0/24]}]}]";
    let rest = |subjects: &str| {
        format!(
            "---\napiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {{name: p}}\nspec:\n  tier: Admin\n  priority: 1\n{subjects}  egress: []\n  egress: {deny}\n"
        )
    };
    let known = world() + &rest("  subject: {namespaces: {matchLabels: {team: shop}}}\n");
    check(&known, &["shop/web -> 198.51.100.1:1/TCP: deny", "ops/tool -> 203.0.113.9:1/TCP: allow"]);
    let shop = "  subject: {namespaces: {matchLabels: {team: shop}}}\n";
    let doubtful = world() + &rest(&format!("{shop}  subject: {{namespaces: {{}}}}\n"));
    check(&doubtful, &["ops/tool -> 203.0.113.9:1/TCP: deny", "ops/tool -> 198.51.100.1:1/TCP: allow"]);
}

#[test]
fn s10_1_a_pod_with_a_key_twice_is_there() {
    let twice = pod("shop/x", "x", "1.40", "").replace("{app: x}", "{app: x, tier: a, tier: b}");
    let closed = np("x", "{podSelector: {matchLabels: {app: x}}}");
    // Which of the two labels is meant nobody can tell: it is isolated, whether or not a policy selects it.
    let lines = ["ops/tool -> shop/x:1/TCP: deny", "shop/x -> ops/tool:1/TCP: deny"];
    check(world() + &twice + &closed, &lines);
    check(world() + &twice, &lines);
}

#[test]
fn s10_2_what_looks_like_no_object_is_said() {
    for text in ["// a comment\n", "just text\n", "- 5\n", "---\n// {\n//}\n"] {
        let said = findings(text);
        assert!(said.len() == 1 && said[0].starts_with("error[unreadable-document]"), "{text:?}: {said:?}");
    }
    assert_eq!(findings("---\n# only a comment\n---\nnull\n"), Vec::<String>::new());
}

#[test]
fn s10_2_lines_may_end_in_carriage_returns_alone() {
    let yaml = world() + &np("db", "{podSelector: {matchLabels: {app: db}}}");
    check(yaml.replace('\n', "\r"), &DENIED);
    check(yaml.replace('\n', "\r\n"), &DENIED);
}

#[test]
fn s10_2_labels_that_are_no_map_are_said() {
    let yaml = pod("shop/x", "x", "1.40", "").replace("{app: x}", "app=db");
    assert_eq!(findings(&yaml).len(), 2, "{:?}", findings(&yaml));
    let template =
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\nspec: {template: {metadata: {labels: app=db}}}\n";
    assert_eq!(findings(template).len(), 2, "{:?}", findings(template));
    let policy = np("db", "{podSelector: {matchLabels: app=db}}");
    check(world() + &policy, &["ops/tool -> shop/web:1/TCP: deny"]);
    assert_eq!(findings(&policy).len(), 1);
}

#[test]
fn s10_2_words_that_kubernetes_reads_as_booleans_are_said_with_the_fix() {
    let policy = np("db", "{podSelector: {}}").replace("namespace: shop", "namespace: y");
    let there = pod("y/x", "x", "1.40", "").replace("namespace: y", "namespace: 'y'");
    check(world() + &there + &policy, &["ops/tool -> y/x:1/TCP: deny by NetworkPolicy/y/db"]);
    let said = messages(&policy);
    assert!(said.contains("reads `y` as true") && said.contains("in quotes: \"y\""), "{said}");
    let labels = pod("shop/x", "x", "1.40", "").replace("{app: x}", "{app: on, version: 1.10}");
    let said = messages(&labels);
    assert!(said.contains("\"on\"") && said.contains("\"1.10\""), "{said}");
    let cluster = Cluster::read(world() + &labels, &Default::default());
    let role = cluster.snapshot.workload(cluster.workload("shop/x")).role;
    assert_eq!(cluster.snapshot.role(role).labels.to_string(), "app=on,version=1.10");
}

#[test]
fn s2_5_numbers_are_read_as_kubernetes_reads_them() {
    let policy = np(
        "db",
        "{podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: 0120}, {port: 0x51, endPort: 1_000}]}]}",
    );
    let lines = [
        "ops/tool -> shop/db:80/TCP: allow",
        "ops/tool -> shop/db:120/TCP: allow",
        "ops/tool -> shop/db:1000/TCP: allow",
        "ops/tool -> shop/db:1001/TCP: deny",
    ];
    check(world() + &policy, &lines);
}

#[test]
fn s5_2_names_that_published_schemas_refuse_are_said_and_count() {
    for (name, why) in [
        ("'**.example.com'", "one `*`"),
        ("'*.com'", "two labels"),
        ("localhost", "two labels"),
        ("bücher.example", "A-label"),
        ("_dmarc.example.com", "letter or digit"),
    ] {
        let rules = format!("egress: [{{action: Allow, to: [{{domainNames: [{name}]}}]}}]");
        let subject = "subject: {namespaces: {}}";
        for policy in [
            anp("p", &format!("{{priority: 1, {subject}, {rules}}}")),
            cnp("p", &format!("{{tier: Admin, priority: 1, {subject}, {}}}", rules.replace("Allow", "Accept"))),
        ] {
            let said = messages(&policy);
            assert!(said.contains("warning[refused-name]") && said.contains(why) && !said.contains("error["), "{said}");
        }
        let ours = cef("f", &format!("{{priority: 1, rules: [{{action: Allow, to: [{{domainNames: [{name}]}}]}}]}}"));
        assert!(!messages(ours).contains("refused-name"));
    }
    let twice = "{priority: 1, subject: {namespaces: {}}, egress: [{action: Allow, to: [{domainNames: [a.example, b.example, a.example]}]}]}";
    assert!(messages(anp("p", twice)).contains("twice"));
    for (name, refused) in [("a_b.example", true), ("'*.com'", false), ("localhost", false), ("bücher.example", true)]
    {
        let said = messages(ef(&format!("{{type: Allow, to: {{dnsName: {name}}}}}")));
        assert_eq!(said.contains("refused-name"), refused, "{name}: {said}");
        assert_eq!(said.contains("error[single-label]"), ["'*.com'", "localhost"].contains(&name), "{name}: {said}");
    }
}

#[test]
fn s10_2_a_name_that_is_no_text_is_said_of_its_object() {
    let policy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p, namespace: y}\nspec: {podSelector: {}}\n";
    assert_eq!(findings(policy), ["error[unreadable-field] NetworkPolicy y/p metadata.namespace 3:32"]);
}
