//! Where questions come in. Addresses can be taken up and left while others go on: an address that is left takes
//! no more questions at once, and is given back when the last answer has gone out by it.

use super::{Engine, Token, event};
use crate::learn::Learn;
use crate::server::Unanswered;
use crate::server::crew::Passed;
use crate::server::datagrams::{self, Inbox};
use crate::server::outbox::Outbox;
use crate::server::pending::{Client, Pending};
use crate::server::settings::Listen;
use crate::server::tcp::ConnectionOwner;
use nix::sys::epoll::{Epoll, EpollFlags};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, getsockopt, setsockopt, socket, sockopt,
};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _};
use std::time::Instant;

/// The sockets of one listening address.
#[derive(Debug)]
pub struct Sockets {
    pub udp: UdpSocket,
    pub tcp: TcpListener,
    /// Further ones at the same address, for further loops.
    pub others: Vec<UdpSocket>,
}

/// What one loop has of them.
#[derive(Debug)]
pub(in crate::server) struct LoopSockets {
    udp: UdpSocket,
    /// One loop has all connections: they carry questions of all kinds, and there are few.
    tcp: Option<TcpListener>,
    /// Another loop listens there.
    only_sends: bool,
}

impl Sockets {
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let mut chances = if address.port() == 0 { 16 } else { 0 };
        loop {
            let udp = UdpSocket::bind(address)?;
            // Of a port the kernel chose, the same for both; it may be taken for TCP, and another not.
            match TcpListener::bind(udp.local_addr()?) {
                Ok(tcp) => return Ok(Self { udp, tcp, others: Vec::new() }),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && chances > 0 => chances -= 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// A share for each of so many loops. A loop may have several sockets of those that an earlier process has left.
    /// Where the kernel gives no more sockets at the address, one loop listens and the others only send.
    pub(in crate::server) fn share(self, loops: usize) -> io::Result<Vec<Vec<LoopSockets>>> {
        let Self { udp, tcp, others } = self;
        let mut all = vec![udp];
        all.extend(others);
        let mut silent = Vec::new();
        while all.len() + silent.len() < loops {
            match another(&all[0]) {
                Ok(one) => all.push(one),
                Err(_) => silent.push(all[0].try_clone()?),
            }
        }
        let mut shares: Vec<Vec<LoopSockets>> = (0..loops).map(|_| Vec::new()).collect();
        let mut tcp = Some(tcp);
        let listening = all.len();
        for (at, udp) in all.into_iter().chain(silent).enumerate() {
            shares[at % loops].push(LoopSockets { udp, tcp: tcp.take(), only_sends: at >= listening });
        }
        Ok(shares)
    }
}

/// One more socket at an address. The first was bound alone, so that a server that is there already is noticed; from
/// now on our own may join it.
fn another(first: &UdpSocket) -> io::Result<UdpSocket> {
    if !getsockopt(first, sockopt::ReusePort)? {
        setsockopt(first, sockopt::ReusePort, &true)?;
    }
    let address = first.local_addr()?;
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let fd = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&fd, sockopt::ReusePort, &true)?;
    if family == AddressFamily::Inet6 {
        setsockopt(&fd, sockopt::Ipv6V6Only, &getsockopt(first, sockopt::Ipv6V6Only)?)?;
    }
    bind(fd.as_raw_fd(), &SockaddrStorage::from(address))?;
    Ok(UdpSocket::from(fd))
}

#[derive(Debug)]
pub(super) struct Listener {
    pub(super) address: SocketAddr,
    /// None once it is left for good; others may have its place then.
    udp: Option<UdpSocket>,
    tcp: Option<TcpListener>,
    is_v4: bool,
    is_deaf: bool,
    only_sends: bool,
    /// Since when no more questions are taken.
    left_at: Option<Instant>,
    pub(super) meant: Option<SocketAddr>,
    pub(super) is_open: bool,
    pub(super) outbox: Outbox,
    /// Questions that came by it.
    pub(super) under_way: usize,
}

impl Listener {
    fn new(LoopSockets { udp, tcp, only_sends }: LoopSockets, listen: Listen) -> io::Result<Self> {
        udp.set_nonblocking(true)?;
        tcp.as_ref().map_or(Ok(()), |tcp| tcp.set_nonblocking(true))?;
        datagrams::enlarge(&udp, datagrams::LISTENER_BUFFER);
        let Listen { meant, is_open, .. } = listen;
        let address = udp.local_addr()?;
        Ok(Self {
            address,
            udp: Some(udp),
            tcp,
            is_v4: address.is_ipv4(),
            is_deaf: false,
            only_sends,
            left_at: None,
            meant,
            is_open,
            outbox: Outbox::new(),
            under_way: 0,
        })
    }

    pub(super) fn accept(&self) -> Option<(TcpStream, SocketAddr)> {
        self.tcp.as_ref()?.accept().ok()
    }

    /// How many datagrams came.
    pub(super) fn receive(&self, inbox: &mut Inbox) -> usize {
        // An error is of an earlier answer, told late: its client is gone.
        self.udp.as_ref().and_then(|udp| inbox.receive(udp, self.is_v4).ok()).unwrap_or(0)
    }

    /// Whether answers can go out by it.
    pub(super) fn can_send(&self) -> bool {
        self.udp.is_some()
    }

    /// Sends what there is to send; gives how much could not be sent.
    pub(super) fn send(&mut self) -> usize {
        let udp = self.udp.as_ref().filter(|_| !self.outbox.is_empty());
        udp.map_or(0, |udp| self.outbox.flush(udp))
    }

    /// Sends what there is to send, as `send` does. A listener that was left before `left` is given back.
    pub(super) fn flush(&mut self, left: Instant) -> usize {
        let unsent = self.send();
        if self.left_at.is_some_and(|at| at <= left) && self.under_way == 0 {
            self.udp = None;
        }
        unsent
    }

    fn is_left(&self) -> bool {
        self.left_at.is_some()
    }

    fn close_ears(&mut self, epoll: &Epoll) {
        if !std::mem::replace(&mut self.is_deaf, true) {
            let _ = self.udp.as_ref().filter(|_| !self.only_sends).map(|udp| epoll.delete(udp));
            let _ = self.tcp.as_ref().map(|tcp| epoll.delete(tcp));
        }
    }
}

impl<L: Learn> Engine<L> {
    pub(super) fn add_listener(&mut self, sockets: LoopSockets, listen: Listen) -> io::Result<()> {
        let listener = Listener::new(sockets, listen)?;
        let at = self.free_place().unwrap_or(self.listeners.len());
        for (socket, token) in [
            (listener.udp.as_ref().filter(|_| !listener.only_sends).map(AsFd::as_fd), Token::Listener(at as u32)),
            (listener.tcp.as_ref().map(AsFd::as_fd), Token::Accept(at as u32)),
        ] {
            socket.map_or(Ok(()), |socket| self.epoll.add(socket, event(EpollFlags::EPOLLIN, token)))?;
        }
        match self.listeners.get_mut(at) {
            Some(place) => *place = listener,
            None => self.listeners.push(listener),
        }
        Ok(())
    }

    /// The place of one that is left, and that nobody came by who is still here.
    fn free_place(&self) -> Option<usize> {
        let has_clients = |at: usize| {
            self.connections
                .iter()
                .any(|(_, one)| matches!(one.end, ConnectionOwner::Client { listener, .. } if listener == at))
        };
        let is_free = |at: &usize| {
            let listener = &self.listeners[*at];
            listener.udp.is_none() && listener.under_way == 0 && !has_clients(*at)
        };
        (0..self.listeners.len()).find(is_free)
    }

    /// Leaves all addresses but these.
    pub(super) fn leave_all_but(&mut self, listen: &[Listen]) {
        for listener in &mut self.listeners {
            if listener.is_left() || listen.iter().any(|listen| listen.address == listener.address) {
                continue;
            }
            listener.close_ears(&self.epoll);
            listener.tcp = None;
            listener.left_at = Some(self.now);
        }
    }

    /// Takes no more questions. What is only to be extended is so at once.
    pub(in crate::server) fn retire(&mut self) {
        self.extend_by = self.extend_by.map(|at| at.min(self.now));
        for listener in &mut self.listeners {
            listener.close_ears(&self.epoll);
        }
    }

    pub(in crate::server) fn is_deaf(&self) -> bool {
        self.listeners.iter().all(|listener| listener.is_deaf)
    }

    /// Those that questions come in by.
    pub(in crate::server) fn take_sockets(&mut self) -> Vec<(LoopSockets, Listen)> {
        let all = self.listeners.drain(..).filter(|listener| !listener.is_left() && !listener.only_sends);
        let sockets = all.filter_map(|Listener { address, udp, tcp, meant, is_open, only_sends, .. }| {
            Some((LoopSockets { udp: udp?, tcp, only_sends }, Listen { address, meant, is_open }))
        });
        sockets.collect()
    }
}

impl<L: Learn> Engine<L> {
    /// The questions that are under way and that another server can answer in our place.
    pub(in crate::server) fn unanswered(&mut self) -> Vec<Unanswered> {
        let mut mail = std::mem::take(&mut self.mail);
        self.crew.take(&mut mail);
        let passed = mail.iter().filter(|passed| passed.origin.is_none());
        let mut questions: Vec<Unanswered> =
            passed.map(|Passed { at, from, query, .. }| Unanswered { at, from, query: query.to_vec() }).collect();
        let question = |pending: &Pending| match pending.client {
            Client::Udp { listener, from } => {
                let at = self.listeners.get(listener)?.address;
                Some(Unanswered { at, from, query: pending.query.clone() })
            }
            Client::Tcp { .. } | Client::Encrypted { .. } | Client::Probe | Client::Renewal { .. } => None,
        };
        questions.extend(self.pending.iter().filter_map(question));
        questions
    }
}

/// Puts together what loops have given back.
pub(in crate::server) fn gathered(parts: Vec<(LoopSockets, Listen)>) -> Vec<(Sockets, Listen)> {
    let (first, others): (Vec<_>, Vec<_>) = parts.into_iter().partition(|(one, _)| one.tcp.is_some());
    let mut all: Vec<(Sockets, Listen)> = (first.into_iter())
        .filter_map(|(LoopSockets { udp, tcp, .. }, listen)| Some((Sockets { udp, tcp: tcp?, others: vec![] }, listen)))
        .collect();
    for (LoopSockets { udp, .. }, listen) in others {
        if let Some((sockets, _)) = all.iter_mut().find(|(_, known)| known.address == listen.address) {
            sockets.others.push(udp);
        }
    }
    all
}
