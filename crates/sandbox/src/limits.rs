//! How many files may be open: a probe takes one, and the end that answers it another.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::fs;

/// For everything else that may be opened meanwhile.
const SPARE: usize = 64;
const FEWEST: usize = 64;

/// Raises the limit as far as it goes without asking; what is left decides the size of a batch.
pub(crate) fn raise() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// How many probes may be under way at once.
pub(crate) fn probes_at_once() -> usize {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| usize::try_from(soft).unwrap_or(usize::MAX));
    let open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    (limit.saturating_sub(open + SPARE) / 2).max(FEWEST)
}
