//! nftables by netlink. `table` is a whole table as a value, `rule`, `set` and
//! `expression` its parts; `change` finds what is to be done, `batch` writes it
//! as a transaction, `read` reads the kernel's table back, and [`Nft`] does all
//! of it in order, where `features` finds a kernel that can. `owner` says which
//! process holds a table, `view` says in words what one does, and `removal`
//! removes one.

mod batch;
mod change;
mod elements;
#[cfg(test)]
pub(crate) mod emulate;
mod error;
pub(crate) mod expression;
mod features;
mod guard;
mod inside;
mod kernel;
mod owner;
mod plan;
mod read;
mod removal;
pub mod rule;
mod session;
pub mod set;
mod staging;
mod switch;
pub mod table;
pub mod view;
mod wire;

pub use elements::Elements;
pub use error::NftError;
pub use features::Lacking;
pub use inside::{NftConnections, close_inside};
pub use kernel::{Nft, RELEASE_TIMEOUT, Settings, put_table};
pub use owner::Owner;
pub use plan::NftPlan;
pub use removal::{uninstall, uninstall_inside};

pub(crate) use batch::{Batch, fixed as batch_fixed};

/// Runs in a new network namespace, which goes when it is done.
#[cfg(all(test, feature = "system"))]
pub(crate) fn isolated<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(|| {
        if let Err(errno) = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET) {
            use std::io::Write as _;
            let _ = writeln!(
                std::io::stderr(),
                "\nsystem test: no network namespace can be made ({errno}); run it as root"
            );
            std::process::exit(1);
        }
        test()
    });
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
