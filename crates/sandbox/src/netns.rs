//! Network namespaces without names.

use crate::error::Error;
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::thread;

/// A network namespace, held by a file descriptor and by the sockets opened in
/// it. There is no mount and no name, so nothing is left of it when the process
/// dies, by whatever signal.
#[derive(Debug)]
pub struct Namespace {
    fd: OwnedFd,
}

impl Namespace {
    pub fn create() -> Result<Self, Error> {
        Self::create_with(|| Ok(())).map(|(namespace, ())| namespace)
    }

    /// Makes one and runs `first` in it, in the thread that made it.
    pub fn create_with<T: Send>(first: impl FnOnce() -> Result<T, Error> + Send) -> Result<(Self, T), Error> {
        aside(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(Error::MakeNamespace)?;
            let fd = File::open("/proc/thread-self/ns/net").map_err(Error::OpenNamespace)?.into();
            Ok((Self { fd }, first()?))
        })?
    }

    /// Runs `inside` in a thread of its own that has entered this namespace.
    /// Sockets opened there, and processes started there, belong to it for ever.
    pub fn enter<T: Send>(&self, inside: impl FnOnce() -> T + Send) -> Result<T, Error> {
        aside(|| {
            setns(&self.fd, CloneFlags::CLONE_NEWNET).map_err(Error::EnterNamespace)?;
            Ok(inside())
        })?
    }

    /// Where other tools find it, as in `nsenter --net=PATH`, while this process lives.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.fd.as_raw_fd()).into()
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A thread cannot leave what it entered without further rights, so each ends with its work.
fn aside<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("namespace".to_owned()).spawn_scoped(scope, work);
        match thread.map_err(Error::Thread)?.join() {
            Ok(result) => Ok(result),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
