//! Scenarios with real packets: every step is taken in a [`Cluster`], and
//! every probe is a connection that is tried.

mod denials;
mod resolve;

use crate::cluster::{Cluster, Dns, Wanted, usually_never_leased};
use crate::connection::Connection;
use crate::dns;
use crate::listen::Listen;
use crate::probe::Measured;
use crate::question::{self, Answer, Question};
use denials::{KernelDenials, apart};
use namewall_agent::Learning;
use namewall_dataplane::CutEstablished;
use namewall_policy::addr::Cidr;
use namewall_policy::ask::Host;
use namewall_policy::model::BackendTarget;
use namewall_policy::{Flow, Instant, Lease, Prediction};
use namewall_scenario::zones::{Name, Owner, Zones};
use namewall_scenario::{
    AgentSettings, Fate, Going, Lookup, Now, OnLearnTimeout, Predicted, ProbeOutcome, Reality, Resolved, Scenario, Step,
};
use resolve::LookupQuestion;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant as Moment};

/// How often a connection is tried that should be there: the machine may be busy.
const TRIES: usize = 4;
/// Unless a scenario sets it: the machine may be busy, and what is not about the limit must not hit it. Clients wait for
/// two seconds.
const HOLD_LIMIT: Duration = Duration::from_millis(1_500);
/// While time goes by, agents look so often which names they keep.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const NOT_UP: &str = "the sandbox is not up";

/// Network namespaces as the reality of a scenario.
#[derive(Debug, Default)]
pub struct Packets {
    cluster: Option<Cluster>,
    /// Every address a scenario speaks of; those nobody has are hosts outside.
    spoken_of: BTreeSet<IpAddr>,
    connections: BTreeMap<String, Connection>,
    /// Who pods ask.
    server: Option<IpAddr>,
    /// How nodes serve DNS, where a scenario has any.
    dns: Option<Dns>,
    /// Networks that no name opens, and prefixes of translators, as settings say.
    never_lease: Vec<Cidr>,
    nat64_prefixes: Vec<Cidr>,
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
                Step::Zone(changes) => {
                    let owners = changes.iter().filter_map(|(_, owner)| owner.as_ref());
                    owners.flat_map(Owner::addresses).for_each(|address| host(&Host::Address(address)));
                }
                _ => {}
            }
        }
        spoken_of.extend(dns::addresses(&scenario.zones));
        spoken_of.extend(scenario.zones.addresses());
        let server = scenario.zones.default_server();
        let port = |address: IpAddr| SocketAddr::new(address, dns::PORT);
        let dns = server.map(|server| Dns {
            server: namewall_dns::Settings {
                upstreams: vec![port(server)],
                hold_limit: HOLD_LIMIT,
                ..namewall_dns::Settings::default()
            },
            learning: Learning::default(),
            never_leased: usually_never_leased(),
            trusted: scenario.zones.servers().map(|(address, _)| port(address)).collect(),
        });
        Self { spoken_of, server, dns, ..Self::default() }
    }

    /// The cluster, once something was played in it.
    pub fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    fn up(&mut self) -> Result<&mut Cluster, String> {
        self.cluster.as_mut().ok_or_else(|| NOT_UP.to_owned())
    }
}

fn wanted<'a>(now: &Now<'a>, outside: &'a [IpAddr], dns: Option<&'a Dns>) -> Wanted<'a> {
    let cut = if now.cut_established { CutEstablished::Always } else { CutEstablished::V1Beta1 };
    Wanted { snapshot: now.snapshot, program: now.program, outside, cut, dns }
}

fn outside_of(spoken_of: &BTreeSet<IpAddr>, now: &Now<'_>) -> Vec<IpAddr> {
    let mut outside = spoken_of.clone();
    let backends = now.snapshot.services.iter().flat_map(|service| &service.ports).flat_map(|port| &port.backends);
    outside.extend(backends.filter_map(|backend| match backend.target {
        BackendTarget::Address(address) => Some(address).filter(|&at| now.program.pod_at(at).is_none()),
        BackendTarget::Workload(_) => None,
    }));
    outside.into_iter().collect()
}

impl Reality for Packets {
    fn change(&mut self, now: &Now<'_>) -> Result<(), String> {
        let outside = outside_of(&self.spoken_of, now);
        let wanted = wanted(now, &outside, self.dns.as_ref());
        match &mut self.cluster {
            Some(cluster) => cluster.update(&wanted),
            None => Cluster::build(&wanted, &mut |_| {}).map(|cluster| self.cluster = Some(cluster)),
        }
        .map_err(words)
    }

    fn learn(&mut self, leases: &[Lease], now: Instant) -> Result<(), String> {
        self.up()?.grant(leases, now).map_err(words)
    }

    fn advance(&mut self, time: Duration) -> Result<(), String> {
        let servers = self.dns.as_ref().map(|dns| dns.server.upstreams.clone()).unwrap_or_default();
        let end = Moment::now() + time;
        loop {
            let left = end.saturating_duration_since(Moment::now());
            thread::sleep(left.min(LOOK_EVERY));
            if let Some(cluster) = &mut self.cluster {
                cluster.renew_names(&servers).map_err(words)?;
            }
            if left.is_zero() {
                return Ok(());
            }
        }
    }

    fn probe(&mut self, now: &Now<'_>, probes: &[&Predicted]) -> Result<Vec<ProbeOutcome>, String> {
        let mut outcomes: Vec<Option<ProbeOutcome>> = probes.iter().map(|_| None).collect();
        for batch in apart(probes) {
            let together: Vec<&Predicted> = batch.iter().map(|&at| probes[at]).collect();
            let tried = self.probe_at_once(now, &together)?;
            batch.into_iter().zip(tried).for_each(|(at, outcome)| outcomes[at] = Some(outcome));
        }
        Ok(outcomes.into_iter().flatten().collect())
    }

    fn connect(&mut self, now: &Now<'_>, name: &str, flow: &Flow) -> Result<(), String> {
        let asked = question::asked(now.snapshot, flow, None).ok_or("nobody can tell where to connect to")?;
        let (Some(from), Some(to)) = (flow.from.address, flow.to.address) else {
            return Err("an end of it has no address".to_owned());
        };
        let cluster = self.up()?;
        let listen = Listen { address: to, protocol: flow.protocol, port: flow.port };
        cluster.sandbox.ensure_listening(&[listen]).map_err(words)?;
        let place = cluster.sandbox.place(from).map_err(words)?;
        let mut last = Measured::Silent;
        for _ in 0..TRIES {
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
        let Some(Cluster { sandbox, .. }) = &self.cluster else { return Err(NOT_UP.to_owned()) };
        let Some(connection) = self.connections.get_mut(name) else { return Ok(Fate::Cut) };
        // A UDP flow that was cut is judged like a new one, from either end. What the far end says would open a flow of
        // its own, so it only speaks where the near end is answered.
        if connection.is_udp() && !connection.alive(sandbox.timeout).map_err(words)? {
            return Ok(Fate::Cut);
        }
        // The far end first: what it says must not bring to life what was cut.
        let heard = sandbox.hears_far_end(connection);
        match (heard, connection.alive(sandbox.timeout).map_err(words)?) {
            (true, true) => Ok(Fate::Open),
            (false, false) => Ok(Fate::Cut),
            (true, false) => Err(format!("the far end of `{name}` is heard, and does not answer")),
            (false, true) => Err(format!("the far end of `{name}` answers, and is not heard unasked")),
        }
    }

    fn serve(&mut self, zones: &Zones) -> Result<(), String> {
        self.up()?.sandbox.serve_names(zones).map_err(words)
    }

    fn rezone(&mut self, changes: &[(Name, Option<Owner>)]) -> Result<(), String> {
        let servers = self.up()?.sandbox.name_servers().ok_or("there is no DNS outside")?;
        changes.iter().for_each(|(name, owner)| servers.replace(name.clone(), owner.clone()));
        Ok(())
    }

    fn resolve(&mut self, _now: &Now<'_>, lookup: &Lookup, names: &[Name]) -> Result<Vec<Resolved>, String> {
        let server = lookup.server.or(self.server).ok_or("there is no DNS outside")?;
        let sandbox = &mut self.up()?.sandbox;
        if let Some(then) = &lookup.then {
            resolve::listen(sandbox, then)?;
        }
        let resolved = resolve::resolve(sandbox, &LookupQuestion { lookup, names, server })?;
        self.up()?.share_names().map_err(words)?;
        Ok(resolved)
    }

    fn queries(&mut self, server: IpAddr) -> Result<u64, String> {
        Ok(self.up()?.sandbox.name_servers().map_or(0, |servers| servers.queries(server)))
    }

    fn learns(&self) -> bool {
        self.dns.is_some()
    }

    fn set(&mut self, now: &Now<'_>, settings: &AgentSettings) -> Result<(), String> {
        let dns = self.dns.as_mut().ok_or("there is no DNS outside")?;
        let AgentSettings { upstreams, hold_limit, minimum_ttl, maximum_ttl, grace, slow_kernel, .. } = settings;
        if let Some(upstreams) = upstreams {
            dns.server.upstreams = upstreams.iter().map(|&address| SocketAddr::new(address, dns::PORT)).collect();
            dns.trusted.clone_from(&dns.server.upstreams);
        }
        dns.server.hold_limit = hold_limit.unwrap_or(dns.server.hold_limit);
        dns.server.on_learn_timeout = match settings.on_learn_timeout {
            Some(OnLearnTimeout::Servfail) => namewall_dns::OnLearnTimeout::Fail,
            Some(OnLearnTimeout::Release) => namewall_dns::OnLearnTimeout::Release,
            None => dns.server.on_learn_timeout,
        };
        self.never_lease = settings.never_lease.clone().unwrap_or(std::mem::take(&mut self.never_lease));
        self.nat64_prefixes = settings.nat64_prefixes.clone().unwrap_or(std::mem::take(&mut self.nat64_prefixes));
        dns.never_leased = usually_never_leased().and_networks(&self.never_lease).translated_by(&self.nat64_prefixes);
        let Learning { lifetimes, .. } = &mut dns.learning;
        lifetimes.minimum = minimum_ttl.unwrap_or(lifetimes.minimum);
        lifetimes.maximum = maximum_ttl.unwrap_or(lifetimes.maximum);
        lifetimes.grace = grace.unwrap_or(lifetimes.grace);
        dns.learning.slow_kernel = slow_kernel.unwrap_or(dns.learning.slow_kernel);
        let outside = outside_of(&self.spoken_of, now);
        let cluster = self.cluster.as_mut().ok_or(NOT_UP)?;
        cluster.serve_again(&wanted(now, &outside, self.dns.as_ref())).map_err(words)
    }

    fn stop(&mut self, how: Going) -> Result<(), String> {
        match how {
            Going::Stop | Going::Upgrade => self.up()?.stop(true).map_err(words),
            Going::Kill => self.up()?.stop(false).map_err(words),
        }
    }

    fn start(&mut self, now: &Now<'_>) -> Result<(), String> {
        let outside = outside_of(&self.spoken_of, now);
        let cluster = self.cluster.as_mut().ok_or(NOT_UP)?;
        cluster.restart(&wanted(now, &outside, self.dns.as_ref())).map(drop).map_err(words)
    }
}

impl Packets {
    /// Tries probes whose denials can be told apart.
    fn probe_at_once(&mut self, now: &Now<'_>, probes: &[&Predicted]) -> Result<Vec<ProbeOutcome>, String> {
        let cluster = self.up()?;
        cluster.denials().map_err(words)?;
        let questions: Vec<Question<'_>> = probes
            .iter()
            .map(|one| Question { target: &one.probe.to, routes: &one.routes, predicted: one.verdict })
            .collect();
        let answers = cluster.ask(now.snapshot, &questions).map_err(words)?;
        let denials = cluster.denials().map_err(words)?;
        let told = KernelDenials { program: now.program, denials: &denials };
        let judge = |(predicted, answer): (&&Predicted, &Answer)| {
            if *answer == Answer::NoWay {
                return ProbeOutcome::NotTried("the ends have no addresses of one family".to_owned());
            }
            match judge(predicted, answer).and_then(|()| told.check(predicted, probes.len())) {
                Ok(words) => ProbeOutcome::AsPredicted(words),
                Err(words) => ProbeOutcome::Otherwise(words),
            }
        };
        Ok(probes.iter().zip(&answers).map(judge).collect())
    }
}

/// Whether the answer is what was predicted. Where addresses are known, a verdict depends on a node that is not, and
/// the kernel stays closed (S10.5).
fn judge(predicted: &Predicted, answer: &Answer) -> Result<(), String> {
    let flows = || predicted.routes.iter().flat_map(|route| &route.flows);
    let is_known = flows().all(|flow| flow.from.address.is_some() && flow.to.address.is_some());
    match (predicted.verdict, answer) {
        (Prediction::Allow, Answer::Open) | (Prediction::Deny, Answer::Silent) | (_, Answer::NoWay) => Ok(()),
        // Through a Service it may be source NAT that decides, of which the kernel knows.
        (Prediction::Depends, Answer::Open) if is_known && !flows().any(Flow::may_be_masked) => {
            Err("open, where it depends on a node".to_owned())
        }
        (Prediction::Depends, Answer::Open | Answer::Silent) => Ok(()),
        (Prediction::Allow, Answer::Silent) => Err("silence, where the core allows".to_owned()),
        (Prediction::Deny, Answer::Open) => Err("open, where the core denies".to_owned()),
        (_, Answer::Odd { at, measured }) => Err(format!("{measured} at {at}")),
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
