//! Denied packets, as far as the kernel logs them.

use crate::error::AgentError;
use namewall_dataplane::{Denied, FollowDenials, Told};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use tracing::{info, warn};

/// How many there were.
#[derive(Debug, Default)]
pub(crate) struct Denials {
    pub(crate) enforced: AtomicU64,
    /// What audited policies would deny.
    pub(crate) audited: AtomicU64,
    /// Lines of the kernel's log that nobody read in time.
    pub(crate) lost: AtomicU64,
}

impl Denials {
    pub(crate) fn total(&self) -> u64 {
        self.enforced.load(Ordering::Relaxed) + self.audited.load(Ordering::Relaxed)
    }
}

/// Logs and counts denials in a thread of its own.
pub(crate) fn follow(mut log: impl FollowDenials, count: &Arc<Denials>) -> Result<(), AgentError> {
    let count = count.clone();
    let follow = move || {
        while let Ok(Told { denials, lost }) = log.wait() {
            if lost > 0 {
                count.lost.fetch_add(lost, Ordering::Relaxed);
                warn!(lost, "denials are missing from the log: the kernel logged more than was read in time");
            }
            for Denied { enforced, source, destination, port, protocol, rule, .. } in denials {
                let (what, counter) = match enforced {
                    true => ("denied", &count.enforced),
                    false => ("would deny", &count.audited),
                };
                counter.fetch_add(1, Ordering::Relaxed);
                info!(%source, %destination, port, %protocol, rule, "{what}");
            }
        }
    };
    thread::Builder::new().name("denials".to_owned()).spawn(follow).map_err(AgentError::Thread)?;
    Ok(())
}
