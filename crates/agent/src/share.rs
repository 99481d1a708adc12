//! What one node learns, others may know, and the other way round.

use namewall_policy::domain::DomainName;
use std::fmt::Debug;
use std::net::IpAddr;
use std::time::Duration;

/// Tells others what was learned.
pub trait Share: Debug + Send + Sync {
    /// Notes what an answer to a client said of a name, or a lookup of this node's own. Waits for nothing.
    fn note(&self, client: Option<IpAddr>, name: &DomainName, addresses: &[(IpAddr, Duration)]);

    /// Waits until what was noted is told, for as long as a client can be kept waiting.
    fn finish(&self);
}

/// What another has learned of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heard {
    pub name: DomainName,
    pub address: IpAddr,
    /// How much longer it is good for.
    pub left: Duration,
}
