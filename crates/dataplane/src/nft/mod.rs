//! nftables by netlink. `table` is a whole table as a value, `rule`, `set` and
//! `expression` its parts; `change` finds what is to be done, `batch` writes it
//! as a transaction, `read` reads the kernel's table back, and [`Nft`] does all
//! of it in order, where `features` finds a kernel that can.

mod batch;
mod change;
mod elements;
mod expression;
mod features;
mod kernel;
mod read;
pub mod rule;
pub mod set;
pub mod table;
mod wire;

pub use elements::Elements;
pub use features::Lacking;
pub use kernel::{Nft, NftError, Settings, put_table, uninstall};
pub use read::Count;

pub(crate) use batch::fixed as batch_fixed;

/// Runs in a new network namespace, which goes when it is done.
#[cfg(test)]
pub(crate) fn isolated<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
            .expect("a network namespace can be made; run the tests as root");
        test()
    });
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
