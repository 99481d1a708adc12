//! A start that must wait. The source cannot be read in full, no good version of
//! what is missing is stored, and rules of an earlier process are in the kernel.
//! To enforce what can be read would be to enforce less than before (S10.3), so
//! the rules stay as they are until the source can be read.

use crate::control::answer_alone;
use crate::error::AgentError;
use serde_json::json;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use tracing::error;

/// Answers `namewall status` while the start waits.
#[derive(Debug)]
pub(crate) struct Hold {
    control: PathBuf,
    why: Arc<Mutex<String>>,
    is_replaced: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
}

impl Hold {
    pub(crate) fn start(control: &Path, why: &str) -> Result<Self, AgentError> {
        error!("{}", message(why));
        std::fs::remove_file(control).ok();
        let failed = |source| AgentError::Listen { path: control.to_owned(), source };
        let listener = UnixListener::bind(control).map_err(failed)?;
        let hold = Self {
            control: control.to_owned(),
            why: Arc::new(Mutex::new(why.to_owned())),
            is_replaced: Arc::default(),
            is_over: Arc::default(),
        };
        let (why, is_replaced, is_over) = (hold.why.clone(), hold.is_replaced.clone(), hold.is_over.clone());
        let serve = move || {
            for stream in listener.incoming().flatten() {
                if is_over.load(Ordering::SeqCst) {
                    return;
                }
                let held = message(&why.lock().unwrap_or_else(PoisonError::into_inner));
                let status = json!({"pid": std::process::id(), "held": held});
                // Who takes over gets no sockets: nothing is served here.
                if answer_alone(stream, &status).is_ok_and(|hands_over| hands_over) {
                    is_replaced.store(true, Ordering::SeqCst);
                    return;
                }
            }
        };
        thread::Builder::new().name("control".to_owned()).spawn(serve).map_err(AgentError::Thread)?;
        Ok(hold)
    }

    /// The reason as it is now.
    pub(crate) fn set(&self, why: &str) {
        let mut known = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != why {
            error!("{}", message(why));
            why.clone_into(&mut known);
        }
    }

    /// True if another process has taken over.
    pub(crate) fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::SeqCst)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Its thread waits for a client.
        let _ = std::os::unix::net::UnixStream::connect(&self.control);
        std::fs::remove_file(&self.control).ok();
    }
}

pub(crate) fn message(why: &str) -> String {
    format!("{why}; the rules that an earlier process has left in the kernel stay as they are")
}
