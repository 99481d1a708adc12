//! The part of an agent without a loop: the data plane, the DNS server, and the
//! learner between them.

use crate::counters::Counters;
use crate::cuts::{CutConnection, CutReport, RecentCuts};
use crate::enforcer::{Enforcer, Next, Recheck};
use crate::error::with_causes;
use crate::history::LeaseRecord;
use crate::learner::{Learner, Learning};
use crate::metrics::{Meter, add};
use crate::name_rules::NameRules;
use crate::settle::{Settle, Settling};
use namewall_dataplane::netlink::bridges::Bridges;
use namewall_dataplane::nft::{Nft, NftError, Settings as NftSettings};
use namewall_dataplane::render::{Intercept, Listener, Scope};
use namewall_dataplane::{
    Applied, Count, Cut, CutEstablished, Dataplane, Guard, GuardDrops, Guarded, PodDenials, PodInterface, PodNamespace,
    SecondStatus, Tunnels,
};
use namewall_dns::{Left, Listen, Server, ServerError, Settings as ServerSettings, Sockets};
use namewall_policy::addr::Cidr;
use namewall_policy::lease::{Bounds, NeverLeased, Revision};
use namewall_policy::model::NodeId;
use namewall_policy::{Instant, Lease, LeaseTable, Program};
use namewall_runtime::{Clock, SystemClock};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::{info, warn};

/// How often the kernel is told that our DNS server lives, and how long it believes it: a death is
/// noticed within three seconds.
const BEAT_EVERY: Duration = Duration::from_millis(500);
const BEAT_LASTS: Duration = Duration::from_millis(2_500);
/// Expired leases are dropped after this many beats.
const TIDY_EVERY: u32 = 60;

#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// Which part of a Program this node enforces. `Node::serve` adds where DNS is taken to.
    pub scope: Scope,
    pub cut: CutEstablished,
    /// When it is decided what to cut.
    pub settle: Settle,
    /// How many leases are kept (S6.5).
    pub bounds: Bounds,
    pub learning: Learning,
    /// What no name opens (S6.8).
    pub never_leased: NeverLeased,
}

/// How DNS is served.
#[derive(Clone, Debug)]
pub struct DnsSettings {
    /// Where, and what of the rest is not said here.
    pub server: ServerSettings,
    /// The node's addresses that pods' questions are taken to, whichever server they are meant for;
    /// none if pods must ask us openly.
    pub take_to: Vec<IpAddr>,
    /// The first port for that; each server in `trusted` has one after it.
    pub first_port: u16,
    /// Servers that questions go to if they are meant for them; other questions go to the upstreams.
    pub trusted: Vec<SocketAddr>,
}

#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error(transparent)]
    Dataplane(Box<dyn Error + Send + Sync>),
    #[error(transparent)]
    Dns(#[from] ServerError),
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}

impl NodeError {
    pub(crate) fn dataplane(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Dataplane(Box::new(error))
    }
}

impl From<NftError> for NodeError {
    fn from(error: NftError) -> Self {
        Self::dataplane(error)
    }
}

#[derive(Debug)]
pub struct Node<D: Dataplane = Nft> {
    enforcer: Arc<Enforcer<D>>,
    learner: Arc<Learner<D>>,
    never_leased: NeverLeased,
    scope: Scope,
    /// The interfaces of this node's pods; None while they are not known.
    interfaces: Option<Vec<PodInterface>>,
    /// What the guard was last given; None if it has to be given again.
    guarding: Option<Guarding>,
    guarded: Guarded,
    /// Why the guard is not as it should be.
    guard_failure: Option<String>,
    /// The network namespaces of pods that can be reached.
    namespaces: Vec<PodNamespace>,
    second: Vec<SecondStatus>,
    repaired: u64,
    /// The pod whose tables were last found changed by others.
    last_repaired: Option<String>,
    cut: CutEstablished,
    program: Program,
    /// How to serve, and where, from the next change on.
    prepared: Option<(ServerSettings, Left)>,
    /// How the server that runs goes on, from the next change on.
    changed: Option<ServerSettings>,
    /// Whether a change may have forbidden connections that are not cut yet.
    settling: Settling,
    /// What is known of an earlier process, until the first change is in force.
    before: Option<Before>,
    recent_cuts: RecentCuts,
    server: Option<Arc<Server<Learner<D>>>>,
    beating: Option<Beating>,
}

/// What the guard was given.
#[derive(PartialEq, Eq, Debug)]
struct Guarding {
    interfaces: Vec<PodInterface>,
    /// The node's own addresses.
    own: Vec<IpAddr>,
}

/// What is known of the leases of an earlier process that have ended.
#[derive(Debug)]
enum Before {
    /// Nothing. While rules stay as they were, what they deny was opened by such a lease.
    Unknown,
    Known(Vec<LeaseRecord>),
}

/// The thread that says that we live.
#[derive(Debug)]
struct Beating {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Beating {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Node {
    /// Opens the kernel's side in the thread's network namespace. Changes nothing.
    pub fn open(nft: NftSettings, settings: NodeSettings) -> Result<Self, NodeError> {
        Ok(Self::new(Nft::open(nft)?, settings, Arc::new(SystemClock::start())))
    }

    /// The kernel's table, as it was made.
    pub fn table(&self) -> Option<namewall_dataplane::nft::table::Table> {
        self.enforcer.dataplane().table().cloned()
    }
}

impl<D: Dataplane> Node<D> {
    pub fn new(dataplane: D, settings: NodeSettings, clock: Arc<dyn Clock>) -> Self {
        let NodeSettings { scope, cut, settle, bounds, learning, never_leased } = settings;
        let enforcer = Arc::new(Enforcer::new(dataplane, bounds, clock));
        Self {
            learner: Arc::new(Learner::new(enforcer.clone(), learning)),
            enforcer,
            never_leased,
            scope,
            interfaces: None,
            guarding: None,
            guarded: Guarded::default(),
            guard_failure: None,
            namespaces: Vec::new(),
            second: Vec::new(),
            repaired: 0,
            last_repaired: None,
            cut,
            program: Program::default(),
            prepared: None,
            changed: None,
            settling: Settling::new(settle),
            before: Some(Before::Unknown),
            recent_cuts: RecentCuts::default(),
            server: None,
            beating: None,
        }
    }

    /// Blocks in which addresses without a pod are closed.
    pub(crate) fn closed(&self) -> &[Cidr] {
        &self.scope.closed
    }

    /// The tunnel endpoints that no pod may send to.
    pub(crate) fn tunnels(&self) -> &Tunnels {
        &self.scope.tunnels
    }

    /// Where questions are taken to.
    pub(crate) fn dns_ports(&self) -> Vec<SocketAddr> {
        let listeners = self.scope.dns.iter().flat_map(|intercept| &intercept.listeners);
        listeners.map(|listener| SocketAddr::new(listener.address, listener.port)).collect()
    }

    /// What of a Program is enforced from the next change on.
    pub fn scope_mut(&mut self) -> &mut Scope {
        &mut self.scope
    }

    /// Guards these interfaces, and no others, from the next change on. Until it is called, the guard that an earlier
    /// process has left stays as it is.
    pub fn set_interfaces(&mut self, interfaces: Vec<PodInterface>) {
        // What comes from these sources is a pod's, though they are no pod's addresses.
        let extra = interfaces.iter().flat_map(|interface| &interface.extra).map(|extra| extra.block);
        self.scope.extra = extra.collect::<BTreeSet<Cidr>>().into_iter().collect();
        self.interfaces = Some(interfaces);
    }

    /// Says what an earlier process knew of its leases, before the first change.
    pub(crate) fn set_history(&mut self, records: Vec<LeaseRecord>) {
        self.before = Some(Before::Known(records));
    }

    /// What no name opens from the next change on. True if that is something else than before.
    pub fn set_never_leased(&mut self, never_leased: NeverLeased) -> bool {
        let is_new = self.never_leased != never_leased;
        self.never_leased = never_leased;
        is_new
    }

    /// Which connections a change cuts, and when that is decided.
    pub fn set_cut(&mut self, cut: CutEstablished, settle: Settle) {
        self.cut = cut;
        self.settling.settle = settle;
    }

    /// Guards the interfaces, if that is not done yet. A failure is no error: policies are enforced all the same, by
    /// address.
    fn guard(&mut self, program: &Program) {
        let Some(interfaces) = &self.interfaces else { return };
        let judged: Vec<_> = interfaces.iter().map(|one| one.clone().judged_by(program)).collect();
        let wanted = Guarding { interfaces: judged, own: self.own_addresses(program) };
        if self.guarding.as_ref() == Some(&wanted) && self.guarded.missing.is_empty() {
            return;
        }
        let guard = Guard { interfaces: &wanted.interfaces, own: &wanted.own, log_group: self.scope.log_group };
        let guarded = self.enforcer.dataplane().guard(&guard);
        let failure = guarded.as_ref().err().map(|error| with_causes(error));
        if let Some(error) = failure.as_ref().filter(|_| failure != self.guard_failure) {
            warn!(error, "cannot guard the interfaces of pods; policies are enforced by address");
        }
        self.guard_failure = failure;
        let lacking = guarded.as_ref().map(|guarded| guarded.lacking.clone()).unwrap_or_default();
        lacking.iter().filter(|what| !self.guarded.lacking.contains(what)).for_each(|what| warn!("{what}"));
        self.guarding = guarded.is_ok().then_some(wanted);
        self.guarded = guarded.unwrap_or_default();
    }

    /// The addresses of this node; of all nodes, if it is not known which of them this one is.
    fn own_addresses(&self, program: &Program) -> Vec<IpAddr> {
        let is_own = |node: NodeId| self.scope.node.is_none_or(|own| own == node);
        let nodes = program.whereabouts.nodes.iter().enumerate().filter(|(at, _)| is_own(NodeId(*at as u32)));
        let mut own: Vec<IpAddr> = nodes.flat_map(|(_, addresses)| addresses).copied().collect();
        own.sort_unstable();
        own.dedup();
        own
    }

    /// Makes bridges of pods pass their frames through the firewall again, where somebody has changed that.
    pub(crate) fn filter_bridges(&mut self) {
        if self.guarding.is_none() {
            return;
        }
        match self.enforcer.dataplane().filter_bridges() {
            Ok(Bridges { changed, unfiltered }) => {
                for bridge in changed {
                    warn!(bridge, "frames of the bridge did not pass the firewall any more; they do again");
                }
                self.guarded.bridges.unfiltered = unfiltered;
            }
            Err(error) => {
                warn!(error = with_causes(&error), "cannot look whether frames of bridges pass the firewall");
            }
        }
    }

    /// True if the guard is not as it should be: it failed, or an interface does not exist yet.
    pub fn lacks_guards(&self) -> bool {
        self.guard_failure.is_some() || !self.guarded.missing.is_empty()
    }

    /// Enforces pods' policies inside these network namespaces, from the next change on.
    pub fn set_namespaces(&mut self, namespaces: Vec<PodNamespace>) {
        self.namespaces = namespaces;
    }

    /// What became of pods' second interfaces.
    pub fn second(&self) -> &[SecondStatus] {
        &self.second
    }

    /// True if a pod's network namespace has changed, so that `enforce_inside` should be called.
    pub fn has_news_inside(&self, looks_at_tables: bool) -> bool {
        self.enforcer.dataplane().has_news_inside(looks_at_tables)
    }

    /// Enforces the Program in force on pods' second interfaces. What fails is a part of the status.
    pub fn enforce_inside(&mut self) {
        let interfaces = self.interfaces.as_deref().unwrap_or_default();
        for pod in &mut self.namespaces {
            let is_own = |one: &&PodInterface| one.addresses.iter().any(|address| pod.addresses.contains(address));
            pod.extra = interfaces.iter().find(is_own).map(|one| one.extra.clone()).unwrap_or_default();
        }
        let second = self.enforcer.inside(&self.namespaces, &self.program, &self.scope);
        let mut is_in_doubt = false;
        for status in &second {
            let before = self.second.iter().find(|before| before.id == status.id);
            log_second(status, before);
            let repaired = status.repaired.saturating_sub(before.map_or(0, |before| before.repaired));
            if repaired > 0 {
                self.repaired += repaired;
                self.last_repaired = Some(status.pod.clone());
            }
            // Connections may have been opened that no policy allows: while tables were changed, while they could not be
            // made right, or while no process ran.
            let was_left = self.namespaces.iter().any(|pod| pod.id == status.id && pod.has_table);
            let had_failed = before.is_some_and(|before| before.failure.is_some()) && status.failure.is_none();
            is_in_doubt |= repaired > 0 || had_failed || (before.is_none() && was_left);
        }
        self.second = second;
        if is_in_doubt {
            self.settling.changed(true, self.now());
        }
    }

    /// What is known of changes to tables inside pods' network namespaces, for the next process.
    pub fn seen_inside(&self) -> BTreeMap<String, u32> {
        self.enforcer.dataplane().seen_inside()
    }

    /// Denials on second interfaces of pods that nobody has taken yet.
    pub fn take_denials_inside(&self) -> Vec<PodDenials> {
        if self.second.is_empty() { Vec::new() } else { self.enforcer.dataplane().take_denials_inside() }
    }

    /// The pod in whose network namespace tables were last found changed by others.
    pub fn last_repaired(&self) -> Option<&str> {
        self.last_repaired.as_deref()
    }

    /// How often tables inside pods' network namespaces were found changed by others, and made right.
    pub fn repaired_inside(&self) -> u64 {
        self.repaired
    }

    /// Tries once more what the guard lacks.
    pub fn guard_again(&mut self) {
        let program = self.program.clone();
        self.guard(&program);
    }

    /// Enforces a Program. DNS that is prepared begins to be served. `settle` cuts what the Program forbids; where a
    /// change counts as settled at once, or an earlier attempt to cut has failed, it is done here.
    pub fn enforce(&mut self, program: &Program) -> Result<(Applied, Cut), NodeError> {
        // Before a pod's address opens anything: from then on the address stands for the pod.
        self.guard(program);
        // Names are learned for the rules once those are enforced: a lease before its rule would open nothing.
        let before = self.learner.rules();
        let rules = NameRules::new(before.as_deref(), self.scope.node, program, &self.never_leased);
        let rules = Arc::new(rules);
        let recalled = self.learner.recall(&rules, before.as_deref());
        let next = Next {
            program,
            scope: &self.scope,
            revision: Revision { before: before.as_ref().map(|before| before.of_leases()), next: rules.of_leases() },
            recalled: &recalled.leases,
            longest: self.learner.settings().lifetimes.longest(),
        };
        let applied = self.enforcer.replace(&next, || self.learner.take(rules.clone()));
        let applied = applied.map_err(NodeError::dataplane)?;
        self.learner.note_revoked(&applied.revoked);
        // What was answered meanwhile, by the rules before. A failure means that it opens with the next lookup.
        let _ = self.learner.recall_since(recalled.until);
        self.program = program.clone();
        self.enforce_inside();
        // What this process finds again after a failure, it knows.
        match self.before.take() {
            Some(Before::Known(records)) => self.learner.inherit(records, &rules),
            Some(Before::Unknown) if applied.adopted.is_some() && !applied.narrows_adopted => {
                let recheck = Recheck { program, scope: &self.scope, cut: self.cut };
                self.enforcer.excuse(recheck).map_err(NodeError::dataplane)?;
            }
            Some(Before::Unknown) | None => {}
        }
        if applied.narrows || applied.operations > 0 {
            self.settling.changed(applied.narrows, self.now());
        }
        self.begin()?;
        if self.server.is_some() {
            beat(&self.enforcer).map_err(NodeError::dataplane)?;
        }
        // In all other cases callers learn first that the change is enforced: a list of connections takes 9 ms or more.
        let cut = match self.settling.has_failed() {
            true => self.cut_forbidden()?.cut,
            false if self.settling.is_at_once() => self.settle()?.unwrap_or_default(),
            false => Cut::default(),
        };
        Ok((applied, cut))
    }

    /// Cuts what the Program in force forbids (S3.4), if the policies have settled and nobody has done so since.
    pub fn settle(&mut self) -> Result<Option<Cut>, NodeError> {
        match self.settling.is_due(self.now()) {
            true => self.cut_forbidden().map(|report| Some(report.cut)),
            false => Ok(None),
        }
    }

    fn cut_forbidden(&mut self) -> Result<CutReport, NodeError> {
        let recheck = Recheck { program: &self.program, scope: &self.scope, cut: self.cut };
        let done = self.enforcer.recheck(recheck);
        self.settling.ended(done.is_ok());
        let report = done.map_err(NodeError::dataplane)?;
        report.log();
        self.recent_cuts.add(&report, self.now());
        self.learner.tidy_origins();
        add(&self.meter().cut, report.cut.connections);
        add(&self.meter().cuts_forgotten, report.cut.forgotten);
        Ok(report)
    }

    /// How many cut connections were forgotten to make room for others.
    pub fn forgotten_cuts(&self) -> u64 {
        crate::metrics::read(&self.meter().cuts_forgotten)
    }

    /// The connections that were cut last, the last one first.
    pub fn recent_cuts(&self) -> Vec<CutConnection> {
        self.recent_cuts.all()
    }

    /// Serves DNS from the next change on, at sockets of its own, and takes pods' questions to it.
    pub fn serve(&mut self, settings: DnsSettings) -> Result<(), NodeError> {
        self.serve_at(settings, Left::default())
    }

    /// Serves DNS from the next change on; where an earlier server has left its sockets, at those. Then the questions
    /// that it has left are asked again.
    pub fn serve_at(&mut self, settings: DnsSettings, left: Left) -> Result<(), NodeError> {
        let Left { sockets: mut left, questions } = left;
        let (mut sockets, mut listeners) = (Vec::new(), Vec::new());
        let mut bind = |listen: Listen| -> Result<SocketAddr, ServerError> {
            let failed = |source| ServerError::Listen { address: listen.address, source };
            let same = left.iter().position(|(_, known)| *known == listen);
            let bound = match same {
                Some(at) => left.swap_remove(at).0,
                None => Sockets::bind(listen.address).map_err(failed)?,
            };
            let address = bound.udp.local_addr().map_err(failed)?;
            sockets.push((bound, listen));
            Ok(address)
        };
        for &listen in &settings.server.listen {
            bind(listen)?;
        }
        for &address in &settings.take_to {
            let servers = settings.trusted.iter().filter(|server| server.is_ipv4() == address.is_ipv4());
            for (port, meant) in (settings.first_port..).zip(std::iter::once(None).chain(servers.map(Some))) {
                let listen = Listen { address: (address, port).into(), meant: meant.copied(), is_open: false };
                let bound = bind(listen)?;
                listeners.push(Listener { address, port: bound.port(), server: meant.map(SocketAddr::ip) });
            }
        }
        let servers = asked(&settings.server, &settings.trusted);
        self.scope.dns = (!listeners.is_empty()).then_some(Intercept { listeners, servers });
        self.prepared = Some((settings.server, Left { sockets, questions }));
        Ok(())
    }

    /// Asks other servers from the next change on: until then the kernel does not know who answers for them, and
    /// would take their own questions to us. Where it listens stays.
    pub fn ask(&mut self, settings: ServerSettings, trusted: &[SocketAddr]) {
        if let Some(intercept) = &mut self.scope.dns {
            intercept.servers = asked(&settings, trusted);
        }
        self.changed = Some(settings);
    }

    /// Begins to serve what was prepared. Questions that already wait in the sockets must be served only after the
    /// Program is in force: before that no client is known, and nothing is learned.
    fn begin(&mut self) -> Result<(), NodeError> {
        if let (Some(settings), Some(server)) = (self.changed.take(), &self.server) {
            server.set(&settings);
        }
        self.prepared.take().map_or(Ok(()), |(settings, left)| self.resume(settings, left))
    }

    /// Serves at the sockets that an earlier server has left, or that are new, and asks the questions that are left.
    pub(crate) fn resume(&mut self, settings: ServerSettings, left: Left) -> Result<(), NodeError> {
        let Left { sockets, questions } = left;
        let server = Arc::new(Server::start_with(settings, sockets, self.learner.clone())?);
        let no_room = server.take_over(&questions);
        if no_room > 0 {
            warn!(questions = no_room, "questions of the earlier process have no room; their clients ask again");
        }
        self.keep_beating(server.clone())?;
        self.server = Some(server);
        Ok(())
    }

    /// Stops serving. Without a server of ours pods' DNS goes its usual way, at once.
    pub fn stop_serving(&mut self) -> Result<(), NodeError> {
        self.prepared = None;
        self.beating = None;
        let mut dataplane = self.enforcer.dataplane();
        if dataplane.intercepts_dns() {
            dataplane.stop_beating().map_err(NodeError::dataplane)?;
        }
        drop(dataplane);
        self.server = None;
        Ok(())
    }

    /// Stops serving for another that takes over: DNS goes on being taken to these sockets. What is under way has so
    /// long to be answered.
    pub fn retire(&mut self, patience: Duration) -> Left {
        self.beating = None;
        let server = self.server.take().and_then(Arc::into_inner);
        let left = server.map(|server| server.retire(patience)).unwrap_or_default();
        // The kernel believes this for as long as the other one needs to begin. If it does not, DNS goes its usual way.
        let _ = beat(&self.enforcer);
        left
    }

    /// Starts the thread that tells the kernel that the server is alive.
    fn keep_beating(&mut self, server: Arc<Server<Learner<D>>>) -> Result<(), NodeError> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, enforcer) = (is_over.clone(), self.enforcer.clone());
        let go_on = move || {
            // The turns of each loop at the last beat.
            let (mut seen, mut beats) = (Vec::new(), 0_u32);
            while !over.load(Ordering::SeqCst) {
                let turns = server.turns();
                // A server that is stuck must not look alive, not even if it is only one of its loops.
                if !turns.iter().zip(&seen).any(|(now, before)| now == before) {
                    // Tried again with the next beat. If it never succeeds, DNS goes its usual way.
                    seen = beat(&enforcer).map_or_else(|_| Vec::new(), |()| turns);
                }
                beats += 1;
                if beats % TIDY_EVERY == 0 {
                    // A failure only means that expired leases stay until the next time.
                    let _ = enforcer.tidy();
                }
                std::thread::park_timeout(BEAT_EVERY);
            }
        };
        let thread = std::thread::Builder::new().name("heartbeat".to_owned()).spawn(go_on);
        self.beating = Some(Beating { is_over, thread: Some(thread.map_err(NodeError::Thread)?) });
        Ok(())
    }

    /// The server that is used openly, and pods' questions are taken to.
    pub fn dns(&self) -> Option<&Server<Learner<D>>> {
        self.server.as_deref()
    }

    pub fn learner(&self) -> &Arc<Learner<D>> {
        &self.learner
    }

    pub fn counters(&self) -> Counters {
        self.learner.counters()
    }

    pub(crate) fn meter(&self) -> &Arc<Meter> {
        self.enforcer.meter()
    }

    pub fn now(&self) -> Instant {
        self.enforcer.now()
    }

    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Does something with the leases. Nothing is learned meanwhile.
    pub fn with_leases<T>(&self, with: impl FnOnce(&LeaseTable) -> T) -> T {
        with(self.enforcer.leases().table())
    }

    /// Opens leases; returns when they are in force.
    pub fn grant(&self, leases: &[Lease]) -> Result<(), NodeError> {
        self.enforcer.grant_first(leases).map_err(NodeError::dataplane)
    }

    /// True if the enforced scope takes pods' DNS to our server.
    pub fn intercepts_dns(&self) -> bool {
        self.enforcer.dataplane().intercepts_dns()
    }

    /// Follows packets that the kernel denies, as far as rules log them.
    pub fn denials(&self, log_group: u16) -> Result<D::Denials, NodeError> {
        self.enforcer.dataplane().denials(log_group).map_err(NodeError::dataplane)
    }

    /// How many interfaces are guarded.
    pub fn guards(&self) -> usize {
        if self.guarded.by_address_alone {
            return 0;
        }
        let is_guarded = |one: &&PodInterface| !one.is_shared && !self.guarded.missing.contains(&one.name);
        self.guarding.iter().flat_map(|guarding| &guarding.interfaces).filter(is_guarded).count()
    }

    /// Why the guard is not as it should be; it is tried again with every change.
    pub fn guard_failure(&self) -> Option<&str> {
        self.guard_failure.as_deref()
    }

    /// What the last change found of the interfaces that are guarded.
    pub fn guarded(&self) -> &Guarded {
        &self.guarded
    }

    /// What the guard has dropped, in all.
    pub fn guard_drops(&self) -> Result<GuardDrops, NodeError> {
        self.enforcer.dataplane().guard_drops().map_err(NodeError::dataplane)
    }

    pub fn counts(&self) -> Result<BTreeMap<String, Count>, NodeError> {
        self.enforcer.dataplane().counts().map_err(NodeError::dataplane)
    }
}

/// Logs what is new about a pod's second interfaces.
fn log_second(status: &SecondStatus, before: Option<&SecondStatus>) {
    let SecondStatus { pod, interfaces, failure, repaired, unlogged, .. } = status;
    if *repaired > before.map_or(0, |before| before.repaired) {
        warn!(pod, "somebody changed namewall's tables inside the pod's network namespace; they were made right");
    }
    if let Some(error) = failure.as_ref().filter(|_| before.is_none_or(|before| before.failure != *failure)) {
        warn!(pod, error, "cannot enforce policies on the pod's second interfaces");
    }
    if let Some(error) = unlogged.as_ref().filter(|_| before.is_none_or(|before| before.unlogged != *unlogged)) {
        warn!(pod, error, "denials on the pod's second interfaces are not logged");
    }
    if !interfaces.is_empty() && before.is_none_or(|before| before.interfaces != *interfaces) {
        info!(pod, interfaces = interfaces.join(", "), "policies are enforced on second interfaces");
    }
}

/// Tells the data plane that our DNS server is alive, if pods' DNS is taken to it.
fn beat<D: Dataplane>(enforcer: &Enforcer<D>) -> Result<(), D::Error> {
    let mut dataplane = enforcer.dataplane();
    if dataplane.intercepts_dns() { dataplane.beat(BEAT_LASTS) } else { Ok(()) }
}

/// The servers that ours asks.
fn asked(settings: &ServerSettings, trusted: &[SocketAddr]) -> Vec<IpAddr> {
    settings.upstreams.iter().chain(trusted).map(SocketAddr::ip).collect()
}
