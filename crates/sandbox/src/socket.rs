//! Sockets for every protocol that is probed, opened in the namespace the
//! thread is in. None of them blocks.

use crate::error::Error;
use namewall_policy::port::Protocol;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, bind,
    connect, getpeername, getsockopt, listen, recvmsg, setsockopt, socket, sockopt,
};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Larger than a batch of probes to one port.
const WAITING: i32 = 4096;
const ROOM: usize = 8 << 20;

/// The kinds of socket that are told apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum SocketKind {
    Tcp,
    Udp,
    Sctp,
    Icmp,
}

impl TryFrom<Protocol> for SocketKind {
    type Error = Error;

    fn try_from(protocol: Protocol) -> Result<Self, Error> {
        match protocol {
            Protocol::Tcp => Ok(Self::Tcp),
            Protocol::Udp => Ok(Self::Udp),
            Protocol::Sctp => Ok(Self::Sctp),
            Protocol::Icmp => Ok(Self::Icmp),
            Protocol::Other(_) => Err(Error::NotProbed(protocol)),
        }
    }
}

fn open(kind: SocketKind, is_ipv4: bool) -> Result<OwnedFd, Errno> {
    let family = if is_ipv4 { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let (sort, protocol) = match kind {
        SocketKind::Tcp => (SockType::Stream, SockProtocol::Tcp),
        SocketKind::Udp => (SockType::Datagram, SockProtocol::Udp),
        SocketKind::Sctp => (SockType::Raw, SockProtocol::Sctp),
        SocketKind::Icmp if is_ipv4 => (SockType::Raw, SockProtocol::Icmp),
        SocketKind::Icmp => (SockType::Raw, SockProtocol::IcmpV6),
    };
    socket(family, sort, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, protocol)
}

/// A socket that answers at this address alone, so that what it sends comes from there.
pub(crate) fn open_server(kind: SocketKind, at: SocketAddr) -> Result<OwnedFd, Errno> {
    let fd = open(kind, at.is_ipv4())?;
    if kind == SocketKind::Tcp {
        setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    } else {
        make_room(&fd);
    }
    bind(fd.as_raw_fd(), &with_ports(kind, at))?;
    if kind == SocketKind::Tcp {
        listen(&fd, Backlog::new(WAITING)?)?;
    }
    Ok(fd)
}

/// Whether the kernel answers SCTP itself in this namespace. It is not asked by
/// opening a socket, which would load the kernel's module into the machine.
pub(crate) fn kernel_speaks_sctp() -> bool {
    Path::new("/proc/thread-self/net/sctp").exists()
}

/// Where the kernel speaks SCTP it would refuse what no socket of its own
/// listens to, before a raw socket has answered.
pub(crate) fn open_kernel_sctp_server(at: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if at.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(family, SockType::Stream, flags, SockProtocol::Sctp)?;
    bind(fd.as_raw_fd(), &SockaddrStorage::from(at))?;
    listen(&fd, Backlog::new(WAITING)?)?;
    Ok(fd)
}

/// A socket that speaks from this address and port.
pub(crate) fn open_client(kind: SocketKind, from: SocketAddr) -> Result<OwnedFd, Errno> {
    let fd = open(kind, from.is_ipv4())?;
    // Two probes may use one port towards two hosts.
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    if kind == SocketKind::Tcp {
        // It ends with a reset: no end of a probe lingers.
        setsockopt(&fd, sockopt::Linger, &nix::libc::linger { l_onoff: 1, l_linger: 0 })?;
    }
    if matches!(kind, SocketKind::Sctp | SocketKind::Icmp) {
        // A raw socket hears the answers to every probe between its two hosts.
        make_room(&fd);
    }
    // Every ICMP error counts, not only those that end a connection.
    hear_errors(&fd, from.is_ipv4(), true)?;
    bind(fd.as_raw_fd(), &with_ports(kind, from))?;
    Ok(fd)
}

/// For a whole batch to one host. Without root's rights the system's limit holds, and a batch may lose packets.
fn make_room(fd: &OwnedFd) {
    if setsockopt(fd, sockopt::RcvBufForce, &ROOM).is_err() {
        let _ = setsockopt(fd, sockopt::RcvBuf, &ROOM);
    }
}

fn hear_errors(fd: &OwnedFd, is_ipv4: bool, all: bool) -> Result<(), Errno> {
    if is_ipv4 { setsockopt(fd, sockopt::Ipv4RecvErr, &all) } else { setsockopt(fd, sockopt::Ipv6RecvErr, &all) }
}

/// For a socket that lives on: errors it hears of are not queued, where they would wake it for ever.
pub(crate) fn hear_only_refusals(fd: &OwnedFd, is_ipv4: bool) -> Result<(), Errno> {
    hear_errors(fd, is_ipv4, false)
}

/// A connection under way is no error. A socket that is connected hears of ICMP errors.
pub(crate) fn start(fd: &OwnedFd, kind: SocketKind, to: SocketAddr) -> Result<(), Errno> {
    match connect(fd.as_raw_fd(), &with_ports(kind, to)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// What came of a TCP connection under way; None while nothing has.
pub(crate) fn connected(fd: &OwnedFd) -> Option<Result<(), Errno>> {
    match getsockopt(fd, sockopt::SocketError) {
        Ok(0) => {}
        Ok(code) => return Some(Err(Errno::from_raw(code))),
        Err(errno) => return Some(Err(errno)),
    }
    if getpeername::<SockaddrStorage>(fd.as_raw_fd()).is_ok() {
        return Some(Ok(()));
    }
    // An ICMP error that comes back while `connect` still runs does not end it; it is only written down.
    error_told(fd).map(Err)
}

fn error_told(fd: &OwnedFd) -> Option<Errno> {
    let mut room = nix::cmsg_space!([u8; 128]);
    let told = recvmsg::<SockaddrStorage>(fd.as_raw_fd(), &mut [], Some(&mut room), MsgFlags::MSG_ERRQUEUE).ok()?;
    told.cmsgs().ok()?.find_map(|message| match message {
        ControlMessageOwned::Ipv4RecvErr(error, _) | ControlMessageOwned::Ipv6RecvErr(error, _) => {
            Some(Errno::from_raw(error.ee_errno as i32))
        }
        _ => None,
    })
}

/// Raw sockets know no ports, and those of IPv6 refuse them.
fn with_ports(kind: SocketKind, at: SocketAddr) -> SockaddrStorage {
    let port = if matches!(kind, SocketKind::Tcp | SocketKind::Udp) { at.port() } else { 0 };
    SockaddrStorage::from(SocketAddr::new(at.ip(), port))
}
