//! A client in a pod: many questions at once, each with a socket of its own,
//! in one thread, and what it opens with the answers.

use super::opening::{Opening, Openings, Reached};
use super::stream::{framed, take_message};
use crate::error::Error;
use crate::limits;
use crate::probe::{Measured, Ports, ProbeSource, nonce};
use crate::socket::{self, SocketKind};
use namewall_scenario::ANSWER_TIMEOUT;
use namewall_scenario::zones::{Message, Name, Rcode, RecordType, Transport};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage};
use nix::sys::socket::{bind, recv, send, setsockopt, socket as open_socket, sockopt};
use rustc_hash::FxHashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

const BUFFER: usize = 64 << 10;

/// A question, and how it is asked.
#[derive(Clone, Debug)]
pub struct Ask {
    pub server: SocketAddr,
    pub name: Name,
    pub kind: RecordType,
    /// None: UDP, and TCP where the answer is truncated.
    pub via: Option<Transport>,
    /// The size the client takes over UDP, if it speaks EDNS0.
    pub edns: Option<u16>,
    /// Letters are asked for in either case, by chance, and must come back so.
    pub mixed_case: bool,
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heard {
    pub rcode: Rcode,
    pub truncated: bool,
    /// There is no record in the answer.
    pub is_empty: bool,
    /// Every address in the answer, whoever's it is.
    pub addresses: Vec<IpAddr>,
    pub bytes: Vec<u8>,
    /// What it came by in the end.
    pub via: Transport,
    pub took: Duration,
    /// What came of the connections that were opened at once.
    pub reached: Vec<(IpAddr, Measured)>,
}

/// What a client asks.
#[derive(Clone, Copy, Debug)]
pub struct Questions<'a> {
    pub asks: &'a [Ask],
    pub at_once: usize,
    /// Opened with each answer in hand, before the next is looked at.
    pub then: Option<&'a Opening>,
}

/// Asks from there. None: there was no answer in time, or the server cannot be reached.
pub(crate) fn ask(from: &ProbeSource, questions: &Questions<'_>, ports: &Ports) -> Result<Vec<Option<Heard>>, Error> {
    let at_once = questions.at_once.clamp(1, limits::probes_at_once());
    let source = from.source;
    from.namespace.enter(|| Client::new(source, questions, ports)?.run(at_once))?
}

/// What a socket waits for.
enum LookupStage {
    Datagram,
    Connecting,
    /// What has come of a message and its length.
    Stream(Vec<u8>),
}

struct Asking {
    fd: OwnedFd,
    stage: LookupStage,
    query: Message,
    bytes: Vec<u8>,
    started: Instant,
}

struct Client<'a> {
    source: IpAddr,
    asks: &'a [Ask],
    epoll: Epoll,
    under_way: FxHashMap<usize, Asking>,
    heard: Vec<Option<Heard>>,
    openings: Option<Openings<'a>>,
    buffer: Vec<u8>,
}

/// What a socket has brought.
enum News {
    Nothing,
    /// It will bring nothing more.
    End,
    Message(Vec<u8>),
}

impl<'a> Client<'a> {
    fn new(source: IpAddr, questions: &Questions<'a>, ports: &'a Ports) -> Result<Self, Error> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(Error::Watch)?;
        let asks = questions.asks;
        let (under_way, heard, buffer) = (FxHashMap::default(), vec![None; asks.len()], vec![0; BUFFER]);
        let openings = questions.then.map(|opening| Openings::new(opening, ports, asks.len() as u64));
        Ok(Self { source, asks, epoll, under_way, heard, openings, buffer })
    }

    fn run(mut self, at_once: usize) -> Result<Vec<Option<Heard>>, Error> {
        let mut events = vec![EpollEvent::empty(); 256];
        let mut next = 0;
        loop {
            while next < self.asks.len() && self.busy() < at_once {
                let via = self.asks[next].via.unwrap_or(Transport::Udp);
                self.start(next, via)?;
                next += 1;
            }
            if self.busy() == 0 {
                return Ok(self.heard);
            }
            let count = match self.epoll.wait(&mut events, self.patience()) {
                Err(Errno::EINTR) => 0,
                result => result.map_err(Error::Watch)?,
            };
            for event in &events[..count] {
                match &mut self.openings {
                    Some(openings) if event.data() >= self.asks.len() as u64 => openings.attend(event.data()),
                    _ => self.attend(event.data() as usize)?,
                }
            }
            let now = Instant::now();
            self.under_way.retain(|_, asking| now < asking.started + ANSWER_TIMEOUT);
            if let Some(openings) = &mut self.openings {
                openings.expire(now);
                for Reached { ask, to, measured } in openings.reached.drain(..) {
                    self.heard[ask].iter_mut().for_each(|heard| heard.reached.push((to, measured)));
                }
            }
        }
    }

    /// Questions that are not done with.
    fn busy(&self) -> usize {
        self.under_way.len() + self.openings.as_ref().map_or(0, Openings::asks)
    }

    /// Until the first that is under way has waited for long enough.
    fn patience(&self) -> EpollTimeout {
        let answers = self.under_way.values().map(|asking| asking.started + ANSWER_TIMEOUT).min();
        let connections = self.openings.as_ref().and_then(Openings::soonest);
        let soonest = answers.into_iter().chain(connections).min().unwrap_or_else(Instant::now);
        // Rounded up, so that the last part of a millisecond is not spent spinning.
        let left = soonest.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        EpollTimeout::try_from(left).unwrap_or(EpollTimeout::MAX)
    }

    fn start(&mut self, at: usize, via: Transport) -> Result<(), Error> {
        let ask = &self.asks[at];
        let dice = nonce();
        let name = if ask.mixed_case { ask.name.with_mixed_case(dice) } else { ask.name.clone() };
        let query = Message { edns: ask.edns, ..Message::query((dice >> 48) as u16, name, ask.kind) };
        let bytes = query.write();
        let failed = |source| Error::Open { from: self.source, to: ask.server, source };
        let kind = if via == Transport::Tcp { SocketKind::Tcp } else { SocketKind::Udp };
        let fd = open(kind, self.source).map_err(failed)?;
        let (stage, interest) = match via {
            Transport::Udp => (LookupStage::Datagram, EpollFlags::EPOLLIN),
            Transport::Tcp => (LookupStage::Connecting, EpollFlags::EPOLLOUT),
        };
        let sent = socket::start(&fd, kind, ask.server).and_then(|()| match via {
            Transport::Udp => send(fd.as_raw_fd(), &bytes, MsgFlags::empty()).map(drop),
            Transport::Tcp => Ok(()),
        });
        if sent.is_err() {
            return Ok(());
        }
        self.epoll.add(&fd, EpollEvent::new(interest, at as u64)).map_err(Error::Watch)?;
        self.under_way.insert(at, Asking { fd, stage, query, bytes, started: Instant::now() });
        Ok(())
    }

    fn attend(&mut self, at: usize) -> Result<(), Error> {
        let Some(asking) = self.under_way.get_mut(&at) else { return Ok(()) };
        loop {
            match asking.look(&mut self.buffer) {
                News::Nothing => break,
                News::End => {
                    self.under_way.remove(&at);
                    return Ok(());
                }
                News::Message(bytes) => {
                    let Some(heard) = asking.read(bytes, self.asks[at].mixed_case) else { continue };
                    self.under_way.remove(&at);
                    if heard.truncated && self.asks[at].via.is_none() && heard.via == Transport::Udp {
                        return self.start(at, Transport::Tcp);
                    }
                    if let Some(openings) = &mut self.openings {
                        openings.start(&self.epoll, at, &heard.addresses)?;
                    }
                    self.heard[at] = Some(heard);
                    return Ok(());
                }
            }
        }
        if let LookupStage::Stream(_) = asking.stage {
            let mut event = EpollEvent::new(EpollFlags::EPOLLIN, at as u64);
            self.epoll.modify(&asking.fd, &mut event).map_err(Error::Watch)?;
        }
        Ok(())
    }
}

impl Asking {
    fn look(&mut self, buffer: &mut [u8]) -> News {
        let fd = self.fd.as_raw_fd();
        match &mut self.stage {
            LookupStage::Datagram => match recv(fd, buffer, MsgFlags::empty()) {
                Ok(length) => News::Message(buffer[..length].to_vec()),
                Err(Errno::EAGAIN | Errno::EINTR) => News::Nothing,
                Err(_) => News::End,
            },
            LookupStage::Connecting => match socket::connected(&self.fd) {
                None => News::Nothing,
                Some(Err(_)) => News::End,
                Some(Ok(())) => {
                    // A query always fits an empty buffer.
                    let query = framed(&self.bytes);
                    match send(fd, &query, MsgFlags::MSG_NOSIGNAL) {
                        Ok(length) if length == query.len() => {
                            self.stage = LookupStage::Stream(Vec::new());
                            News::Nothing
                        }
                        _ => News::End,
                    }
                }
            },
            LookupStage::Stream(received) => {
                if let Some(message) = take_message(received) {
                    return News::Message(message);
                }
                match recv(fd, buffer, MsgFlags::empty()) {
                    Ok(0) => News::End,
                    Ok(length) => {
                        received.extend(&buffer[..length]);
                        take_message(received).map_or(News::Nothing, News::Message)
                    }
                    Err(Errno::EAGAIN | Errno::EINTR) => News::Nothing,
                    Err(_) => News::End,
                }
            }
        }
    }

    /// What is no answer to the question is passed over, as resolvers do.
    fn read(&self, bytes: Vec<u8>, exactly: bool) -> Option<Heard> {
        let message = Message::read(&bytes).ok().filter(|message| message.answers(&self.query))?;
        let names = [&message, &self.query].map(|message| message.question.as_ref().map(|question| &question.name));
        if let ([Some(echoed), Some(asked)], true) = (names, exactly)
            && !echoed.is_exactly(asked)
        {
            return None;
        }
        let via = if matches!(self.stage, LookupStage::Datagram) { Transport::Udp } else { Transport::Tcp };
        let (rcode, truncated, is_empty) = (message.rcode, message.truncated, message.answer.is_empty());
        let addresses = message.addresses().collect();
        let took = self.started.elapsed();
        Some(Heard { rcode, truncated, is_empty, addresses, bytes, via, took, reached: Vec::new() })
    }
}

/// A socket at a port of the kernel's choosing: a forger must guess it.
fn open(kind: SocketKind, source: IpAddr) -> Result<OwnedFd, Errno> {
    let family = if source.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let (sort, protocol) = match kind {
        SocketKind::Tcp => (SockType::Stream, SockProtocol::Tcp),
        _ => (SockType::Datagram, SockProtocol::Udp),
    };
    let fd = open_socket(family, sort, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, protocol)?;
    if kind == SocketKind::Tcp {
        // It ends with a reset, and its port is free at once.
        setsockopt(&fd, sockopt::Linger, &nix::libc::linger { l_onoff: 1, l_linger: 0 })?;
    }
    bind(fd.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(source, 0)))?;
    Ok(fd)
}
