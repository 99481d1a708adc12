//! Whether the machine keeps its schedule: a thread that only sleeps says for how
//! long it was not woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

const BEAT: Duration = Duration::from_millis(50);

pub(crate) struct Heartbeat {
    /// In milliseconds.
    longest: Arc<AtomicU64>,
}

impl Heartbeat {
    /// Beats until it is dropped.
    pub(crate) fn start() -> Self {
        let longest = Arc::new(AtomicU64::new(0));
        let noted = Arc::downgrade(&longest);
        spawn(move || {
            loop {
                let began = Instant::now();
                sleep(BEAT);
                let Some(noted) = noted.upgrade() else { return };
                noted.fetch_max(began.elapsed().saturating_sub(BEAT).as_millis() as u64, Ordering::Relaxed);
            }
        });
        Self { longest }
    }

    pub(crate) fn reset(&self) {
        self.longest.store(0, Ordering::Relaxed);
    }

    pub(crate) fn longest_pause(&self) -> Duration {
        Duration::from_millis(self.longest.load(Ordering::Relaxed))
    }
}
