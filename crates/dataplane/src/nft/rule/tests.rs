//! Rules as text and as expressions.

use super::*;
use crate::nft::expression::{FIRST, conntrack, meta};

fn tests(tests: impl Into<Vec<Test>>) -> Rule {
    Rule::new(tests, Action::Accept)
}

#[test]
fn rules_read_as_nft_shows_them() {
    use Version::{V4, V6};
    let (source, destination) = (End::Source, End::Destination);
    let rules = [
        (tests([Test::Established]), "ct state established accept"),
        (tests([Test::NeighbourDiscovery]), "ip6 hoplimit 255 icmpv6 type 133-137 accept"),
        (tests([Test::Generation(17)]), "meta nfproto @generation/17 accept"),
        (tests([Test::Local(V6)]), "ip6 saddr @local6 accept"),
        (
            tests([Test::Peer { end: source, version: V4, group: 3 }]),
            "meta mark & 0x00000003 | 0x00000003 . ip saddr @peer4 accept",
        ),
        (
            tests([Test::Leased { version: V6, group: 1 << 32 | 2 }]),
            "meta mark & 0x00000001 | 0x00000001 . meta mark & 0x00000002 | 0x00000002 . ip6 daddr @lease6 accept",
        ),
        (
            tests([Test::NamedPort { version: V4, group: 9 }]),
            "meta mark & 0x00000009 | 0x00000009 . ip daddr . meta l4proto . th dport @named4 accept",
        ),
        (Rule::new([], Action::Dispatch { end: source, version: V4, walk: Walk::Egress }), "ip saddr vmap @egress4"),
        (
            Rule::new([], Action::Dispatch { end: destination, version: V6, walk: Walk::AuditIngress }).about("why"),
            "ip6 daddr vmap @audit-ingress6 comment \"why\"",
        ),
        (Rule::new([Test::IsReset], Action::Return), "tcp flags rst return"),
        (Rule::new([Test::Protocol(TCP)], Action::Reset), "meta l4proto tcp reject with tcp reset"),
    ];
    for (rule, text) in rules {
        assert_eq!(rule.to_string(), text);
    }
}

/// A part of a key is a value that nft has a type for, or it shows `[invalid type]`.
#[test]
fn no_key_has_an_immediate_in_it() {
    use Version::{V4, V6};
    for version in [V4, V6] {
        for test in [
            Test::Peer { end: End::Source, version, group: 3 },
            Test::Leased { version, group: 7 },
            Test::NamedPort { version, group: 9 },
            Test::WasCut(version),
            Test::OwnAddress(version),
            Test::Generation(1),
        ] {
            let expressions = tests([test.clone()]).expressions();
            let is_load = |one: &Expression| matches!(one, Expression::Load { .. });
            assert!(!expressions.iter().any(is_load), "{test:?}: {expressions:?}");
        }
    }
}

#[test]
fn a_number_in_a_key_is_the_number_whatever_the_mark_is() {
    let expressions = tests([Test::Peer { end: End::Source, version: Version::V4, group: 0x0102_0304 }]).expressions();
    let flip = 0x0102_0304_u32.to_ne_bytes().to_vec();
    let number = [
        Expression::Meta { into: FIRST, key: meta::MARK },
        Expression::Bitwise { register: FIRST, mask: vec![0; 4], flip },
    ];
    assert!(expressions.windows(2).any(|two| two == number), "{expressions:?}");
}

#[test]
fn the_groups_of_a_rule_are_found_again() {
    let peer = Test::Peer { end: End::Source, version: Version::V6, group: 77 };
    let named = Test::NamedPort { version: Version::V6, group: 5 };
    let leased = Test::Leased { version: Version::V4, group: 0xa8b6_8185_4568_4218 };
    let both = tests([named.clone(), peer]).expressions();
    assert_eq!((peer_group(&both), lease_group(&both)), (Some(77), None));
    let by_name = tests([Test::Protocol(TCP), leased]).expressions();
    assert_eq!((peer_group(&by_name), lease_group(&by_name)), (None, Some(0xa8b6_8185_4568_4218)));
    assert_eq!(peer_group(&tests([named]).expressions()), None);
}

/// nft 1.0.6 shows a payload by its name only where it knows the protocol.
#[test]
fn a_payload_comes_after_a_test_of_its_protocol() {
    let expressions = tests([Test::NeighbourDiscovery]).expressions();
    let at = |key| expressions.iter().position(|one| *one == Expression::Meta { into: FIRST, key });
    let hop_limit = |one: &Expression| matches!(one, Expression::Payload { offset: 7, .. });
    assert!(at(meta::FAMILY) < expressions.iter().position(hop_limit));
    let state = tests([Test::New]).expressions();
    assert_eq!(state[0], Expression::Conntrack { into: FIRST, key: conntrack::STATE, original: false });
}
