//! Policies that leave pods without DNS.

use crate::check::{admin, check, ingress};
use expect_test::expect;

#[test]
fn forgets_dns() {
    check(
        &ingress("{podSelector: {matchLabels: {app: web}}, egress: [{to: [{podSelector: {}}], ports: [{port: 80}]}]}"),
        expect![[r#"
            warning[forgets-dns] NetworkPolicy shop/p: shop/web is isolated for egress and may open port 53 nowhere, so it can resolve no name. Allow UDP and TCP 53 to the cluster's DNS
        "#]],
    );
    check(
        &ingress(
            "{podSelector: {matchLabels: {app: web}}, egress: [{to: [{podSelector: {}}], ports: [{port: 80}]}, {ports: [{port: 53, protocol: UDP}]}]}",
        ),
        expect![[""]],
    );
    // A named port that is 53 somewhere may be the DNS server's.
    check(
        &ingress(
            "{podSelector: {matchLabels: {app: web}}, egress: [{to: [{namespaceSelector: {}}], ports: [{port: dns, protocol: UDP}]}]}",
        ),
        expect![[""]],
    );
    check(
        &admin("a", 1, "[{action: Deny, to: [{networks: [0.0.0.0/0]}]}]"),
        expect![[r#"
            warning[forgets-dns] ClusterNetworkPolicy a spec.egress[0]: this rule leaves shop/web no way to port 53 anywhere, so it can resolve no name. Allow UDP and TCP 53 to the cluster's DNS
        "#]],
    );
    check(
        &admin(
            "a",
            1,
            "[{action: Accept, to: [{namespaces: {}}], protocols: [{udp: {destinationPort: {number: 53}}}]},
              {action: Deny, to: [{networks: [0.0.0.0/0, '::/0']}]}]",
        ),
        expect![[""]],
    );
}

/// A pod goes by its address in one policy and by its labels in the next.
#[test]
fn dns_passed_by_address_and_allowed_by_labels_is_not_forgotten() {
    let pass = "[{action: Pass, to: [{networks: [10.244.0.53/32]}]}, {action: Deny, to: [{networks: [0.0.0.0/0]}]}]";
    let allow = ingress("{podSelector: {}, egress: [{to: [{namespaceSelector: {}}]}]}");
    check(&format!("{}---{allow}", admin("a", 1, pass)), expect![[""]]);
}

#[test]
fn name_without_dns() {
    let names = "{action: Accept, to: [{domainNames: [api.example.com]}]}";
    let deny = "{action: Deny, to: [{networks: [0.0.0.0/0, '::/0']}]}";
    let dns = "{action: Accept, to: [{namespaces: {}}], protocols: [{udp: {destinationPort: {number: 53}}}]}";
    check(
        &admin("a", 1, &format!("[{names}, {deny}]")),
        expect![[r#"
            warning[name-without-dns] ClusterNetworkPolicy a spec.egress[0]: shop/web can reach no DNS server, so the name is never resolved and the rule opens nothing. Allow UDP and TCP 53 to the cluster's DNS
            warning[forgets-dns] ClusterNetworkPolicy a spec.egress[1]: this rule leaves shop/web no way to port 53 anywhere, so it can resolve no name. Allow UDP and TCP 53 to the cluster's DNS
        "#]],
    );
    check(&admin("a", 1, &format!("[{dns}, {names}, {deny}]")), expect![[""]]);
}
