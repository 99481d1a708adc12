//! Views of tables that were rendered, as if the kernel had them.

use super::*;
use crate::nft::read::{LiveChain, LiveCounter, LiveSet};
use crate::nft::set::LeaseNote;
use crate::nft::table::Table;
use crate::render::{Ids, Scope, render};
use crate::sample::{self, Sample, WithRules as _};
use namewall_policy::domain::{DomainPattern, RulePattern};
use namewall_policy::model::{Action, Direction, Peer, Peers, PolicyKind, PortMatch, Ports};
use namewall_policy::port::Protocol;

/// The kernel's table after every rule and every counter has counted three packets.
fn live(table: &Table) -> Live {
    let mut live = Live::default();
    for (name, chain) in &table.chains {
        let rules = chain.rules.iter().map(|rule| {
            let expressions = rule.expressions();
            let counts = expressions.contains(&Expression::Counter);
            let count = counts.then_some(Count { packets: 3, bytes: 300 });
            LiveRule { expressions, comment: rule.comment.clone(), count }
        });
        live.chains.insert(name.clone(), LiveChain { hook: chain.hook.clone(), rules: rules.collect() });
    }
    for (name, comment) in &table.counters {
        let count = Count { packets: 3, bytes: 300 };
        live.counters.insert(name.clone(), LiveCounter { comment: Some(comment.clone()), count });
    }
    for (name, set) in &table.sets {
        live.sets.insert(name.clone(), LiveSet { spec: Some(set.spec.clone()), elements: set.elements.clone() });
    }
    live
}

fn port(number: u16) -> Ports {
    Ports::Listed(vec![PortMatch::Range { protocol: Protocol::Tcp, low: number, high: number }])
}

fn pattern() -> DomainPattern {
    DomainPattern::Exact("example.com".parse().unwrap())
}

fn cluster() -> Sample {
    let network = Peer::Network { cidr: "198.51.100.0/24".parse().unwrap(), except: Vec::new() };
    let web = sample::policy(PolicyKind::NetworkPolicy, "web", "web")
        .rule(Direction::Egress, Action::Allow, sample::clauses(sample::app("db"), port(5432)))
        .rule(
            Direction::Egress,
            Action::Allow,
            sample::clauses(Peers::Listed(vec![Peer::Domain(pattern())]), port(443)),
        );
    let gate = sample::policy(PolicyKind::ClusterEgressFirewall, "gate", "web").rule(
        Direction::Egress,
        Action::Deny,
        sample::clauses(Peers::Listed(vec![network]), Ports::Any),
    );
    Sample::default().pod("web", &["10.0.0.1"], "n1").pod("db", &["10.0.0.2"], "n1").policy(web).policy(gate)
}

fn seen() -> View {
    let program = cluster().program();
    let rendered = render(&program, &Scope::default(), &Ids::default());
    let group = rendered.lease_groups[&RulePattern::allow(pattern())][0];
    let (note, address) = (LeaseNote::read("example.com asked by 10.0.0.1"), "203.0.113.80".parse().unwrap());
    let lease = Found { group, address, left: Duration::from_secs(29), note };
    let elsewhere = Found { group: group + 1, address, left: Duration::from_secs(29), note: None };
    View::of(&live(&rendered.table), &[lease, elsewhere]).expect("it has a generation")
}

#[test]
fn pods_are_shown_with_the_rules_that_judge_them() {
    let view = seen();
    let [web] = &view.classes[..] else { panic!("only web has policies: {view:#?}") };
    assert_eq!(web.addresses, ["10.0.0.1".parse::<IpAddr>().unwrap()]);
    let shown: Vec<String> = web
        .walks
        .iter()
        .flat_map(|walk| walk.rules.iter().map(move |rule| (walk.part, rule)))
        .map(|(part, rule)| {
            let label = rule.label.as_deref().unwrap_or("anything else");
            let packets = rule.count.unwrap_or_default().packets;
            let Part::Pods(walk) = part else { panic!("no pod is of another node") };
            format!("{walk:?} {:?} {label}: {} ({packets})", rule.effect, rule.matches.join(" or "))
        })
        .collect();
    let expected = [
        "Egress Deny ClusterEgressFirewall/gate egress rule 0: to 198.51.100.0-198.51.100.255 (3)",
        "Egress Allow NetworkPolicy/shop/web egress rule 0: TCP port 5432; 1 pod address (3)",
        "Egress Allow NetworkPolicy/shop/web egress rule 1: TCP port 443; names (6)",
        "Egress Deny isolated for egress by NetworkPolicy/shop/web: anything (3)",
        "Ingress Deny isolated for ingress by NetworkPolicy/shop/web: anything (3)",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn a_rule_by_name_shows_what_is_open_through_it() {
    let view = seen();
    let rules: Vec<&RuleView> = view.classes[0].walks[0].rules.iter().filter(|rule| !rule.leases.is_empty()).collect();
    let [rule] = rules[..] else { panic!("one rule is by name: {rules:#?}") };
    let name = Some("example.com".parse().unwrap());
    let open = LeaseView { name, address: "203.0.113.80".parse().unwrap(), left: Duration::from_secs(29) };
    assert_eq!(rule.leases, [open], "and nothing of other groups");
}

#[test]
fn a_table_without_a_generation_is_of_another_layout() {
    assert_eq!(View::of(&Live::default(), &[]), None);
}

#[test]
fn a_circle_that_somebody_made_ends() {
    let program = cluster().program();
    let mut live = live(&render(&program, &Scope::default(), &Ids::default()).table);
    let jump = Expression::Verdict { code: verdict::JUMP, chain: Some("NetworkPolicy/shop/web/egress".to_owned()) };
    let rule = LiveRule { expressions: vec![jump], comment: None, count: None };
    live.chains.get_mut("NetworkPolicy/shop/web/egress").unwrap().rules.push(rule);
    assert!(View::of(&live, &[]).is_some());
}

#[test]
fn what_joined_look_ups_count_is_added_to_their_rules() {
    let open = |name: &str, app: &str| {
        let clauses = sample::clauses(sample::app(app), port(80));
        sample::policy(PolicyKind::NetworkPolicy, name, "web").rule(Direction::Ingress, Action::Allow, clauses)
    };
    let sample = Sample::default().pod("web", &["10.0.0.1"], "n1").pod("db", &["10.0.0.2"], "n1");
    let sample = sample.pod("api", &["10.0.0.3"], "n1");
    let sample = sample.policy(open("first", "db")).policy(open("last", "api"));
    let table = render(&sample.program(), &Scope::default(), &Ids::default()).table;
    assert!(!table.counters.is_empty(), "nothing is joined:\n{table}");
    let view = View::of(&live(&table), &[]).expect("it has a generation");
    let ingress =
        view.classes[0].walks.iter().find(|walk| walk.part == Part::Pods(Walk::Ingress)).expect("it is judged");
    let shown: Vec<String> = ingress
        .rules
        .iter()
        .map(|rule| {
            let label = rule.label.as_deref().unwrap_or("anything else");
            format!("{label}: {} ({})", rule.matches.join(" or "), rule.count.unwrap_or_default().packets)
        })
        .collect();
    assert_eq!(
        shown,
        [
            "NetworkPolicy/shop/first ingress rule 0: TCP port 80; 1 pod address (6)",
            "NetworkPolicy/shop/last ingress rule 0: TCP port 80; 1 pod address (6)",
            "isolated for ingress by NetworkPolicy/shop/first: anything (3)",
        ]
    );
}
