//! Denied packets, as far as the kernel logs them.

use crate::error::AgentError;
use namewall_dataplane::{Denied, FollowDenials};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use tracing::info;

/// Logs and counts denials in a thread of its own.
pub(crate) fn follow(mut log: impl FollowDenials, count: &Arc<AtomicU64>) -> Result<(), AgentError> {
    let count = count.clone();
    let follow = move || {
        while let Ok(denials) = log.wait() {
            for Denied { enforced, source, destination, port, protocol, rule, .. } in denials {
                count.fetch_add(1, Ordering::Relaxed);
                let what = if enforced { "denied" } else { "would deny" };
                info!(%source, %destination, port, %protocol, rule, "{what}");
            }
        }
    };
    thread::Builder::new().name("denials".to_owned()).spawn(follow).map_err(AgentError::Thread)?;
    Ok(())
}
