//! What a connection has under way, and since when it has been idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// Answers a client may leave unread over one connection, in bytes. With more, a connection over TLS ends, and a request
/// over HTTPS gets an error instead of its answer.
const MOST_UNREAD: usize = 1 << 20;
/// A connection that has something under way, or does not read it, lasts so many idle times.
const STUCK: u32 = 6;

/// What is known of a connection.
#[derive(Debug)]
pub(super) struct Activity {
    begun: Instant,
    /// Milliseconds after it was begun.
    last_used: AtomicU64,
    under_way: AtomicUsize,
    unread: AtomicUsize,
    /// Of all connections together.
    all: Arc<AtomicUsize>,
}

impl Activity {
    pub(super) fn new(all: Arc<AtomicUsize>) -> Self {
        let (last_used, under_way, unread) = Default::default();
        Self { begun: Instant::now(), last_used, under_way, unread, all }
    }

    /// A whole question came, or an answer went out.
    pub(super) fn touch(&self) {
        let elapsed = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_used.store(elapsed, Ordering::Relaxed);
    }

    pub(super) fn last_used(&self) -> Instant {
        self.begun + Duration::from_millis(self.last_used.load(Ordering::Relaxed))
    }

    /// When it has been idle for long enough, if nothing happens until then.
    pub(super) fn deadline(&self, idle: Duration) -> Instant {
        let is_idle = self.under_way.load(Ordering::Relaxed) == 0;
        self.last_used() + if is_idle { idle } else { idle * STUCK }
    }
}

/// The place of one question among those of its connection, until its answer is written or there is none.
#[derive(Debug)]
pub(super) struct Slot {
    activity: Arc<Activity>,
    held: usize,
    _pipelined: Option<OwnedSemaphorePermit>,
}

impl Slot {
    pub(super) fn new(activity: Arc<Activity>, pipelined: Option<OwnedSemaphorePermit>) -> Self {
        activity.under_way.fetch_add(1, Ordering::Relaxed);
        activity.all.fetch_add(1, Ordering::SeqCst);
        activity.touch();
        Self { activity, held: 0, _pipelined: pipelined }
    }

    /// Holds the bytes of an answer until they are read. False if the client has left too many unread.
    pub(super) fn hold(&mut self, bytes: usize) -> bool {
        let before = self.activity.unread.fetch_add(bytes, Ordering::Relaxed);
        self.held += bytes;
        before + bytes <= MOST_UNREAD
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.activity.unread.fetch_sub(self.held, Ordering::Relaxed);
        self.activity.touch();
        self.activity.under_way.fetch_sub(1, Ordering::Relaxed);
        self.activity.all.fetch_sub(1, Ordering::SeqCst);
    }
}
