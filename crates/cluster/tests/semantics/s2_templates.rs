//! S2 for pods that do not exist yet: the templates of Deployments and their
//! kin, which have labels and ports but no address. And for the ways manifests
//! come: lists, and objects that are there twice.

use crate::check::{Cluster, check, findings};
use crate::world::*;

fn template(version: &str, kind: &str, metadata: &str) -> String {
    format!(
        "---\napiVersion: {version}\nkind: {kind}\nmetadata: {{{metadata}, namespace: shop}}\n\
         spec: {{template: {{metadata: {{labels: {{app: api}}}}, spec: {{containers: [{{ports: [{{name: http, containerPort: 8080}}]}}]}}}}}}\n"
    )
}

fn workloads(yaml: &str) -> Vec<String> {
    Cluster::read(yaml, &Default::default()).workloads()
}

#[test]
fn s2_templates_of_every_kind_are_judged_by_their_labels_and_ports() {
    let policy = np(
        "api",
        "{podSelector: {matchLabels: {app: api}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: http}]}]}",
    );
    for (version, kind) in [
        ("apps/v1", "Deployment"),
        ("apps/v1", "ReplicaSet"),
        ("apps/v1", "StatefulSet"),
        ("apps/v1", "DaemonSet"),
        ("extensions/v1beta1", "Deployment"),
        ("batch/v1", "Job"),
        ("v1", "ReplicationController"),
    ] {
        check(
            world() + &template(version, kind, "name: api") + &policy,
            &[
                "shop/web -> shop/api:8080/TCP: allow by NetworkPolicy/shop/api",
                "shop/web -> shop/api:8081/TCP: deny by NetworkPolicy/shop/api",
                "ops/tool -> shop/api:8080/TCP: deny by NetworkPolicy/shop/api",
                "shop/api -> shop/db:5432/TCP: allow by default",
            ],
        );
    }
    let cron = "---\napiVersion: batch/v1\nkind: CronJob\nmetadata: {name: api, namespace: shop}\n\
                spec: {jobTemplate: {spec: {template: {metadata: {labels: {app: api}}}}}}\n";
    check(world() + cron + &policy, &["ops/tool -> shop/api:8080/TCP: deny by NetworkPolicy/shop/api"]);
}

#[test]
fn s2_a_template_is_played_by_the_pods_it_owns() {
    let owned_by =
        |kind: &str, name: &str| format!("ownerReferences: [{{kind: {kind}, name: {name}, controller: true}}]");
    let pod = pod("shop/api-1-x", "api", "1.70", "");
    let pod = pod.replace("labels:", &format!("{}, labels:", owned_by("ReplicaSet", "api-1")));
    let set = template("apps/v1", "ReplicaSet", &format!("name: api-1, {}", owned_by("Deployment", "api")));
    let deployment = template("apps/v1", "Deployment", "name: api");
    assert_eq!(workloads(&deployment), ["Deployment shop/api"]);
    assert_eq!(workloads(&(set.clone() + &deployment)), ["Deployment shop/api"]);
    assert_eq!(workloads(&set), ["ReplicaSet shop/api-1"]);
    assert_eq!(workloads(&(set.clone() + &deployment + &pod)), ["Pod shop/api-1-x"]);
    // A pod that has ended plays nothing any more.
    assert_eq!(workloads(&(set + &deployment + &pod.replace("Running", "Failed"))), ["Deployment shop/api"]);
    let none = deployment.replace("spec: {template", "spec: {replicas: 0, template");
    assert_eq!(workloads(&none), Vec::<String>::new());
}

#[test]
fn s2_a_template_has_no_address_so_a_block_must_cover_all_it_may_get() {
    let from = |cidr: &str| {
        np(
            "db",
            &format!(
                "{{podSelector: {{matchLabels: {{app: db}}}}, ingress: [{{from: [{{ipBlock: {{cidr: {cidr}}}}}]}}]}}"
            ),
        )
    };
    let v4_only = world().replace("podCIDRs: [10.244.1.0/24, 'fd00:244:1::/64']", "podCIDRs: [10.244.1.0/24]");
    let v4_only = v4_only.replace("podCIDRs: [10.244.2.0/24, 'fd00:244:2::/64']", "podCIDRs: [10.244.2.0/24]");
    let api = template("apps/v1", "Deployment", "name: api");
    for (cidr, verdict) in [("10.244.0.0/16", "allow"), ("10.244.1.0/24", "deny"), ("203.0.113.0/24", "deny")] {
        check(
            v4_only.clone() + &api + &from(cidr),
            &[&format!("shop/api -> shop/db:5432/TCP: {verdict} by NetworkPolicy/shop/db")],
        );
    }
    let deny = |cidr: &str| {
        let rule = format!("{{action: Deny, to: [{{networks: [{cidr}]}}]}}");
        cnp("out", &format!("{{tier: Admin, priority: 0, subject: {{namespaces: {{}}}}, egress: [{rule}]}}"))
    };
    check(
        v4_only.clone() + &api + &deny("10.244.1.9/32"),
        &["shop/db -> shop/api:80/TCP: deny by ClusterNetworkPolicy/out"],
    );
    check(v4_only + &api + &deny("203.0.113.0/24"), &["shop/db -> shop/api:80/TCP: allow by default"]);
}

#[test]
fn s2_pods_without_an_address_yet_are_judged_like_templates() {
    let pending = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: new, namespace: shop, labels: {app: new}}\nstatus: {phase: Pending}\n";
    check(
        world()
            + pending
            + &np(
                "p",
                "{podSelector: {matchLabels: {app: new}}, ingress: [{from: [{ipBlock: {cidr: 203.0.113.0/24}}]}]}",
            ),
        &[
            "203.0.113.9 -> shop/new:80/TCP: allow by NetworkPolicy/shop/p",
            "shop/web -> shop/new:80/TCP: deny by NetworkPolicy/shop/p",
            "shop/new -> 203.0.113.9:80/TCP: allow by default",
        ],
    );
}

#[test]
fn s2_lists_of_kubectl_are_taken_apart() {
    let list = "apiVersion: v1\nkind: List\nitems:\n\
                - {apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop}, status: {podIP: 10.244.1.80}}\n\
                - {apiVersion: v1, kind: List, items: [{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, \
                metadata: {name: p, namespace: shop}, spec: {podSelector: {}}}]}\n";
    check(list, &["203.0.113.9 -> shop/a:80/TCP: deny by NetworkPolicy/shop/p"]);
    let json = "{\"apiVersion\": \"networking.k8s.io/v1\", \"kind\": \"NetworkPolicyList\", \"items\": [\n\
                {\"apiVersion\": \"networking.k8s.io/v1\", \"kind\": \"NetworkPolicy\", \
                \"metadata\": {\"name\": \"p\", \"namespace\": \"shop\"}, \"spec\": {\"podSelector\": {}}}]}\n";
    check(world() + "---\n" + json, &["203.0.113.9 -> shop/web:80/TCP: deny by NetworkPolicy/shop/p"]);
}

#[test]
fn s2_of_two_objects_of_one_name_the_later_counts_and_it_is_said() {
    let open = np("web", "{podSelector: {matchLabels: {app: web}}, ingress: [{}]}");
    let closed = np("web", "{podSelector: {matchLabels: {app: web}}}");
    check(world() + &open + &closed, &["shop/db -> shop/web:80/TCP: deny by NetworkPolicy/shop/web"]);
    check(world() + &closed + &open, &["shop/db -> shop/web:80/TCP: allow by NetworkPolicy/shop/web"]);
    assert_eq!(findings(open + &closed), ["warning[defined-twice] NetworkPolicy shop/web  7:1"]);
    // Of two namespaces they are two objects.
    let other = closed.replace("namespace: shop", "namespace: ops");
    assert_eq!(findings(closed + &other), Vec::<String>::new());
}

#[test]
fn s2_two_pods_with_one_address_are_said() {
    let again = pod("shop/twin", "twin", "1.10", "");
    let said = findings(world() + &again);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].starts_with("error[shared-address] Pod shop/twin status.podIP"), "{said:?}");
}

#[test]
fn the_world_itself_is_without_fault() {
    assert_eq!(findings(world()), Vec::<String>::new());
}
