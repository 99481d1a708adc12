//! The seam to whoever enforces names.

use crate::wire::Addresses;
use std::net::IpAddr;

/// An answer that came from an upstream, to a query of ours, with the id, the port and the
/// question it must have (S6.1).
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// Who asked.
    pub client: IpAddr,
    pub says: &'a Addresses,
    pub bytes: &'a [u8],
}

/// Learns what answers open. It is asked by one thread at a time.
///
/// ```text
///   upstream ──answer──► note ──► (more answers of the same moment) ──► commit ──► kernel's ack ──► clients
/// ```
/// One commit serves all answers that came together: a burst costs few messages.
pub trait Learn: Send + Sync {
    /// What is to be done for a few answers.
    type Batch: Default + Send;

    /// Whether the client may ask where not everybody may.
    fn knows(&self, _client: IpAddr) -> bool {
        true
    }

    /// Whether answers to this client are worth reading.
    fn cares_about(&self, client: IpAddr) -> bool;

    /// Whether an answer of these bytes is known to open nothing that is not open already. It need not be read.
    fn is_known(&self, _client: IpAddr, _answer: &[u8]) -> bool {
        false
    }

    /// Puts what is to be done for the answer into the batch.
    fn note(&self, answer: &Answer<'_>, batch: &mut Self::Batch) -> Noted;

    /// Does it, and returns when it is done. May take long; the others wait meanwhile, nobody else does.
    fn commit(&self, batch: &mut Self::Batch) -> Result<(), LearnError>;

    /// Whether a commit would have to wait for somebody else: better noted and asked again shortly.
    fn is_busy(&self) -> bool {
        false
    }
}

/// What there is to do for an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Noted {
    /// It opens nothing, or nothing that is not open already.
    Nothing,
    /// What it opens is open as long as it may be used, and is to be kept open somewhat longer: it need not
    /// be held for that.
    Soon,
    /// It is held until it is done.
    First,
}

#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct LearnError(pub String);

/// Learns nothing: a plain forwarder.
#[derive(Clone, Copy, Debug, Default)]
pub struct LearnNothing;

impl Learn for LearnNothing {
    type Batch = ();

    fn cares_about(&self, _: IpAddr) -> bool {
        false
    }

    fn note(&self, _: &Answer<'_>, (): &mut ()) -> Noted {
        Noted::Nothing
    }

    fn commit(&self, (): &mut ()) -> Result<(), LearnError> {
        Ok(())
    }
}
