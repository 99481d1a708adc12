//! Netlink, as little of it as we need: messages, and a socket that sends a
//! request and waits until the kernel has answered it. netfilter, routing and
//! conntrack all speak it.

// What the kernel says carries bytes that anybody may have sent.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod addresses;
pub mod bridges;
pub mod link;
mod local;
mod message;
mod notices;
mod pod;
mod route;
pub mod routed;
pub mod shared;
pub mod tunnels;
pub mod veth;

pub use addresses::Addresses;
pub use local::MachineAddresses;
pub use message::{ACK, APPEND, Attributes, CREATE, DUMP, ECHO, EXCLUSIVE, Messages, Received};
pub use notices::LinkNotices;
pub use pod::{PodSockets, SecondLink, SecondLinks};
pub(crate) use route::Way;

use message::{DONE, DUMP_INTERRUPTED};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockType, bind, recv, sendto, setsockopt, socket, sockopt,
};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

pub use nix::sys::socket::SockProtocol as Family;

/// As much as a batch may take: the first table of 10,000 policies is more than 32 MB, and the kernel's default
/// fails one of 800 kB. Only what is sent takes memory.
const SEND_BUFFER: usize = 512 << 20;
/// As much as a dump may take before it is read.
const RECEIVE_BUFFER: usize = 32 << 20;
const DATAGRAM: usize = 256 << 10;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot open a netlink socket: {0}")]
    Open(#[source] Errno),
    #[error("cannot send to the kernel: {0}")]
    Send(#[source] Errno),
    #[error("cannot receive from the kernel: {0}")]
    Receive(#[source] Errno),
    #[error("the kernel said no to message {sequence}: {errno}")]
    Refused { sequence: u32, errno: Errno },
    #[error("the kernel's tables changed while they were read")]
    Interrupted,
}

impl Error {
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Open(errno) | Self::Send(errno) | Self::Receive(errno) => Some(*errno),
            Self::Refused { errno, .. } => Some(*errno),
            Self::Interrupted => None,
        }
    }
}

/// A socket to the kernel, of the network namespace the thread was in when it was opened.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    buffer: Vec<u8>,
    /// Hears what nobody asked for.
    is_told: bool,
    /// An answer was not read to its end.
    has_rest: bool,
}

impl Socket {
    pub fn open(family: Family) -> Result<Self, Error> {
        Self::open_for(family, 0)
    }

    /// A socket that also hears what the kernel tells these groups.
    pub fn open_for(family: Family, groups: u32) -> Result<Self, Error> {
        let fd = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, family).map_err(Error::Open)?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, groups)).map_err(Error::Open)?;
        // Only the real root may force them; in a user namespace the system's limit holds, and small batches still fit.
        if setsockopt(&fd, sockopt::SndBufForce, &SEND_BUFFER).is_err() {
            setsockopt(&fd, sockopt::SndBuf, &SEND_BUFFER).map_err(Error::Open)?;
        }
        if setsockopt(&fd, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
            setsockopt(&fd, sockopt::RcvBuf, &RECEIVE_BUFFER).map_err(Error::Open)?;
        }
        Ok(Self::of(fd, groups != 0))
    }

    /// A socket that is open already.
    fn of(fd: OwnedFd, is_told: bool) -> Self {
        Self { fd, buffer: vec![0; DATAGRAM], is_told, has_rest: false }
    }

    pub fn send(&mut self, messages: &Messages) -> Result<(), Error> {
        let kernel = NetlinkAddr::new(0, 0);
        let sent = sendto(self.fd.as_raw_fd(), messages.as_bytes(), &kernel, MsgFlags::empty()).map_err(Error::Send)?;
        if sent == messages.len() { Ok(()) } else { Err(Error::Send(Errno::EMSGSIZE)) }
    }

    /// The next datagram.
    pub fn receive(&mut self) -> Result<&[u8], Error> {
        loop {
            match recv(self.fd.as_raw_fd(), &mut self.buffer, MsgFlags::empty()) {
                Ok(length) => return Ok(self.buffer.get(..length).unwrap_or_default()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(Error::Receive(errno)),
            }
        }
    }

    /// True if a message can be received. The kernel reports an overrun once, ahead of the messages; it is skipped here.
    pub fn has_more(&self) -> bool {
        let mut nothing = [0; 1];
        loop {
            match recv(self.fd.as_raw_fd(), &mut nothing, MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT) {
                Ok(_) => return true,
                Err(Errno::ENOBUFS | Errno::EINTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// Throws away what has come in. True if there was anything, or more than the buffer could hold. Does not wait.
    pub(crate) fn discard(&mut self) -> bool {
        self.discard_all_but(|_| true)
    }

    /// Throws away what has come in. True if one of the messages is meant, or there was more than the buffer could hold.
    /// Does not wait.
    pub(crate) fn discard_all_but(&mut self, mut is_meant: impl FnMut(Received<'_>) -> bool) -> bool {
        let mut had_any = false;
        loop {
            match recv(self.fd.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(length) => {
                    let datagram = self.buffer.get(..length).unwrap_or_default();
                    Received::all(datagram).for_each(|message| had_any |= is_meant(message));
                }
                Err(Errno::ENOBUFS) => had_any = true,
                Err(Errno::EINTR) => {}
                Err(_) => return had_any,
            }
        }
    }

    /// Throws away what is left of an earlier answer, so that it is not taken for the next.
    fn drain(&mut self) {
        if !self.is_told && !std::mem::replace(&mut self.has_rest, false) {
            return;
        }
        let nothing = MsgFlags::MSG_DONTWAIT;
        while recv(self.fd.as_raw_fd(), &mut self.buffer, nothing).is_ok() {}
    }

    /// Sends messages the last of which asks to be acknowledged, and waits for
    /// that. The first refusal is the error, whichever message it is for.
    pub fn commit(&mut self, messages: &Messages) -> Result<(), Error> {
        self.commit_echoed(messages, |_| {})
    }

    /// The same, for messages that are echoed as the kernel took them.
    pub fn commit_echoed(&mut self, messages: &Messages, echoed: impl FnMut(Received<'_>)) -> Result<(), Error> {
        let done = self.exchange(messages, echoed);
        self.has_rest |= done.is_err();
        done
    }

    fn exchange(&mut self, messages: &Messages, mut echoed: impl FnMut(Received<'_>)) -> Result<(), Error> {
        let mut wanted = None;
        for message in Received::all(messages.as_bytes()) {
            if message.flags & ACK != 0 {
                wanted = Some(message.sequence);
            }
        }
        let Some(wanted) = wanted else { return self.send(messages) };
        self.drain();
        self.send(messages)?;
        let mut refused: Option<(u32, Errno)> = None;
        loop {
            let datagram = self.receive()?;
            for message in Received::all(datagram) {
                let sequence = message.sequence;
                match message.error_code() {
                    None => echoed(message),
                    Some(code) => {
                        if code != 0 {
                            refused.get_or_insert((sequence, Errno::from_raw(code.wrapping_neg())));
                        }
                        // A batch refused as a whole is answered by its first message alone.
                        if sequence == wanted || (code != 0 && sequence == 1) {
                            let refusal = |(sequence, errno)| Err(Error::Refused { sequence, errno });
                            return refused.map_or(Ok(()), refusal);
                        }
                    }
                }
            }
        }
    }

    /// Sends one request that asks for a dump, and gives every message of the answer.
    pub fn dump(&mut self, request: &Messages, mut each: impl FnMut(Received<'_>)) -> Result<(), Error> {
        self.dump_while(request, |message| {
            each(message);
            true
        })
    }

    /// The same, as long as more is wanted. A socket whose dump was broken off is of no more use.
    pub fn dump_while(&mut self, request: &Messages, mut each: impl FnMut(Received<'_>) -> bool) -> Result<(), Error> {
        self.drain();
        // Dumps are rare: what follows one looks whether all of it was read.
        self.has_rest = true;
        self.send(request)?;
        let mut interrupted = false;
        loop {
            let datagram = self.receive()?;
            for message in Received::all(datagram) {
                interrupted |= message.flags & DUMP_INTERRUPTED != 0 && message.error_code().is_none();
                match (message.kind, message.error_code()) {
                    (DONE, _) | (_, Some(0)) if interrupted => return Err(Error::Interrupted),
                    (DONE, _) | (_, Some(0)) => return Ok(()),
                    (_, Some(code)) => {
                        let (sequence, errno) = (message.sequence, Errno::from_raw(code.wrapping_neg()));
                        return Err(Error::Refused { sequence, errno });
                    }
                    _ if each(message) => {}
                    _ => return Ok(()),
                }
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod hostile_tests;
