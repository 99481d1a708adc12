//! The metrics of `namewall agent` and `namewall run`.

use super::meter::WAYS;
use crate::counters::REASONS;
use namewall_telemetry::{Label, Metric};

const SEVERITY: Label = Label::one_of("severity", &SEVERITIES);
const RESULT: Label = Label::one_of("result", &["ok", "failed"]);
const WHAT: Label = Label::one_of("what", &["program", "leases"]);
const WAY: Label = Label::one_of("way", &WAYS);
const BOUND: Label = Label::one_of("bound", &["addresses_per_name", "names_per_pattern", "leases"]);
const REASON: Label = Label::one_of("reason", &REASONS);
const RCODE: Label = Label::open("rcode", "a response code, like `NXDOMAIN`; there are 16");
const REFUSED: Label = Label::one_of("reason", &["malformed", "stranger", "over_limit", "evicted"]);
const STATE: Label = Label::one_of("state", &["up", "down"]);
const GUARD_REASON: Label = Label::one_of("reason", &["wrong_source", "source_route", "group", "tunnel"]);
const MODE: Label = Label::one_of("mode", &["enforced", "audited"]);

pub(super) const SEVERITIES: [&str; 3] = ["hint", "warning", "error"];

pub(super) const POLICIES: Metric = Metric::gauge("namewall_policies", "Policies that are enforced.");
pub(super) const PODS: Metric = Metric::gauge("namewall_pods", "Pods that are known.");
pub(super) const FINDINGS: Metric =
    Metric::gauge("namewall_findings", "Findings about the policies and objects that are read.").by(&[SEVERITY]);
pub(super) const OBJECTS_KEPT: Metric =
    Metric::gauge("namewall_objects_kept", "Files and objects with an error whose last good version is in force.");
pub(super) const STORE_FAILING: Metric = Metric::gauge(
    "namewall_last_good_store_failing",
    "1 while the last good objects cannot be stored, so that a restart could not fall back to them.",
);
pub(super) const ENFORCING_STORED: Metric = Metric::gauge(
    "namewall_enforcing_stored_state",
    "1 while only stored objects are enforced, since the API server has not been listed yet.",
);
pub(super) const CHANGES: Metric =
    Metric::counter("namewall_changes_total", "Changes of policies and pods; a failed one is tried again.")
        .by(&[RESULT]);
pub(super) const CHANGE_FAILING: Metric = Metric::gauge(
    "namewall_change_failing",
    "1 while the last change could not be enforced and an older state is in force.",
);
pub(super) const COMPILE_DURATION: Metric =
    Metric::histogram("namewall_compile_duration_seconds", "How long policies took to compile.");
pub(super) const COMMIT_DURATION: Metric = Metric::histogram(
    "namewall_kernel_commit_duration_seconds",
    "How long the kernel took for a change of rules or for new leases, with all that is worked out for it.",
)
.by(&[WHAT]);
pub(super) const COMMIT_FAILURES: Metric =
    Metric::counter("namewall_kernel_commit_failures_total", "Changes and leases that the kernel did not take.")
        .by(&[WHAT]);
pub(super) const RULE_CHANGES: Metric = Metric::counter(
    "namewall_kernel_rule_changes_total",
    "Changes of rules in the kernel; a rebuild reads what is in force and makes it right.",
)
.by(&[WAY]);
pub(super) const CONNECTIONS_CUT: Metric =
    Metric::counter("namewall_connections_cut_total", "Connections that were cut since policies forbid them.");
pub(super) const CUTS_FORGOTTEN: Metric = Metric::counter(
    "namewall_cut_connections_forgotten_total",
    "Connections that were cut and had to make room for others, so that no reset answers their packets.",
);
pub(super) const LEASES: Metric =
    Metric::gauge("namewall_leases", "Leases that are held, with expired ones until they are dropped.");
pub(super) const LEASES_GRANTED: Metric =
    Metric::counter("namewall_leases_granted_total", "Leases that were opened or renewed in the kernel.");
pub(super) const LEASES_EVICTED: Metric =
    Metric::counter("namewall_leases_evicted_total", "Leases that ended early, by the bound that was reached.")
        .by(&[BOUND]);
pub(super) const NAMES_EXPIRED: Metric = Metric::counter(
    "namewall_lease_names_expired_total",
    "Names that were dropped since all of their leases had expired.",
);
pub(super) const ADDRESSES_REFUSED: Metric = Metric::counter(
    "namewall_addresses_refused_total",
    "Addresses in answers that are never leased, by what they belong to.",
)
.by(&[REASON]);
pub(super) const LEASES_REVOKED: Metric = Metric::counter(
    "namewall_leases_revoked_total",
    "Leases that were closed before their time since their address is never leased any more, by what it belongs to.",
)
.by(&[REASON]);
pub(super) const ADDRESSES_FOREIGN: Metric = Metric::counter(
    "namewall_addresses_foreign_total",
    "Addresses in answers that the name of the question does not lead to.",
);
pub(super) const ADDRESSES_OVER_BOUND: Metric = Metric::counter(
    "namewall_addresses_over_bound_total",
    "Addresses in answers that are not leased, since the answer has more than one name may open; the first are.",
);
pub(super) const RECENT_FORGOTTEN: Metric = Metric::counter(
    "namewall_recent_answers_forgotten_total",
    "Answers that no rule spoke of and that gave way to others: a rule that comes later opens them only after another \
     lookup.",
);
pub(super) const ORIGINS_FORGOTTEN: Metric = Metric::counter(
    "namewall_lease_origins_forgotten_total",
    "Leases of which it was forgotten which answer opened them, since there were too many; they stay open.",
);
pub(super) const LEASES_NOT_STORED: Metric = Metric::gauge(
    "namewall_leases_not_stored",
    "Leases that were not stored for the next process, since there are too many: it may cut their connections once they \
     have ended.",
);
pub(super) const CALLERS_REFUSED: Metric = Metric::counter(
    "namewall_control_refused_total",
    "Callers of the control socket that were sent away, since too many were being answered.",
);
pub(super) const ANSWERS_READ: Metric = Metric::counter(
    "namewall_answers_read_total",
    "Answers to pods with a rule by name that were read, since nothing was known of them; the others opened nothing new.",
);
pub(super) const ANSWERS_LEARNED: Metric =
    Metric::counter("namewall_answers_learned_total", "Answers that opened or renewed something.");
pub(super) const QUERIES: Metric = Metric::counter("namewall_dns_queries_total", "DNS queries that came in.");
pub(super) const QUERIES_REFUSED: Metric =
    Metric::counter("namewall_dns_queries_refused_total", "DNS queries and connections that were not served.")
        .by(&[REFUSED]);
pub(super) const QUERIES_IN_PROGRESS: Metric =
    Metric::gauge("namewall_dns_queries_in_progress", "DNS queries that are not answered yet.");
pub(super) const ANSWERS: Metric =
    Metric::counter("namewall_dns_answers_total", "Answers of upstreams that were passed on, by response code.")
        .by(&[RCODE]);
pub(super) const UNANSWERED: Metric = Metric::counter(
    "namewall_dns_unanswered_total",
    "DNS queries that no upstream answered in time; the client got SERVFAIL.",
);
pub(super) const RETRIES: Metric =
    Metric::counter("namewall_dns_retries_total", "Times a query was sent to an upstream again.");
pub(super) const UNASKED: Metric = Metric::counter(
    "namewall_dns_unasked_replies_total",
    "Replies that nobody had asked for, to another question or with another opcode; they were dropped.",
);
pub(super) const JOINED: Metric = Metric::counter(
    "namewall_dns_queries_joined_total",
    "DNS queries that were not sent, since the same question was under way; they got the answer to that one.",
);
pub(super) const PASSED: Metric = Metric::counter(
    "namewall_dns_queries_passed_total",
    "DNS queries that came to one loop and were passed to the one that their names belong to.",
);
pub(super) const RECASED: Metric = Metric::counter(
    "namewall_dns_recased_replies_total",
    "Replies of upstreams that did not repeat the random letter case of the question.",
);
pub(super) const DISTRUSTED: Metric = Metric::counter(
    "namewall_dns_queries_distrusted_total",
    "DNS queries that were asked again over TCP, after a reply in another letter case or too many wrong replies.",
);
pub(super) const CASELESS: Metric = Metric::counter(
    "namewall_dns_upstreams_caseless_total",
    "Times an upstream showed over TCP that it does not repeat letter case; it is asked without it for ten minutes.",
);
pub(super) const UNREADABLE: Metric =
    Metric::counter("namewall_dns_unreadable_answers_total", "Answers that were passed on without learning from them.");
pub(super) const UNSENT: Metric =
    Metric::counter("namewall_dns_unsent_datagrams_total", "Datagrams that the kernel did not send.");
pub(super) const TCP_CONNECTIONS: Metric =
    Metric::counter("namewall_dns_tcp_connections_total", "TCP connections that DNS clients opened.");
pub(super) const HELD: Metric = Metric::counter(
    "namewall_dns_answers_held_total",
    "Answers that were held until the kernel had opened their addresses.",
);
pub(super) const HOLD_FAILED: Metric = Metric::counter(
    "namewall_dns_hold_failures_total",
    "Held answers whose leases were not written in time; the client got SERVFAIL.",
);
pub(super) const HOLD_RELEASED: Metric = Metric::counter(
    "namewall_dns_hold_releases_total",
    "Held answers whose leases were not written in time, and that were passed on as the settings say.",
);
pub(super) const UPSTREAMS: Metric = Metric::gauge("namewall_dns_upstreams", "Upstreams by state.").by(&[STATE]);
pub(super) const UPSTREAM_FAILURES: Metric =
    Metric::counter("namewall_dns_upstream_failures_total", "Times an upstream did not answer or broke off.");
pub(super) const GUARDED: Metric =
    Metric::gauge("namewall_guarded_interfaces", "Interfaces of pods that only the pod's own addresses pass.");
pub(super) const UNGUARDED: Metric = Metric::gauge(
    "namewall_unguarded_pod_addresses",
    "Addresses of this node's pods whose interface is not known, so that the address alone tells the pod.",
);
pub(super) const RUNTIME_SILENT: Metric = Metric::gauge(
    "namewall_runtime_silent",
    "1 while the container runtime cannot be asked which pods run. There is no sample if nobody asks it.",
);
pub(super) const GUARD_DROPS: Metric = Metric::counter(
    "namewall_guard_dropped_packets_total",
    "Packets that the guard of pods' interfaces has dropped: with a source that is not the pod's, with IPv4 \
     options or an IPv6 routing header, broadcast and multicast of other pods for a pod with ingress policies, or to a \
     tunnel of a node.",
)
.by(&[GUARD_REASON]);
pub(super) const SECOND: Metric = Metric::gauge(
    "namewall_second_interfaces",
    "Interfaces of pods, other than each pod's own, on which policies are enforced inside the pod's network namespace.",
);
pub(super) const SECOND_UNENFORCED: Metric = Metric::gauge(
    "namewall_second_unenforced_pods",
    "Pods whose network namespace is not reached, or whose tables there are not as they should be. \
     `namewall status` lists them.",
);
pub(super) const SECOND_REPAIRED: Metric = Metric::counter(
    "namewall_second_repaired_total",
    "Times that tables inside a pod's network namespace were found changed by somebody else, and made right.",
);
pub(super) const UNFILTERED_BRIDGES: Metric = Metric::gauge(
    "namewall_unfiltered_bridges",
    "Bridges with pods whose frames pass no policy, since the kernel's module br_netfilter is not loaded.",
);
pub(super) const DENIALS: Metric = Metric::counter(
    "namewall_denials_total",
    "Denied packets that the kernel logged: a client that tries again counts again. Audited policies only log what \
     they would deny.",
)
.by(&[MODE]);
pub(super) const DENIALS_LOST: Metric = Metric::counter(
    "namewall_denials_lost_total",
    "Lines about denied packets that the kernel dropped, since they were not read in time.",
);
pub(super) const DENIAL_LOG_FAILURES: Metric = Metric::counter(
    "namewall_denial_log_failures_total",
    "Times that the kernel's log of denied packets could not be read or opened. It is opened again; lines of the time \
     between are in no other count.",
);

/// All of them. An agent of a cluster has those of `namewall-kubernetes` as well.
pub const METRICS: &[&Metric] = &[
    &POLICIES,
    &PODS,
    &FINDINGS,
    &OBJECTS_KEPT,
    &STORE_FAILING,
    &ENFORCING_STORED,
    &CHANGES,
    &CHANGE_FAILING,
    &COMPILE_DURATION,
    &COMMIT_DURATION,
    &COMMIT_FAILURES,
    &RULE_CHANGES,
    &CONNECTIONS_CUT,
    &CUTS_FORGOTTEN,
    &GUARDED,
    &UNGUARDED,
    &RUNTIME_SILENT,
    &GUARD_DROPS,
    &SECOND,
    &SECOND_UNENFORCED,
    &SECOND_REPAIRED,
    &UNFILTERED_BRIDGES,
    &LEASES,
    &LEASES_GRANTED,
    &LEASES_EVICTED,
    &NAMES_EXPIRED,
    &ADDRESSES_REFUSED,
    &LEASES_REVOKED,
    &ADDRESSES_FOREIGN,
    &ADDRESSES_OVER_BOUND,
    &RECENT_FORGOTTEN,
    &ORIGINS_FORGOTTEN,
    &LEASES_NOT_STORED,
    &ANSWERS_READ,
    &ANSWERS_LEARNED,
    &QUERIES,
    &QUERIES_REFUSED,
    &QUERIES_IN_PROGRESS,
    &ANSWERS,
    &UNANSWERED,
    &RETRIES,
    &UNASKED,
    &JOINED,
    &PASSED,
    &RECASED,
    &DISTRUSTED,
    &CASELESS,
    &UNREADABLE,
    &UNSENT,
    &TCP_CONNECTIONS,
    &HELD,
    &HOLD_FAILED,
    &HOLD_RELEASED,
    &UPSTREAMS,
    &UPSTREAM_FAILURES,
    &DENIALS,
    &DENIALS_LOST,
    &DENIAL_LOG_FAILURES,
    &CALLERS_REFUSED,
];
