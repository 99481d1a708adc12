//! Themis' servers, asked over gRPC (`service.PDP`, cleartext HTTP/2). One
//! thread of its own has the sockets; whoever asks waits for an answer, and
//! never longer than the time-out, whatever a server does: `pool` chooses among
//! servers, `connection` keeps one connected, `exchange` is one stream.
//!
//! ```text
//!  ask ──► slot in the queue? ──► pool: a stream ──► exchange ──► answer
//!           no: busy, at once       │ none free: wait    │ fails: another server
//!                                   └── no server: connection_timeout ──► error
//! ```

mod connection;
mod exchange;
mod pool;

use bytes::Bytes;
use pool::Pool;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tokio::runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{LocalSet, spawn_local};

/// Whom to ask, and how.
#[derive(Clone, Debug)]
pub struct RemoteSettings {
    /// `HOST:PORT` each.
    pub endpoints: Vec<String>,
    /// Streams to each server, on each of which one request is under way; with none, each request is
    /// a call of its own.
    pub streams: usize,
    pub balance: Balance,
    /// How long a request waits for any server to be connected; zero: not at all.
    pub connection_timeout: Duration,
    /// How long a request takes at most, from its first wait to its answer.
    pub request_timeout: Duration,
    /// How many requests may be under way or waiting; one more is refused at once.
    pub queue: usize,
}

impl RemoteSettings {
    /// These servers, with the defaults.
    pub fn of(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            streams: 10,
            balance: Balance::RoundRobin,
            connection_timeout: Duration::from_secs(1),
            request_timeout: Duration::from_secs(2),
            queue: 1024,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Balance {
    /// Each server in turn.
    RoundRobin,
    /// One server until it has no free stream, then the next.
    HotSpot,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RemoteError {
    #[error("{0} requests are under way already")]
    Busy(usize),
    #[error("no server is connected")]
    NoServer,
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    #[error("{0}")]
    Failed(String),
    #[error("the client has ended")]
    Ended,
}

/// What is asked, until it is answered.
struct Ask {
    body: Bytes,
    deadline: Instant,
    reply: SyncSender<Result<Bytes, RemoteError>>,
    _slot: QueueSlot,
}

impl Ask {
    /// Takes all of it, so that its slot is kept until now.
    fn answer(self, answer: Result<Bytes, RemoteError>) {
        // Whoever has stopped waiting needs none.
        let _ = self.reply.try_send(answer);
    }
}

/// A slot in the queue, given back when it is dropped.
struct QueueSlot(Arc<AtomicUsize>);

impl Drop for QueueSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whoever may ask, from any thread. Its own thread ends with it.
#[derive(Debug)]
pub struct Client {
    asks: UnboundedSender<Ask>,
    taken: Arc<AtomicUsize>,
    queue: usize,
    timeout: Duration,
}

impl std::fmt::Debug for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ask").field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

impl Client {
    /// Servers are connected to from now on; none has to be there yet.
    pub fn start(settings: RemoteSettings) -> io::Result<Self> {
        let (asks, received) = unbounded_channel();
        let (queue, timeout) = (settings.queue, settings.request_timeout);
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        std::thread::Builder::new().name("themis".into()).spawn(move || {
            LocalSet::new().block_on(&runtime, serve(settings, received));
            // A name that is being looked up is waited for by nobody.
            runtime.shutdown_background();
        })?;
        Ok(Self { asks, taken: Arc::default(), queue, timeout })
    }

    /// How long an answer is waited for.
    pub fn patience(&self) -> Duration {
        self.timeout
    }

    /// Asks, and waits for the answer as long as the time-out.
    pub fn ask(&self, body: Vec<u8>) -> Result<Bytes, RemoteError> {
        self.ask_until(body, Instant::now() + self.timeout)
    }

    /// Asks, and waits for the answer until the deadline.
    pub fn ask_until(&self, body: Vec<u8>, deadline: Instant) -> Result<Bytes, RemoteError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(RemoteError::TimedOut(self.timeout));
        }
        let answer = self.send(body.into(), deadline)?;
        match answer.recv_timeout(left) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => Err(RemoteError::TimedOut(self.timeout)),
            Err(RecvTimeoutError::Disconnected) => Err(RemoteError::Ended),
        }
    }

    fn send(&self, body: Bytes, deadline: Instant) -> Result<Receiver<Result<Bytes, RemoteError>>, RemoteError> {
        let slot = QueueSlot(self.taken.clone());
        if self.taken.fetch_add(1, Ordering::Relaxed) >= self.queue {
            return Err(RemoteError::Busy(self.queue));
        }
        let (reply, answer) = sync_channel(1);
        let ask = Ask { body, deadline, reply, _slot: slot };
        self.asks.send(ask).map_err(|_| RemoteError::Ended)?;
        Ok(answer)
    }
}

/// Ends when nobody can ask any more.
async fn serve(settings: RemoteSettings, mut asks: UnboundedReceiver<Ask>) {
    let pool = Rc::new(Pool::new(settings));
    for at in 0..pool.len() {
        spawn_local(connection::keep(pool.clone(), at));
    }
    while let Some(ask) = asks.recv().await {
        let pool = pool.clone();
        spawn_local(async move {
            let answer = pool.ask(&ask.body, ask.deadline.into()).await;
            ask.answer(answer);
        });
    }
}
