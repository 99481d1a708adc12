//! Playing a scenario through the policy core. Time is the scenario's own.

mod ask;
mod denied;
mod judge;
mod names;

use crate::connections::{Connection, ConnectionResult, Connections, PolicyState};
use crate::expectation::Expectation;
use crate::file::{Change, ObjectRef, Probe, Scenario, Step};
use crate::lookup::LookupResult;
use crate::reality::{Now, Predicted, ProbeOutcome, Reality};
use crate::settings::Going;
use crate::zones::{ReadsAnswers, Witness, Zones};
use judge::Judge;
use namewall_cluster::yaml::Node;
use namewall_cluster::{Document, Resolved, Settings, lower};
use namewall_policy::ask::{Host, Names, Route, Target, World};
use namewall_policy::domain::DomainName;
use namewall_policy::explain::describe_reason;
use namewall_policy::lease::{Learned, NeverLeased, Revision, Rules};
use namewall_policy::unknown::Described;
use namewall_policy::{
    Decision, Finding, Flow, Instant, Lease, LeaseRef, LeaseTable, Prediction, Program, Severity, Snapshot, compile,
    compile_next, evaluate,
};
use std::net::IpAddr;
use std::time::Duration;

/// How a scenario went.
#[derive(Debug)]
pub struct Outcome {
    pub probes: Vec<ProbeResult>,
    /// What became of connections, where the scenario asks.
    pub connections: Vec<ConnectionResult>,
    /// What clients looked up, and what servers were asked.
    pub lookups: Vec<LookupResult>,
    /// What is said to whoever follows along, and where.
    pub said: Vec<(namewall_policy::Source, String)>,
    /// What is wrong with its objects, at any step.
    pub findings: Vec<Finding>,
    /// Those of them that say what could not be read.
    pub unread: Vec<Finding>,
    /// A step that could not be taken.
    pub broken: Option<String>,
}

#[derive(Debug)]
pub struct ProbeResult {
    pub probe: Probe,
    pub passed: bool,
    /// The verdict and the reason for it, in words.
    pub got: String,
    /// There was a reality, and it could not be asked.
    pub not_tried: bool,
    /// What the verdict depends on; empty unless it does (S10.5).
    pub depends_on: Vec<Described>,
}

impl ProbeResult {
    fn new(probe: Probe, passed: bool, got: String) -> Self {
        Self { probe, passed, got, not_tried: false, depends_on: Vec::new() }
    }
}

impl Outcome {
    pub fn passed(&self) -> bool {
        let kept = self.connections.iter().all(|connection| connection.passed);
        let found = self.lookups.iter().all(|lookup| lookup.passed);
        self.broken.is_none() && kept && found && self.probes.iter().all(|probe| probe.passed)
    }

    /// What did not go as expected, in words, for those who run many.
    pub fn failures(&self, scenario: &Scenario) -> Vec<String> {
        let broken = self.broken.iter().map(|message| format!("{}: {message}", scenario.file));
        let mut failures: Vec<String> = broken.collect();
        for probe in self.probes.iter().filter(|probe| !probe.passed) {
            let (source, expect) = (&probe.probe.source, &probe.probe.expect);
            failures.push(format!("{source}: {}\n  expected {expect}\n  got {}", probe.probe.text, probe.got));
        }
        for connection in self.connections.iter().filter(|connection| !connection.passed) {
            let (source, name, expect) = (&connection.source, &connection.name, connection.expect);
            failures.push(format!("{source}: connection {name}\n  expected {expect}\n  got {}", connection.got));
        }
        for lookup in self.lookups.iter().filter(|lookup| !lookup.passed) {
            let LookupResult { source, text, expected, got, .. } = lookup;
            failures.push(format!("{source}: {text}\n  expected {expected}\n  got {got}"));
        }
        failures
    }
}

/// What a scenario is played with.
#[derive(Default)]
pub struct Means<'a> {
    /// A second witness of every step, if there is one.
    pub reality: Option<&'a mut dyn Reality>,
    /// Who says what an answer may lease; the plain reading, if nobody does.
    pub reads: Option<&'a dyn ReadsAnswers>,
}

impl std::fmt::Debug for Means<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (reality, reads) = (self.reality.is_some(), self.reads.is_some());
        f.debug_struct("Means").field("reality", &reality).field("reads", &reads).finish()
    }
}

/// Plays a scenario from its topology to its last probe, through the core alone.
pub fn run(scenario: &Scenario) -> Outcome {
    play(scenario, Means::default())
}

/// Plays it twice at once, through the core and in reality; both must do what is expected.
pub fn run_in(reality: &mut dyn Reality, scenario: &Scenario) -> Outcome {
    play(scenario, Means { reality: Some(reality), reads: None })
}

pub fn play(scenario: &Scenario, means: Means<'_>) -> Outcome {
    let mut player = Player {
        documents: scenario.objects.clone(),
        state: None,
        before: None,
        leases: LeaseTable::default(),
        given: LeaseTable::default(),
        recent: Vec::new(),
        kept: denied::KeptNames::new(),
        names: Names::new(),
        cluster_domain: "cluster.local".parse().expect("it is a name"),
        now: Instant::default(),
        connections: Connections::default(),
        findings: scenario.findings.clone(),
        unread: errors(&scenario.findings).collect(),
        zones: scenario.zones.clone(),
        agent: names::Agent::default(),
        asked: 0,
        reads: means.reads.unwrap_or(&Witness),
        reality: means.reality,
    };
    let (probes, connections, lookups, said, findings) = Default::default();
    let broken = player.begin().err();
    let mut outcome = Outcome { probes, connections, lookups, said, findings, unread: Vec::new(), broken };
    // Probes in a row are made at once: those that nobody answers share one timeout.
    let is_probe = |step: &Step| matches!(step, Step::Probe(_));
    for steps in scenario.steps.chunk_by(|a, b| is_probe(a) && is_probe(b)) {
        if outcome.broken.is_some() {
            break;
        }
        outcome.broken = player.take(steps, &mut outcome).err();
    }
    outcome.findings = player.findings;
    outcome.unread = player.unread;
    outcome
}

struct Player<'r> {
    documents: Vec<Document>,
    /// Compiled when it is first needed after a change.
    state: Option<State>,
    /// As it was before the change.
    before: Option<State>,
    leases: LeaseTable,
    /// Those of them that were not learned from a lookup, so that nobody but us can know.
    given: LeaseTable,
    /// Answers that no rule spoke of when they came.
    recent: Vec<Learned>,
    /// Names whose addresses a rule denies, with no current answer.
    kept: denied::KeptNames,
    names: Names,
    cluster_domain: DomainName,
    now: Instant,
    connections: Connections,
    findings: Vec<Finding>,
    unread: Vec<Finding>,
    zones: Zones,
    agent: names::Agent,
    /// Lookups so far.
    asked: u64,
    reads: &'r dyn ReadsAnswers,
    reality: Option<&'r mut dyn Reality>,
}

struct State {
    snapshot: Snapshot,
    program: Program,
    never_leased: NeverLeased,
}

impl State {
    fn rules(&self) -> Rules<'_> {
        Rules { program: &self.program, never_leased: &self.never_leased }
    }
}

impl Player<'_> {
    /// Takes a step, or several probes; or says why it cannot be done.
    fn take(&mut self, steps: &[Step], outcome: &mut Outcome) -> Result<(), String> {
        match &steps[0] {
            Step::Change(change) => {
                self.change(change)?;
                self.judge_connections();
                self.show()?;
            }
            Step::Answer { name, addresses, ttl } => {
                self.answer(name, addresses, *ttl);
                self.tell_leases()?;
            }
            Step::Advance(time) => {
                self.pass(*time);
                self.reality.as_mut().map_or(Ok(()), |reality| reality.advance(*time))?;
            }
            Step::Probe(_) => self.probes(steps, outcome)?,
            Step::Connect { name, from, to, source } => self
                .connect(name, from, to)
                .map_err(|why| format!("{source}: the connection `{name}` cannot be opened: {why}"))?,
            Step::Connections { name, expect, source } => {
                let (fate, mut got) = self.connections.fate(name);
                let mut passed = fate == *expect;
                if let Some(reality) = &mut self.reality {
                    let real = reality.fate(name)?;
                    passed &= real == *expect;
                    got += &format!("; with packets: {real}");
                }
                let (name, source) = (name.clone(), source.clone());
                outcome.connections.push(ConnectionResult { name, expect: *expect, passed, got, source });
            }
            Step::Say { text, source } => outcome.said.push((source.clone(), text.clone())),
            Step::Settings(settings) => self.set(settings)?,
            Step::Zone(changes) => self.rezone(changes)?,
            Step::Resolve(lookup) => self.resolve(lookup, outcome)?,
            Step::Queries { server, expect, source } => {
                outcome.lookups.push(self.count_queries(*server, *expect, source)?);
            }
            Step::Stop(how) => {
                if let Some(reality) = &mut self.reality {
                    reality.stop(*how)?;
                }
                match how {
                    // Another takes over at once.
                    Going::Upgrade => self.start()?,
                    Going::Stop | Going::Kill => self.agent.gone = Some((*how, self.now)),
                }
            }
            Step::Start => {
                if self.agent.gone.take().is_some() {
                    self.start()?;
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), String> {
        self.show()?;
        match &mut self.reality {
            Some(reality) if self.zones.default_server().is_some() => reality.serve(&self.zones),
            _ => Ok(()),
        }
    }

    fn start(&mut self) -> Result<(), String> {
        self.state();
        match (now(&self.state, &self.connections), &mut self.reality) {
            (Some(now), Some(reality)) => reality.start(&now),
            _ => Ok(()),
        }
    }

    /// Makes reality like the cluster.
    fn show(&mut self) -> Result<(), String> {
        if self.reality.is_none() {
            return Ok(());
        }
        self.state();
        if let (Some(now), Some(reality)) = (now(&self.state, &self.connections), &mut self.reality) {
            reality.change(&now)?;
        }
        self.tell_leases()
    }

    fn tell_leases(&mut self) -> Result<(), String> {
        let Some(reality) = &mut self.reality else { return Ok(()) };
        let known = if reality.learns() { &self.given } else { &self.leases };
        let leases: Vec<Lease> = known.iter().filter(|lease| lease.expiry > self.now).map(LeaseRef::to_lease).collect();
        reality.learn(&leases, self.now)
    }

    fn probes(&mut self, steps: &[Step], outcome: &mut Outcome) -> Result<(), String> {
        self.state();
        let probes = steps.iter().filter_map(|step| match step {
            Step::Probe(probe) => Some(probe),
            _ => None,
        });
        let mut results: Vec<(ProbeResult, Option<Predicted>)> = probes.map(|probe| self.probe(probe)).collect();
        self.witness(&mut results)?;
        outcome.probes.extend(results.into_iter().map(|(result, _)| result));
        Ok(())
    }

    /// Asks reality, where there is one, of what the core has said.
    fn witness(&mut self, results: &mut [(ProbeResult, Option<Predicted>)]) -> Result<(), String> {
        let (Some(now), Some(reality)) = (now(&self.state, &self.connections), &mut self.reality) else {
            return Ok(());
        };
        let predicted: Vec<&Predicted> = results.iter().filter_map(|(_, predicted)| predicted.as_ref()).collect();
        let seen = reality.probe(&now, &predicted)?;
        let asked = results.iter_mut().filter(|(_, predicted)| predicted.is_some());
        for ((result, _), seen) in asked.zip(seen) {
            match seen {
                ProbeOutcome::AsPredicted(words) => result.got += &format!("; with packets: {words}"),
                ProbeOutcome::Otherwise(words) => {
                    result.passed = false;
                    result.got += &format!("; but with packets: {words}");
                }
                ProbeOutcome::NotTried(why) => {
                    result.not_tried = true;
                    result.got += &format!("; not tried with packets: {why}");
                }
            }
        }
        Ok(())
    }

    fn change(&mut self, change: &Change) -> Result<(), String> {
        if let Some(state) = self.state.take() {
            self.before = Some(state);
        }
        match change {
            Change::Apply { documents, findings } => {
                self.findings.extend(findings.iter().cloned());
                self.unread.extend(errors(findings));
                for document in documents {
                    self.documents.retain(|known| !same_object(known, document));
                    self.documents.push(document.clone());
                }
            }
            Change::Patch { object, with } => self.find(object)?.node.merge(with),
            Change::Delete(object) => {
                let at = self.position(object)?;
                self.documents.remove(at);
            }
            Change::Relabel { object, labels } => {
                let metadata = self.find(object)?.node.entry("metadata");
                if let Some(labels_now) = metadata.and_then(|metadata: &mut Node| metadata.entry("labels")) {
                    labels_now.merge(labels);
                }
            }
        }
        Ok(())
    }

    fn position(&self, object: &ObjectRef) -> Result<usize, String> {
        let found = self.documents.iter().position(|document| {
            document.kind() == Some(&object.kind)
                && document.name() == Some(&object.name)
                && object
                    .namespace
                    .as_deref()
                    .is_none_or(|namespace| document.namespace().unwrap_or("default") == namespace)
        });
        found.ok_or_else(|| format!("there is no {} {} to change", object.kind, object.name))
    }

    fn find(&mut self, object: &ObjectRef) -> Result<&mut Document, String> {
        let at = self.position(object)?;
        Ok(&mut self.documents[at])
    }

    fn state(&mut self) -> &State {
        let Self { documents, leases, given, findings, unread, names, cluster_domain: domain, state, .. } = self;
        let (before, recent, now, agent) = (&self.before, &mut self.recent, self.now, &self.agent);
        state.get_or_insert_with(|| {
            let lowered = lower(&*documents, &Settings::default());
            let (program, more) = match before {
                Some(State { snapshot, program, .. }) => compile_next(snapshot, program, &lowered.snapshot),
                None => compile(&lowered.snapshot),
            };
            unread.extend(errors(&lowered.findings).filter(|finding| !unread.contains(finding)).collect::<Vec<_>>());
            for finding in lowered.findings.into_iter().chain(more) {
                if !findings.contains(&finding) {
                    findings.push(finding);
                }
            }
            let never_leased =
                NeverLeased::new(domain.clone()).and_networks(&agent.never_lease).translated_by(&agent.nat64_prefixes);
            let before = before.as_ref().map(State::rules);
            let next = Rules { program: &program, never_leased: &never_leased };
            for leases in [&mut *leases, &mut *given] {
                leases.follow(&Revision { before, next });
            }
            // A policy opens what was answered before it came (S6.3).
            recent.retain(|learned| {
                let opens = !learned.patterns(&program).is_empty();
                if opens {
                    never_leased.learn(&program, learned, leases);
                }
                learned.expiry > now && !opens
            });
            for Resolved { name, address } in lowered.resolved {
                let known = names.entry(name.clone()).or_default();
                if !known.contains(&address) {
                    known.push(address);
                }
                let expiry = Instant(Duration::MAX);
                let learned = Learned { name, addresses: vec![address], expiry, asked_by: None };
                for leases in [&mut *leases, &mut *given] {
                    never_leased.learn(&program, &learned, leases);
                }
            }
            State { snapshot: lowered.snapshot, program, never_leased }
        })
    }

    fn answer(&mut self, name: &DomainName, addresses: &[IpAddr], ttl: Duration) {
        self.state();
        let Some(state) = &self.state else { return };
        let expiry = self.agent.lifetimes.expiry(ttl, self.now);
        let learned = Learned { name: name.clone(), addresses: addresses.to_vec(), expiry, asked_by: None };
        for leases in [&mut self.leases, &mut self.given] {
            state.never_leased.learn(&state.program, &learned, leases);
        }
        // A client goes where the newest answer points.
        self.names.insert(name.clone(), addresses.to_vec());
    }

    fn connect(&mut self, name: &str, from: &Host, to: &Target) -> Result<(), String> {
        self.state();
        let Some(world) = self.world() else { return Ok(()) };
        let routes = world.routes(from, to).map_err(|error| error.to_string())?;
        if world.predict(&routes) == Prediction::Depends {
            return Err(format!("it depends: {}", Described::join(&world.describe(world.depends_on(&routes)))));
        }
        let connection = Connection::open(&world, &routes)?;
        let flow = connection.flow().clone();
        self.connections.keep(name, connection);
        match (now(&self.state, &self.connections), &mut self.reality) {
            (Some(now), Some(reality)) => reality.connect(&now, name, &flow),
            _ => Ok(()),
        }
    }

    /// After a change, and not later: what comes and goes between two looks must not be missed.
    fn judge_connections(&mut self) {
        if !self.connections.any_to_judge() {
            return;
        }
        self.state();
        if let Some(State { snapshot, program, .. }) = &self.state {
            self.connections.judge(PolicyState { snapshot, program, leases: &self.leases, now: self.now });
        }
    }

    /// As it was last compiled.
    fn world(&self) -> Option<World<'_>> {
        let State { snapshot, program, .. } = self.state.as_ref()?;
        Some(World {
            snapshot,
            program,
            leases: &self.leases,
            names: &self.names,
            cluster_domain: &self.cluster_domain,
            now: self.now,
        })
    }

    fn probe(&self, probe: &Probe) -> (ProbeResult, Option<Predicted>) {
        let failed = |got: String| (ProbeResult::new(probe.clone(), false, got), None);
        let Some(world) = self.world() else { return failed(String::new()) };
        let (snapshot, program) = (world.snapshot, world.program);
        let routes = match world.routes(&probe.from, &probe.to) {
            Ok(routes) => routes,
            Err(error) => return failed(error.to_string()),
        };
        let verdict = world.predict(&routes);
        let Some((flow, decision)) = decisive(&world, &routes, verdict) else {
            let got = format!("{verdict}: the Service has no endpoint to send it to");
            return (ProbeResult::new(probe.clone(), probe.expect == just(verdict), got), None);
        };
        let depends_on = match verdict {
            Prediction::Depends => world.describe(world.depends_on(&routes)),
            _ => Vec::new(),
        };
        let mut got = match verdict {
            Prediction::Depends => format!("depends: {}", Described::join(&depends_on)),
            _ => format!("{verdict}: {}", describe_reason(snapshot, program, &decision.reason, &flow)),
        };
        if let Some(reason) = &decision.would_deny {
            got += &format!("; would deny: {}", describe_reason(snapshot, program, reason, &flow));
        }
        let judge = Judge { program, flow: &flow };
        let passed = judge.agrees(&probe.expect, verdict, &decision);
        let predicted = Predicted { probe: probe.clone(), routes, verdict, flow, decision };
        (ProbeResult { depends_on, ..ProbeResult::new(probe.clone(), passed, got) }, Some(predicted))
    }
}

/// The cluster as it was last compiled.
fn now<'a>(state: &'a Option<State>, connections: &Connections) -> Option<Now<'a>> {
    let State { snapshot, program, .. } = state.as_ref()?;
    Some(Now { snapshot, program, cut_established: connections.cut_established })
}

fn errors(findings: &[Finding]) -> impl Iterator<Item = Finding> {
    findings.iter().filter(|finding| finding.severity == Severity::Error).cloned()
}

fn just(verdict: Prediction) -> Expectation {
    Expectation { verdict, by: None, would_deny: None }
}

fn same_object(a: &Document, b: &Document) -> bool {
    let group = |document: &Document| document.api_version().unwrap_or_default().split('/').next().map(str::to_owned);
    let namespace = |document: &Document| document.namespace().unwrap_or("default").to_owned();
    a.kind() == b.kind() && a.name() == b.name() && namespace(a) == namespace(b) && group(a) == group(b)
}

/// The connection that settles the verdict, and its decision.
fn decisive(world: &World<'_>, routes: &[Route], verdict: Prediction) -> Option<(Flow, Decision)> {
    let decide = |flow: &Flow| (flow.clone(), evaluate(world.program, world.leases, flow, world.now));
    let decided: Vec<_> = routes.iter().flat_map(|route| &route.flows).map(decide).collect();
    decided.iter().find(|(_, decision)| Prediction::from(decision.verdict) == verdict).or(decided.first()).cloned()
}
