//! The thread of the servers. Slow answers wait in it; nothing waits for them.

use super::Shared;
use super::stream::Stream;
use namewall_scenario::zones::{Reply, Sender, Transport};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;
use nix::sys::socket::{MsgFlags, SockaddrStorage, recvfrom, sendto};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

const STOP: u64 = 0;
const BUFFER: usize = 64 << 10;
const EVENTS: usize = 256;
/// A probe asks whether a port is open, with fewer bytes than any query has.
const HEADER: usize = 12;

/// The UDP side of a server.
#[derive(Debug)]
pub(super) struct Datagrams {
    pub(super) server: IpAddr,
    pub(super) fd: OwnedFd,
    /// Where forged answers come from, if any do.
    pub(super) other_port: Option<OwnedFd>,
    pub(super) other_address: Option<OwnedFd>,
}

impl Datagrams {
    fn sender(&self, sender: Sender) -> Option<&OwnedFd> {
        match sender {
            Sender::Server => Some(&self.fd),
            Sender::OtherPort => self.other_port.as_ref(),
            Sender::OtherAddress => self.other_address.as_ref(),
        }
    }
}

#[derive(Debug)]
pub(super) enum Served {
    Datagrams(Datagrams),
    Accept(IpAddr, TcpListener),
    Stream(Stream),
}

impl AsFd for Served {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Datagrams(datagrams) => datagrams.fd.as_fd(),
            Self::Accept(_, listener) => listener.as_fd(),
            Self::Stream(stream) => stream.as_fd(),
        }
    }
}

/// A reply whose time has not come.
struct Waiting {
    socket: u64,
    /// None: the socket is a stream.
    to: Option<SockaddrStorage>,
    reply: Reply,
}

pub(super) struct Thread {
    zones: Shared,
    stop: Arc<EventFd>,
    idle: Duration,
    epoll: Epoll,
    served: FxHashMap<u64, Served>,
    last: u64,
    waiting: FxHashMap<u64, Waiting>,
    /// When which is due; of two that are due at once, the first comes first.
    due: BinaryHeap<Reverse<(Instant, u64)>>,
    /// How many replies there have been.
    replies: u64,
}

impl Thread {
    pub(super) fn new(zones: Shared, stop: Arc<EventFd>, idle: Duration) -> Result<Self, Errno> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&*stop, EpollEvent::new(EpollFlags::EPOLLIN, STOP))?;
        let (served, waiting, due) = Default::default();
        Ok(Self { zones, stop, idle, epoll, served, last: STOP, waiting, due, replies: 0 })
    }

    pub(super) fn serve(&mut self, served: Served) -> Result<u64, Errno> {
        self.last += 1;
        self.epoll.add(&served, EpollEvent::new(EpollFlags::EPOLLIN, self.last))?;
        self.served.insert(self.last, served);
        Ok(self.last)
    }

    pub(super) fn run(mut self) {
        let mut events = vec![EpollEvent::empty(); EVENTS];
        let mut buffer = vec![0; BUFFER];
        loop {
            let count = match self.epoll.wait(&mut events, self.patience()) {
                Ok(count) => count,
                Err(Errno::EINTR) => 0,
                Err(_) => return,
            };
            for event in &events[..count] {
                if event.data() == STOP {
                    let _ = self.stop.read();
                    return;
                }
                self.attend(event.data(), event.events(), &mut buffer);
            }
            self.send_due();
            self.close_idle();
        }
    }

    /// Until the next reply is due, or a connection has been idle for too long.
    fn patience(&self) -> EpollTimeout {
        let now = Instant::now();
        let reply = self.due.peek().map(|Reverse((due, _))| due.saturating_duration_since(now));
        let streams = self.served.values().filter_map(|served| match served {
            Served::Stream(stream) if stream.awaited == 0 => {
                Some((stream.last_heard + self.idle).saturating_duration_since(now))
            }
            _ => None,
        });
        // Rounded up, so that the last part of a millisecond is not spent spinning.
        let soonest = reply.into_iter().chain(streams).min().map(|wait| wait + Duration::from_millis(1));
        soonest.map_or(EpollTimeout::NONE, |wait| EpollTimeout::try_from(wait).unwrap_or(EpollTimeout::MAX))
    }

    fn attend(&mut self, socket: u64, events: EpollFlags, buffer: &mut [u8]) {
        // It may have been closed since the event was told.
        match self.served.get_mut(&socket) {
            None => {}
            Some(Served::Datagrams(_)) => self.hear_datagrams(socket, buffer),
            Some(Served::Accept(server, listener)) => {
                let accepted: Vec<Stream> = accept(*server, listener);
                for stream in accepted {
                    // One that cannot be watched is closed.
                    let _ = self.serve(Served::Stream(stream));
                }
            }
            Some(Served::Stream(stream)) => {
                let goes_on = !events.contains(EpollFlags::EPOLLOUT) || stream.flush();
                self.keep(socket, goes_on);
                if events.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR) {
                    self.hear_stream(socket, buffer);
                }
            }
        }
    }

    /// Watches a stream for what it waits for; or closes it.
    fn keep(&mut self, socket: u64, goes_on: bool) {
        let Some(Served::Stream(stream)) = self.served.get(&socket) else { return };
        let out = if stream.has_unsent() { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
        let mut event = EpollEvent::new(EpollFlags::EPOLLIN | out, socket);
        if !goes_on || self.epoll.modify(stream, &mut event).is_err() {
            self.served.remove(&socket);
        }
    }

    fn hear_datagrams(&mut self, socket: u64, buffer: &mut [u8]) {
        loop {
            let Some(Served::Datagrams(datagrams)) = self.served.get(&socket) else { return };
            let (length, from) = match recvfrom::<SockaddrStorage>(datagrams.fd.as_raw_fd(), buffer) {
                Ok((length, Some(from))) => (length, from),
                // An ICMP error for an earlier answer is passed over.
                Ok((_, None)) | Err(Errno::EINTR | Errno::ECONNREFUSED | Errno::EHOSTUNREACH) => continue,
                Err(_) => return,
            };
            let message = &buffer[..length];
            if length < HEADER {
                let _ = sendto(datagrams.fd.as_raw_fd(), message, &from, MsgFlags::empty());
                continue;
            }
            let replies = self.respond(datagrams.server, message, Transport::Udp);
            self.post(socket, Some(from), replies);
        }
    }

    fn hear_stream(&mut self, socket: u64, buffer: &mut [u8]) {
        let Some(Served::Stream(stream)) = self.served.get_mut(&socket) else { return };
        let (server, (messages, goes_on)) = (stream.server, stream.receive(buffer));
        for message in messages {
            let replies = self.respond(server, &message, Transport::Tcp);
            if let Some(Served::Stream(stream)) = self.served.get_mut(&socket) {
                stream.awaited += replies.len();
            }
            self.post(socket, None, replies);
        }
        if !goes_on {
            self.served.remove(&socket);
        }
    }

    fn respond(&self, server: IpAddr, query: &[u8], transport: Transport) -> Vec<Reply> {
        self.zones.lock().unwrap_or_else(PoisonError::into_inner).respond(server, query, transport)
    }

    /// Sends them, in order, each when it is due.
    fn post(&mut self, socket: u64, to: Option<SockaddrStorage>, replies: Vec<Reply>) {
        for reply in replies {
            let waiting = Waiting { socket, to, reply };
            if waiting.reply.delay.is_zero() {
                self.send(waiting);
                continue;
            }
            self.replies += 1;
            self.due.push(Reverse((Instant::now() + waiting.reply.delay, self.replies)));
            self.waiting.insert(self.replies, waiting);
        }
    }

    fn send_due(&mut self) {
        let now = Instant::now();
        while let Some(Reverse((due, number))) = self.due.peek().copied() {
            if due > now {
                return;
            }
            self.due.pop();
            if let Some(waiting) = self.waiting.remove(&number) {
                self.send(waiting);
            }
        }
    }

    fn send(&mut self, Waiting { socket, to, reply }: Waiting) {
        match (self.served.get_mut(&socket), to) {
            (Some(Served::Datagrams(datagrams)), Some(to)) => {
                if let Some(fd) = datagrams.sender(reply.sender) {
                    let _ = sendto(fd.as_raw_fd(), &reply.bytes, &to, MsgFlags::empty());
                }
            }
            (Some(Served::Stream(stream)), None) => {
                stream.awaited -= 1;
                let goes_on = stream.send(&reply.bytes);
                self.keep(socket, goes_on);
            }
            _ => {}
        }
    }

    /// Whoever waits for an answer is not idle.
    fn close_idle(&mut self) {
        let (now, idle) = (Instant::now(), self.idle);
        self.served.retain(|_, served| match served {
            Served::Stream(stream) => stream.awaited > 0 || now < stream.last_heard + idle,
            _ => true,
        });
    }
}

fn accept(server: IpAddr, listener: &TcpListener) -> Vec<Stream> {
    let mut accepted = Vec::new();
    while let Ok((stream, _)) = listener.accept() {
        if stream.set_nonblocking(true).is_ok() && stream.set_nodelay(true).is_ok() {
            accepted.push(Stream::new(server, stream.into()));
        }
    }
    accepted
}
