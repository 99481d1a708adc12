//! Response policy zones (draft-vixie-dnsop-dns-rpz): zones whose records say what clients get instead of answers.
//! `trigger` reads what a record is about from its owner, `prefixes` finds networks, `zone` has all records in little
//! memory and finds the policy of a name or an address, and `incoming` reads zone transfers.
//!
//! What of a policy zone is not understood is refused, or counted where it cannot concern a forwarder: a policy that
//! is left out in silence would let pass what its author denies.

mod incoming;
mod prefixes;
mod trigger;
mod zone;

pub use incoming::{Incoming, Transferred};
pub use trigger::TriggerKind;
pub use zone::{Found as PolicyFound, PolicyAction, PolicyBounds, PolicyBuilder, PolicyZone, Timers};
