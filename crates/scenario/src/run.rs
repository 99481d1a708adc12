//! Playing a scenario through the policy core. Time is the scenario's own.

use crate::connections::{Connection, ConnectionResult, Connections, Law};
use crate::expectation::{By, Expectation};
use crate::file::{Change, ObjectRef, Probe, Scenario, Step};
use namewall_cluster::yaml::Node;
use namewall_cluster::{Document, Settings, lower};
use namewall_policy::ask::{Host, Names, Route, Target, World};
use namewall_policy::domain::DomainName;
use namewall_policy::explain::describe_reason;
use namewall_policy::lease::{Learned, Lifetimes, NeverLeased};
use namewall_policy::model::PolicyId;
use namewall_policy::{
    Cause, Decision, Finding, Flow, Instant, Lease, LeaseTable, Program, Reason, Snapshot, Verdict, compile, evaluate,
};
use std::net::IpAddr;
use std::time::Duration;

/// How a scenario went.
#[derive(Debug)]
pub struct Outcome {
    pub probes: Vec<ProbeResult>,
    /// What became of connections, where the scenario asks.
    pub connections: Vec<ConnectionResult>,
    /// What is wrong with its objects, at any step.
    pub findings: Vec<Finding>,
    /// A step that could not be taken.
    pub broken: Option<String>,
}

#[derive(Debug)]
pub struct ProbeResult {
    pub probe: Probe,
    pub passed: bool,
    /// The verdict and the reason for it, in words.
    pub got: String,
}

impl Outcome {
    pub fn passed(&self) -> bool {
        let kept = self.connections.iter().all(|connection| connection.passed);
        self.broken.is_none() && kept && self.probes.iter().all(|probe| probe.passed)
    }
}

/// Plays a scenario from its topology to its last probe.
pub fn run(scenario: &Scenario) -> Outcome {
    let mut player = Player {
        documents: scenario.objects.clone(),
        state: None,
        leases: LeaseTable::default(),
        names: Names::new(),
        cluster_domain: "cluster.local".parse().expect("it is a name"),
        now: Instant::default(),
        connections: Connections::default(),
        findings: scenario.findings.clone(),
    };
    let mut outcome = Outcome { probes: Vec::new(), connections: Vec::new(), findings: Vec::new(), broken: None };
    for step in &scenario.steps {
        if let Err(message) = player.take(step, &mut outcome) {
            outcome.broken = Some(message);
            break;
        }
    }
    outcome.findings = player.findings;
    outcome
}

struct Player {
    documents: Vec<Document>,
    /// Compiled when it is first needed after a change.
    state: Option<State>,
    leases: LeaseTable,
    names: Names,
    cluster_domain: DomainName,
    now: Instant,
    connections: Connections,
    findings: Vec<Finding>,
}

struct State {
    snapshot: Snapshot,
    program: Program,
    never_leased: NeverLeased,
}

impl Player {
    /// Takes a step, or says why it cannot be taken.
    fn take(&mut self, step: &Step, outcome: &mut Outcome) -> Result<(), String> {
        match step {
            Step::Change(change) => {
                self.change(change)?;
                self.judge_connections();
            }
            Step::Answer { name, addresses, ttl } => self.answer(name, addresses, *ttl),
            Step::Advance(time) => self.now = self.now + *time,
            Step::Probe(probe) => outcome.probes.push(self.probe(probe)),
            Step::Connect { name, from, to, source } => self
                .connect(name, from, to)
                .map_err(|why| format!("{source}: the connection `{name}` cannot be opened: {why}"))?,
            Step::Connections { name, expect, source } => {
                let (fate, got) = self.connections.fate(name);
                let (name, source, passed) = (name.clone(), source.clone(), fate == *expect);
                outcome.connections.push(ConnectionResult { name, expect: *expect, passed, got, source });
            }
            Step::Settings { cut_established } => self.connections.cut_established = *cut_established,
        }
        Ok(())
    }

    fn change(&mut self, change: &Change) -> Result<(), String> {
        self.state = None;
        match change {
            Change::Apply { documents, findings } => {
                self.findings.extend(findings.iter().cloned());
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
        let Self { documents, leases, findings, names, cluster_domain: domain, state, .. } = self;
        state.get_or_insert_with(|| {
            let lowered = lower(documents, &Settings::default());
            let (program, more) = compile(&lowered.snapshot);
            for finding in lowered.findings.into_iter().chain(more) {
                if !findings.contains(&finding) {
                    findings.push(finding);
                }
            }
            let never_leased = NeverLeased::new(&lowered.snapshot, domain.clone());
            for resolved in lowered.resolved {
                let (pattern, name, address) = (resolved.pattern, resolved.name, resolved.address);
                if never_leased.refusal(&program, &name, address).is_none() {
                    let known = names.entry(name.clone()).or_default();
                    if !known.contains(&address) {
                        known.push(address);
                    }
                    leases.grant(Lease { pattern, name, address, expiry: Instant(Duration::MAX) });
                }
            }
            State { snapshot: lowered.snapshot, program, never_leased }
        })
    }

    fn answer(&mut self, name: &DomainName, addresses: &[IpAddr], ttl: Duration) {
        self.state();
        let Some(state) = &self.state else { return };
        let expiry = Lifetimes::default().expiry(ttl, self.now);
        let learned = Learned { name: name.clone(), addresses: addresses.to_vec(), expiry };
        state.never_leased.learn(&state.program, &learned, &mut self.leases);
        // A client goes where the newest answer points.
        self.names.insert(name.clone(), addresses.to_vec());
    }

    fn connect(&mut self, name: &str, from: &Host, to: &Target) -> Result<(), String> {
        self.state();
        let Some(world) = self.world() else { return Ok(()) };
        let routes = world.routes(from, to).map_err(|error| error.to_string())?;
        let connection = Connection::open(&world, &routes)?;
        self.connections.keep(name, connection);
        Ok(())
    }

    /// After a change, and not later: what comes and goes between two looks must not be missed.
    fn judge_connections(&mut self) {
        if !self.connections.any_open() {
            return;
        }
        self.state();
        if let Some(State { snapshot, program, .. }) = &self.state {
            self.connections.judge(Law { snapshot, program, leases: &self.leases });
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

    fn probe(&mut self, probe: &Probe) -> ProbeResult {
        self.state();
        let failed = |got: String| ProbeResult { probe: probe.clone(), passed: false, got };
        let Some(world) = self.world() else { return failed(String::new()) };
        let (snapshot, program) = (world.snapshot, world.program);
        let routes = match world.routes(&probe.from, &probe.to) {
            Ok(routes) => routes,
            Err(error) => return failed(error.to_string()),
        };
        let verdict = world.verdict(&routes);
        let Some((flow, decision)) = decisive(&world, &routes, verdict) else {
            let got = format!("{verdict}: the Service has no endpoint to send it to");
            return ProbeResult { probe: probe.clone(), passed: probe.expect == just(verdict), got };
        };
        let mut got = format!("{verdict}: {}", describe_reason((snapshot, program), &decision.reason, &flow));
        if let Some(reason) = &decision.would_deny {
            got += &format!("; would deny: {}", describe_reason((snapshot, program), reason, &flow));
        }
        let judge = Judge { program, flow: &flow };
        ProbeResult { probe: probe.clone(), passed: judge.agrees(&probe.expect, verdict, &decision), got }
    }
}

fn just(verdict: Verdict) -> Expectation {
    Expectation { verdict, by: None, would_deny: None }
}

fn same_object(a: &Document, b: &Document) -> bool {
    let group = |document: &Document| document.api_version().unwrap_or_default().split('/').next().map(str::to_owned);
    let namespace = |document: &Document| document.namespace().unwrap_or("default").to_owned();
    a.kind() == b.kind() && a.name() == b.name() && namespace(a) == namespace(b) && group(a) == group(b)
}

/// The connection that settles the verdict, and its decision.
fn decisive(world: &World<'_>, routes: &[Route], verdict: Verdict) -> Option<(Flow, Decision)> {
    let decide = |flow: &Flow| (flow.clone(), evaluate(world.program, world.leases, flow, world.now));
    let decided: Vec<_> = routes.iter().flat_map(|route| &route.flows).map(decide).collect();
    decided.iter().find(|(_, decision)| decision.verdict == verdict).or(decided.first()).cloned()
}

struct Judge<'a> {
    program: &'a Program,
    flow: &'a Flow,
}

impl Judge<'_> {
    fn agrees(&self, expect: &Expectation, verdict: Verdict, decision: &Decision) -> bool {
        let would_deny = match (&expect.would_deny, &decision.would_deny) {
            (None, None) => true,
            (Some(by), Some(reason)) => by.as_ref().is_none_or(|by| self.is_by(by, reason)),
            _ => false,
        };
        expect.verdict == verdict && would_deny && expect.by.as_ref().is_none_or(|by| self.is_by(by, &decision.reason))
    }

    /// An allow is by either direction's rule; a denial by isolation by any policy that isolates.
    fn is_by(&self, by: &By, reason: &Reason) -> bool {
        match reason {
            Reason::Allowed { egress, ingress } if by.policy == "default" => {
                let silent = |cause: &Cause| matches!(cause, Cause::Default | Cause::NoSubject);
                silent(egress) && silent(ingress)
            }
            Reason::Allowed { egress, ingress } => [egress, ingress].into_iter().any(|cause| self.is_rule(by, cause)),
            Reason::Denied { stage, cause: Cause::Isolated } => {
                let subject = match stage.direction() {
                    namewall_policy::model::Direction::Egress => &self.flow.from,
                    namewall_policy::model::Direction::Ingress => &self.flow.to,
                };
                let class = subject.workload.map(|id| self.program.class(self.program.member(id).class));
                let plans = class.into_iter().flat_map(|class| class.audited.iter().chain([&class.enforced]));
                by.rule.is_none()
                    && plans.flat_map(|plan| &plan.tiers(stage.direction()).network).any(|&id| self.is_policy(by, id))
            }
            Reason::Denied { cause, .. } => self.is_rule(by, cause),
        }
    }

    fn is_rule(&self, by: &By, cause: &Cause) -> bool {
        let Cause::Rule(id) = cause else { return false };
        let rule = self.program.rule(*id);
        self.is_policy(by, rule.policy) && by.rule.is_none_or(|index| index == rule.index)
    }

    fn is_policy(&self, by: &By, id: PolicyId) -> bool {
        self.program.policy(id).id.to_string() == by.policy
    }
}
