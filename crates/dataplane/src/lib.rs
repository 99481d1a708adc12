//! The kernel's side of a Program: `render` says what the kernel should have,
//! `nft` makes it so. Nothing is decided here; the Program was.

pub mod conntrack;
mod cut;
mod leases;
pub mod memory;
pub mod netlink;
pub mod nflog;
pub mod nft;
mod remembered;
pub mod render;

pub use cut::CutEstablished;
pub use leases::LeaseGroups;
use namewall_policy::{Instant, Lease, Program};

/// Something that enforces a Program.
pub trait Dataplane {
    type Error: std::error::Error;

    /// Goes from what is enforced to `next` by the smallest change, all at once.
    fn replace(&mut self, next: &Program, now: Instant) -> Result<Applied, Self::Error>;

    /// Cuts the connections `program` forbids that were opened under another, for good (S3.4).
    fn cut(&mut self, program: &Program, now: Instant) -> Result<Cut, Self::Error>;

    /// Opens addresses for as long as their leases last; returns when they are open.
    fn grant(&mut self, leases: &[Lease], now: Instant) -> Result<(), Self::Error>;
}

/// What was cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cut {
    pub connections: usize,
    /// Those among them that there was no room to remember: a word from the other end may open them again.
    pub not_remembered: usize,
}

impl std::ops::AddAssign for Cut {
    fn add_assign(&mut self, more: Self) {
        self.connections += more.connections;
        self.not_remembered += more.not_remembered;
    }
}

/// What a change took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Applied {
    /// Messages to the kernel; none if nothing had to be changed.
    pub operations: usize,
    /// Whether connections that exist may be forbidden now, so that `cut` is worth its while.
    pub narrows: bool,
}
