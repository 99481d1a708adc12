//! The thread that stores what is known of leases.

use super::{LeaseRecord, file};
use crate::error::with_causes;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Leases that are new are stored within this time. Even the shortest lease lasts for longer.
const STORE_EVERY: Duration = Duration::from_secs(1);
/// Storing takes at most one part in so many of the time.
const PART: u32 = 50;
/// How long the end of the process waits for what is being stored.
const LAST_PATIENCE: Duration = Duration::from_secs(2);

/// What is stored, and when it has changed.
pub(crate) trait Records: Send + 'static {
    /// A number that changes when there are new leases.
    fn version(&self) -> u64;

    /// All leases, with those that have ended and are kept for connections.
    fn records(&self) -> Vec<LeaseRecord>;
}

/// Stores leases until it is dropped, and once more then.
#[derive(Debug)]
pub(crate) struct Keeper {
    /// None when the thread has been told to end.
    end: Option<Sender<()>>,
    ended: Receiver<()>,
}

impl Keeper {
    /// A thread that cannot be started stores nothing, which is logged: the firewall goes on.
    pub(crate) fn start(path: PathBuf, leases: impl Records) -> Option<Self> {
        let ((end, told), (done, ended)) = (channel(), channel());
        let serve = move || {
            keep(&path, &leases, &told);
            let _ = done.send(());
        };
        match thread::Builder::new().name("leases".to_owned()).spawn(serve) {
            Ok(_) => Some(Self { end: Some(end), ended }),
            Err(error) => {
                warn!(%error, "cannot start the thread that stores leases");
                None
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end = None;
        if self.ended.recv_timeout(LAST_PATIENCE) == Err(RecvTimeoutError::Timeout) {
            warn!("the disk takes too long to store leases; the end of the process does not wait for it");
        }
    }
}

fn keep(path: &std::path::Path, leases: &impl Records, told: &Receiver<()>) {
    let (mut stored, mut failure, mut pause) = (None, None, STORE_EVERY);
    loop {
        let is_over = told.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected);
        let version = leases.version();
        // The last time, leases may have ended or have been renewed since.
        if stored != Some(version) || is_over {
            let began = Instant::now();
            let error = file::store(path, &leases.records()).err().map(|error| with_causes(&error));
            match (&error, &failure) {
                (Some(text), known) if known.as_ref() != Some(text) => {
                    warn!("{text}; the next process may cut connections whose lease has ended by then");
                }
                (None, Some(_)) => info!("leases are stored again"),
                _ => {}
            }
            stored = error.is_none().then_some(version);
            failure = error;
            pause = STORE_EVERY.max(began.elapsed() * PART);
        }
        if is_over {
            return;
        }
    }
}
