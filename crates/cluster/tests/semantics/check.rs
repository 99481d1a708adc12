//! One line, every answer: a connection is asked of `evaluate`, of `explain`,
//! of the exact sets of `reach` and of the matrix, and all must say the same.

use namewall_cluster::{Document, Settings, lower};
use namewall_policy::domain::DomainName;
use namewall_policy::model::{BackendTarget, Direction, ServiceId, WorkloadId};
use namewall_policy::port::{Protocol, Traffic};
use namewall_policy::program::Plan;
use namewall_policy::reach::{Matrix, Reach};
use namewall_policy::{
    Cause, Decision, Endpoint, Finding, Flow, Instant, Lease, LeaseTable, Program, Reason, Snapshot, Verdict, compile,
    evaluate, explain,
};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Checks what follows from manifests. A line reads `FROM -> TO:PORT/PROTOCOL:
/// VERDICT`; the verdict `allow` or `deny`, then ` by ` what decided, then
/// `, would deny by ` what only audits. An end is a workload `NS/NAME`, an
/// address, a `node/NAME`, a `service/NS/NAME` (as destination) or a DNS name.
#[track_caller]
pub(crate) fn check(yaml: impl AsRef<str>, lines: &[&str]) {
    Cluster::read(yaml, &Settings::default()).check(lines);
}

/// What is said about manifests: `severity[code] object path line:column`.
pub(crate) fn findings(yaml: impl AsRef<str>) -> Vec<String> {
    let said = |finding: &Finding| {
        let place = finding.source.as_ref().map(|source| format!(" {}:{}", source.line, source.column));
        let (object, path) = (&finding.object, &finding.path);
        format!("{}[{}] {object} {path}{}", finding.severity, finding.code, place.unwrap_or_default())
    };
    Cluster::read(yaml, &Settings::default()).findings.iter().map(said).collect()
}

/// Where a text first stands in manifests, as `findings` writes it.
pub(crate) fn place(yaml: &str, text: &str) -> String {
    let before = &yaml[..yaml.find(text).unwrap()];
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    format!("{}:{}", before.matches('\n').count() + 1, before[start..].chars().count() + 1)
}

/// What is said about manifests, in full, one line each.
pub(crate) fn messages(yaml: impl AsRef<str>) -> String {
    Cluster::read(yaml, &Settings::default()).findings.iter().map(|finding| format!("{finding}\n")).collect()
}

pub(crate) struct Cluster {
    pub(crate) snapshot: Snapshot,
    pub(crate) program: Program,
    pub(crate) leases: LeaseTable,
    pub(crate) findings: Vec<Finding>,
}

const NOW: Instant = Instant(Duration::ZERO);

impl Cluster {
    pub(crate) fn read(yaml: impl AsRef<str>, settings: &Settings) -> Self {
        let file: Arc<str> = "all.yaml".into();
        let (documents, mut findings) = Document::read_all(&file, yaml.as_ref());
        let lowered = lower(&documents, settings);
        findings.extend(lowered.findings);
        let (program, more) = compile(&lowered.snapshot);
        findings.extend(more);
        Self { snapshot: lowered.snapshot, program, leases: LeaseTable::default(), findings }
    }

    /// The address was learnt for the name, by every pattern that matches it.
    pub(crate) fn lease(mut self, name: &str, address: &str) -> Self {
        let name: DomainName = name.parse().unwrap();
        for id in self.program.patterns.matching(&name) {
            let pattern = self.program.patterns.get(id).clone();
            let expiry = NOW + Duration::from_secs(60);
            self.leases.grant(Lease {
                pattern,
                name: name.clone(),
                address: address.parse().unwrap(),
                expiry,
                asked_by: None,
            });
        }
        self
    }

    #[track_caller]
    pub(crate) fn check(&self, lines: &[&str]) {
        for line in lines {
            let (question, expected) = line.rsplit_once(": ").unwrap();
            let (from, to) = question.split_once(" -> ").unwrap();
            let found = self.ask(from, to);
            let (verdict, rest) = expected.split_at(expected.find([' ', ',']).unwrap_or(expected.len()));
            let (by, audit) = rest.split_once(", would deny by ").map_or((rest, None), |(by, audit)| (by, Some(audit)));
            assert_eq!(found.decision.verdict.to_string(), verdict, "{line}\nfound: {found:?}");
            if let Some(by) = by.strip_prefix(" by ") {
                let rules = |word: &String| word.contains('/');
                let cited = found.by.iter().any(|word| word == by) && !(by == "default" && found.by.iter().any(rules));
                assert!(cited, "{line}\nfound: {found:?}");
            }
            let audited = audit.map_or(found.would.is_empty(), |audit| found.would.iter().any(|word| word == audit));
            assert!(audited, "{line}\nfound: {found:?}");
        }
    }

    /// Over every pair of addresses that can speak; one that is allowed is enough.
    fn ask(&self, from: &str, to: &str) -> Found {
        let (to, last) = to.rsplit_once(':').unwrap();
        let (port, protocol) = last.split_once('/').unwrap_or(("0", last));
        let (port, protocol): (u16, Protocol) = (port.parse().unwrap(), protocol.parse().unwrap());
        let sources = self.ends(from);
        let mut all = Vec::new();
        if let Some(service) = to.strip_prefix("service/") {
            let (via, targets) = self.backends(service, protocol, port);
            for (target, port) in targets {
                for (from, to) in self.program.address_pairs(&sources, std::slice::from_ref(&target)) {
                    all.push(self.judge(&Flow { from, to, protocol, port, via: Some(via), hop: None, masker: None }));
                }
            }
        } else {
            let targets = self.ends(to);
            for (from, to) in self.program.address_pairs(&sources, &targets) {
                all.push(self.judge(&Flow { from, to, protocol, port, via: None, hop: None, masker: None }));
            }
            let open = all.iter().any(|found| found.decision.verdict == Verdict::Allow);
            if let Some(traffic) = self.ask_matrix(&sources, &targets) {
                assert_eq!(
                    traffic.contains(protocol, port),
                    open,
                    "the matrix and evaluate differ on {from} -> {to} {protocol} {port}"
                );
            }
        }
        let first = all.iter().position(|found| found.decision.verdict == Verdict::Allow).unwrap_or(0);
        all.swap_remove(first)
    }

    fn judge(&self, flow: &Flow) -> Found {
        let decision = evaluate(&self.program, &self.leases, flow, NOW);
        let told = explain(&self.snapshot, &self.reach(), flow);
        assert_eq!(told.decision, decision, "explain and evaluate differ on {flow:?}");
        assert_eq!(told.audit.is_empty(), decision.would_deny.is_none(), "the audit is told: {flow:?}");
        let open = decision.verdict == Verdict::Allow;
        // What may be opened is asked of two ends; the Service between an end outside and another is not known there.
        if flow.via.is_none() || flow.from.workload.is_some() {
            let traffic = self.reach().between(&flow.from, &flow.to);
            assert_eq!(traffic.open.contains(flow.protocol, flow.port), open, "reach and evaluate differ on {flow:?}");
        }
        let by = self.cited(flow, decision.reason, |class| &class.enforced);
        let would = decision
            .would_deny
            .map(|reason| self.cited(flow, reason, |class| class.audited.as_ref().unwrap_or(&class.enforced)));
        Found { decision, by, would: would.unwrap_or_default() }
    }

    pub(crate) fn reach(&self) -> Reach<'_> {
        Reach { program: &self.program, leases: &self.leases, now: NOW }
    }

    /// The matrix knows workloads, and ranges of addresses that no workload has.
    fn ask_matrix(&self, from: &[Endpoint], to: &[Endpoint]) -> Option<Traffic> {
        let matrix = Matrix::new(&self.snapshot, self.reach());
        let whole = |ends: &[Endpoint]| {
            let id = ends[0].workload?;
            (ends.len() == self.snapshot.workload(id).addresses.len().max(1)).then_some(id)
        };
        let alone = |end: &Endpoint| match (end.workload, end.address) {
            (None, Some(address)) if !self.program.pod_networks.contains(address) => Some(address),
            _ => None,
        };
        match (whole(from), whole(to)) {
            (Some(from), Some(to)) => Some(matrix.cell(matrix.between(from, to)).open.clone()),
            (Some(pod), None) if to.len() == 1 && alone(&to[0]).is_some() => {
                let address = alone(&to[0]).unwrap();
                let ranges = matrix.outside_to(pod);
                let range = ranges.iter().find(|piece| piece.range.first <= address && address <= piece.range.last);
                Some(range.unwrap().traffic.open.clone())
            }
            (None, Some(pod)) if from.len() == 1 && alone(&from[0]).is_some() => {
                let address = alone(&from[0]).unwrap();
                let ranges = matrix.outside_from(pod);
                let range = ranges.iter().find(|piece| piece.range.first <= address && address <= piece.range.last);
                Some(range.unwrap().traffic.open.clone())
            }
            _ => None,
        }
    }

    fn ends(&self, text: &str) -> Vec<Endpoint> {
        if let Ok(address) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
            return vec![self.program.endpoint_at(address)];
        }
        if let Some(name) = text.strip_prefix("node/") {
            let node = self.snapshot.node(self.snapshot.node_named(name).unwrap());
            return node.addresses.iter().map(|&address| self.program.endpoint_at(address)).collect();
        }
        if text.contains('/') {
            return self.program.endpoints(&self.snapshot, self.workload(text));
        }
        vec![Endpoint::name(text.parse().unwrap())]
    }

    pub(crate) fn workload(&self, name: &str) -> WorkloadId {
        let found = self.snapshot.workload_ids().find(|&id| self.snapshot.workload_name(id) == name);
        found.unwrap_or_else(|| panic!("no workload {name}"))
    }

    /// Every workload, as `Kind NS/NAME`.
    pub(crate) fn workloads(&self) -> Vec<String> {
        let ids = self.snapshot.workload_ids();
        ids.map(|id| format!("{} {}", self.snapshot.workload(id).kind, self.snapshot.workload_name(id))).collect()
    }

    fn backends(&self, name: &str, protocol: Protocol, port: u16) -> (ServiceId, Vec<(Endpoint, u16)>) {
        let (namespace, name) = name.split_once('/').unwrap();
        let namespace = self.snapshot.namespace_named(namespace).unwrap();
        let named =
            |service: &namewall_policy::model::Service| service.namespace == namespace && &*service.name == name;
        let at = self.snapshot.services.iter().position(named).unwrap();
        let ports = self.snapshot.services[at].ports.iter();
        let port = ports.into_iter().find(|known| known.protocol == protocol && known.port == port).unwrap();
        let backends = port.backends.iter().map(|backend| match backend.target {
            BackendTarget::Workload(id) => (self.program.endpoint_of(id, None), backend.port),
            BackendTarget::Address(address) => (self.program.endpoint_at(address), backend.port),
        });
        let backends: Vec<_> = backends.collect();
        assert!(!backends.is_empty(), "the Service {name} leads nowhere");
        (ServiceId(at as u32), backends)
    }

    /// What decided, in words.
    fn cited<'p>(
        &'p self,
        flow: &Flow,
        reason: Reason,
        pick: impl Fn(&'p namewall_policy::program::Class) -> &'p Plan,
    ) -> Vec<String> {
        let policy = |id| self.program.policy(id).id.to_string();
        let word = |cause| match cause {
            Cause::OwnAddress => "own address".to_owned(),
            Cause::OwnNode => "own node".to_owned(),
            Cause::NoSubject | Cause::Default => "default".to_owned(),
            Cause::Rule(id) => policy(self.program.rule(id).policy),
            Cause::Isolated => panic!("isolation allows nothing"),
        };
        match reason {
            Reason::Allowed { egress, ingress } => vec![word(egress), word(ingress)],
            Reason::Denied { stage, cause: Cause::Isolated } => {
                let subject = match stage.direction() {
                    Direction::Egress => &flow.from,
                    Direction::Ingress => &flow.to,
                };
                let id = subject.workload.unwrap();
                let plan = pick(self.program.class(self.program.member(id).class));
                let network = plan.each().flat_map(|plan| &plan.tiers(stage.direction()).network);
                let namespace = self.snapshot.namespace(self.snapshot.workload(id).namespace);
                let mut by: Vec<String> = network.map(|&id| policy(id)).collect();
                by.extend(namespace.default_deny_ingress.then(|| format!("Namespace/{}", namespace.name)));
                by
            }
            Reason::Denied { cause, .. } => vec![word(cause)],
        }
    }
}

#[derive(Debug)]
struct Found {
    decision: Decision,
    by: Vec<String>,
    would: Vec<String>,
}
