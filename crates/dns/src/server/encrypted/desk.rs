//! Where answers are waited for: a loop knows a question of an encrypted connection by its number only, and gives the
//! answer here.
//!
//! ```text
//!   connection ── question, number ──► mailbox of its loop ──► rules, cache, upstreams
//!        ▲                                                              │
//!        └───────────── desk: who waits under this number? ◄── answer ──┘
//! ```

use super::slot::Slot;
use crate::server::lock;
use crate::wire::Header;
use rustc_hash::FxHashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{mpsc, oneshot};

/// An answer that goes out, and the slot that it holds until then.
pub(super) struct Outgoing {
    pub(super) message: Vec<u8>,
    pub(super) slot: Slot,
}

/// Who waits for an answer.
pub(super) enum ReplyTo {
    /// A connection that writes answers as they come. It gets None if it has left too many unread.
    Stream(mpsc::UnboundedSender<Option<Outgoing>>, Slot),
    /// A request of its own.
    Request(oneshot::Sender<Outgoing>, Slot),
}

/// Questions that are under way, by number.
#[derive(Default)]
pub(in crate::server) struct Desk {
    waiting: Mutex<FxHashMap<u64, ReplyTo>>,
    next: AtomicU64,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}

impl Desk {
    /// Waits for an answer, under the number that is returned.
    pub(super) fn wait(&self, to: ReplyTo) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.waiting).insert(number, to);
        number
    }

    /// Passes an answer on, under the client's own id.
    pub(in crate::server) fn answer(&self, number: u64, message: &[u8], id: u16) {
        let waiting = lock(&self.waiting).remove(&number);
        let mut message = message.to_vec();
        Header::set_id(&mut message, id);
        match waiting {
            Some(ReplyTo::Stream(to, mut slot)) => {
                let has_room = slot.hold(message.len());
                let _ = to.send(has_room.then_some(Outgoing { message, slot }));
            }
            // Without room the request gets no answer, as if the question had been dropped.
            Some(ReplyTo::Request(to, mut slot)) => {
                let has_room = slot.hold(message.len());
                let _ = has_room.then(|| to.send(Outgoing { message, slot }));
            }
            None => {}
        }
    }

    /// No answer comes any more. Nothing happens if there was one.
    pub(in crate::server) fn close(&self, number: u64) {
        let gone = lock(&self.waiting).remove(&number);
        drop(gone);
    }
}
