//! Which pod is behind which interface of this node, and which addresses it has
//! (S1.9), as the container runtime says through the CNI plugin.
//!
//! ```text
//!  plugin ──► record on disk ──► control socket: attach ──► Attachments ──► wakes the loop
//!                                      ▲                                        │ source: the pod has these addresses
//!                                      └────── enforced ◄────── kernel ◄────────┘
//! ```
//! The pod and its policies are known through the source; what is missing is the
//! address, which the API server has a second later. Until the kernel enforces it
//! no process of the pod runs. Records of attachments are read when the agent
//! starts, so that its restart loses none.
//!
//! Pods without an attachment were there before the plugin. `interfaces` finds
//! theirs by what the container runtime says, and by routes. `allowed` are
//! sources that the settings allow certain pods besides. `seen` is what one process
//! tells the next of changes inside pods.

mod allowed;
mod attachments;
mod interfaces;
mod seen;

pub(crate) use allowed::allow;
pub use allowed::{AllowedSource, NotASource};
pub use attachments::AttachError;
pub(crate) use attachments::Attachments;
pub(crate) use interfaces::{Here, Interfaces};
pub(crate) use seen::SeenChanges;
