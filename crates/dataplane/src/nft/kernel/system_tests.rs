//! What goes wrong between us and the kernel, made to go wrong. Each test has a
//! network namespace of its own.

use super::*;
use crate::netlink::{CREATE, EXCLUSIVE, Messages};
use crate::nft::set::{Key, Value};
use crate::nft::{batch_fixed, isolated};
use crate::render::ALLOWED;
use crate::sample::WithRules as _;
use crate::sample::{self, Sample};
use crate::{Adoption, Plan as _};
use namewall_policy::domain::{DomainPattern, RulePattern, Wildcard};
use namewall_policy::lease::{Revision, Rules};
use namewall_policy::model::{Action, Direction, Peer, Peers, PolicyKind, Ports};
use namewall_policy::port::Protocol;
use namewall_policy::{Lease, LeaseStore, compile_next};
use nix::errno::Errno;
use std::net::{Ipv4Addr, SocketAddr};

/// A Program with isolated pods of these addresses.
fn program(pods: &[&str]) -> Program {
    let isolates = sample::policy(PolicyKind::NetworkPolicy, "isolates", "web");
    let pods = pods.iter().fold(Sample::default(), |sample, pod| sample.pod("web", &[pod], "n1"));
    pods.policy(isolates).program()
}

fn open(first: &Program) -> Nft {
    let mut nft = Nft::open(Settings::default()).unwrap();
    nft.enforce(first).unwrap();
    nft
}

impl Nft {
    fn enforce(&mut self, program: &Program) -> Result<Applied, NftError> {
        self.enforce_with(program, &LeaseStore::default(), &LeaseChange::default())
    }

    fn enforce_with(
        &mut self,
        program: &Program,
        leases: &LeaseStore,
        changed: &LeaseChange,
    ) -> Result<Applied, NftError> {
        let never_leased = &sample::never_leased();
        let adoption = Adoption { never_leased, longest: Duration::from_secs(3_605) };
        let (scope, leases, now) = (&Scope::default(), leases.table(), Instant::default());
        self.replace(&Desired { program, scope, leases, changed, adoption, now })
    }

    /// Changes the kernel's table, and does not tell.
    fn behind_our_back(&mut self, change: impl FnOnce(&mut Batch)) {
        let mut batch = Batch::new(&self.settings.table);
        change(&mut batch);
        self.socket.commit(&batch.finish()).unwrap();
    }

    fn has(&mut self, set: &str, element: &Element) -> bool {
        read::has_elements(&mut self.socket, &self.settings.table, set, std::slice::from_ref(element)).unwrap()
    }
}

fn address(text: &str) -> Key {
    Key::default().address(text.parse().unwrap())
}

#[test]
fn what_is_missing_makes_the_next_change_read_the_table() {
    isolated(|| {
        let mut nft = open(&program(&["10.0.0.1", "10.0.0.2"]));
        let gone = Element::key(address("10.0.0.2"));
        nft.behind_our_back(|batch| batch.delete_elements(set::PODS.0, [&gone].into_iter()));
        let refused = nft.enforce(&program(&["10.0.0.1"])).unwrap_err();
        assert!(matches!(&refused, NftError::Rejected { source, .. } if source.errno() == Some(Errno::ENOENT)));
        nft.enforce(&program(&["10.0.0.1"])).expect("it is made right from what is there");
        assert!(nft.has(set::PODS.0, &Element::key(address("10.0.0.1"))));
        assert!(!nft.has(set::PODS.0, &gone));
    });
}

#[test]
fn what_is_there_already_makes_the_next_change_read_the_table() {
    isolated(|| {
        let mut nft = open(&program(&["10.0.0.1"]));
        let wrong = Element::mapped(address("10.0.0.2"), Value::goto(ALLOWED.to_owned()));
        nft.behind_our_back(|batch| batch.add_elements(set::EGRESS.0, [&wrong].into_iter()));
        let refused = nft.enforce(&program(&["10.0.0.1", "10.0.0.2"])).unwrap_err();
        assert!(matches!(&refused, NftError::Rejected { source, .. } if source.errno() == Some(Errno::EEXIST)));
        nft.enforce(&program(&["10.0.0.1", "10.0.0.2"])).expect("it is made right from what is there");
        assert!(!nft.has(set::EGRESS.0, &wrong));
        assert!(nft.has(set::PODS.0, &Element::key(address("10.0.0.2"))));
    });
}

/// Makes a connection, as if packets had.
fn connect(from_port: u16) {
    const NEW_CONNECTION: u16 = 1 << 8;
    let (client, server) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let mut request = Messages::new();
    request.begin(NEW_CONNECTION, CREATE | EXCLUSIVE, &batch_fixed(2, 0));
    for (direction, (from, at), (to, port)) in
        [(1, (client, from_port), (server, 53)), (2, (server, 53), (client, from_port))]
    {
        request.nested(direction, |tuple| {
            tuple.nested(1, |addresses| {
                addresses.bytes(1, &from.octets());
                addresses.bytes(2, &to.octets());
            });
            tuple.nested(2, |protocol| {
                protocol.bytes(1, &[17]);
                protocol.bytes(2, &u16::to_be_bytes(at));
                protocol.bytes(3, &u16::to_be_bytes(port));
            });
        });
    }
    const TIMEOUT: u16 = 7;
    request.u32(TIMEOUT, 60);
    request.acknowledge();
    Socket::open(Family::NetlinkNetFilter).unwrap().commit(&request).unwrap();
}

#[test]
fn s3_4_one_connection_that_cannot_be_cut_does_not_save_the_others() {
    isolated(|| {
        let mut nft = open(&program(&["10.0.0.1"]));
        connect(1001);
        connect(1002);
        let mut connections = nft.conntrack.list().unwrap();
        assert_eq!(connections.len(), 2);
        // The kernel cannot read what is not one of its own.
        let end = |last, port| SocketAddr::from(([10, 0, 0, last], port));
        connections.insert(0, Connection::between(Protocol::Udp, end(1, 1003), end(2, 53)));
        let error = nft.cut_all(&connections.iter().collect::<Vec<_>>()).unwrap_err();
        assert!(matches!(error, NftError::Connections(_)), "{error}");
        assert_eq!(nft.conntrack.list().unwrap(), []);
    });
}

#[test]
fn s3_4_connections_are_cut_where_they_cannot_be_remembered() {
    isolated(|| {
        let mut nft = open(&program(&["10.0.0.1"]));
        connect(1001);
        nft.behind_our_back(Batch::delete_table);
        let mut connections = nft.conntrack.list().unwrap();
        // Only TCP is remembered; the kernel deletes by its own description, which stays UDP's.
        connections[0].protocol = Protocol::Tcp;
        let error = nft.cut_all(&connections.iter().collect::<Vec<_>>()).unwrap_err();
        assert!(matches!(error, NftError::Rejected { .. }), "{error}");
        assert_eq!(nft.conntrack.list().unwrap(), []);
        nft.enforce(&program(&["10.0.0.1"])).expect("the table is made again");
        assert!(nft.has(set::PODS.0, &Element::key(address("10.0.0.1"))));
    });
}

#[test]
fn s6_6_a_lease_is_refused_while_it_is_not_known_what_the_table_holds() {
    isolated(|| {
        let mut nft = open(&program(&["10.0.0.1", "10.0.0.2"]));
        let name: namewall_policy::domain::DomainName = "example.com".parse().unwrap();
        let pattern = RulePattern::allow(DomainPattern::Exact(name.clone()));
        let (address, expiry) = ("192.0.2.1".parse().unwrap(), Instant(Duration::from_secs(60)));
        let lease = Lease { pattern, name, address, expiry, asked_by: None };
        let mut leases = LeaseStore::default();
        let change = leases.grant(&[lease], Instant::default());
        nft.open(&change, leases.table(), Instant::default()).expect("the table is known");
        let gone = Element::key(Key::default().address("10.0.0.2".parse().unwrap()));
        nft.behind_our_back(|batch| batch.delete_elements(set::PODS.0, [&gone].into_iter()));
        nft.enforce(&program(&["10.0.0.1"])).expect_err("an element that is to go is missing");
        let refused = nft.open(&change, leases.table(), Instant::default()).unwrap_err();
        assert!(matches!(refused, NftError::Unknown { .. }), "{refused}");
        nft.enforce(&program(&["10.0.0.1"])).expect("the table is read");
        nft.open(&change, leases.table(), Instant::default()).expect("it is known again");
    });
}

/// A Program with pods that may open a name, of this pattern.
fn names(pattern: &str, pods: &[&str]) -> Program {
    let pattern = DomainPattern::parse(pattern, Wildcard::Subdomains).unwrap();
    let peers = Peers::Listed(vec![Peer::Domain(pattern)]);
    let names = sample::policy(PolicyKind::NetworkPolicy, "names", "web").rule(
        Direction::Egress,
        Action::Allow,
        sample::clauses(peers, Ports::Any),
    );
    let pods = pods.iter().fold(Sample::default(), |sample, pod| sample.pod("web", &[pod], "n1"));
    pods.policy(names).program()
}

/// Enforces a Program, and revises the leases with it.
fn revise(nft: &mut Nft, leases: &mut LeaseStore, programs: [&Program; 2]) -> Applied {
    let never_leased = &sample::never_leased();
    let [before, next] = programs.map(|program| Rules { program, never_leased });
    let revision = Revision { before: Some(before), next };
    let plan = leases.plan(&revision);
    let changed = leases.revise(&revision, plan, &[]);
    let applied = nft.enforce_with(next.program, leases, &changed).unwrap();
    leases.acknowledge();
    applied
}

/// The addresses that are open by name, in order.
fn open_addresses(nft: &Nft) -> Vec<String> {
    let found = read::read_leases(&nft.settings.table).unwrap();
    let mut addresses: Vec<String> = found.iter().map(|found| found.address.to_string()).collect();
    addresses.sort();
    addresses
}

fn granted(nft: &mut Nft, pattern: &str, addresses: &[&str]) -> LeaseStore {
    let mut leases = LeaseStore::default();
    let lease = |address: &&str| Lease {
        pattern: RulePattern::allow(DomainPattern::parse(pattern, Wildcard::Subdomains).unwrap()),
        name: "api.example.com".parse().unwrap(),
        address: address.parse().unwrap(),
        expiry: Instant(Duration::from_secs(600)),
        asked_by: Some("10.0.0.1".parse().unwrap()),
    };
    let change = leases.grant(&addresses.iter().map(lease).collect::<Vec<_>>(), Instant::default());
    nft.open(&change, leases.table(), Instant::default()).unwrap();
    leases.acknowledge();
    leases
}

#[test]
fn s6_3_a_lease_leaves_the_kernel_with_the_change_that_makes_its_address_a_pods() {
    isolated(|| {
        let before = names("api.example.com", &["10.0.0.1"]);
        let mut nft = open(&before);
        let mut leases = granted(&mut nft, "api.example.com", &["10.0.0.2", "198.51.100.7"]);
        assert_eq!(open_addresses(&nft), ["10.0.0.2", "198.51.100.7"]);
        let applied = revise(&mut nft, &mut leases, [&before, &names("api.example.com", &["10.0.0.1", "10.0.0.2"])]);
        assert!(applied.narrows, "connections to it are judged again");
        assert_eq!(open_addresses(&nft), ["198.51.100.7"]);
    });
}

#[test]
fn s6_3_a_lease_carries_over_in_the_kernel() {
    isolated(|| {
        let (exact, wide) = (names("api.example.com", &["10.0.0.1"]), names("*.example.com", &["10.0.0.1"]));
        let mut nft = open(&exact);
        let mut leases = granted(&mut nft, "api.example.com", &["198.51.100.7"]);
        let group = read::read_leases(&nft.settings.table).unwrap()[0].group;
        revise(&mut nft, &mut leases, [&exact, &wide]);
        let found = read::read_leases(&nft.settings.table).unwrap();
        assert!(matches!(found.as_slice(), [one] if one.group != group), "{found:?}");
        revise(&mut nft, &mut leases, [&wide, &names("other.test", &["10.0.0.1"])]);
        assert_eq!(open_addresses(&nft), [""; 0], "no rule has it");
    });
}

#[test]
fn s6_3_another_process_adopts_only_what_the_rules_allow_now() {
    isolated(|| {
        let before = names("api.example.com", &["10.0.0.1"]);
        let mut nft = open(&before);
        granted(&mut nft, "api.example.com", &["10.0.0.2", "198.51.100.7"]);
        drop(nft);
        let mut nft = Nft::open(Settings::default()).unwrap();
        let applied = nft.enforce(&names("*.example.com", &["10.0.0.1", "10.0.0.2"])).unwrap();
        assert!(matches!(applied.revoked.as_slice(), [(lease, _)] if lease.address.to_string() == "10.0.0.2"));
        let adopted = applied.adopted.expect("there was a process before");
        assert!(matches!(adopted.as_slice(), [one] if one.pattern.to_string().starts_with('*')), "{adopted:?}");
        assert_eq!(adopted[0].asked_by, Some("10.0.0.1".parse().unwrap()), "who asked is known");
        assert_eq!(open_addresses(&nft), ["198.51.100.7"]);
        drop(nft);
        let mut nft = Nft::open(Settings::default()).unwrap();
        nft.enforce(&names("other.test", &["10.0.0.1"])).unwrap();
        assert_eq!(open_addresses(&nft), [""; 0]);
    });
}

/// A web pod that 3,000 pods of two apps may reach, of which the policy allows one app.
fn many(allowed: &str) -> Program {
    let mut sample = Sample::default().pod("web", &["10.0.0.1"], "n1");
    for number in 0..6_000_u32 {
        let app = if number % 2 == 0 { "even" } else { "odd" };
        let address = Ipv4Addr::from_bits(Ipv4Addr::new(10, 1, 0, 0).to_bits() + number).to_string();
        sample = sample.pod(app, &[&address], "n2");
    }
    let allow = sample::clauses(sample::app(allowed), Ports::Any);
    let policy = sample::policy(PolicyKind::NetworkPolicy, "many", "web");
    sample.policy(policy.rule(Direction::Ingress, Action::Allow, allow)).program()
}

/// Goes over to a Program as the agent does, in parts. How many elements of pods the kernel has after each part, and what
/// the switch took.
fn in_parts(nft: &mut Nft, program: &Program) -> (Vec<usize>, Applied) {
    let mut plan = nft.plan();
    plan.work_out(program, &Scope::default());
    let mut peers = Vec::new();
    let leases = LeaseStore::default();
    while nft.stage(&mut plan, leases.table(), Instant::default()).unwrap() {
        peers.push(peers_in_the_kernel(nft));
    }
    peers.push(peers_in_the_kernel(nft));
    let never_leased = &sample::never_leased();
    let adoption = Adoption { never_leased, longest: Duration::from_secs(3_605) };
    let (scope, changed, now) = (&Scope::default(), &LeaseChange::default(), Instant::default());
    let desired = Desired { program, scope, leases: leases.table(), changed, adoption, now };
    let applied = nft.replace_planned(&desired, plan).unwrap();
    peers.push(peers_in_the_kernel(nft));
    while nft.clear(leases.table()).unwrap() {
        peers.push(peers_in_the_kernel(nft));
    }
    peers.push(peers_in_the_kernel(nft));
    (peers, applied)
}

fn peers_in_the_kernel(nft: &mut Nft) -> usize {
    read::read(&mut nft.socket, &nft.settings.table).unwrap().sets[set::PEERS.0].elements.len()
}

/// What a rebuild from what the kernel has would change.
fn is_as_known(nft: &mut Nft) -> bool {
    let live = read::read(&mut nft.socket, &nft.settings.table).unwrap();
    let table = nft.table().unwrap();
    [set::PEERS.0, set::PODS.0, set::NAMED.0, set::JOINED.0].iter().all(|name| {
        let (known, found) = (&table.sets[*name].elements, &live.sets[*name].elements);
        known.len() == found.len() && known.iter().all(|element| found.has(&element))
    })
}

#[test]
fn s6_6_a_large_change_is_staged_in_parts_and_its_switch_moves_no_pod() {
    isolated(|| {
        let mut nft = open(&many("even"));
        for next in ["odd", "even", "odd"] {
            let (peers, applied) = in_parts(&mut nft, &many(next));
            // 3,000 pods in parts of 1,000, then the switch, then the pods of the old rules.
            assert_eq!(peers, [4_000, 5_000, 6_000, 6_000, 5_000, 4_000, 3_000]);
            assert!(applied.narrows, "connections of the other app are judged again");
            assert!(is_as_known(&mut nft));
            assert_eq!(nft.known.as_ref().unwrap().difference(), None);
        }
        // A small change is one transaction.
        let (peers, _) = in_parts(&mut nft, &program(&["10.0.0.1"]));
        assert_eq!(peers, [3_000, 3_000, 2_000, 1_000, 0], "only what goes is much");
        let (peers, _) = in_parts(&mut nft, &program(&["10.0.0.1", "10.0.0.2"]));
        assert_eq!(peers, [0, 0, 0]);
    });
}

#[test]
fn a_staged_change_that_never_comes_leaves_no_trace_in_the_next() {
    isolated(|| {
        let mut nft = open(&many("even"));
        let mut plan = nft.plan();
        plan.work_out(&many("odd"), &Scope::default());
        assert!(nft.stage(&mut plan, &LeaseTable::default(), Instant::default()).unwrap(), "there is more");
        drop(plan);
        // The same process goes elsewhere: not staged, since the kernel has more than is known.
        let (peers, _) = in_parts(&mut nft, &program(&["10.0.0.1"]));
        assert_eq!(peers, [4_000, 4_000, 3_000, 2_000, 1_000, 0]);
        assert!(is_as_known(&mut nft));
        assert_eq!(nft.known.as_ref().unwrap().difference(), None);
        // Another process finds what this one has staged.
        nft.enforce(&many("even")).unwrap();
        let mut plan = nft.plan();
        plan.work_out(&many("odd"), &Scope::default());
        assert!(nft.stage(&mut plan, &LeaseTable::default(), Instant::default()).unwrap());
        drop(nft);
        let mut nft = open(&many("even"));
        assert!(is_as_known(&mut nft));
        assert_eq!(nft.table().unwrap().sets[set::PEERS.0].elements.len(), 3_000);
    });
}

#[test]
fn s6_3_many_leases_whose_rule_is_gone_leave_the_kernel_in_parts_after_the_switch() {
    isolated(|| {
        let (with, without) = (names("api.example.com", &["10.0.0.1"]), names("other.example", &["10.0.0.1"]));
        let mut nft = open(&with);
        let pattern = RulePattern::allow(DomainPattern::parse("api.example.com", Wildcard::Subdomains).unwrap());
        let name: namewall_policy::domain::DomainName = "api.example.com".parse().unwrap();
        let bounds = namewall_policy::lease::Bounds { addresses_a_name: 5_000, ..Default::default() };
        let mut leases = LeaseStore::new(LeaseTable::with_bounds(bounds));
        let all: Vec<Lease> = (0..2_500_u32)
            .map(|number| Lease {
                pattern: pattern.clone(),
                name: name.clone(),
                address: Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 0).to_bits() + number).into(),
                expiry: Instant(Duration::from_secs(600)),
                asked_by: None,
            })
            .collect();
        let change = leases.grant(&all, Instant::default());
        nft.open(&change, leases.table(), Instant::default()).unwrap();
        leases.acknowledge();
        let applied = revise(&mut nft, &mut leases, [&with, &without]);
        assert!(applied.narrows);
        let mut left = vec![open_addresses(&nft).len()];
        while nft.clear(leases.table()).unwrap() {
            left.push(open_addresses(&nft).len());
        }
        assert_eq!(left, [2_500, 1_500, 500, 0]);
        // The rule comes back, and goes again; then it comes back before all of it is cleared.
        revise(&mut nft, &mut leases, [&without, &with]);
        assert_eq!(open_addresses(&nft).len(), 2_500);
        revise(&mut nft, &mut leases, [&with, &without]);
        assert!(nft.clear(leases.table()).unwrap());
        revise(&mut nft, &mut leases, [&without, &with]);
        while nft.clear(leases.table()).unwrap() {}
        assert_eq!(open_addresses(&nft).len(), 2_500, "nothing of what is open was cleared");
    });
}

/// Pods of these apps, and two policies for `web` that open one port to other apps.
fn two_rules(apps: &[&str]) -> Sample {
    let open = |name: &str, app: &str| {
        let clauses = sample::clauses(sample::app(app), Ports::Any);
        sample::policy(PolicyKind::NetworkPolicy, name, "web").rule(Direction::Ingress, Action::Allow, clauses)
    };
    let pods = apps
        .iter()
        .enumerate()
        .fold(Sample::default(), |sample, (at, app)| sample.pod(app, &[&format!("10.0.0.{}", at + 1)], "n1"));
    pods.policy(open("first", "db")).policy(open("last", "api"))
}

#[test]
fn joined_look_ups_follow_pods_and_are_found_by_the_next_process() {
    isolated(|| {
        let joined = |nft: &mut Nft| {
            let live = read::read(&mut nft.socket, &nft.settings.table).unwrap();
            (live.counters.len(), live.sets[set::JOINED.0].elements.len())
        };
        // The last pod of the class goes first, while its chains stay; then it comes back.
        let all = two_rules(&["db", "api", "db", "web"]);
        let mut less = all.clone();
        let web = less.snapshot.workloads.len() - 1;
        let vacated = less.snapshot.workloads[web].vacated();
        less.snapshot.workloads.set(web, vacated);
        let whole = all.program();
        let without_web = compile_next(&all.snapshot, &whole, &less.snapshot).0;
        let whole_again = compile_next(&less.snapshot, &without_web, &all.snapshot).0;
        let mut nft = open(&whole);
        assert_eq!(joined(&mut nft), (2, 3));
        assert_eq!(nft.enforce(&without_web).unwrap().way, Way::Pods);
        assert_eq!(nft.enforce(&whole_again).unwrap().way, Way::Pods);
        assert_eq!(joined(&mut nft), (2, 3));
        assert!(is_as_known(&mut nft));
        drop(nft);
        let mut nft = Nft::open(Settings::default()).unwrap();
        let adopted = nft.enforce(&whole).unwrap();
        assert_eq!(adopted.operations, 0, "{adopted:?}: what is there is right");
        nft.enforce(&program(&["10.0.0.9"])).unwrap();
        assert_eq!(joined(&mut nft), (0, 0), "nothing is left of it");
        assert!(is_as_known(&mut nft));
    });
}
