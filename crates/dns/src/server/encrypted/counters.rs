//! What is counted of encrypted connections.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts since the start.
#[derive(Debug, Default)]
pub struct EncryptedCounters {
    /// Connections that were accepted.
    pub connections: Count,
    /// Connections that were closed at once: their clients had as many as they may have.
    pub refused: Count,
    /// Connections that gave way to another client's.
    pub evicted: Count,
    /// Connections whose TLS handshake failed or took too long.
    pub handshakes_failed: Count,
    /// Questions for which there was no room.
    pub questions_refused: Count,
    /// HTTP requests that carry no DNS query.
    pub bad_requests: Count,
}
