//! A network namespace for a test.

use namewall_testbed::give_up;
use nix::sched::{CloneFlags, unshare};
use std::thread;

/// Runs in a new network namespace, which goes when the test does.
pub(crate) fn isolated<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = thread::spawn(|| {
        if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET) {
            give_up(format_args!("no network namespace can be made ({errno}); run it as root"));
        }
        test()
    });
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
