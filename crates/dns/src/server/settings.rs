//! What can be set.

use super::ServerError;
use crate::wire::Rcode;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Settings {
    /// How many loops serve, each with threads of its own. It counts where a server starts.
    pub loops: usize,
    /// Where queries come in, over UDP and TCP.
    pub listen: Vec<Listen>,
    /// Who is asked, in this order: the next if one does not answer.
    pub upstreams: Vec<SocketAddr>,
    /// Servers that listeners are meant for and that are not asked any more: the upstreams are asked instead.
    pub distrusted: Vec<SocketAddr>,
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
    /// Connections of clients over TLS and HTTPS in all; one client may have as many as over TCP.
    pub most_encrypted_connections: usize,
    /// How long a connection may be idle, encrypted or not (RFC 7766 §6.2.3).
    pub idle_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            loops: 1,
            listen: Vec::new(),
            upstreams: Vec::new(),
            distrusted: Vec::new(),
            routes: Vec::new(),
            try_timeout: Duration::from_secs(1),
            tries: 4,
            hold_limit: Duration::from_millis(100),
            on_learn_timeout: OnLearnTimeout::default(),
            most_queries: 32_768,
            most_queries_of_client: 8_192,
            most_connections: 4_096,
            most_connections_of_client: 256,
            most_encrypted_connections: 2_048,
            idle_timeout: Duration::from_secs(10),
        }
    }
}

impl Settings {
    /// Loops at most: more would mostly pass questions to each other.
    pub const MOST_LOOPS: usize = 4;

    /// A loop for each core that this process may use, up to [`Self::MOST_LOOPS`].
    pub fn usual_loops() -> usize {
        std::thread::available_parallelism().map_or(1, usize::from).min(Self::MOST_LOOPS)
    }

    /// What one of so many loops may have of what is bounded for all together. Connections are all with one.
    pub(super) fn share_of(&self, loops: usize) -> Self {
        let most_queries = (self.most_queries / loops).max(1);
        let of_client = u32::try_from(loops).map_or(1, |loops| (self.most_queries_of_client / loops).max(1));
        Self { most_queries, most_queries_of_client: of_client, ..self.clone() }
    }

    /// An error if a server that listens at these addresses would ask itself.
    pub fn check(&self, addresses: &[SocketAddr]) -> Result<(), ServerError> {
        let of_routes = self.routes.iter().flat_map(|route| route.upstreams.iter().map(|upstream| &upstream.address));
        let mut asked = self.upstreams.iter().chain(of_routes);
        let own = asked.find(|upstream| addresses.contains(upstream));
        own.map_or(Ok(()), |own| Err(ServerError::AsksItself(*own)))
    }
}

/// Upstreams, and how they are asked.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Route {
    pub upstreams: Vec<Upstream>,
    pub order: UpstreamOrder,
    pub way: UpstreamTransport,
    /// Codes of answers after which the next upstream is asked, besides those that say that one gave up.
    pub failover: Vec<Rcode>,
    /// Queries that may be under way by it; none is any number.
    pub most_queries: Option<u32>,
    /// How often a query is asked at most, if that is less than is set for all.
    pub tries: Option<u8>,
    /// Whether nobody is asked if all are down.
    pub fails_fast: bool,
}

/// A server that is asked, and how it is treated.
#[derive(Clone, PartialEq, Debug)]
pub struct Upstream {
    pub address: SocketAddr,
    /// It is asked over TLS, and no other way.
    pub tls: Option<Tls>,
    /// It is asked over HTTPS (RFC 8484), at this path, within TLS.
    pub http_path: Option<Arc<str>>,
    pub health: Health,
    /// How long a connection may be idle and still be used, if it is not what is set for all.
    pub idle_timeout: Option<Duration>,
    /// How long a connection is used.
    pub most_age: Option<Duration>,
}

impl From<SocketAddr> for Upstream {
    fn from(address: SocketAddr) -> Self {
        let health = Health::default();
        Self { address, tls: None, http_path: None, health, idle_timeout: None, most_age: None }
    }
}

/// Whom to trust over TLS (RFC 7858), and to be.
#[derive(Clone, Debug)]
pub struct Tls {
    pub config: Arc<ClientConfig>,
    /// Whose certificate it must be.
    pub name: ServerName<'static>,
    /// Of what the configuration was made from: what cannot be compared is the same if that is.
    pub digest: u64,
}

impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.digest) == (&other.name, other.digest)
    }
}

/// When an upstream counts as down: others are asked then.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Health {
    /// After a few queries in a row without an answer; then it is asked every second whether it is back.
    #[default]
    ByQueries,
    /// A query without an answer has it asked this, at once and every so often until there is an answer.
    /// It is down after so many failures in a row.
    ByChecks { query: Vec<u8>, every: Duration, failures: u32 },
    /// Never.
    Assumed,
}

/// Which of several upstreams is asked first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum UpstreamOrder {
    #[default]
    Sequential,
    RoundRobin,
    Random,
}

/// How an upstream is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum UpstreamTransport {
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
