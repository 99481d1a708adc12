//! What is served over HTTP beside DNS: `health`, `ready` and `prometheus`. Server blocks that name the same address
//! share it. They outlive a Corefile: with the next one addresses come and go, and those it cannot have leave
//! everything as it was. The HTTP server itself is in `telemetry`.

use super::build::BuildError;
use super::metrics::Process;
use super::tell::Teller;
use namewall_corefile::{FileSpan, Host, ListenAt, ServerBlock};
use namewall_telemetry::{Health, ListenError, Metrics, Page, Server, Site};
use std::io;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

/// What is served where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    pub what: What,
    pub at: ListenAt,
    /// The server block that asks for it.
    pub place: FileSpan,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// `/health`. DNS is served for so long after the process is told to end.
    Health { lameduck: Duration },
    /// `/ready`
    Ready,
    /// `/metrics`
    Metrics,
}

impl What {
    fn word(self) -> &'static str {
        match self {
            Self::Health { .. } => "health",
            Self::Ready => "ready",
            Self::Metrics => "prometheus",
        }
    }
}

/// Those of a server block.
pub(super) fn of_block(server: &ServerBlock) -> impl Iterator<Item = Endpoint> {
    let health = server.health.as_ref().map(|health| (What::Health { lameduck: health.lameduck }, &health.at));
    let ready = server.ready.as_ref().map(|at| (What::Ready, at));
    let metrics = server.prometheus.as_ref().map(|at| (What::Metrics, at));
    let all = [health, ready, metrics].into_iter().flatten();
    all.map(|(what, at)| Endpoint { what, at: at.clone(), place: server.place.clone() })
}

/// How long DNS is served on after the process is told to end.
pub fn lameduck(endpoints: &[Endpoint]) -> Duration {
    let each = endpoints.iter().filter_map(|endpoint| match endpoint.what {
        What::Health { lameduck } => Some(lameduck),
        What::Ready | What::Metrics => None,
    });
    each.max().unwrap_or_default()
}

/// All that are served. They end when this is dropped.
#[derive(Debug)]
pub struct Endpoints {
    health: Health,
    metrics: Arc<Metrics>,
    /// None until something is to be served.
    server: Option<Server>,
}

impl Endpoints {
    /// Nothing yet, and not ready.
    pub fn new(teller: Arc<Teller>) -> Self {
        let health = Health::new("DNS is not served yet, or not for long\n");
        Self { health, metrics: Arc::new(Metrics::new(vec![Box::new(teller), Box::new(Process)])), server: None }
    }

    /// Serves these and no others. If one cannot be, everything is as it was.
    pub fn set(&mut self, endpoints: &[Endpoint]) -> Result<(), BuildError> {
        let sites = endpoints.iter().map(|one| {
            let at = address(&one.at).map_err(|error| one.cannot_listen(&error))?;
            Ok(Site { at, pages: vec![self.page(one.what)] })
        });
        let sites: Vec<Site> = sites.collect::<Result<_, BuildError>>()?;
        let Some(first) = endpoints.first() else {
            self.server = None;
            return Ok(());
        };
        let addresses: Vec<SocketAddr> = sites.iter().map(|site| site.at).collect();
        let server = match &mut self.server {
            Some(server) => server,
            none => none.insert(Server::start().map_err(|error| first.cannot_listen(&error))?),
        };
        server.set(sites).map_err(|ListenError { at, source }| {
            let wanted = endpoints.iter().zip(&addresses).find(|(_, address)| **address == at);
            wanted.map_or(first, |(endpoint, _)| endpoint).cannot_listen(&source)
        })
    }

    fn page(&self, what: What) -> Page {
        match what {
            What::Health { .. } => Page::Health(self.health.clone()),
            What::Ready => Page::Ready(self.health.clone()),
            What::Metrics => Page::Metrics(self.metrics.clone()),
        }
    }

    /// Says whether DNS is served, and goes on to be.
    pub fn set_ready(&self, is_ready: bool) {
        self.health.set_ready(is_ready);
    }

    /// Where they are, in the order in which they were asked for.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.server.as_ref().map(Server::addresses).unwrap_or_default()
    }
}

impl Endpoint {
    fn cannot_listen(&self, error: &io::Error) -> BuildError {
        let host = self.at.host.as_ref().map_or_else(String::new, Host::to_string);
        let message = format!("{}: cannot listen at {host}:{}: {error}", self.what.word(), self.at.port);
        BuildError { place: self.place.clone(), message }
    }
}

/// One address is enough: of a name, IPv4 is tried first, as Go does.
fn address(at: &ListenAt) -> io::Result<SocketAddr> {
    match &at.host {
        None => Ok(SocketAddr::from((Ipv6Addr::UNSPECIFIED, at.port))),
        Some(Host::Address(address)) => Ok(SocketAddr::new(*address, at.port)),
        Some(Host::Name(name)) => {
            let mut all: Vec<SocketAddr> = (name.to_string(), at.port).to_socket_addrs()?.collect();
            all.sort_by_key(SocketAddr::is_ipv6);
            all.first().copied().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        }
    }
}
