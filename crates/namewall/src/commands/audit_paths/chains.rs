//! Services that lead to Services: an endpoint of one is an address of another,
//! or its node port. The client's own node translates the first; whoever gets
//! the connection next translates the second, and does not surely know the
//! client (S1.11). So the first step is judged as the client's, and all others
//! like connections from outside. A chain is open if every step is.

use super::attack::Attempt;
use super::path::{Found, Outcome, Way};
use super::services::Door;
use super::ways::{Audit, Source};
use crate::input::NOW;
use anyhow::Result;
use namewall_policy::ask::{Host, Route, Target, World};
use namewall_policy::model::{BackendTarget, Direction, ServiceId, ServicePort};
use namewall_policy::port::TransportPort;
use namewall_policy::unknown::Described;
use namewall_policy::{Flow, Prediction, Reason, evaluate};
use std::net::IpAddr;

/// Longer chains are not followed.
const MOST_STEPS: usize = 8;

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

/// What follows the first step, for all chains that begin there.
pub(super) fn legs(world: &World<'_>, start: PortRef) -> Vec<Route> {
    let mut seen = start.next(world);
    let mut at = 0;
    while let Some(&port) = seen.get(at) {
        at += 1;
        for next in port.next(world) {
            if !seen.contains(&next) {
                seen.push(next);
            }
        }
    }
    seen.into_iter().flat_map(|port| world.from_outside(port.service, port.of(world))).collect()
}

/// Whether the port leads to other Services. A node translates a connection once, so who gets it next decides whether
/// it goes on: that is up to routes that no object has.
pub(super) fn leads_on(world: &World<'_>, start: PortRef) -> bool {
    !start.next(world).is_empty()
}

impl Audit<'_> {
    /// The chains that begin with this port and end at the destination, without the port itself. A chain does not lead
    /// through one port twice.
    pub(super) fn chains_from(&self, start: PortRef) -> Vec<Vec<PortRef>> {
        let world = self.world();
        let mut found = Vec::new();
        let mut left: Vec<Vec<PortRef>> = start.next(&world).into_iter().map(|next| vec![next]).collect();
        left.retain(|chain| chain[0] != start);
        while let Some(chain) = left.pop() {
            let Some(last) = chain.last().copied() else { continue };
            if chain.len() < MOST_STEPS {
                let next = last.next(&world).into_iter().filter(|next| *next != start && !chain.contains(next));
                left.extend(next.map(|next| [&chain[..], &[next]].concat()));
            }
            if self.leads_here(last.of(&world)) {
                found.push(chain);
            }
        }
        found
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
            for end in &ends {
                let legs = [&begins].into_iter().chain(&between).chain([end]);
                let found = self.judged_steps(&way, legs, Some(&begins));
                let to = end.to.address.map(|address| address.to_string()).unwrap_or_default();
                self.paths.add(&source.name, &found, format!("{to} port {}/{}", end.port, end.protocol));
            }
            let (source, from, to) = (source.name.clone(), host.clone(), target.clone());
            self.attempt(Attempt { way, source, from, to, through: PortRef::new(&world, service, port) });
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
