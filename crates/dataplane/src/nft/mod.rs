//! nftables by netlink. `table` is a whole table as a value, `rule`, `set` and
//! `expression` its parts; `change` finds what is to be done, `batch` writes it
//! as a transaction, `read` reads the kernel's table back, and [`Nft`] does all
//! of it in order.

mod batch;
mod change;
mod expression;
mod kernel;
mod read;
pub mod rule;
pub mod set;
pub mod table;
mod wire;

pub use kernel::{Nft, NftError, Settings, put_table, uninstall};
pub use read::Count;

pub(crate) use batch::fixed as batch_fixed;
