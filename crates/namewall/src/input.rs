//! Paths, or a cluster that lives → a compiled cluster, with what there is to say about the input.

use crate::cli::{DnsAnswer, FilesOrCluster, Input, Settings};
use crate::output;
use crate::plugin::read_cluster;
use crate::unread::{Lenient, Unread};
use anyhow::Result;
use namewall_cluster as cluster;
use namewall_policy::ask::{Names, World};
use namewall_policy::domain::DomainName;
use namewall_policy::lease::{Learned, NeverLeased};
use namewall_policy::reach::{Matrix, Reach};
use namewall_policy::{Finding, Instant, LeaseTable, Program, Severity, Snapshot, compile};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// Where a cluster is read from, as it is typed.
pub(crate) trait Origin: clap::Args {
    fn load(&self) -> Result<Loaded>;
}

impl Origin for Input {
    fn load(&self) -> Result<Loaded> {
        Ok(Loaded::read(self)?.with(self.lenient))
    }
}

impl Origin for FilesOrCluster {
    fn load(&self) -> Result<Loaded> {
        match self.live {
            true => Ok(read_cluster(&self.server, &self.reading)?.0),
            false => Ok(Loaded::from_paths(&self.paths, &self.reading.settings)?.with(self.reading.lenient)),
        }
    }
}

/// A cluster as files describe it, or its API server.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) snapshot: Snapshot,
    pub(crate) program: Program,
    pub(crate) leases: LeaseTable,
    pub(crate) names: Names,
    pub(crate) findings: Vec<Finding>,
    pub(crate) unread: Unread,
    pub(crate) passed_over: BTreeMap<String, usize>,
    never_leased: NeverLeased,
    cluster_domain: DomainName,
}

/// Offline no time passes; what is leased stays so.
pub(crate) const NOW: Instant = Instant(Duration::ZERO);
pub(crate) const FOREVER: Instant = Instant(Duration::MAX);

impl Settings {
    pub(crate) fn cluster(&self) -> cluster::Settings {
        cluster::Settings { api_server: self.api_server.clone(), pod_networks: self.pod_network.clone() }
    }

    pub(crate) fn cluster_domain(&self) -> DomainName {
        self.cluster_domain.clone().unwrap_or_else(|| "cluster.local".parse().expect("it is a name"))
    }

    /// What no name opens, as an agent with the same settings sees it.
    fn never_leased(&self) -> NeverLeased {
        let networks: Vec<_> = self.never_lease.iter().map(|block| block.0).collect();
        let prefixes: Vec<_> = self.nat64_prefix.iter().map(|prefix| prefix.0).collect();
        NeverLeased::new(self.cluster_domain()).and_networks(&networks).translated_by(&prefixes)
    }
}

impl Loaded {
    pub(crate) fn read(input: &Input) -> Result<Self> {
        Self::from_paths(&input.paths, &input.settings)
    }

    pub(crate) fn from_paths<P: AsRef<Path>>(paths: &[P], settings: &Settings) -> Result<Self> {
        let cluster::Reading { lowered, findings } = cluster::read(paths, &settings.cluster())?;
        Ok(Self::compile(lowered, findings, settings))
    }

    /// `findings` are those of reading what was lowered.
    pub(crate) fn compile(lowered: cluster::Lowered, findings: Vec<Finding>, settings: &Settings) -> Self {
        let (program, compile_findings) = compile(&lowered.snapshot);
        let never_leased = settings.never_leased();
        let unread = Unread::of(findings.iter().chain(&lowered.findings));
        let mut loaded = Self {
            unread,
            snapshot: lowered.snapshot,
            program,
            leases: LeaseTable::default(),
            names: Names::new(),
            findings: [findings, lowered.findings, compile_findings].concat(),
            passed_over: lowered.passed_over,
            never_leased,
            cluster_domain: settings.cluster_domain(),
        };
        loaded.take_resolved(lowered.resolved);
        loaded
    }

    /// What DNSNameResolver objects have seen is leased as it is in a cluster: for every rule with a pattern of the name.
    fn take_resolved(&mut self, resolved: Vec<cluster::Resolved>) {
        for cluster::Resolved { name, address } in resolved {
            let known = self.names.entry(name.clone()).or_default();
            if !known.contains(&address) {
                known.push(address);
            }
            let learned = Learned { name, addresses: vec![address], expiry: FOREVER, asked_by: None };
            for (address, refusal) in self.never_leased.learn(&self.program, &learned, &mut self.leases) {
                output::note(&format!("DNSNameResolver: {} = {address}: {refusal}", learned.name));
            }
        }
    }

    /// Takes `--dns` answers; those that may not be leased are told on standard error.
    ///
    /// A pod that goes through an ExternalName Service asks for the Service's name, and rules are matched against that
    /// (S6.2): `alias` is the name it asks for, and the name whose answer it gets.
    pub(crate) fn learn(&mut self, answers: &[DnsAnswer], alias: Option<&(DomainName, DomainName)>) {
        for answer in answers {
            let known = self.names.entry(answer.name.clone()).or_default();
            known.extend(answer.addresses.iter().filter(|address| !known.contains(address)).collect::<Vec<_>>());
            let asked = alias.filter(|(_, target)| *target == answer.name).map_or(&answer.name, |(asked, _)| asked);
            let (name, addresses) = (asked.clone(), answer.addresses.clone());
            let learned = Learned { name, addresses, expiry: FOREVER, asked_by: None };
            for (address, refusal) in self.never_leased.learn(&self.program, &learned, &mut self.leases) {
                output::note(&format!("{} = {address}: {refusal}", answer.name));
            }
        }
    }

    /// Why an answer for the name never opens the address (S6.8).
    pub(crate) fn never_leased(&self, name: &DomainName, address: IpAddr) -> Option<String> {
        self.never_leased.refusal(&self.program, name, address).map(|refusal| refusal.to_string())
    }

    pub(crate) fn world(&self) -> World<'_> {
        World {
            snapshot: &self.snapshot,
            program: &self.program,
            leases: &self.leases,
            names: &self.names,
            cluster_domain: &self.cluster_domain,
            now: NOW,
        }
    }

    pub(crate) fn reach(&self) -> Reach<'_> {
        Reach { program: &self.program, leases: &self.leases, now: NOW }
    }

    pub(crate) fn matrix(&self) -> Matrix<'_> {
        Matrix::new(&self.snapshot, self.reach())
    }

    #[must_use]
    pub(crate) fn with(self, lenient: Lenient) -> Self {
        Self { unread: self.unread.with(lenient), ..self }
    }

    /// Prints on standard error what could not be read, and what else is wrong with the input.
    pub(crate) fn report_errors(&self) {
        self.unread.report();
        let others = self.findings.iter().filter(|f| f.severity == Severity::Error && !self.unread.has(f));
        for finding in others.take(5) {
            output::print_finding(&mut anstream::stderr(), finding).ok();
        }
    }
}
