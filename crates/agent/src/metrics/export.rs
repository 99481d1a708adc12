//! What a scraper gets.

use super::meter::{Meter, WAYS, read};
use super::table as metric;
use crate::counters::{Counters as Learned, REASONS};
use crate::denials::Denials;
use crate::state::{State, lock};
use namewall_dataplane::{Dataplane, GuardDrops};
use namewall_dns::wire::Rcode;
use namewall_dns::{Counters as DnsCounters, UpstreamState};
use namewall_kubernetes::Published;
use namewall_policy::Severity;
use namewall_policy::lease::Evictions;
use namewall_telemetry::{Export, Exposition};
use std::fmt;
use std::sync::{Arc, Mutex};

/// The metrics of a running agent.
#[derive(Debug)]
pub(crate) struct NodeMetrics<D: Dataplane>(pub(crate) Arc<Mutex<State<D>>>);

/// All numbers at one moment, so that nothing is locked while they are written.
struct Reading {
    policies: usize,
    pods: usize,
    findings: [usize; metric::SEVERITIES.len()],
    kept: usize,
    is_not_stored: bool,
    is_stored_state: bool,
    is_failing: bool,
    meter: Arc<Meter>,
    leases: usize,
    evictions: Evictions,
    learned: Learned,
    forgotten_answers: u64,
    forgotten_origins: u64,
    leases_not_stored: usize,
    dns: DnsCounters,
    upstreams: Vec<UpstreamState>,
    denials: Arc<Denials>,
    guarded: usize,
    unguarded: usize,
    /// None if nobody asks the container runtime.
    is_runtime_silent: Option<bool>,
    /// None if they cannot be read now: a counter of 0 would look like a restart.
    guard_drops: Option<GuardDrops>,
    second: usize,
    second_unenforced: usize,
    second_repaired: u64,
    unfiltered_bridges: usize,
    published: Option<Published>,
}

impl Reading {
    fn new<D: Dataplane>(state: &State<D>) -> Self {
        let count = |severity| state.findings.iter().filter(|finding| finding.severity == severity).count();
        let (leases, evictions) = state.node.with_leases(|leases| (leases.len(), leases.evictions()));
        let server = state.node.dns();
        Self {
            policies: state.snapshot.policies.len(),
            pods: state.snapshot.pod_count(),
            findings: [Severity::Hint, Severity::Warning, Severity::Error].map(count),
            kept: state.kept.len(),
            is_not_stored: state.storage.failure.is_some(),
            is_stored_state: state.storage.stands_in.is_some(),
            is_failing: state.last_error.is_some(),
            meter: state.node.meter().clone(),
            leases,
            evictions,
            learned: state.node.counters(),
            forgotten_answers: state.node.learner().forgotten_answers(),
            forgotten_origins: state.node.learner().forgotten_origins(),
            leases_not_stored: state.node.learner().leases_not_stored(),
            dns: server.map(|server| server.counters()).unwrap_or_default(),
            upstreams: server.map(|server| server.upstreams()).unwrap_or_default(),
            denials: state.denials.clone(),
            guarded: state.node.guards(),
            unguarded: state.interfaces.unknown().len(),
            is_runtime_silent: state.interfaces.sandboxes().map(|said| said.error.is_some()),
            guard_drops: state.node.guard_drops().ok(),
            second: state.node.second().iter().map(|pod| pod.interfaces.len()).sum(),
            second_unenforced: state.unreached_pods().len()
                + state.node.second().iter().filter(|pod| pod.failure.is_some()).count(),
            second_repaired: state.node.repaired_inside(),
            unfiltered_bridges: state.node.guarded().bridges.unfiltered.len(),
            published: state.publisher.as_ref().map(|publisher| publisher.counts()),
        }
    }

    fn changes(&self, to: &mut Exposition<'_>) -> fmt::Result {
        let Self { meter, .. } = self;
        to.value(&metric::POLICIES, self.policies)?;
        to.value(&metric::PODS, self.pods)?;
        let mut findings = to.family(&metric::FINDINGS)?;
        let counts = metric::SEVERITIES.iter().zip(self.findings);
        counts.into_iter().try_for_each(|(severity, count)| findings.sample(&[severity], count))?;
        to.value(&metric::OBJECTS_KEPT, self.kept)?;
        to.value(&metric::STORE_FAILING, usize::from(self.is_not_stored))?;
        to.value(&metric::ENFORCING_STORED, usize::from(self.is_stored_state))?;
        let mut changes = to.family(&metric::CHANGES)?;
        changes.sample(&["ok"], read(&meter.changes))?;
        changes.sample(&["failed"], read(&meter.failed_changes))?;
        to.value(&metric::CHANGE_FAILING, self.is_failing)?;
        to.family(&metric::COMPILE_DURATION)?.durations(&[], &meter.compiled)?;
        let mut commits = to.family(&metric::COMMIT_DURATION)?;
        commits.durations(&["program"], &meter.program.took)?;
        commits.durations(&["leases"], &meter.leases.took)?;
        let mut failures = to.family(&metric::COMMIT_FAILURES)?;
        failures.sample(&["program"], read(&meter.program.failed))?;
        failures.sample(&["leases"], read(&meter.leases.failed))?;
        let mut ways = to.family(&metric::RULE_CHANGES)?;
        WAYS.iter().zip(&meter.ways).try_for_each(|(way, count)| ways.sample(&[way], read(count)))?;
        to.value(&metric::CONNECTIONS_CUT, read(&meter.cut))?;
        to.value(&metric::CUTS_FORGOTTEN, read(&meter.cuts_forgotten))?;
        to.value(&metric::GUARDED, self.guarded)?;
        to.value(&metric::UNGUARDED, self.unguarded)?;
        let mut runtime = to.family(&metric::RUNTIME_SILENT)?;
        if let Some(is_silent) = self.is_runtime_silent {
            runtime.sample(&[], is_silent)?;
        }
        let mut drops = to.family(&metric::GUARD_DROPS)?;
        if let Some(dropped) = self.guard_drops {
            drops.sample(&["wrong_source"], dropped.wrong_source.packets)?;
            drops.sample(&["source_route"], dropped.source_routes.packets)?;
            drops.sample(&["group"], dropped.groups.packets)?;
            drops.sample(&["tunnel"], dropped.tunnels.packets)?;
        }
        to.value(&metric::SECOND, self.second)?;
        to.value(&metric::SECOND_UNENFORCED, self.second_unenforced)?;
        to.value(&metric::SECOND_REPAIRED, self.second_repaired)?;
        to.value(&metric::UNFILTERED_BRIDGES, self.unfiltered_bridges)?;
        let mut denials = to.family(&metric::DENIALS)?;
        denials.sample(&["enforced"], read(&self.denials.enforced))?;
        denials.sample(&["audited"], read(&self.denials.audited))?;
        to.value(&metric::DENIALS_LOST, read(&self.denials.lost))?;
        to.value(&metric::DENIAL_LOG_FAILURES, read(&self.denials.failures))?;
        to.value(&metric::CALLERS_REFUSED, read(&meter.callers_refused))
    }

    fn leases(&self, to: &mut Exposition<'_>) -> fmt::Result {
        let Self { meter, evictions, learned, .. } = self;
        to.value(&metric::LEASES, self.leases)?;
        to.value(&metric::LEASES_GRANTED, read(&meter.granted))?;
        let mut evicted = to.family(&metric::LEASES_EVICTED)?;
        evicted.sample(&["addresses_per_name"], evictions.addresses_a_name)?;
        evicted.sample(&["names_per_pattern"], evictions.names_a_pattern)?;
        evicted.sample(&["leases"], evictions.leases)?;
        to.value(&metric::NAMES_EXPIRED, read(&meter.names_expired))?;
        let mut refused = to.family(&metric::ADDRESSES_REFUSED)?;
        let counts = REASONS.iter().zip(learned.refused_by);
        counts.into_iter().try_for_each(|(reason, count)| refused.sample(&[reason], count))?;
        let mut revoked = to.family(&metric::LEASES_REVOKED)?;
        let counts = REASONS.iter().zip(learned.revoked_by);
        counts.into_iter().try_for_each(|(reason, count)| revoked.sample(&[reason], count))?;
        to.value(&metric::ADDRESSES_FOREIGN, learned.foreign)?;
        to.value(&metric::ADDRESSES_OVER_BOUND, learned.over_bound)?;
        to.value(&metric::RECENT_FORGOTTEN, self.forgotten_answers)?;
        to.value(&metric::ORIGINS_FORGOTTEN, self.forgotten_origins)?;
        to.value(&metric::LEASES_NOT_STORED, self.leases_not_stored)?;
        to.value(&metric::ANSWERS_READ, learned.read)?;
        to.value(&metric::ANSWERS_LEARNED, learned.learned)
    }

    fn dns(&self, to: &mut Exposition<'_>) -> fmt::Result {
        let Self { dns, upstreams, .. } = self;
        to.value(&metric::QUERIES, dns.queries)?;
        let mut refused = to.family(&metric::QUERIES_REFUSED)?;
        refused.sample(&["malformed"], dns.malformed)?;
        refused.sample(&["stranger"], dns.strangers)?;
        refused.sample(&["over_limit"], dns.over_limit)?;
        refused.sample(&["evicted"], dns.evicted)?;
        to.value(&metric::QUERIES_IN_PROGRESS, dns.under_way)?;
        let mut answers = to.family(&metric::ANSWERS)?;
        for (rcode, count) in (0..).zip(dns.answers_by_rcode).filter(|(_, count)| *count > 0) {
            answers.sample(&[&Rcode(rcode).to_string()], count)?;
        }
        to.value(&metric::UNANSWERED, dns.unanswered)?;
        to.value(&metric::RETRIES, dns.retries)?;
        to.value(&metric::UNASKED, dns.unasked)?;
        to.value(&metric::JOINED, dns.joined)?;
        to.value(&metric::PASSED, dns.passed)?;
        to.value(&metric::RECASED, dns.recased)?;
        to.value(&metric::DISTRUSTED, dns.distrusted)?;
        to.value(&metric::CASELESS, dns.caseless)?;
        to.value(&metric::UNREADABLE, dns.unreadable)?;
        to.value(&metric::UNSENT, dns.unsent)?;
        to.value(&metric::TCP_CONNECTIONS, dns.connections)?;
        to.value(&metric::HELD, dns.held)?;
        to.value(&metric::HOLD_FAILED, dns.hold_failed)?;
        to.value(&metric::HOLD_RELEASED, dns.hold_released)?;
        let up = upstreams.iter().filter(|upstream| upstream.is_up).count();
        let mut states = to.family(&metric::UPSTREAMS)?;
        states.sample(&["up"], up)?;
        states.sample(&["down"], upstreams.len() - up)?;
        to.value(&metric::UPSTREAM_FAILURES, upstreams.iter().map(|upstream| upstream.failed).sum::<u64>())
    }
}

impl<D: Dataplane> Export for NodeMetrics<D> {
    fn export(&self, to: &mut Exposition<'_>) -> fmt::Result {
        let reading = Reading::new(&lock(&self.0));
        reading.changes(to)?;
        reading.leases(to)?;
        reading.dns(to)?;
        reading.published.map_or(Ok(()), |published| published.export(to))
    }
}
