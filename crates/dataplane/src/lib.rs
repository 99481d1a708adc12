//! The kernel's side of a Program.

pub mod netlink;
