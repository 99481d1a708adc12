//! The metrics of `namewall dns`. What means the same as with CoreDNS has its name and labels.

use super::meter::{PLUGINS, TYPES};
use super::process;
use crate::report::Ruling;
use namewall_telemetry::{Label, Metric};

const SERVER: Label = Label::open("server", "the address of a server block, like `dns://:53`");
const ZONE: Label = Label::open("zone", "the zone of a server block");
const ZONES: Label = Label::open("zones", "the zone of a server block");
const VIEW: Label = Label::open("view", "the name of the server block's `view`, or empty");
const PLUGIN: Label = Label::one_of("plugin", &PLUGINS);
const NAME: Label = Label::open("name", "a directive of the Corefile");
const HASH: Label = Label::one_of("hash", &["sha256"]);
const HASH_VALUE: Label = Label::open("value", "the hash in hexadecimal digits");
const VERSION: Label = Label::open("version", "namewall's version");
const REVISION: Label = Label::one_of("revision", &[""]);
const GO_VERSION: Label = Label::one_of("goversion", &[""]);
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
        .by(&[SERVER, ZONE, VIEW, PROTO, FAMILY, TYPE]);
pub(super) const REQUEST_SIZE: Metric =
    Metric::histogram("coredns_dns_request_size_bytes", "Bytes of questions by server, zone and protocol.")
        .by(&[SERVER, ZONE, VIEW, PROTO]);
pub(super) const RESPONSE_SIZE: Metric =
    Metric::histogram("coredns_dns_response_size_bytes", "Bytes of answers by server, zone and protocol.")
        .by(&[SERVER, ZONE, VIEW, PROTO]);
pub(super) const DO_REQUESTS: Metric =
    Metric::counter("coredns_dns_do_requests_total", "Questions of clients that want DNSSEC (the flag DO).")
        .by(&[SERVER, ZONE, VIEW]);
pub(super) const RESPONSES: Metric = Metric::counter(
    "coredns_dns_responses_total",
    "Answers by server, zone, code and the directive that wrote them; `firewall` are denials of rules.",
)
.by(&[SERVER, ZONE, VIEW, RCODE, PLUGIN]);
pub(super) const REQUEST_DURATION: Metric = Metric::histogram(
    "coredns_dns_request_duration_seconds",
    "How long questions took, with all that was asked elsewhere.",
)
.by(&[SERVER, ZONE, VIEW]);
pub(super) const PLUGIN_ENABLED: Metric =
    Metric::gauge("coredns_plugin_enabled", "Always 1; the labels have the directives of server blocks.")
        .by(&[SERVER, ZONE, VIEW, NAME]);
pub(super) const PANICS: Metric = Metric::counter("coredns_panics_total", "Panics of any thread.");
pub(super) const RELOAD_FAILED: Metric = Metric::counter(
    "coredns_reload_failed_total",
    "Changes of the Corefile that could not be served; it is served as it was before.",
);
pub(super) const RELOAD_VERSION: Metric = Metric::gauge(
    "coredns_reload_version_info",
    "Always 1; the labels have a hash of the Corefile that is served, with all that it imports.",
)
.by(&[HASH, HASH_VALUE]);
pub(super) const CORE_BUILD_INFO: Metric = Metric::gauge(
    "coredns_build_info",
    "Always 1, for dashboards that show a version: namewall's own. The other labels are empty.",
)
.by(&[VERSION, REVISION, GO_VERSION]);
pub(super) const CACHE_REQUESTS: Metric =
    Metric::counter("coredns_cache_requests_total", "Questions that the cache was asked for.")
        .by(&[SERVER, ZONES, VIEW]);
pub(super) const CACHE_EVICTIONS: Metric =
    Metric::counter("coredns_cache_evictions_total", "Answers that others took the place of.")
        .by(&[SERVER, CACHED, ZONES, VIEW]);
pub(super) const CACHE_DROPS: Metric =
    Metric::counter("coredns_cache_drops_total", "Answers that were not kept since they are not to the question.")
        .by(&[SERVER, ZONES, VIEW]);
pub(super) const CACHE_STALE: Metric =
    Metric::counter("coredns_cache_served_stale_total", "Answers that were given after their time.")
        .by(&[SERVER, ZONES, VIEW]);
pub(super) const CACHE_PREFETCHES: Metric =
    Metric::counter("coredns_cache_prefetch_total", "Answers that were asked for again before their end.")
        .by(&[SERVER, ZONES, VIEW]);
pub(super) const CHECK_FAILURES: Metric =
    Metric::counter("coredns_proxy_healthcheck_failures_total", "Health checks that an upstream did not answer.")
        .by(&[PROXY, TO]);
pub(super) const REJECTS: Metric =
    Metric::counter("coredns_forward_max_concurrent_rejects_total", "Questions that `max_concurrent` refused.");
pub(super) const CLIENTS_FORGOTTEN: Metric = Metric::counter(
    "namewall_client_counts_forgotten_total",
    "Clients, or domains of a client, that gave way to others where it is counted what clients ask.",
);
pub(super) const CACHE_HITS: Metric =
    Metric::counter("coredns_cache_hits_total", "Answers that were given again.").by(&[SERVER, CACHED, ZONES, VIEW]);
pub(super) const CACHE_MISSES: Metric =
    Metric::counter("coredns_cache_misses_total", "Questions that had to be asked elsewhere.")
        .by(&[SERVER, ZONES, VIEW]);
pub(super) const CACHE_ENTRIES: Metric =
    Metric::gauge("coredns_cache_entries", "Answers that are kept.").by(&[SERVER, CACHED, ZONES, VIEW]);
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
    &REQUEST_SIZE,
    &DO_REQUESTS,
    &RESPONSES,
    &RESPONSE_SIZE,
    &REQUEST_DURATION,
    &CACHE_REQUESTS,
    &CACHE_HITS,
    &CACHE_MISSES,
    &CACHE_ENTRIES,
    &CACHE_EVICTIONS,
    &CACHE_DROPS,
    &CACHE_STALE,
    &CACHE_PREFETCHES,
    &UPSTREAM_DURATION,
    &CHECK_FAILURES,
    &REJECTS,
    &PLUGIN_ENABLED,
    &RELOAD_FAILED,
    &RELOAD_VERSION,
    &PANICS,
    &CORE_BUILD_INFO,
    &DECISIONS,
    &ENGINE_DURATION,
    &ENGINE_FAILURES,
    &ENCRYPTED,
    &ENCRYPTED_REFUSED,
    &LIST_ENTRIES,
    &LIST_LOADED,
    &LIST_FAILURES,
    &CLIENTS_FORGOTTEN,
    &LINES_LOST,
    &TAPS_LOST,
    process::METRICS[0],
    process::METRICS[1],
    process::METRICS[2],
    process::METRICS[3],
    process::METRICS[4],
    process::METRICS[5],
    process::METRICS[6],
];
