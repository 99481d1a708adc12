//! A table of an earlier layout (before ADR 23) is taken over: in one transaction,
//! with the leases that are in it. `earlier-layout.bin` has the transactions that
//! made one, each with its length before it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;
use crate::Adoption;
use crate::netlink::Messages;
use crate::nft::isolated;
use crate::nft::set::{Field, Holds, SetSpec};
use crate::sample::{self, Sample, WithRules as _};
use namewall_policy::domain::{DomainName, DomainPattern};
use namewall_policy::model::{Action, Direction, Peer, Peers, PolicyKind, Ports};

const TRANSACTIONS: &[u8] = include_bytes!("earlier-layout.bin");

/// Makes the table as the earlier namewall did, and ends as that did.
fn make_earlier_table() {
    let mut socket = open_socket().unwrap();
    let mut rest = TRANSACTIONS;
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (transaction, after) = after.split_at(u32::from_be_bytes(*length) as usize);
        socket.commit(&Messages::from_bytes(transaction)).unwrap();
        rest = after;
    }
}

/// The cluster that the table was made for.
fn cluster() -> Sample {
    let name: DomainName = "example.com".parse().unwrap();
    let domain = Peers::Listed(vec![Peer::Domain(DomainPattern::Exact(name))]);
    let network = Peer::Network { cidr: "198.51.100.0/24".parse().unwrap(), except: Vec::new() };
    let web = sample::policy(PolicyKind::NetworkPolicy, "web", "web")
        .rule(Direction::Egress, Action::Allow, sample::clauses(sample::app("db"), Ports::Any))
        .rule(Direction::Egress, Action::Allow, sample::clauses(domain, Ports::Any));
    let gate = sample::policy(PolicyKind::ClusterEgressFirewall, "gate", "db").rule(
        Direction::Egress,
        Action::Deny,
        sample::clauses(Peers::Listed(vec![network]), Ports::Any),
    );
    Sample::default()
        .node("n1", &["192.0.2.1"])
        .node("n2", &["192.0.2.2"])
        .pod("web", &["10.0.0.1", "fd00::1"], "n1")
        .pod("db", &["10.0.0.2", "fd00::2"], "n1")
        .pod("db", &["10.0.1.2", "fd00::1:2"], "n2")
        .policy(web)
        .policy(gate)
}

fn adopt(nft: &mut Nft) -> Applied {
    let cluster = cluster();
    let (program, leases) = (cluster.program(), LeaseTable::default());
    let scope = Scope { node: cluster.snapshot.node_named("n1"), ..Scope::default() };
    let (changed, never_leased) = (LeaseChange::default(), sample::never_leased());
    let adoption = Adoption { never_leased: &never_leased, longest: Duration::from_secs(3_605) };
    let (scope, leases, changed, now) = (&scope, &leases, &changed, Instant::default());
    nft.replace(&Desired { program: &program, scope, leases, changed, adoption, now }).unwrap()
}

fn sets() -> Vec<String> {
    let live = read::read(&mut open_socket().unwrap(), "namewall").unwrap();
    live.sets.into_keys().collect()
}

#[test]
fn a_table_of_an_earlier_layout_is_taken_over_with_its_leases() {
    isolated(|| {
        make_earlier_table();
        assert!(sets().iter().any(|set| set == "who4"), "it is of the earlier layout: {:?}", sets());
        let mut nft = Nft::open(Settings::default()).unwrap();
        let applied = adopt(&mut nft);
        let leases = applied.adopted.expect("the table is changed, not made anew");
        let names: Vec<&str> = leases.iter().map(|lease| lease.name.as_str()).collect();
        assert_eq!(names, ["example.com"]);
        assert_eq!(read::read_leases("namewall").unwrap().len(), 1, "it is open all the time");
        for gone in ["who4", "who6", "classes", "generation", "remote4", "remote6"] {
            assert!(!sets().iter().any(|set| set == gone), "{gone} of the earlier layout is gone");
        }
        drop(nft);
        let mut next = Nft::open(Settings::default()).unwrap();
        assert_eq!(adopt(&mut next).operations, 0, "nothing is left to be done");
    });
}

/// A packet that is under way with the rules of the earlier layout must not find its generation.
#[test]
fn the_generation_of_an_earlier_layout_is_emptied_before_it_goes() {
    let mut earlier = Table::default();
    earlier.set(SetSpec::new("generation", &[Field::Port], Holds::Keys));
    let next = Table::default();
    let change = Change::between(&earlier, &next);
    assert_eq!((change.emptied, change.gone_sets), (vec!["generation"], vec!["generation"]));
}
