//! Lookups, played through the core: the zones' own bytes are read, and what
//! may be leased of them is learned.

use super::{Outcome, Player, ProbeResult, now};
use crate::file::Queries;
use crate::lookup::{Lookup, LookupResult, PATIENCE, Resolved, Then};
use crate::settings::{AgentSettings, OnLearnTimeout};
use crate::zones::{Leasable, Message, Name, Owner, Rcode, RecordType, Reply, Sender, Transport};
use namewall_policy::ask::{Host, Target};
use namewall_policy::lease::{Learned, Lifetimes};
use namewall_policy::port::Protocol;
use namewall_policy::{Source, Verdict};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

const DNS: u16 = 53;

/// What the agent is set to, as far as names go.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) lifetimes: Lifetimes,
    hold_limit: Duration,
    on_learn_timeout: OnLearnTimeout,
    slow_kernel: Duration,
    /// None: every server outside is one, and the first is asked.
    upstreams: Option<Vec<IpAddr>>,
    /// There is none, and names go on without it.
    pub(super) is_gone: bool,
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            lifetimes: Lifetimes::default(),
            hold_limit: Duration::from_millis(100),
            on_learn_timeout: OnLearnTimeout::default(),
            slow_kernel: Duration::ZERO,
            upstreams: None,
            is_gone: false,
        }
    }
}

/// An answer that came, and what may be leased of it.
struct Came {
    message: Message,
    leasable: Leasable,
    /// It came from where the agent asks, so it may be learned from.
    trusted: bool,
}

/// What came of lookups, here and in reality.
#[derive(Clone, Copy)]
struct Both<'a> {
    core: &'a [Resolved],
    real: Option<&'a [Resolved]>,
}

impl Player<'_> {
    pub(super) fn set(&mut self, settings: &AgentSettings) -> Result<(), String> {
        if let Some(cut_established) = settings.cut_established {
            self.connections.cut_established = cut_established;
        }
        let agent = &mut self.agent;
        agent.lifetimes.minimum = settings.minimum_ttl.unwrap_or(agent.lifetimes.minimum);
        agent.lifetimes.grace = settings.grace.unwrap_or(agent.lifetimes.grace);
        agent.hold_limit = settings.hold_limit.unwrap_or(agent.hold_limit);
        agent.on_learn_timeout = settings.on_learn_timeout.unwrap_or(agent.on_learn_timeout);
        agent.slow_kernel = settings.slow_kernel.unwrap_or(agent.slow_kernel);
        agent.upstreams = settings.upstreams.clone().or(agent.upstreams.take());
        self.state();
        match (now(&self.state, &self.connections), &mut self.reality) {
            (Some(now), Some(reality)) if settings.is_about_names() => reality.set(&now, settings),
            _ => Ok(()),
        }
    }

    pub(super) fn rezone(&mut self, changes: &[(Name, Option<Owner>)]) -> Result<(), String> {
        for (name, owner) in changes {
            self.zones.replace(name.clone(), owner.clone());
        }
        self.reality.as_mut().map_or(Ok(()), |reality| reality.rezone(changes))
    }

    pub(super) fn count_queries(
        &mut self,
        server: IpAddr,
        expect: Queries,
        source: &Source,
    ) -> Result<LookupResult, String> {
        let agrees = |count: u64| match expect {
            Queries::None => count == 0,
            Queries::Some => count > 0,
            Queries::Exactly(expected) => count == expected,
        };
        let count = self.zones.queries(server);
        let (mut passed, mut got) = (agrees(count), count.to_string());
        if let Some(reality) = &mut self.reality {
            let real = reality.queries(server)?;
            passed &= agrees(real);
            got += &format!("; with packets: {real}");
        }
        let expected = match expect {
            Queries::None => "none".to_owned(),
            Queries::Some => "some".to_owned(),
            Queries::Exactly(count) => count.to_string(),
        };
        let (text, source) = (format!("queries that {server} got"), source.clone());
        Ok(LookupResult { text, expected, passed, got, source })
    }

    /// Looks names up, here and in reality, and opens what is `then` to be opened.
    pub(super) fn resolve(&mut self, lookup: &Lookup, outcome: &mut Outcome) -> Result<(), String> {
        let names: Vec<Name> = (0..lookup.times).map(|_| self.next_name(lookup)).collect();
        let mut resolved = Vec::new();
        for name in &names {
            resolved.push(self.search(lookup, name).map_err(|why| format!("line {}: {why}", lookup.source.line))?);
        }
        let agrees = |resolved: &&Resolved| lookup.expect.agrees(lookup.kind, resolved);
        let wrong = resolved.iter().find(|resolved| !agrees(resolved));
        let mut passed = wrong.is_none();
        let mut got = wrong.or(resolved.last()).map(Resolved::to_string).unwrap_or_default();
        self.state();
        let real = match (now(&self.state, &self.connections), &mut self.reality) {
            (Some(now), Some(reality)) => Some(reality.resolve(&now, lookup, &names)?),
            _ => None,
        };
        if let Some(real) = &real {
            let wrong = real.iter().find(|resolved| !agrees(resolved));
            passed &= wrong.is_none() && real.len() == names.len();
            let seen = wrong.or(real.last()).map(Resolved::to_string).unwrap_or_default();
            got += &format!("; {}with packets: {seen}", if wrong.is_some() { "but " } else { "" });
            if self.reality.as_ref().is_some_and(|reality| !reality.learns()) {
                self.tell_leases()?;
            }
        }
        let (text, expected, source) = (lookup.text.clone(), lookup.expect.to_string(), lookup.source.clone());
        outcome.lookups.push(LookupResult { text, expected, passed, got, source });
        if let Some(then) = &lookup.then {
            let came = Both { core: &resolved, real: real.as_deref() };
            outcome.probes.push(self.then(lookup, then, came)?);
        }
        Ok(())
    }

    fn next_name(&mut self, lookup: &Lookup) -> Name {
        self.asked += 1;
        let name = lookup.name.with_star_as(&format!("x{}", self.asked));
        if lookup.mixed_case { name.with_mixed_case(self.asked) } else { name }
    }

    /// One after another, as a client with a search list does, until one has something.
    fn search(&mut self, lookup: &Lookup, name: &Name) -> Result<Resolved, String> {
        let longer: Vec<Name> = lookup.search.iter().filter_map(|suffix| name.followed_by(suffix)).collect();
        let mut last = Resolved::default();
        for name in longer.iter().chain([name]) {
            let (resolved, is_empty) = self.look_up(lookup, name)?;
            last = resolved;
            if !(is_empty && matches!(last.rcode, Some(Rcode::NOERROR | Rcode::NXDOMAIN))) {
                break;
            }
        }
        Ok(last)
    }

    /// What comes of one question, and whether it comes to nothing.
    fn look_up(&mut self, lookup: &Lookup, name: &Name) -> Result<(Resolved, bool), String> {
        let mut transport = lookup.via.unwrap_or(Transport::Udp);
        let mut came = self.ask(lookup, name, transport)?;
        if lookup.via.is_none() && came.as_ref().is_some_and(|came| came.message.truncated) {
            transport = Transport::Tcp;
            came = self.ask(lookup, name, transport)?;
        }
        let Some(came) = came else {
            return Ok((Resolved { leased: Some(Vec::new()), refused: Some(Vec::new()), ..Resolved::default() }, true));
        };
        let learns = came.trusted && !self.agent.is_gone;
        let (leased, refused) = if learns { self.learn(&came.leasable) } else { Default::default() };
        let too_late = !leased.is_empty() && self.agent.slow_kernel > self.agent.hold_limit;
        if too_late && self.agent.on_learn_timeout == OnLearnTimeout::Servfail {
            let rcode = Some(Rcode::SERVFAIL);
            return Ok((
                Resolved { rcode, leased: Some(leased), refused: Some(refused), ..Resolved::default() },
                false,
            ));
        }
        let addresses: Vec<IpAddr> = came.message.addresses().collect();
        if !addresses.is_empty() {
            self.remember(name, lookup.kind, &addresses);
        }
        let rcode = Some(came.message.rcode);
        let resolved = Resolved { rcode, addresses, leased: Some(leased), refused: Some(refused), reached: None };
        Ok((resolved, came.message.answer.is_empty()))
    }

    /// The first answer that is one. What is forged, late or no message is none.
    fn ask(&mut self, lookup: &Lookup, name: &Name, transport: Transport) -> Result<Option<Came>, String> {
        let Some(asked) = lookup.server.or(self.zones.default_server()) else { return Ok(None) };
        let protocol = match transport {
            Transport::Udp => Protocol::Udp,
            Transport::Tcp => Protocol::Tcp,
        };
        self.state();
        let target = Target { host: Host::Address(asked), protocol, port: Some(DNS) };
        let Some(world) = self.world() else { return Ok(None) };
        let routes = world.routes(&lookup.from, &target).map_err(|error| error.to_string())?;
        if world.verdict(&routes) == Verdict::Deny {
            return Ok(None);
        }
        let id = (self.asked as u16).wrapping_mul(0x6487).wrapping_add(lookup.kind.0);
        let query = Message { edns: lookup.edns, ..Message::query(id, name.clone(), lookup.kind) }.write();
        let upstreams = match (lookup.server, &self.agent.upstreams) {
            (Some(server), _) => vec![server],
            (None, Some(upstreams)) => upstreams.clone(),
            (None, None) => vec![asked],
        };
        for server in upstreams {
            let trusted = self.agent.upstreams.as_ref().is_none_or(|known| known.contains(&server));
            let in_time = |reply: &Reply| reply.sender == Sender::Server && reply.delay < PATIENCE;
            for reply in self.zones.respond(server, &query, transport).into_iter().filter(in_time) {
                let leasable = self.reads.leasable(&query, &reply.bytes);
                if let (Some(leasable), Ok(message)) = (leasable, Message::read(&reply.bytes)) {
                    return Ok(Some(Came { message, leasable, trusted }));
                }
            }
        }
        Ok(None)
    }

    /// The addresses that were leased, and those that never are.
    fn learn(&mut self, leasable: &Leasable) -> (Vec<IpAddr>, Vec<IpAddr>) {
        self.state();
        let Some(state) = &self.state else { return Default::default() };
        let is_wanted = state.program.patterns.matching(&leasable.name).into_iter().next().is_some();
        let (mut leased, mut refused) = (Vec::new(), Vec::new());
        for &(address, ttl) in &leasable.addresses {
            let expiry = self.agent.lifetimes.expiry(ttl, self.now);
            let learned = Learned { name: leasable.name.clone(), addresses: vec![address], expiry };
            let was_refused = !state.never_leased.learn(&state.program, &learned, &mut self.leases).is_empty();
            if was_refused {
                refused.push(address);
            } else if is_wanted {
                leased.push(address);
            }
        }
        (leased, refused)
    }

    /// A client goes where the newest answer points, in each family.
    fn remember(&mut self, name: &Name, kind: RecordType, addresses: &[IpAddr]) {
        let Some(name) = name.as_domain() else { return };
        let known = self.names.entry(name).or_default();
        known.retain(|address| match kind {
            RecordType::A => address.is_ipv6(),
            RecordType::AAAA => address.is_ipv4(),
            _ => false,
        });
        known.extend(addresses);
    }

    /// Opens connections to every address of every answer. What it gives back
    /// is one that goes otherwise than expected, or the last.
    fn then(&mut self, lookup: &Lookup, then: &Then, came: Both<'_>) -> Result<ProbeResult, String> {
        self.state();
        let addresses: Vec<IpAddr> = came.core.iter().flat_map(|resolved| resolved.addresses.clone()).collect();
        let mut results: Vec<_> = addresses.iter().map(|&address| self.probe(&then.probe(lookup, address))).collect();
        let reached = |real: &[Resolved]| real.iter().map(|one| one.reached.clone()).collect::<Option<Vec<_>>>();
        match came.real.and_then(reached) {
            Some(reached) => {
                let expected = then.expect.verdict == Verdict::Allow;
                let otherwise = reached.iter().flatten().find(|(_, open)| *open != expected);
                if let (Some((address, open)), Some((result, _))) = (otherwise, results.last_mut()) {
                    let word = if *open { "open" } else { "not open" };
                    result.passed = false;
                    result.got += &format!("; but with packets: {address} was {word} straight after the answer");
                }
            }
            None => {
                // Of many answers the last will do: a probe that nobody answers takes its time.
                let last = came.core.last().map_or(0, |resolved| resolved.addresses.len());
                let from = results.len().saturating_sub(last);
                self.witness(&mut results[from..])?;
            }
        }
        let at = results.iter().position(|(result, _)| !result.passed).or(results.len().checked_sub(1));
        Ok(match at {
            Some(at) => results.swap_remove(at).0,
            None => {
                let probe = then.probe(lookup, Ipv4Addr::UNSPECIFIED.into());
                ProbeResult { probe, passed: false, got: "no address to connect to".to_owned(), not_tried: false }
            }
        })
    }
}
