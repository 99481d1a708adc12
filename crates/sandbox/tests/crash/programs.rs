//! The three Programs, the same for whoever asks: random ones, of one cluster.

use super::world::{NOW, World};
use namewall_policy::domain::{RulePattern, Wildcard};
use namewall_policy::model::{Direction, Placement};
use namewall_policy::{Flow, Lease, LeaseTable, Program, Snapshot, Verdict, compile, evaluate};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Whose table it is; all that is asked passes it and no other.
pub(crate) const NODE: &str = "n1";
pub(crate) const TABLE: &str = "namewall";
/// With it there are connections that all of them allow, none, and any one or two.
const SEED: u64 = 16;

pub(crate) struct One {
    pub(crate) snapshot: Snapshot,
    pub(crate) program: Program,
    /// The same with the rules of one direction only.
    egress: Program,
    ingress: Program,
}

/// Who allows a connection, a bit for each Program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowing {
    pub(crate) both: u8,
    egress: u8,
    ingress: u8,
}

impl fmt::Display for Allowing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:03b} (egress {:03b}, ingress {:03b})", self.both, self.egress, self.ingress)
    }
}

impl Allowing {
    /// Whether a packet may pass that meets one Program of the round going out and another coming in. While a
    /// change is made that can happen to a single packet (security model, 9).
    pub(crate) fn in_parts(self, round: u8) -> bool {
        self.egress & round != 0 && self.ingress & round != 0
    }
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
            let (egress, _) = compile(&only(&snapshot, Direction::Egress));
            let (ingress, _) = compile(&only(&snapshot, Direction::Ingress));
            One { snapshot, program, egress, ingress }
        };
        Self { all: vec![next(), next(), next()], leases: leases() }
    }

    pub(crate) fn allowing(&self, flow: impl Fn(&Program) -> Flow) -> Allowing {
        let mut leases = LeaseTable::default();
        self.leases.iter().for_each(|lease| drop(leases.grant(lease.clone())));
        let bits = |program: fn(&One) -> &Program| {
            let allows = |one: &One| {
                let program = program(one);
                evaluate(program, &leases, &flow(program), NOW).verdict == Verdict::Allow
            };
            self.all.iter().enumerate().filter(|(_, one)| allows(one)).fold(0, |bits, (at, _)| bits | 1 << at)
        };
        Allowing { both: bits(|one| &one.program), egress: bits(|one| &one.egress), ingress: bits(|one| &one.ingress) }
    }
}

/// The cluster without what its policies say of the other direction.
fn only(snapshot: &Snapshot, direction: Direction) -> Snapshot {
    let mut snapshot = snapshot.clone();
    for policy in Arc::make_mut(&mut snapshot.policies) {
        match direction {
            Direction::Egress => policy.ingress.clear(),
            Direction::Ingress => policy.egress.clear(),
        }
        if let Placement::Network { isolates_ingress, isolates_egress } = &mut policy.placement {
            *isolates_ingress &= direction == Direction::Ingress;
            *isolates_egress &= direction == Direction::Egress;
        }
    }
    snapshot
}

/// Every name leads to two of the hosts outside.
fn leases() -> Vec<Lease> {
    let mut leases = Vec::new();
    for text in super::policy::PATTERNS {
        for wildcard in [Wildcard::Subdomains, Wildcard::OneLabel] {
            let pattern = super::policy::pattern(text, wildcard);
            for address in World::outside().into_iter().step_by(2) {
                let (name, expiry) = (pattern.domain().clone(), NOW + Duration::from_secs(3600));
                for pattern in [RulePattern::allow(pattern.clone()), RulePattern::deny(pattern.clone())] {
                    leases.push(Lease { pattern, name: name.clone(), address, expiry, asked_by: None });
                }
            }
        }
    }
    leases
}
