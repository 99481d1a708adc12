//! Probes: is this open, from there? All of a batch are under way at once, so
//! a thousand that nobody answers take one timeout.

mod attempt;
mod ports;

pub(crate) use attempt::Attempt;
pub(crate) use ports::{Ports, nonce};

use crate::error::Error;
use crate::limits;
use crate::netns::Namespace;
use crate::socket::{self, SocketKind};
use namewall_policy::port::Protocol;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use rustc_hash::FxHashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where a connection starts.
#[derive(Clone, Debug)]
pub struct ProbeSource {
    pub namespace: Arc<Namespace>,
    pub source: IpAddr,
}

#[derive(Clone, Debug)]
pub struct Probe {
    pub from: ProbeSource,
    /// Its port is of no meaning for ICMP.
    pub to: SocketAddr,
    pub protocol: Protocol,
}

/// What came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measured {
    /// The other end answered.
    Open,
    /// The other end, or somebody in its name, said no: nobody listens there.
    Refused,
    /// Nothing came back: a packet was dropped.
    Silent,
    /// Somebody on the way, or this end's own routing, said that it cannot be reached.
    Unreachable(Errno),
}

impl Measured {
    pub(crate) fn from_error(errno: Errno) -> Self {
        match errno {
            // The last two are ICMP's "no such protocol", of either version.
            Errno::ECONNREFUSED | Errno::ENOPROTOOPT | Errno::EPROTO => Self::Refused,
            // A firewall dropped it on its way out of this very namespace.
            Errno::EPERM | Errno::ETIMEDOUT => Self::Silent,
            errno => Self::Unreachable(errno),
        }
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str("open"),
            Self::Refused => f.write_str("refused"),
            Self::Silent => f.write_str("silent"),
            Self::Unreachable(errno) => write!(f, "unreachable ({})", errno.desc()),
        }
    }
}

/// Measures all, in the order given; `timeout` is what they have in common.
pub(crate) fn measure(probes: &[Probe], ports: &Ports, timeout: Duration) -> Result<Vec<Measured>, Error> {
    let mut measured = Vec::with_capacity(probes.len());
    for batch in probes.chunks(limits::probes_at_once()) {
        measured.extend(measure_at_once(batch, ports, timeout)?);
    }
    Ok(measured)
}

fn measure_at_once(probes: &[Probe], ports: &Ports, timeout: Duration) -> Result<Vec<Measured>, Error> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(Error::Watch)?;
    let attempts = open_all(probes, ports)?;
    let mut measured: Vec<Option<Measured>> = vec![None; probes.len()];
    for (at, attempt) in attempts.iter().enumerate() {
        measured[at] = attempt.start().err().map(Measured::from_error);
        if measured[at].is_none() {
            let event = EpollEvent::new(attempt.interest() | EpollFlags::EPOLLET, at as u64);
            epoll.add(attempt, event).map_err(Error::Watch)?;
        }
    }
    let deadline = Instant::now() + timeout;
    let mut open = measured.iter().filter(|measured| measured.is_none()).count();
    let mut events = vec![EpollEvent::empty(); 256];
    while open > 0 {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        // Rounded up, so that the last part of a millisecond is not spent spinning.
        let left = EpollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(EpollTimeout::MAX);
        let count = match epoll.wait(&mut events, left) {
            Err(Errno::EINTR) => 0,
            result => result.map_err(Error::Watch)?,
        };
        for event in &events[..count] {
            let at = event.data() as usize;
            if measured[at].is_none() {
                measured[at] = attempts[at].look();
                open -= usize::from(measured[at].is_some());
            }
        }
    }
    Ok(measured.into_iter().map(|measured| measured.unwrap_or(Measured::Silent)).collect())
}

/// Every namespace is entered once, however many probes start there.
fn open_all(probes: &[Probe], ports: &Ports) -> Result<Vec<Attempt>, Error> {
    let mut by_namespace: FxHashMap<*const Namespace, Vec<usize>> = FxHashMap::default();
    for (at, probe) in probes.iter().enumerate() {
        by_namespace.entry(Arc::as_ptr(&probe.from.namespace)).or_default().push(at);
    }
    let open = |probe: &Probe| Attempt::open(probe.protocol, probe.from.source, probe.to, ports);
    let mut attempts: Vec<Option<Attempt>> = Vec::new();
    attempts.resize_with(probes.len(), || None);
    for here in by_namespace.into_values() {
        let opened = probes[here[0]]
            .from
            .namespace
            .enter(|| here.iter().map(|&at| open(&probes[at])).collect::<Result<Vec<_>, Error>>())??;
        for (at, attempt) in here.into_iter().zip(opened) {
            attempts[at] = Some(attempt);
        }
    }
    Ok(attempts.into_iter().flatten().collect())
}

/// A socket at a port that was not used towards that host for long: a firewall
/// that remembers connections must not take a new one for an old one.
pub(crate) fn open_socket(
    kind: SocketKind,
    from: IpAddr,
    to: SocketAddr,
    ports: &Ports,
) -> Result<(OwnedFd, u16), Error> {
    const ATTEMPTS: usize = 100;
    let mut last = Errno::EADDRINUSE;
    for _ in 0..ATTEMPTS {
        let port = ports.next(from, to.ip());
        match socket::open_client(kind, SocketAddr::new(from, port)) {
            Ok(fd) => return Ok((fd, port)),
            Err(Errno::EADDRINUSE) => {}
            Err(errno) => {
                last = errno;
                break;
            }
        }
    }
    Err(Error::Open { from, to, source: last })
}
