//! The metrics of `namewall dns`. What means the same as with CoreDNS has its name and labels.

use super::meter::TYPES;
use crate::report::Ruling;
use namewall_telemetry::{Label, Metric};

const SERVER: Label = Label::open("server", "the address of a server block, like `dns://:53`");
const ZONE: Label = Label::open("zone", "the zone of a server block");
const ZONES: Label = Label::open("zones", "the zone of a server block");
const PROTO: Label = Label::one_of("proto", &PROTOCOLS);
const FAMILY: Label = Label::one_of("family", &FAMILIES);
const TYPE: Label = Label::one_of("type", &TYPE_WORDS);
const RCODE: Label = Label::open("rcode", "a response code, like `NXDOMAIN`; there are 16");
const CACHED: Label = Label::one_of("type", &CACHED_KINDS);
const POINT: Label = Label::one_of("point", &["query", "response"]);
const OUTCOME: Label = Label::one_of("outcome", &Ruling::OUTCOMES);
const RULE: Label =
    Label::open("rule", "the name of the rule (`rule NAME …`), or its place in the Corefile, like `Corefile:5:7`");
const ENGINE: Label = Label::open("engine", "the rule's text that asks the engine");
const PROXY: Label = Label::one_of("proxy_name", &["forward"]);
const TO: Label = Label::open("to", "the address of an upstream");
const ENCRYPTED_REASON: Label = Label::one_of("reason", &["connection", "evicted", "handshake", "question", "request"]);
const LIST: Label = Label::open("list", "the file of a list of names, or `rpz` and the name of a policy zone");
const TAP: Label = Label::open("to", "the endpoint of `dnstap`");

pub(super) const PROTOCOLS: [&str; 2] = ["udp", "tcp"];
pub(super) const FAMILIES: [&str; 2] = ["1", "2"];
pub(super) const CACHED_KINDS: [&str; 2] = ["success", "denial"];

/// The words of the types, and the one for all others.
pub(super) const TYPE_WORDS: [&str; TYPES.len() + 1] = {
    let mut words = ["other"; TYPES.len() + 1];
    let mut at = 0;
    while at < TYPES.len() {
        words[at] = TYPES[at].1;
        at += 1;
    }
    words
};

pub(super) const REQUESTS: Metric =
    Metric::counter("coredns_dns_requests_total", "Questions by server, zone, protocol, family and type.")
        .by(&[SERVER, ZONE, PROTO, FAMILY, TYPE]);
pub(super) const RESPONSES: Metric =
    Metric::counter("coredns_dns_responses_total", "Answers by server, zone and code.").by(&[SERVER, ZONE, RCODE]);
pub(super) const REQUEST_DURATION: Metric = Metric::histogram(
    "coredns_dns_request_duration_seconds",
    "How long questions took, with all that was asked elsewhere.",
)
.by(&[SERVER, ZONE]);
pub(super) const CACHE_HITS: Metric =
    Metric::counter("coredns_cache_hits_total", "Answers that were given again.").by(&[SERVER, CACHED, ZONES]);
pub(super) const CACHE_MISSES: Metric =
    Metric::counter("coredns_cache_misses_total", "Questions that had to be asked elsewhere.").by(&[SERVER, ZONES]);
pub(super) const CACHE_ENTRIES: Metric =
    Metric::gauge("coredns_cache_entries", "Answers that are kept.").by(&[SERVER, CACHED, ZONES]);
pub(super) const UPSTREAM_DURATION: Metric =
    Metric::histogram("coredns_proxy_request_duration_seconds", "How long upstreams took, by server and code.")
        .by(&[PROXY, TO, RCODE]);
pub(super) const DECISIONS: Metric = Metric::counter(
    "namewall_firewall_decisions_total",
    "Decisions by server, point, outcome and the rule they are by.",
)
.by(&[SERVER, POINT, OUTCOME, RULE]);
pub(super) const ENGINE_DURATION: Metric =
    Metric::histogram("namewall_firewall_engine_duration_seconds", "How long engines took to judge.")
        .by(&[SERVER, ENGINE]);
pub(super) const ENGINE_FAILURES: Metric =
    Metric::counter("namewall_firewall_engine_failures_total", "Judgements that engines failed to give.")
        .by(&[SERVER, ENGINE]);
pub(super) const ENCRYPTED: Metric =
    Metric::counter("namewall_encrypted_connections_total", "Connections over TLS and HTTPS that were accepted.");
pub(super) const ENCRYPTED_REFUSED: Metric = Metric::counter(
    "namewall_encrypted_refused_total",
    "What clients over TLS and HTTPS did not get: `connection` is over the bound of its client, `evicted` is a connection \
     that gave way to another client's, `handshake` failed or took too long, `question` found no room, `request` is HTTP \
     without a DNS query.",
)
.by(&[ENCRYPTED_REASON]);
pub(super) const LINES_LOST: Metric =
    Metric::counter("namewall_log_lines_lost_total", "Lines left out of the log since they came too fast.");
pub(super) const TAPS_LOST: Metric =
    Metric::counter("namewall_dnstap_messages_lost_total", "Messages that who reads dnstap did not get.").by(&[TAP]);

pub(super) const LIST_ENTRIES: Metric =
    Metric::gauge("namewall_list_entries", "Names of a list, or records of a policy zone, that are in use.")
        .by(&[LIST]);
pub(super) const LIST_LOADED: Metric = Metric::gauge(
    "namewall_list_loaded_timestamp_seconds",
    "When a list was read, or a policy zone was last known to be current.",
)
.by(&[LIST]);
pub(super) const LIST_FAILURES: Metric = Metric::counter(
    "namewall_list_failures_total",
    "How often a list could not be read, or a policy zone not be transferred, so that the one before stayed in use.",
)
.by(&[LIST]);

/// All of them.
pub const METRICS: &[&Metric] = &[
    &REQUESTS,
    &RESPONSES,
    &REQUEST_DURATION,
    &CACHE_HITS,
    &CACHE_MISSES,
    &CACHE_ENTRIES,
    &UPSTREAM_DURATION,
    &DECISIONS,
    &ENGINE_DURATION,
    &ENGINE_FAILURES,
    &ENCRYPTED,
    &ENCRYPTED_REFUSED,
    &LINES_LOST,
    &TAPS_LOST,
    &LIST_ENTRIES,
    &LIST_LOADED,
    &LIST_FAILURES,
];
