//! Where questions come in. Addresses can be taken up and left while others go on: an address that is left takes
//! no more questions at once, and is given back when the last answer has gone out by it.

use super::{Engine, Token, event};
use crate::learn::Learn;
use crate::server::datagrams::{self, Inbox};
use crate::server::outbox::Outbox;
use crate::server::settings::Listen;
use crate::server::tcp::ConnectionOwner;
use nix::sys::epoll::{Epoll, EpollFlags};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;

/// The sockets of one listening address.
#[derive(Debug)]
pub struct Sockets {
    pub udp: UdpSocket,
    pub tcp: TcpListener,
}

impl Sockets {
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let mut chances = if address.port() == 0 { 16 } else { 0 };
        loop {
            let udp = UdpSocket::bind(address)?;
            // Of a port the kernel chose, the same for both; it may be taken for TCP, and another not.
            match TcpListener::bind(udp.local_addr()?) {
                Ok(tcp) => return Ok(Self { udp, tcp }),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && chances > 0 => chances -= 1,
                Err(error) => return Err(error),
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct Listener {
    pub(super) address: SocketAddr,
    /// None once it is left for good; others may have its place then.
    udp: Option<UdpSocket>,
    tcp: Option<TcpListener>,
    is_v4: bool,
    is_deaf: bool,
    pub(super) meant: Option<SocketAddr>,
    pub(super) is_open: bool,
    pub(super) outbox: Outbox,
    /// Questions that came by it.
    pub(super) under_way: usize,
}

impl Listener {
    fn new(Sockets { udp, tcp }: Sockets, listen: Listen) -> io::Result<Self> {
        udp.set_nonblocking(true)?;
        tcp.set_nonblocking(true)?;
        datagrams::enlarge(&udp, datagrams::LISTENER_BUFFER);
        let Listen { meant, is_open, .. } = listen;
        let address = udp.local_addr()?;
        let (udp, tcp, is_v4) = (Some(udp), Some(tcp), address.is_ipv4());
        Ok(Self { address, udp, tcp, is_v4, is_deaf: false, meant, is_open, outbox: Outbox::new(), under_way: 0 })
    }

    pub(super) fn accept(&self) -> Option<(TcpStream, SocketAddr)> {
        self.tcp.as_ref()?.accept().ok()
    }

    /// How many datagrams came.
    pub(super) fn receive(&self, inbox: &mut Inbox) -> usize {
        // An error is of an earlier answer, told late: its client is gone.
        self.udp.as_ref().and_then(|udp| inbox.receive(udp, self.is_v4).ok()).unwrap_or(0)
    }

    /// Sends what there is to send; gives how much could not be sent.
    pub(super) fn flush(&mut self) -> usize {
        let mut unsent = 0;
        if let Some(udp) = self.udp.as_ref().filter(|_| !self.outbox.is_empty()) {
            unsent = self.outbox.flush(udp);
        }
        if self.is_left() && self.under_way == 0 {
            self.udp = None;
        }
        unsent
    }

    fn is_left(&self) -> bool {
        self.tcp.is_none()
    }

    fn close_ears(&mut self, epoll: &Epoll) {
        if !std::mem::replace(&mut self.is_deaf, true) {
            let _ = self.udp.as_ref().map(|udp| epoll.delete(udp));
            let _ = self.tcp.as_ref().map(|tcp| epoll.delete(tcp));
        }
    }
}

impl<L: Learn> Engine<L> {
    pub(super) fn add_listener(&mut self, sockets: Sockets, listen: Listen) -> io::Result<()> {
        let listener = Listener::new(sockets, listen)?;
        let at = self.free_place().unwrap_or(self.listeners.len());
        for (socket, token) in [
            (listener.udp.as_ref().map(AsFd::as_fd), Token::Listener(at as u32)),
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
        }
    }

    /// Takes no more questions.
    pub(in crate::server) fn retire(&mut self) {
        for listener in &mut self.listeners {
            listener.close_ears(&self.epoll);
        }
    }

    pub(in crate::server) fn is_deaf(&self) -> bool {
        self.listeners.iter().all(|listener| listener.is_deaf)
    }

    pub(in crate::server) fn take_sockets(&mut self) -> Vec<(Sockets, Listen)> {
        let sockets = self.listeners.drain(..).filter_map(|Listener { address, udp, tcp, meant, is_open, .. }| {
            Some((Sockets { udp: udp?, tcp: tcp? }, Listen { address, meant, is_open }))
        });
        sockets.collect()
    }
}
