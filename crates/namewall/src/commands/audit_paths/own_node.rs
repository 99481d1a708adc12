//! Ways from a pod to a node by addresses that no object lists: loopback and link-local addresses, which every machine
//! has for itself, and groups, which every node of a link is in. A firewall that lists a node's addresses leaves them
//! open; one that denies `nodes` does not (S7.2, S1.10).

use super::path::{Found, Way};
use super::trial::{Trial, Untried};
use super::ways::{Audit, Source};
use namewall_policy::Endpoint;
use namewall_policy::addr::{AddrRange, AddrSet, Cidr, own_to_each_machine};
use namewall_policy::port::{Protocol, Traffic};

impl Audit<'_> {
    pub(super) fn reach_node_itself(&mut self, source: &Source) {
        let (place, program) = (self.place, &self.loaded.program);
        let of_nodes = place.spots.iter().filter(|spot| program.is_node_address(spot.address));
        let asked = of_nodes.fold(Traffic::none(), |asked, spot| asked.union(&spot.asked()));
        let (Some(example), false) = (source.workload, asked.is_none()) else { return };
        let outside = self.matrix.outside_to(example);
        for (way, blocks) in ways() {
            let (asked, why) = match way {
                Way::Group => (without_connections(&asked), Untried::Group),
                _ => (asked.clone(), Untried::OwnToEachMachine),
            };
            if asked.is_none() {
                continue;
            }
            for block in outside.iter().flat_map(|outside| within(outside.range, &blocks)) {
                let to = Endpoint { address: Some(block.address()), ..Endpoint::default() };
                // A pod can send to these addresses whatever addresses it has.
                let from = Endpoint { address: to.address, ..source.ends[0].clone() };
                for found in self.judged(&from, &to, &asked) {
                    let found = Found { way: way.clone(), ..found };
                    self.paths.add(&source.name, &found, Trial::Never(why).at(block));
                }
            }
        }
    }
}

fn ways() -> [(Way, AddrSet); 3] {
    let is_link_local = |cidr: &Cidr| cidr.address().is_ipv6() && !cidr.address().is_loopback();
    let blocks = |wanted: &dyn Fn(&Cidr) -> bool| -> AddrSet {
        own_to_each_machine().ranges().flat_map(|range| range.cidrs()).filter(|cidr| wanted(cidr)).collect()
    };
    // No machine takes a packet for ::1 from a link, whatever its settings are.
    let loopback = blocks(&|cidr| cidr.address().is_ipv4());
    [(Way::Loopback, loopback), (Way::LinkLocal, blocks(&is_link_local)), (Way::Group, AddrSet::groups())]
}

/// TCP and SCTP need a partner: nobody opens such a connection to a group.
fn without_connections(asked: &Traffic) -> Traffic {
    let mut possible = Traffic::none();
    possible.insert(Protocol::Udp, 0, u16::MAX);
    possible.portless = true;
    asked.intersect(&possible)
}

fn within(range: AddrRange, blocks: &AddrSet) -> Vec<Cidr> {
    let range: AddrSet = range.cidrs().collect();
    range.intersect(blocks).ranges().flat_map(|range| range.cidrs()).collect()
}
