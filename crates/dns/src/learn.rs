//! The seam to whoever enforces names. An answer goes through it once, and what
//! it opens once more, for all answers of a moment together:
//!
//! ```text
//!   upstream ──answer──► learn ──► (more answers of the same moment) ──► commit ──► kernel's ack ──► clients
//! ```

use crate::wire::{Addresses, Unreadable, addresses};
use std::error::Error;
use std::net::{IpAddr, SocketAddr};

/// An answer that came from an upstream, to a query of ours, with the id, the port and the
/// question it must have (S6.1).
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// The client that asked.
    pub client: IpAddr,
    /// The server that gave it, if one did.
    pub upstream: Option<SocketAddr>,
    pub bytes: &'a [u8],
}

impl Answer<'_> {
    /// The addresses that the answer gives to the name of its question.
    pub fn addresses(&self) -> Result<Addresses, Unreadable> {
        addresses(self.bytes)
    }
}

/// Learns what answers open. Several threads call it at once, one for each loop of a server.
pub trait Learn: Send + Sync {
    /// What is to be opened for answers that came together: a burst costs few messages to the kernel.
    type Batch: Default + Send;

    /// True if the client may ask at a listener that is not open to everybody.
    fn knows(&self, _client: IpAddr) -> bool {
        true
    }

    /// Puts what the answer opens into the batch. Does not block.
    fn learn(&self, answer: &Answer<'_>, batch: &mut Self::Batch) -> Opens;

    /// Opens what is in the batch, and returns when it is open. It may take long: the answers of the batch wait
    /// meanwhile, other answers do not.
    fn commit(&self, batch: &mut Self::Batch) -> Result<(), LearnError>;

    /// True if a commit would have to wait for another thread. Then it is better to collect more answers first.
    fn is_busy(&self) -> bool {
        false
    }
}

/// What an answer opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opens {
    /// Nothing that is not open already.
    Nothing,
    /// Nothing new for as long as the answer may be used, but it extends a lease. It is not held for that.
    Renewal,
    /// Something new: it is held until that is open.
    New,
    /// It cannot be read, so it opens nothing.
    Unreadable,
}

/// Why a batch was not opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open what answers say")]
pub struct LearnError(#[source] pub Box<dyn Error + Send + Sync>);

/// Learns nothing: a plain forwarder.
#[derive(Clone, Copy, Debug, Default)]
pub struct LearnNothing;

impl Learn for LearnNothing {
    type Batch = ();

    fn learn(&self, _: &Answer<'_>, (): &mut ()) -> Opens {
        Opens::Nothing
    }

    fn commit(&self, (): &mut ()) -> Result<(), LearnError> {
        Ok(())
    }
}
