//! Connections that a client opens with an answer in hand, before it looks at
//! the next one.

use crate::error::Error;
use crate::probe::{Attempt, Measured, Ports};
use namewall_policy::port::Protocol;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use rustc_hash::FxHashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// What is opened to every address of an answer.
#[derive(Clone, Debug)]
pub struct Opening {
    pub protocol: Protocol,
    /// Of no meaning for ICMP.
    pub port: u16,
    /// The client's addresses; one of the family that is connected to is used.
    pub sources: Vec<IpAddr>,
    /// How long it waits. Less than a second: TCP asks again after that, and what
    /// was dropped at first must not count.
    pub timeout: Duration,
}

/// A connection under way.
struct Tried {
    /// The question whose answer it is for.
    ask: usize,
    to: IpAddr,
    attempt: Attempt,
    started: Instant,
}

/// What became of a connection.
pub(super) struct Reached {
    pub(super) ask: usize,
    pub(super) to: IpAddr,
    pub(super) measured: Measured,
}

pub(super) struct Openings<'a> {
    opening: &'a Opening,
    ports: &'a Ports,
    /// By what they are watched as.
    under_way: FxHashMap<u64, Tried>,
    /// How many each question has under way.
    of: FxHashMap<usize, usize>,
    next: u64,
    pub(super) reached: Vec<Reached>,
}

impl<'a> Openings<'a> {
    /// They are watched as numbers from `first` on.
    pub(super) fn new(opening: &'a Opening, ports: &'a Ports, first: u64) -> Self {
        let (under_way, of, reached) = Default::default();
        Self { opening, ports, under_way, of, next: first, reached }
    }

    /// Opens one to each address.
    pub(super) fn start(&mut self, epoll: &Epoll, ask: usize, addresses: &[IpAddr]) -> Result<(), Error> {
        for &to in addresses {
            let mut sources = self.opening.sources.iter().copied();
            let Some(source) = sources.find(|source| source.is_ipv4() == to.is_ipv4()) else { continue };
            let at = SocketAddr::new(to, self.opening.port);
            let attempt = Attempt::open(self.opening.protocol, source, at, self.ports)?;
            if let Err(errno) = attempt.start() {
                self.reached.push(Reached { ask, to, measured: Measured::from_error(errno) });
                continue;
            }
            let event = EpollEvent::new(attempt.interest() | EpollFlags::EPOLLET, self.next);
            epoll.add(&attempt, event).map_err(Error::Watch)?;
            self.under_way.insert(self.next, Tried { ask, to, attempt, started: Instant::now() });
            *self.of.entry(ask).or_default() += 1;
            self.next += 1;
        }
        Ok(())
    }

    /// Questions whose connections are under way.
    pub(super) fn asks(&self) -> usize {
        self.of.len()
    }

    /// When the first of them has waited for long enough.
    pub(super) fn soonest(&self) -> Option<Instant> {
        self.under_way.values().map(|tried| tried.started + self.opening.timeout).min()
    }

    pub(super) fn attend(&mut self, number: u64) {
        if let Some(measured) = self.under_way.get(&number).and_then(|tried| tried.attempt.look()) {
            self.end(number, measured);
        }
    }

    /// Gives up what has waited for long enough.
    pub(super) fn expire(&mut self, now: Instant) {
        let is_over = |tried: &Tried| now >= tried.started + self.opening.timeout;
        let over: Vec<u64> =
            self.under_way.iter().filter(|(_, tried)| is_over(tried)).map(|(number, _)| *number).collect();
        over.into_iter().for_each(|number| self.end(number, Measured::Silent));
    }

    fn end(&mut self, number: u64, measured: Measured) {
        let Some(Tried { ask, to, .. }) = self.under_way.remove(&number) else { return };
        self.reached.push(Reached { ask, to, measured });
        if let Some(count) = self.of.get_mut(&ask) {
            *count -= 1;
            if *count == 0 {
                self.of.remove(&ask);
            }
        }
    }
}
