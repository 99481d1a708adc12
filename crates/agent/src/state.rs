//! The state of a running agent, which the loop changes and the control socket
//! reads.

use crate::addresses::OwnAddresses;
use crate::config::{Config, ConfigError, FixedSettings, ThisNode, host_name};
use crate::denials::Denials;
use crate::error::AgentError;
use crate::history::LeaseRecord;
use crate::identity::{AllowedSource, Here, Interfaces, allow};
use crate::node::{DnsSettings, Node, NodeSettings};
use crate::retry::Retry;
use crate::source::StorageStatus;
use crate::tunnels::OwnTunnels;
use namewall_cluster::{Key, Read};
use namewall_dataplane::render::Scope;
use namewall_dataplane::{Applied, Dataplane, PodDenials};
use namewall_dns::Left;
use namewall_kubernetes::{Publisher, Trouble};
use namewall_policy::addr::Cidr;
use namewall_policy::domain::DomainName;
use namewall_policy::{Finding, Instant, Program, Severity, Snapshot, compile, compile_next};
use namewall_runtime::Clock;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tracing::{error, warn};

/// How often it is looked whether somebody has changed tables inside pods' network namespaces.
const LOOK_INSIDE_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct State<D: Dataplane> {
    pub(crate) node: Node<D>,
    pub(crate) node_name: Option<String>,
    pub(crate) snapshot: Snapshot,
    /// The interfaces of this node's pods.
    pub(crate) interfaces: Interfaces,
    /// Sources that the settings allow certain pods, and those of the settings that are refused.
    pub(crate) allowed_sources: Vec<AllowedSource>,
    pub(crate) refused_sources: Vec<String>,
    /// Where this machine takes packets out of other packets.
    tunnels: OwnTunnels,
    /// When to try again what the guard lacks.
    guard_retry: Retry,
    /// When it was last looked whether somebody has changed tables inside pods' network namespaces.
    namespaces_looked_at: Instant,
    pub(crate) dns: DnsSettings,
    /// The servers that have listeners of their own, since the start.
    listened_for: Vec<SocketAddr>,
    /// Settings that count from the start of a process, as this one found them.
    fixed: FixedSettings,
    /// The names of those that have changed since.
    pub(crate) at_next_start: Vec<&'static str>,
    pub(crate) cluster_domain: DomainName,
    pub(crate) findings: Vec<Finding>,
    /// Pods that have an address of this machine, so that nothing is enforced for them.
    pub(crate) not_enforced: Vec<String>,
    /// Files and objects that are wrong, and whose last good version is in force.
    pub(crate) kept: Vec<Arc<str>>,
    /// Why the last change failed.
    pub(crate) last_error: Option<String>,
    /// What keeps the API server from being watched.
    pub(crate) trouble: Vec<Trouble>,
    pub(crate) dns_service: Option<Key>,
    /// The messages about names that could not be resolved.
    pub(crate) unresolved: Vec<String>,
    /// What became of the stored objects.
    pub(crate) storage: StorageStatus,
    /// Publishes what is learned here.
    pub(crate) publisher: Option<Arc<Publisher>>,
    pub(crate) started: Instant,
    pub(crate) changes: u64,
    pub(crate) denials: Arc<Denials>,
}

/// What a change did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    /// Whether policies changed, and not only pods.
    pub(crate) has_new_rules: bool,
    pub(crate) applied: Applied,
}

/// What follows from settings that were read again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reconfigured {
    /// The upstreams or the trusted servers are others: the kernel has to be told with the next change.
    pub(crate) has_new_upstreams: bool,
    /// Pods may send from other addresses than before: the guard has to be told with the next change.
    pub(crate) has_new_sources: bool,
    /// Other addresses are never leased: the next change closes the leases of those.
    pub(crate) has_new_never_leased: bool,
}

pub(crate) fn lock<D: Dataplane>(state: &Mutex<State<D>>) -> MutexGuard<'_, State<D>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What an agent starts with.
#[derive(Debug)]
pub(crate) struct Beginning<'a, D> {
    pub(crate) dataplane: D,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) read: Read,
    pub(crate) own: &'a mut OwnAddresses,
    pub(crate) interfaces: Interfaces,
    /// What another agent has handed over.
    pub(crate) left: Left,
    /// What an earlier process knew of its leases.
    pub(crate) history: Option<Vec<LeaseRecord>>,
    pub(crate) closed: Vec<Cidr>,
    pub(crate) cluster_dns: &'a [SocketAddr],
    pub(crate) cluster_domain: DomainName,
}

impl<D: Dataplane> State<D> {
    /// Puts what was read into the kernel, and serves DNS.
    pub(crate) fn start(config: &Config, beginning: Beginning<'_, D>) -> Result<Self, AgentError> {
        let Beginning { dataplane, clock, read, own, mut interfaces, left, closed, cluster_dns, .. } = beginning;
        let (history, cluster_domain) = (beginning.history, beginning.cluster_domain);
        let Read { lowered, mut findings, kept } = read;
        let mut snapshot = lowered.snapshot;
        // Before our own addresses are added: DNS is served at one that the Node lists.
        let this = ThisNode::find(&snapshot, config.node.as_deref())?;
        let own_name = this.as_ref().map_or_else(host_name, |this| this.name.clone());
        own.add_to(&mut snapshot, &own_name);
        let began = clock.now();
        let (program, more) = compile(&snapshot);
        let compiled = clock.now().since(began);
        findings.extend(more);
        let not_enforced = note_pods_at(own, &Compiled { snapshot: &snapshot, program: &program }, &mut findings);
        findings.extend(own.finding(&own_name));
        let (node_name, addresses) = this.map(|this| (this.name, this.addresses)).unzip();
        let dns = config.dns.settings(&addresses.unwrap_or_default(), cluster_dns)?;
        let scope = Scope {
            node: node_name.as_deref().and_then(|name| snapshot.node_named(name)),
            log_group: config.log_group,
            closed,
            ..Scope::default()
        };
        let Config { cut, settle, bounds, learning, .. } = *config;
        let never_leased = config.never_leased(&cluster_domain);
        let settings = NodeSettings { scope, cut, settle, bounds, learning, never_leased };
        let started = clock.now();
        let mut node = Node::new(dataplane, settings, clock);
        node.meter().compiled.add(compiled);
        history.into_iter().for_each(|records| node.set_history(records));
        node.serve_at(dns.clone(), left)?;
        let here = Here { program: &program, node: node.scope_mut().node };
        interfaces.follow(&here, own.machine(), started);
        let mut all = interfaces.all();
        let refused_sources = allow(&config.allowed_sources, &mut all, &snapshot, &here);
        log_refused(&refused_sources, &[]);
        node.set_interfaces(all);
        let mut tunnels = OwnTunnels::default();
        tunnels.follow(own.machine(), true, started);
        node.scope_mut().tunnels = tunnels.all();
        interfaces.reach_more();
        node.set_namespaces(interfaces.namespaces());
        node.enforce(&program)?;
        interfaces.enforced_inside(node.second());
        let mut guard_retry = Retry::default();
        guard_retry.ended(!node.lacks_guards(), started);
        Ok(Self {
            node,
            node_name,
            snapshot,
            interfaces,
            allowed_sources: config.allowed_sources.clone(),
            refused_sources,
            tunnels,
            guard_retry,
            namespaces_looked_at: started,
            listened_for: dns.trusted.clone(),
            dns,
            fixed: config.fixed.clone(),
            at_next_start: Vec::new(),
            cluster_domain,
            findings,
            not_enforced,
            kept,
            last_error: None,
            trouble: Vec::new(),
            dns_service: None,
            unresolved: Vec::new(),
            storage: StorageStatus::default(),
            publisher: None,
            started,
            changes: 0,
            denials: Arc::default(),
        })
    }

    /// Enforces what was read. On an error, what was in force stays in force.
    pub(crate) fn enforce(&mut self, read: Read, own: &mut OwnAddresses) -> Result<Change, AgentError> {
        let Read { lowered, mut findings, kept } = read;
        let mut snapshot = lowered.snapshot;
        // Checked first, since a failed change is tried again and again, and to compile a cluster takes long.
        let node = self.node_name.as_deref().and_then(|name| snapshot.node_named(name));
        if let (Some(name), None) = (&self.node_name, node) {
            return Err(AgentError::NodeGone(name.clone()));
        }
        let own_name = self.node_name.clone().unwrap_or_else(host_name);
        own.add_to(&mut snapshot, &own_name);
        let began = self.node.now();
        let (program, more) = match &self.last_error {
            None => compile_next(&self.snapshot, self.node.program(), &snapshot),
            // A failed change may be in force in part. Then the Program is not the Snapshot's.
            Some(_) => compile(&snapshot),
        };
        self.node.meter().compiled.add(self.node.now().since(began));
        findings.extend(more);
        let not_enforced = note_pods_at(own, &Compiled { snapshot: &snapshot, program: &program }, &mut findings);
        findings.extend(own.finding(&own_name));
        self.log_new(&findings, &kept);
        self.node.scope_mut().node = node;
        let here = Here { program: &program, node };
        self.interfaces.follow(&here, own.machine(), self.node.now());
        let mut all = self.interfaces.all();
        let refused = allow(&self.allowed_sources, &mut all, &snapshot, &here);
        log_refused(&refused, &self.refused_sources);
        self.refused_sources = refused;
        self.node.set_interfaces(all);
        self.node.scope_mut().tunnels = self.tunnels.all();
        self.node.set_namespaces(self.interfaces.namespaces());
        let has_new_rules = !Arc::ptr_eq(&program.policies, &self.node.program().policies);
        let enforced = self.node.enforce(&program);
        self.guard_retry.ended(!self.node.lacks_guards(), self.node.now());
        let (applied, _) = enforced?;
        self.interfaces.enforced_inside(self.node.second());
        (self.snapshot, self.findings, self.kept) = (snapshot, findings, kept);
        self.not_enforced = not_enforced;
        self.changes += 1;
        Ok(Change { has_new_rules, applied })
    }

    /// True if there is an interface that the guard does not have. What the guard lacks otherwise is tried again: at
    /// once if links have changed, and else less and less often.
    pub(crate) fn follow_interfaces(&mut self, own: &mut OwnAddresses) -> bool {
        let (node, now) = (self.node.scope_mut().node, self.node.now());
        let here = Here { program: self.node.program(), node };
        let is_new = self.interfaces.follow(&here, own.machine(), now);
        if self.interfaces.has_new_links() {
            self.node.filter_bridges();
        }
        let is_time = self.interfaces.has_new_links() || self.guard_retry.is_due(now);
        if !is_new && is_time && self.node.lacks_guards() {
            self.node.guard_again();
            self.guard_retry.ended(!self.node.lacks_guards(), now);
        }
        is_new
    }

    /// True if this machine has other tunnel endpoints than those that are closed to pods. After `follow_interfaces`,
    /// which hears of links.
    pub(crate) fn follow_tunnels(&mut self, own: &mut OwnAddresses) -> bool {
        let (has_new_links, now) = (self.interfaces.has_new_links(), self.node.now());
        self.tunnels.follow(own.machine(), has_new_links, now)
    }

    /// Keeps what is enforced inside pods' network namespaces as it should be: interfaces come and go there, and a pod
    /// with rights of its own may change tables.
    pub(crate) fn follow_namespaces(&mut self) {
        let has_more = self.interfaces.reach_more();
        if has_more {
            self.node.set_namespaces(self.interfaces.namespaces());
        }
        let now = self.node.now();
        let is_due = now.since(self.namespaces_looked_at) >= LOOK_INSIDE_EVERY;
        if is_due {
            self.namespaces_looked_at = now;
            for PodDenials { pod, told } in self.node.take_denials_inside() {
                self.denials.take(told, Some(&pod));
            }
        }
        if has_more || self.node.has_news_inside(is_due) {
            self.node.enforce_inside();
            self.interfaces.enforced_inside(self.node.second());
        }
        if is_due {
            self.store_seen();
        }
    }

    /// Stores by which changes inside pods the next process tells those of others.
    pub(crate) fn store_seen(&mut self) {
        self.interfaces.store_seen(self.node.seen_inside());
    }

    /// The pods of this node whose network namespaces are not reached, so that no policy judges their second interfaces:
    /// pods from before the CNI plugin, and those of which nobody has passed sockets. Where no pod was attached and no
    /// node is known, there is no CNI plugin, and none is listed.
    pub(crate) fn unreached_pods(&self) -> Vec<String> {
        let node = self.node_name.as_deref().and_then(|name| self.snapshot.node_named(name));
        if node.is_none() && self.node.second().is_empty() && self.interfaces.unreached() == 0 {
            return Vec::new();
        }
        let here = Here { program: self.node.program(), node };
        let pods = here.workloads().map(|pod| self.snapshot.workload_name(pod));
        let mut names: BTreeSet<String> = pods.collect();
        for pod in self.node.second() {
            names.remove(&pod.pod);
        }
        names.into_iter().collect()
    }

    /// The warning to users about tables that somebody changed inside a pod's network namespace.
    pub(crate) fn tampering(&self) -> Option<String> {
        let (pod, times) = (self.node.last_repaired()?, self.node.repaired_inside());
        Some(format!("{times} times since the agent started, last in pod {pod}"))
    }

    /// Takes the settings that can change while the agent runs.
    pub(crate) fn reconfigure(
        &mut self,
        config: &Config,
        cluster_dns: &[SocketAddr],
    ) -> Result<Reconfigured, ConfigError> {
        let dns = config.dns.settings(&self.dns.take_to, cluster_dns)?;
        self.node.learner().set(config.learning);
        self.node.set_cut(config.cut, config.settle);
        let has_new_never_leased = self.node.set_never_leased(config.never_leased(&self.cluster_domain));
        let mut server = dns.server;
        // They have listeners, and are not asked any more: what is meant for them goes to the upstreams.
        server.distrusted = self.listened_for.iter().filter(|one| !dns.trusted.contains(one)).copied().collect();
        let changed = (&server.upstreams, &dns.trusted) != (&self.dns.server.upstreams, &self.dns.trusted);
        if changed {
            self.node.ask(server.clone(), &dns.trusted);
        } else if let Some(running) = self.node.dns() {
            running.set(&server);
        }
        // A server that is trusted from now on has no listener of its own until the next start.
        let unheard = |one: &SocketAddr| !self.listened_for.contains(one) && !server.upstreams.contains(one);
        let unheard = dns.trusted.iter().any(unheard).then_some("trust");
        self.at_next_start = self.fixed.changed(&config.fixed).chain(unheard).collect();
        (self.dns.server, self.dns.trusted) = (server, dns.trusted);
        let has_new_upstreams = changed;
        let has_new_sources = self.allowed_sources != config.allowed_sources;
        self.allowed_sources.clone_from(&config.allowed_sources);
        Ok(Reconfigured { has_new_upstreams, has_new_sources, has_new_never_leased })
    }

    /// Logs all findings.
    pub(crate) fn log_findings(&self) {
        log(self.findings.iter(), self.kept.iter());
    }

    /// Logs the findings that were not there before.
    fn log_new(&self, findings: &[Finding], kept: &[Arc<str>]) {
        let new = findings.iter().filter(|finding| !self.findings.contains(finding));
        log(new, kept.iter().filter(|file| !self.kept.contains(file)));
    }
}

struct Compiled<'a> {
    snapshot: &'a Snapshot,
    program: &'a Program,
}

/// Finds the pods that have an address of this machine. Their packets are the machine's own, which no hook judges.
fn note_pods_at(own: &OwnAddresses, compiled: &Compiled<'_>, findings: &mut Vec<Finding>) -> Vec<String> {
    let mut names = Vec::new();
    for address in own.all().into_iter().filter(|address| own.has(*address)) {
        let Some(pod) = compiled.program.pod_at(address) else { continue };
        let name = compiled.snapshot.workload_name(pod);
        let object = format!("Pod {name}");
        let message = format!(
            "{address} is an address of this machine itself: nothing is enforced for the pod. Remove it if it is gone, \
             or set hostNetwork if it is on the machine's network"
        );
        // That the Node has the address too is the same thing once more.
        findings.retain(|finding| finding.code != "shared-address" || finding.object != object);
        let source = compiled.snapshot.workload(pod).source.clone();
        findings.push(Finding::error("not-enforced", object, message).at("status.podIP").from_source(source));
        names.push(name);
    }
    names
}

/// Logs the settings that are refused and were not before.
fn log_refused(refused: &[String], before: &[String]) {
    refused.iter().filter(|text| !before.contains(text)).for_each(|text| warn!("{text}"));
}

/// Warnings about how this process is set up. Those about policies are for `namewall check`.
const LOGGED_WARNINGS: [&str; 2] = ["no-pod-network", "state-lost"];

fn log<'a>(findings: impl Iterator<Item = &'a Finding>, kept: impl Iterator<Item = &'a Arc<str>>) {
    for finding in findings {
        let Finding { severity, code, object, path, message, source } = finding;
        let at = source.as_ref().map(|source| format!("{}:{}:{}", source.file, source.line, source.column));
        match severity {
            Severity::Error => error!(code, object, path, at, "{message}"),
            Severity::Warning if LOGGED_WARNINGS.contains(code) => warn!(code, object, path, at, "{message}"),
            _ => {}
        }
    }
    for file in kept {
        warn!(file = &**file, "the file has an error; its last good version stays in force");
    }
}
