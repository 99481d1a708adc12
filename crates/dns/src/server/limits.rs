//! Files that the process may open: every port to an upstream is one.

use super::ports;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the limit of open files as far as it goes without asking. With the usual soft limit of 1,024 there are 256
/// ports for all upstreams together, and with 4,096 or more each has as many as it can use.
pub fn allow_more_files() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // With fewer ports all works as before.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// A quarter of the files that the process may open, and no more than four thousand.
pub(super) fn most_sockets() -> usize {
    let files = getrlimit(Resource::RLIMIT_NOFILE);
    let files = files.map_or(1_024, |(soft, _)| usize::try_from(soft).unwrap_or(usize::MAX));
    (files / 4).clamp(1, 4 * ports::MOST_SOCKETS)
}
