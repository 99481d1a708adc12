//! A Corefile in a cluster: clients are its pods, and `dnsnameresolver` writes
//! what names were found at into its objects.

use super::identities::Pods;
use crate::cli::ApiServer;
use anyhow::{Context, Result};
use namewall_cluster::kinds::{DNS_NAME_RESOLVER, POD};
use namewall_cluster::resolver::Settings;
use namewall_corefile::{Corefile, DnsNameResolver};
use namewall_dns_firewall::{LookedUp, Names};
use namewall_kubernetes::{Connection, Outcome, Publisher, Watch};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tracing::info;

/// How long an answer waits for the API server to know of it (S8.5).
const HOLD: Duration = Duration::from_millis(200);
/// How often pods are looked at that have changed.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const WATCH_TIMEOUT: Duration = Duration::from_secs(60);

/// Whether the API server is needed to serve this, or wished.
pub(super) fn is_wanted(corefile: &Corefile, server: &ApiServer) -> bool {
    let writes = corefile.servers.iter().any(|server| server.dns_name_resolver.is_some());
    writes || server.kubeconfig.is_some() || server.context.is_some()
}

/// Watches a cluster: pods are told of from now on, and names are kept. Waits for nothing: what is not known yet
/// is no pod, and no object of a name.
pub(super) fn follow(server: &ApiServer, pods: Option<Arc<Pods>>) -> Result<Arc<dyn Names>> {
    let connection = Connection::open(&server.target()).context("`dnsnameresolver` needs the API server")?;
    info!(server = %connection.server(), "watching");
    let names = Watch::start_for(&connection, [&DNS_NAME_RESOLVER]);
    if let Some(pods) = pods {
        let mut watch = Watch::start_for(&connection, [&POD]);
        let follow = move || {
            loop {
                if watch.wait(WATCH_TIMEOUT) {
                    watch.take_change();
                    watch.with_store(|store| pods.set(store.pods()));
                    std::thread::sleep(LOOK_EVERY);
                }
            }
        };
        std::thread::Builder::new().name("pods".to_owned()).spawn(follow)?;
    }
    Ok(Arc::new(Keeper { watch: names, publishers: Mutex::default() }))
}

/// Writes what names were found at. Every directive has its own way to.
#[derive(Debug)]
struct Keeper {
    watch: Watch,
    publishers: Mutex<Vec<(DnsNameResolver, Arc<Publisher>)>>,
}

impl Keeper {
    fn publisher(&self, directive: &DnsNameResolver) -> Arc<Publisher> {
        let mut all = self.publishers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = all.iter().find(|(known, _)| known == directive) {
            return known.clone();
        }
        let settings = Settings {
            minimum_ttl: i32::try_from(directive.min_ttl.as_secs()).unwrap_or(i32::MAX),
            failure_threshold: i32::try_from(directive.failure_threshold).unwrap_or(i32::MAX),
            ..Settings::default()
        };
        let namespaces = directive.namespaces.iter().map(ToString::to_string).collect();
        let publisher = Arc::new(self.watch.publisher(settings).within(namespaces));
        all.push((directive.clone(), publisher.clone()));
        publisher
    }
}

impl Names for Keeper {
    fn note(&self, looked_up: &LookedUp<'_>) -> bool {
        let seconds = |ttl: &Duration| u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX);
        let found = |all: &Vec<(IpAddr, Duration)>| all.iter().map(|(ip, ttl)| (*ip, seconds(ttl))).collect();
        let outcome = match &looked_up.outcome {
            Ok(addresses) => Outcome::Found(found(addresses)),
            Err(rcode) => Outcome::Failed(rcode.clone()),
        };
        self.publisher(looked_up.directive).note(&looked_up.name, &outcome)
    }

    fn finish(&self) {
        let all = self.publishers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.iter().for_each(|(_, publisher)| _ = publisher.hold(HOLD));
    }
}
