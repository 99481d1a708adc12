//! Every way to a destination, each judged by the Program that is enforced.

use super::attack::Attempt;
use super::destination::{Place, Spot};
use super::path::{Found, Outcome, Path, Paths, Way};
use super::trial::{Trial, Unit, Untried};
use crate::input::{FOREVER, Loaded, NOW};
use anyhow::Result;
use namewall_policy::addr::next_address;
use namewall_policy::ask::{Host, Target, World};
use namewall_policy::domain::{PatternId, RulePattern};
use namewall_policy::explain::describe_reason;
use namewall_policy::lease::LeaseTable;
use namewall_policy::model::{ServiceId, WorkloadId};
use namewall_policy::port::{Protocol, Traffic, TransportPort};
use namewall_policy::reach::{Groups, Matrix, Reach};
use namewall_policy::unknown::Described;
use namewall_policy::{Endpoint, Flow, Lease, evaluate};
use std::net::IpAddr;

/// Ports that say the most in an answer.
const COMMON: [u16; 6] = [443, 80, 22, 53, 6443, 10250];

pub(super) struct Audit<'a> {
    pub(super) loaded: &'a Loaded,
    pub(super) place: &'a Place,
    pub(super) matrix: Matrix<'a>,
    groups: Groups,
    pub(super) paths: Paths,
    pub(super) attempts: Vec<Attempt>,
}

/// The ways, and connections that take them.
pub(super) struct Audited {
    pub(super) paths: Vec<Path>,
    /// The same, for each source and address.
    pub(super) units: Vec<Unit>,
    pub(super) attempts: Vec<Attempt>,
}

/// A direct connection.
pub(super) struct Ends<'a> {
    pub(super) from: &'a Endpoint,
    pub(super) to: IpAddr,
}

/// Where connections come from.
pub(super) struct Source {
    /// As it is shown.
    pub(super) name: String,
    pub(super) hosts: Vec<Host>,
    pub(super) ends: Vec<Endpoint>,
    pub(super) workload: Option<WorkloadId>,
}

impl<'a> Audit<'a> {
    pub(super) fn new(loaded: &'a Loaded, place: &'a Place) -> Self {
        let matrix = loaded.matrix();
        let groups = Groups::by_workload(&matrix);
        Self { loaded, place, matrix, groups, paths: Paths::default(), attempts: Vec::new() }
    }

    pub(super) fn run(mut self) -> Result<Audited> {
        let place = self.place;
        let (pods, on_hosts) = self.sources();
        for source in &pods {
            self.direct(source);
            self.by_name(source);
            self.reach_node_itself(source);
        }
        self.enter_from_outside();
        for source in on_hosts {
            let by = "a pod on its node's network cannot be told from the node, and no policy applies to it";
            let found = Found::new(Way::HostNetwork, Outcome::OutOfReach, by.to_owned());
            for spot in &place.spots {
                self.paths.add(&source.name, &found, Trial::Never(Untried::NoPolicy).at(spot));
            }
            if let Some(network) = place.network {
                self.paths.add(&source.name, &found, Trial::Never(Untried::NoPolicy).at(network));
            }
        }
        for at in 0..self.loaded.snapshot.services.len() {
            self.service(ServiceId(at as u32), &pods)?;
        }
        let units = self.paths.units();
        Ok(Audited { paths: self.paths.list(), units, attempts: self.attempts })
    }

    /// A connection to try, once.
    pub(super) fn attempt(&mut self, attempt: Attempt) -> Trial {
        let known = self.attempts.iter().position(|one| *one == attempt);
        Trial::By(known.unwrap_or_else(|| {
            self.attempts.push(attempt);
            self.attempts.len() - 1
        }))
    }

    /// The connection that stands for what was found of the direct way.
    pub(super) fn attempt_directly(&mut self, source: &Source, ends: &Ends<'_>, found: &Found) -> Trial {
        let (Some(from), Some(connections)) = (ends.from.address, &found.connections) else {
            return Trial::Never(Untried::NoAddress);
        };
        let to = ends.to;
        if !is_host(to) {
            return Trial::Never(Untried::NoHost);
        }
        let TransportPort { protocol, port } = sample(connections);
        let port = protocol.has_ports().then_some(port);
        let (way, source, from) = (found.way.clone(), source.name.clone(), Host::Address(from));
        self.attempt(Attempt {
            way,
            source,
            from,
            to: Target { host: Host::Address(to), protocol, port },
            through: None,
        })
    }

    pub(super) fn world(&self) -> World<'a> {
        self.loaded.world()
    }

    /// Workloads by their network: the pods' own, and their nodes'.
    fn sources(&self) -> (Vec<Source>, Vec<Source>) {
        let snapshot = &self.loaded.snapshot;
        let sources = self.groups.iter().map(|(id, group)| {
            let example = group.example();
            let workload = snapshot.workload(example);
            let source = Source {
                name: self.groups.name(snapshot, id),
                hosts: match workload.addresses.is_empty() {
                    false => workload.addresses.iter().map(|&address| Host::Address(address)).collect(),
                    true => vec![Host::Object {
                        namespace: snapshot.namespace(workload.namespace).name.to_string(),
                        kind: Some(workload.kind.name().to_owned()),
                        name: workload.name.to_string(),
                    }],
                },
                ends: self.loaded.program.endpoints(snapshot, example),
                workload: Some(example),
            };
            (workload.host_network, source)
        });
        let (on_hosts, pods): (Vec<_>, Vec<_>) = sources.partition(|(is_on_host, _)| *is_on_host);
        (pods.into_iter().map(|(_, source)| source).collect(), on_hosts.into_iter().map(|(_, source)| source).collect())
    }

    fn direct(&mut self, source: &Source) {
        let place = self.place;
        for spot in &place.spots {
            let to = spot.end(&self.loaded.program);
            if to.workload.is_some() && to.workload == source.workload {
                continue;
            }
            self.directly_by_every_address(source, &to, spot);
        }
        let Some(example) = source.workload else { return };
        for outside in self.matrix.outside_to(example).iter() {
            let Some(blocks) = place.within(outside.range.first, outside.range.last) else { continue };
            // Within a range every address fares the same; those that somebody has are asked about above.
            let to = Endpoint { address: Some(blocks[0].address()), ..Endpoint::default() };
            let spot = Spot { address: blocks[0].address(), port: None };
            let Some(from) = source.ends.iter().find(|from| same_family(from, &to)) else { continue };
            for found in self.judged(from, &to, &spot.asked()) {
                // No machine has the first address of most networks.
                let first = next_address(spot.address).filter(|next| blocks[0].contains(*next)).unwrap_or(spot.address);
                let trial = self.attempt_directly(source, &Ends { from, to: first }, &found);
                blocks.iter().for_each(|block| self.paths.add(&source.name, &found, trial.at(block)));
            }
        }
    }

    /// From each of the pod's own addresses, and by its second networks, which the same policies judge.
    fn directly_by_every_address(&mut self, source: &Source, to: &Endpoint, spot: &Spot) {
        for from in source.ends.iter().filter(|from| same_family(from, to)) {
            for found in self.judged(from, to, &spot.asked()) {
                let trial = self.attempt_directly(source, &Ends { from, to: spot.address }, &found);
                self.paths.add(&source.name, &found, trial.at(spot));
            }
        }
        let snapshot = &self.world().snapshot;
        let second = source.workload.map(|id| snapshot.workload(id).second_addresses.clone()).unwrap_or_default();
        let by_second = second.iter().find(|address| address.is_ipv4() == spot.address.is_ipv4());
        if let (Some(address), Some(from)) = (by_second, source.ends.first()) {
            let from = Endpoint { address: Some(*address), ..from.clone() };
            for found in self.judged(&from, to, &spot.asked()) {
                let (found, trial) =
                    (Found { way: Way::SecondInterface, ..found }, Trial::Never(Untried::SecondNetwork));
                self.paths.add(&source.name, &found, trial.at(spot));
            }
        }
    }

    /// What is open, what depends on something, and what is closed, each with its reason.
    pub(super) fn judged(&self, from: &Endpoint, to: &Endpoint, asked: &Traffic) -> Vec<Found> {
        let reach = self.loaded.reach();
        let reachable = reach.between(from, to).limit(asked);
        let parts = [
            (Outcome::Open, reachable.open.clone()),
            (Outcome::Depends, reachable.depends()),
            (Outcome::Closed, asked.subtract(&reachable.possible)),
        ];
        let found = parts.into_iter().filter(|(_, part)| !part.is_none()).map(|(outcome, part)| {
            let mut found = Found::new(Way::Direct, outcome, String::new());
            if outcome == Outcome::Depends {
                let World { snapshot, program, .. } = self.world();
                let conditions = reach.depends_on(from, to, asked);
                found.depends_on = conditions.iter().map(|one| one.describe(snapshot, program)).collect();
                found.by = Described::join(&found.depends_on);
            } else {
                let TransportPort { protocol, port } = sample(&part);
                let (from, to) = (from.clone(), to.clone());
                found.by = self.reason(&Flow { from, to, protocol, port, via: None, hop: None, masker: None });
            }
            found.connections = Some(part);
            found
        });
        found.collect()
    }

    pub(super) fn reason(&self, flow: &Flow) -> String {
        let World { snapshot, program, leases, .. } = self.world();
        describe_reason(snapshot, program, &evaluate(program, leases, flow, NOW).reason, flow)
    }

    /// Rules by name that open it, should an answer point there.
    fn by_name(&mut self, source: &Source) {
        let (loaded, place) = (self.loaded, self.place);
        let (Some(example), program) = (source.workload, &loaded.program) else { return };
        let names = program.names_of(program.member(example).class);
        let patterns = names.iter().map(|id| program.patterns.get(PatternId(id as u32)));
        let patterns: Vec<&RulePattern> = patterns.filter(|pattern| !pattern.denies()).collect();
        if patterns.is_empty() {
            return;
        }
        let refusal = |address: IpAddr| -> Option<String> {
            let all = patterns.iter().map(|pattern| loaded.never_leased(&pattern.names.example(), address));
            all.collect::<Option<Vec<String>>>()?.into_iter().next()
        };
        for spot in &place.spots {
            match refusal(spot.address) {
                Some(refusal) => {
                    let by = format!("no answer opens it: {refusal}");
                    let found = Found::new(Way::Name, Outcome::Closed, by);
                    self.paths.add(&source.name, &found, Trial::Never(Untried::Name).at(spot));
                }
                None => self.opened_by_name(source, &patterns, spot),
            }
        }
        let Some(network) = place.network else { return };
        for outside in self.matrix.outside_to(example).iter() {
            let blocks = place.within(outside.range.first, outside.range.last).unwrap_or_default();
            // Within a range every address fares the same, but for those that are never leased.
            let addresses = blocks.iter().flat_map(|block| [Some(block.address()), next_address(block.address())]);
            let inside = addresses.flatten().filter(|address| network.contains(*address));
            if let Some(address) = inside.into_iter().find(|address| refusal(*address).is_none()) {
                let spot = Spot { address, port: None };
                self.opened_by_name(source, &patterns, &spot);
            }
        }
    }

    fn opened_by_name(&mut self, source: &Source, patterns: &[&RulePattern], spot: &Spot) {
        let program = &self.loaded.program;
        let to = spot.end(program);
        let Some(from) = source.ends.iter().find(|from| same_family(from, &to)) else { return };
        if to.workload.is_some() && to.workload == source.workload {
            return;
        }
        let without = self.loaded.reach().between(from, &to).limit(&spot.asked());
        for &pattern in patterns {
            let mut leases = LeaseTable::default();
            let (pattern, name) = (pattern.clone(), pattern.names.example());
            let by = format!("open if an answer for {pattern} points there");
            leases.grant(Lease { pattern, name, address: spot.address, expiry: FOREVER, asked_by: None });
            let with = Reach { program, leases: &leases, now: NOW }.between(from, &to).limit(&spot.asked());
            let more = with.possible.subtract(&without.open);
            if !more.is_none() {
                let found = Found { connections: Some(more), ..Found::new(Way::Name, Outcome::Depends, by) };
                // Of a network, addresses that nobody has stand for others.
                let is_known = self.place.spots.contains(spot);
                let label = self
                    .place
                    .network
                    .filter(|_| !is_known)
                    .map_or_else(|| spot.to_string(), |network| network.to_string());
                self.paths.add(&source.name, &found, Trial::Never(Untried::Name).at(label));
            }
        }
    }
}

pub(super) fn same_family(from: &Endpoint, to: &Endpoint) -> bool {
    match (from.address, to.address) {
        (Some(from), Some(to)) => from.is_ipv4() == to.is_ipv4(),
        _ => true,
    }
}

/// Whether a host outside, a node or a pod can have the address.
pub(super) fn is_host(address: IpAddr) -> bool {
    let is_reserved = match address {
        IpAddr::V4(v4) => v4.is_broadcast() || v4.octets()[0] == 0 || v4.octets()[0] >= 240,
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(address.is_unspecified() || address.is_multicast() || address.is_loopback() || is_reserved)
}

/// A connection that stands for all of them.
fn sample(traffic: &Traffic) -> TransportPort {
    for protocol in Protocol::WITH_PORTS {
        let has = |port: &u16| traffic.contains(protocol, *port);
        if let Some(port) = COMMON.into_iter().find(has).or_else(|| (1..=u16::MAX).find(has)) {
            return TransportPort { protocol, port };
        }
    }
    TransportPort { protocol: Protocol::Icmp, port: 0 }
}
