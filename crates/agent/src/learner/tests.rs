//! Learning on a data plane in memory.

use super::*;
use crate::share::Share;
use crate::testing::{Bench, DB, UPSTREAM, WEB, answer, ip, names_of_web, program};
use namewall_dataplane::memory::Memory;
use namewall_policy::port::Protocol;
use namewall_policy::{Flow, Verdict};
use proptest::prelude::*;
use std::net::Ipv4Addr;

const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const OTHER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 8);

fn bench() -> Bench {
    Bench::new(&[names_of_web(&["*.example.com"])])
}

impl Bench {
    pub(super) fn learner(&self) -> &Learner<Memory> {
        self.node.learner()
    }

    /// Learns an answer, and opens it.
    pub(super) fn hears(&self, client: &str, bytes: &[u8]) -> Opens {
        let mut batch = Batch::default();
        let opens = self.learner().learn(&Answer { client: ip(client), upstream: Some(UPSTREAM), bytes }, &mut batch);
        self.learner().commit(&mut batch).expect("memory takes it");
        opens
    }

    pub(super) fn verdict(&self, client: &str, to: Ipv4Addr) -> Verdict {
        let (program, protocol) = (self.node.program(), Protocol::Tcp);
        let (from, to) = (program.endpoint_at(ip(client)), program.endpoint_at(to.into()));
        let flow = Flow { from, hop: None, masker: None, to, protocol, port: 443, via: None };
        self.memory.judge(&flow, self.node.now()).verdict
    }
}

#[test]
fn s6_6_an_answer_opens_once_it_is_committed_and_is_held_until_then() {
    let bench = bench();
    let bytes = answer("api.example.com", &[OUTSIDE], 60);
    let mut batch = Batch::default();
    assert_eq!(
        bench.learner().learn(&Answer { client: ip(WEB), upstream: Some(UPSTREAM), bytes: &bytes }, &mut batch),
        Opens::New
    );
    assert_eq!(bench.verdict(WEB, OUTSIDE), Verdict::Deny);
    bench.learner().commit(&mut batch).expect("memory takes it");
    assert_eq!(bench.verdict(WEB, OUTSIDE), Verdict::Allow);
    assert_eq!(bench.verdict(WEB, OTHER), Verdict::Deny);
}

#[test]
fn s6_3_a_lease_lasts_for_its_ttl_and_the_grace() {
    let bench = bench();
    bench.hears(WEB, &answer("api.example.com", &[OUTSIDE], 60));
    bench.clock.advance(Duration::from_secs(64));
    assert_eq!(bench.verdict(WEB, OUTSIDE), Verdict::Allow);
    bench.clock.advance(Duration::from_secs(1));
    assert_eq!(bench.verdict(WEB, OUTSIDE), Verdict::Deny);
}

#[test]
fn s6_3_no_ttl_opens_for_longer_than_the_maximum() {
    let bench = bench();
    let hour = Duration::from_secs(3_600);
    bench.hears(WEB, &answer("api.example.com", &[OUTSIDE], 2_000_000_000));
    let heard = Heard { name: "b.example.com".parse().unwrap(), address: OTHER.into(), left: hour * 100_000 };
    assert_eq!(bench.learner().hear(&[heard]).unwrap(), 1);
    bench.clock.advance(hour + Duration::from_secs(4));
    assert_eq!((bench.verdict(WEB, OUTSIDE), bench.verdict(WEB, OTHER)), (Verdict::Allow, Verdict::Allow));
    bench.clock.advance(Duration::from_secs(1));
    assert_eq!((bench.verdict(WEB, OUTSIDE), bench.verdict(WEB, OTHER)), (Verdict::Deny, Verdict::Deny));
}

#[test]
fn an_answer_that_is_open_already_is_not_held() {
    let bench = bench();
    let bytes = answer("api.example.com", &[OUTSIDE], 60);
    assert_eq!(bench.hears(WEB, &bytes), Opens::New);
    assert_eq!(bench.hears(WEB, &bytes), Opens::Nothing);
    bench.clock.advance(Duration::from_secs(10));
    // Open for as long as the answer may be used, by the grace of the first: it is only made longer.
    bench.clock.advance(Duration::from_millis(1));
    assert_eq!(bench.hears(WEB, &answer("api.example.com", &[OUTSIDE], 52)), Opens::Renewal);
    assert_eq!(bench.hears(WEB, &bytes), Opens::New);
}

/// Learns an answer while another thread holds the data plane and the leases. None if it waits for that thread.
fn learned_while_held(learner: &Learner<Memory>, bytes: &[u8], patience: Duration) -> Option<Opens> {
    std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let held = learner.enforcer.hold();
        scope.spawn(move || {
            let answer = Answer { client: ip(WEB), upstream: Some(UPSTREAM), bytes };
            let _ = sender.send(learner.learn(&answer, &mut Batch::default()));
        });
        let opens = receiver.recv_timeout(patience).ok();
        drop(held);
        opens
    })
}

#[test]
fn a_known_answer_waits_for_no_lock() {
    let bench = bench();
    let bytes = answer("api.example.com", &[OUTSIDE], 60);
    bench.hears(WEB, &bytes);
    let other = answer("www.example.com", &[OTHER], 60);
    assert_eq!(bench.hears(WEB, &bytes), Opens::Nothing, "from now on it is known by its bytes");
    assert_eq!(learned_while_held(bench.learner(), &bytes, Duration::from_secs(60)), Some(Opens::Nothing));
    // One that is not known is compared with the leases.
    assert_eq!(learned_while_held(bench.learner(), &other, Duration::from_millis(50)), None);
}

#[test]
fn a_counted_down_answer_waits_for_no_lock() {
    let bench = bench();
    let bytes = |address, ttl| answer("api.example.com", &[address], ttl);
    bench.hears(WEB, &bytes(OUTSIDE, 60));
    assert_eq!(bench.hears(WEB, &bytes(OUTSIDE, 60)), Opens::Nothing);
    let learned = |bytes: &[u8], seconds: u64| learned_while_held(bench.learner(), bytes, Duration::from_secs(seconds));
    for _ in 0..5 {
        bench.clock.advance(Duration::from_secs(10));
        let left = 60 - bench.node.now().0.as_secs() as u32;
        assert_eq!(learned(&bytes(OUTSIDE, left), 60), Some(Opens::Nothing), "{left} s are left");
    }
    assert_eq!(learned(&bytes(OUTSIDE, 5), 60), Some(Opens::Nothing), "it ends before the lease");
    // Another address is compared with the leases, and an answer that lasts longer.
    let patience = Duration::from_millis(50);
    for other in [bytes(OTHER, 10), bytes(OUTSIDE, 60)] {
        assert_eq!(learned_while_held(bench.learner(), &other, patience), None);
    }
    assert_eq!(bench.hears(WEB, &bytes(OTHER, 10)), Opens::New);
    assert_eq!(bench.hears(WEB, &bytes(OUTSIDE, 60)), Opens::New);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// What is learned of an answer does not depend on whether it is known.
    #[test]
    fn a_known_answer_opens_what_it_would_open_if_it_were_not_known(
        steps in prop::collection::vec(
            (0_u64..8_000, prop_oneof![4 => 0_u32..12, 1 => 3_590_u32..3_610], 0_u32..4, any::<bool>()),
            1..60,
        ),
    ) {
        let (knows, never_knows) = (bench(), bench());
        for (milliseconds, ttl, longer, is_other) in steps {
            let last = if is_other { OTHER } else { OUTSIDE };
            let mut bytes = answer("api.example.com", &[OUTSIDE, last], ttl);
            // The TTL of the last address.
            let at = bytes.len() - 10;
            bytes[at..at + 4].copy_from_slice(&(ttl + longer).to_be_bytes());
            knows.clock.advance(Duration::from_millis(milliseconds));
            never_knows.clock.advance(Duration::from_millis(milliseconds));
            // What is known of answers is known under the rules of then.
            never_knows.learner().rule_changes.fetch_add(1, Ordering::SeqCst);
            prop_assert_eq!(knows.hears(WEB, &bytes), never_knows.hears(WEB, &bytes));
            prop_assert_eq!(knows.memory.leases(), never_knows.memory.leases());
        }
    }
}

#[test]
fn s6_10_only_the_subject_of_a_rule_by_name_opens_anything() {
    let bench = bench();
    assert_eq!(bench.hears(DB, &answer("api.example.com", &[OUTSIDE], 60)), Opens::Nothing);
    assert_eq!(bench.hears("203.0.113.1", &answer("api.example.com", &[OUTSIDE], 60)), Opens::Nothing);
    assert_eq!(bench.hears(WEB, &answer("example.org", &[OUTSIDE], 60)), Opens::Nothing);
    assert_eq!(bench.memory.leases(), []);
}

#[test]
fn s6_6_what_the_data_plane_refuses_is_not_open_and_is_counted() {
    let bench = bench();
    let bytes = answer("api.example.com", &[OUTSIDE], 60);
    let mut batch = Batch::default();
    bench.memory.refuse(true);
    for failures in 1..=2 {
        assert_eq!(
            bench.learner().learn(&Answer { client: ip(WEB), upstream: Some(UPSTREAM), bytes: &bytes }, &mut batch),
            Opens::New
        );
        bench.learner().commit(&mut batch).expect_err("it refuses");
        assert_eq!(bench.learner().counters().failed, failures);
        assert_eq!(batch.len(), 0);
    }
    bench.memory.refuse(false);
    assert_eq!(bench.hears(WEB, &bytes), Opens::New, "nothing of it is taken for open");
    assert_eq!(bench.verdict(WEB, OUTSIDE), Verdict::Allow);
}

#[test]
fn s6_8_an_address_of_the_inside_is_refused_and_counted_each_time() {
    let bench = bench();
    let inside = Ipv4Addr::new(10, 0, 0, 2);
    for refused in 1..=2 {
        assert_eq!(bench.hears(WEB, &answer("api.example.com", &[inside], 60)), Opens::Nothing);
        assert_eq!(bench.learner().counters().refused, refused);
    }
    let logged = bench.learner().take_refused();
    assert!(matches!(logged.as_slice(), [one] if one.why == Refusal::Pod), "logged once: {logged:?}");
    assert_eq!(bench.memory.leases(), []);
}

#[test]
fn a_changed_rule_is_learned_for_again() {
    let mut bench = bench();
    let bytes = answer("api.example.org", &[OUTSIDE], 60);
    assert_eq!(bench.hears(WEB, &bytes), Opens::Nothing);
    bench.node.enforce(&program(&[names_of_web(&["*.example.org"])])).expect("memory takes it");
    assert_eq!(bench.verdict(WEB, OUTSIDE), Verdict::Allow, "S6.3: it was answered before the rule came");
    bench.clock.advance(Duration::from_millis(1_001));
    assert_eq!(bench.hears(WEB, &bytes), Opens::Renewal, "the answer is not known from before");
}

#[test]
fn an_answer_that_cannot_be_read_opens_nothing() {
    let bench = bench();
    let mut bytes = answer("api.example.com", &[OUTSIDE], 60);
    bytes.truncate(bytes.len() - 2);
    assert_eq!(bench.hears(WEB, &bytes), Opens::Unreadable);
    assert_eq!(bench.memory.leases(), []);
}

/// Remembers what was published.
#[derive(Debug, Default)]
struct Published(Mutex<Vec<String>>);

impl Share for Published {
    fn note(&self, _client: Option<IpAddr>, name: &DomainName, addresses: &[(IpAddr, Duration)]) {
        self.0.lock().unwrap().push(format!("{name} {addresses:?}"));
    }

    fn finish(&self) {
        self.0.lock().unwrap().push("finished".to_owned());
    }
}

#[test]
fn s8_5_what_is_learned_is_published_before_the_answer_is_released() {
    let bench = bench();
    let published = Arc::new(Published::default());
    bench.learner().share_with(published.clone());
    bench.hears(WEB, &answer("api.example.com", &[OUTSIDE], 60));
    assert_eq!(*published.0.lock().unwrap(), ["api.example.com [(198.51.100.7, 60s)]", "finished"]);
}

#[test]
fn s8_6_the_addresses_of_a_wildcard_record_open_for_rules_with_that_wildcard() {
    let bench = bench();
    let heard = |record: &str, address| Heard {
        name: DomainName::parse_recorded(record).unwrap(),
        address: IpAddr::V4(address),
        left: Duration::from_secs(30),
    };
    let all = [heard("*.example.com", OUTSIDE), heard("*.example.org", OTHER)];
    assert_eq!(bench.learner().hear(&all).unwrap(), 1);
    assert_eq!(bench.verdict(WEB, OUTSIDE), Verdict::Allow);
    assert_eq!(bench.verdict(WEB, OTHER), Verdict::Deny);
}

#[test]
fn what_other_nodes_have_learned_opens_here_for_rules_of_that_name() {
    let bench = bench();
    let heard = |name: &str, address| Heard {
        name: name.parse().unwrap(),
        address: IpAddr::V4(address),
        left: Duration::from_secs(30),
    };
    let inside = heard("api.example.com", Ipv4Addr::new(10, 0, 0, 2));
    let all = [heard("api.example.com", OUTSIDE), heard("example.org", OTHER), inside];
    assert_eq!(bench.learner().hear(&all).unwrap(), 1);
    assert_eq!(bench.learner().hear(&all).unwrap(), 0, "it is open");
    assert_eq!(bench.verdict(WEB, OUTSIDE), Verdict::Allow);
    assert_eq!(bench.memory.leases().len(), 1);
    bench.memory.refuse(true);
    bench.learner().hear(&[heard("b.example.com", OTHER)]).expect_err("the data plane refuses");
}

#[test]
fn s6_3_a_ttl_of_two_to_the_31_or_more_counts_as_zero() {
    let bench = Bench::new(&[names_of_web(&["*.example.com"])]);
    let lifetimes = Lifetimes::default();
    for (ttl, counted) in [(0x8000_0000, 0), (u32::MAX, 0), (0x7fff_ffff, 0x7fff_ffff), (60, 60)] {
        let name = format!("n{ttl}.example.com");
        bench.hears(WEB, &answer(&name, &[Ipv4Addr::new(198, 51, 100, 7)], ttl));
        let lease = bench.node.with_leases(|table| table.all().find(|lease| lease.name.as_str() == name));
        let expected = lifetimes.expiry(Duration::from_secs(counted), bench.learner().enforcer.now());
        assert_eq!(lease.map(|lease| lease.expiry), Some(expected), "{ttl}");
    }
}
