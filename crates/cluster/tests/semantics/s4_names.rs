//! S4.4: domainNames, where they are accepted and what is said where not.

use crate::check::{Cluster, findings, messages, place};
use crate::s4::admin;
use crate::world::*;
use expect_test::expect;

/// Whatever the policy says, nothing of it allows; the name has been leased.
fn check_closed(policy: &str, lines: &[&str]) {
    let base = banp("{subject: {namespaces: {}}, egress: [{action: Deny, to: [{networks: [0.0.0.0/0, '::/0']}]}]}");
    let cluster = Cluster::read(world() + &base + policy, &Default::default());
    cluster.lease("a.example", "203.0.113.9").check(lines);
}

#[test]
fn s4_4_names_are_accepted_in_admin_egress() {
    let base = banp("{subject: {namespaces: {}}, egress: [{action: Deny, to: [{networks: [0.0.0.0/0, '::/0']}]}]}");
    let rule = "to: [{domainNames: [a.example]}]";
    let tcp = "protocols: [{tcp: {destinationPort: {number: 443}}}]";
    let new = admin(&format!("egress: [{{action: Accept, {rule}, {tcp}}}]"));
    let old = anp(
        "p",
        &format!(
            "{{priority: 1, subject: {{namespaces: {{}}}}, egress: [{{action: Allow, {rule}, ports: [{{portNumber: {{port: 443}}}}]}}]}}"
        ),
    );
    for policy in [new, old] {
        assert_eq!(findings(&policy), Vec::<String>::new());
        Cluster::read(world() + &base + &policy, &Default::default())
            .lease("a.example", "203.0.113.9")
            .lease("a.example", "2001:db8::9")
            .lease("b.example", "203.0.113.10")
            .check(&[
                "shop/web -> 203.0.113.9:443/TCP: allow",
                "shop/web -> [2001:db8::9]:443/TCP: allow",
                "shop/web -> a.example:443/TCP: allow",
                "shop/web -> 203.0.113.9:80/TCP: deny by BaselineAdminNetworkPolicy/default",
                "shop/web -> 203.0.113.9:443/UDP: deny by BaselineAdminNetworkPolicy/default",
                "shop/web -> 203.0.113.10:443/TCP: deny by BaselineAdminNetworkPolicy/default",
            ]);
    }
}

#[test]
fn s4_4_names_are_not_accepted_with_deny_or_pass() {
    for action in ["Deny", "Pass"] {
        let policy = admin(&format!("egress: [{{action: {action}, to: [{{domainNames: [a.example]}}]}}]"));
        check_closed(
            &policy,
            &[
                "shop/web -> 203.0.113.9:443/TCP: deny by ClusterNetworkPolicy/p",
                "shop/web -> shop/db:1/TCP: deny by ClusterNetworkPolicy/p",
            ],
        );
        assert_eq!(
            findings(&policy),
            [format!(
                "error[bad-domain-rule] ClusterNetworkPolicy p spec.egress[0].to[0].domainNames {}",
                place(&policy, "domainNames")
            )]
        );
    }
}

#[test]
fn s4_4_names_are_not_accepted_in_baseline() {
    let rule = "egress: [{action: Accept, to: [{domainNames: [a.example]}]}]";
    let policy = admin(rule).replace("tier: Admin", "tier: Baseline");
    let lines = ["shop/web -> 203.0.113.9:443/TCP: deny by BaselineAdminNetworkPolicy/default"];
    check_closed(&policy, &lines);
    expect![[r#"
        all.yaml:5:96: error[bad-domain-rule] ClusterNetworkPolicy p spec.egress[0].to[0].domainNames: domainNames are accepted only in the Admin tier: a NetworkPolicy, which overrides the Baseline tier, cannot say the same
    "#]]
    .assert_eq(&messages(policy));
    let old = banp(&format!("{{subject: {{namespaces: {{}}}}, {}}}", rule.replace("Accept", "Allow")));
    assert_eq!(
        findings(&old),
        [format!(
            "error[bad-domain-rule] BaselineAdminNetworkPolicy default spec.egress[0].to[0].domainNames {}",
            place(&old, "domainNames")
        )]
    );
}

#[test]
fn s4_4_names_are_not_accepted_with_named_ports() {
    let policy =
        admin("egress: [{action: Accept, to: [{domainNames: [a.example]}], protocols: [{destinationNamedPort: pg}]}]");
    check_closed(&policy, &["shop/web -> 203.0.113.9:5432/TCP: deny by BaselineAdminNetworkPolicy/default"]);
    expect![[r#"
        all.yaml:5:93: error[bad-domain-rule] ClusterNetworkPolicy p spec.egress[0].to[0].domainNames: domainNames do not go with named ports: what is outside has no container ports. Give numbers
    "#]]
    .assert_eq(&messages(policy));
}

#[test]
fn s4_4_one_bad_name_closes_its_rule() {
    let policy = admin("egress: [{action: Accept, to: [{domainNames: [a.example, 'b.*.example']}]}]");
    check_closed(&policy, &["shop/web -> 203.0.113.9:443/TCP: deny by BaselineAdminNetworkPolicy/default"]);
    assert_eq!(
        findings(&policy),
        [format!(
            "error[bad-name] ClusterNetworkPolicy p spec.egress[0].to[0].domainNames[1] {}",
            place(&policy, "'b.*")
        )]
    );
}

#[test]
fn s4_1_at_most_25_names_a_peer() {
    let policy = |many| {
        let names: Vec<String> = (0..many).map(|number| format!("a{number}.example")).collect();
        admin(&format!("egress: [{{action: Accept, to: [{{domainNames: [{}]}}]}}]", names.join(", ")))
    };
    assert_eq!(findings(policy(25)), Vec::<String>::new());
    assert_eq!(
        findings(policy(26)),
        [format!(
            "error[bad-count] ClusterNetworkPolicy p spec.egress[0].to[0].domainNames {}",
            place(&policy(26), "domainNames")
        )]
    );
    check_closed(&policy(26), &["shop/web -> 203.0.113.9:443/TCP: deny by BaselineAdminNetworkPolicy/default"]);
}

#[test]
fn s4_4_a_lease_that_has_ended_opens_nothing() {
    let policy = admin("egress: [{action: Accept, to: [{domainNames: [a.example]}]}]");
    check_closed(
        &policy,
        &[
            "shop/web -> 203.0.113.9:443/TCP: allow by ClusterNetworkPolicy/p",
            "shop/web -> 203.0.113.9:ICMP: allow by ClusterNetworkPolicy/p",
        ],
    );
    let base = banp("{subject: {namespaces: {}}, egress: [{action: Deny, to: [{networks: [0.0.0.0/0]}]}]}");
    let mut cluster = Cluster::read(world() + &base + &policy, &Default::default()).lease("a.example", "203.0.113.9");
    cluster.leases.forget(namewall_policy::Instant(std::time::Duration::from_secs(61)), usize::MAX, |_| false);
    cluster.check(&["shop/web -> 203.0.113.9:443/TCP: deny by BaselineAdminNetworkPolicy/default"]);
}
