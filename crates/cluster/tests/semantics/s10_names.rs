//! S10.4: Services as manifests have them, and names as pods write them.

use crate::question::ask;

const SHOP: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: shop, labels: {app: client}}
status: {podIP: 10.0.0.1}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default, labels: {app: web}}
status: {podIP: 10.0.0.2}
---
apiVersion: v1
kind: Pod
metadata: {name: cart, namespace: shop, labels: {app: cart}}
spec: {containers: [{name: c, ports: [{name: grpc, containerPort: 7070}]}]}
status: {podIP: 10.0.0.3}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {selector: {app: cart}, ports: [{port: 7070}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: default}
spec: {podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 80}]}]}
---
";

fn check(more: &str, question: &str, expected: &str) {
    assert_eq!(ask(&format!("{SHOP}{more}"), question), expected, "{question}");
}

#[test]
fn s10_4_a_service_without_a_cluster_ip_translates_its_port() {
    // The policy allows 80, and the Service sends to 8080.
    check("", "shop/client -> default/Service/web:80", "deny");
    check("", "shop/client -> web.default.svc.cluster.local:80", "deny");
    check("", "shop/client -> 10.0.0.2:80", "allow");
}

#[test]
fn s10_4_only_cluster_ip_none_is_headless() {
    let headless = "
apiVersion: v1
kind: Service
metadata: {name: direct, namespace: default}
spec: {clusterIP: None, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
";
    check(headless, "shop/client -> default/direct:80", "allow");
    check(headless, "shop/client -> default/direct:8080", "deny");
    check(headless, "shop/client -> web.direct.default:80", "allow");
    check(headless, "shop/client -> web.direct.default.svc.cluster.local:8080", "deny");
    let only_listed = headless.replace("clusterIP: None", "clusterIPs: [None]");
    check(&only_listed, "shop/client -> default/direct:80", "allow");
}

#[test]
fn s10_4_a_pods_search_list_applies() {
    for name in ["web.default", "web.default.svc", "web.default.svc.cluster.local", "web.default.svc.cluster.local."] {
        check("", &format!("shop/client -> {name}:80"), "deny");
    }
    for name in ["cart", "cart.shop", "cart.shop.svc"] {
        check("", &format!("shop/client -> {name}:7070"), "allow");
    }
    // In another namespace `cart` is nothing, and `web` is.
    check(
        "",
        "default/web -> cart:7070",
        "cart resolves to nothing for default/web; there is a Service cart in namespace shop: write cart.shop",
    );
    check("", "default/web -> 10-0-0-3.shop.pod:7070", "allow");
}

#[test]
fn s10_4_a_name_with_a_final_dot_is_not_searched() {
    check("", "shop/client -> web.default.:80", "allow");
    check("", "shop/client -> web.example.:80", "allow");
    check(
        "",
        "shop/client -> web.default.svc.:80",
        "web.default.svc. resolves to nothing for shop/client; a name that ends in a dot is not searched for: write \
         web.default.svc.cluster.local",
    );
}

#[test]
fn s10_4_dns_policy_and_config_change_the_search_list() {
    let pod = |spec: &str| {
        format!(
            "
apiVersion: v1
kind: Pod
metadata: {{name: odd, namespace: shop}}
spec: {{{spec}}}
status: {{podIP: 10.0.0.9}}
"
        )
    };
    // With the node's DNS server there are no names of the cluster.
    for (spec, name) in [
        ("dnsPolicy: Default", "cart"),
        ("dnsPolicy: Default", "cart.shop.svc.cluster.local"),
        ("hostNetwork: true", "cart"),
    ] {
        let expected = format!(
            "{name} resolves to nothing for shop/odd; it asks the DNS server of its node, which does not know the \
             Service shop/cart"
        );
        check(&pod(spec), &format!("shop/odd -> {name}:7070"), &expected);
    }
    let bare = "dnsPolicy: None, dnsConfig: {nameservers: [10.96.0.10]}";
    for name in ["cart", "cart.shop", "cart.shop.svc"] {
        let expected = format!(
            "{name} resolves to nothing for shop/odd; its search list does not lead to the Service shop/cart: write \
             cart.shop.svc.cluster.local"
        );
        check(&pod(bare), &format!("shop/odd -> {name}:7070"), &expected);
    }
    check(&pod(bare), "shop/odd -> cart.shop.svc.cluster.local:7070", "allow");
    let searching =
        "dnsPolicy: None, dnsConfig: {searches: [default.svc.cluster.local], options: [{name: ndots, value: '2'}]}";
    check(&pod(searching), "shop/odd -> web:80", "deny");
    let more = "dnsConfig: {searches: [default.svc.cluster.local]}";
    check(&pod(more), "shop/odd -> web:80", "deny");
    check(&pod("hostNetwork: true, dnsPolicy: ClusterFirstWithHostNet"), "shop/odd -> cart:7070", "allow");
}

#[test]
fn s10_4_a_name_that_is_nothing_suggests_the_workload() {
    let no_service = "
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: default}
status: {podIP: 10.0.0.7}
";
    check(
        no_service,
        "shop/client -> db.default:5432",
        "db.default resolves to nothing for shop/client; there is no Service of that name. Did you mean the workload \
         default/db?",
    );
    check("", "shop/client -> db.example.com:5432", "allow");
}

#[test]
fn s10_4_external_names_are_followed() {
    let firewalled = "
apiVersion: v1
kind: Service
metadata: {name: payments, namespace: shop}
spec: {type: ExternalName, externalName: api.payments.example}
---
apiVersion: v1
kind: Service
metadata: {name: inner, namespace: shop}
spec: {type: ExternalName, externalName: web.default.svc.cluster.local}
---
apiVersion: v1
kind: Service
metadata: {name: round, namespace: shop}
spec: {type: ExternalName, externalName: round.shop.svc.cluster.local}
---
apiVersion: k8s.ovn.org/v1
kind: EgressFirewall
metadata: {name: default, namespace: shop}
spec: {egress: [{type: Deny, to: {cidrSelector: 198.51.100.0/24}}]}
";
    check(firewalled, "shop/client -> payments:443 with api.payments.example=198.51.100.7", "deny");
    check(firewalled, "shop/client -> shop/payments:443 with api.payments.example=203.0.113.7", "allow");
    check(
        firewalled,
        "shop/client -> payments:443",
        "depends: closed only if payments.shop.svc.cluster.local resolves to an address in 198.51.100.0/24",
    );
    check(firewalled, "shop/client -> inner:80", "deny");
    check(
        firewalled,
        "shop/client -> round:80",
        "Service shop/round leads from one ExternalName to another without end",
    );
}

/// The question is for the name of the Service, and rules are matched against the question (S6.2), with an answer or
/// without one.
#[test]
fn s10_4_an_external_name_is_judged_by_the_name_that_is_asked_for() {
    let firewall = |allowed: &str| {
        format!(
            "
apiVersion: v1
kind: Service
metadata: {{name: payments, namespace: shop}}
spec: {{type: ExternalName, externalName: api.payments.example}}
---
apiVersion: k8s.ovn.org/v1
kind: EgressFirewall
metadata: {{name: default, namespace: shop}}
spec: {{egress: [{{type: Allow, to: {{dnsName: {allowed}}}}}, {{type: Deny, to: {{cidrSelector: 0.0.0.0/0}}}}]}}
"
        )
    };
    for question in ["shop/client -> payments:443", "shop/client -> shop/payments:443"] {
        check(&firewall("api.payments.example"), question, "deny");
        check(&firewall("payments.shop.svc.cluster.local"), question, "allow");
    }
    check(&firewall("api.payments.example"), "shop/client -> api.payments.example:443", "allow");
}
