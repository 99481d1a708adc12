//! Whoever looks on: probes and connections, all the time.

use super::agent::{Round, Rounds};
use super::programs::{Allowing, NODE, Programs};
use super::world::PORTS;
use namewall_policy::Flow;
use namewall_policy::port::Protocol;
use namewall_sandbox::{Connection, Listen, Measured, Probe, ProbeSource, Sandbox};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_millis(120);
/// What must be open and is silent is asked again: the machine may be busy, and
/// that is the only thing repeats are for.
const REPEATS: usize = 4;
const CONNECTIONS: usize = 24;

struct Asked {
    probe: Probe,
    allowing: Allowing,
}

pub(crate) struct Watch {
    pub(crate) sandbox: Sandbox,
    asked: Vec<Asked>,
    connections: Vec<Connection>,
}

/// What was seen, all of it right.
#[derive(Default, Debug)]
pub(crate) struct Seen {
    pub(crate) batches: usize,
    /// That had to be open, and that had to be silent.
    pub(crate) open: usize,
    pub(crate) silent: usize,
    /// Of the silent, those that a Program out of the round allows.
    pub(crate) silent_for_now: usize,
    /// That could be either.
    pub(crate) either: usize,
    pub(crate) repeated: usize,
    /// Single packets that met one Program going out and another coming in; asked again, they were silent.
    pub(crate) in_parts: usize,
    pub(crate) connections: usize,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { batches, open, silent, silent_for_now, either, repeated, in_parts, connections } = self;
        write!(f, "{batches} batches of probes: {open} had to be open ({repeated} asked again), ")?;
        write!(f, "{silent} silent ({silent_for_now} only for now), {either} either, {in_parts} met a change; ")?;
        write!(f, "{connections} connections lived through it")
    }
}

impl Seen {
    /// True if there was enough of everything to tell something.
    pub(crate) fn is_enough(&self) -> bool {
        let never = self.silent - self.silent_for_now;
        self.batches >= 20 && self.open > 1000 && never > 1000 && self.silent_for_now > 100
    }
}

impl Watch {
    /// Asks all that passes the node and no other.
    pub(crate) fn new(mut sandbox: Sandbox, programs: &Programs) -> Self {
        sandbox.timeout = TIMEOUT;
        let topology = sandbox.topology();
        let pods = topology.pods.values().filter(|pod| &*pod.node == NODE).flat_map(|pod| &pod.addresses);
        let (pods, others): (Vec<_>, Vec<_>) = (
            pods.copied().collect(),
            topology.nodes[NODE].addresses.iter().chain(&topology.outside).copied().collect(),
        );
        let place = |&address: &_| sandbox.place(address).expect("somebody has it");
        let pods: Vec<ProbeSource> = pods.iter().map(place).collect();
        let others: Vec<ProbeSource> = others.iter().map(place).collect();
        let between = |a: &[ProbeSource], b: &[ProbeSource]| -> Vec<(ProbeSource, ProbeSource)> {
            a.iter().flat_map(|from| b.iter().map(move |to| (from.clone(), to.clone()))).collect()
        };
        let mut pairs = between(&pods, &pods);
        pairs.extend(between(&pods, &others));
        pairs.extend(between(&others, &pods));
        pairs.retain(|(from, to)| {
            from.source.is_ipv4() == to.source.is_ipv4() && !Arc::ptr_eq(&from.namespace, &to.namespace)
        });
        let tcp = PORTS.map(|port| (Protocol::Tcp, port));
        let kinds = [tcp[0], tcp[2], (Protocol::Udp, PORTS[0]), (Protocol::Sctp, PORTS[3]), (Protocol::Icmp, 0)];
        let mut asked = Vec::new();
        let mut listens = Vec::new();
        for (from, to) in pairs {
            for (protocol, port) in kinds {
                let allowing = programs.allowing(|program| Flow {
                    from: program.endpoint_at(from.source),
                    to: program.endpoint_at(to.source),
                    protocol,
                    port,
                    via: None,
                    hop: None,
                    masker: None,
                });
                let probe = Probe { from: from.clone(), to: SocketAddr::new(to.source, port), protocol };
                listens.push(Listen { address: to.source, protocol, port });
                asked.push(Asked { probe, allowing });
            }
        }
        listens.retain(|listen| listen.protocol != Protocol::Icmp);
        sandbox.ensure_listening(&listens).expect("listening everywhere");
        Self { sandbox, asked, connections: Vec::new() }
    }

    /// Opens some of what all Programs allow, to stay open.
    pub(crate) fn connect(&mut self) {
        let keeps = |asked: &&Asked| {
            asked.allowing.both == Round::ALL.0 && matches!(asked.probe.protocol, Protocol::Tcp | Protocol::Udp)
        };
        let every = (self.asked.iter().filter(keeps).count() / CONNECTIONS).max(1);
        for Asked { probe, .. } in self.asked.iter().filter(keeps).step_by(every) {
            let opened = (0..=REPEATS).find_map(|_| {
                self.sandbox.connect(&probe.from, probe.to, probe.protocol).expect("a connection is tried").ok()
            });
            self.connections.push(opened.unwrap_or_else(|| panic!("no connection {}", text(probe))));
        }
    }

    /// Probes until it is told to stop, and tells when it has seen enough.
    pub(crate) fn run(&mut self, rounds: &Rounds, stop: &AtomicBool, has_enough: &AtomicBool) -> Seen {
        let mut seen = Seen { connections: self.connections.len(), ..Seen::default() };
        while !stop.load(Ordering::Relaxed) {
            self.probe_all(rounds, &mut seen);
            self.all_alive();
            seen.batches += 1;
            has_enough.store(seen.is_enough(), Ordering::Relaxed);
        }
        seen
    }

    fn probe_all(&self, rounds: &Rounds, seen: &mut Seen) {
        let mut waiting: Vec<&Asked> = self.asked.iter().collect();
        let mut last = Measured::Silent;
        for _ in 0..=REPEATS {
            let then = rounds.now();
            let probes: Vec<Probe> = waiting.iter().map(|asked| asked.probe.clone()).collect();
            let measured = self.sandbox.probe(&probes).expect("probes are sent");
            let round = rounds.since(then);
            let mut again = Vec::new();
            for (asked, measured) in waiting.into_iter().zip(measured) {
                let (asked_text, allowing) = (text(&asked.probe), asked.allowing);
                match (measured, allowing.both & round) {
                    (Measured::Open, 0) if allowing.in_parts(round) => {
                        seen.in_parts += 1;
                        again.push(asked);
                    }
                    (Measured::Open, 0) => {
                        panic!("{asked_text} is open; {allowing} allow it, of round {round:03b}")
                    }
                    (Measured::Open, all) if all == round => seen.open += 1,
                    (Measured::Silent, 0) => {
                        seen.silent += 1;
                        seen.silent_for_now += usize::from(allowing.both != 0);
                    }
                    (Measured::Silent, all) if all == round => {
                        seen.repeated += 1;
                        again.push(asked);
                    }
                    (Measured::Open | Measured::Silent, _) => seen.either += 1,
                    (other, _) => panic!("{asked_text} is {other}"),
                }
                last = measured;
            }
            waiting = again;
            if waiting.is_empty() {
                return;
            }
        }
        let Asked { probe, allowing } = waiting[0];
        panic!("{} is {last}, time after time; {allowing} allow it", text(probe));
    }

    /// A packet of a connection may be lost like any other.
    fn all_alive(&mut self) {
        for _ in 0..=REPEATS {
            let alive = Connection::all_alive(&mut self.connections, TIMEOUT * 3).expect("connections are asked");
            if alive.iter().all(|alive| *alive) {
                return;
            }
        }
        panic!("a connection that every Program allows is dead");
    }
}

fn text(probe: &Probe) -> String {
    format!("{} -> {}/{}", probe.from.source, probe.to, probe.protocol)
}
