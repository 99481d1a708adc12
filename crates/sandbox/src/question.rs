//! Questions as users ask them, tried with packets: a question may stand for
//! several connections, and so do the packets that answer it.

use crate::cluster::Cluster;
use crate::error::Error;
use crate::listen::Listen;
use crate::probe::{Measured, Probe};
use namewall_policy::ask::{Host, Route, Target};
use namewall_policy::model::ServiceId;
use namewall_policy::port::Protocol;
use namewall_policy::{Flow, Prediction, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// A probe that should get through and does not is tried again: the machine may be busy.
const REPEATS: usize = 3;
/// How often a Service with so many backends is asked, so that each has its turn.
const TURNS: usize = 3;

/// What is asked, and what the core says.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    pub target: &'a Target,
    /// Every route must be open, by one of its connections.
    pub routes: &'a [Route],
    pub predicted: Prediction,
}

impl Question<'_> {
    /// True if a node may put its own address in the place of the source's, which the core cannot know of.
    pub fn may_be_masked(&self) -> bool {
        flows(self.routes).any(|(_, flow)| flow.may_be_masked())
    }
}

/// What packets say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Open,
    /// Nobody answered: a packet was dropped.
    Silent,
    /// Something that neither an open way nor a dropped packet brings.
    Odd {
        at: SocketAddr,
        measured: Measured,
    },
    /// The ends have no addresses, or none of one family.
    NoWay,
}

/// A connection to try, of a route of a question.
struct Attempt {
    question: usize,
    route: usize,
    /// Through a Service any of its backends may answer: all must.
    through_service: bool,
    packet: Probe,
}

/// The address and port a client would use to come to the end of a connection.
pub(crate) fn asked(snapshot: &Snapshot, flow: &Flow, target: Option<&Target>) -> Option<SocketAddr> {
    let to = flow.to.address?;
    if let Some(Target { host: Host::Address(address), port, .. }) = target {
        return Some(SocketAddr::new(*address, port.unwrap_or(0)));
    }
    if let Some(hop) = flow.hop {
        return Some(SocketAddr::new(hop.address, hop.port));
    }
    let Some(ServiceId(service)) = flow.via else { return Some(SocketAddr::new(to, flow.port)) };
    let service = snapshot.services.get(service as usize)?;
    let address = service.translated().find(|address| address.is_ipv4() == to.is_ipv4())?;
    let wanted = target.and_then(|target| target.port);
    let port = service.ports.iter().find(|port| {
        port.protocol == flow.protocol
            && port.backends.iter().any(|backend| backend.port == flow.port)
            && wanted.is_none_or(|wanted| wanted == port.port)
    })?;
    Some(SocketAddr::new(address, port.port))
}

impl Cluster {
    /// Tries all questions at once; those that nobody answers share one timeout.
    pub fn ask(&mut self, snapshot: &Snapshot, questions: &[Question<'_>]) -> Result<Vec<Answer>, Error> {
        let attempts = self.attempts(snapshot, questions)?;
        let packets: Vec<Probe> = attempts.iter().map(|attempt| attempt.packet.clone()).collect();
        let mut measured = self.sandbox.probe(&packets)?;
        for _ in 0..REPEATS {
            let silent = (0..attempts.len()).filter(|&at| measured[at] == Measured::Silent);
            let again: Vec<usize> =
                silent.filter(|&at| questions[attempts[at].question].predicted == Prediction::Allow).collect();
            if again.is_empty() {
                break;
            }
            let repeated: Vec<Probe> = again.iter().map(|&at| packets[at].clone()).collect();
            let results = self.sandbox.probe(&repeated)?;
            again.into_iter().zip(results).for_each(|(at, result)| measured[at] = result);
        }
        let mut by_question: Vec<Vec<(&Attempt, Measured)>> = vec![Vec::new(); questions.len()];
        for (attempt, measured) in attempts.iter().zip(measured) {
            by_question[attempt.question].push((attempt, measured));
        }
        Ok(questions.iter().zip(&by_question).map(|(question, tried)| see(question, tried)).collect())
    }

    fn attempts(&mut self, snapshot: &Snapshot, questions: &[Question<'_>]) -> Result<Vec<Attempt>, Error> {
        let mut attempts = Vec::new();
        let mut listens = BTreeSet::new();
        for (question, asking) in questions.iter().enumerate() {
            let is_relayed = asking.routes.iter().any(|route| route.relayed);
            for (route, flow) in flows(asking.routes) {
                let Some(to) = flow.to.address else { continue };
                if asking.routes[route].relayed && self.sandbox.place(to).is_ok() {
                    listens.insert(Listen { address: to, protocol: flow.protocol, port: flow.port });
                }
                // What others pass on is a part of the connection to them.
                let Some(from) = flow.from.address.filter(|_| !asking.routes[route].relayed) else { continue };
                let asked = asked(snapshot, flow, Some(asking.target));
                let Some(asked) = asked.filter(|asked| asked.is_ipv4() == from.is_ipv4()) else { continue };
                // Nobody can listen at a Service's address where it serves nothing.
                if flow.protocol != Protocol::Icmp && self.sandbox.place(to).is_ok() && !is_relayed {
                    listens.insert(Listen { address: to, protocol: flow.protocol, port: flow.port });
                }
                let is_translated = is_relayed || asked != SocketAddr::new(to, flow.port);
                let through_service = is_translated && flow.protocol.has_ports();
                let times = if through_service { TURNS * asking.routes.len() } else { 1 };
                let packet = Probe { from: self.sandbox.place(from)?, to: asked, protocol: flow.protocol };
                for _ in 0..times {
                    attempts.push(Attempt { question, route, through_service, packet: packet.clone() });
                }
            }
        }
        self.sandbox.ensure_listening(&listens.into_iter().collect::<Vec<_>>())?;
        Ok(attempts)
    }
}

fn flows(routes: &[Route]) -> impl Iterator<Item = (usize, &Flow)> {
    routes.iter().enumerate().flat_map(|(at, route)| route.flows.iter().map(move |flow| (at, flow)))
}

fn see(question: &Question<'_>, tried: &[(&Attempt, Measured)]) -> Answer {
    let is_odd = |measured: &Measured| !matches!(measured, Measured::Open | Measured::Silent);
    if let Some((attempt, measured)) = tried.iter().find(|(_, measured)| is_odd(measured)) {
        return Answer::Odd { at: attempt.packet.to, measured: *measured };
    }
    if tried.is_empty() {
        return Answer::NoWay;
    }
    let is_open = |route: usize| {
        let mut ways: BTreeMap<(SocketAddr, IpAddr), bool> = BTreeMap::new();
        for (attempt, measured) in tried.iter().filter(|(attempt, _)| attempt.route == route) {
            let open = ways.entry((attempt.packet.to, attempt.packet.from.source)).or_insert(attempt.through_service);
            let opened = *measured == Measured::Open;
            *open = if attempt.through_service { *open && opened } else { *open || opened };
        }
        ways.values().any(|open| *open)
    };
    // What a load balancer passes on is a part of the connection to it.
    if (0..question.routes.len()).all(|route| question.routes[route].relayed || is_open(route)) {
        Answer::Open
    } else {
        Answer::Silent
    }
}
