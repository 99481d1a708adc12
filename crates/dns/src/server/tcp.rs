//! Connections, of clients and to upstreams: messages with their
//! lengths before them (RFC 1035 §4.2.2), many under way at once (RFC 7766 §6.2).

use super::pending::Ticket;
use super::stream::Stream;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, socket};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::Instant;

/// Answers a client may leave unread before its connection is ended.
const MOST_UNREAD: usize = 1 << 20;

/// Whose connection it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ConnectionOwner {
    Client { listener: usize, from: SocketAddr },
    Upstream(usize),
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: Stream,
    pub(super) end: ConnectionOwner,
    input: Vec<u8>,
    output: Vec<u8>,
    written: usize,
    pub(super) since: Instant,
    pub(super) last_used: Instant,
    /// When anything last came over it.
    pub(super) last_heard: Instant,
    /// Queries under way over it.
    pub(super) open: u32,
    /// An answer has come over it.
    pub(super) has_answered: bool,
    /// The other end sends no more.
    pub(super) is_half_closed: bool,
    /// So much is under way that no more is read.
    pub(super) is_paused: bool,
    /// What epoll was told last: whether to write.
    pub(super) waits_to_write: bool,
}

impl Connection {
    pub(super) fn new(stream: Stream, end: ConnectionOwner, now: Instant) -> io::Result<Self> {
        stream.tcp.set_nonblocking(true)?;
        stream.tcp.set_nodelay(true)?;
        Ok(Self {
            stream,
            end,
            input: Vec::new(),
            output: Vec::new(),
            written: 0,
            since: now,
            last_used: now,
            last_heard: now,
            open: 0,
            has_answered: false,
            is_half_closed: false,
            is_paused: false,
            waits_to_write: false,
        })
    }

    /// Puts a message in line, under this id. Returns its bytes, which may still be changed.
    pub(super) fn push(&mut self, message: &[u8], id: u16) -> &mut [u8] {
        let Ok(length) = u16::try_from(message.len()) else { return &mut [] };
        self.output.extend_from_slice(&length.to_be_bytes());
        let start = self.output.len();
        self.output.extend_from_slice(message);
        crate::wire::Header::set_id(&mut self.output[start..], id);
        &mut self.output[start..]
    }

    /// Writes as much as the other end takes. An error ends the connection.
    pub(super) fn write(&mut self) -> io::Result<()> {
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_later(&error) => break,
                Err(error) => return Err(error),
            }
        }
        match self.stream.flush() {
            Err(error) if !is_later(&error) => return Err(error),
            _ => {}
        }
        if self.written == self.output.len() {
            self.output.clear();
            self.written = 0;
            self.output.shrink_to(64 << 10);
        } else if self.output.len() - self.written > MOST_UNREAD {
            return Err(io::Error::other("the other end does not read its answers"));
        }
        Ok(())
    }

    pub(super) fn has_output(&self) -> bool {
        !self.output.is_empty() || self.stream.must_flush()
    }

    /// Reads what is there. False at the end of the stream.
    pub(super) fn read(&mut self, buffer: &mut [u8], now: Instant) -> io::Result<bool> {
        loop {
            // Once: the rest the next time round, so that one connection does not keep the others waiting.
            match self.stream.read(buffer, &mut self.input) {
                Ok(goes_on) => {
                    self.last_heard = now;
                    return Ok(goes_on);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The next whole message that was read, into `message`.
    pub(super) fn next(&mut self, message: &mut Vec<u8>) -> bool {
        let Some(length) = self.input.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length))) else {
            return false;
        };
        if self.input.len() < 2 + length {
            return false;
        }
        message.clear();
        message.extend_from_slice(&self.input[2..2 + length]);
        self.input.drain(..2 + length);
        true
    }
}

/// Whether it is only too early: the other end has no room, or the connection to it is not there yet.
fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected | io::ErrorKind::Interrupted)
}

/// Begins to connect; it is connected when it can be written to.
pub(super) fn begin_connect(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd = socket(family, SockType::Stream, flags, None)?;
    match connect(fd.as_raw_fd(), &SockaddrStorage::from(address)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(TcpStream::from(fd)),
        Err(error) => Err(error.into()),
    }
}

/// Connections by place; a place is used again under another generation.
#[derive(Default, Debug)]
pub(super) struct Connections {
    slots: Vec<(u32, Option<Connection>)>,
    free: Vec<u32>,
}

impl Connections {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn insert(&mut self, connection: Connection) -> Ticket {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let (generation, place) = &mut self.slots[slot as usize];
        *place = Some(connection);
        Ticket { slot, generation: *generation }
    }

    pub(super) fn at(&mut self, slot: u32) -> Option<&mut Connection> {
        self.slots.get_mut(slot as usize)?.1.as_mut()
    }

    pub(super) fn get(&mut self, ticket: Ticket) -> Option<&mut Connection> {
        let (generation, place) = self.slots.get_mut(ticket.slot as usize)?;
        place.as_mut().filter(|_| *generation == ticket.generation)
    }

    pub(super) fn ticket(&self, slot: u32) -> Ticket {
        Ticket { slot, generation: self.slots.get(slot as usize).map_or(0, |(generation, _)| *generation) }
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<Connection> {
        let (generation, place) = self.slots.get_mut(slot as usize)?;
        let connection = place.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(slot);
        Some(connection)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Connection)> {
        self.slots.iter().enumerate().filter_map(|(slot, (_, one))| Some((slot as u32, one.as_ref()?)))
    }
}
