//! The metrics of the API server's side: its requests, the watches, and what is shared by DNSNameResolvers.

use crate::publish::Published;
use crate::view::WatchedKind;
use crate::watch::Shared;
use namewall_telemetry::{Export, Exposition, Label, Metric};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const KIND: Label = Label::open("kind", "a kind that is watched, like `Pod`");
const CODE: Label = Label::one_of("code", &CODES);
const RESULT: Label = Label::one_of("result", &["written", "failed", "left_out", "refused"]);
/// The classes of HTTP status codes, and `none` for a request without an answer.
const CODES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

const API_REQUESTS: Metric = Metric::counter(
    "namewall_api_requests_total",
    "Requests to the API server by the class of the answer; a watch is one request.",
)
.by(&[CODE]);
const WATCH_OBJECTS: Metric = Metric::gauge("namewall_watch_objects", "Objects that are known by a watch.").by(&[KIND]);
const WATCH_AGE: Metric = Metric::gauge(
    "namewall_watch_last_event_age_seconds",
    "Time since the API server last sent a list, an event or a bookmark.",
)
.by(&[KIND]);
const WATCH_FAILURES: Metric =
    Metric::counter("namewall_watch_failures_total", "Times a list or a watch failed; each is tried again.")
        .by(&[KIND]);
const WATCH_FAILING: Metric =
    Metric::gauge("namewall_watch_failing", "1 while a kind cannot be listed or watched.").by(&[KIND]);
const SHARED_LOOKUPS: Metric = Metric::counter(
    "namewall_shared_lookups_total",
    "Results of lookups for DNSNameResolvers: written, failed, left_out if too many waited or the client has its \
     share of names, refused if no object can hold the name.",
)
.by(&[RESULT]);
const SHARED_CONFLICTS: Metric = Metric::counter(
    "namewall_shared_conflicts_total",
    "Writes of DNSNameResolvers that another writer came before; each is tried again.",
);
const SHARED_LATE: Metric =
    Metric::counter("namewall_shared_late_total", "Answers that went to their clients before they were shared.");
const SHARED_EVICTED: Metric = Metric::counter(
    "namewall_shared_evicted_total",
    "Addresses that were removed from a DNSNameResolver because it was full.",
);
const SHARED_WAITING: Metric = Metric::gauge(
    "namewall_shared_waiting",
    "Results of lookups that are not written yet. More than a few for long: the API server refuses them, or does not \
     answer.",
);

/// Of a connection and a watch.
pub const WATCH_METRICS: &[&Metric] = &[&API_REQUESTS, &WATCH_OBJECTS, &WATCH_AGE, &WATCH_FAILURES, &WATCH_FAILING];
/// Of a publisher.
pub const SHARED_METRICS: &[&Metric] =
    &[&SHARED_LOOKUPS, &SHARED_CONFLICTS, &SHARED_LATE, &SHARED_EVICTED, &SHARED_WAITING];

/// Counts requests to the API server.
#[derive(Debug, Default)]
pub(crate) struct Requests([AtomicU64; CODES.len()]);

impl Requests {
    /// A request has ended, with a status or without one.
    pub(crate) fn count(&self, status: Option<u16>) {
        let class = status.map_or(0, |status| usize::from(status / 100));
        if let Some(counter) = self.0.get(class) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The metrics of a watch and its connection.
#[derive(Clone, Debug)]
pub struct WatchMetrics {
    pub(crate) requests: Arc<Requests>,
    pub(crate) shared: Arc<Shared>,
}

impl Export for WatchMetrics {
    fn export(&self, to: &mut Exposition<'_>) -> fmt::Result {
        let mut requests = to.family(&API_REQUESTS)?;
        for (code, counter) in CODES.iter().zip(&self.requests.0) {
            requests.sample(&[code], counter.load(Ordering::Relaxed))?;
        }
        let kinds: Vec<WatchedKind> = self.shared.watched();
        let mut objects = to.family(&WATCH_OBJECTS)?;
        kinds.iter().try_for_each(|one| objects.sample(&[one.name], one.objects))?;
        let mut ages = to.family(&WATCH_AGE)?;
        // Without a sample before the first list.
        let heard = kinds.iter().filter_map(|one| Some((one.name, one.age?)));
        heard.into_iter().try_for_each(|(kind, age)| ages.sample(&[kind], age.as_secs_f64()))?;
        let mut failures = to.family(&WATCH_FAILURES)?;
        kinds.iter().try_for_each(|one| failures.sample(&[one.name], one.failures))?;
        let mut failing = to.family(&WATCH_FAILING)?;
        kinds.iter().try_for_each(|one| failing.sample(&[one.name], one.is_failing))
    }
}

impl Export for Published {
    fn export(&self, to: &mut Exposition<'_>) -> fmt::Result {
        let Self { written, conflicts, failed, left_out, late, refused, evicted, waiting } = *self;
        let mut lookups = to.family(&SHARED_LOOKUPS)?;
        lookups.sample(&["written"], written)?;
        lookups.sample(&["failed"], failed)?;
        lookups.sample(&["left_out"], left_out)?;
        lookups.sample(&["refused"], refused)?;
        to.value(&SHARED_CONFLICTS, conflicts)?;
        to.value(&SHARED_LATE, late)?;
        to.value(&SHARED_EVICTED, evicted)?;
        to.value(&SHARED_WAITING, waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::follow::Sink as _;
    use namewall_cluster::kinds::{self, Component, Kind, POD};
    use namewall_runtime::ManualClock;
    use namewall_telemetry::{Format, Metrics};
    use serde_json::json;
    use std::collections::BTreeSet;

    fn shared<const N: usize>(kinds: [&'static Kind; N]) -> Arc<Shared> {
        Arc::new(Shared::of(kinds, Arc::new(ManualClock::default())))
    }

    fn text(part: impl Export) -> String {
        Metrics::new(vec![Box::new(part)]).text(Format::Prometheus)
    }

    fn families(text: &str) -> BTreeSet<&str> {
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        types.filter(|name| *name != "namewall_build_info").collect()
    }

    fn names(table: &[&Metric]) -> BTreeSet<&'static str> {
        table.iter().map(|metric| metric.name).collect()
    }

    #[test]
    fn the_tables_have_every_metric() {
        let watch = WatchMetrics { requests: Arc::default(), shared: shared([]) };
        assert_eq!(families(&text(watch)), names(WATCH_METRICS));
        assert_eq!(families(&text(Published::default())), names(SHARED_METRICS));
    }

    #[test]
    fn a_watch_tells_what_it_knows_and_what_is_in_its_way() {
        let shared = shared([&POD]);
        let metrics = WatchMetrics { requests: Arc::default(), shared: shared.clone() };
        let before = text(metrics.clone());
        assert!(before.contains("namewall_watch_objects{kind=\"Pod\"} 0\n"), "{before}");
        assert!(!before.contains("namewall_watch_last_event_age_seconds{"), "nothing was heard yet: {before}");
        let pod = json!({"metadata": {"namespace": "shop", "name": "web"}});
        shared.change(&POD, |known, now| known.apply(POD.preferred(), &pod, now));
        shared.say(&POD, "the server is away".to_owned());
        let after = text(metrics);
        for line in [
            "namewall_watch_objects{kind=\"Pod\"} 1\n",
            "namewall_watch_last_event_age_seconds{kind=\"Pod\"} ",
            "namewall_watch_failures_total{kind=\"Pod\"} 1\n",
            "namewall_watch_failing{kind=\"Pod\"} 1\n",
        ] {
            assert!(after.contains(line), "{line}: {after}");
        }
    }

    #[test]
    fn requests_are_counted_by_the_class_of_their_answer() {
        let requests = Arc::new(Requests::default());
        [Some(200), Some(201), Some(409), Some(503), Some(999), None].iter().for_each(|one| requests.count(*one));
        let text = text(WatchMetrics { requests, shared: shared([]) });
        for (code, count) in [("2xx", 2), ("4xx", 1), ("5xx", 1), ("none", 1), ("3xx", 0)] {
            let line = format!("namewall_api_requests_total{{code=\"{code}\"}} {count}\n");
            assert!(text.contains(&line), "{line}: {text}");
        }
    }

    #[test]
    fn the_name_of_a_watched_kind_is_no_other_kinds() {
        for component in [Component::Agent, Component::Controller] {
            let mut names: Vec<&str> = kinds::watched(component).map(|kind| kind.name).collect();
            names.sort_unstable();
            let count = names.len();
            names.dedup();
            assert_eq!(names.len(), count, "{names:?}");
        }
    }
}
