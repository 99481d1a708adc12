//! Scenarios with real packets: every step is taken in a [`Cluster`], and
//! every probe is a connection that is tried.

use crate::cluster::{Cluster, Wanted};
use crate::connection::Connection;
use crate::listen::Listen;
use crate::probe::{Measured, Probe};
use namewall_dataplane::CutEstablished;
use namewall_dataplane::nflog::Denied;
use namewall_policy::ask::{Host, Target};
use namewall_policy::model::{BackendTarget, ServiceId};
use namewall_policy::port::Protocol;
use namewall_policy::{Cause, Flow, Instant, Lease, Program, Reason, Snapshot, Verdict};
use namewall_scenario::{Fate, Now, Predicted, Reality, Scenario, Step};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

/// A probe that should get through and does not is tried again: the machine may be busy.
const REPEATS: usize = 3;
/// How often a Service with so many backends is asked, so that each has its turn.
const TURNS: usize = 3;

/// Network namespaces as the reality of a scenario.
#[derive(Debug, Default)]
pub struct Packets {
    cluster: Option<Cluster>,
    /// Every address a scenario speaks of; those nobody has are hosts outside.
    spoken_of: BTreeSet<IpAddr>,
    connections: BTreeMap<String, Connection>,
    services: Vec<Frontends>,
}

/// Where each Service is asked, with the backend each of its ports leads to.
#[derive(Debug, Default)]
struct Frontends {
    addresses: Vec<IpAddr>,
    /// Protocol, port, backend's port.
    ports: Vec<(Protocol, u16, u16)>,
}

impl Packets {
    pub fn for_scenario(scenario: &Scenario) -> Self {
        let mut spoken_of = BTreeSet::new();
        let mut host = |host: &Host| {
            if let Host::Address(address) = host {
                spoken_of.insert(*address);
            }
        };
        for step in &scenario.steps {
            match step {
                Step::Probe(probe) => {
                    host(&probe.from);
                    host(&probe.to.host);
                }
                Step::Connect { from, to, .. } => {
                    host(from);
                    host(&to.host);
                }
                Step::Answer { addresses, .. } => addresses.iter().for_each(|&address| host(&Host::Address(address))),
                _ => {}
            }
        }
        Self { spoken_of, ..Self::default() }
    }

    fn cluster(&mut self) -> Result<&mut Cluster, String> {
        self.cluster.as_mut().ok_or_else(|| "the sandbox is not up".to_owned())
    }

    /// The address and port a client would use to come to this end.
    fn asked(&self, flow: &Flow, target: Option<&Target>) -> Option<SocketAddr> {
        let to = flow.to.address?;
        let direct = SocketAddr::new(to, flow.port);
        if let Some(Target { host: Host::Address(address), port, .. }) = target {
            return Some(SocketAddr::new(*address, port.unwrap_or(0)));
        }
        let Some(ServiceId(service)) = flow.via else { return Some(direct) };
        let frontends = self.services.get(service as usize)?;
        let address = frontends.addresses.iter().find(|address| address.is_ipv4() == to.is_ipv4())?;
        let serves = |(protocol, port, backend): &&(Protocol, u16, u16)| {
            *protocol == flow.protocol
                && *backend == flow.port
                && target.and_then(|target| target.port).is_none_or(|asked| asked == *port)
        };
        let (_, port, _) = frontends.ports.iter().find(serves)?;
        Some(SocketAddr::new(*address, *port))
    }
}

fn outside_of(spoken_of: &BTreeSet<IpAddr>, snapshot: &Snapshot) -> Vec<IpAddr> {
    let mut outside = spoken_of.clone();
    let backends = snapshot.services.iter().flat_map(|service| &service.ports).flat_map(|port| &port.backends);
    outside.extend(backends.filter_map(|backend| match backend.target {
        BackendTarget::Address(address) => Some(address),
        BackendTarget::Workload(..) => None,
    }));
    outside.into_iter().collect()
}

fn frontends(snapshot: &Snapshot) -> Vec<Frontends> {
    let of = |service: &namewall_policy::model::Service| Frontends {
        addresses: service.addresses.clone(),
        ports: service
            .ports
            .iter()
            .flat_map(|port| port.backends.iter().map(|backend| (port.protocol, port.port, backend.port)))
            .collect(),
    };
    snapshot.services.iter().map(of).collect()
}

/// A connection to try, of a route of a probe.
struct Attempt {
    probe: usize,
    route: usize,
    /// Through a Service any of its backends may answer: all of the family must.
    all: bool,
    packet: Probe,
}

impl Reality for Packets {
    fn change(&mut self, now: &Now<'_>) -> Result<(), String> {
        let outside = outside_of(&self.spoken_of, now.snapshot);
        let cut = if now.cut_established { CutEstablished::Always } else { CutEstablished::V1Beta1 };
        let wanted = Wanted { snapshot: now.snapshot, program: now.program, outside: &outside, cut };
        self.services = frontends(now.snapshot);
        match &mut self.cluster {
            Some(cluster) => cluster.update(&wanted),
            None => Cluster::build(&wanted, &mut |_| {}).map(|cluster| self.cluster = Some(cluster)),
        }
        .map_err(words)
    }

    fn learn(&mut self, leases: &[Lease], now: Instant) -> Result<(), String> {
        self.cluster()?.grant(leases, now).map_err(words)
    }

    fn advance(&mut self, time: Duration) {
        thread::sleep(time);
    }

    fn probe(&mut self, now: &Now<'_>, probes: &[&Predicted]) -> Result<Vec<Result<String, String>>, String> {
        let mut attempts = Vec::new();
        let mut listens = BTreeSet::new();
        for (at, predicted) in probes.iter().enumerate() {
            for (route_at, route) in predicted.routes.iter().enumerate() {
                for flow in &route.flows {
                    let (Some(from), Some(to)) = (flow.from.address, flow.to.address) else { continue };
                    let Some(asked) = self.asked(flow, Some(&predicted.probe.to)) else { continue };
                    let cluster = self.cluster()?;
                    listens.insert(Listen { address: to, protocol: flow.protocol, port: flow.port });
                    let all = asked != SocketAddr::new(to, flow.port);
                    let times = if all { TURNS * predicted.routes.len() } else { 1 };
                    let place = cluster.sandbox.place(from).map_err(words)?;
                    let packet = Probe { from: place, to: asked, protocol: flow.protocol };
                    attempts.extend((0..times).map(|_| Attempt {
                        probe: at,
                        route: route_at,
                        all,
                        packet: packet.clone(),
                    }));
                }
            }
        }
        let cluster = self.cluster()?;
        // Nobody can listen at a Service's address where it serves nothing.
        let somebody = |listen: &Listen| cluster.sandbox.place(listen.address).is_ok();
        let listens: Vec<Listen> =
            listens.into_iter().filter(|listen| listen.protocol != Protocol::Icmp && somebody(listen)).collect();
        cluster.sandbox.ensure_listening(&listens).map_err(words)?;
        cluster.denials().map_err(words)?;
        let packets: Vec<Probe> = attempts.iter().map(|attempt| attempt.packet.clone()).collect();
        let mut measured = cluster.sandbox.probe(&packets).map_err(words)?;
        let denials = cluster.denials().map_err(words)?;
        for _ in 0..REPEATS {
            let again: Vec<usize> = (0..attempts.len())
                .filter(|&at| measured[at] == Measured::Silent)
                .filter(|&at| probes[attempts[at].probe].verdict == Verdict::Allow)
                .collect();
            if again.is_empty() {
                break;
            }
            let repeated: Vec<Probe> = again.iter().map(|&at| packets[at].clone()).collect();
            let results = cluster.sandbox.probe(&repeated).map_err(words)?;
            again.into_iter().zip(results).for_each(|(at, result)| measured[at] = result);
        }
        let told = Told { program: now.program, denials: &denials };
        let judge = |(at, predicted): (usize, &&Predicted)| {
            let own = attempts.iter().zip(&measured).filter(|(attempt, _)| attempt.probe == at);
            judge(predicted, &own.collect::<Vec<_>>())?;
            told.check(predicted, probes.len())
        };
        Ok(probes.iter().enumerate().map(judge).collect())
    }

    fn connect(&mut self, name: &str, flow: &Flow) -> Result<(), String> {
        let asked = self.asked(flow, None).ok_or("nobody can tell where to connect to")?;
        let (Some(from), Some(to)) = (flow.from.address, flow.to.address) else {
            return Err("an end of it has no address".to_owned());
        };
        let cluster = self.cluster()?;
        let listen = Listen { address: to, protocol: flow.protocol, port: flow.port };
        cluster.sandbox.ensure_listening(&[listen]).map_err(words)?;
        let place = cluster.sandbox.place(from).map_err(words)?;
        let mut last = Measured::Silent;
        for _ in 0..=REPEATS {
            match cluster.sandbox.connect(&place, asked, flow.protocol).map_err(words)? {
                Ok(connection) => {
                    self.connections.insert(name.to_owned(), connection);
                    return Ok(());
                }
                Err(measured) => last = measured,
            }
        }
        Err(format!("with packets: {last}"))
    }

    fn fate(&mut self, name: &str) -> Result<Fate, String> {
        let timeout = self.cluster()?.sandbox.timeout;
        let Some(connection) = self.connections.get_mut(name) else { return Ok(Fate::Cut) };
        let alive = connection.alive(timeout).map_err(words)?;
        Ok(if alive { Fate::Open } else { Fate::Cut })
    }
}

/// Whether what was measured is what was predicted.
fn judge(predicted: &Predicted, attempts: &[(&Attempt, &Measured)]) -> Result<(), String> {
    let odd = attempts.iter().find(|(_, measured)| !matches!(measured, Measured::Open | Measured::Silent));
    if let Some((attempt, measured)) = odd {
        return Err(format!("{measured} at {}", attempt.packet.to));
    }
    let is_open = |route: usize| {
        let mut families: BTreeMap<(SocketAddr, IpAddr), (bool, bool)> = BTreeMap::new();
        for (attempt, measured) in attempts.iter().filter(|(attempt, _)| attempt.route == route) {
            let key = (attempt.packet.to, attempt.packet.from.source);
            let (all, any) = families.entry(key).or_insert((true, false));
            *all &= **measured == Measured::Open;
            *any |= **measured == Measured::Open;
        }
        let through_service = attempts.iter().any(|(attempt, _)| attempt.route == route && attempt.all);
        families.values().any(|(all, any)| if through_service { *all } else { *any })
    };
    let open = !predicted.routes.is_empty() && (0..predicted.routes.len()).all(is_open);
    match (predicted.verdict, open) {
        (Verdict::Allow, true) | (Verdict::Deny, false) => Ok(()),
        (Verdict::Allow, false) => Err("silence, where the core allows".to_owned()),
        (Verdict::Deny, true) => Err("open, where the core denies".to_owned()),
    }
}

/// What the kernel told of denials.
struct Told<'a> {
    program: &'a Program,
    denials: &'a [Denied],
}

/// The kernel tells of so many at once, and of fewer later.
const TOLD: usize = 12;

impl Told<'_> {
    /// Whether the kernel gave the reason the core gives.
    fn check(&self, predicted: &Predicted, at_once: usize) -> Result<String, String> {
        let (reason, enforced) = match (&predicted.decision.reason, &predicted.decision.would_deny) {
            (reason @ Reason::Denied { .. }, _) => (reason, true),
            (_, Some(reason)) => (reason, false),
            _ => return self.nothing_told(predicted),
        };
        let flow = &predicted.flow;
        let is_it = |denied: &&Denied| {
            Some(denied.source) == flow.from.address
                && Some(denied.destination) == flow.to.address
                && (denied.protocol, denied.port) == (flow.protocol, flow.port)
                && denied.enforced == enforced
        };
        let expected = self.label(reason);
        let told: Vec<&str> = self.denials.iter().filter(is_it).map(|denied| denied.rule.as_str()).collect();
        if told.iter().any(|rule| expected.is_told_by(rule)) {
            return Ok(format!("{}, told of as {}", if enforced { "silence" } else { "open" }, told[0]));
        }
        match told.first() {
            Some(rule) => Err(format!("denied by {rule}, where the core says {expected:?}")),
            None if at_once > TOLD => Ok("silence".to_owned()),
            None => Err(format!("the kernel did not tell of it; the core says {expected:?}")),
        }
    }

    fn nothing_told(&self, predicted: &Predicted) -> Result<String, String> {
        let flow = &predicted.flow;
        let is_it = |denied: &&Denied| {
            Some(denied.source) == flow.from.address
                && Some(denied.destination) == flow.to.address
                && (denied.protocol, denied.port) == (flow.protocol, flow.port)
        };
        match self.denials.iter().find(is_it) {
            Some(denied) => Err(format!("the kernel told of {}", denied.rule)),
            None => Ok("open".to_owned()),
        }
    }

    fn label(&self, reason: &Reason) -> Label {
        let Reason::Denied { stage, cause } = reason else { return Label::Anything };
        match cause {
            Cause::Rule(id) => {
                let rule = self.program.rule(*id);
                let policy = &self.program.policy(rule.policy).id;
                Label::Rule { policy: policy.to_string(), direction: rule.direction.to_string(), index: rule.index }
            }
            _ => Label::Isolated(stage.direction().to_string()),
        }
    }
}

/// How the kernel calls what denied.
#[derive(Debug)]
enum Label {
    Rule { policy: String, direction: String, index: u32 },
    Isolated(String),
    Anything,
}

impl Label {
    fn is_told_by(&self, rule: &str) -> bool {
        match self {
            Self::Rule { policy, direction, index } => {
                let one = format!("{policy} {direction} rule {index}");
                let several = format!("{policy} {direction} rules ");
                let within = |range: &str| {
                    let (first, last) = range.split_once('-')?;
                    Some((first.parse::<u32>().ok()?..=last.parse().ok()?).contains(index))
                };
                rule == one || rule.strip_prefix(&several).and_then(within).unwrap_or(false)
            }
            Self::Isolated(direction) => rule.starts_with(&format!("isolated for {direction}")),
            Self::Anything => true,
        }
    }
}

/// An error and what led to it.
fn words(error: impl std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}
