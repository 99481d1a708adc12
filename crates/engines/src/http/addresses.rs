//! Where a name leads.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// The client looks its server up for every question, even for one on a connection it has. This keeps
/// what the system says for a while: a question to a DNS firewall should not cause another one. A client
/// has one server, so there is one answer to keep.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    system: DefaultResolver,
    known: Mutex<Option<(Instant, ResolvedSocketAddrs)>>,
}

const KEPT: Duration = Duration::from_secs(30);

impl Resolver for Addresses {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((at, addresses)) = &known
            && at.elapsed() < KEPT
        {
            return Ok(addresses.clone());
        }
        // Not under the lock: others need not wait for the same.
        match (self.system.resolve(uri, config, timeout), known) {
            (Ok(addresses), _) => {
                *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), addresses.clone()));
                Ok(addresses)
            }
            // An old address is better than none: where it is wrong, connecting fails.
            (Err(_), Some((_, addresses))) => Ok(addresses),
            (Err(error), None) => Err(error),
        }
    }
}
