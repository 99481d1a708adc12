//! The HTTP server of a daemon, where one is asked for: `/metrics`, `/health` and `/ready`.

use anyhow::{Context, Result};
use namewall_telemetry::{Export, Health, ListenError, Metrics, Page, Server, Site};
use serde::Deserialize;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::info;

/// A daemon whose loop has not turned for so long will not turn again.
const STUCK: Duration = Duration::from_secs(120);
/// How long an address is waited for that the process before is about to leave.
const LEAVING: Duration = Duration::from_secs(5);
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// Where to listen: an address with a port, or `:PORT` for all addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct HttpAddress(SocketAddr);

impl HttpAddress {
    /// All addresses, of both families.
    pub(crate) fn everywhere(port: u16) -> Self {
        Self((Ipv6Addr::UNSPECIFIED, port).into())
    }
}

impl FromStr for HttpAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no address like 127.0.0.1:9553, [::1]:9553 or :9553");
        match text.strip_prefix(':') {
            Some(port) => port.parse().map(Self::everywhere).map_err(|_| wrong()),
            None => text.parse().map(Self).map_err(|_| wrong()),
        }
    }
}

impl TryFrom<String> for HttpAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// The metrics and the health of a daemon, over HTTP.
#[derive(Debug)]
pub(super) struct Http {
    /// None if no address is given.
    server: Option<Server>,
    addresses: Vec<SocketAddr>,
    health: Health,
}

impl Http {
    /// Of a daemon that is not ready yet, and says so in these words. Serves nothing yet.
    pub(super) fn new(addresses: impl IntoIterator<Item = HttpAddress>, not_ready: &'static str) -> Result<Self> {
        let addresses: Vec<SocketAddr> = addresses.into_iter().map(|HttpAddress(address)| address).collect();
        let server = (!addresses.is_empty()).then(Server::start).transpose();
        let server = server.context("cannot start the thread that serves HTTP")?;
        Ok(Self { server, addresses, health: Health::with_loop(not_ready, STUCK) })
    }

    pub(super) fn health(&self) -> &Health {
        &self.health
    }

    /// Serves the health, and the metrics of these parts in place of those before.
    pub(super) fn serve(&mut self, parts: impl IntoIterator<Item = Arc<dyn Export>>) -> Result<(), ListenError> {
        let Some(server) = &mut self.server else { return Ok(()) };
        let parts = parts.into_iter().map(|part| Box::new(part) as Box<dyn Export>);
        let metrics = Arc::new(Metrics::new(parts.collect()));
        let pages = || {
            let (alive, ready) = (Page::Health(self.health.clone()), Page::Ready(self.health.clone()));
            vec![alive, ready, Page::Metrics(metrics.clone())]
        };
        let is_new = server.addresses().is_empty();
        server.set(self.addresses.iter().map(|&at| Site { at, pages: pages() }).collect())?;
        for address in server.addresses().iter().filter(|_| is_new) {
            info!(%address, "serving metrics");
        }
        Ok(())
    }

    /// The same at addresses that the process before is about to leave.
    pub(super) fn serve_after_another(&mut self, parts: &[Arc<dyn Export>]) -> Result<(), ListenError> {
        let until = Instant::now() + LEAVING;
        loop {
            match self.serve(parts.iter().cloned()) {
                Err(error) if is_taken(&error) && Instant::now() < until => std::thread::sleep(TRY_AGAIN),
                done => return done,
            }
        }
    }
}

/// True if another process listens there.
pub(super) fn is_taken(error: &ListenError) -> bool {
    error.source.kind() == io::ErrorKind::AddrInUse
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_port_and_may_be_all_of_them() {
        for (text, address) in [
            ("127.0.0.1:9553", "127.0.0.1:9553"),
            ("[::1]:9553", "[::1]:9553"),
            (":9553", "[::]:9553"),
            ("0.0.0.0:0", "0.0.0.0:0"),
        ] {
            assert_eq!(text.parse(), Ok(HttpAddress(address.parse().expect("an address"))), "{text}");
        }
        for wrong in ["", ":", "9553", "localhost:9553", "127.0.0.1", ":70000", "::1:9553x"] {
            assert!(wrong.parse::<HttpAddress>().is_err(), "{wrong}");
        }
    }
}
