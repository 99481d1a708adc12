//! Direct ways from outside the cluster, to pods and to nodes.

use super::destination::Spot;
use super::path::{Found, Outcome, Way};
use super::trial::{Trial, Untried};
use super::ways::{Audit, Ends, Source, is_host};
use namewall_policy::Endpoint;
use namewall_policy::addr::{AddrRange, next_address, parse_address};
use namewall_policy::ask::Host;
use namewall_policy::model::WorkloadId;
use std::net::IpAddr;

/// Clients outside, one of which nobody in the cluster has.
const CLIENTS: [&str; 6] =
    ["203.0.113.254", "198.51.100.254", "192.0.2.254", "2001:db8:ffff::fffe", "3fff::fffe", "2001:db8::fffe"];

const OUTSIDE: &str = "outside";

impl Audit<'_> {
    pub(super) fn enter_from_outside(&mut self) {
        let (place, loaded) = (self.place, self.loaded);
        for spot in &place.spots {
            let to = spot.end(&loaded.program);
            match to.workload.filter(|id| !loaded.snapshot.workload(*id).host_network) {
                Some(pod) => self.enter_pod(pod, &to, spot),
                None if loaded.program.is_node_address(spot.address) || to.workload.is_some() => {
                    let by = "policies apply to pods: what comes from outside to a node itself is up to the node's own \
                              firewall";
                    let found = Found::new(Way::Direct, Outcome::OutOfReach, by.to_owned());
                    self.paths.add(OUTSIDE, &found, Trial::Never(Untried::NoPolicy).at(spot));
                }
                // From outside to outside no node sees anything.
                None => {}
            }
        }
    }

    fn enter_pod(&mut self, pod: WorkloadId, to: &Endpoint, spot: &Spot) {
        let program = &self.loaded.program;
        let ranges = self.matrix.outside_from(pod);
        let ranges = ranges.iter().map(|outside| outside.range).filter(|range| {
            // A node that has the address is not outside.
            let is_node = range.first == range.last && program.is_node_address(range.first);
            range.first.is_ipv4() == spot.address.is_ipv4() && !is_node
        });
        let fares = |range: AddrRange| {
            let from = Endpoint { address: Some(range.first), ..Endpoint::default() };
            (range, self.judged(&from, to, &spot.asked()))
        };
        let ranges: Vec<(AddrRange, Vec<Found>)> = ranges.map(fares).collect();
        let is_one = ranges.windows(2).all(|pair| pair[0].1 == pair[1].1);
        for (range, all) in &ranges {
            let name = if is_one { OUTSIDE.to_owned() } else { format!("{OUTSIDE} {range}") };
            // Where all fare the same, the first range may have no host.
            let within = |client: &IpAddr| match is_one {
                true => ranges.iter().any(|(range, _)| has(range, *client)),
                false => has(range, *client),
            };
            let client = self.client_outside(spot.address, range, within);
            for found in all {
                let trial = match client {
                    Some(client) => {
                        let hosts = vec![Host::Address(client)];
                        let ends = vec![Endpoint { address: Some(client), ..Endpoint::default() }];
                        let source = Source { name: name.clone(), hosts, ends, workload: None };
                        self.attempt_directly(&source, &Ends { from: &source.ends[0], to: spot.address }, found)
                    }
                    None => Trial::Never(Untried::NoHost),
                };
                self.paths.add(&name, found, trial.at(spot));
            }
        }
    }

    /// A host of the range that a sandbox can have outside.
    fn client_outside(&self, to: IpAddr, range: &AddrRange, within: impl Fn(&IpAddr) -> bool) -> Option<IpAddr> {
        let usual = self.free_outside(to).find(&within);
        // No machine has the first address of most networks.
        let of_range = [next_address(range.first), Some(range.first)].into_iter().flatten();
        usual.or_else(|| of_range.filter(|client| is_host(*client) && self.is_free(client)).find(&within))
    }

    fn is_free(&self, one: &IpAddr) -> bool {
        let program = &self.loaded.program;
        !program.is_node_address(*one)
            && program.pod_at(*one).is_none()
            && !program.service_addresses.contains(*one)
            && !program.pod_networks.contains(*one)
    }

    /// Clients of the family of the address, which nobody in the cluster has.
    fn free_outside(&self, address: IpAddr) -> impl Iterator<Item = IpAddr> {
        let clients = CLIENTS.iter().filter_map(|text| parse_address(text));
        clients.filter(move |one| one.is_ipv4() == address.is_ipv4() && self.is_free(one))
    }

    /// A client outside, of the family of the address.
    pub(super) fn outside(&self, address: Option<IpAddr>) -> Option<Source> {
        let address = address?;
        let free = || self.free_outside(address);
        let client = free().find(|one| !self.place.contains(*one)).or_else(|| free().next())?;
        let ends = vec![self.loaded.program.endpoint_at(client)];
        Some(Source { name: OUTSIDE.to_owned(), hosts: vec![Host::Address(client)], ends, workload: None })
    }
}

fn has(range: &AddrRange, address: IpAddr) -> bool {
    range.first.is_ipv4() == address.is_ipv4() && range.first <= address && address <= range.last
}
