//! What can be set.

use super::ServerError;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Settings {
    /// Where queries come in, over UDP and TCP.
    pub listen: Vec<Listen>,
    /// Who is asked, in this order: the next if one does not answer.
    pub upstreams: Vec<SocketAddr>,
    /// Ways to others of them, by number, for whom a chain sends there.
    pub routes: Vec<Route>,
    /// How long an upstream has to answer before the next is asked.
    pub try_timeout: Duration,
    /// How often a query is asked at most.
    pub tries: u8,
    /// How long an answer waits for what it opens to be open (S6.6).
    pub hold_limit: Duration,
    pub on_learn_timeout: OnLearnTimeout,
    /// Queries under way, in all and of one client.
    pub most_queries: usize,
    pub most_queries_of_client: u32,
    /// TCP connections, in all and of one client.
    pub most_connections: usize,
    pub most_connections_of_client: u32,
    /// How long a TCP connection may be idle (RFC 7766 §6.2.3).
    pub idle_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            upstreams: Vec::new(),
            routes: Vec::new(),
            try_timeout: Duration::from_secs(1),
            tries: 4,
            hold_limit: Duration::from_millis(100),
            on_learn_timeout: OnLearnTimeout::default(),
            most_queries: 32_768,
            most_queries_of_client: 8_192,
            most_connections: 4_096,
            most_connections_of_client: 256,
            idle_timeout: Duration::from_secs(10),
        }
    }
}

impl Settings {
    /// An error if a server that listens at these addresses would ask itself.
    pub fn check(&self, addresses: &[SocketAddr]) -> Result<(), ServerError> {
        let mut asked = self.upstreams.iter().chain(self.routes.iter().flat_map(|route| &route.upstreams));
        let own = asked.find(|upstream| addresses.contains(upstream));
        own.map_or(Ok(()), |own| Err(ServerError::AsksItself(*own)))
    }
}

/// Upstreams, and how they are asked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Route {
    pub upstreams: Vec<SocketAddr>,
    pub order: Order,
    pub way: Way,
}

/// Which of several upstreams is asked first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    #[default]
    Sequential,
    RoundRobin,
    Random,
}

/// How an upstream is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Way {
    /// As the client asked us: who came by TCP may want more than a datagram holds.
    #[default]
    AsAsked,
    Tcp,
    /// By UDP first, and by TCP what was truncated for a client that came by it.
    UdpFirst,
}

/// What a client gets if what its answer opens could not be opened in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnLearnTimeout {
    /// SERVFAIL: it will ask again.
    #[default]
    Fail,
    /// The answer, though the first connection may fail.
    Release,
}

/// An address queries come in at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listen {
    pub address: SocketAddr,
    /// The one server that queries from here are meant for; the upstreams if there is none.
    pub meant: Option<SocketAddr>,
    /// Whether anybody may ask here, or only whom the learner knows.
    pub is_open: bool,
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Self {
        Self { address, meant: None, is_open: true }
    }
}

/// An address as its own version of IP has it: `::ffff:192.0.2.1` is 192.0.2.1.
pub(super) fn plain(address: SocketAddr) -> IpAddr {
    address.ip().to_canonical()
}
