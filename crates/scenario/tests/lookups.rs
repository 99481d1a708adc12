//! The steps `zone`, `resolve`, `queries`, `settings` and `restart`, offline.

use expect_test::{Expect, expect};
use namewall_scenario::{Scenario, run};
use std::path::Path;

/// One pod that may ask for names and go to `*.example`, and one that may only ask.
const TOPOLOGY: &str = "topology:
  nodes: {n1: {addresses: [192.0.2.1], podCIDRs: [10.0.0.0/24]}}
  pods: {a/one: {labels: {app: one}, ips: [10.0.0.1], node: n1}, a/two: {labels: {app: two}, ips: [10.0.0.2], node: n1}}
  objects:
  - apiVersion: policy.networking.k8s.io/v1alpha2
    kind: ClusterNetworkPolicy
    metadata: {name: dns}
    spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Accept, to: [{networks: [203.0.113.0/24]}], protocols: [{udp: {destinationPort: {number: 53}}}, {tcp: {destinationPort: {number: 53}}}]}]}
  - apiVersion: policy.networking.k8s.io/v1alpha2
    kind: ClusterNetworkPolicy
    metadata: {name: names}
    spec:
      tier: Admin
      priority: 2
      subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: one}}}}
      egress: [{action: Accept, to: [{domainNames: ['*.example']}]}]
  - apiVersion: policy.networking.k8s.io/v1alpha2
    kind: ClusterNetworkPolicy
    metadata: {name: rest}
    spec: {tier: Admin, priority: 3, subject: {namespaces: {}}, egress: [{action: Deny, to: [{networks: [0.0.0.0/0]}]}]}
  dns:
    servers: {203.0.113.53: {}, 203.0.113.54: {silent: true}, 203.0.113.55: {spoof: [id, port, question, source]}, 198.51.100.53: {}}
    zones:
      api.example: {A: [198.51.100.7], ttl: 1}
      www.example: {CNAME: api.example, ttl: 60}
      in.example: {A: [192.0.2.1, 10.0.0.2, 198.51.100.8]}
      '*.wild.example': {A: [198.51.100.9]}
      many.example: {A: [198.51.100.0/28], rotate: 4}
";

fn play(steps: &str) -> String {
    let text = format!("{TOPOLOGY}steps:\n{steps}\n");
    let scenario = match Scenario::parse(&text, "f", Path::new(".")) {
        Ok(scenario) => scenario,
        Err(error) => return error.to_string(),
    };
    run(&scenario).failures(&scenario).join("\n")
}

#[track_caller]
fn check(steps: &str) {
    assert_eq!(play(steps), "");
}

#[track_caller]
fn fails(steps: &str, expected: Expect) {
    expected.assert_eq(&play(steps));
}

#[test]
fn what_is_resolved_is_open_to_whom_a_rule_names() {
    check(
        "- resolve: a/one api.example\n- probe: [a/one -> api.example:443/TCP: allow, a/two -> 198.51.100.7:443/TCP: deny]",
    );
    check(
        "- resolve: {from: a/one, name: API.Example., case: mixed, expect: {addresses: [198.51.100.7], leased: [198.51.100.7]}, then: 443/TCP allow by ClusterNetworkPolicy/names}",
    );
    check("- resolve: {from: a/two, name: www.example, then: 443/TCP deny by ClusterNetworkPolicy/rest}");
    check(
        "- resolve: {from: a/one, name: in.example, expect: {leased: [198.51.100.8], refused: [192.0.2.1, 10.0.0.2]}}",
    );
    check("- resolve: {from: a/one, name: '*.wild.example', times: 50, parallel: 8, then: 443/TCP allow}");
    check(
        "- zone: {many.example: {A: [198.18.0.0/20], rotate: 16}}\n- resolve: {from: a/one, name: many.example, times: 256, then: 443/TCP allow}\n- probe: [a/one -> 198.18.0.0:443/TCP: deny]",
    );
    check(
        "- resolve: {from: a/one, name: many.example, times: 4, expect: {addresses: 4}, then: 443/TCP allow}\n- probe: [a/one -> 198.51.100.15:443/TCP: allow]",
    );
    check("- resolve: {from: a/one, name: api, search: [nowhere.example, example], then: 443/TCP allow}");
    // Whoever has no rule learns nothing, for itself or anybody else.
    check(
        "- resolve: {from: a/two, name: api.example, expect: {leased: []}}\n- probe: [a/one -> 198.51.100.7:443/TCP: deny]",
    );
    check("- resolve: {from: a/one, name: nobody.example, expect: {rcode: NXDOMAIN}}");
    check("- resolve: {from: a/one, name: api.example, type: AAAA, expect: {addresses: []}}");
}

#[test]
fn settings_time_and_changes_of_zones_are_played() {
    check(
        "- settings: {grace: 1s}\n- resolve: a/one api.example\n- advance: 1999ms\n- probe: [a/one -> 198.51.100.7:1/TCP: allow]\n- advance: 1ms\n- probe: [a/one -> 198.51.100.7:1/TCP: deny]",
    );
    check(
        "- zone: {api.example: {A: 198.51.100.70}, www.example: null}\n- resolve: {from: a/one, name: api.example, expect: {addresses: [198.51.100.70]}}\n- resolve: {from: a/one, name: www.example, expect: {rcode: NXDOMAIN}}",
    );
    check(
        "- settings: {slowKernel: 300ms}\n- resolve: {from: a/one, name: api.example, expect: {rcode: SERVFAIL}}\n- settings: {onLearnTimeout: release}\n- resolve: a/one api.example\n- settings: {holdLimit: 1s, onLearnTimeout: servfail}\n- resolve: a/one api.example",
    );
    // Nobody learns while there is no agent.
    check(
        "- restart: {how: stop, meanwhile: [{resolve: {from: a/one, name: api.example, expect: {leased: []}, then: 443/TCP deny}}]}\n- resolve: {from: a/one, name: api.example, then: 443/TCP allow}",
    );
    fails(
        "- restart: {how: kill, meanwhile: [{advance: 2999ms}, {resolve: a/one api.example}]}",
        expect!["f: line 30: nobody can tell who answers: the kernel may take 3 s to notice a killed agent"],
    );
    check("- restart: {how: kill, meanwhile: [{advance: 3s}, {resolve: a/one api.example}]}");
    check("- restart: {how: upgrade, meanwhile: [{resolve: {from: a/one, name: api.example, then: 443/TCP allow}}]}");
    check(
        "- resolve: a/one www.example\n- restart: {how: kill, for: 2s, meanwhile: [{probe: [a/one -> 198.51.100.7:1/TCP: allow]}]}\n- probe: [a/one -> 198.51.100.7:1/TCP: allow]",
    );
}

#[test]
fn servers_that_misbehave_are_seen_through() {
    check(
        "- resolve: {from: a/one, name: api.example, server: 203.0.113.54, expect: {timeout: true}}\n- queries: {203.0.113.54: 1, 203.0.113.53: none}",
    );
    check(
        "- resolve: {from: a/one, name: api.example, server: 203.0.113.55, expect: {addresses: [198.51.100.7]}}\n- probe: [a/one -> 203.0.113.66:443/TCP: deny]",
    );
    check(
        "- settings: {upstreams: [203.0.113.54, 203.0.113.53]}\n- resolve: {from: a/one, name: api.example, server: 203.0.113.54}\n- queries: {203.0.113.54: some, 203.0.113.53: some}",
    );
    // One that is meant and may be is asked alone, unless it is an upstream; one that may not be is not asked.
    check(
        "- resolve: {from: a/one, name: api.example, server: 203.0.113.54, expect: {timeout: true}}\n- queries: {203.0.113.53: none}",
    );
    check(
        "- settings: {upstreams: [203.0.113.53]}\n- resolve: {from: a/one, name: api.example, server: 203.0.113.54, expect: {leased: [198.51.100.7]}}\n- queries: {203.0.113.54: none, 203.0.113.53: 1}",
    );
    // No rule opens this server.
    check(
        "- resolve: {from: a/one, name: api.example, server: 198.51.100.53, expect: {timeout: true}}\n- queries: {198.51.100.53: none}",
    );
}

#[test]
fn what_goes_otherwise_is_told() {
    fails(
        "- resolve: {from: a/one, name: www.example, expect: {addresses: [198.51.100.1], leased: []}, then: 443/TCP deny}\n- queries: {203.0.113.53: 7}",
        expect![[r#"
            f:30: a/one -> 198.51.100.7:443/TCP, with the answer for www.example
              expected deny
              got allow: egress by ClusterNetworkPolicy/names egress rule 0; ingress no pod with policies of its own
            f:30: a/one resolves www.example A
              expected 198.51.100.1, leased: none
              got 198.51.100.7, leased: 198.51.100.7, refused: none
            f:31: queries that 203.0.113.53 got
              expected 7
              got 1"#]],
    );
    fails(
        "- resolve: a/three api.example",
        expect!["f: line 30: there is no workload or Service a/three in the input"],
    );
}

#[test]
fn slips_are_told_with_their_place() {
    fails("- resolve: a/one", expect!["f:30:12: write FROM NAME, like shop/web api.example.com"]);
    fails(
        "- resolve: {from: a/one, name: api.example, hops: 3}",
        expect![
            "f:30:51: `hops` is not known here; use from, name, type, via, server, search, case, edns, times, parallel, expect, then"
        ],
    );
    fails(
        "- resolve: {from: a/one, name: api.example, expect: {rcode: OOPS}}",
        expect![
            "f:30:61: `OOPS` is no rcode; use one of NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, YXDOMAIN, YXRRSET, NXRRSET, NOTAUTH, NOTZONE"
        ],
    );
    fails(
        "- resolve: {from: a/one, name: api.example, expect: {timeout: true, addresses: []}}",
        expect!["f:30:53: one of addresses, rcode, timeout and fails is enough"],
    );
    fails(
        "- resolve: {from: a/one, name: api.example, then: maybe}",
        expect!["f:30:51: `maybe`: write a port and what is expected, like `443/TCP allow`"],
    );
    fails(
        "- resolve: {from: a/one, name: api.example, times: 0}",
        expect!["f:30:12: `times` and `parallel` are 1 to 20000"],
    );
    fails(
        "- resolve: {from: a/one, name: api.example, type: B}",
        expect!["f:30:12: `B` is no type of record; use A, AAAA, CNAME, TXT, TYPE65 …"],
    );
    fails(
        "- zone: {api.example: {B: 1}}",
        expect![
            "f:30:27: `B` is not known here; use a type of record, ttl, rotate, chase, answer, authority, additional, rcode"
        ],
    );
    fails(
        "- zone: {api.example: {A: [198.51.0.0/15]}}",
        expect!["f:30:27: `198.51.0.0/15`: more than 16384 addresses"],
    );
    fails(
        "- zone: {api.example: {CNAME: b.example, A: 198.51.100.7}}",
        expect!["f:30:23: an owner with a CNAME has no other records"],
    );
    fails(
        "- zone: {api.example: {answer: [api.example A 198.51.100.7]}}",
        expect![
            "f:30:33: `api.example A 198.51.100.7`: write a record as OWNER TTL TYPE DATA, like `www.example 30 A 198.51.100.7`"
        ],
    );
    fails("- queries: {203.0.113.53: many}", expect!["f:30:27: queries are none, some, or a number"]);
    fails("- settings: {onLearnTimeout: never}", expect!["f:30:30: `onLearnTimeout` is servfail or release"]);
    let network = expect!["f:30:27: this is not a network: write it as 198.51.100.0/24"];
    fails("- settings: {neverLease: [example.com]}", network);
    let prefix = expect!["f:30:27: a NAT64 prefix is one of IPv6, of 32, 40, 48, 56, 64 or 96 bits"];
    fails("- settings: {nat64Prefix: ['2001:db8::/33']}", prefix);
    fails("- restart: {how: nicely}", expect!["f:30:18: `how` is stop, kill or upgrade"]);
    fails(
        "- restart: {meanwhile: [{settings: {grace: 1s}}]}",
        expect!["f:30:25: meanwhile there is no agent: nothing of it can be changed"],
    );
    let without = "steps: [{resolve: a/one api.example}]";
    let error = Scenario::parse(without, "f", Path::new(".")).unwrap_err();
    expect!["f:1:19: there is no DNS outside; write who answers, under topology: dns: servers"]
        .assert_eq(&error.to_string());
    let server = "topology: {dns: {servers: {203.0.113.53: {sleepy: true}}}}\nprobes: []";
    let error = Scenario::parse(server, "f", Path::new(".")).unwrap_err();
    expect!["f:1:51: `sleepy` is not known here; use slow, silent, rcode, truncate, tcpOnly, udpOnly, drop, spoof, garbage, wrongCase, compress"].assert_eq(&error.to_string());
}
