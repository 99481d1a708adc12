//! Datagrams, many a call.

use crate::wire::LONGEST;
use anyhow::Result;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, MultiHeaders, SockaddrIn, recvmmsg, sendmsg, setsockopt, sockopt};
use std::cmp::Reverse;
use std::io::{IoSlice, IoSliceMut};
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;

/// How many at most. A few tenths of a millisecond of work.
pub(crate) const BATCH: usize = 64;
/// With the usual 208 KiB bursts are lost.
const BUFFER: usize = 4 << 20;

/// Neither waits nor drops.
pub(crate) fn open(at: SocketAddrV4) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(at)?;
    socket.set_nonblocking(true)?;
    if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER).is_err() {
        setsockopt(&socket, sockopt::RcvBuf, &BUFFER)?;
    }
    Ok(socket)
}

/// Where datagrams are received.
#[derive(Debug)]
pub(crate) struct Inbox {
    buffers: Vec<[u8; LONGEST]>,
    headers: MultiHeaders<SockaddrIn>,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self { buffers: vec![[0; LONGEST]; BATCH], headers: MultiHeaders::preallocate(BATCH, None) }
    }

    /// Takes what is there, up to a batch.
    pub(crate) fn receive(&mut self, socket: &UdpSocket, mut take: impl FnMut(&[u8], SockaddrIn)) -> Result<(), Errno> {
        let mut slices: Vec<_> = self.buffers.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
        let flags = MsgFlags::MSG_DONTWAIT;
        match recvmmsg(socket.as_raw_fd(), &mut self.headers, slices.iter_mut(), flags, None) {
            Ok(messages) => {
                for message in messages {
                    if let (Some(bytes), Some(from)) = (message.iovs().next(), message.address) {
                        take(bytes, from);
                    }
                }
                Ok(())
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

/// Where datagrams wait to be sent.
///
/// Those of one length for one receiver, and one shorter, go down to it as a single one, and
/// are cut apart there: a seventh of the work, so that whoever asks and answers
/// is not what limits a forwarder. To its sockets nothing looks different.
#[derive(Debug)]
pub(crate) struct Outbox {
    messages: Vec<Vec<u8>>,
    to: Vec<Option<SockaddrIn>>,
}

impl Outbox {
    pub(crate) fn new() -> Self {
        Self { messages: vec![Vec::new(); BATCH], to: Vec::with_capacity(BATCH) }
    }

    /// Keeps what `write` writes, if it says so. A batch at most fits.
    pub(crate) fn put(&mut self, to: Option<SockaddrIn>, write: impl FnOnce(&mut Vec<u8>) -> Option<()>) {
        if let Some(message) = self.messages.get_mut(self.to.len())
            && write(message).is_some()
        {
            self.to.push(to);
        }
    }

    pub(crate) fn send(&mut self, socket: &UdpSocket) -> Result<(), Errno> {
        let mut waiting: Vec<_> = self.messages.iter().zip(self.to.drain(..)).collect();
        waiting.sort_by_key(|(message, to)| (to.map(|to| to.port()), Reverse(message.len())));
        let mut rest = &waiting[..];
        while let Some(((first, to), _)) = rest.split_first() {
            let is_alike = |at: &usize| rest[*at].1 == *to && rest[*at - 1].0.len() == first.len();
            let (alike, others) = rest.split_at(1 + (1..rest.len()).take_while(is_alike).count());
            rest = others;
            let slices: Vec<_> = alike.iter().map(|(message, _)| IoSlice::new(message)).collect();
            let (message, to) = alike[0];
            let length = message.len() as u16;
            let cut = [ControlMessage::UdpGsoSegments(&length)];
            let control = if alike.len() > 1 { &cut[..] } else { &[] };
            sendmsg(socket.as_raw_fd(), &slices, control, MsgFlags::empty(), to.as_ref())?;
        }
        Ok(())
    }
}
