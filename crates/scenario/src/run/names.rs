//! Lookups, played through the core: the zones' own bytes are read, and what
//! may be leased of them is learned. What a client opens with an answer in hand
//! is judged before the next one comes.

use super::{Outcome, Player, ProbeResult, now};
use crate::file::Queries;
use crate::lookup::{Lookup, LookupResult, Resolved, Then};
use crate::reality::Predicted;
use crate::settings::{AgentSettings, Going, OnLearnTimeout};
use crate::zones::{Name, Owner};
use namewall_policy::addr::Cidr;
use namewall_policy::lease::Lifetimes;
use namewall_policy::{Instant, Prediction, Source};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// What the agent is set to, as far as names go.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) lifetimes: Lifetimes,
    pub(super) hold_limit: Duration,
    pub(super) on_learn_timeout: OnLearnTimeout,
    pub(super) slow_kernel: Duration,
    /// None: the first server outside is the only one, and all of them may be meant.
    pub(super) upstreams: Option<Vec<IpAddr>>,
    /// Networks that no name opens, and prefixes of translators (S6.8).
    pub(super) never_lease: Vec<Cidr>,
    pub(super) nat64_prefixes: Vec<Cidr>,
    /// How it went, and when. While there is none, names go on without it.
    pub(super) gone: Option<(Going, Instant)>,
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            lifetimes: Lifetimes::default(),
            hold_limit: Duration::from_millis(100),
            on_learn_timeout: OnLearnTimeout::default(),
            slow_kernel: Duration::ZERO,
            upstreams: None,
            never_lease: Vec::new(),
            nat64_prefixes: Vec::new(),
            gone: None,
        }
    }
}

/// Connections that the core has judged, each with its answer in hand.
#[derive(Default)]
struct Opened {
    /// The first that went otherwise than expected.
    wrong: Option<ProbeResult>,
    /// Those of the last answer that had any.
    last: Vec<(ProbeResult, Option<Predicted>)>,
}

impl Player<'_> {
    pub(super) fn set(&mut self, settings: &AgentSettings) -> Result<(), String> {
        if let Some(cut_established) = settings.cut_established {
            self.connections.cut_established = cut_established;
        }
        let agent = &mut self.agent;
        agent.lifetimes.minimum = settings.minimum_ttl.unwrap_or(agent.lifetimes.minimum);
        agent.lifetimes.maximum = settings.maximum_ttl.unwrap_or(agent.lifetimes.maximum);
        agent.lifetimes.grace = settings.grace.unwrap_or(agent.lifetimes.grace);
        agent.hold_limit = settings.hold_limit.unwrap_or(agent.hold_limit);
        agent.on_learn_timeout = settings.on_learn_timeout.unwrap_or(agent.on_learn_timeout);
        agent.slow_kernel = settings.slow_kernel.unwrap_or(agent.slow_kernel);
        agent.upstreams = settings.upstreams.clone().or(agent.upstreams.take());
        if settings.never_lease.is_some() || settings.nat64_prefixes.is_some() {
            agent.never_lease = settings.never_lease.clone().unwrap_or(std::mem::take(&mut agent.never_lease));
            agent.nat64_prefixes = settings.nat64_prefixes.clone().unwrap_or(std::mem::take(&mut agent.nat64_prefixes));
            // Leases are checked again.
            self.before = self.state.take().or(self.before.take());
        }
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
        let (mut resolved, mut opened) = (Vec::new(), Opened::default());
        for name in &names {
            let one = self.search(lookup, name).map_err(|why| format!("line {}: {why}", lookup.source.line))?;
            self.open(lookup, &one, &mut opened);
            resolved.push(one);
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
            let opened = self.compare(then, opened, real.as_deref())?;
            let nothing = || {
                let probe = then.probe(lookup, Ipv4Addr::UNSPECIFIED.into());
                ProbeResult::new(probe, false, "no address to connect to".to_owned())
            };
            outcome.probes.push(opened.unwrap_or_else(nothing));
        }
        Ok(())
    }

    fn next_name(&mut self, lookup: &Lookup) -> Name {
        self.asked += 1;
        let name = lookup.name.with_star_as(&format!("x{}", self.asked));
        if lookup.mixed_case { name.with_mixed_case(self.asked) } else { name }
    }

    /// Judges what is `then` to be opened to every address of an answer, as things are now: the next
    /// answer may take away what this one opened (S6.5).
    fn open(&mut self, lookup: &Lookup, resolved: &Resolved, opened: &mut Opened) {
        let Some(then) = lookup.then.as_ref().filter(|_| !resolved.addresses.is_empty()) else { return };
        self.state();
        let judged = resolved.addresses.iter().map(|&address| self.probe(&then.probe(lookup, address)));
        opened.last = judged.collect();
        if opened.wrong.is_none()
            && let Some(at) = opened.last.iter().position(|(result, _)| !result.passed)
        {
            opened.wrong = Some(opened.last.swap_remove(at).0);
        }
    }

    /// What became of the connections, here and in reality: one that went otherwise than expected, or the last.
    fn compare(
        &mut self,
        then: &Then,
        mut opened: Opened,
        real: Option<&[Resolved]>,
    ) -> Result<Option<ProbeResult>, String> {
        let reached: Vec<(IpAddr, bool)> =
            real.into_iter().flatten().filter_map(|one| one.reached.clone()).flatten().collect();
        let expected = then.expect.verdict == Prediction::Allow;
        // Who denied is told of the last answer's connections, which are tried again for it.
        if reached.is_empty() || !expected {
            self.witness(&mut opened.last)?;
        }
        if let Some((result, _)) = opened.last.last_mut().filter(|_| !reached.is_empty()) {
            match reached.iter().find(|(_, open)| *open != expected) {
                Some((address, open)) => {
                    let word = if *open { "open" } else { "not open" };
                    result.passed = false;
                    result.got += &format!("; but with packets: {address} was {word} straight after the answer");
                }
                None => result.got += &format!("; with packets: {} straight after their answers", reached.len()),
            }
        }
        let wrong = opened.last.iter().position(|(result, _)| !result.passed);
        let shown = wrong.or(opened.last.len().checked_sub(1)).map(|at| opened.last.swap_remove(at).0);
        Ok(opened.wrong.or(shown))
    }
}
