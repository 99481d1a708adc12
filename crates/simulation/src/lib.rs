//! A cluster in one thread and virtual time. Nodes that learn and share names,
//! replicas of the controller, an API server and DNS run the real code of their
//! crates; which of them goes on next, what is slow and what is lost follows
//! from one seed.
//!
//! Only tests and benches use it. What is not simulated: the loop of the agent with its
//! control socket, the DNS server with its sockets, and the kernel, in whose
//! place there is a data plane in memory.

mod answer;
mod cluster;
mod node;
mod replica;
mod schedule;

pub use cluster::Cluster;
pub use node::SimulatedNode;
pub use replica::{RESOLVER, Replica};
pub use schedule::{Schedule, TTL};
