//! Random clusters, policies, leases and connections. The universe is small on
//! purpose: few labels, addresses, ports and names, so that things meet. Lists
//! of choices go from plain to odd, since proptest shrinks towards the first.

mod cluster;
mod flow;
mod new_pods;
mod policy;
mod print;

pub(crate) use flow::is_others_too;
pub(crate) use new_pods::{NewPod, new_pods};
pub(crate) use print::flow_text;

use namewall_policy::domain::{DomainPattern, Effect, RulePattern, Wildcard};
use namewall_policy::labels::{Labels, Requirement, Selector};
use namewall_policy::snapshot::NAMESPACE_NAME_LABEL;
use namewall_policy::{Flow, Instant, Lease, Snapshot};
use proptest::prelude::*;
use proptest::sample::select;
use std::fmt::Debug;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const NAMESPACES: [&str; 3] = ["n0", "n1", "n2"];
/// The edges of every range that rules are made of, and their neighbours.
pub(crate) const PORTS: [u16; 11] = [80, 0, 1, 79, 81, 442, 443, 444, 8080, 65534, 65535];

/// Node ports of Services, few of them, so that flows meet them.
const NODE_PORTS: [u16; 2] = [80, 443];

/// Addresses that are nobody's: outside, at the edges of blocks, and some
/// where pods might be.
const NOBODY: [&str; 14] = [
    "192.0.2.0",
    "192.0.2.1",
    "192.0.2.2",
    "192.0.2.10",
    "198.51.100.7",
    "127.255.255.255",
    "128.0.0.0",
    "255.255.255.255",
    "10.0.0.200",
    "10.0.1.200",
    "2001:db8::1",
    "fd00::99",
    "172.17.0.1",
    "fe80::1",
];
/// Nobody's but the last, which is a pod's.
const LEASED: [&str; 4] = ["192.0.2.0", "198.51.100.7", "2001:db8::1", "10.0.0.1"];
const NAMES: [&str; 4] = ["example.com", "a.example.com", "b.a.example.com", "other.org"];

/// Everything one case is judged by. `Debug` prints it for reading.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) snapshot: Snapshot,
    pub(crate) leases: Vec<Lease>,
    pub(crate) now: Instant,
    pub(crate) flows: Vec<Flow>,
}

pub(crate) fn cases() -> impl Strategy<Value = Case> {
    let policies = prop::collection::vec(policy::policies(), 0..16);
    let leases = prop::collection::vec(leases(), 0..20);
    let flows = prop::collection::vec(flow::flows(), 1..24);
    (cluster::clusters(), policies, leases, flows).prop_map(|(cluster, policies, leases, flows)| {
        let mut snapshot = cluster.build();
        snapshot.policies = policy::name_apart(policies).into();
        let flows = flows.iter().map(|flow| flow.build(&snapshot)).collect();
        Case { snapshot, leases, now: at(10), flows }
    })
}

/// Some are over before, some just at the moment of judgement (S6.4).
fn leases() -> impl Strategy<Value = Lease> {
    let patterns = prop_oneof![patterns(Wildcard::Subdomains), patterns(Wildcard::OneLabel)];
    let lease = (patterns, prop::bool::weighted(0.3), select(LEASED.to_vec()), select(vec![20, 11, 10, 5]));
    lease.prop_map(|(names, denies, address, expiry)| {
        let name = match &names {
            DomainPattern::Exact(name) => name.clone(),
            wildcard => read(&format!("w.{}", wildcard.domain())),
        };
        let pattern = RulePattern { names, effect: if denies { Effect::Deny } else { Effect::Allow } };
        Lease { pattern, name, address: read(address), expiry: at(expiry), asked_by: None }
    })
}

fn patterns(wildcard: Wildcard) -> impl Strategy<Value = DomainPattern> {
    select(vec!["example.com", "*.example.com", "*.a.example.com"])
        .prop_map(move |text| DomainPattern::parse(text, wildcard).expect("the patterns are well formed"))
}

fn labels() -> impl Strategy<Value = Labels> {
    let values = || select(vec![None, Some("x"), Some("y")]);
    (values(), values())
        .prop_map(|(a, b)| [("a", a), ("b", b)].into_iter().filter_map(|(k, v)| Some((k, v?))).collect())
}

fn selectors() -> impl Strategy<Value = Selector> {
    let requirements =
        (select(vec!["a", "b"]), 0..6usize, select(vec!["x", "y"])).prop_map(|(key, operator, value)| {
            let key: Arc<str> = key.into();
            match operator {
                0 | 1 => Requirement::In { key, values: vec![value.into()] },
                2 => Requirement::In { key, values: vec!["x".into(), "y".into()] },
                3 => Requirement::NotIn { key, values: vec![value.into()] },
                4 => Requirement::Exists { key },
                _ => Requirement::DoesNotExist { key },
            }
        });
    let some = |count| prop::collection::vec(requirements.clone(), count);
    prop_oneof![4 => Just(Vec::new()), 4 => some(1), 1 => some(2)].prop_map(|requirements| Selector { requirements })
}

/// Namespaces are also selected by the label that is their name.
fn namespace_selectors() -> impl Strategy<Value = Selector> {
    let by_name = select(NAMESPACES.to_vec()).prop_map(|name| Selector::label(NAMESPACE_NAME_LABEL, name));
    prop_oneof![4 => selectors(), 1 => by_name]
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().copied().map(read).collect()
}

/// Reads one of the texts this generator is made of.
fn read<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().expect("the generator's texts are well formed")
}

fn at(seconds: u64) -> Instant {
    Instant(Duration::from_secs(seconds))
}
