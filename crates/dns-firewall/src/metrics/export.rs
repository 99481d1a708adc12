//! What a scraper gets.

use super::meter::{Counts, PLUGINS, Place};
use super::table::*;
use super::{Metrics, PANICS as PANICS_SEEN};
use crate::report::Ruling;
use crate::tell::Teller;
use namewall_dns::wire::Rcode;
use namewall_telemetry::{Export, Exposition, Family};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

impl Export for Teller {
    fn export(&self, to: &mut Exposition<'_>) -> fmt::Result {
        let metrics = self.metrics();
        let all = metrics.counts.all();
        questions(&all, to)?;
        answers(&all, to)?;
        hits(&all, to)?;
        metrics.caches(to)?;
        metrics.upstreams(to)?;
        metrics.process(to)?;
        metrics.decisions(to)?;
        metrics.connections(to)?;
        to.value(&CLIENTS_FORGOTTEN, self.clients().forgotten())?;
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

fn sum(counters: &[AtomicU64]) -> u64 {
    counters.iter().map(|counter| counter.load(Ordering::Relaxed)).sum()
}

fn questions(all: &[(Place, Arc<Counts>)], to: &mut Exposition<'_>) -> fmt::Result {
    let mut requests = to.family(&REQUESTS)?;
    for ((server, zone, view), counts) in all {
        for (over_tcp, proto) in PROTOCOLS.into_iter().enumerate() {
            for (is_v6, family) in FAMILIES.into_iter().enumerate() {
                for (kind, counter) in TYPE_WORDS.iter().zip(&counts.requests[over_tcp][is_v6]) {
                    count(&mut requests, &[server, zone, view, proto, family, kind], counter)?;
                }
            }
        }
    }
    let mut sizes = to.family(&REQUEST_SIZE)?;
    for ((server, zone, view), counts) in all {
        for (proto, counted) in PROTOCOLS.into_iter().zip(&counts.request_sizes) {
            sizes.sizes(&[server, zone, view, proto], counted)?;
        }
    }
    let mut dnssec_ok = to.family(&DO_REQUESTS)?;
    for ((server, zone, view), counts) in all {
        count(&mut dnssec_ok, &[server, zone, view], &counts.dnssec_ok)?;
    }
    let mut durations = to.family(&REQUEST_DURATION)?;
    all.iter()
        .try_for_each(|((server, zone, view), counts)| durations.durations(&[server, zone, view], &counts.duration))
}

fn answers(all: &[(Place, Arc<Counts>)], to: &mut Exposition<'_>) -> fmt::Result {
    let mut responses = to.family(&RESPONSES)?;
    for ((server, zone, view), counts) in all {
        for (plugin, by_code) in PLUGINS.iter().zip(&counts.responses) {
            for (rcode, counter) in (0..).zip(by_code) {
                count(&mut responses, &[server, zone, view, &Rcode(rcode).to_string(), plugin], counter)?;
            }
        }
    }
    let mut sizes = to.family(&RESPONSE_SIZE)?;
    for ((server, zone, view), counts) in all {
        for (proto, counted) in PROTOCOLS.into_iter().zip(&counts.response_sizes) {
            sizes.sizes(&[server, zone, view, proto], counted)?;
        }
    }
    Ok(())
}

/// How often caches had an answer.
fn hits(all: &[(Place, Arc<Counts>)], to: &mut Exposition<'_>) -> fmt::Result {
    let mut requests = to.family(&CACHE_REQUESTS)?;
    for ((server, zone, view), counts) in all {
        match sum(&counts.hits) + counts.misses.load(Ordering::Relaxed) {
            0 => {}
            asked => requests.sample(&[server, zone, view], asked)?,
        }
    }
    let mut hits = to.family(&CACHE_HITS)?;
    for ((server, zone, view), counts) in all {
        for (kind, counter) in CACHED_KINDS.iter().zip(&counts.hits) {
            count(&mut hits, &[server, kind, zone, view], counter)?;
        }
    }
    let mut misses = to.family(&CACHE_MISSES)?;
    all.iter().try_for_each(|((server, zone, view), counts)| count(&mut misses, &[server, zone, view], &counts.misses))
}

impl Metrics {
    fn caches(&self, to: &mut Exposition<'_>) -> fmt::Result {
        let mut kept = to.family(&CACHE_ENTRIES)?;
        let mut caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        caches.retain(|_, cache| cache.strong_count() > 0);
        for ((server, zones, view), cache) in
            caches.iter().filter_map(|(labels, cache)| Some((labels, cache.upgrade()?)))
        {
            for (kind, entries) in CACHED_KINDS.iter().zip(cache.entries()) {
                kept.sample(&[server, kind, zones, view], entries)?;
            }
        }
        drop(caches);
        let all = self.cached.all();
        let mut evictions = to.family(&CACHE_EVICTIONS)?;
        for ((server, zones, view), meter) in &all {
            for (kind, counter) in CACHED_KINDS.iter().zip(&meter.evictions) {
                count(&mut evictions, &[server, kind, zones, view], counter)?;
            }
        }
        let mut drops = to.family(&CACHE_DROPS)?;
        all.iter()
            .try_for_each(|((server, zones, view), meter)| count(&mut drops, &[server, zones, view], &meter.drops))?;
        let mut stale = to.family(&CACHE_STALE)?;
        for ((server, zones, view), meter) in &all {
            count(&mut stale, &[server, zones, view], &meter.served_stale)?;
        }
        let mut prefetches = to.family(&CACHE_PREFETCHES)?;
        all.iter().try_for_each(|((server, zones, view), meter)| {
            count(&mut prefetches, &[server, zones, view], &meter.prefetches)
        })
    }

    fn upstreams(&self, to: &mut Exposition<'_>) -> fmt::Result {
        let upstreams = self.upstreams.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = upstreams.iter().map(|((to, rcode), took)| (*to, rcode.0, took.clone())).collect();
        drop(upstreams);
        all.sort_by_key(|(upstream, rcode, _)| (*upstream, *rcode));
        let mut durations = to.family(&UPSTREAM_DURATION)?;
        all.iter().try_for_each(|(upstream, rcode, took)| {
            durations.durations(&["forward", &upstream.to_string(), &Rcode(*rcode).to_string()], took)
        })?;
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut failures = to.family(&CHECK_FAILURES)?;
        for state in states.iter().filter(|state| state.failed_checks > 0) {
            failures.sample(&["forward", &state.address.to_string()], state.failed_checks)?;
        }
        to.value(&REJECTS, self.rejected.load(Ordering::Relaxed))
    }

    /// What is known of the process and its Corefile.
    fn process(&self, to: &mut Exposition<'_>) -> fmt::Result {
        let mut enabled = to.family(&PLUGIN_ENABLED)?;
        for (((server, zone, view), name), _) in &self.enabled.all() {
            enabled.sample(&[server, zone, view, name], 1_u64)?;
        }
        to.value(&RELOAD_FAILED, self.failed_reloads.load(Ordering::Relaxed))?;
        let version = self.version.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut versions = to.family(&RELOAD_VERSION)?;
        version.iter().try_for_each(|hash| versions.sample(&["sha256", hash], 1_u64))?;
        to.value(&PANICS, PANICS_SEEN.load(Ordering::Relaxed))?;
        to.family(&CORE_BUILD_INFO)?.sample(&[env!("CARGO_PKG_VERSION"), "", ""], 1_u64)
    }

    fn connections(&self, to: &mut Exposition<'_>) -> fmt::Result {
        let counters = self.connections.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default();
        to.value(&ENCRYPTED, counters.connections.get())?;
        let mut refused = to.family(&ENCRYPTED_REFUSED)?;
        refused.sample(&["connection"], counters.refused.get())?;
        refused.sample(&["evicted"], counters.evicted.get())?;
        refused.sample(&["handshake"], counters.handshakes_failed.get())?;
        refused.sample(&["question"], counters.questions_refused.get())?;
        refused.sample(&["request"], counters.bad_requests.get())
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
