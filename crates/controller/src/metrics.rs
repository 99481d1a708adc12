//! The metrics of `namewall controller`.

use crate::controller::Counts;
use namewall_telemetry::{Export, Exposition, Label, Metric};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

const RESULT: Label = Label::one_of("result", &["ok", "failed"]);
const OPERATION: Label = Label::one_of("operation", &["create", "delete"]);

const LEADS: Metric = Metric::gauge("namewall_controller_leader", "1 while this replica leads.");
const NAMES: Metric = Metric::gauge("namewall_controller_names", "Names that are kept resolved.");
const LOOKUPS: Metric =
    Metric::counter("namewall_controller_lookups_total", "Lookups of names; a failed one is tried again.")
        .by(&[RESULT]);
const LOOKUPS_WAITING: Metric =
    Metric::gauge("namewall_controller_lookups_waiting", "Lookups that are under way or wait for their turn.");
const SERVERS: Metric = Metric::gauge(
    "namewall_controller_dns_servers",
    "DNS servers that can be asked for names; 0 if no name can be looked up.",
);
const LAG: Metric = Metric::gauge(
    "namewall_controller_lookup_lag_seconds",
    "How late the latest of the last lookups that were due began.",
);
const OBJECTS: Metric = Metric::counter(
    "namewall_controller_objects_total",
    "DNSNameResolvers that were created for names of policies, or deleted.",
)
.by(&[OPERATION]);

/// All of them, besides those of `namewall-kubernetes`.
pub const METRICS: &[&Metric] = &[&LEADS, &NAMES, &LOOKUPS, &LOOKUPS_WAITING, &SERVERS, &LAG, &OBJECTS];

/// The counts of a controller after its last turn. The controller has them to itself while it works.
#[derive(Clone, Debug, Default)]
pub struct ControllerMetrics(Arc<Mutex<Counts>>);

impl ControllerMetrics {
    pub fn set(&self, counts: Counts) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }
}

impl Export for ControllerMetrics {
    fn export(&self, to: &mut Exposition<'_>) -> fmt::Result {
        let counts = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Counts { created, deleted, lookups, failures, lag, names, lookups_waiting, servers, leads, statuses } =
            counts;
        to.value(&LEADS, leads)?;
        to.value(&NAMES, names)?;
        let mut looked_up = to.family(&LOOKUPS)?;
        looked_up.sample(&["ok"], lookups - failures)?;
        looked_up.sample(&["failed"], failures)?;
        to.value(&LOOKUPS_WAITING, lookups_waiting)?;
        let mut known = to.family(&SERVERS)?;
        if let Some(servers) = servers {
            known.sample(&[], servers)?;
        }
        to.value(&LAG, lag.as_secs_f64())?;
        let mut objects = to.family(&OBJECTS)?;
        objects.sample(&["create"], created)?;
        objects.sample(&["delete"], deleted)?;
        statuses.export(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use namewall_kubernetes::{Published, SHARED_METRICS};
    use namewall_telemetry::{Format, Metrics};
    use std::collections::BTreeSet;
    use std::time::Duration;

    #[test]
    fn the_table_has_every_metric_and_the_samples_are_the_last_counts() {
        let metrics = ControllerMetrics::default();
        let statuses = Published { written: 7, ..Published::default() };
        let lag = Duration::from_millis(250);
        let counts = Counts { created: 4, lookups: 5, failures: 2, lag, leads: true, statuses, ..Counts::default() };
        metrics.set(counts);
        let text = Metrics::new(vec![Box::new(metrics)]).text(Format::Prometheus);
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        let exported: BTreeSet<&str> = types.filter(|name| *name != "namewall_build_info").collect();
        assert_eq!(exported, METRICS.iter().chain(SHARED_METRICS).map(|metric| metric.name).collect());
        for sample in [
            "namewall_controller_leader 1",
            "namewall_controller_lookups_total{result=\"ok\"} 3",
            "namewall_controller_lookups_total{result=\"failed\"} 2",
            "namewall_controller_lookup_lag_seconds 0.25",
            "namewall_controller_objects_total{operation=\"create\"} 4",
            "namewall_shared_lookups_total{result=\"written\"} 7",
        ] {
            assert!(text.lines().any(|line| line == sample), "{sample}: {text}");
        }
    }
}
