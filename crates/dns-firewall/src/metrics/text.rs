//! What is counted, as Prometheus reads it (its text format, version 0.0.4).

use super::Metrics;
use super::histogram::Histogram;
use super::meter::TYPES;
use crate::report::Ruling;
use namewall_dns::wire::Rcode;
use std::fmt::{Display, Write};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

/// Labels with their values.
type Labels<'l> = &'l [(&'l str, &'l str)];

/// Text that grows.
struct Text(String);

impl Text {
    /// The head of a family of samples.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        self.0.push_str(name);
        for (at, (label, value)) in labels.iter().enumerate() {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{label}=\"{value}\"", if at == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// A sample of what has happened at all, as with CoreDNS.
    fn count(&mut self, name: &str, labels: Labels<'_>, counter: &AtomicU64) {
        let value = counter.load(Ordering::Relaxed);
        if value > 0 {
            self.sample(name, labels, value);
        }
    }

    fn histogram(&mut self, name: &str, labels: Labels<'_>, histogram: &Histogram) {
        let mut all = 0;
        for (bound, sum) in histogram.sums() {
            let bound = bound.map_or_else(|| "+Inf".to_owned(), |bound| bound.to_string());
            let labels = [labels, &[("le", &bound)]].concat();
            self.sample(&format!("{name}_bucket"), &labels, sum);
            all = sum;
        }
        self.sample(&format!("{name}_sum"), labels, histogram.seconds());
        self.sample(&format!("{name}_count"), labels, all);
    }
}

impl Metrics {
    /// All of it, and what was lost of the log and of taps, each by whom it was for.
    pub(crate) fn text(&self, lines_lost: u64, taps_lost: &[(String, u64)]) -> String {
        let mut text = Text(String::new());
        text.family("namewall_build_info", "gauge", "The version that runs.");
        text.sample("namewall_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
        self.questions(&mut text);
        self.caches(&mut text);
        self.upstreams(&mut text);
        self.decisions(&mut text);
        let name = "namewall_log_lines_lost_total";
        text.family(name, "counter", "Lines left out of the log since they came too fast.");
        text.sample(name, &[], lines_lost);
        if !taps_lost.is_empty() {
            let name = "namewall_dnstap_messages_lost_total";
            text.family(name, "counter", "Messages that who reads dnstap did not get.");
            taps_lost.iter().for_each(|(to, lost)| text.sample(name, &[("to", to)], lost));
        }
        text.0
    }

    fn questions(&self, text: &mut Text) {
        let all = self.counts.all();
        let name = "coredns_dns_requests_total";
        text.family(name, "counter", "Questions by server, zone, protocol, family and type.");
        for ((server, zone), counts) in &all {
            for (over_tcp, proto) in ["udp", "tcp"].into_iter().enumerate() {
                for (is_v6, family) in ["1", "2"].into_iter().enumerate() {
                    let kinds = TYPES.iter().map(|(_, kind)| *kind).chain(["other"]);
                    for (kind, counter) in kinds.zip(&counts.requests[over_tcp][is_v6]) {
                        let labels = [("server", &**server), ("zone", zone), ("proto", proto)];
                        let labels = [&labels[..], &[("family", family), ("type", kind)]].concat();
                        text.count(name, &labels, counter);
                    }
                }
            }
        }
        let name = "coredns_dns_responses_total";
        text.family(name, "counter", "Answers by server, zone and code.");
        for ((server, zone), counts) in &all {
            for (rcode, counter) in (0..).zip(&counts.responses) {
                let rcode = Rcode(rcode).to_string();
                text.count(name, &[("server", server), ("zone", zone), ("rcode", &rcode)], counter);
            }
        }
        let name = "coredns_dns_request_duration_seconds";
        text.family(name, "histogram", "How long questions took, with all that was asked elsewhere.");
        for ((server, zone), counts) in &all {
            text.histogram(name, &[("server", server), ("zone", zone)], &counts.duration);
        }
    }

    fn caches(&self, text: &mut Text) {
        const KINDS: [&str; 2] = ["success", "denial"];
        let all = self.counts.all();
        let name = "coredns_cache_hits_total";
        text.family(name, "counter", "Answers that were given again.");
        for ((server, zone), counts) in &all {
            for (kind, counter) in KINDS.iter().zip(&counts.hits) {
                text.count(name, &[("server", server), ("type", kind), ("zones", zone)], counter);
            }
        }
        let name = "coredns_cache_misses_total";
        text.family(name, "counter", "Questions that had to be asked elsewhere.");
        for ((server, zone), counts) in &all {
            text.count(name, &[("server", server), ("zones", zone)], &counts.misses);
        }
        let name = "coredns_cache_entries";
        text.family(name, "gauge", "Answers that are kept.");
        let mut caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        caches.retain(|_, cache| cache.strong_count() > 0);
        for ((server, zones), cache) in caches.iter().filter_map(|(labels, cache)| Some((labels, cache.upgrade()?))) {
            for (kind, entries) in KINDS.iter().zip(cache.entries()) {
                text.sample(name, &[("server", server), ("type", kind), ("zones", zones)], entries);
            }
        }
    }

    fn upstreams(&self, text: &mut Text) {
        let upstreams = self.upstreams.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = upstreams.iter().map(|((to, rcode), took)| (*to, rcode.0, took.clone())).collect();
        drop(upstreams);
        all.sort_by_key(|(to, rcode, _)| (*to, *rcode));
        let name = "coredns_proxy_request_duration_seconds";
        text.family(name, "histogram", "How long upstreams took, by server and code.");
        for (to, rcode, took) in &all {
            let (to, rcode) = (to.to_string(), Rcode(*rcode).to_string());
            text.histogram(name, &[("proxy_name", "forward"), ("to", &to), ("rcode", &rcode)], took);
        }
    }

    fn decisions(&self, text: &mut Text) {
        let name = "namewall_firewall_decisions_total";
        text.family(name, "counter", "Decisions by server, point, outcome and the rule they are by.");
        for ((server, point, rule), rulings) in &self.rulings.all() {
            for (outcome, counter) in Ruling::OUTCOMES.iter().zip(&rulings.0) {
                let labels = [("server", &**server), ("point", point), ("outcome", outcome), ("rule", rule)];
                text.count(name, &labels, counter);
            }
        }
        let engines = self.engines.all();
        let name = "namewall_firewall_engine_duration_seconds";
        text.family(name, "histogram", "How long engines took to judge.");
        for ((server, engine), meter) in &engines {
            text.histogram(name, &[("server", server), ("engine", engine)], &meter.duration);
        }
        let name = "namewall_firewall_engine_failures_total";
        text.family(name, "counter", "Judgements that engines failed to give.");
        for ((server, engine), meter) in &engines {
            let failures = meter.failures.load(Ordering::Relaxed);
            text.sample(name, &[("server", server), ("engine", engine)], failures);
        }
    }
}
