//! Which server is asked, on which stream, and what becomes of a request whose
//! server fails.

use super::exchange::{Exchange, ExchangeError};
use super::{Balance, RemoteError, RemoteSettings};
use bytes::Bytes;
use h2::client::SendRequest;
use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Calls at once to a server, where there are no streams.
const MOST_CALLS: usize = 100;
/// For how long a server that failed is asked only if there is no other.
const AVOIDED: Duration = Duration::from_secs(1);
/// After how many time-outs in a row a connection is taken for dead.
const MOST_TIMEOUTS: u32 = 2;

pub(super) struct Pool {
    settings: RemoteSettings,
    servers: RefCell<Servers>,
    /// A stream is free, or a server connected.
    changed: Notify,
}

struct Servers {
    all: Vec<Server>,
    next: usize,
}

#[derive(Default)]
struct Server {
    link: Option<Link>,
    /// Counts connections: what belongs to an earlier one is not put back.
    generation: u64,
    idle: Vec<Exchange>,
    busy: usize,
    avoided_until: Option<Instant>,
    timeouts: u32,
    /// Since it was connected.
    has_answered: bool,
}

struct Link {
    sender: SendRequest<Bytes>,
    close: Rc<Notify>,
}

/// Room for one request at a server.
struct Chosen {
    at: usize,
    generation: u64,
    sender: SendRequest<Bytes>,
    idle: Option<Exchange>,
}

impl Pool {
    pub(super) fn new(settings: RemoteSettings) -> Self {
        let all = settings.endpoints.iter().map(|_| Server::default()).collect();
        Self { settings, servers: RefCell::new(Servers { all, next: 0 }), changed: Notify::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.settings.endpoints.len()
    }

    pub(super) fn address(&self, at: usize) -> &str {
        &self.settings.endpoints[at]
    }

    /// Gives what tells that the connection should end.
    pub(super) fn connected(&self, at: usize, sender: SendRequest<Bytes>) -> Rc<Notify> {
        let close = Rc::new(Notify::new());
        let server = &mut self.servers.borrow_mut().all[at];
        server.link = Some(Link { sender, close: close.clone() });
        server.has_answered = false;
        server.timeouts = 0;
        self.changed.notify_waiters();
        close
    }

    /// Whether anything was answered on the connection.
    pub(super) fn disconnected(&self, at: usize) -> bool {
        let mut servers = self.servers.borrow_mut();
        let server = &mut servers.all[at];
        server.link = None;
        server.generation += 1;
        server.busy = 0;
        let (idle, has_answered) = (std::mem::take(&mut server.idle), server.has_answered);
        drop(servers);
        drop(idle);
        self.changed.notify_waiters();
        has_answered
    }

    pub(super) async fn ask(&self, body: &Bytes, deadline: Instant) -> Result<Bytes, RemoteError> {
        let mut tried = vec![false; self.len()];
        let mut failure = None;
        // One try more than there are servers: a connection may have ended unnoticed.
        for _ in 0..=self.len() {
            let chosen = match self.room(&tried, deadline).await {
                Ok(chosen) => chosen,
                Err(error) => return Err(failure.unwrap_or(error)),
            };
            let at = chosen.at;
            tried[at] = true;
            match self.exchange(chosen, body, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(error) if Instant::now() >= deadline => return Err(error),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or(RemoteError::NoServer))
    }

    /// Waits for room at a server: for any to be connected not as long as for a stream.
    async fn room(&self, tried: &[bool], deadline: Instant) -> Result<Chosen, RemoteError> {
        let no_server = deadline.min(Instant::now() + self.settings.connection_timeout);
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(chosen) = self.choose(tried) {
                return Ok(chosen);
            }
            let is_connected = self.servers.borrow().all.iter().any(|server| server.link.is_some());
            let until = if is_connected { deadline } else { no_server };
            if timeout_at(until, changed).await.is_err() {
                let timed_out = RemoteError::TimedOut(self.settings.request_timeout);
                return Err(if is_connected { timed_out } else { RemoteError::NoServer });
            }
        }
    }

    fn choose(&self, tried: &[bool]) -> Option<Chosen> {
        let mut servers = self.servers.borrow_mut();
        let room = if self.settings.streams > 0 { self.settings.streams } else { MOST_CALLS };
        let now = Instant::now();
        let (count, first) = (servers.all.len(), servers.next);
        let has_room = |server: &Server| server.link.is_some() && server.busy < room;
        let is_good = |at: usize, server: &Server| !tried[at] && server.avoided_until.is_none_or(|until| until <= now);
        let turn = || (0..count).map(|step| (first + step) % count);
        let all = &servers.all;
        // Best one that has not failed, then one that this request has not tried, then any.
        let at = turn()
            .find(|at| has_room(&all[*at]) && is_good(*at, &all[*at]))
            .or_else(|| turn().find(|at| has_room(&all[*at]) && !tried[*at]))
            .or_else(|| turn().find(|at| has_room(&all[*at])))?;
        servers.next = match self.settings.balance {
            Balance::RoundRobin => (at + 1) % count,
            Balance::HotSpot => at,
        };
        let server = &mut servers.all[at];
        let sender = server.link.as_ref()?.sender.clone();
        server.busy += 1;
        Some(Chosen { at, generation: server.generation, sender, idle: server.idle.pop() })
    }

    /// One try at one server. Where there are others, it does not take all the time there is.
    async fn exchange(&self, chosen: Chosen, body: &Bytes, deadline: Instant) -> Result<Bytes, RemoteError> {
        let share = self.settings.request_timeout / self.len().clamp(1, 4) as u32;
        let until = deadline.min(Instant::now() + share);
        let Chosen { at, generation, sender, idle } = chosen;
        let is_call = self.settings.streams == 0;
        let exchanged = timeout_at(until, async {
            let mut exchange = match idle {
                Some(exchange) => exchange,
                None => Exchange::open(sender, self.address(at), is_call).await?,
            };
            let answer = exchange.ask(body).await?;
            Ok::<_, ExchangeError>((exchange, answer))
        });
        let exchanged = exchanged.await;
        self.changed.notify_one();
        let mut servers = self.servers.borrow_mut();
        let server = &mut servers.all[at];
        let is_current = server.generation == generation;
        if is_current {
            server.busy = server.busy.saturating_sub(1);
        }
        let error = match exchanged {
            Ok(Ok((exchange, answer))) => {
                if is_current {
                    (server.timeouts, server.avoided_until, server.has_answered) = (0, None, true);
                    // A call is over.
                    server.idle.extend((!is_call).then_some(exchange));
                }
                return Ok(answer);
            }
            Ok(Err(error)) => RemoteError::Failed(format!("{}: {error}", self.address(at))),
            Err(_) if !is_current => return Err(RemoteError::TimedOut(self.settings.request_timeout)),
            Err(_) => {
                server.timeouts += 1;
                if let Some(link) = server.link.as_ref().filter(|_| server.timeouts >= MOST_TIMEOUTS) {
                    link.close.notify_one();
                }
                RemoteError::TimedOut(self.settings.request_timeout)
            }
        };
        server.avoided_until = Some(Instant::now() + AVOIDED);
        Err(error)
    }
}
