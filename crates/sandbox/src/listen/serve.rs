//! The thread that answers.

use super::{OpenPorts, name_in};
use crate::packet::sctp::Packet;
use crate::packet::without_ipv4_header;
use crate::socket::SocketKind;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;
use nix::sys::socket::{MsgFlags, SockaddrStorage, recv, recvfrom, send, sendto};
use rustc_hash::{FxHashMap, FxHashSet};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

const WAKE: u64 = 0;
/// More than any probe sends; a longer stream is echoed in pieces.
const BUFFER: usize = 64 << 10;
const EVENTS: usize = 256;

pub(super) enum ListenerOrder {
    Serve(Served),
    /// Close what is at these addresses, and say when it is done.
    Forget(FxHashSet<IpAddr>, Sender<()>),
    /// Say something, unasked, to whoever came with this name; and say whether anybody had.
    Speak {
        to: u64,
        word: u64,
        done: Sender<bool>,
    },
}

/// A socket, and what to do when it has something to read.
enum Task {
    Accept(TcpListener),
    EchoStream { fd: OwnedFd, client: Option<u64> },
    EchoDatagrams { fd: OwnedFd, clients: FxHashMap<u64, SockaddrStorage> },
    AnswerInit(OwnedFd),
}

pub(super) struct Served {
    task: Task,
    address: IpAddr,
}

impl Served {
    pub(super) fn new(kind: SocketKind, address: IpAddr, fd: OwnedFd) -> Self {
        let task = match kind {
            SocketKind::Tcp => Task::Accept(fd.into()),
            SocketKind::Udp | SocketKind::Icmp => Task::EchoDatagrams { fd, clients: FxHashMap::default() },
            SocketKind::Sctp => Task::AnswerInit(fd),
        };
        Self { task, address }
    }
}

impl AsFd for Served {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.task {
            Task::Accept(listener) => listener.as_fd(),
            Task::EchoStream { fd, .. } | Task::EchoDatagrams { fd, .. } | Task::AnswerInit(fd) => fd.as_fd(),
        }
    }
}

impl Served {
    /// Whether it has a client of this name to speak to.
    fn speak(&self, to: u64, word: u64) -> bool {
        let word = word.to_be_bytes();
        match &self.task {
            Task::EchoStream { fd, client } if *client == Some(to) => {
                send(fd.as_raw_fd(), &word, MsgFlags::MSG_NOSIGNAL).is_ok()
            }
            Task::EchoDatagrams { fd, clients } => {
                let client = clients.get(&to);
                client.is_some_and(|client| sendto(fd.as_raw_fd(), &word, client, MsgFlags::empty()).is_ok())
            }
            _ => false,
        }
    }
}

pub(super) struct Server {
    epoll: Epoll,
    orders: Receiver<ListenerOrder>,
    wake: Arc<EventFd>,
    sctp_ports: OpenPorts,
    served: FxHashMap<u64, Served>,
    last: u64,
    buffer: Vec<u8>,
}

impl Server {
    pub(super) fn new(
        orders: Receiver<ListenerOrder>,
        wake: Arc<EventFd>,
        sctp_ports: OpenPorts,
    ) -> Result<Self, Errno> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&*wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))?;
        let (served, last, buffer) = (FxHashMap::default(), WAKE, vec![0; BUFFER]);
        Ok(Self { epoll, orders, wake, sctp_ports, served, last, buffer })
    }

    /// Until nobody can give orders any more.
    pub(super) fn run(mut self) {
        let mut events = vec![EpollEvent::empty(); EVENTS];
        loop {
            let count = match self.epoll.wait(&mut events, EpollTimeout::NONE) {
                Ok(count) => count,
                Err(Errno::EINTR) => 0,
                Err(_) => return,
            };
            for event in &events[..count] {
                if event.data() == WAKE {
                    let _ = self.wake.read();
                    if !self.take_orders() {
                        return;
                    }
                } else {
                    self.attend(event.data());
                }
            }
        }
    }

    fn take_orders(&mut self) -> bool {
        loop {
            match self.orders.try_recv() {
                Ok(ListenerOrder::Serve(served)) => self.serve(served),
                Ok(ListenerOrder::Forget(addresses, done)) => {
                    self.served.retain(|_, served| !addresses.contains(&served.address));
                    let _ = done.send(());
                }
                Ok(ListenerOrder::Speak { to, word, done }) => {
                    let _ = done.send(self.served.values().any(|served| served.speak(to, word)));
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn serve(&mut self, served: Served) {
        self.last += 1;
        if self.epoll.add(&served, EpollEvent::new(EpollFlags::EPOLLIN, self.last)).is_ok() {
            self.served.insert(self.last, served);
        }
    }

    fn attend(&mut self, token: u64) {
        // It may have been forgotten since the event was told.
        let Some(served) = self.served.get_mut(&token) else { return };
        match &mut served.task {
            Task::Accept(listener) => {
                let address = served.address;
                let accepted = accept(listener);
                accepted.into_iter().for_each(|task| self.serve(Served { task, address }));
            }
            Task::EchoStream { fd, client } => {
                if !echo_stream(fd, client, &mut self.buffer) {
                    self.served.remove(&token);
                }
            }
            Task::EchoDatagrams { fd, clients } => echo_datagrams(fd, clients, &mut self.buffer),
            Task::AnswerInit(fd) => {
                let is_open = |port| {
                    let ports = self.sctp_ports.lock().unwrap_or_else(PoisonError::into_inner);
                    ports.contains(&SocketAddr::new(served.address, port))
                };
                answer_inits(fd, &mut self.buffer, |packet| {
                    let packet = if served.address.is_ipv4() { without_ipv4_header(packet) } else { packet };
                    let packet = Packet::read(packet)?;
                    packet.answer(is_open(packet.to_port))
                });
            }
        }
    }
}

fn accept(listener: &TcpListener) -> Vec<Task> {
    let mut accepted = Vec::new();
    loop {
        match listener.accept() {
            Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                accepted.push(Task::EchoStream { fd: stream.into(), client: None });
            }
            Ok(_) => {}
            Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::ECONNABORTED) => {}
                // Too many files are open: the event stays, so do not spin on it.
                Some(Errno::EMFILE | Errno::ENFILE) => {
                    std::thread::sleep(Duration::from_millis(1));
                    return accepted;
                }
                _ => return accepted,
            },
        }
    }
}

/// Whether the stream goes on.
fn echo_stream(fd: &OwnedFd, client: &mut Option<u64>, buffer: &mut [u8]) -> bool {
    let fd = fd.as_raw_fd();
    match recv(fd, buffer, MsgFlags::empty()) {
        Ok(0) => false,
        Ok(length) => {
            *client = client.or(name_in(&buffer[..length]));
            // A client that does not read what it wrote is none of ours.
            send(fd, &buffer[..length], MsgFlags::MSG_NOSIGNAL) == Ok(length)
        }
        Err(errno) => matches!(errno, Errno::EAGAIN | Errno::EINTR),
    }
}

fn echo_datagrams(fd: &OwnedFd, clients: &mut FxHashMap<u64, SockaddrStorage>, buffer: &mut [u8]) {
    while let Some((length, from)) = datagram(fd, buffer) {
        clients.extend(name_in(&buffer[..length]).map(|name| (name, from)));
        let _ = sendto(fd.as_raw_fd(), &buffer[..length], &from, MsgFlags::empty());
    }
}

fn answer_inits(fd: &OwnedFd, buffer: &mut [u8], answer: impl Fn(&[u8]) -> Option<Packet>) {
    while let Some((length, from)) = datagram(fd, buffer) {
        if let Some(answer) = answer(&buffer[..length]) {
            let _ = sendto(fd.as_raw_fd(), &answer.write(), &from, MsgFlags::empty());
        }
    }
}

/// An ICMP error for an earlier answer may come first: it is taken off and passed over.
fn datagram(fd: &OwnedFd, buffer: &mut [u8]) -> Option<(usize, SockaddrStorage)> {
    loop {
        match recvfrom::<SockaddrStorage>(fd.as_raw_fd(), buffer) {
            Ok((length, Some(from))) => return Some((length, from)),
            Ok((_, None)) | Err(Errno::EINTR | Errno::ECONNREFUSED | Errno::EHOSTUNREACH) => {}
            Err(_) => return None,
        }
    }
}
