//! A Corefile in a cluster: clients are its pods, and `dnsnameresolver` writes what names were found at into its objects.

use super::identities::Pods;
use super::objects::connect;
use crate::cli::ApiServer;
use anyhow::{Context, Result};
use namewall_cluster::kinds::{DNS_NAME_RESOLVER, POD};
use namewall_cluster::resolver::Settings;
use namewall_corefile::{ClientFact, Corefile, DnsNameResolver};
use namewall_dns_firewall::{Identities, LookedUp, Names};
use namewall_kubernetes::{Connection, Outcome, Publisher, Target, Watch};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How long an answer waits for the API server to know of it (S8.5).
const HOLD: Duration = Duration::from_millis(200);
/// How often pods are looked at that have changed.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How soon trouble with the API server is logged.
const WATCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether the API server is needed to serve this, or wished.
pub(super) fn is_wanted(corefile: &Corefile, server: &ApiServer) -> bool {
    let writes = corefile.servers.iter().any(|server| server.dns_name_resolver.is_some());
    writes || server.kubeconfig.is_some() || server.context.is_some()
}

/// Watches the objects of names at an API server, to keep names there. Waits for nothing: what is not known yet is no object
/// of a name.
pub(super) fn keep_names(server: &ApiServer) -> Result<Arc<dyn Names>> {
    let connection = Connection::open(&server.target()).context("`dnsnameresolver` needs the API server")?;
    info!(server = %connection.server(), "watching");
    let names = Watch::start_for(&connection, [&DNS_NAME_RESOLVER]);
    Ok(Arc::new(Keeper { watch: names, publishers: Mutex::default() }))
}

/// Who clients are, if an API server says so. Its pods are followed from when a Corefile asks for them.
#[derive(Debug)]
pub(super) struct Clients {
    pods: Arc<Pods>,
    target: Target,
    /// Manifests say who clients are, or nobody is asked.
    is_settled: bool,
    /// Whether the Corefile looks at clients. Without it nobody waits for pods.
    is_needed: bool,
}

impl Clients {
    pub(super) fn new(pods: Arc<Pods>, target: Target, is_settled: bool) -> Self {
        Self { pods, target, is_settled, is_needed: false }
    }

    /// Follows the cluster's pods if a Corefile looks at clients, or if it is wished. An error is that there is nobody to
    /// say who clients are: what is not known would never match.
    pub(super) fn follow_for(&mut self, corefile: &Corefile, is_wished: bool) -> Result<()> {
        let asking = corefile.servers.iter().find_map(|server| Some((server, server.client_fact()?)));
        self.is_needed = asking.is_some();
        if self.is_settled || asking.is_none() && !is_wished {
            return Ok(());
        }
        // The cluster whose names the server block answers, unless another is named.
        let is_named = self.target.kubeconfig.is_some() || self.target.context.is_some();
        let directive = asking.as_ref().and_then(|(server, _)| server.kubernetes.as_ref()).filter(|_| !is_named);
        let opened = match directive {
            Some(directive) => connect(&self.target, directive),
            None => Connection::open(&self.target).map_err(Into::into),
        };
        let connection = opened.with_context(|| match &asking {
            Some((_, ClientFact { name, place })) => format!(
                "{place}: error: nothing says who clients are, and `{name}` needs it: pass --kubeconfig or --manifests"
            ),
            None => "the API server cannot be asked who clients are".to_owned(),
        })?;
        info!(server = %connection.server(), "watching pods, to know clients");
        self.pods.await_list();
        let (mut watch, pods) = (Watch::start_for(&connection, [&POD]), self.pods.clone());
        let follow = move || {
            let mut told = Vec::new();
            loop {
                if watch.wait(WATCH_TIMEOUT) {
                    watch.take_change();
                    watch.with_store(|store| pods.set(store.pods()));
                    std::thread::sleep(LOOK_EVERY);
                }
                let trouble = watch.trouble();
                if trouble != told {
                    trouble
                        .iter()
                        .for_each(|one| warn!(kind = one.kind, "the API server cannot be asked: {}", one.what));
                    told = trouble;
                }
            }
        };
        std::thread::Builder::new().name("pods".to_owned()).spawn(follow)?;
        self.is_settled = true;
        Ok(())
    }

    /// Waits until it is known who clients are, if that matters, but not longer than this.
    pub(super) fn wait(&self, limit: Duration) {
        let until = Instant::now() + limit;
        while !self.are_known() {
            if Instant::now() >= until {
                warn!(
                    "the API server has not listed pods yet; questions of rules about clients get SERVFAIL until then"
                );
                return;
            }
            std::thread::sleep(LOOK_EVERY / 10);
        }
    }

    /// False if the Corefile looks at clients and nobody has said yet who they are.
    pub(super) fn are_known(&self) -> bool {
        !self.is_needed || self.pods.are_known()
    }
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
