//! Rules about names: `name-without-deny`, `name-denied`, `public-suffix`.

use super::report::{FindingTarget, Report};
use super::scene::{RuleView, Scene, egress_policies};
use crate::addr::{AddrSet, Cidr};
use crate::domain::DomainPattern;
use crate::flow::Endpoint;
use crate::lease::{Instant, LeaseTable};
use crate::model::{Action, Clauses, Direction, Peer, Peers, Rule};
use crate::port::Traffic;
use crate::program::{Matcher, Plan};
use crate::reach::Reach;
use crate::unknown::SourceNode;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) fn lint(scene: &Scene<'_>, report: &mut Report<'_>) {
    let mut outside = Outside { scene, known: vec![None; scene.exits.len()] };
    for rule in scene.rules() {
        let place = FindingTarget::Rule(rule.id);
        for pattern in domains(rule.written).filter(|pattern| pattern.covers_public_suffix()) {
            let domain = pattern.domain();
            let message = format!(
                "*.{domain} covers a whole public suffix: anybody can register a name under {domain}. Name the domains that are meant"
            );
            report.warn(place, "public-suffix", message);
        }
        let Some(name) = domains(rule.written).next() else { continue };
        match rule.written.action {
            Action::Deny => {
                let message = format!(
                    "nobody knows every address of {}, so denying it does not keep pods from it. Allow what is needed and deny the rest by network",
                    name.domain()
                );
                report.warn(place, "name-denied", message);
            }
            Action::Allow if outside.open_anyway(rule) => {
                let message = "whom it is for may open these ports to any address outside anyway, so it changes nothing. Deny the rest in a rule after it, or remove it";
                report.warn(place, "name-without-deny", message);
            }
            Action::Allow | Action::Pass => {}
        }
    }
}

pub(super) fn domains(rule: &Rule) -> impl Iterator<Item = &DomainPattern> {
    let peers = match &rule.clauses {
        Clauses::Match { peers: Peers::Listed(peers), .. } => peers.as_slice(),
        _ => &[],
    };
    peers.iter().filter_map(|peer| match peer {
        Peer::Domain(pattern) => Some(pattern),
        _ => None,
    })
}

/// What may be opened to addresses outside that no rule singles out.
struct Outside<'a> {
    scene: &'a Scene<'a>,
    /// By way out.
    known: Vec<Option<Traffic>>,
}

impl Outside<'_> {
    /// Whether all whom the rule is for reach any address on its ports without it.
    fn open_anyway(&mut self, rule: RuleView<'_>) -> bool {
        let Matcher::Clauses { ports, .. } = rule.compiled.matcher else { return false };
        let ports = &self.scene.program.port_spec(ports).numbered;
        let exits = &self.scene.exits_of[rule.compiled.policy.index()];
        !exits.is_empty() && !ports.is_none() && exits.iter().all(|exit| ports.is_subset(self.traffic(exit)))
    }

    fn traffic(&mut self, exit: usize) -> &Traffic {
        let scene = self.scene;
        self.known[exit].get_or_insert_with(|| open_outside(scene, scene.exits[exit].plan))
    }
}

fn open_outside(scene: &Scene<'_>, plan: &Plan) -> Traffic {
    let probe = Probe::new(scene, plan);
    let Some(open) = probe.open(&V4_EXAMPLES) else { return Traffic::none() };
    if !scene.has_v6() {
        return open;
    }
    probe.open(&V6_EXAMPLES).map_or_else(Traffic::none, |v6| open.intersect(&v6))
}

/// Asks what a plan lets out to addresses that none of its rules singles out.
pub(super) struct Probe<'a> {
    scene: &'a Scene<'a>,
    plan: &'a Plan,
    special: AddrSet,
}

impl<'a> Probe<'a> {
    pub(super) fn new(scene: &'a Scene<'a>, plan: &'a Plan) -> Self {
        Self { scene, plan, special: special(scene, plan) }
    }

    /// What may be opened to such an address of these blocks, if there is one.
    pub(super) fn open(&self, blocks: &[(IpAddr, u8)]) -> Option<Traffic> {
        let address = ordinary(&self.special, blocks)?;
        let end = Endpoint { address: Some(address), ..Endpoint::default() };
        // Nothing is leased, so no rule about names opens anything here.
        let leases = LeaseTable::default();
        let reach = Reach { program: self.scene.program, leases: &leases, now: Instant::default() };
        Some(reach.plan_egress(self.plan, &end, SourceNode::default()))
    }
}

/// Addresses for documentation, which nobody has, before all others.
pub(super) const V4_EXAMPLES: [(IpAddr, u8); 2] =
    [(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 0)), 24), (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0)];
pub(super) const V6_EXAMPLES: [(IpAddr, u8); 2] =
    [(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0)), 32), (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0)];

fn ordinary(special: &AddrSet, blocks: &[(IpAddr, u8)]) -> Option<IpAddr> {
    blocks.iter().find_map(|&(address, prefix)| {
        let block: AddrSet = [Cidr::new(address, prefix)].into_iter().collect();
        let first = block.subtract(special).ranges().next()?.first;
        Some(first)
    })
}

/// The addresses that rules on this way out single out, and those that are not outside.
fn special(scene: &Scene<'_>, plan: &Plan) -> AddrSet {
    let mut blocks: Vec<Cidr> = Vec::new();
    for &policy in egress_policies(plan) {
        for rule in scene.snapshot.policy(policy).rules(Direction::Egress) {
            let Clauses::Match { peers: Peers::Listed(peers), .. } = &rule.clauses else { continue };
            for peer in peers {
                match peer {
                    Peer::Network { cidr, except } if cidr.is_whole_family() => blocks.extend(except),
                    Peer::Network { cidr, .. } => blocks.push(*cidr),
                    _ => {}
                }
            }
        }
    }
    blocks.into_iter().collect::<AddrSet>().union(&scene.inside)
}
