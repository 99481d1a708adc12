//! A TCP connection of a server: messages with their length before them, any
//! number of them under way, answered in whatever order they are ready
//! (RFC 7766).

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Instant;

/// A client that does not read while it asks is cut off.
const MOST_UNSENT: usize = 16 << 20;

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) server: IpAddr,
    fd: OwnedFd,
    received: Vec<u8>,
    unsent: Vec<u8>,
    /// Answers that are still to come.
    pub(super) awaited: usize,
    pub(super) last_heard: Instant,
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Stream {
    pub(super) fn new(server: IpAddr, fd: OwnedFd) -> Self {
        let (received, unsent) = (Vec::new(), Vec::new());
        Self { server, fd, received, unsent, awaited: 0, last_heard: Instant::now() }
    }

    /// The messages that are whole, and whether the stream goes on.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> (Vec<Vec<u8>>, bool) {
        let goes_on = match recv(self.fd.as_raw_fd(), buffer, MsgFlags::empty()) {
            Ok(0) => false,
            Ok(length) => {
                self.last_heard = Instant::now();
                self.received.extend(&buffer[..length]);
                true
            }
            Err(errno) => matches!(errno, Errno::EAGAIN | Errno::EINTR),
        };
        let mut messages = Vec::new();
        while let Some(message) = take_message(&mut self.received) {
            messages.push(message);
        }
        (messages, goes_on)
    }

    /// Whether the stream goes on.
    pub(super) fn send(&mut self, message: &[u8]) -> bool {
        self.unsent.extend(framed(message));
        self.flush()
    }

    pub(super) fn flush(&mut self) -> bool {
        while !self.unsent.is_empty() {
            match send(self.fd.as_raw_fd(), &self.unsent, MsgFlags::MSG_NOSIGNAL) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(Errno::EAGAIN) => return self.unsent.len() < MOST_UNSENT,
                Err(Errno::EINTR) => {}
                Err(_) => return false,
            }
        }
        true
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }
}

/// The first message, if it is there as a whole.
pub(super) fn take_message(received: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = usize::from(u16::from_be_bytes([*received.first()?, *received.get(1)?]));
    let message = received.get(2..2 + length)?.to_vec();
    received.drain(..2 + length);
    Some(message)
}

/// Nothing that `Zones` writes is longer than its length can say.
pub(super) fn framed(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes(), &message[..usize::from(length)]].concat()
}
