//! What is served over HTTP beside DNS: `health`, `ready` and `prometheus`. One thread serves all of
//! them; server blocks that name the same address share it. They outlive a Corefile: with the next one
//! addresses come and go, and those it cannot have leave everything as it was.
//!
//! `http` is what a connection says and hears.

mod http;

use super::build::BuildError;
use super::tell::Teller;
use http::{Connection, Reply};
use namewall_corefile::{Host, ListenAt, Place, ServerBlock};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Connections at a time. One more ends the oldest, which has had its time.
const MOST: usize = 64;

/// What is served where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    pub what: What,
    pub at: ListenAt,
    /// The server block that asks for it.
    pub place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// `/health`. DNS is served for so long after the process is told to end.
    Health { lameduck: Duration },
    /// `/ready`
    Ready,
    /// `/metrics`
    Metrics,
}

impl What {
    fn path(self) -> &'static str {
        match self {
            Self::Health { .. } => "/health",
            Self::Ready => "/ready",
            Self::Metrics => "/metrics",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Health { .. } => "health",
            Self::Ready => "ready",
            Self::Metrics => "prometheus",
        }
    }
}

/// Those of a server block.
pub(super) fn of_block(server: &ServerBlock) -> impl Iterator<Item = Endpoint> {
    let health = server.health.as_ref().map(|health| (What::Health { lameduck: health.lameduck }, &health.at));
    let ready = server.ready.as_ref().map(|at| (What::Ready, at));
    let metrics = server.prometheus.as_ref().map(|at| (What::Metrics, at));
    let all = [health, ready, metrics].into_iter().flatten();
    all.map(|(what, at)| Endpoint { what, at: at.clone(), place: server.place.clone() })
}

/// How long DNS is served on after the process is told to end.
pub fn lameduck(endpoints: &[Endpoint]) -> Duration {
    let each = endpoints.iter().filter_map(|endpoint| match endpoint.what {
        What::Health { lameduck } => Some(lameduck),
        What::Ready | What::Metrics => None,
    });
    each.max().unwrap_or_default()
}

/// All that are served. They end when this is dropped.
#[derive(Debug)]
pub struct Endpoints {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    teller: Arc<Teller>,
    listeners: Mutex<Vec<Arc<Listener>>>,
    is_ready: AtomicBool,
    is_over: AtomicBool,
    wake: EventFd,
}

#[derive(Debug)]
struct Listener {
    /// As it was asked for.
    wanted: SocketAddr,
    socket: Arc<TcpListener>,
    paths: Vec<&'static str>,
}

impl Endpoints {
    /// Nothing yet, and not ready.
    pub fn new(teller: Arc<Teller>) -> io::Result<Self> {
        let wake = EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        let (is_ready, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        let shared = Shared { teller, listeners: Mutex::default(), is_ready, is_over, wake };
        Ok(Self { shared: Arc::new(shared), thread: None })
    }

    /// Serves these and no others. If one cannot be, everything is as it was.
    pub fn set(&mut self, endpoints: &[Endpoint]) -> Result<(), BuildError> {
        let before = self.shared.listeners();
        let mut listeners: Vec<Listener> = Vec::new();
        for Endpoint { what, at, place } in endpoints {
            let error = |error: io::Error| {
                let host = at.host.as_ref().map_or_else(String::new, Host::to_string);
                let message = format!("{}: cannot listen at {host}:{}: {error}", what.word(), at.port);
                BuildError { place: place.clone(), message }
            };
            let wanted = address(at).map_err(error)?;
            if let Some(known) = listeners.iter_mut().find(|listener| listener.wanted == wanted) {
                known.paths.push(what.path());
                continue;
            }
            let socket = match before.iter().find(|listener| listener.wanted == wanted) {
                Some(known) => known.socket.clone(),
                None => Arc::new(listen(wanted).map_err(error)?),
            };
            listeners.push(Listener { wanted, socket, paths: vec![what.path()] });
        }
        if self.thread.is_none() && !listeners.is_empty() {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("http".to_owned()).spawn(move || shared.serve());
            let error = |error| BuildError { place: endpoints[0].place.clone(), message: format!("{error}") };
            self.thread = Some(thread.map_err(error)?);
        }
        let listeners = listeners.into_iter().map(Arc::new).collect();
        *self.shared.listeners.lock().unwrap_or_else(PoisonError::into_inner) = listeners;
        let _ = self.shared.wake.write(1);
        Ok(())
    }

    /// Says whether DNS is served, and goes on to be.
    pub fn set_ready(&self, is_ready: bool) {
        self.shared.is_ready.store(is_ready, Ordering::SeqCst);
    }

    /// Where they are, in the order in which they were asked for.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.shared.listeners().iter().filter_map(|listener| listener.socket.local_addr().ok()).collect()
    }
}

impl Drop for Endpoints {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        let _ = self.shared.wake.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One address is enough: of a name, IPv4 is tried first, as Go does.
fn address(at: &ListenAt) -> io::Result<SocketAddr> {
    match &at.host {
        None => Ok(SocketAddr::from((Ipv6Addr::UNSPECIFIED, at.port))),
        Some(Host::Address(address)) => Ok(SocketAddr::new(*address, at.port)),
        Some(Host::Name(name)) => {
            let mut all: Vec<SocketAddr> = (name.to_string(), at.port).to_socket_addrs()?.collect();
            all.sort_by_key(SocketAddr::is_ipv6);
            all.first().copied().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        }
    }
}

fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let any = at.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let socket = match TcpListener::bind(at) {
        // A machine without IPv6.
        Err(error) if any && error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, at.port()))
        }
        other => other,
    }?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

impl Shared {
    fn listeners(&self) -> Vec<Arc<Listener>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn serve(&self) {
        let mut open: Vec<(Connection, Arc<Listener>)> = Vec::new();
        while !self.is_over.load(Ordering::SeqCst) {
            let listeners = self.listeners();
            let (woken, ready) = self.wait(&listeners, &open);
            if woken {
                let _ = self.wake.read();
            }
            let (of_listeners, of_open) = ready.split_at(listeners.len());
            let now = Instant::now();
            let mut at = 0;
            open.retain_mut(|(connection, listener)| {
                let is_ready = of_open.get(at).copied().unwrap_or_default();
                at += 1;
                if is_ready {
                    connection.go_on(now, |path| self.reply(listener, path));
                }
                !connection.is_over(now)
            });
            for (listener, _) in listeners.iter().zip(of_listeners).filter(|(_, is_ready)| **is_ready) {
                for (stream, _) in std::iter::from_fn(|| listener.socket.accept().ok()).take(MOST) {
                    if open.len() >= MOST {
                        open.remove(0);
                    }
                    let connection = Connection::new(stream, now);
                    open.extend(connection.ok().map(|connection| (connection, listener.clone())));
                }
            }
        }
    }

    /// Waits until something can be done: whether we were woken, and for which listeners and connections.
    fn wait(&self, listeners: &[Arc<Listener>], open: &[(Connection, Arc<Listener>)]) -> (bool, Vec<bool>) {
        let mut polled = vec![PollFd::new(self.wake.as_fd(), PollFlags::POLLIN)];
        polled.extend(listeners.iter().map(|one| PollFd::new(one.socket.as_fd(), PollFlags::POLLIN)));
        polled.extend(open.iter().map(|(one, _)| PollFd::new(one.stream().as_fd(), one.wants())));
        let until = open.iter().map(|(one, _)| one.until()).min();
        let wait = until.map(|until| until.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
        let timeout = wait.map_or(PollTimeout::NONE, |wait| PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO));
        if poll(&mut polled, timeout).is_err() {
            return (false, vec![false; polled.len() - 1]);
        }
        let mut ready = polled.iter().map(|one| one.any().unwrap_or(false));
        (ready.next().unwrap_or(false), ready.collect())
    }

    fn reply(&self, listener: &Listener, path: &str) -> Reply {
        if !listener.paths.contains(&path) {
            return Reply::plain("404 Not Found", "nothing is here\n");
        }
        match path {
            "/health" => Reply::plain("200 OK", "OK"),
            "/ready" if self.is_ready.load(Ordering::SeqCst) => Reply::plain("200 OK", "OK"),
            "/ready" => Reply::plain("503 Service Unavailable", "DNS is not served yet, or not for long\n"),
            _ => {
                Reply { content: "text/plain; version=0.0.4; charset=utf-8", ..Reply::plain("200 OK", self.metrics()) }
            }
        }
    }

    fn metrics(&self) -> String {
        self.teller.metrics_text()
    }
}
