//! `prometheus`: what is counted. `meter` counts, with nothing but additions to numbers that were there
//! before the question; `table` says which metrics there are; `export` reads the numbers at a scrape.
//!
//! Counts outlive the Corefile they were begun under: a service that is built finds those of the one
//! before by their labels. What no service counts any more is gone.

mod cached;
mod export;
mod meter;
mod process;
mod table;

pub(crate) use cached::CacheMeter;
pub(super) use export::ListCounts;
pub(super) use meter::{EngineMeter, Meters};
pub(crate) use process::Process;
pub use table::METRICS;

use super::cache::Cache;
use meter::{Counts, Enabled, Place, Rulings};
use namewall_corefile::Point;
use namewall_dns::wire::{Header, Rcode};
use namewall_dns::{EncryptedCounters, Heard, UpstreamState};
use namewall_telemetry::Durations;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Upstreams and their codes that are counted, at most: rules can name any server.
const MOST_UPSTREAMS: usize = 4_096;

/// Everything that is counted.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    counts: Kept<Place, Counts>,
    /// Directives of server blocks.
    enabled: Kept<(Place, &'static str), Enabled>,
    /// By server, point and rule.
    rulings: Kept<(String, &'static str, String), Rulings>,
    /// By server and engine.
    engines: Kept<(String, String), EngineMeter>,
    caches: Mutex<BTreeMap<Place, Weak<Cache>>>,
    cached: Kept<Place, CacheMeter>,
    upstreams: Mutex<FxHashMap<(SocketAddr, Rcode), Arc<Durations>>>,
    /// Of connections over TLS and HTTPS, once they are served.
    connections: Mutex<Option<Arc<EncryptedCounters>>>,
    /// How upstreams were doing a moment ago.
    states: Mutex<Vec<UpstreamState>>,
    /// Questions that `max_concurrent` refused.
    pub(super) rejected: AtomicU64,
    /// Corefiles that could not be served instead of the one that is.
    failed_reloads: AtomicU64,
    /// The hash of the Corefile that is served, in hexadecimal digits.
    version: Mutex<Option<String>>,
}

/// Panics of any thread since they are counted.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Installs a panic hook that counts panics and then calls the hook that was there before.
pub fn count_panics() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |about| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        tell(about);
    }));
}

/// Counts by their labels, as long as somebody counts.
#[derive(Debug)]
struct Kept<K, V>(Mutex<BTreeMap<K, Weak<V>>>);

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord + Clone, V: Default> Kept<K, V> {
    /// Those with these labels, which begin at nothing if there are none.
    fn get(&self, labels: K) -> Arc<V> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, one| one.strong_count() > 0);
        let slot = kept.entry(labels).or_default();
        slot.upgrade().unwrap_or_else(|| {
            let new = Arc::new(V::default());
            *slot = Arc::downgrade(&new);
            new
        })
    }

    fn all(&self) -> Vec<(K, Arc<V>)> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().filter_map(|(labels, one)| Some((labels.clone(), one.upgrade()?))).collect()
    }
}

impl Metrics {
    /// An upstream has answered.
    pub(super) fn heard(&self, heard: &Heard<'_>) {
        let Ok(header) = Header::read(heard.answer) else { return };
        let mut upstreams = self.upstreams.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (heard.upstream, header.rcode);
        if upstreams.len() >= MOST_UPSTREAMS && !upstreams.contains_key(&key) {
            return;
        }
        upstreams.entry(key).or_default().add(heard.since.elapsed());
    }

    pub(super) fn engine(&self, server: &str, engine: &str) -> Arc<EngineMeter> {
        self.engines.get((server.to_owned(), engine.to_owned()))
    }

    fn rulings(&self, server: &str, point: Point, rule: &str) -> Arc<Rulings> {
        self.rulings.get((server.to_owned(), word(point), rule.to_owned()))
    }

    /// Counts of connections over TLS and HTTPS.
    pub(super) fn watch_connections(&self, counters: Arc<EncryptedCounters>) {
        *self.connections.lock().unwrap_or_else(PoisonError::into_inner) = Some(counters);
    }

    /// A cache whose entries are counted.
    pub(super) fn watch(&self, at: Place, cache: &Arc<Cache>) {
        cache.count_to(self.cached.get(at.clone()));
        let mut caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        caches.insert(at, Arc::downgrade(cache));
    }

    /// How upstreams are doing now.
    pub(super) fn set_upstreams(&self, states: Vec<UpstreamState>) {
        *self.states.lock().unwrap_or_else(PoisonError::into_inner) = states;
    }

    /// A Corefile is served from now on; `hash` is of what it was read from, in hexadecimal digits.
    pub(super) fn set_version(&self, hash: String) {
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) = Some(hash);
    }

    pub(super) fn reload_failed(&self) {
        self.failed_reloads.fetch_add(1, Ordering::Relaxed);
    }
}

fn word(point: Point) -> &'static str {
    match point {
        Point::Query => "query",
        Point::Response => "response",
    }
}
