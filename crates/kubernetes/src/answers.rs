//! What the numbers mean that the API server refuses with.

pub(crate) const NOT_FOUND: u16 = 404;
/// Somebody has made it already.
pub(crate) const ALREADY_THERE: u16 = 409;
/// Somebody has changed it meanwhile.
pub(crate) const CONFLICT: u16 = 409;
/// The history that was asked for is no longer known.
pub(crate) const GONE: u16 = 410;
