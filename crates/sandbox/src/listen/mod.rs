//! Ends that answer: echo over TCP and UDP, and an SCTP host that knows only
//! how to accept or refuse. Each is bound to one address, so an address without
//! one refuses, whoever else lives in that namespace. All are served from one
//! thread. ICMP echo needs nobody: the kernel answers it.

mod serve;

use crate::error::Error;
use crate::netns::Namespace;
use crate::socket::{self, SocketKind};
use namewall_policy::port::Protocol;
use nix::sys::eventfd::{EfdFlags, EventFd};
use rustc_hash::{FxHashMap, FxHashSet};
use serve::{ListenerOrder, Served, Server};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Where somebody should answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Listen {
    pub address: IpAddr,
    pub protocol: Protocol,
    /// Of no meaning for ICMP.
    pub port: u16,
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", SocketAddr::new(self.address, self.port), self.protocol)
    }
}

/// What a client begins with that wants to be spoken to later, before its name. A probe is shorter: nobody remembers
/// it.
const NAMED: [u8; 8] = *b"I am No ";

/// A message of a client that has a name.
pub(crate) fn message_of(client: u64, word: u64) -> Vec<u8> {
    [NAMED, client.to_be_bytes(), word.to_be_bytes()].concat()
}

/// The name of the client that wrote this, if it gave one.
fn name_in(message: &[u8]) -> Option<u64> {
    let name = message.strip_prefix(&NAMED)?.first_chunk()?;
    Some(u64::from_be_bytes(*name))
}

/// The open SCTP ports. They are shared, not sent: a port is open when
/// `ensure` returns, whatever the thread is doing.
type OpenPorts = Arc<Mutex<FxHashSet<SocketAddr>>>;

/// The thread that answers, and what it has been given.
#[derive(Debug)]
pub(crate) struct Listeners {
    listening: FxHashSet<Listen>,
    /// Addresses whose raw SCTP socket is open.
    sctp_hosts: FxHashSet<IpAddr>,
    sctp_ports: OpenPorts,
    wake: Arc<EventFd>,
    /// None while it ends.
    orders: Option<Sender<ListenerOrder>>,
    thread: Option<JoinHandle<()>>,
}

impl Listeners {
    pub(crate) fn start() -> Result<Self, Error> {
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(Error::Watch)?;
        let wake = Arc::new(wake);
        let sctp_ports = OpenPorts::default();
        let (orders, received) = mpsc::channel();
        let server = Server::new(received, wake.clone(), sctp_ports.clone()).map_err(Error::Watch)?;
        let thread = thread::Builder::new().name("listeners".to_owned()).spawn(move || server.run());
        let thread = Some(thread.map_err(Error::Thread)?);
        let (listening, sctp_hosts) = Default::default();
        Ok(Self { listening, sctp_hosts, sctp_ports, wake, orders: Some(orders), thread })
    }

    /// Makes somebody answer wherever nobody does yet.
    pub(crate) fn ensure<'a>(
        &mut self,
        wanted: &[Listen],
        find: impl Fn(IpAddr) -> Option<&'a Arc<Namespace>>,
    ) -> Result<(), Error> {
        let mut by_namespace: FxHashMap<*const Namespace, (&Namespace, Vec<Listen>)> = FxHashMap::default();
        for &listen in wanted.iter().filter(|listen| !self.listening.contains(listen)) {
            let namespace = find(listen.address).ok_or(Error::NoSuchAddress(listen.address))?;
            let (_, here) = by_namespace.entry(Arc::as_ptr(namespace)).or_insert_with(|| (namespace, Vec::new()));
            here.push(listen);
        }
        for (namespace, mut here) in by_namespace.into_values() {
            here.sort_unstable();
            here.dedup();
            self.ensure_in(namespace, &here)?;
        }
        Ok(())
    }

    fn ensure_in(&mut self, namespace: &Namespace, wanted: &[Listen]) -> Result<(), Error> {
        let mut hosts = self.sctp_hosts.clone();
        let opened = namespace.enter(|| {
            let by_kernel = socket::kernel_speaks_sctp();
            let open = |&listen: &Listen| {
                let kind = SocketKind::try_from(listen.protocol)?;
                let at = SocketAddr::new(listen.address, listen.port);
                let served = match kind {
                    SocketKind::Icmp => Ok(None),
                    SocketKind::Sctp if by_kernel => {
                        socket::open_kernel_sctp_server(at).map(|fd| Some((SocketKind::Tcp, fd)))
                    }
                    // One raw socket hears every port of its address.
                    SocketKind::Sctp if !hosts.insert(listen.address) => Ok(None),
                    kind => socket::open_server(kind, at).map(|fd| Some((kind, fd))),
                };
                Ok((listen, served.map_err(|source| Error::Listen { listen, source })?))
            };
            wanted.iter().map(open).collect::<Result<Vec<_>, Error>>()
        })??;
        self.sctp_hosts = hosts;
        for (listen, served) in opened {
            if listen.protocol == Protocol::Sctp {
                let mut ports = self.sctp_ports.lock().unwrap_or_else(PoisonError::into_inner);
                ports.insert(SocketAddr::new(listen.address, listen.port));
            }
            if let Some((kind, fd)) = served {
                self.order(ListenerOrder::Serve(Served::new(kind, listen.address, fd)));
            }
            self.listening.insert(listen);
        }
        Ok(())
    }

    /// Closes what listens at these addresses, and what was accepted there.
    pub(crate) fn forget(&mut self, addresses: &FxHashSet<IpAddr>) {
        if addresses.is_empty() {
            return;
        }
        self.listening.retain(|listen| !addresses.contains(&listen.address));
        self.sctp_hosts.retain(|address| !addresses.contains(address));
        let mut ports = self.sctp_ports.lock().unwrap_or_else(PoisonError::into_inner);
        ports.retain(|at| !addresses.contains(&at.ip()));
        drop(ports);
        let (done, wait) = mpsc::channel();
        self.order(ListenerOrder::Forget(addresses.clone(), done));
        // An error says that the thread has ended, and its sockets with it.
        let _ = wait.recv();
    }

    /// Makes whoever serves this client say something unasked; false if nobody does any more.
    pub(crate) fn speak(&self, to: u64, word: u64) -> bool {
        let (done, wait) = mpsc::channel();
        self.order(ListenerOrder::Speak { to, word, done });
        wait.recv().unwrap_or(false)
    }

    fn order(&self, order: ListenerOrder) {
        if let Some(orders) = &self.orders {
            let _ = orders.send(order);
        }
        let _ = self.wake.write(1);
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.wake.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
