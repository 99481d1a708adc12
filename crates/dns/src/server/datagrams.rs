//! Datagrams that come in, in batches: one system call takes many.

use nix::errno::Errno;
use nix::sys::socket::{self, MsgFlags, MultiHeaders, SockaddrIn, SockaddrIn6, SockaddrLike, recvmmsg, sockopt};
use std::cell::RefCell;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;

/// Messages in one call at most.
pub(super) const BATCH: usize = 128;
/// Room for so many is offered at least. To offer room costs time, so it is as much as may be needed.
const LEAST_ROOM: usize = 4;
/// Room for one. What is longer is asked for again over TCP.
const ROOM: usize = 4_096;
/// Room of a socket that clients ask at: with the kernel's default a burst is lost.
pub(super) const LISTENER_BUFFER: usize = 4 << 20;
/// Room of one of the many sockets to an upstream: all queries that it is used for, and their answers.
pub(super) const UPSTREAM_BUFFER: usize = 1 << 20;

thread_local! {
    // They hold pointers, so they stay with their thread while the engine changes hands. Each kind of
    // address has its own, for the kernel takes the length of the last one as the room for the next.
    static RECEIVE4: RefCell<MultiHeaders<SockaddrIn>> = RefCell::new(MultiHeaders::preallocate(BATCH, None));
    static RECEIVE6: RefCell<MultiHeaders<SockaddrIn6>> = RefCell::new(MultiHeaders::preallocate(BATCH, None));
}

/// Room for what comes in.
#[derive(Debug)]
pub(super) struct Inbox {
    buffers: Vec<u8>,
    received: Vec<Received>,
    /// How many came at a time of late, and twice as many.
    expected: usize,
    /// What the kernel said when it had given some already.
    late_error: Option<Errno>,
}

#[derive(Clone, Copy, Debug)]
struct Received {
    length: usize,
    from: Option<SocketAddr>,
    is_whole: bool,
}

/// A datagram that came in.
#[derive(Clone, Copy)]
pub(super) struct Datagram<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) from: Option<SocketAddr>,
    /// Or only its beginning, as far as there was room.
    pub(super) is_whole: bool,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self {
            buffers: vec![0; ROOM * BATCH],
            received: Vec::with_capacity(BATCH),
            expected: LEAST_ROOM,
            late_error: None,
        }
    }

    /// Takes what is there, up to a batch; gives how many there are.
    pub(super) fn receive(&mut self, socket: &UdpSocket, is_v4: bool) -> io::Result<usize> {
        self.received.clear();
        self.late_error = None;
        if is_v4 {
            RECEIVE4.with_borrow_mut(|headers| {
                self.receive_by(socket, headers, |v4| SocketAddrV4::new(v4.ip(), v4.port()).into())
            })
        } else {
            RECEIVE6.with_borrow_mut(|headers| {
                let address = |v6: SockaddrIn6| SocketAddrV6::new(v6.ip(), v6.port(), v6.flowinfo(), v6.scope_id());
                self.receive_by(socket, headers, |v6| address(v6).into())
            })
        }
    }

    fn receive_by<A: Copy + SockaddrLike>(
        &mut self,
        socket: &UdpSocket,
        headers: &mut MultiHeaders<A>,
        plain: impl Fn(A) -> SocketAddr,
    ) -> io::Result<usize> {
        loop {
            let (before, room) = (self.received.len(), self.expected.min(BATCH - self.received.len()));
            let free = self.buffers.chunks_mut(ROOM).skip(before).take(room);
            let mut slices: Vec<[IoSliceMut<'_>; 1]> = free.map(|room| [IoSliceMut::new(room)]).collect();
            let results = recvmmsg(socket.as_raw_fd(), headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None);
            let messages = match results {
                Ok(messages) => messages,
                Err(error) if before > 0 => {
                    self.late_error = Some(error).filter(|error| *error != Errno::EAGAIN);
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            for message in messages {
                self.received.push(Received {
                    length: message.bytes.min(ROOM),
                    from: message.address.map(&plain),
                    is_whole: !message.flags.contains(MsgFlags::MSG_TRUNC),
                });
            }
            if self.received.len() < before + room || self.received.len() >= BATCH {
                break;
            }
            self.expected = (2 * self.expected).min(BATCH);
        }
        // Less room is offered slowly, so that one quiet moment between bursts does not count.
        if 4 * self.received.len() < self.expected {
            self.expected = (self.expected - self.expected / 8).max(LEAST_ROOM);
        }
        Ok(self.received.len())
    }

    /// Whether the socket had an error to tell besides what came.
    pub(super) fn has_failed(&self) -> bool {
        self.late_error.is_some()
    }

    pub(super) fn message(&self, at: usize) -> Datagram<'_> {
        let Received { length, from, is_whole } = self.received[at];
        Datagram { bytes: &self.buffers[at * ROOM..at * ROOM + length], from, is_whole }
    }
}

/// Gives the socket buffers that hold a burst, as far as we may.
pub(super) fn enlarge(socket: &UdpSocket, size: usize) {
    if socket::setsockopt(socket, sockopt::RcvBufForce, &size).is_err() {
        // Without the right to force it the system's limit is what we get: better than nothing.
        let _ = socket::setsockopt(socket, sockopt::RcvBuf, &size);
    }
    if socket::setsockopt(socket, sockopt::SndBufForce, &size).is_err() {
        let _ = socket::setsockopt(socket, sockopt::SndBuf, &size);
    }
}
