//! The three Programs, the same for whoever asks: random ones, of one cluster.

use super::world::{NOW, World};
use namewall_policy::domain::Wildcard;
use namewall_policy::{Flow, Lease, LeaseTable, Program, Snapshot, Verdict, compile, evaluate};
use std::time::Duration;

/// Whose table it is; all that is asked passes it and no other.
pub(crate) const NODE: &str = "n1";
pub(crate) const TABLE: &str = "namewall";
/// With it there are connections that all of them allow, none, and any one or two.
const SEED: u64 = 16;

pub(crate) struct One {
    pub(crate) snapshot: Snapshot,
    pub(crate) program: Program,
}

pub(crate) struct Programs {
    pub(crate) all: Vec<One>,
    pub(crate) leases: Vec<Lease>,
}

impl Programs {
    pub(crate) fn new() -> Self {
        let mut world = World::new(SEED);
        let mut next = || {
            world.change_all();
            world.fill();
            let snapshot = world.snapshot();
            let (program, _) = compile(&snapshot);
            One { snapshot, program }
        };
        Self { all: vec![next(), next(), next()], leases: leases() }
    }

    /// A bit for each Program that allows it.
    pub(crate) fn allowing(&self, flow: impl Fn(&Program) -> Flow) -> u8 {
        let mut leases = LeaseTable::default();
        self.leases.iter().for_each(|lease| drop(leases.grant(lease.clone())));
        let allows = |one: &One| evaluate(&one.program, &leases, &flow(&one.program), NOW).verdict == Verdict::Allow;
        self.all.iter().enumerate().filter(|(_, one)| allows(one)).fold(0, |bits, (at, _)| bits | 1 << at)
    }
}

/// Every name leads to two of the hosts outside.
fn leases() -> Vec<Lease> {
    let mut leases = Vec::new();
    for text in super::policy::PATTERNS {
        for wildcard in [Wildcard::Subdomains, Wildcard::OneLabel] {
            let pattern = super::policy::pattern(text, wildcard);
            for address in World::outside().into_iter().step_by(2) {
                let (name, expiry) = (pattern.domain().clone(), NOW + Duration::from_secs(3600));
                leases.push(Lease { pattern: pattern.clone(), name, address, expiry, asked_by: None });
            }
        }
    }
    leases
}
