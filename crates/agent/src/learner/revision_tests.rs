//! What becomes of leases when policies, pods, nodes and Services change (S6.3),
//! on a data plane in memory.

use super::*;
use crate::testing::{Bench, DB, WEB, answer, ip, names_of, names_of_web, program};
use namewall_dataplane::Connection;
use namewall_policy::lease::NeverLeased;
use namewall_policy::port::Protocol;
use namewall_policy::{LeaseTable, Verdict};
use std::net::{Ipv4Addr, SocketAddr};

const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const OTHER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 8);

impl Bench {
    fn enforces(&mut self, documents: &[String]) {
        self.node.enforce(&program(documents)).expect("memory takes it");
    }

    fn is_open(&self, to: Ipv4Addr) -> bool {
        self.verdict(WEB, to) == Verdict::Allow
    }

    fn passes(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// What was revoked, in all.
    fn revoked(&self) -> u64 {
        self.learner().counters().revoked_by.iter().sum()
    }
}

fn rules() -> String {
    names_of_web(&["*.example.com"])
}

fn pod_at(address: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: new, namespace: shop, labels: {{app: new}}}},
          spec: {{nodeName: n1}}, status: {{phase: Running, podIP: {address}}}}}"
    )
}

fn node_at(address: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: n2}},
          status: {{addresses: [{{type: InternalIP, address: {address}}}]}}}}"
    )
}

fn service_at(address: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: s, namespace: shop}},
          spec: {{clusterIP: {address}, ports: [{{port: 80}}]}}}}"
    )
}

#[test]
fn s6_3_a_lease_ends_when_its_address_becomes_one_of_the_inside() {
    type At = fn(&str) -> String;
    let inside: [(At, Refusal); 2] = [(pod_at, Refusal::Pod), (service_at, Refusal::Service)];
    for (at, why) in inside {
        let mut bench = Bench::new(&[rules()]);
        bench.hears(WEB, &answer("api.example.com", &[OUTSIDE, OTHER], 60));
        bench.enforces(&[rules(), at("198.51.100.7")]);
        let open: Vec<IpAddr> = bench.memory.leases().iter().map(|lease| lease.address).collect();
        assert_eq!(open, [OTHER], "{why:?}: one is gone from the data plane, the other stays");
        assert_eq!(bench.revoked(), 1, "{why:?}");
        assert!(bench.is_open(OTHER) && !bench.is_open(OUTSIDE));
        // When no pod has the address any more, it stays closed until another answer names it.
        bench.enforces(&[rules()]);
        assert!(!bench.is_open(OUTSIDE));
        bench.hears(WEB, &answer("api.example.com", &[OUTSIDE], 60));
        assert!(bench.is_open(OUTSIDE));
    }
    let mut bench = Bench::new(&[rules()]);
    bench.hears(WEB, &answer("api.example.com", &[OUTSIDE], 60));
    bench.enforces(&[rules(), node_at("198.51.100.7")]);
    assert_eq!((bench.memory.leases().len(), bench.revoked()), (0, 1));
}

#[test]
fn s6_8_a_lease_of_a_form_ends_with_the_address_that_it_carries() {
    let mut bench = Bench::new(&[rules()]);
    let name = "api.example.com".parse().unwrap();
    let heard = Heard { name, address: ip("64:ff9b::198.51.100.7"), left: Duration::from_secs(60) };
    assert_eq!(bench.learner().hear(&[heard]).unwrap(), 1);
    bench.enforces(&[rules(), pod_at("198.51.100.9")]);
    assert_eq!(bench.memory.leases().len(), 1);
    bench.enforces(&[rules(), pod_at("198.51.100.7")]);
    assert_eq!(bench.memory.leases(), []);
}

#[test]
fn s6_8_a_lease_ends_when_settings_name_its_network() {
    let mut bench = Bench::new(&[rules()]);
    bench.hears(WEB, &answer("api.example.com", &[OUTSIDE], 60));
    let never = NeverLeased::new("cluster.local".parse().unwrap());
    bench.node.set_never_leased(never.and_networks(&["198.51.100.0/24".parse().unwrap()]));
    bench.enforces(&[rules()]);
    assert_eq!((bench.memory.leases().len(), bench.revoked()), (0, 1));
}

fn denies(name: &str) -> String {
    format!(
        "{{apiVersion: k8s.ovn.org/v1, kind: EgressFirewall, metadata: {{name: default, namespace: shop}},
          spec: {{egress: [{{type: Deny, to: {{dnsName: {name}}}}}]}}}}"
    )
}

/// What is never leased must not be opened by an answer. To deny it opens nothing.
#[test]
fn s6_8_a_denied_name_stays_denied_wherever_it_leads() {
    let metadata = Ipv4Addr::new(169, 254, 169, 254);
    let mut bench = Bench::new(&[denies("bad.example.com")]);
    assert!(bench.is_open(metadata) && bench.is_open(OUTSIDE));
    bench.hears(WEB, &answer("bad.example.com", &[metadata, OUTSIDE], 60));
    let denied = [metadata, OUTSIDE];
    assert!(denied.into_iter().all(|address| !bench.is_open(address)));
    // A tenant makes one of the addresses such as are never leased.
    bench.enforces(&[denies("bad.example.com"), service_at("198.51.100.7")]);
    assert!(denied.into_iter().all(|address| !bench.is_open(address)));
    bench.restart(&[denies("bad.example.com"), service_at("198.51.100.7")]);
    assert!(denied.into_iter().all(|address| !bench.is_open(address)), "the next process keeps it");
    assert_eq!(bench.revoked(), 0);
    // What others publish of the name counts, too.
    let node = Ipv4Addr::new(192, 0, 2, 1);
    let heard = Heard { name: "bad.example.com".parse().unwrap(), address: node.into(), left: Duration::from_secs(60) };
    assert_eq!(bench.learner().hear(&[heard]).unwrap(), 1);
    assert!(!bench.is_open(node));
}

#[test]
fn s6_8_a_name_that_is_denied_and_allowed_opens_nothing_inside() {
    let metadata = Ipv4Addr::new(169, 254, 169, 254);
    let mut bench = Bench::new(&[names_of_web(&["api.example.com"])]);
    bench.hears(WEB, &answer("api.example.com", &[metadata, OUTSIDE], 60));
    assert!(!bench.is_open(metadata) && bench.is_open(OUTSIDE));
    // A Deny of the same name has leases inside. None of them carries over to the rule that allows it.
    let both = [denies("api.example.com"), names_of_web(&["api.example.com"])];
    bench.enforces(&both);
    bench.hears(WEB, &answer("api.example.com", &[metadata, OTHER], 60));
    assert!(!bench.is_open(metadata) && !bench.is_open(OUTSIDE) && !bench.is_open(OTHER));
    bench.restart(&both);
    bench.enforces(&[names_of_web(&["api.example.com"])]);
    assert!(!bench.is_open(metadata) && bench.is_open(OUTSIDE) && bench.is_open(OTHER));
}

#[test]
fn s6_6_a_change_that_fails_leaves_the_leases_as_they_were() {
    let mut bench = Bench::new(&[rules()]);
    bench.hears(WEB, &answer("api.example.com", &[OUTSIDE], 60));
    bench.memory.refuse(true);
    bench.node.enforce(&program(&[rules(), pod_at("198.51.100.7")])).expect_err("it refuses");
    bench.memory.refuse(false);
    assert_eq!((bench.memory.leases().len(), bench.node.with_leases(LeaseTable::len), bench.revoked()), (1, 1, 0));
    bench.enforces(&[rules(), pod_at("198.51.100.7")]);
    assert_eq!((bench.memory.leases().len(), bench.revoked()), (0, 1));
}

#[test]
fn s6_3_a_lease_carries_over_to_another_pattern_of_its_name() {
    let (exact, wide) = (names_of_web(&["api.example.com"]), rules());
    for (before, after) in [(&exact, &wide), (&wide, &exact)] {
        let mut bench = Bench::new(std::slice::from_ref(before));
        bench.hears(WEB, &answer("api.example.com", &[OUTSIDE], 60));
        bench.passes(30);
        bench.enforces(std::slice::from_ref(after));
        assert!(bench.is_open(OUTSIDE), "both allow the name");
        assert_eq!(bench.memory.leases().len(), 1, "the other pattern's is gone");
        bench.passes(34);
        assert!(bench.is_open(OUTSIDE));
        bench.passes(1);
        assert!(!bench.is_open(OUTSIDE), "it is not made longer");
    }
    let mut bench = Bench::new(&[wide]);
    bench.hears(WEB, &answer("www.example.com", &[OUTSIDE], 60));
    bench.enforces(&[exact]);
    assert!(!bench.is_open(OUTSIDE), "another name");
}

#[test]
fn s6_4_a_connection_outlives_its_lease_and_the_pattern() {
    let mut bench = Bench::new(&[names_of_web(&["api.example.com"])]);
    bench.hears(WEB, &answer("api.example.com", &[OUTSIDE], 60));
    let connection =
        Connection::between(Protocol::Tcp, SocketAddr::new(ip(WEB), 1_000), SocketAddr::new(OUTSIDE.into(), 443));
    bench.memory.connect(vec![connection]);
    bench.passes(100);
    bench.enforces(&[rules()]);
    assert_eq!(bench.memory.connected().len(), 1, "the name allowed it, and does");
    assert!(!bench.is_open(OUTSIDE), "but no new one");
    bench.enforces(&[names_of_web(&["www.example.com"])]);
    assert_eq!(bench.memory.connected().len(), 0, "no rule allows it");
}

#[test]
fn s6_4_a_connection_outlives_a_lease_that_had_to_make_room() {
    let mut bench = Bench::new(&[rules()]);
    bench.hears(WEB, &answer("api.example.com", &[OUTSIDE], 60));
    let connection =
        Connection::between(Protocol::Tcp, SocketAddr::new(ip(WEB), 1_000), SocketAddr::new(OUTSIDE.into(), 443));
    bench.memory.connect(vec![connection]);
    let others: Vec<Ipv4Addr> = (0..1_000_u32).map(|at| Ipv4Addr::from(0xc612_0000 + at)).collect();
    bench.hears(WEB, &answer("api.example.com", &others, 600));
    assert!(!bench.is_open(OUTSIDE), "the name has as many others as it may");
    bench.enforces(&[rules(), names_of("db", &["other.test"])]);
    assert_eq!(bench.memory.connected().len(), 1, "what makes room cuts nothing");
    bench.enforces(&[names_of_web(&["www.example.com"])]);
    assert_eq!(bench.memory.connected().len(), 0, "no rule allows it");
}

#[test]
fn s6_3_a_rule_that_comes_back_finds_what_is_still_good() {
    let mut bench = Bench::new(&[rules()]);
    bench.hears(WEB, &answer("api.example.com", &[OUTSIDE], 60));
    bench.enforces(&[names_of_web(&["other.test"])]);
    assert_eq!(bench.memory.leases(), [], "no rule allows it");
    assert!(!bench.is_open(OUTSIDE));
    bench.passes(30);
    bench.enforces(&[rules()]);
    assert!(bench.is_open(OUTSIDE));
    bench.passes(35);
    assert!(!bench.is_open(OUTSIDE));
}

#[test]
fn a_restart_keeps_what_leases_say() {
    let mut bench = Bench::new(&[rules()]);
    bench.hears(WEB, &answer("api.example.com", &[OUTSIDE, OTHER], 60));
    let told = |bench: &Bench| {
        let mut all: Vec<Lease> = bench.node.with_leases(|leases| leases.all().collect());
        all.sort_by_key(|lease| lease.address);
        all
    };
    let before = told(&bench);
    assert!(before.iter().all(|lease| lease.asked_by == Some(ip(WEB))));
    bench.restart(&[rules()]);
    assert_eq!(told(&bench), before);
}

#[test]
fn s6_3_a_policy_opens_what_was_answered_before_it_came() {
    let deny = names_of_web(&["nothing.test"]);
    // With a policy that speaks of other names, and without any.
    for before in [vec![deny], Vec::new()] {
        let mut bench = Bench::new(&before);
        for _ in 0..2 {
            assert_eq!(bench.hears(WEB, &answer("api.example.com", &[OUTSIDE], 60)), Opens::Nothing);
        }
        bench.hears(WEB, &answer("www.example.com", &[Ipv4Addr::new(10, 0, 0, 2)], 60));
        bench.hears(DB, &answer("db.example.com", &[OTHER], 60));
        bench.passes(50);
        bench.enforces(&[rules()]);
        assert!(bench.is_open(OUTSIDE), "as if it had been there");
        assert_eq!(bench.memory.leases().len(), 1, "S6.8, and S6.10: db has no rule");
        assert_eq!(bench.learner().counters().refused, 1);
        bench.passes(14);
        assert!(bench.is_open(OUTSIDE));
        bench.passes(1);
        assert!(!bench.is_open(OUTSIDE), "for as long as the answer was good");
    }
}

#[test]
fn s6_3_what_was_answered_before_a_policy_came_ends_by_its_ttl() {
    let mut bench = Bench::new(&[]);
    bench.hears(WEB, &answer("api.example.com", &[OUTSIDE], 60));
    bench.passes(65);
    bench.enforces(&[rules()]);
    assert_eq!(bench.memory.leases(), []);
    assert!(!bench.is_open(OUTSIDE));
}

#[test]
fn s6_10_a_new_rule_of_one_subject_opens_nothing_for_another() {
    let mut bench = Bench::new(&[]);
    bench.hears(DB, &answer("api.example.com", &[OUTSIDE], 60));
    bench.enforces(&[rules()]);
    assert!(!bench.is_open(OUTSIDE), "db asked, and has no rule");
    bench.enforces(&[rules(), names_of("db", &["*.example.com"])]);
    assert_eq!(bench.verdict(DB, OUTSIDE), Verdict::Allow);
}

#[test]
fn s6_5_the_first_addresses_of_a_long_answer_are_leased() {
    let bench = Bench::new(&[rules()]);
    // More than fit by default; an answer over UDP has fewer.
    let addresses: Vec<Ipv4Addr> = (0..4_000_u32).map(|at| Ipv4Addr::from(0xc612_0000 + at)).collect();
    bench.hears(WEB, &answer("api.example.com", &addresses, 60));
    let open: Vec<IpAddr> = bench.memory.leases().iter().map(|lease| lease.address).collect();
    let first: Vec<IpAddr> = addresses[..1_000].iter().copied().map(IpAddr::V4).collect();
    assert_eq!(open, first);
    assert_eq!(bench.learner().counters().over_bound, 3_000, "the others are counted");
}

/// An answer that was read by the rules before a change, and is opened after it.
#[test]
fn s6_3_an_answer_that_meets_a_change_of_rules_opens_what_the_new_rules_allow() {
    let mut bench = Bench::new(&[rules()]);
    let (mut batch, bytes) = (Batch::default(), answer("api.example.com", &[OUTSIDE, OTHER], 60));
    bench.learner().learn(&Answer { client: ip(WEB), upstream: None, bytes: &bytes }, &mut batch);
    let edited = names_of_web(&["api.example.com", "*.example.org"]);
    bench.enforces(&[edited, pod_at("198.51.100.8")]);
    bench.learner().commit(&mut batch).expect("memory takes it");
    assert!(bench.is_open(OUTSIDE), "both versions of the rules allow the name");
    assert!(!bench.is_open(OTHER), "it is a pod's address by now");
    assert_eq!(bench.memory.leases().iter().filter(|lease| lease.address == OTHER).count(), 0);
}
