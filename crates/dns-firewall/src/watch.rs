//! What is read from a file, and read again when the file has changed. What cannot be read any more stays as it
//! was, and that is told.
//!
//! A file is read on a thread of its own, and what came of it takes the place of what was there before with one
//! exchange of pointers. What was there before is freed on that thread, too: a list of a million names takes a while.

use crate::tell::Teller;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long the reader thread waits for questions that still use the old version. After that the last question frees it.
const RETIRES_WITHIN: Duration = Duration::from_secs(10);
const RETIRE_STEP: Duration = Duration::from_millis(5);

/// What a file says now.
pub(crate) struct Watched<T> {
    path: PathBuf,
    now: RwLock<Arc<T>>,
    read: Box<dyn Fn() -> Result<T, String> + Send + Sync>,
    /// The file as it was last read.
    before: Mutex<Stamp>,
    teller: Arc<Teller>,
    pub(crate) loads: Loads,
}

/// When something was loaded last, and how often it could not be.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    /// Seconds since 1970.
    last: AtomicU64,
    failures: AtomicU64,
}

impl Loads {
    pub(crate) fn succeeded(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last.store(now.as_secs(), Ordering::Relaxed);
    }

    pub(crate) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// The time of the last load, without failures.
    pub(crate) fn without_failures(&self) -> Self {
        Self { last: AtomicU64::new(self.last()), failures: AtomicU64::new(0) }
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
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
        read: impl Fn() -> Result<T, String> + Send + Sync + 'static,
        teller: &Arc<Teller>,
    ) -> Result<Arc<Self>, String> {
        let before = stamp(path);
        let first = read()?;
        let watched = Arc::new(Self {
            path: path.to_owned(),
            now: RwLock::new(Arc::new(first)),
            read: Box::new(read),
            before: Mutex::new(before),
            teller: teller.clone(),
            loads: Loads::default(),
        });
        watched.loads.succeeded();
        if let Some(every) = every {
            let weak = Arc::downgrade(&watched);
            let look = move || watch(&weak, every);
            let started = std::thread::Builder::new().name("watch".to_owned()).spawn(look);
            started.map_err(|error| error.to_string())?;
        }
        Ok(watched)
    }

    /// Reads the file again if it has changed. Waits.
    pub(crate) fn look(&self) {
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let after = stamp(&self.path);
        if after == *before {
            return;
        }
        let read = (self.read)();
        // What is being written is read when it is whole.
        if stamp(&self.path) != after {
            return;
        }
        *before = after;
        match read {
            Ok(new) => {
                replace(&self.now, new);
                self.loads.succeeded();
            }
            Err(error) => {
                self.loads.failed();
                self.teller.tell(format!("[ERROR] {}: {error}; it stays as it was", self.path.display()));
            }
        }
    }
}

impl<T> Watched<T> {
    pub(crate) fn now(&self) -> Arc<T> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Looks at a file again and again.
fn watch<T: Send + Sync + 'static>(watched: &Weak<Watched<T>>, every: Duration) {
    loop {
        std::thread::sleep(every);
        let Some(watched) = watched.upgrade() else { return };
        watched.look();
    }
}

/// Puts something into the place of another, which is freed here and not by a question that was using it. Waits.
pub(crate) fn replace<T>(place: &RwLock<Arc<T>>, new: T) {
    let new = Arc::new(new);
    let mut old = std::mem::replace(&mut *place.write().unwrap_or_else(PoisonError::into_inner), new);
    let mut waited = Duration::ZERO;
    while waited < RETIRES_WITHIN {
        match Arc::try_unwrap(old) {
            Ok(_) => return,
            Err(shared) => old = shared,
        }
        std::thread::sleep(RETIRE_STEP);
        waited += RETIRE_STEP;
    }
}

impl<T> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watched({})", self.path.display())
    }
}
