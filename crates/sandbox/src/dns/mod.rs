//! Names on the wire: servers, outside or in pods, that answer from a scenario's zones, and
//! a client that asks them from a pod. What a server says is decided by
//! [`Zones`]; here it travels. `serve` is the servers' thread, `stream` one of
//! its TCP connections, `client` asks, and `opening` is what it does with answers.

mod client;
mod opening;
mod serve;
mod stream;

pub(crate) use client::ask;
pub use client::{Ask, Heard, Questions};
pub use opening::Opening;

use crate::error::Error;
use crate::listen::Listen;
use crate::netns::Namespace;
use crate::socket::{self, SocketKind};
use namewall_policy::port::Protocol;
use namewall_scenario::zones::{FORGED_V4, FORGED_V6, Name, Owner, Server, Spoof, Transport, Zones};
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use serve::{Datagrams, Served, Thread};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Where DNS is served.
pub(crate) const PORT: u16 = 53;
/// Where a forged answer comes from that has the right address.
const OTHER_PORT: u16 = 5300;
/// How long a connection may say nothing (RFC 7766 asks for seconds, not minutes).
const IDLE: Duration = Duration::from_secs(10);

type Shared = Arc<Mutex<Zones>>;

/// The servers. Dropped, they are silent.
#[derive(Debug)]
pub struct NameServers {
    zones: Shared,
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl NameServers {
    /// Answers at every server's address, in the namespace that has it.
    pub(crate) fn start<'a>(zones: &Zones, find: impl Fn(IpAddr) -> Option<&'a Arc<Namespace>>) -> Result<Self, Error> {
        let mut served = Vec::new();
        for (address, server) in zones.servers() {
            let namespace = find(address).ok_or(Error::NoSuchAddress(address))?;
            namespace.enter(|| open(address, server, &mut served))??;
        }
        let zones: Shared = Arc::new(Mutex::new(zones.clone()));
        let stop = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(Error::Watch)?;
        let stop = Arc::new(stop);
        let mut thread = Thread::new(zones.clone(), stop.clone(), IDLE).map_err(Error::Watch)?;
        served.into_iter().try_for_each(|served| thread.serve(served).map(drop)).map_err(Error::Watch)?;
        let thread = thread::Builder::new().name("name servers".to_owned()).spawn(move || thread.run());
        Ok(Self { zones, stop, thread: Some(thread.map_err(Error::Thread)?) })
    }

    /// What a name has, from here on; None takes it away.
    pub fn replace(&self, name: Name, owner: Option<Owner>) {
        self.zones().replace(name, owner);
    }

    /// How many queries a server got.
    pub fn queries(&self, server: IpAddr) -> u64 {
        self.zones().queries(server)
    }

    /// Every address they speak of now.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.zones().addresses().collect()
    }

    /// Whether nobody else may listen there.
    pub(crate) fn has(&self, listen: &Listen) -> bool {
        let is_server = || self.zones().servers().any(|(address, _)| address == listen.address);
        listen.port == PORT && matches!(listen.protocol, Protocol::Udp | Protocol::Tcp) && is_server()
    }

    fn zones(&self) -> MutexGuard<'_, Zones> {
        self.zones.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for NameServers {
    fn drop(&mut self) {
        let _ = self.stop.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the zones need to have outside, besides the addresses they speak of.
pub(crate) fn addresses(zones: &Zones) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for (address, server) in zones.servers() {
        addresses.push(address);
        if server.spoof.contains(&Spoof::Source) {
            addresses.push(forged(address));
        }
    }
    addresses
}

/// The address of that family that forgers use.
fn forged(server: IpAddr) -> IpAddr {
    if server.is_ipv4() { FORGED_V4 } else { FORGED_V6 }
}

fn open(address: IpAddr, server: &Server, served: &mut Vec<Served>) -> Result<(), Error> {
    let bind = |kind, at| socket::open_server(kind, at).map_err(|source| cannot_listen(kind, at, source));
    let at = SocketAddr::new(address, PORT);
    if server.listens(Transport::Udp) {
        let wanted = |spoof, at| -> Result<Option<OwnedFd>, Error> {
            server.spoof.contains(&spoof).then(|| bind(SocketKind::Udp, at)).transpose()
        };
        served.push(Served::Datagrams(Datagrams {
            server: address,
            fd: bind(SocketKind::Udp, at)?,
            other_port: wanted(Spoof::Port, SocketAddr::new(address, OTHER_PORT))?,
            other_address: wanted(Spoof::Source, SocketAddr::new(forged(address), PORT))?,
        }));
    }
    if server.listens(Transport::Tcp) {
        served.push(Served::Accept(address, bind(SocketKind::Tcp, at)?.into()));
    }
    Ok(())
}

fn cannot_listen(kind: SocketKind, at: SocketAddr, source: Errno) -> Error {
    let protocol = if kind == SocketKind::Tcp { Protocol::Tcp } else { Protocol::Udp };
    Error::Listen { listen: Listen { address: at.ip(), protocol, port: at.port() }, source }
}
