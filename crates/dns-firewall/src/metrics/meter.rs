//! What is counted of the questions of a server block.

use super::Metrics;
use crate::report::{Report, Ruling, Source};
use crate::rules::Judge;
use crate::service::Block;
use namewall_corefile::{FileSpan, Point, Scheme, Zone};
use namewall_dns::wire::{Edns, Header, Rcode, RecordType};
use namewall_telemetry::{Durations, Sizes};
use rustc_hash::FxHashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The types CoreDNS tells apart; all others are `other`.
pub(super) const TYPES: [(u16, &str); 18] = [
    (1, "A"),
    (28, "AAAA"),
    (2, "NS"),
    (5, "CNAME"),
    (6, "SOA"),
    (12, "PTR"),
    (15, "MX"),
    (16, "TXT"),
    (33, "SRV"),
    (43, "DS"),
    (46, "RRSIG"),
    (47, "NSEC"),
    (48, "DNSKEY"),
    (50, "NSEC3"),
    (65, "HTTPS"),
    (251, "IXFR"),
    (252, "AXFR"),
    (255, "ANY"),
];

/// Who can have written an answer: directives. The first stands for the server itself, and for all that have no name here.
pub(super) const PLUGINS: [&str; 12] =
    ["", "any", "cache", "chaos", "file", "firewall", "forward", "hosts", "kubernetes", "local", "template", "whoami"];

/// The labels of a server, a zone and a view.
pub(super) type Place = (String, String, String);

/// Of a server, a zone and a view.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// By whether it came over TCP, whether over IPv6, and by type.
    pub(super) requests: [[[AtomicU64; TYPES.len() + 1]; 2]; 2],
    /// By whether it came over TCP.
    pub(super) request_sizes: [Sizes; 2],
    pub(super) response_sizes: [Sizes; 2],
    /// Questions of clients that want DNSSEC.
    pub(super) dnssec_ok: AtomicU64,
    /// By who wrote them, and by code.
    pub(super) responses: [[AtomicU64; 16]; PLUGINS.len()],
    pub(super) duration: Durations,
    /// From the cache: names and addresses, and that there are none.
    pub(super) hits: [AtomicU64; 2],
    pub(super) misses: AtomicU64,
}

/// A directive that stands in a server block.
#[derive(Debug, Default)]
pub(super) struct Enabled;

/// How often a rule has decided, by [`Ruling::OUTCOMES`].
#[derive(Debug, Default)]
pub(super) struct Rulings(pub(super) [AtomicU64; Ruling::OUTCOMES.len()]);

/// How an engine does.
#[derive(Debug, Default)]
pub(crate) struct EngineMeter {
    pub(super) duration: Durations,
    pub(super) failures: AtomicU64,
}

impl EngineMeter {
    pub(crate) fn add(&self, took: Duration, has_failed: bool) {
        self.duration.add(took);
        self.failures.fetch_add(u64::from(has_failed), Ordering::Relaxed);
    }
}

/// Those of a block.
#[derive(Debug)]
pub(crate) struct Meters(Vec<Meter>);

/// Of one of its zones at one address.
#[derive(Debug)]
struct Meter {
    zone: Zone,
    port: u16,
    /// None is every address.
    address: Option<IpAddr>,
    counts: Arc<Counts>,
    rulings: FxHashMap<(Point, FileSpan), Arc<Rulings>>,
    /// Held as long as the directives are.
    _enabled: Vec<Arc<Enabled>>,
}

/// The label of a server, as CoreDNS has it.
fn server_label(scheme: Scheme, address: Option<IpAddr>, port: u16) -> String {
    let scheme = scheme.word();
    match address {
        None => format!("{scheme}://:{port}"),
        Some(IpAddr::V4(v4)) => format!("{scheme}://{v4}:{port}"),
        Some(IpAddr::V6(v6)) => format!("{scheme}://[{v6}]:{port}"),
    }
}

impl Meters {
    /// Those of a block, whose engines and cache are counted from now on.
    pub(crate) fn new(metrics: &Metrics, block: &mut Block, directives: &[&'static str]) -> Self {
        let view = block.view.as_ref().map_or_else(String::new, |view| view.name.to_string());
        let bound: Vec<Option<IpAddr>> = match &block.addresses[..] {
            [] => vec![None],
            addresses => addresses.iter().copied().map(Some).collect(),
        };
        let mut meters = Vec::new();
        for ((zone, port), &address) in block.keys.iter().flat_map(|key| bound.iter().map(move |at| (key, at))) {
            let server = server_label(block.scheme(*port), address, *port);
            let places = block.lists.iter().flat_map(|list| {
                let rules = list.rules.iter().map(|rule| (rule.label(), &rule.place));
                rules.chain([(list.place.to_string(), &list.place)]).map(move |labelled| (list.point, labelled))
            });
            let policies = block.policies.iter().flat_map(|policy| {
                let points = [Point::Query, Point::Response];
                points.map(|point| (point, (policy.label().to_string(), &policy.place)))
            });
            let rulings = places.chain(policies).map(|(point, (label, place))| {
                let counts = metrics.rulings(&server, point, &label);
                ((point, place.clone()), counts)
            });
            let rulings = rulings.collect();
            let at: Place = (server, zone.to_string(), view.clone());
            let enabled = directives.iter().map(|name| metrics.enabled.get((at.clone(), *name)));
            let (_enabled, counts) = (enabled.collect(), metrics.counts.get(at));
            meters.push(Meter { zone: zone.clone(), port: *port, address, counts, rulings, _enabled });
        }
        // One engine and one cache serve all of a block: its first server stands for it.
        let first = block
            .keys
            .first()
            .map(|(zone, port)| (server_label(block.scheme(*port), bound[0], *port), zone.to_string()));
        if let Some((server, zone)) = first {
            for rule in block.lists.iter_mut().flat_map(|list| &mut list.rules) {
                if let Judge::Engine(lane, _) = &rule.judge {
                    rule.meter = Some(metrics.engine(&server, lane.label()));
                }
            }
            if let Some(cache) = &block.cache {
                metrics.watch((server, zone, view), cache);
            }
        }
        Self(meters)
    }

    fn of(&self, report: &Report<'_>) -> Option<&Meter> {
        let (port, address) = (report.exchange.server.port(), report.exchange.server.ip());
        let is_there = |meter: &&Meter| meter.port == port && meter.address.is_none_or(|own| own == address);
        self.0.iter().filter(is_there).find(|meter| meter.zone == *report.exchange.zone())
    }

    /// A question has ended.
    pub(crate) fn ended(&self, report: &Report<'_>) {
        let Some(meter) = self.of(report) else { return };
        let one = |counter: &AtomicU64| _ = counter.fetch_add(1, Ordering::Relaxed);
        let exchange = report.exchange;
        let (over_tcp, is_v6) = (exchange.over_tcp(), exchange.client.ip().to_canonical().is_ipv6());
        let kind = type_at(exchange.question.record_type);
        one(&meter.counts.requests[usize::from(over_tcp)][usize::from(is_v6)][kind]);
        meter.counts.request_sizes[usize::from(over_tcp)].add(exchange.query().len());
        if Edns::read(exchange.query()).is_some_and(|edns| edns.is_dnssec_ok()) {
            one(&meter.counts.dnssec_ok);
        }
        meter.counts.duration.add(exchange.begun.elapsed());
        for ruling in [exchange.ruling.as_ref(), report.of_response].into_iter().flatten() {
            let counts = meter.rulings.get(&(ruling.point, ruling.place.clone()));
            let at = Ruling::OUTCOMES.iter().position(|outcome| *outcome == ruling.outcome);
            if let (Some(counts), Some(at)) = (counts, at) {
                one(&counts.0[at]);
            }
        }
        let Some(header) = report.reply.and_then(|reply| Header::read(reply).ok()) else { return };
        meter.counts.response_sizes[usize::from(over_tcp)].add(report.reply.map_or(0, <[u8]>::len));
        one(&meter.counts.responses[plugin_at(report)][usize::from(header.rcode.0 & 15)]);
        if report.source == Source::Cache {
            let is_denial = header.rcode != Rcode::NO_ERROR || header.answers == 0;
            one(&meter.counts.hits[usize::from(is_denial)]);
        }
    }

    /// The cache did not have it.
    pub(crate) fn missed(&self, report: &Report<'_>) {
        if let Some(meter) = self.of(report) {
            meter.counts.misses.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Who wrote the answer, as an index of [`PLUGINS`].
fn plugin_at(report: &Report<'_>) -> usize {
    let is_denied = report.ruling().is_some_and(|ruling| !matches!(ruling.outcome, "allow" | "redirect"));
    let plugin = match report.source {
        _ if is_denied => "firewall",
        Source::Cache => "cache",
        Source::Upstream | Source::Redirected => "forward",
        Source::Directive(name) => name,
        Source::Own => "",
    };
    PLUGINS.iter().position(|known| *known == plugin).unwrap_or_default()
}

fn type_at(kind: RecordType) -> usize {
    TYPES.iter().position(|(number, _)| *number == kind.0).unwrap_or(TYPES.len())
}
