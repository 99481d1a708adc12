//! One probe under way.

use super::{Measured, Ports, nonce, open_socket};
use crate::error::Error;
use crate::packet::echo::Echo;
use crate::packet::sctp::{Chunk, Packet};
use crate::packet::without_ipv4_header;
use crate::socket::{self, SocketKind};
use namewall_policy::port::Protocol;
use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;
use nix::sys::socket::{MsgFlags, recv, send};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The largest answer is a few dozen bytes.
const BUFFER: usize = 2048;

#[derive(Debug)]
pub(crate) struct Attempt {
    kind: SocketKind,
    fd: OwnedFd,
    /// Our port, or what stands for it.
    port: u16,
    to: SocketAddr,
    nonce: u64,
}

impl AsFd for Attempt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Attempt {
    /// In the thread's network namespace. Nothing is sent yet.
    pub(crate) fn open(protocol: Protocol, from: IpAddr, to: SocketAddr, ports: &Ports) -> Result<Self, Error> {
        let kind = SocketKind::try_from(protocol)?;
        let (fd, port) = open_socket(kind, from, to, ports)?;
        Ok(Self { kind, fd, port, to, nonce: nonce() })
    }

    pub(crate) fn interest(&self) -> EpollFlags {
        if self.kind == SocketKind::Tcp { EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN }
    }

    pub(crate) fn start(&self) -> Result<(), Errno> {
        socket::start(&self.fd, self.kind, self.to)?;
        let packet = match self.kind {
            SocketKind::Tcp => return Ok(()),
            SocketKind::Udp => self.nonce.to_be_bytes().to_vec(),
            SocketKind::Icmp => self.echo().request(self.to.ip()),
            SocketKind::Sctp => {
                let chunk = Chunk::Init(self.tag());
                Packet { from_port: self.port, to_port: self.to.port(), tag: 0, chunk }.write()
            }
        };
        send(self.fd.as_raw_fd(), &packet, MsgFlags::empty()).map(drop)
    }

    /// What is known after something has happened; nothing yet, if it was not for us.
    pub(crate) fn look(&self) -> Option<Measured> {
        if self.kind == SocketKind::Tcp {
            let connected = socket::connected(&self.fd)?;
            return Some(connected.map_or_else(Measured::from_error, |()| Measured::Open));
        }
        let mut buffer = [0; BUFFER];
        loop {
            match recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(length) => {
                    let measured = self.judge(&buffer[..length]);
                    if measured.is_some() {
                        return measured;
                    }
                }
                Err(Errno::EAGAIN) => return None,
                Err(Errno::EINTR) => {}
                Err(errno) => return Some(Measured::from_error(errno)),
            }
        }
    }

    fn judge(&self, answer: &[u8]) -> Option<Measured> {
        let inside = if self.to.is_ipv4() { without_ipv4_header(answer) } else { answer };
        let is_open = match self.kind {
            SocketKind::Tcp => false,
            SocketKind::Udp => answer == self.nonce.to_be_bytes(),
            SocketKind::Icmp => self.echo().is_answered_by(inside, self.to.ip()),
            // Most of what is heard here answers other probes; their sums need no checking.
            SocketKind::Sctp if Packet::ports(inside) != Some((self.to.port(), self.port)) => false,
            SocketKind::Sctp => return self.judge_sctp(&Packet::read(inside)?),
        };
        is_open.then_some(Measured::Open)
    }

    fn judge_sctp(&self, answer: &Packet) -> Option<Measured> {
        match answer.chunk {
            _ if answer.tag != self.tag() => None,
            Chunk::InitAck(_) => Some(Measured::Open),
            Chunk::Abort => Some(Measured::Refused),
            _ => None,
        }
    }

    fn echo(&self) -> Echo {
        Echo { identifier: self.port, nonce: self.nonce.to_be_bytes() }
    }

    /// 0 would mean that there is none.
    fn tag(&self) -> u32 {
        (self.nonce as u32).max(1)
    }
}
