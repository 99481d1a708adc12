//! Connections that stay open, to see what a change of policy does to them.

use crate::error::Error;
use crate::listen::message_of;
use crate::packet::sctp::{Chunk, Packet};
use crate::packet::without_ipv4_header;
use crate::probe::{Measured, Ports, ProbeSource, nonce, open_socket};
use crate::socket::{self, SocketKind};
use namewall_policy::port::Protocol;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv, send};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

const NONCE: usize = 8;

/// A TCP, UDP or SCTP connection to an end that echoes. SCTP is spoken by raw packets, where the kernel does not speak
/// it itself.
#[derive(Debug)]
pub struct Connection {
    kind: SocketKind,
    fd: OwnedFd,
    /// What the far end knows it by, whatever its address becomes on the way.
    pub(crate) name: u64,
    /// The end of what a stream has brought: a nonce may come in two pieces, and after older ones.
    tail: Vec<u8>,
    /// What packets of SCTP are addressed by.
    association: Association,
}

#[derive(Clone, Copy, Default, Debug)]
struct Association {
    port: u16,
    to_port: u16,
    /// The tag that the far end has told.
    tag: u32,
}

impl Association {
    fn packet(self, chunk: Chunk) -> Packet {
        Packet { from_port: self.port, to_port: self.to_port, tag: self.tag, chunk }
    }
}

/// Who wants to be connected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish<'a> {
    pub from: &'a ProbeSource,
    pub to: SocketAddr,
    pub protocol: Protocol,
}

impl Connection {
    /// The connection, or what was measured instead of it. Once it is there, an echo has come through it.
    pub(crate) fn open(wish: Wish<'_>, ports: &Ports, timeout: Duration) -> Result<Result<Self, Measured>, Error> {
        let kind = match wish.protocol {
            Protocol::Tcp => SocketKind::Tcp,
            Protocol::Udp => SocketKind::Udp,
            // The kernel of the near end would abort an association that it knows nothing of.
            Protocol::Sctp if !socket::kernel_speaks_sctp() => SocketKind::Sctp,
            other => return Err(Error::NotKept(other)),
        };
        let (from, to) = (wish.from, wish.to);
        let (fd, port) = from.namespace.enter(|| open_socket(kind, from.source, to, ports))??;
        let association = Association { port, to_port: to.port(), tag: 0 };
        let mut connection = Self { kind, fd, name: nonce(), tail: Vec::new(), association };
        let opened = connection.complete(to, timeout).map_err(Measured::from_error);
        Ok(opened.map(|()| connection))
    }

    fn complete(&mut self, to: SocketAddr, timeout: Duration) -> Result<(), Errno> {
        socket::start(&self.fd, self.kind, to)?;
        if self.kind == SocketKind::Tcp {
            if !wait(&mut [PollFd::new(self.fd.as_fd(), PollFlags::POLLOUT)], timeout)? {
                return Err(Errno::ETIMEDOUT);
            }
            socket::connected(&self.fd).unwrap_or(Err(Errno::ETIMEDOUT))?;
        }
        socket::hear_only_refusals(&self.fd, to.is_ipv4())?;
        if self.kind == SocketKind::Sctp {
            self.associate(to, timeout)?;
        }
        let nonce = self.ask()?;
        self.wait_for(nonce, timeout)
    }

    /// Establishes an association: the far end tells its tag, and gets its cookie back.
    fn associate(&mut self, to: SocketAddr, timeout: Duration) -> Result<(), Errno> {
        let (deadline, own_tag) = (Instant::now() + timeout, (self.name as u32).max(1));
        self.say(Chunk::Init(own_tag))?;
        let mut buffer = [0; 4096];
        loop {
            match recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(length) => {
                    let packet = &buffer[..length];
                    let packet = Packet::read(if to.is_ipv4() { without_ipv4_header(packet) } else { packet });
                    let is_ours = |packet: &Packet| {
                        let Association { port, to_port, .. } = self.association;
                        (packet.from_port, packet.to_port, packet.tag) == (to_port, port, own_tag)
                    };
                    match packet.filter(is_ours).map(|packet| packet.chunk) {
                        Some(Chunk::InitAck(tag)) => {
                            self.association.tag = tag;
                            self.say(Chunk::CookieEcho)?;
                        }
                        Some(Chunk::CookieAck) => return Ok(()),
                        Some(Chunk::Abort) => return Err(Errno::ECONNREFUSED),
                        _ => {}
                    }
                    continue;
                }
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Errno::ETIMEDOUT);
            }
            wait(&mut [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)], left)?;
        }
    }

    fn say(&self, chunk: Chunk) -> Result<(), Errno> {
        send(self.fd.as_raw_fd(), &self.association.packet(chunk).write(), MsgFlags::empty()).map(drop)
    }

    /// Waits until this comes through it.
    fn wait_for(&mut self, nonce: u64, timeout: Duration) -> Result<(), Errno> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.hear(nonce) {
                Some(Ok(())) => return Ok(()),
                Some(Err(errno)) => return Err(errno),
                None => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Errno::ETIMEDOUT);
            }
            wait(&mut [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)], left)?;
        }
    }

    /// Whether something that is sent through it is answered with a reset.
    pub fn is_reset(&mut self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut buffer = [0; 4096];
        loop {
            // What a reset has ended says so at the next send or read, whichever comes first.
            let sent = self.ask().map(drop);
            let received = recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::empty()).map(drop);
            if [sent, received].contains(&Err(Errno::ECONNRESET)) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let _ = wait(&mut [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)], left.min(Duration::from_millis(100)));
        }
    }

    pub(crate) fn is_udp(&self) -> bool {
        self.kind == SocketKind::Udp
    }

    /// Whether what the far end says unasked comes through it.
    pub(crate) fn hears(&mut self, word: u64, timeout: Duration) -> bool {
        self.wait_for(word, timeout).is_ok()
    }

    /// Whether something fresh comes back through it.
    pub fn alive(&mut self, timeout: Duration) -> Result<bool, Error> {
        Ok(Self::all_alive(std::slice::from_mut(self), timeout)?[0])
    }

    /// The same for many at once, so that many that are dead take one timeout.
    pub fn all_alive(connections: &mut [Self], timeout: Duration) -> Result<Vec<bool>, Error> {
        let asked: Vec<_> = connections.iter().map(Self::ask).collect();
        let mut alive: Vec<Option<bool>> = asked.iter().map(|asked| asked.is_err().then_some(false)).collect();
        let deadline = Instant::now() + timeout;
        loop {
            for (at, connection) in connections.iter_mut().enumerate().filter(|(at, _)| asked[*at].is_ok()) {
                if let (None, Ok(nonce)) = (alive[at], asked[at]) {
                    alive[at] = connection.hear(nonce).map(|heard| heard.is_ok());
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let waiting = connections.iter().zip(&alive).filter(|(_, alive)| alive.is_none());
            let mut waiting: Vec<_> =
                waiting.map(|(connection, _)| PollFd::new(connection.fd.as_fd(), PollFlags::POLLIN)).collect();
            if waiting.is_empty() || left.is_zero() {
                return Ok(alive.into_iter().map(|alive| alive == Some(true)).collect());
            }
            wait(&mut waiting, left).map_err(Error::Watch)?;
        }
    }

    fn ask(&self) -> Result<u64, Errno> {
        let nonce = nonce();
        if self.kind == SocketKind::Sctp {
            return self.say(Chunk::Heartbeat(message_of(self.name, nonce))).map(|()| nonce);
        }
        send(self.fd.as_raw_fd(), &message_of(self.name, nonce), MsgFlags::MSG_NOSIGNAL).map(|_| nonce)
    }

    /// Whether it came back, or cannot any more; None while it still may.
    fn hear(&mut self, nonce: u64) -> Option<Result<(), Errno>> {
        let mut buffer = [0; 4096];
        loop {
            match recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(0) if self.kind == SocketKind::Tcp => return Some(Err(Errno::ECONNRESET)),
                Ok(length) => {
                    self.tail.extend_from_slice(&buffer[..length]);
                    if self.tail.windows(NONCE).any(|window| window == nonce.to_be_bytes()) {
                        self.tail.clear();
                        return Some(Ok(()));
                    }
                    let spent = self.tail.len().saturating_sub(NONCE - 1);
                    self.tail.drain(..spent);
                }
                Err(Errno::EAGAIN) => return None,
                Err(Errno::EINTR) => {}
                Err(errno) => return Some(Err(errno)),
            }
        }
    }
}

/// Waits until one of them has something to say; false if none had in time.
fn wait(fds: &mut [PollFd<'_>], timeout: Duration) -> Result<bool, Errno> {
    let timeout = PollTimeout::try_from(timeout + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
    match poll(fds, timeout) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::EINTR) => Ok(true),
        Err(errno) => Err(errno),
    }
}
