//! How rows read, and what happens at the bound.

use super::{Exposures, exposure};
use crate::labels::{Requirement, Selector};
use crate::model::{
    Action, Clauses, Direction, Enforcement, NamespaceScope, Peer, Peers, Placement, PodSet, Policy, PolicyKind,
    PolicyRef, PortMatch, Ports, Role, Rule, Subject, Workload,
};
use crate::snapshot::Snapshot;

/// One pod `app=db` in `shop`, which these peers may open these ports to.
fn allowed_from(peers: Vec<Requirement>, ports: Ports) -> Exposures {
    let set =
        |requirements| PodSet { namespaces: NamespaceScope::Named("shop".into()), pods: Selector { requirements } };
    let is_db = Requirement::In { key: "app".into(), values: vec!["db".into()] };
    let peers = peers.into_iter().map(|one| Peer::Pods(set(vec![one]))).collect();
    let clauses = Clauses::Match { peers: Peers::Listed(peers), ports };
    let rules = vec![Rule { name: None, action: Action::Allow, clauses, source: None }];
    let mut snapshot = Snapshot::default();
    let namespace = snapshot.ensure_namespace("shop");
    let labels = [("app", "db")].into_iter().collect();
    let pod = snapshot.new_pod(Role { namespace, labels, host_network: false }, "db");
    snapshot.add_workload(Workload { addresses: vec!["10.0.0.1".parse().unwrap()].into(), ..pod });
    snapshot.policies = vec![Policy {
        id: PolicyRef { kind: PolicyKind::NetworkPolicy, namespace: Some("shop".into()), name: "db".into() },
        placement: Placement::Network { isolates_ingress: true, isolates_egress: true },
        enforcement: Enforcement::Enforce,
        subject: Subject { pods: set(vec![is_db]), nodes: None },
        egress: rules.clone(),
        ingress: rules,
        source: None,
    }]
    .into();
    exposure(&snapshot)
}

/// The rows of one direction.
fn check(direction: Direction, peers: Vec<Requirement>, expected: &[&str]) {
    let found = allowed_from(peers, Ports::Any);
    let rows = found.rows.iter().filter(|row| row.direction == direction);
    let texts: Vec<String> = rows.map(|row| format!("{}: {}", row.peer, row.traffic)).collect();
    assert_eq!(texts, expected);
}

fn keys(values: &[&str]) -> Vec<std::sync::Arc<str>> {
    values.iter().map(|value| (*value).into()).collect()
}

#[test]
fn every_value_of_in_is_listed() {
    let is_in = Requirement::In { key: "app".into(), values: keys(&["web", "api"]) };
    check(Direction::Ingress, vec![is_in], &["pods app in (api,web) in shop: everything"]);
}

#[test]
fn s2_8_not_in_and_does_not_exist_select_just_those_pods() {
    let not_in = Requirement::NotIn { key: "app".into(), values: keys(&["web"]) };
    check(Direction::Ingress, vec![not_in], &["pods app!=web in shop: everything"]);
    let missing = Requirement::DoesNotExist { key: "app".into() };
    check(Direction::Ingress, vec![missing], &["pods app does not exist in shop: everything"]);
}

#[test]
fn a_rule_by_named_port_opens_the_port_of_that_name() {
    let web = Requirement::In { key: "app".into(), values: keys(&["web"]) };
    let ports = Ports::Listed(vec![PortMatch::Named { protocol: None, name: "http".into() }]);
    let found = allowed_from(vec![web], ports);
    let row = &found.rows[0];
    assert_eq!((row.direction, row.peer.to_string()), (Direction::Egress, "pods app=web in shop".to_owned()));
    assert!(row.traffic.is_none());
    let named: Vec<String> = row.named.iter().map(|named| format!("{} {}", named.protocol, named.name)).collect();
    assert_eq!(named, ["TCP http", "UDP http", "SCTP http"]);
    assert!(row.named.iter().all(|named| named.ports == crate::port::usable_ports()));
}

#[test]
fn pods_that_are_divided_too_often_are_named() {
    let peers = (0..13).map(|number| Requirement::Exists { key: format!("key-{number}").into() }).collect();
    let found = allowed_from(peers, Ports::Any);
    let unresolved: Vec<String> = found.unresolved.iter().map(ToString::to_string).collect();
    assert_eq!(unresolved, ["all pods in shop"]);
    assert!(found.rows.is_empty(), "{:?}", found.rows);
}
