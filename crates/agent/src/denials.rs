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

impl Denials {
    /// Logs and counts what the kernel has told: of the node, or of a pod's second interfaces.
    pub(crate) fn take(&self, told: Told, pod: Option<&str>) {
        let Told { denials, lost } = told;
        if lost > 0 {
            self.lost.fetch_add(lost, Ordering::Relaxed);
            warn!(lost, pod, "denials are missing from the log: the kernel logged more than was read in time");
        }
        for Denied { enforced, source, destination, port, protocol, rule, .. } in denials {
            let (what, counter) = match enforced {
                true => ("denied", &self.enforced),
                false => ("would deny", &self.audited),
            };
            counter.fetch_add(1, Ordering::Relaxed);
            match pod {
                Some(pod) => info!(pod, %source, %destination, port, %protocol, rule, "{what} on a second interface"),
                None => info!(%source, %destination, port, %protocol, rule, "{what}"),
            }
        }
    }
}

/// Logs and counts denials in a thread of its own.
pub(crate) fn follow(mut log: impl FollowDenials, count: &Arc<Denials>) -> Result<(), AgentError> {
    let count = count.clone();
    let follow = move || {
        while let Ok(told) = log.wait() {
            count.take(told, None);
        }
    };
    thread::Builder::new().name("denials".to_owned()).spawn(follow).map_err(AgentError::Thread)?;
    Ok(())
}
