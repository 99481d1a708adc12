//! What is read from a file, and read again when the file has changed. What cannot be read any more stays as it
//! was, and that is told.

use crate::tell::Teller;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::{Duration, SystemTime};

/// What a file says now.
#[derive(Debug)]
pub(crate) struct Watched<T> {
    now: RwLock<Arc<T>>,
}

/// Whether a file is as it was.
type Stamp = Option<(SystemTime, u64)>;

fn stamp(path: &Path) -> Stamp {
    let about = std::fs::metadata(path).ok()?;
    Some((about.modified().ok()?, about.len()))
}

impl<T: Send + Sync + 'static> Watched<T> {
    /// Looks at the file every so often, on a thread of its own that ends soon after nobody wants to know any more.
    pub(crate) fn start(
        path: &Path,
        every: Option<Duration>,
        read: impl Fn() -> Result<T, String> + Send + 'static,
        teller: &Arc<Teller>,
    ) -> Result<Arc<Self>, String> {
        let before = stamp(path);
        let watched = Arc::new(Self { now: RwLock::new(Arc::new(read()?)) });
        if let Some(every) = every {
            let weak = Arc::downgrade(&watched);
            let watcher = Watcher { path: path.to_owned(), before, every, teller: teller.clone() };
            let look = move || watcher.watch(&weak, read);
            let started = std::thread::Builder::new().name("watch".to_owned()).spawn(look);
            started.map_err(|error| error.to_string())?;
        }
        Ok(watched)
    }

    pub(crate) fn now(&self) -> Arc<T> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Looks at a file again and again.
struct Watcher {
    path: PathBuf,
    /// The file as it was last read.
    before: Stamp,
    every: Duration,
    teller: Arc<Teller>,
}

impl Watcher {
    fn watch<T>(mut self, watched: &Weak<Watched<T>>, read: impl Fn() -> Result<T, String>) {
        loop {
            std::thread::sleep(self.every);
            let Some(watched) = watched.upgrade() else { return };
            let after = stamp(&self.path);
            if after == self.before {
                continue;
            }
            self.before = after;
            match read() {
                Ok(new) => *watched.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new),
                Err(error) => {
                    self.teller.tell(format!("[ERROR] {}: {error}; it stays as it was", self.path.display()));
                }
            }
        }
    }
}
