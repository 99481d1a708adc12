//! S5: names and patterns, as each policy kind means them.

use crate::check::{Cluster, findings, place};
use crate::world::*;
use namewall_policy::domain::{DomainPattern, Wildcard};

/// Everything outside is denied but what the policy opens.
fn closed() -> String {
    banp("{subject: {namespaces: {}}, egress: [{action: Deny, to: [{networks: [0.0.0.0/0, '::/0']}]}]}")
}

/// The pattern, accepted by a ClusterNetworkPolicy.
fn accept(pattern: &str) -> String {
    let rule = format!("{{action: Accept, to: [{{domainNames: ['{pattern}']}}]}}");
    cnp("p", &format!("{{tier: Admin, priority: 1, subject: {{namespaces: {{}}}}, egress: [{rule}]}}"))
}

fn old_accept(pattern: &str) -> String {
    let rule = format!("{{action: Allow, to: [{{domainNames: ['{pattern}']}}]}}");
    anp("p", &format!("{{priority: 1, subject: {{namespaces: {{}}}}, egress: [{rule}]}}"))
}

/// The pattern, passed by a ClusterEgressFirewall that denies the rest.
fn gate(pattern: &str) -> String {
    let rest = "{action: Deny, to: [{networks: [0.0.0.0/0, '::/0']}]}";
    cef("p", &format!("{{priority: 1, rules: [{{action: Allow, to: [{{domainNames: ['{pattern}']}}]}}, {rest}]}}"))
}

fn firewall(pattern: &str) -> String {
    let rest = "{type: Deny, to: {cidrSelector: 0.0.0.0/0}}, {type: Deny, to: {cidrSelector: '::/0'}}";
    ef(&format!("{{type: Allow, to: {{dnsName: '{pattern}'}}}}, {rest}"))
}

/// Whether addresses of these names are opened, of either family, and the names themselves.
#[track_caller]
fn check_names(yaml: &str, open: &[&str], shut: &[&str]) {
    for (names, verdict) in [(open, "allow"), (shut, "deny")] {
        for name in names {
            let cluster = Cluster::read(world() + yaml, &Default::default());
            let cluster = cluster.lease(name, "203.0.113.9").lease(name, "2001:db8::9");
            cluster.check(&[
                &format!("shop/web -> 203.0.113.9:443/TCP: {verdict}"),
                &format!("shop/web -> [2001:db8::9]:443/UDP: {verdict}"),
                "shop/web -> 203.0.113.10:443/TCP: deny",
                "shop/web -> [2001:db8::10]:443/TCP: deny",
            ]);
        }
    }
}

#[test]
fn s5_1_exact_is_the_name_and_nothing_else() {
    let shut = ["www.b.example", "example", "xb.example", "b.example.net", "a.example"];
    for policy in
        [closed() + &accept("b.example"), closed() + &old_accept("b.example"), gate("b.example"), firewall("b.example")]
    {
        check_names(&policy, &["b.example", "B.Example."], &shut);
    }
}

#[test]
fn s5_1_subdomains_are_one_or_more_labels_and_never_the_name_itself() {
    for pattern in ["*.b.example", "**.b.example"] {
        for policy in [closed() + &accept(pattern), closed() + &old_accept(pattern), gate(pattern)] {
            check_names(
                &policy,
                &["a.b.example", "x.y.z.b.example"],
                &["b.example", "evilb.example", "example", "b.example.net"],
            );
        }
    }
}

#[test]
fn s5_1_one_label_is_exactly_one_in_an_egress_firewall() {
    check_names(&firewall("*.b.example"), &["a.b.example"], &["x.a.b.example", "b.example", "evilb.example"]);
    let said = findings(firewall("**.b.example"));
    assert_eq!(
        said,
        [format!(
            "error[bad-name] EgressFirewall shop/default spec.egress[0].to.dnsName {}",
            place(&firewall("**.b.example"), "dnsName")
        )]
    );
    check_names(&firewall("**.b.example"), &[], &["a.b.example", "x.a.b.example"]);
}

#[test]
fn s5_1_the_same_text_means_both_things_side_by_side() {
    let yaml = firewall("*.b.example") + &closed() + &accept("*.b.example");
    check_names(&yaml, &["a.b.example"], &["x.a.b.example"]);
}

#[test]
fn s5_1_patterns_are_named_apart_in_output() {
    let text = |wildcard| DomainPattern::parse("*.b.example", wildcard).unwrap().to_string();
    assert_ne!(text(Wildcard::Subdomains), text(Wildcard::OneLabel));
}

#[test]
fn s5_2_a_dot_at_the_end_any_case_and_unicode() {
    for pattern in ["B.EXAMPLE", "b.example.", "B.Example."] {
        check_names(&(closed() + &accept(pattern)), &["b.example"], &["a.b.example"]);
        check_names(&firewall(pattern), &["b.example"], &["a.b.example"]);
    }
    check_names(
        &(closed() + &accept("bücher.example")),
        &["xn--bcher-kva.example", "BÜCHER.example"],
        &["bucher.example"],
    );
    check_names(&gate("*.Bücher.example."), &["www.xn--bcher-kva.example"], &["xn--bcher-kva.example"]);
    check_names(&gate("_a-1.b_2.example"), &["_a-1.b_2.example"], &["a-1.b-2.example"]);
}

#[test]
fn s5_2_limits_of_labels_and_names() {
    let label = "a".repeat(63);
    let longest = format!("{label}.{label}.{label}.{}", "b".repeat(61));
    for good in [format!("{label}.example"), longest.clone(), format!("{longest}.")] {
        assert_eq!(findings(accept(&good)), Vec::<String>::new(), "{good}");
        check_names(&(closed() + &accept(&good)), &[&good], &[]);
    }
    for bad in [format!("{label}a.example"), format!("{longest}b"), format!("*.{longest}b")] {
        assert_eq!(findings(accept(&bad)).len(), 1, "{bad}");
    }
}

#[test]
fn s5_2_a_star_stands_only_as_the_whole_first_label() {
    for bad in ["*", "**", "*.", "a.*.example", "*a.example", "a*.example", "*.*.example", "***.example", "example.*"] {
        for policy in [accept(bad), old_accept(bad), gate(bad), firewall(bad)] {
            let said = findings(&policy);
            assert_eq!(said.len(), 1, "{bad}: {said:?}");
            assert!(said[0].starts_with("error[bad-name] "), "{bad}: {said:?}");
        }
        check_names(&(closed() + &accept(bad)), &[], &["a.example", "a.b.example", "example"]);
    }
}

#[test]
fn s5_2_letters_digits_hyphen_and_underscore_are_all_there_is() {
    // The first two would pass the misprinted class [a-zA-z].
    for bad in [
        "a^b.example",
        "a[b.example",
        "a`b.example",
        "a b.example",
        "a..example",
        ".example",
        "",
        ".",
        "-a.example",
        "a-.example",
        "a/b.example",
        "10.0.0.1",
        "a:443",
    ] {
        for policy in [accept(bad), gate(bad), firewall(bad)] {
            let said = findings(&policy);
            assert_eq!(said.len(), 1, "{bad}: {said:?}");
            assert!(said[0].starts_with("error[bad-name] "), "{bad}: {said:?}");
        }
        check_names(&(closed() + &accept(bad)), &[], &["a.example", "ab.example"]);
    }
}

#[test]
fn s5_3_a_whole_public_suffix_is_legal_and_seen() {
    for (pattern, name) in [("*.com", "example.com"), ("*.co.uk", "example.co.uk")] {
        let policy = closed() + &accept(pattern);
        assert!(!findings(&policy).iter().any(|line| line.starts_with("error")));
        check_names(&policy, &[name], &["example.net"]);
        // The lint itself asks this question.
        assert!(DomainPattern::parse(pattern, Wildcard::Subdomains).unwrap().covers_public_suffix());
        assert!(DomainPattern::parse(pattern, Wildcard::OneLabel).unwrap().covers_public_suffix());
    }
    assert!(!DomainPattern::parse("*.example.co.uk", Wildcard::Subdomains).unwrap().covers_public_suffix());
}
