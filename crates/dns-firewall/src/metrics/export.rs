//! What a scraper gets.

use super::Metrics;
use super::table::{
    CACHE_ENTRIES, CACHE_HITS, CACHE_MISSES, CACHED_KINDS, DECISIONS, ENGINE_DURATION, ENGINE_FAILURES, FAMILIES,
    LINES_LOST, LIST_ENTRIES, LIST_FAILURES, LIST_LOADED, PROTOCOLS, REQUEST_DURATION, REQUESTS, RESPONSES, TAPS_LOST,
    TYPE_WORDS, UPSTREAM_DURATION,
};
use crate::report::Ruling;
use crate::tell::Teller;
use namewall_dns::wire::Rcode;
use namewall_telemetry::{Export, Exposition, Family};
use std::fmt;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

impl Export for Teller {
    fn export(&self, to: &mut Exposition<'_>) -> fmt::Result {
        let metrics = self.metrics();
        metrics.questions(to)?;
        metrics.caches(to)?;
        metrics.upstreams(to)?;
        metrics.decisions(to)?;
        to.value(&LINES_LOST, self.lines_lost())?;
        let mut taps = to.family(&TAPS_LOST)?;
        self.taps().lost().iter().try_for_each(|(endpoint, lost)| taps.sample(&[endpoint], *lost))?;
        lists(&self.list_counts(), to)
    }
}

/// What a list, or a policy zone, is like.
pub(crate) struct ListCounts {
    pub(crate) label: String,
    pub(crate) entries: u64,
    /// Seconds since 1970.
    pub(crate) loaded: u64,
    pub(crate) failures: u64,
}

fn lists(all: &[ListCounts], to: &mut Exposition<'_>) -> fmt::Result {
    let mut entries = to.family(&LIST_ENTRIES)?;
    all.iter().try_for_each(|list| entries.sample(&[&list.label], list.entries))?;
    let mut loaded = to.family(&LIST_LOADED)?;
    all.iter().try_for_each(|list| loaded.sample(&[&list.label], list.loaded))?;
    let mut failures = to.family(&LIST_FAILURES)?;
    all.iter().try_for_each(|list| failures.sample(&[&list.label], list.failures))
}

/// A sample of what has happened at all, as with CoreDNS.
fn count(family: &mut Family<'_>, labels: &[&str], counter: &AtomicU64) -> fmt::Result {
    match counter.load(Ordering::Relaxed) {
        0 => Ok(()),
        value => family.sample(labels, value),
    }
}

impl Metrics {
    fn questions(&self, to: &mut Exposition<'_>) -> fmt::Result {
        let all = self.counts.all();
        let mut requests = to.family(&REQUESTS)?;
        for ((server, zone), counts) in &all {
            for (over_tcp, proto) in PROTOCOLS.into_iter().enumerate() {
                for (is_v6, family) in FAMILIES.into_iter().enumerate() {
                    for (kind, counter) in TYPE_WORDS.iter().zip(&counts.requests[over_tcp][is_v6]) {
                        count(&mut requests, &[server, zone, proto, family, kind], counter)?;
                    }
                }
            }
        }
        let mut responses = to.family(&RESPONSES)?;
        for ((server, zone), counts) in &all {
            for (rcode, counter) in (0..).zip(&counts.responses) {
                count(&mut responses, &[server, zone, &Rcode(rcode).to_string()], counter)?;
            }
        }
        let mut durations = to.family(&REQUEST_DURATION)?;
        all.iter().try_for_each(|((server, zone), counts)| durations.durations(&[server, zone], &counts.duration))
    }

    fn caches(&self, to: &mut Exposition<'_>) -> fmt::Result {
        let all = self.counts.all();
        let mut hits = to.family(&CACHE_HITS)?;
        for ((server, zone), counts) in &all {
            for (kind, counter) in CACHED_KINDS.iter().zip(&counts.hits) {
                count(&mut hits, &[server, kind, zone], counter)?;
            }
        }
        let mut misses = to.family(&CACHE_MISSES)?;
        for ((server, zone), counts) in &all {
            count(&mut misses, &[server, zone], &counts.misses)?;
        }
        let mut kept = to.family(&CACHE_ENTRIES)?;
        let mut caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        caches.retain(|_, cache| cache.strong_count() > 0);
        for ((server, zones), cache) in caches.iter().filter_map(|(labels, cache)| Some((labels, cache.upgrade()?))) {
            for (kind, entries) in CACHED_KINDS.iter().zip(cache.entries()) {
                kept.sample(&[server, kind, zones], entries)?;
            }
        }
        Ok(())
    }

    fn upstreams(&self, to: &mut Exposition<'_>) -> fmt::Result {
        let upstreams = self.upstreams.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = upstreams.iter().map(|((to, rcode), took)| (*to, rcode.0, took.clone())).collect();
        drop(upstreams);
        all.sort_by_key(|(upstream, rcode, _)| (*upstream, *rcode));
        let mut durations = to.family(&UPSTREAM_DURATION)?;
        all.iter().try_for_each(|(upstream, rcode, took)| {
            durations.durations(&["forward", &upstream.to_string(), &Rcode(*rcode).to_string()], took)
        })
    }

    fn decisions(&self, to: &mut Exposition<'_>) -> fmt::Result {
        let mut decisions = to.family(&DECISIONS)?;
        for ((server, point, rule), rulings) in &self.rulings.all() {
            for (outcome, counter) in Ruling::OUTCOMES.iter().zip(&rulings.0) {
                count(&mut decisions, &[server, point, outcome, rule], counter)?;
            }
        }
        let engines = self.engines.all();
        let mut durations = to.family(&ENGINE_DURATION)?;
        for ((server, engine), meter) in &engines {
            durations.durations(&[server, engine], &meter.duration)?;
        }
        let mut failures = to.family(&ENGINE_FAILURES)?;
        engines.iter().try_for_each(|((server, engine), meter)| {
            failures.sample(&[server, engine], meter.failures.load(Ordering::Relaxed))
        })
    }
}
