//! `loop`: finds out whether questions that are forwarded come back.
//!
//! ```text
//! first question of a zone ─► a probe `RANDOM.RANDOM.ZONE HINFO` to our own address ─► forwarded, past the rules
//!                                     the probe again ─► it came back: nothing is forwarded for this zone any more
//!                                     an answer to it ─► there is no loop
//! ```
//!
//! CoreDNS ends its process then. Here the zone gets SERVFAIL, other zones are served on, and a new probe is sent every
//! [`AGAIN`] until there is no loop.

use crate::random::random;
use crate::tell::Teller;
use namewall_corefile::Zone;
use namewall_dns::wire::{Name, Question, RecordType};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The type that probes ask for: few others do.
const HINFO: RecordType = RecordType(13);
/// How long an answer to a probe is waited for, and how often one is sent.
const PATIENCE: Duration = Duration::from_secs(5);
const PROBES: usize = 6;
/// How long nothing is forwarded before it is looked again.
const AGAIN: Duration = Duration::from_secs(30);

/// Looks for a loop of the forwards of one zone.
#[derive(Debug)]
pub(crate) struct LoopGuard {
    zone: Zone,
    teller: Arc<Teller>,
    /// There is nothing to look for, which most questions are told without a lock.
    is_settled: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The name of the probe that is under way, as it is on the wire, and how often it came in.
    probe: Option<(Vec<u8>, u32)>,
    /// Since when it is known that there is a loop.
    found: Option<Instant>,
    is_looking: bool,
}

/// What a question is to a guard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sighting {
    /// A question like any other.
    Ordinary,
    /// The probe, for the first time: it is forwarded, whatever the rules say.
    Probe,
    /// Nothing is forwarded.
    Loop,
}

impl LoopGuard {
    pub(crate) fn new(zone: Zone, teller: Arc<Teller>) -> Arc<Self> {
        Arc::new(Self { zone, teller, is_settled: AtomicBool::new(false), state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at a question that came in at an address of ours. The first one begins the search.
    pub(crate) fn look(self: &Arc<Self>, question: &Question, server: SocketAddr) -> Sighting {
        if self.is_settled.load(Ordering::Relaxed) {
            return Sighting::Ordinary;
        }
        let mut state = self.state();
        if let Some((name, seen)) = &mut state.probe
            && question.record_type == HINFO
            && question.name.as_bytes().eq_ignore_ascii_case(name)
        {
            *seen += 1;
            if *seen == 1 {
                return Sighting::Probe;
            }
            if state.found.is_none() {
                let zone = &self.zone;
                self.teller.tell(format!(
                    "[ERROR] loop: what is forwarded for {zone} comes back to {server}; it gets SERVFAIL"
                ));
            }
            state.found = Some(Instant::now());
            return Sighting::Loop;
        }
        let is_due = state.found.is_none_or(|since| since.elapsed() >= AGAIN);
        if is_due && !state.is_looking {
            let guard = self.clone();
            let thread = std::thread::Builder::new().name("loop".to_owned()).spawn(move || guard.search(server));
            state.is_looking = thread.is_ok();
        }
        if state.found.is_some() { Sighting::Loop } else { Sighting::Ordinary }
    }

    /// Sends probes until one is answered.
    fn search(&self, server: SocketAddr) {
        for _ in 0..PROBES {
            let Some(query) = self.probe() else { break };
            let begun = Instant::now();
            if !is_answered(&query, server) {
                // Nobody listens yet, or upstreams are silent.
                std::thread::sleep(PATIENCE.saturating_sub(begun.elapsed()));
                continue;
            }
            let mut state = self.state();
            let came_back = state.probe.take().is_some_and(|(_, seen)| seen > 1);
            state.is_looking = false;
            if !came_back {
                if state.found.take().is_some() {
                    self.teller.tell(format!("[INFO] loop: there is none for {} any more", self.zone));
                }
                self.is_settled.store(true, Ordering::Relaxed);
            }
            return;
        }
        // As CoreDNS does it, nothing is looked for any more where nobody answers.
        let mut state = self.state();
        (state.probe, state.is_looking) = (None, false);
        self.is_settled.store(state.found.is_none(), Ordering::Relaxed);
    }

    /// A new probe, which is known from now on. None if the zone's name leaves no room for it.
    fn probe(&self) -> Option<Vec<u8>> {
        let mut name = Vec::new();
        let first = [random().to_string(), random().to_string()];
        let labels: Vec<&str> = match &self.zone {
            Zone::Root => Vec::new(),
            Zone::Name(zone) => zone.labels().collect(),
        };
        for label in first.iter().map(String::as_str).chain(labels) {
            name.push(label.len() as u8);
            name.extend(label.as_bytes());
        }
        name.push(0);
        let mut query = (random() as u16).to_be_bytes().to_vec();
        query.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        query.extend(&name);
        query.extend([0, HINFO.0 as u8, 0, 1]);
        Name::read(&query, 12).ok()?;
        self.state().probe = Some((name, 0));
        Some(query)
    }
}

/// Asks, and waits for any answer.
fn is_answered(query: &[u8], server: SocketAddr) -> bool {
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let ask = || -> std::io::Result<usize> {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(server)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.send(query)?;
        socket.recv(&mut [0; 4_096])
    };
    ask().is_ok()
}
