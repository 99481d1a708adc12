//! Clients over TLS and HTTPS. Threads of their own have the connections: handshakes, encryption and HTTP take time that
//! the loops, which serve everybody else, must not lose. A question goes to the mailbox of its loop and is judged, cached
//! and answered as any other.
//!
//! `clients` bounds connections, `slot` what is under way over one, `tls` and `https` are the protocols, `desk` is where
//! answers come back, `upstream` asks others over HTTPS.

mod clients;
mod counters;
mod desk;
mod https;
mod slot;
mod tls;
pub(super) mod upstream;

pub use counters::EncryptedCounters;
pub(super) use desk::Desk;

use super::crew::{Crew, Origin, Passed};
use super::lock;
use super::settings::{Settings, plain};
use crate::chain::Transport;
use clients::{Clients, MostConnections, Newcomer, Place};
use desk::ReplyTo;
use rustls::ServerConfig;
use slot::Activity;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long no connection is accepted after one could not be, for want of file descriptors for example.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// An address where clients come in over TLS or HTTPS.
#[derive(Clone, Debug)]
pub struct EncryptedListen {
    pub address: SocketAddr,
    /// [`Transport::Tls`] or [`Transport::Https`].
    pub transport: Transport,
    /// The certificate, and who may connect.
    pub config: Arc<ServerConfig>,
}

/// Sockets that are ready to accept encrypted connections: to serve them cannot fail.
#[derive(Debug)]
pub struct NewEncryptedSockets(Vec<NewSocket>);

#[derive(Debug)]
struct NewSocket {
    address: SocketAddr,
    socket: TcpListener,
    threads: Handle,
}

impl NewEncryptedSockets {
    pub(super) fn new(sockets: Vec<StdListener>, threads: &EncryptedThreads) -> io::Result<Self> {
        let ready = |socket: StdListener| {
            let (address, threads) = (socket.local_addr()?, threads.handle()?);
            socket.set_nonblocking(true)?;
            let _inside = threads.enter();
            let socket = TcpListener::from_std(socket)?;
            Ok(NewSocket { address, socket, threads: threads.clone() })
        };
        sockets.into_iter().map(ready).collect::<io::Result<_>>().map(Self)
    }
}

/// The threads of encrypted connections. They start when they are first needed.
#[derive(Debug, Default)]
pub(super) struct EncryptedThreads {
    runtime: Mutex<Option<Runtime>>,
}

impl EncryptedThreads {
    pub(super) fn handle(&self) -> io::Result<Handle> {
        let mut runtime = lock(&self.runtime);
        if let Some(runtime) = &*runtime {
            return Ok(runtime.handle().clone());
        }
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(Settings::usual_loops()).thread_name("dns-encrypted").enable_io().enable_time();
        Ok(runtime.insert(builder.build()?).handle().clone())
    }

    /// Ends the threads, and what they have under way.
    pub(super) fn stop(&self) {
        if let Some(runtime) = lock(&self.runtime).take() {
            runtime.shutdown_background();
        }
    }
}

/// Serves clients over TLS and HTTPS.
#[derive(Debug)]
pub(super) struct Encrypted {
    listening: Vec<Listening>,
    shared: Arc<Shared>,
}

/// A socket that accepts connections.
#[derive(Debug)]
struct Listening {
    at: Arc<ListeningAt>,
    accepting: AbortHandle,
}

#[derive(Debug)]
struct ListeningAt {
    address: SocketAddr,
    served: Mutex<Served>,
}

/// What is served at an address; connections keep what they began with.
#[derive(Clone, Debug)]
struct Served {
    transport: Transport,
    config: Arc<ServerConfig>,
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    crew: Crew,
    clients: Arc<Clients>,
    limits: Mutex<Limits>,
    under_way: Arc<AtomicUsize>,
    counters: Arc<EncryptedCounters>,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    most: MostConnections,
    idle_timeout: Duration,
}

impl Limits {
    fn of(settings: &Settings) -> Self {
        let most = MostConnections {
            all: settings.most_encrypted_connections,
            of_client: settings.most_connections_of_client,
        };
        Self { most, idle_timeout: settings.idle_timeout }
    }
}

/// One connection of a client.
#[derive(Debug)]
struct Connected {
    /// Where it came in.
    at: SocketAddr,
    transport: Transport,
    from: SocketAddr,
    activity: Arc<Activity>,
    shared: Arc<Shared>,
}

/// Whether a question is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Submitted {
    Waits,
    NoRoom,
}

impl Encrypted {
    pub(super) fn new(crew: Crew, settings: &Settings) -> Self {
        let shared = Shared {
            crew,
            clients: Arc::default(),
            limits: Mutex::new(Limits::of(settings)),
            under_way: Arc::default(),
            counters: Arc::default(),
        };
        Self { listening: Vec::new(), shared: Arc::new(shared) }
    }

    pub(super) fn counters(&self) -> &Arc<EncryptedCounters> {
        &self.shared.counters
    }

    pub(super) fn set_limits(&self, settings: &Settings) {
        *lock(&self.shared.limits) = Limits::of(settings);
    }

    /// Serves these addresses and no others. One that was served before keeps its socket and its connections, and
    /// shows the certificate of now to who connects from now on. Sockets are given for those that are new.
    pub(super) fn serve(
        &mut self,
        listen: Vec<EncryptedListen>,
        NewEncryptedSockets(mut sockets): NewEncryptedSockets,
    ) {
        let mut before = std::mem::take(&mut self.listening);
        for EncryptedListen { address, transport, config } in listen {
            let (is_same, served) = (|one: &Listening| one.at.address == address, Served { transport, config });
            if let Some(known) = before.iter().position(is_same).map(|at| before.swap_remove(at)) {
                *lock(&known.at.served) = served;
                self.listening.push(known);
                continue;
            }
            let Some(at) = sockets.iter().position(|one| one.address == address) else { continue };
            let NewSocket { socket, threads, .. } = sockets.swap_remove(at);
            let at = Arc::new(ListeningAt { address, served: Mutex::new(served) });
            let accepting = threads.spawn(accept(socket, at.clone(), self.shared.clone())).abort_handle();
            self.listening.push(Listening { at, accepting });
        }
        before.iter().for_each(|gone| gone.accepting.abort());
    }

    /// Accepts no more connections.
    pub(super) fn retire(&mut self) {
        self.listening.drain(..).for_each(|one| one.accepting.abort());
    }

    /// True if no answer is still to be written.
    pub(super) fn is_at_rest(&self) -> bool {
        self.shared.under_way.load(Ordering::SeqCst) == 0
    }

    /// Connections that are open.
    pub(super) fn connections(&self) -> usize {
        self.shared.clients.len()
    }
}

impl Drop for Encrypted {
    fn drop(&mut self) {
        self.retire();
        self.shared.clients.end_all();
    }
}

impl Connected {
    fn idle(&self) -> Duration {
        lock(&self.shared.limits).idle_timeout
    }

    /// Puts a question into the mailbox of its loop.
    fn submit(&self, query: &[u8], reply_to: ReplyTo) -> Submitted {
        let crew = &self.shared.crew;
        let number = crew.desk().wait(reply_to);
        let origin = Some(Origin { number, transport: self.transport });
        if crew.submit(&Passed { at: self.at, from: self.from, query, origin }) {
            return Submitted::Waits;
        }
        crew.desk().close(number);
        self.shared.counters.questions_refused.add();
        Submitted::NoRoom
    }
}

async fn accept(listener: TcpListener, at: Arc<ListeningAt>, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let activity = Arc::new(Activity::new(shared.under_way.clone()));
                let limits = *lock(&shared.limits);
                let newcomer = Newcomer { client: plain(from), activity: activity.clone() };
                let place = shared.clients.enter(newcomer, limits.most, &shared.counters);
                let Some(place) = place else {
                    shared.counters.refused.add();
                    continue;
                };
                shared.counters.connections.add();
                let (Served { transport, config }, shared) = (lock(&at.served).clone(), shared.clone());
                let connected = Connected { at: at.address, transport, from, activity, shared };
                start(serve(stream, config, Arc::new(connected)), place);
            }
            Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
        }
    }
}

/// Starts the task of a connection, which has its place until it ends.
fn start(connection: impl Future<Output = ()> + Send + 'static, place: Place) {
    let place = Arc::new(place);
    let held = place.clone();
    let task = tokio::spawn(async move {
        let _place = held;
        connection.await;
    });
    place.belongs_to(task.abort_handle());
}

async fn serve(stream: TcpStream, config: Arc<ServerConfig>, connected: Arc<Connected>) {
    let _ = stream.set_nodelay(true);
    let accepted = timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream)).await;
    let Ok(Ok(stream)) = accepted else {
        connected.shared.counters.handshakes_failed.add();
        return;
    };
    connected.activity.touch();
    match connected.transport {
        Transport::Https => https::serve(stream, connected).await,
        _ => tls::serve(stream, connected).await,
    }
}
