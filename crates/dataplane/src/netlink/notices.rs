//! Notice of interfaces that come, go or change.

use super::{Error, Family, Socket};

/// The group that hears of links.
pub(super) const LINKS: u32 = 1;

/// Notices about the links of the network namespace that the thread was in when this was opened.
#[derive(Debug)]
pub struct LinkNotices(Socket);

impl LinkNotices {
    pub fn open() -> Result<Self, Error> {
        Socket::open_for(Family::NetlinkRoute, LINKS).map(Self)
    }

    /// True if a link has come, gone or changed since this was last asked. Does not wait.
    pub fn have_come(&mut self) -> bool {
        self.0.discard()
    }
}
