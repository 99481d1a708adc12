//! namewall as a chained CNI plugin. A container runtime runs it after the
//! plugin that gives a pod its network and before any process of the pod. It
//! tells the node's agent which interface and addresses the pod has, and returns
//! when the kernel enforces the pod's policies.
//!
//! ```text
//!  runtime ──► bridge, ptp, calico … ──► prevResult ──► namewall ──► record ──► agent ──► kernel
//!                                                          ◄──────────── enforced ◄────────┘
//! ```
//! [`environment`], [`network`] and [`result`] read what a runtime says, without
//! I/O; [`error`] is how a plugin refuses. [`link`] asks the kernel for the host's
//! end of the pod's interface. [`Attachment`] is what becomes of it all, and
//! [`Records`] keeps one file for each on disk. [`plugin`] does it in order.
//! [`chain`] writes the runtime's configuration with this plugin appended, and
//! [`install`] puts it in place. Pods that were there before the plugin are known
//! to the runtime alone: [`cri`] asks it, and [`sandboxes`] finds the interface of
//! each. What an attachment means for policies is the
//! agent's part.

mod attachment;
pub mod chain;
mod client;
pub mod cri;
pub mod environment;
pub mod error;
pub mod install;
pub mod link;
pub mod network;
pub mod plugin;
mod reach;
mod records;
pub mod result;
pub mod sandboxes;

pub use attachment::{Attachment, AttachmentId, HostLink, Mac, NotAMac};
pub use client::{Agent, AskError};
pub use link::pod_sockets;
pub use reach::{Passed, pass_sockets};
pub use records::{RecordError, Records, Unreadable};

/// The versions of the CNI specification that are spoken, oldest first.
pub const VERSIONS: [&str; 4] = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"];
/// What the plugin is called in configurations and in the folder of plugins.
pub const NAME: &str = "namewall";
/// The interface whose addresses are the pod's own. Runtimes call it so for every pod; other names are those of
/// second networks (S1.9).
pub const OWN_INTERFACE: &str = "eth0";
/// Where the agent answers, and where records are, unless the configuration says otherwise. Neither outlives a reboot.
pub const SOCKET: &str = "/run/namewall/run.sock";
pub const RECORDS: &str = "/run/namewall/attachments";
