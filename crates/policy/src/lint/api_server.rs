//! `api-server-port`: a rule for the API server lists ports that it does not serve. `api-server-hosts`: a rule denies
//! the API server, and the other ports of its hosts stay open. `apiServer` is not all of those hosts (S7.3).

use super::report::{FindingTarget, Report};
use super::scene::{RuleView, Scene};
use crate::lease::{Instant, LeaseTable};
use crate::model::{Action, Clauses, Peer, Peers, PortMatch, Ports, ServedAddress};
use crate::port::{Traffic, TransportPort};
use crate::program::Plan;
use crate::reach::Reach;
use crate::unknown::SourceNode;
use std::collections::BTreeSet;
use std::net::IpAddr;

const INSTEAD: &str = "For other ports of these hosts use `nodes` or `networks`";

pub(super) fn lint(scene: &Scene<'_>, report: &mut Report<'_>) {
    let server = ApiServer::of(scene);
    if server.served.is_empty() {
        return;
    }
    let mut last = None;
    for rule in scene.rules() {
        // A rule is compiled to several where its peers differ in ports.
        let written = (rule.compiled.policy, rule.compiled.direction, rule.compiled.index);
        if last.replace(written) == Some(written) {
            continue;
        }
        let Clauses::Match { peers: Peers::Listed(peers), ports } = &rule.written.clauses else { continue };
        if !peers.contains(&Peer::ApiServer) {
            continue;
        }
        if let Ports::Listed(ports) = ports {
            unserved(&server, report, rule, ports);
        }
        if rule.written.action == Action::Deny {
            open_hosts(scene, &server, report, rule);
        }
    }
}

struct ApiServer {
    /// Where connections to it end. A Service's own address is translated before anything is judged (S1).
    hosts: BTreeSet<IpAddr>,
    /// At these ports.
    served: BTreeSet<TransportPort>,
    /// Ports of the Service that no host serves.
    translated: BTreeSet<TransportPort>,
}

impl ApiServer {
    fn of(scene: &Scene<'_>) -> Self {
        let is_translated =
            |at: &&ServedAddress| scene.snapshot.services.iter().any(|service| service.is_translated_at(at.address));
        let (services, hosts): (Vec<&ServedAddress>, Vec<&ServedAddress>) =
            scene.snapshot.api_server.iter().partition(is_translated);
        let served: BTreeSet<TransportPort> = hosts.iter().map(|at| at.port).collect();
        let translated = services.iter().map(|at| at.port).filter(|port| !served.contains(port)).collect();
        Self { hosts: hosts.iter().map(|at| at.address).collect(), served, translated }
    }

    fn ports(&self) -> String {
        listed(self.served.iter().map(|port| format!("{} {}", port.protocol, port.port)))
    }

    fn traffic(&self) -> Traffic {
        let mut traffic = Traffic::none();
        self.served.iter().for_each(|at| traffic.insert(at.protocol, at.port, at.port));
        traffic
    }
}

fn listed(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<Vec<_>>().join(", ")
}

fn unserved(server: &ApiServer, report: &mut Report<'_>, rule: RuleView<'_>, ports: &[PortMatch]) {
    let is_among = |ports: &BTreeSet<TransportPort>, port: &PortMatch| match port {
        PortMatch::Range { protocol, low, high } => {
            ports.iter().any(|at| at.protocol == *protocol && (*low..=*high).contains(&at.port))
        }
        PortMatch::Named { .. } => true,
    };
    let place = FindingTarget::Rule(rule.id);
    let is_served = |port: &&PortMatch| is_among(&server.served, port);
    let (served, others): (Vec<_>, Vec<_>) = ports.iter().partition(is_served);
    let (translated, unserved): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|port| is_among(&server.translated, port));
    if served.is_empty() && !ports.is_empty() {
        let why = match translated.is_empty() {
            true => "",
            false => " A port of the Service is translated before anything is judged.",
        };
        let message = format!(
            "`apiServer` is the API server at the ports that it serves ({}), and none of them is among the rule's: it \
             matches nothing there.{why} {INSTEAD}",
            server.ports()
        );
        report.warn(place, "api-server-port", message);
    } else if !unserved.is_empty() && rule.written.action == Action::Deny {
        let message = format!(
            "`apiServer` is the API server at the ports that it serves ({}): the rule does not deny {} of these hosts. \
             {INSTEAD}",
            server.ports(),
            listed(unserved.into_iter().map(text))
        );
        report.warn(place, "api-server-port", message);
    }
}

fn text(port: &PortMatch) -> String {
    match port {
        PortMatch::Range { protocol, low, high } if low == high => format!("{protocol} {low}"),
        PortMatch::Range { protocol, low, high } => format!("{protocol} {low}-{high}"),
        PortMatch::Named { name, .. } => name.to_string(),
    }
}

/// A Deny of the API server at all ports, or at more than it serves: what it says nothing of is open to some pod.
fn open_hosts(scene: &Scene<'_>, server: &ApiServer, report: &mut Report<'_>, rule: RuleView<'_>) {
    let (served, meant) = (server.traffic(), meant(rule));
    if meant.intersect(&served).is_none() {
        return;
    }
    let leases = LeaseTable::default();
    let reach = Reach { program: scene.program, leases: &leases, now: Instant::default() };
    for &host in &server.hosts {
        let end = scene.program.endpoint_at(host);
        let others =
            |plan: &Plan| reach.plan_egress(plan, &end, SourceNode::default()).intersect(&meant).subtract(&served);
        let mut exits = scene.exits_of(rule.compiled.policy);
        let Some((_, exit)) = exits.find(|(_, exit)| !others(exit.plan).is_none()) else { continue };
        let message = format!(
            "`apiServer` is the API server at the ports that it serves ({}): other ports of {host} stay open to {}. \
             {INSTEAD}",
            server.ports(),
            scene.snapshot.workload_name(exit.example)
        );
        report.hint(FindingTarget::Rule(rule.id), "api-server-hosts", message);
        return;
    }
}

/// The connections that a rule seems to be for: all, or those of its ranges. One port alone is a finding of its own.
fn meant(rule: RuleView<'_>) -> Traffic {
    let Clauses::Match { ports: Ports::Listed(ports), .. } = &rule.written.clauses else { return Traffic::all() };
    let mut meant = Traffic::none();
    for port in ports {
        if let PortMatch::Range { protocol, low, high } = port
            && low < high
        {
            meant.insert(*protocol, *low, *high);
        }
    }
    meant
}
