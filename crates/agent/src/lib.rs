//! One node: what the policies say goes into the kernel, pods' DNS comes to our
//! server, and what its answers open goes into the kernel before they go out.
//! Wiring only: what is allowed is decided in `policy`.

mod clock;
mod counters;
mod law;
mod learner;
mod memo;
mod node;
mod share;

pub use clock::Clock;
pub use counters::Counters;
pub use learner::{Learner, Learning, Refused};
pub use node::{DnsSettings, Node, NodeError, NodeSettings};
pub use share::{Heard, Share};
