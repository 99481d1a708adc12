//! A node of a cluster, or a machine by itself.

use crate::clock::Clock;
use crate::counters::Counters;
use crate::law::Law;
use crate::learner::{Learner, Learning};
use namewall_dataplane::conntrack::Conntrack;
use namewall_dataplane::nft::{Count, Nft, NftError, Settings as NftSettings};
use namewall_dataplane::render::{Intercept, Listener};
use namewall_dataplane::{Applied, Cut, Dataplane};
use namewall_dns::{Listen, Server, ServerError, Settings as ServerSettings, Sockets};
use namewall_policy::domain::DomainName;
use namewall_policy::{Instant, LeaseTable, Program};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the kernel is told that our DNS server lives, and how long it believes it: a death is
/// noticed within three seconds.
const BEAT_EVERY: Duration = Duration::from_millis(500);
const BEAT_LASTS: Duration = Duration::from_millis(2_500);
/// Connections that are judged before answers get their turn.
const CUT_AT_ONCE: usize = 256;
/// How often leases that have ended are looked through.
const TIDY_EVERY: u32 = 60;

#[derive(Clone, Debug)]
pub struct NodeSettings {
    pub nft: NftSettings,
    pub learning: Learning,
    /// Only names under it may lead to pods (S6.8).
    pub cluster_domain: DomainName,
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
    Kernel(#[from] NftError),
    #[error(transparent)]
    Dns(#[from] ServerError),
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}

#[derive(Debug)]
pub struct Node {
    learner: Arc<Learner>,
    cluster_domain: DomainName,
    program: Program,
    /// How to serve, and where, from the next change on.
    prepared: Option<(ServerSettings, Vec<(Sockets, Listen)>)>,
    /// How the server that runs goes on, from the next change on.
    changed: Option<ServerSettings>,
    /// A change forbids more than the one before it, and what it forbids is not all cut yet.
    owes_cut: bool,
    server: Option<Arc<Server<Learner>>>,
    beating: Option<Beating>,
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
    pub fn open(settings: NodeSettings) -> Result<Self, NodeError> {
        let kernel = Arc::new(Mutex::new(Nft::open(settings.nft)?));
        let learner = Arc::new(Learner::new(kernel, Clock::start(), settings.learning));
        let program = Program::default();
        Ok(Self {
            learner,
            cluster_domain: settings.cluster_domain,
            program,
            prepared: None,
            changed: None,
            owes_cut: false,
            server: None,
            beating: None,
        })
    }

    /// Enforces what is meant now, and cuts what it forbids (S3.4). DNS that is prepared begins to be served.
    pub fn enforce(&mut self, program: &Program) -> Result<(Applied, Cut), NodeError> {
        let mut kernel = self.learner.kernel();
        let applied = kernel.replace(program, self.learner.now())?;
        // The kernel has it: who tries again finds nothing that narrows.
        self.owes_cut |= applied.narrows;
        // Learned for only when it is enforced: a lease before its rule would open nothing.
        let node = kernel.settings_mut().scope.node;
        let law = Law::new(self.learner.law().as_deref(), node, program, &self.cluster_domain);
        self.learner.take(law);
        drop(kernel);
        self.program = program.clone();
        self.begin()?;
        let mut kernel = self.learner.kernel();
        if self.server.is_some() && kernel.takes_dns() {
            kernel.beat(BEAT_LASTS)?;
        }
        drop(kernel);
        let cut = if self.owes_cut { self.cut(program)? } else { Cut::default() };
        self.owes_cut = false;
        Ok((applied, cut))
    }

    /// A few connections at a time: answers wait for the kernel too.
    fn cut(&self, program: &Program) -> Result<Cut, NodeError> {
        let listed = Conntrack::open().and_then(|mut conntrack| conntrack.list());
        let connections = listed.map_err(NftError::Connections)?;
        let (mut cut, mut failed) = (Cut::default(), None);
        for some in connections.chunks(CUT_AT_ONCE) {
            // One that cannot be cut must not save the others.
            match self.learner.kernel().cut_among(program, some) {
                Ok(more) => cut += more,
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let connected: FxHashSet<IpAddr> = connections.iter().map(|connection| connection.destination.0).collect();
        self.learner.kernel().forget(self.learner.now(), &connected);
        failed.map_or(Ok(cut), |error| Err(error.into()))
    }

    /// Serves DNS from the next change on, at sockets of its own, and takes pods' questions to it.
    pub fn serve(&mut self, settings: DnsSettings) -> Result<(), NodeError> {
        self.serve_at(settings, Vec::new())
    }

    /// Serves DNS from the next change on; where an earlier server has left its sockets, at those.
    pub fn serve_at(&mut self, settings: DnsSettings, mut left: Vec<(Sockets, Listen)>) -> Result<(), NodeError> {
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
        self.learner.kernel().settings_mut().scope.dns =
            (!listeners.is_empty()).then_some(Intercept { listeners, servers });
        self.prepared = Some((settings.server, sockets));
        Ok(())
    }

    /// Asks other servers from the next change on: until then the kernel does not know who answers for them, and
    /// would take their own questions to us. Where it listens stays.
    pub fn ask(&mut self, settings: ServerSettings, trusted: &[SocketAddr]) {
        if let Some(intercept) = &mut self.learner.kernel().settings_mut().scope.dns {
            intercept.servers = asked(&settings, trusted);
        }
        self.changed = Some(settings);
    }

    /// Begins to serve what was prepared. What waits in the sockets already must find the law in force: before
    /// it, nobody would be known, and nothing learned.
    fn begin(&mut self) -> Result<(), NodeError> {
        if let (Some(settings), Some(server)) = (self.changed.take(), &self.server) {
            server.set(settings);
        }
        let Some((settings, sockets)) = self.prepared.take() else { return Ok(()) };
        let server = Arc::new(Server::start_with(settings, sockets, self.learner.clone())?);
        self.beat(server.clone())?;
        self.server = Some(server);
        Ok(())
    }

    /// Stops serving. Without a server of ours pods' DNS goes its usual way, at once.
    pub fn stop_serving(&mut self) -> Result<(), NodeError> {
        self.prepared = None;
        self.beating = None;
        let mut kernel = self.learner.kernel();
        if kernel.takes_dns() {
            kernel.stop_beating()?;
        }
        drop(kernel);
        self.server = None;
        Ok(())
    }

    /// Stops serving for another that takes over: DNS goes on being taken to these sockets.
    pub fn retire(&mut self) -> Vec<(Sockets, Listen)> {
        self.beating = None;
        let server = self.server.take().and_then(Arc::into_inner);
        server.map(Server::retire).unwrap_or_default()
    }

    fn beat(&mut self, server: Arc<Server<Learner>>) -> Result<(), NodeError> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, learner) = (is_over.clone(), self.learner.clone());
        let beat = move || {
            let (mut seen, mut beats) = (None, 0_u32);
            while !over.load(Ordering::SeqCst) {
                let turns = server.turns();
                // A server that does nothing any more must not look alive.
                if seen.replace(turns) != Some(turns) {
                    let mut kernel = learner.kernel();
                    if kernel.takes_dns() && kernel.beat(BEAT_LASTS).is_err() {
                        // Told again the next time; should it never be, DNS goes its usual way.
                        seen = None;
                    }
                }
                beats += 1;
                if beats % TIDY_EVERY == 0 {
                    tidy(&learner);
                }
                std::thread::park_timeout(BEAT_EVERY);
            }
        };
        let thread = std::thread::Builder::new().name("heartbeat".to_owned()).spawn(beat);
        self.beating = Some(Beating { is_over, thread: Some(thread.map_err(NodeError::Thread)?) });
        Ok(())
    }

    /// The server that is used openly, and pods' questions are taken to.
    pub fn dns(&self) -> Option<&Server<Learner>> {
        self.server.as_deref()
    }

    pub fn learner(&self) -> &Learner {
        &self.learner
    }

    pub fn counters(&self) -> Counters {
        self.learner.counters()
    }

    pub fn now(&self) -> Instant {
        self.learner.now()
    }

    pub fn program(&self) -> &Program {
        &self.program
    }

    /// What is open by name.
    pub fn leases(&self) -> LeaseTable {
        self.learner.kernel().leases().clone()
    }

    pub fn counts(&self) -> Result<BTreeMap<String, Count>, NodeError> {
        Ok(self.learner.kernel().counts()?)
    }

    /// Does something with the kernel's side of it.
    pub fn with_kernel<T>(&self, with: impl FnOnce(&mut Nft) -> T) -> T {
        with(&mut self.learner.kernel())
    }
}

/// Whom the server asks.
fn asked(settings: &ServerSettings, trusted: &[SocketAddr]) -> Vec<IpAddr> {
    settings.upstreams.iter().chain(trusted).map(SocketAddr::ip).collect()
}

/// Forgets leases that have ended, but for addresses some connection still leads to.
fn tidy(learner: &Learner) {
    // Read while nobody waits for the kernel's table.
    let Ok(connections) = Conntrack::open().and_then(|mut conntrack| conntrack.list()) else { return };
    let connected: FxHashSet<IpAddr> = connections.iter().map(|connection| connection.destination.0).collect();
    learner.kernel().forget(learner.now(), &connected);
}
