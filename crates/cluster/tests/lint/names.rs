//! Rules by name that do not do what they seem to.

use crate::check::{admin, check, firewall};
use expect_test::expect;

#[test]
fn name_without_deny() {
    check(
        &admin(
            "a",
            1,
            "[{action: Accept, to: [{domainNames: [api.example.com]}]}, {action: Deny, to: [{networks: [203.0.113.0/24]}]}]",
        ),
        expect![[r#"
            warning[name-without-deny] ClusterNetworkPolicy a spec.egress[0]: whom it is for may open these ports to any address outside anyway, so it changes nothing. Deny the rest in a rule after it, or remove it
        "#]],
    );
    check(
        &firewall(
            "[{type: Allow, to: {dnsName: api.example.com}, ports: [{protocol: TCP, port: 443}]}, {type: Deny, to: {cidrSelector: 0.0.0.0/0}, ports: [{protocol: TCP, port: 443}]}]",
        ),
        expect![[""]],
    );
}

#[test]
fn name_denied() {
    check(
        &firewall("[{type: Deny, to: {dnsName: bad.example.com}}]"),
        expect![[r#"
        warning[name-denied] EgressFirewall shop/default spec.egress[0]: nobody knows every address of bad.example.com, so denying it does not keep pods from it. Allow what is needed and deny the rest by network
    "#]],
    );
}

#[test]
fn public_suffix() {
    let deny = "{type: Deny, to: {cidrSelector: 0.0.0.0/0}}";
    check(
        &firewall(&format!("[{{type: Allow, to: {{dnsName: '*.co.uk'}}}}, {deny}]")),
        expect![[r#"
        warning[public-suffix] EgressFirewall shop/default spec.egress[0]: *.co.uk covers a whole public suffix: anybody can register a name under co.uk. Name the domains that are meant
    "#]],
    );
    check(&firewall(&format!("[{{type: Allow, to: {{dnsName: '*.example.co.uk'}}}}, {deny}]")), expect![[""]]);
}
