//! Services that lead to Services: an endpoint of one is an address of another,
//! or its node port. The client's own node translates the first. The node that
//! gets the connection next translates the second, and may not know the client
//! (S1.11). So the first step is judged as the client's, and all others
//! like connections from outside. A chain is open if every step is.

use super::attack::Attempt;
use super::path::{Found, Outcome, Way};
use super::services::Door;
use super::trial::{Trial, Untried};
use super::ways::{Audit, Source};
use crate::input::NOW;
use anyhow::Result;
use namewall_policy::ask::{Host, Target, World};
use namewall_policy::model::{BackendTarget, Direction, ServiceId, ServicePort};
use namewall_policy::port::TransportPort;
use namewall_policy::unknown::Described;
use namewall_policy::{Dependence, Flow, Prediction, Reason, evaluate};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

/// Chains that begin with one port, and the steps that are looked at to find them. Services that all lead to each other
/// have more chains than anybody can list.
const MOST_CHAINS: usize = 32;
const MOST_LOOKED_AT: usize = 4_096;

/// The chains that begin with a port and end at the destination.
#[derive(Default, Debug)]
pub(super) struct Chains {
    /// Each without the port that it begins with, the short ones first.
    pub(super) found: Vec<Vec<PortRef>>,
    /// True if there may be more.
    pub(super) is_cut: bool,
}

impl Chains {
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty() && !self.is_cut
    }
}

/// A port of a Service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct PortRef {
    pub(super) service: ServiceId,
    /// Its place in the Service's list.
    pub(super) port: usize,
}

impl PortRef {
    /// The port, which is one of this Service's.
    pub(super) fn new(world: &World<'_>, service: ServiceId, port: &ServicePort) -> Option<Self> {
        let mut ports = world.snapshot.services[service.index()].ports.iter();
        let port = ports.position(|one| std::ptr::eq(one, port))?;
        Some(Self { service, port })
    }

    fn of<'w>(self, world: &World<'w>) -> &'w ServicePort {
        &world.snapshot.services[self.service.index()].ports[self.port]
    }

    fn name(self, world: &World<'_>) -> String {
        let service = &world.snapshot.services[self.service.index()];
        format!("{}/{}", world.snapshot.namespace(service.namespace).name, service.name)
    }

    /// The ports of Services that its endpoints are addresses of.
    fn next(self, world: &World<'_>) -> Vec<Self> {
        let port = self.of(world);
        let mut found = Vec::new();
        for backend in &port.backends {
            let BackendTarget::Address(address) = backend.target else { continue };
            let at = TransportPort { protocol: port.protocol, port: backend.port };
            found.extend(led_to(world, address, at).filter(|next| !found.contains(next)));
        }
        found
    }
}

/// The port of a Service that an address leads to.
fn led_to(world: &World<'_>, address: IpAddr, port: TransportPort) -> Option<PortRef> {
    if world.program.pod_at(address).is_some() {
        return None;
    }
    let (service, found) = world.translate(address, port).or_else(|| world.relayed(address, port))?;
    PortRef::new(world, service, found)
}

/// The port and all that it leads to, each with the ports that it leads to itself.
fn steps(world: &World<'_>, start: PortRef) -> BTreeMap<PortRef, Vec<PortRef>> {
    let (mut steps, mut left) = (BTreeMap::new(), vec![start]);
    while let Some(port) = left.pop() {
        if let Entry::Vacant(place) = steps.entry(port) {
            left.extend(place.insert(port.next(world)).iter().copied());
        }
    }
    steps
}

/// Whether the port leads to other Services. A node translates a connection once, so who gets it next decides whether
/// it goes on: that is up to routes that no object has.
pub(super) fn leads_on(world: &World<'_>, start: PortRef) -> bool {
    !start.next(world).is_empty()
}

impl Audit<'_> {
    /// The chains that begin with this port and end at the destination. A chain does not lead through one port twice.
    pub(super) fn chains_from(&self, start: PortRef) -> Chains {
        let world = self.world();
        let steps = steps(&world, start);
        let mut useful: BTreeSet<PortRef> =
            steps.keys().copied().filter(|port| self.leads_here(port.of(&world))).collect();
        let ends = useful.clone();
        // Only ports from which the destination can be reached are followed.
        loop {
            let leads = |(port, next): &(&PortRef, &Vec<PortRef>)| {
                !useful.contains(port) && next.iter().any(|next| useful.contains(next))
            };
            let more: Vec<PortRef> = steps.iter().filter(leads).map(|(port, _)| *port).collect();
            if more.is_empty() {
                break;
            }
            useful.extend(more);
        }
        let mut chains = Chains::default();
        let (mut left, mut looked_at) = (VecDeque::from([vec![start]]), 0);
        while let Some(chain) = left.pop_front() {
            looked_at += 1;
            if chains.found.len() == MOST_CHAINS || looked_at > MOST_LOOKED_AT {
                chains.is_cut = true;
                break;
            }
            let Some(last) = chain.last() else { continue };
            let next = steps.get(last).into_iter().flatten();
            let next = next.filter(|next| useful.contains(next) && !chain.contains(next));
            left.extend(next.map(|next| [&chain[..], &[*next]].concat()));
            if chain.len() > 1 && ends.contains(last) {
                chains.found.push(chain[1..].to_vec());
            }
        }
        chains
    }

    /// Says that not all chains from a port are listed.
    pub(super) fn note_cut(&mut self, door: Door<'_>, source: &Source) {
        let (Way::Service(name, at) | Way::NodePort(name, at)) = door.entry.way(&door, source.workload.map(|_| false))
        else {
            return;
        };
        let by = format!("more than {MOST_CHAINS} chains of Services begin there, and the others are not listed");
        let found = Found::new(Way::Chain(vec![name], at), Outcome::Depends, by);
        self.paths.add(&source.name, &found, Trial::Never(Untried::NotListed).at("by further chains"));
    }

    pub(super) fn enter_chain(&mut self, door: Door<'_>, chain: &[PortRef], source: &Source) -> Result<()> {
        let world = self.world();
        let Door { service, name, port, entry } = door;
        // The name of a Service without addresses is one for the addresses of the next, which is listed itself.
        let (Some(address), Some(&first), Some(&last)) = (entry.address, chain.first(), chain.last()) else {
            return Ok(());
        };
        let target = Target { host: Host::Address(address), protocol: port.protocol, port: Some(entry.port) };
        let is_led_to = |flow: &Flow, next: PortRef| {
            let at = TransportPort { protocol: flow.protocol, port: flow.port };
            flow.to.address.is_some_and(|address| led_to(&world, address, at) == Some(next))
        };
        let from_outside = |port: PortRef| {
            let routes = world.from_outside(port.service, port.of(&world));
            routes.into_iter().flat_map(|route| route.flows)
        };
        let between = chain.windows(2).flat_map(|pair| {
            let (port, next) = (pair[0], pair[1]);
            from_outside(port).filter(move |flow| is_led_to(flow, next)).take(1)
        });
        let between: Vec<Flow> = between.collect();
        let ends: Vec<Flow> = from_outside(last).filter(|flow| self.is_here(flow)).collect();
        for host in &source.hosts {
            let routes = world.routes(host, &target)?.into_iter().filter(|route| !route.relayed);
            let begins = routes.flat_map(|route| route.flows).find(|flow| is_led_to(flow, first));
            let Some(begins) = begins else { continue };
            let elsewhere = source.workload.map(|_| begins.hop.is_some());
            let (Way::Service(_, at) | Way::NodePort(_, at)) = entry.way(&door, elsewhere) else { continue };
            let names = [name.to_owned()].into_iter().chain(chain.iter().map(|port| port.name(&world))).collect();
            let way = Way::Chain(names, at);
            // Whether somebody gets the connection who translates an address of a Service is up to routes.
            let asked = [&begins].into_iter().chain(&between).filter_map(|flow| flow.to.address);
            let asked = asked.filter(|address| !world.program.is_node_address(*address));
            let next = asked.map(|address| Dependence::NextNode { to: world.program.endpoint_at(address) }).collect();
            let next = world.describe(next);
            let trial = self.attempt(Attempt {
                way: way.clone(),
                source: source.name.clone(),
                from: host.clone(),
                to: target.clone(),
                through: PortRef::new(&world, service, port),
            });
            for end in &ends {
                let legs = [&begins].into_iter().chain(&between).chain([end]);
                let found = self.judged_steps(&way, legs, Some(&begins)).on_condition(&next);
                let to = end.to.address.map(|address| address.to_string()).unwrap_or_default();
                self.paths.add(&source.name, &found, trial.at(format!("{to} port {}/{}", end.port, end.protocol)));
            }
        }
        Ok(())
    }

    fn is_here(&self, flow: &Flow) -> bool {
        let at = TransportPort { protocol: flow.protocol, port: flow.port };
        flow.to.address.is_some_and(|address| self.place.has(address, at))
    }

    /// What becomes of steps that follow each other: one that is closed closes the way. `client` is the first, where
    /// others may see its source.
    pub(super) fn judged_steps<'f>(
        &self,
        way: &Way,
        legs: impl Iterator<Item = &'f Flow>,
        client: Option<&Flow>,
    ) -> Found {
        let (world, way) = (self.world(), way.clone());
        let mut depends_on: Vec<Described> = Vec::new();
        let mut open = None;
        for leg in legs {
            let outlook = world.reach().predict(leg);
            match outlook.prediction {
                // The client's own policies say the most of why it is open.
                Prediction::Allow => open = open.or(Some(leg)),
                Prediction::Deny if client.is_some_and(|client| self.lets_client_in(leg, client)) => {
                    let by = format!("{}; by its own address the client is let in", self.reason(leg));
                    return Found::new(way, Outcome::Depends, by);
                }
                Prediction::Deny => return Found::new(way, Outcome::Closed, self.reason(leg)),
                Prediction::Depends => depends_on.extend(world.describe(outlook.depends_on)),
            }
        }
        if depends_on.is_empty() {
            return Found::new(way, Outcome::Open, open.map(|leg| self.reason(leg)).unwrap_or_default());
        }
        let by = Described::join(&depends_on);
        Found { depends_on, ..Found::new(way, Outcome::Depends, by) }
    }

    /// Whether a pod that keeps others out lets the client in, where no node replaces the client's address.
    fn lets_client_in(&self, leg: &Flow, begins: &Flow) -> bool {
        let world = self.world();
        if leg.to.workload.is_none() || leg.from == begins.from {
            return false;
        }
        let itself = Flow { from: begins.from.clone(), via: None, hop: None, masker: None, ..leg.clone() };
        match evaluate(world.program, world.leases, &itself, NOW).reason {
            Reason::Allowed { .. } => true,
            Reason::Denied { stage, .. } => stage.direction() == Direction::Egress,
        }
    }
}
