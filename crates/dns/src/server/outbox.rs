//! Datagrams that go out, in batches: one system call sends many, and one packet
//! of the kernel's may carry several.

use super::datagrams::BATCH;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, MsgFlags, MultiHeaders, SockaddrIn, SockaddrIn6, SockaddrLike, SockaddrStorage, sendmmsg, sendmsg,
};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::io::IoSlice;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::AsRawFd;

/// So many can be joined in every kernel that can join any.
const MOST_JOINED: usize = 64;
/// Longer messages are not joined: they may not fit a packet of the network.
const LONGEST_JOINED: usize = 1_200;

thread_local! {
    // They hold pointers, so they stay with their thread while the engine changes hands; and they are apart
    // from those to receive by, since they keep pointing at addresses that are gone.
    static SEND4: RefCell<MultiHeaders<SockaddrIn>> = RefCell::new(MultiHeaders::preallocate(BATCH, None));
    static SEND6: RefCell<MultiHeaders<SockaddrIn6>> = RefCell::new(MultiHeaders::preallocate(BATCH, None));
}

/// Where a message stands, and whom it is for, unless the socket is connected.
#[derive(Clone, Debug)]
struct Message {
    range: Range<usize>,
    to: Option<SocketAddr>,
}

/// What goes out over one socket, in whatever order.
///
/// Most of the time a question costs is its packets' way through the kernel. Messages to one address, of one
/// length and one shorter at the end, can go that way as one and be parted where they leave (UDP_SEGMENT):
/// questions of one moment to an upstream, the two answers of one resolver's look-up.
#[derive(Debug)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    messages: Vec<Message>,
    /// Those that go for themselves.
    alone: Vec<Message>,
    /// Whether the way there has not refused joined messages yet.
    may_join: bool,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self { bytes: Vec::new(), messages: Vec::new(), alone: Vec::new(), may_join: true }
    }

    /// Puts a message in, under this id. Returns its bytes, which may still be changed.
    pub(super) fn push(&mut self, message: &[u8], id: u16, to: Option<SocketAddr>) -> &mut [u8] {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(message);
        crate::wire::Header::set_id(&mut self.bytes[start..], id);
        self.messages.push(Message { range: start..self.bytes.len(), to });
        &mut self.bytes[start..]
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.messages.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Sends all of it; gives how many the kernel would not take.
    pub(super) fn flush(&mut self, socket: &UdpSocket) -> usize {
        self.join(socket);
        self.alone.append(&mut self.messages);
        let (mut unsent, mut from) = (0, 0);
        while from < self.alone.len() {
            let some = &self.alone[from..self.alone.len().min(from + BATCH)];
            from += match self.send_some(socket, some) {
                Ok(count) if count > 0 => count,
                // The first of them cannot be sent: its client is gone, or the buffer is full. The others may be.
                _ => {
                    unsent += 1;
                    1
                }
            };
        }
        self.bytes.clear();
        self.alone.clear();
        unsent
    }

    /// Sends what can go together, and puts aside what cannot.
    fn join(&mut self, socket: &UdpSocket) {
        if !self.may_join || self.messages.len() < 2 {
            return;
        }
        self.messages.sort_unstable_by_key(|message| (message.to, Reverse(message.range.len())));
        let mut rest = &self.messages[..];
        while !rest.is_empty() {
            let (some, others) = rest.split_at(alike(rest));
            let sent = if some.len() > 1 { self.send_joined(socket, some) } else { Err(Errno::EAGAIN) };
            if let Err(error) = sent {
                // An error of an earlier packet is told to whoever comes next; any other is of the way itself.
                self.may_join &= matches!(error, Errno::ECONNREFUSED | Errno::EAGAIN | Errno::ENOBUFS);
                self.alone.extend_from_slice(some);
            }
            rest = others;
        }
        self.messages.clear();
    }

    fn slice(&self, message: &Message) -> IoSlice<'_> {
        IoSlice::new(&self.bytes[message.range.clone()])
    }

    fn send_joined(&self, socket: &UdpSocket, some: &[Message]) -> Result<(), Errno> {
        let slices: Vec<IoSlice<'_>> = some.iter().map(|message| self.slice(message)).collect();
        let each = some[0].range.len() as u16;
        let parted = [ControlMessage::UdpGsoSegments(&each)];
        let to = some[0].to.map(SockaddrStorage::from);
        sendmsg(socket.as_raw_fd(), &slices, &parted, MsgFlags::MSG_DONTWAIT, to.as_ref()).map(drop)
    }

    /// Gives how many went.
    fn send_some(&self, socket: &UdpSocket, some: &[Message]) -> Result<usize, Errno> {
        match some {
            [one] => {
                let to = one.to.map(SockaddrStorage::from);
                sendmsg(socket.as_raw_fd(), &[self.slice(one)], &[], MsgFlags::MSG_DONTWAIT, to.as_ref()).map(|_| 1)
            }
            [Message { to: Some(SocketAddr::V4(_)), .. }, ..] => SEND4.with_borrow_mut(|headers| {
                let v4 = |to| if let Some(SocketAddr::V4(v4)) = to { Some(v4.into()) } else { None };
                let to: Vec<_> = some.iter().map(|message| v4(message.to)).collect();
                send_many(socket, headers, &self.slices(some), &to)
            }),
            _ => SEND6.with_borrow_mut(|headers| {
                let v6 = |to| if let Some(SocketAddr::V6(v6)) = to { Some(v6.into()) } else { None };
                let to: Vec<_> = some.iter().map(|message| v6(message.to)).collect();
                send_many(socket, headers, &self.slices(some), &to)
            }),
        }
    }

    fn slices(&self, some: &[Message]) -> Vec<[IoSlice<'_>; 1]> {
        some.iter().map(|message| [self.slice(message)]).collect()
    }
}

/// Sends to addresses of one family; gives how many went.
fn send_many<A: Copy + SockaddrLike>(
    socket: &UdpSocket,
    headers: &mut MultiHeaders<A>,
    slices: &[[IoSlice<'_>; 1]],
    to: &[Option<A>],
) -> Result<usize, Errno> {
    let sent = sendmmsg(socket.as_raw_fd(), headers, slices, to, [], MsgFlags::MSG_DONTWAIT)?;
    Ok(sent.count())
}

/// How many of the first messages can go as one: to one address, of one length, and one shorter.
fn alike(messages: &[Message]) -> usize {
    let (to, length) = (messages[0].to, messages[0].range.len());
    if length > LONGEST_JOINED {
        return 1;
    }
    let mut behind = messages[1..].iter().zip(messages);
    let is_alike = |(next, last): &(&Message, &Message)| next.to == to && last.range.len() == length;
    (1 + behind.by_ref().take_while(is_alike).count()).min(MOST_JOINED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::time::Duration;

    fn messages(lengths: &[(u16, usize)]) -> Vec<Message> {
        let address = |port| (port > 0).then(|| SocketAddr::from(([127, 0, 0, 1], port)));
        lengths.iter().map(|&(port, length)| Message { range: 0..length, to: address(port) }).collect()
    }

    #[test]
    fn those_of_one_length_and_one_shorter_go_together() {
        let alike = |lengths: &[(u16, usize)]| super::alike(&messages(lengths));
        assert_eq!(alike(&[(0, 50)]), 1);
        assert_eq!(alike(&[(0, 50), (0, 50), (0, 40), (0, 40)]), 3);
        assert_eq!(alike(&[(0, 50), (0, 40), (0, 30)]), 2);
        assert_eq!(alike(&[(7, 50), (8, 50)]), 1);
        assert_eq!(alike(&[(7, 50), (7, 50), (8, 40)]), 2);
        assert_eq!(alike(&[(0, 1_300), (0, 1_300)]), 1);
        assert_eq!(alike(&[(0, 50); 200]), MOST_JOINED);
    }

    #[test]
    fn everything_arrives_whole_whatever_its_length() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        other.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut outbox = Outbox::new();
        let mut sent = [BTreeSet::new(), BTreeSet::new()];
        for id in 0..90u16 {
            let (which, length) = (usize::from(id % 3 == 0), 12 + usize::from(id * 7 % 20) * 80);
            let to = if which == 0 { &receiver } else { &other };
            let mut message = vec![id as u8; length];
            outbox.push(&message, id, to.local_addr().ok());
            message[..2].copy_from_slice(&id.to_be_bytes());
            sent[which].insert(message);
        }
        assert_eq!(outbox.flush(&sender), 0);
        for (socket, sent) in [&receiver, &other].into_iter().zip(sent) {
            let mut room = [0; 4096];
            let received: BTreeSet<Vec<u8>> = (0..sent.len())
                .map(|_| socket.recv(&mut room).map(|length| room[..length].to_vec()).unwrap())
                .collect();
            assert_eq!(received, sent);
        }
        assert!(outbox.is_empty() && outbox.may_join);
    }
}
