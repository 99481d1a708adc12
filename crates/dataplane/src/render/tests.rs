//! Whole tables, by what packets meet in them. The kernel is emulated, so these
//! tests need no rights.

use super::*;
use crate::leases::{Grouped, Writes};
use crate::nft::emulate::{Packet, Seen, example, forward, send};
use crate::nft::expression::conntrack;
use crate::nft::set::{Element, Key};
use crate::sample::{self, Sample, WithRules as _};
use namewall_policy::domain::{DomainName, DomainPattern, RulePattern};
use namewall_policy::lease::{Revision, Rules};
use namewall_policy::model::{Action, Enforcement, Peer, Peers, Policy, PolicyKind, PortMatch, Ports};
use namewall_policy::port::Protocol;
use namewall_policy::{Flow, Instant, Lease, LeaseStore, LeaseTable, Verdict, evaluate};

fn ports(numbers: &[u16]) -> Ports {
    let port = |number: &u16| PortMatch::Range { protocol: Protocol::Tcp, low: *number, high: *number };
    Ports::Listed(numbers.iter().map(port).collect())
}

fn network(cidr: &str) -> Peers {
    Peers::Listed(vec![Peer::Network { cidr: cidr.parse().unwrap(), except: Vec::new() }])
}

fn allow(direction: Direction, from: &str, port: u16) -> Policy {
    let app = if direction == Direction::Egress { "web" } else { "db" };
    sample::policy(PolicyKind::NetworkPolicy, app, app).rule(
        direction,
        Action::Allow,
        sample::clauses(sample::app(from), ports(&[port])),
    )
}

/// web → db, both isolated and opened to each other, in both versions of IP.
fn pair() -> Sample {
    Sample::default()
        .pod("web", &["10.0.0.1", "fd00::1"], "n1")
        .pod("db", &["10.0.0.2", "fd00::2"], "n1")
        .pod("other", &["10.0.0.3", "fd00::3"], "n2")
        .policy(allow(Direction::Egress, "db", 5432))
        .policy(allow(Direction::Ingress, "web", 5432))
}

fn table(sample: &Sample) -> Table {
    render(&sample.program(), &Scope::default(), &Ids::default()).table
}

#[test]
fn the_common_path_takes_so_many_expressions() {
    let table = table(&pair());
    let connection = forward(&table, &Packet::tcp("10.0.0.1", "10.0.0.2", 5432));
    assert_eq!(connection, Seen { accepted: true, expressions: 63, lookups: 6 }, "IPv4, first packet");
    let connection = forward(&table, &Packet::tcp("fd00::1", "fd00::2", 5432));
    assert_eq!(connection, Seen { accepted: true, expressions: 83, lookups: 6 }, "IPv6, first packet");
    let mut later = Packet::tcp("10.0.0.1", "10.0.0.2", 5432);
    later.state = conntrack::ESTABLISHED;
    assert_eq!(forward(&table, &later), Seen { accepted: true, expressions: 8, lookups: 0 }, "every later packet");
    let outside = forward(&table, &Packet::tcp("192.0.2.1", "192.0.2.2", 443));
    assert_eq!(outside, Seen { accepted: true, expressions: 47, lookups: 4 }, "no pod is concerned");
}

#[test]
fn rules_say_what_the_core_says() {
    let gate = sample::policy(PolicyKind::ClusterEgressFirewall, "gate", "other")
        .rule(Direction::Egress, Action::Deny, sample::clauses(network("10.0.0.2/32"), Ports::Any))
        .rule(Direction::Egress, Action::Deny, sample::clauses(network("fd00::1/128"), ports(&[80, 443, 8080])));
    let admin = sample::policy(PolicyKind::AdminNetworkPolicy, "admin", "db")
        .rule(Direction::Ingress, Action::Pass, sample::clauses(sample::app("web"), ports(&[5432])))
        .rule(Direction::Ingress, Action::Deny, sample::clauses(sample::app("web"), Ports::Any));
    let baseline = sample::policy(PolicyKind::BaselineAdminNetworkPolicy, "baseline", "other").rule(
        Direction::Ingress,
        Action::Deny,
        sample::clauses(sample::app("db"), ports(&[22])),
    );
    let program = pair().policy(gate).policy(admin).policy(baseline).program();
    let table = render(&program, &Scope::default(), &Ids::default()).table;
    let leases = LeaseTable::default();
    let mut verdicts = [0, 0];
    for version in Version::BOTH {
        for (from, to) in (1..=4).flat_map(|from| (1..=4).map(move |to| (from, to))).filter(|(from, to)| from != to) {
            for port in [22, 80, 443, 5432, 8080] {
                let packet = Packet::tcp(&example(version, from), &example(version, to), port);
                let (source, destination) =
                    (program.endpoint_at(packet.source), program.endpoint_at(packet.destination));
                let flow = Flow {
                    from: source,
                    hop: None,
                    masker: None,
                    to: destination,
                    protocol: Protocol::Tcp,
                    port,
                    via: None,
                };
                let meant = evaluate(&program, &leases, &flow, Instant::default()).verdict == Verdict::Allow;
                assert_eq!(forward(&table, &packet).accepted, meant, "{packet:?}");
                verdicts[usize::from(meant)] += 1;
            }
        }
    }
    assert!(verdicts.iter().all(|count| *count > 20), "both happen: {verdicts:?}");
}

#[test]
fn a_mark_of_somebody_else_makes_no_difference() {
    let table = table(&pair());
    for mark in [0, 1, 0xffff_ffff, 0x8000_0000, 12345] {
        let packet = |port| Packet { mark, ..Packet::tcp("10.0.0.1", "10.0.0.2", port) };
        assert!(forward(&table, &packet(5432)).accepted, "mark {mark:#x}");
        assert!(!forward(&table, &packet(22)).accepted, "mark {mark:#x}");
    }
}

#[test]
fn a_packet_with_the_rules_of_another_generation_is_dropped() {
    let mut table = table(&pair());
    let packet = Packet::tcp("192.0.2.1", "192.0.2.2", 443);
    assert!(send(&table, "egress-forward", &packet).accepted);
    let set = table.sets.get_mut(&set::generation(0)).expect("it is the first");
    let families = Version::BOTH.map(|version| Element::key(Key::only_family(version)));
    families.iter().for_each(|family| set.elements.remove(family.index()));
    assert!(!send(&table, "egress-forward", &packet).accepted, "the change has emptied its set");
}

#[test]
fn a_step_replaces_the_set_of_a_generation() {
    let mut rendered = render(&pair().program(), &Scope::default(), &Ids { generation: u16::MAX, ..Ids::default() });
    rendered.advance(Some(Step::after(u16::MAX)));
    assert_eq!(rendered.ids.generation, 0, "after the last number comes the first");
    let sets: Vec<&String> = rendered.table.sets.keys().filter(|set| set::generation_of(set).is_some()).collect();
    assert_eq!(sets, ["generation/0"]);
    assert!(send(&rendered.table, "egress-forward", &Packet::tcp("192.0.2.1", "192.0.2.2", 443)).accepted);
}

#[test]
fn every_chain_and_every_rule_of_a_policy_says_whose_it_is() {
    let audited = Policy {
        enforcement: Enforcement::Audit,
        ..sample::policy(PolicyKind::AdminNetworkPolicy, "tried", "web").rule(
            Direction::Egress,
            Action::Deny,
            sample::clauses(sample::app("db"), Ports::Any),
        )
    };
    let table = table(&pair().policy(audited));
    let nameless: Vec<&String> =
        table.chains.iter().filter(|(_, chain)| chain.comment.is_none()).map(|(name, _)| name).collect();
    assert!(nameless.is_empty(), "chains without a comment: {nameless:?}");
    let comment = |chain: &str| table.chains[chain].comment.as_deref().unwrap_or_default();
    assert_eq!(comment("NetworkPolicy/shop/web/egress"), "NetworkPolicy/shop/web egress");
    assert_eq!(
        comment("audit/deny/AdminNetworkPolicy/tried/egress/0"),
        "denied by AdminNetworkPolicy/tried egress rule 0"
    );
    let led = table.chains.iter().filter(|(name, _)| name.starts_with("audit/egress/")).map(|(name, _)| comment(name));
    assert!(led.into_iter().any(|about| about == "AdminNetworkPolicy/tried, NetworkPolicy/shop/web"));
    let counting = table.chains.values().flat_map(|chain| &chain.rules);
    let mut counting = counting.filter(|rule| rule.actions.contains(&Do::Count));
    assert!(counting.all(|rule| rule.comment.is_some()), "what is counted is counted for somebody");
}

#[test]
fn names_that_are_too_long_are_shortened_and_stay_apart() {
    let long = |last: &str| format!("{}{last}", "x".repeat(240));
    let policy = |name: &str| sample::policy(PolicyKind::NetworkPolicy, name, "web");
    let rule = |name: &str| {
        policy(name).rule(Direction::Egress, Action::Deny, sample::clauses(sample::app("db"), Ports::Any)).rule(
            Direction::Egress,
            Action::Allow,
            sample::clauses(sample::app("db"), Ports::Any),
        )
    };
    let table = table(&pair().policy(rule(&long("a"))).policy(rule(&long("b"))));
    let comments: std::collections::BTreeSet<&str> = table
        .chains
        .values()
        .flat_map(|chain| chain.rules.iter().filter_map(|rule| rule.comment.as_deref()).chain(chain.comment.as_deref()))
        .collect();
    assert!(comments.iter().all(|comment| comment.len() <= names::COMMENT), "{comments:#?}");
    for end in ["a egress rule 0", "a egress rule 1", "b egress rule 0", "b egress rule 1"] {
        let of =
            comments.iter().filter(|comment| comment.ends_with(end) && comment.starts_with("NetworkPolicy/shop/x"));
        assert_eq!(of.count(), 1, "{end}: {comments:#?}");
    }
    let prefix = |rule: &Rule| match rule.actions.as_slice() {
        [Do::Log { prefix, .. }] => Some(prefix.clone()),
        _ => None,
    };
    let prefixes: Vec<String> = table.chains.values().flat_map(|chain| chain.rules.iter().filter_map(prefix)).collect();
    let apart: std::collections::BTreeSet<&String> = prefixes.iter().collect();
    assert_eq!(apart.len(), prefixes.len(), "log lines too: {prefixes:#?}");
}

#[test]
fn pods_of_other_nodes_lead_to_their_cluster_gates_only() {
    let gate = sample::policy(PolicyKind::ClusterEgressFirewall, "gate", "other").rule(
        Direction::Egress,
        Action::Deny,
        sample::clauses(network("198.51.100.0/24"), Ports::Any),
    );
    let sample = pair().policy(gate);
    let scope = Scope { node: sample.snapshot.node_named("n1"), ..Scope::default() };
    let table = render(&sample.program(), &scope, &Ids::default()).table;
    let keys = |map: &str| {
        let mut keys: Vec<Vec<u8>> = table.sets[map].elements.iter().map(|one| one.key.as_bytes().to_vec()).collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(set::GATED.0), [[10, 0, 0, 3]]);
    assert_eq!(keys(set::GATES.0).iter().map(|key| &key[4..]).collect::<Vec<_>>(), [[10, 0, 0, 3]]);
    assert_eq!(keys(set::EGRESS.0), [[10, 0, 0, 1], [10, 0, 0, 2]]);
    assert_eq!(keys(set::INGRESS.0), [[10, 0, 0, 1], [10, 0, 0, 2]]);
    assert!(!table.sets.contains_key(set::AUDIT_EGRESS.0), "nothing is audited");
    assert!(!table.sets.contains_key(set::LOCAL.0), "DNS goes its own way");
}

/// A lease in the kernel that is emulated, before and after its address becomes a pod's.
#[test]
fn s6_3_a_lease_goes_from_the_kernel_when_its_address_becomes_a_pods() {
    let name: DomainName = "api.example.com".parse().unwrap();
    let pattern = DomainPattern::Exact(name.clone());
    let names = sample::policy(PolicyKind::NetworkPolicy, "names", "web").rule(
        Direction::Egress,
        Action::Allow,
        sample::clauses(Peers::Listed(vec![Peer::Domain(pattern.clone())]), Ports::Any),
    );
    let before = Sample::default().pod("web", &["10.0.0.1"], "n1").policy(names);
    let after = before.clone().pod("db", &["10.9.0.7"], "n1");
    let (now, never_leased) = (Instant::default(), &sample::never_leased());
    let programs = [before.program(), after.program()];
    let packet = Packet::tcp("10.0.0.1", "10.9.0.7", 443);
    let mut store = LeaseStore::default();
    let mut rendered = render(&programs[0], &Scope::default(), &Ids::default());
    let put = |rendered: &mut Rendered, writes: Writes| {
        let set = rendered.table.sets.get_mut(set::LEASE.0).expect("every table has it");
        writes.gone[0].iter().for_each(|element| set.elements.remove(element.index()));
        writes.new[0].iter().for_each(|one| set.insert(one.element.clone()));
        set.elements.len()
    };
    assert!(!send(&rendered.table, "egress-forward", &packet).accepted);
    let (address, expiry) = (packet.destination, Instant(std::time::Duration::from_secs(60)));
    let change =
        store.grant(&[Lease { pattern: RulePattern::allow(pattern), name, address, expiry, asked_by: None }], now);
    let writes = Grouped { leases: store.table(), groups: &rendered.lease_groups }.after(&change, now);
    assert_eq!(put(&mut rendered, writes), 1);
    assert!(send(&rendered.table, "egress-forward", &packet).accepted);
    let [before, next] = programs.each_ref().map(|program| Rules { program, never_leased });
    let revision = Revision { before: Some(before), next };
    let plan = store.plan(&revision);
    let change = store.revise(&revision, plan, &[]);
    let writes = Grouped { leases: store.table(), groups: &rendered.lease_groups }.after(&change, now);
    assert_eq!(put(&mut rendered, writes), 0);
    assert!(!send(&rendered.table, "egress-forward", &packet).accepted);
}
