//! The loop of a node: waits for changes, enforces them, learns from other
//! nodes, and hands over to the next agent or ends.

use crate::addresses::{Machine, OwnAddresses};
use crate::config::{Config, ThisNode};
use crate::control::{Control, Explain, Running};
use crate::denials;
use crate::error::{AgentError, with_causes};
use crate::history::{self, Keeper};
use crate::hold::Hold;
use crate::identity::{Attachments, Interfaces, SeenChanges};
use crate::learner::{Refused, StoredLeases};
use crate::metrics::NodeMetrics;
use crate::node::NodeError;
use crate::renewal::{Renewal, Renewals, Renewing};
use crate::retry::Retry;
use crate::share::Heard;
use crate::sharing::{LearnedElsewhere, Publishing};
use crate::signals::Signals;
use crate::source::{Event, Source, StorageStatus};
use crate::state::{Beginning, Change, State, lock};
use crate::takeover::{Successor, take_over};
use crate::upstreams::SilentUpstreams;
use namewall_cluster::Read;
use namewall_cni::Records;
use namewall_dataplane::Dataplane;
use namewall_dns::Left;
use namewall_dns::lookup::Lookups;
use namewall_kubernetes::NodeTopic;
use namewall_policy::Finding;
use namewall_policy::domain::DomainName;
use namewall_runtime::Clock;
use namewall_telemetry::{Export, Health};
use std::error::Error;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tracing::{info, warn};

/// Users get an Event about a failure that lasts this long. A shorter failure ends with the next attempt.
const WARN_AFTER: Duration = Duration::from_secs(3);

/// How long questions that are under way have when another agent takes over. New questions wait for as long; what is not
/// answered by then is handed over.
const PATIENCE: Duration = Duration::from_millis(100);

/// So many names that could not be resolved are in the status.
const MOST_UNRESOLVED: usize = 100;

/// Reads the settings, at the start and whenever a signal asks for it.
pub type ReadConfig<'a> = Box<dyn Fn() -> Result<Config, Box<dyn Error + Send + Sync>> + 'a>;

/// Opens a data plane with the settings of an agent.
pub type OpenDataplane<'a, D> = Box<dyn FnOnce(&Config) -> Result<D, <D as Dataplane>::Error> + 'a>;

/// What an agent is started with.
#[expect(missing_debug_implementations, reason = "it holds functions")]
pub struct Start<'a, S, D: Dataplane> {
    pub source: S,
    /// Opens the data plane, once the settings are read. It changes nothing yet.
    pub open: OpenDataplane<'a, D>,
    pub clock: Arc<dyn Clock>,
    /// Says which addresses are this machine's own.
    pub machine: Box<dyn Machine>,
    pub read_config: ReadConfig<'a>,
    pub cluster_domain: DomainName,
    /// Where the control socket is.
    pub control: PathBuf,
    /// Where the CNI plugin keeps its records.
    pub records: PathBuf,
    /// The file in which leases and their origins are stored. None: they are not stored.
    pub history: Option<PathBuf>,
    /// Whether to take over from an agent that runs.
    pub take_over: bool,
    pub explain: Box<Explain>,
    /// Told that the loop turns, and that the agent is ready.
    pub health: Health,
    /// Looks names up while nobody publishes them.
    pub lookups: Box<dyn Lookups>,
    /// May end a start that has to wait.
    pub signals: &'a dyn Signals,
}

/// Why an agent ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    Stopped,
    /// Another agent has taken over.
    Replaced,
}

#[expect(missing_debug_implementations, reason = "it holds functions")]
pub struct Agent<'a, S, D: Dataplane> {
    source: S,
    read_config: ReadConfig<'a>,
    control: PathBuf,
    state: Arc<Mutex<State<D>>>,
    successor: Arc<Mutex<Option<Successor>>>,
    attachments: Arc<Attachments>,
    /// Where the cluster's DNS Service answers.
    cluster_dns: Vec<SocketAddr>,
    elsewhere: LearnedElsewhere,
    renewals: Renewals,
    own: OwnAddresses,
    retry: Retry,
    silent_upstreams: SilentUpstreams,
    /// The file in which leases are stored.
    history: Option<PathBuf>,
    /// Why names cannot be shared now, as it was logged.
    blocked: Option<String>,
    /// Stores what is known of leases.
    keeper: Option<Keeper>,
    clock: Arc<dyn Clock>,
    health: Health,
}

impl<'a, S: Source, D: Dataplane> Agent<'a, S, D> {
    /// Enforces what the source has, serves DNS and answers at the control socket.
    pub fn start(start: Start<'a, S, D>) -> Result<Self, AgentError> {
        let Start { mut source, open, clock, machine, read_config, cluster_domain, control, explain, health, .. } =
            start;
        let mut opening = Opening { open: Some(open), dataplane: None };
        let config = read_config().map_err(AgentError::Settings)?;
        // The runtime's word is beside the records.
        let sandboxes = start.records.with_file_name(namewall_cni::sandboxes::FILE);
        let attachments = Arc::new(Attachments::load(&Records::new(start.records)));
        let interfaces = Interfaces::new(attachments.clone(), sandboxes);
        source.attach(&attachments.take().unwrap_or_default());
        source.waker().into_iter().for_each(|wake| attachments.set_wake(wake));
        let mut own = OwnAddresses::new(machine);
        own.follow(clock.now());
        let wait = Wait { control: &control, signals: start.signals, health: &health };
        let mut read = read_all(&mut source, &mut || opening.open(&config), &wait)?;
        let left = match (Running::find(&control), start.take_over) {
            (Ok(_), true) => take_over(&control)?,
            (Ok(_), false) => return Err(AgentError::RunsAlready),
            (Err(_), _) => Left::default(),
        };
        // An earlier process has stored its leases by now, and what it has seen inside pods.
        let history = start.history.as_deref().and_then(history::load);
        let interfaces = interfaces.with_seen(SeenChanges::load(start.history.as_deref()));
        let this = ThisNode::find(&read.lowered.snapshot, config.node.as_deref()).ok().flatten();
        let name = this.as_ref().map(|this| this.name.as_str());
        let closed = source.pod_blocks(name);
        read.findings.extend(source.about_pod_network(name, &read.lowered.snapshot));
        let cluster_dns = source.dns_servers();
        let storage = source.storage();
        source.keep();
        let started = opening.open(&config).and_then(|is_enforced| {
            read.findings.extend(about_state(&storage, is_enforced));
            opening.dataplane.take().ok_or(AgentError::Ended)
        });
        let started = started.and_then(|dataplane| {
            let (cluster_dns, own, interfaces) = (&cluster_dns, &mut own, interfaces);
            let clock = clock.clone();
            State::start(
                &config,
                Beginning {
                    dataplane,
                    clock,
                    read,
                    own,
                    interfaces,
                    left,
                    history,
                    closed,
                    cluster_dns,
                    cluster_domain,
                },
            )
        });
        let state = started.inspect_err(|error| {
            if let Some(node) = &config.node {
                source.warn_users(node, NodeTopic::Enforcement, Some(&with_causes(error)));
            }
        })?;
        source.enforced();
        attachments.enforced(&source.attached());
        let keeper = keeper(start.history.as_deref(), &state);
        let state = Arc::new(Mutex::new(state));
        let successor = Arc::default();
        let (told, attached) = (Arc::clone(&successor), attachments.clone());
        serve_control(&control, Control { state: state.clone(), explain, successor: told, attachments: attached })?;
        let (mut elsewhere, retry) = (LearnedElsewhere::new(clock.clone()), Retry::default());
        elsewhere.set_maximum(config.learning.lifetimes.maximum);
        let mut agent = Self {
            source,
            read_config,
            control,
            state,
            successor,
            attachments,
            cluster_dns,
            elsewhere,
            renewals: Renewals::new(start.lookups),
            own,
            retry,
            silent_upstreams: SilentUpstreams::default(),
            history: start.history,
            blocked: None,
            keeper,
            clock,
            health,
        };
        lock(&agent.state).storage = agent.source.storage();
        agent.adopt_names();
        agent.log_start();
        let state = lock(&agent.state);
        denials::follow(state.node.denials(config.log_group)?, &state.denials)?;
        drop(state);
        agent.publish_learned();
        // The other nodes know this one's addresses before pods are sent here.
        agent.publish();
        Ok(agent)
    }

    /// What this node exports; the source has metrics of its own.
    pub fn metrics(&self) -> Arc<dyn Export> {
        Arc::new(NodeMetrics(self.state.clone()))
    }

    /// Goes on until a signal ends it, or another agent takes over.
    pub fn run(mut self, signals: &dyn Signals) -> Result<Ended, AgentError> {
        loop {
            self.health.turn();
            let has_changed = match self.source.next(signals) {
                Event::Stop => break,
                Event::Reload => self.reread_config(),
                Event::Changed => {
                    self.follow_cluster_dns();
                    true
                }
                Event::Names(changed) => {
                    let heard = self.elsewhere.take(changed);
                    self.open(&heard);
                    false
                }
                Event::Nothing => false,
            };
            let has_new_addresses = self.own.follow(self.clock.now());
            let has_new_interfaces = lock(&self.state).follow_interfaces(&mut self.own);
            let has_new_tunnels = lock(&self.state).follow_tunnels(&mut self.own);
            lock(&self.state).follow_namespaces();
            let has_new_links = has_new_addresses || has_new_interfaces || has_new_tunnels;
            let has_changed = has_changed || has_new_links || self.attachments.has_changed();
            if has_changed || self.retry.is_due(self.clock.now()) {
                self.change();
            }
            self.settle();
            self.renew();
            self.report();
            if self.hand_over()? {
                return Ok(Ended::Replaced);
            }
        }
        std::fs::remove_file(&self.control).ok();
        let mut state = lock(&self.state);
        state.node.stop_serving()?;
        state.store_seen();
        drop(state);
        info!("ended; the rules in the kernel stay in force (`namewall uninstall` removes them)");
        Ok(Ended::Stopped)
    }

    fn log_start(&self) {
        let state = lock(&self.state);
        state.log_findings();
        let node = state.node_name.as_deref().unwrap_or("this machine");
        let (policies, pods) = (state.snapshot.policies.len(), state.snapshot.pod_count());
        let dns = state.node.dns().map_or(&[][..], |server| server.addresses());
        let dns = dns.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        info!(node, policies, pods, dns, "running");
    }

    /// From now on what is learned here is published, if the source has somewhere to publish it.
    fn publish_learned(&self) {
        if let Some(publisher) = self.source.publisher().map(Arc::new) {
            let mut state = lock(&self.state);
            state.publisher = Some(publisher.clone());
            state.node.learner().share_with(Arc::new(Publishing::new(publisher)));
        }
    }

    /// Reads and enforces what is meant now. A failure is logged and tried again; what was in force stays so.
    fn change(&mut self) {
        let began = self.clock.now();
        if let Some(pods) = self.attachments.take() {
            self.source.attach(&pods);
        }
        let read = self.source.read();
        if read.is_ok() {
            self.source.keep();
        }
        let mut state = lock(&self.state);
        let name = state.node_name.clone();
        state.node.scope_mut().closed = self.source.pod_blocks(name.as_deref());
        let done = read.map_err(AgentError::from).and_then(|mut read| {
            read.findings.extend(self.source.about_pod_network(name.as_deref(), &read.lowered.snapshot));
            state.enforce(read, &mut self.own)
        });
        self.retry.ended(done.is_ok(), self.clock.now());
        state.node.meter().changed(done.is_ok());
        match done {
            Ok(change) => {
                self.source.enforced();
                self.attachments.enforced(&self.source.attached());
                state.last_error = None;
                if change.has_new_rules || !self.source.is_busy() {
                    log_change(&state, &change, self.clock.now().since(began));
                }
                let learner = state.node.learner().clone();
                drop(state);
                if change.has_new_rules {
                    self.elsewhere.forget_deleted(|name| learner.renews(name));
                    // A new rule may open what other nodes learned before it came.
                    let mut heard = self.elsewhere.unexpired();
                    heard.extend(self.renewals.unexpired(self.clock.now()));
                    self.open(&heard);
                }
            }
            Err(error) => {
                let text = format!("{}; what was in force stays so", with_causes(&error));
                self.attachments.failed(&text);
                if state.last_error.as_ref() != Some(&text) {
                    warn!("{text}");
                }
                state.last_error = Some(text);
            }
        }
    }

    /// Cuts what policies forbid once they have settled. A failure is tried again like a change that failed.
    fn settle(&mut self) {
        let mut state = lock(&self.state);
        let Err(error) = state.node.settle() else { return };
        self.retry.ended(false, self.clock.now());
        let text = format!("cannot cut the connections that policies forbid: {}", with_causes(&error));
        warn!("{text}");
        state.last_error = Some(text);
    }

    /// Opens what other nodes have learned.
    fn open(&self, heard: &[Heard]) {
        if let Err(error) = lock(&self.state).node.learner().hear(heard) {
            warn!(%error, "cannot open what other nodes have learned");
        }
    }

    /// While the API server is away, the names that an earlier process has opened stand for those that are published.
    fn adopt_names(&mut self) {
        let state = lock(&self.state);
        if state.storage.stands_in.is_some() {
            state.node.with_leases(|leases| self.elsewhere.adopt(leases.all()));
        }
    }

    /// Looks up the names that nobody publishes anew, and opens what was found.
    fn renew(&mut self) {
        let (servers, learner, is_blocked) = {
            let state = lock(&self.state);
            let is_blocked = state.publisher.as_ref().is_some_and(|publisher| publisher.blocked().is_some());
            (state.dns.server.upstreams.clone(), state.node.learner().clone(), is_blocked)
        };
        let renewing = Renewing { published: &self.elsewhere, servers, is_blocked, rules: &*learner };
        let Renewal { heard, kept, to_publish } = self.renewals.turn(&renewing);
        if !heard.is_empty() {
            self.open(&heard);
        }
        if let Err(error) = learner.keep(&kept) {
            warn!(%error, "cannot keep what rules deny by name");
        }
        learner.publish(&to_publish);
    }

    /// Whether the kernel has to be told.
    fn reread_config(&mut self) -> bool {
        let elsewhere = &mut self.elsewhere;
        let reconfigured = (self.read_config)().map_err(AgentError::Settings).and_then(|config| {
            let done = lock(&self.state).reconfigure(&config, &self.cluster_dns).map_err(AgentError::from)?;
            elsewhere.set_maximum(config.learning.lifetimes.maximum);
            Ok(done)
        });
        match reconfigured {
            Ok(done) => {
                let later = lock(&self.state).at_next_start.join(", ");
                if !later.is_empty() {
                    warn!("settings that have changed count from the next start on, and not yet: {later}");
                }
                info!("the settings were read again");
                done.has_new_upstreams || done.has_new_sources || done.has_new_never_leased
            }
            Err(error) => {
                warn!("{}; the settings stay as they were", with_causes(&error));
                false
            }
        }
    }

    /// Asks the cluster's DNS Service where it is now. While there is none, it is asked where it was: it may come
    /// back, and other servers do not know the cluster's names.
    fn follow_cluster_dns(&mut self) {
        let servers = self.source.dns_servers();
        if servers.is_empty() || servers == self.cluster_dns {
            return;
        }
        self.cluster_dns = servers;
        let reconfigured = (self.read_config)()
            .map_err(AgentError::Settings)
            .and_then(|config| lock(&self.state).reconfigure(&config, &self.cluster_dns).map_err(AgentError::from));
        match reconfigured {
            Ok(done) if done.has_new_upstreams => info!(servers = ?self.cluster_dns, "the cluster's DNS has moved"),
            Ok(_) => {}
            Err(error) => warn!("{}; the settings stay as they were", with_causes(&error)),
        }
    }

    /// Tells users and the log what happened since the last event.
    fn report(&mut self) {
        let is_lasting = self.retry.failing_for(self.clock.now()).is_some_and(|time| time >= WARN_AFTER);
        let (node, error, runtime, dns, tampering, sharing) = {
            let mut state = lock(&self.state);
            state.trouble = self.source.trouble();
            state.storage = self.source.storage();
            if state.storage.stands_in.is_none() {
                self.elsewhere.forget_adopted();
            }
            state.dns_service = self.source.dns_service();
            state.unresolved = self.elsewhere.unresolved().take(MOST_UNRESOLVED).cloned().collect();
            for Refused { client, name, address, why } in state.node.learner().take_refused() {
                warn!(%client, %name, %address, "an answer opens nothing: {why}");
            }
            let upstreams = state.node.dns().map(|server| server.upstreams()).unwrap_or_default();
            let silent = upstreams.iter().filter(|one| !one.is_up).map(|one| one.address).collect();
            self.silent_upstreams.set(silent, upstreams.len());
            let lasting = state.last_error.clone().filter(|_| is_lasting);
            let runtime = state.interfaces.sandboxes().and_then(|said| said.error.clone());
            let dns = state.findings.iter().find(|finding| finding.code == "no-dns-service");
            let dns = dns.map(|finding| finding.message.clone());
            let error = lasting.or_else(|| about_kept(&state.kept));
            let sharing = state.publisher.as_ref().and_then(|publisher| publisher.blocked());
            (state.node_name.clone(), error, runtime, dns, state.tampering(), sharing)
        };
        self.log_sharing(sharing.as_deref());
        self.publish();
        if let Some(node) = node {
            self.source.warn_users(&node, NodeTopic::Enforcement, error.as_deref());
            self.source.warn_users(&node, NodeTopic::Runtime, runtime.as_deref());
            self.source.warn_users(&node, NodeTopic::Dns, dns.as_deref());
            self.source.warn_users(&node, NodeTopic::Tampering, tampering.as_deref());
            self.source.warn_users(&node, NodeTopic::Sharing, sharing.as_deref());
        }
    }

    fn log_sharing(&mut self, blocked: Option<&str>) {
        match (self.blocked.is_some(), blocked) {
            (false, Some(why)) => warn!("names are not shared with other nodes: {why}"),
            (true, None) => info!("names are shared with other nodes again"),
            _ => {}
        }
        self.blocked = blocked.map(str::to_owned);
    }

    /// Tells the other nodes of this one, if the source can. Until they have its addresses it is not ready.
    fn publish(&mut self) {
        let node = lock(&self.state).node_name.clone();
        if node.is_none_or(|node| self.source.publish(&node, &self.own.all())) {
            self.health.set_ready(true);
        }
    }

    /// Whether another agent has taken over. If that one ends before it has everything, this one goes on.
    fn hand_over(&mut self) -> Result<bool, AgentError> {
        let Some(successor) = self.successor.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Ok(false);
        };
        if !successor.waits() {
            warn!("an agent that wanted to take over has ended");
            return Ok(false);
        }
        // The other one reads what is stored when it has the sockets. It is stored while questions are still answered:
        // what they open meanwhile is in the kernel.
        self.keeper = None;
        let left = {
            let mut state = lock(&self.state);
            state.store_seen();
            state.node.retire(PATIENCE)
        };
        if let Err(error) = successor.hand_over(&left) {
            warn!("{}; this agent goes on", with_causes(&error));
            let mut state = lock(&self.state);
            let settings = state.dns.server.clone();
            state.node.resume(settings, left)?;
            self.keeper = keeper(self.history.as_deref(), &state);
            return Ok(false);
        }
        std::fs::remove_file(&self.control).ok();
        info!(unanswered = left.questions.len(), "another agent has taken over");
        Ok(true)
    }
}

/// Starts to store what is known of leases, if there is a file for it.
fn keeper<D: Dataplane>(history: Option<&Path>, state: &State<D>) -> Option<Keeper> {
    Keeper::start(history?.to_owned(), StoredLeases(state.node.learner().clone()))
}

/// The text of the Event about objects whose last good version is in force.
fn about_kept(kept: &[Arc<str>]) -> Option<String> {
    let first = kept.first()?;
    let more = kept.len() - 1;
    let others = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!("{first}{others} cannot be read; the last good version is in force"))
}

/// A data plane that is opened when it is needed.
struct Opening<'a, D: Dataplane> {
    open: Option<OpenDataplane<'a, D>>,
    dataplane: Option<D>,
}

impl<D: Dataplane> Opening<'_, D> {
    fn open(&mut self, config: &Config) -> Result<bool, AgentError> {
        if let Some(open) = self.open.take() {
            self.dataplane = Some(open(config).map_err(NodeError::dataplane)?);
        }
        let Some(dataplane) = &mut self.dataplane else { return Ok(false) };
        dataplane.is_enforcing().map_err(|error| NodeError::dataplane(error).into())
    }
}

/// What there is to say about the state that an earlier process should have left.
fn about_state(storage: &StorageStatus, is_enforced: bool) -> Option<Finding> {
    match &storage.lost {
        Some(why) => Some(Finding::error("state-lost", "", why.clone())),
        None if is_enforced && storage.file.is_some() && !storage.is_adopted => {
            let message = "rules of an earlier process are in the kernel, and no objects of it are stored";
            Some(Finding::warning("state-lost", "", message))
        }
        None => None,
    }
}

/// What a start needs while it waits.
struct Wait<'a> {
    control: &'a Path,
    signals: &'a dyn Signals,
    health: &'a Health,
}

/// Reads all of a source. While something that was enforced before cannot be read, and nobody knows what it was, this
/// waits: the rules in the kernel stay as they are. `is_enforced` says whether there are any.
fn read_all(
    source: &mut impl Source,
    is_enforced: &mut dyn FnMut() -> Result<bool, AgentError>,
    wait: &Wait<'_>,
) -> Result<Read, AgentError> {
    let mut hold: Option<Hold> = None;
    loop {
        let (read, why) = match source.read() {
            Ok(read) => match source.gap() {
                None => return Ok(read),
                Some(gap) => (Ok(read), gap),
            },
            Err(error) => {
                let why = with_causes(&error);
                (Err(error), why)
            }
        };
        match &hold {
            Some(hold) => hold.set(&why),
            None if Running::find(wait.control).is_ok() => return Err(AgentError::Gap(why)),
            // Nothing was enforced before: what can be read is, and the rest is closed as far as it is known.
            None if !is_enforced()? => return Ok(read?),
            None => hold = Some(Hold::start(wait.control, &why)?),
        }
        wait.health.turn();
        let is_ended = matches!(source.next(wait.signals), Event::Stop);
        if is_ended || hold.as_ref().is_some_and(Hold::is_replaced) {
            return Err(AgentError::Ended);
        }
    }
}

/// Answers at the control socket, in a thread of its own.
fn serve_control<D: Dataplane>(path: &PathBuf, control: Control<D>) -> Result<(), AgentError> {
    std::fs::remove_file(path).ok();
    let listener = UnixListener::bind(path).map_err(|source| AgentError::Listen { path: path.clone(), source })?;
    let control = Arc::new(control);
    let serve = move || control.serve(&listener);
    thread::Builder::new().name("control".to_owned()).spawn(serve).map_err(AgentError::Thread)?;
    Ok(())
}

fn log_change<D: Dataplane>(state: &State<D>, change: &Change, took: Duration) {
    let (policies, pods) = (state.snapshot.policies.len(), state.snapshot.pod_count());
    let operations = change.applied.operations;
    let milliseconds = (took.as_secs_f64() * 1e4).round() / 10.0;
    info!(policies, pods, operations, milliseconds, "changed");
}

#[cfg(test)]
#[path = "agent/last_good/tests.rs"]
mod last_good_tests;
#[cfg(test)]
mod restart_tests;
#[cfg(test)]
mod takeover_tests;
#[cfg(test)]
mod tests;
