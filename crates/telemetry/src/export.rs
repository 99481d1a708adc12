//! From numbers to text, at a scrape.

use crate::format::Format;
use crate::histogram::Durations;
use crate::metric::{BUILD_INFO, Kind, Metric};
use crate::sizes::Sizes;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt::{self, Debug};

/// A part of a daemon that has metrics. Its numbers are read at a scrape.
pub trait Export: Debug + Send + Sync + 'static {
    fn export(&self, to: &mut Exposition<'_>) -> fmt::Result;
}

impl<E: Export + ?Sized> Export for std::sync::Arc<E> {
    fn export(&self, to: &mut Exposition<'_>) -> fmt::Result {
        (**self).export(to)
    }
}

/// All metrics of a daemon.
#[derive(Debug)]
pub struct Metrics(Registry);

impl Metrics {
    /// The metrics of these parts, and which version this is.
    pub fn new(parts: Vec<Box<dyn Export>>) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Part(Box::new(BuildInfo))));
        parts.into_iter().for_each(|part| registry.register_collector(Box::new(Part(part))));
        Self(registry)
    }

    /// All of them, as they are now.
    pub fn text(&self, format: Format) -> String {
        let mut text = String::new();
        match encode(&mut text, &self.0) {
            Ok(()) => format.of(text),
            // Writing to a String does not fail.
            Err(fmt::Error) => String::new(),
        }
    }
}

#[derive(Debug)]
struct Part(Box<dyn Export>);

impl Collector for Part {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.export(&mut Exposition(encoder))
    }
}

#[derive(Debug)]
struct BuildInfo;

impl Export for BuildInfo {
    fn export(&self, to: &mut Exposition<'_>) -> fmt::Result {
        to.family(&BUILD_INFO)?.sample(&[env!("CARGO_PKG_VERSION")], 1_u64)
    }
}

/// What a scraper gets.
#[derive(Debug)]
pub struct Exposition<'e>(DescriptorEncoder<'e>);

impl Exposition<'_> {
    /// Begins the samples of a metric. Each metric is begun once.
    pub fn family(&mut self, metric: &'static Metric) -> Result<Family<'_>, fmt::Error> {
        let kind = match metric.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
        };
        Ok(Family { metric, encoder: self.0.encode_descriptor(metric.family(), metric.help, None, kind)? })
    }

    /// A metric without labels.
    pub fn value(&mut self, metric: &'static Metric, value: impl Into<Value>) -> fmt::Result {
        self.family(metric)?.sample(&[], value)
    }
}

/// A number of a sample.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value {
    Whole(u64),
    Fraction(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self::Whole(value as u64)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Fraction(value)
    }
}

/// The samples of a metric.
#[derive(Debug)]
pub struct Family<'e> {
    metric: &'static Metric,
    encoder: MetricEncoder<'e>,
}

impl Family<'_> {
    /// One sample, with the values of the labels in their order.
    pub fn sample(&mut self, labels: &[&str], value: impl Into<Value>) -> fmt::Result {
        let (kind, value) = (self.metric.kind, value.into());
        self.with_labels(labels, |sample| match (kind, value) {
            (Kind::Counter, Value::Whole(value)) => sample.encode_counter::<NoLabelSet, _, f64>(&value, None),
            (Kind::Counter, Value::Fraction(value)) => sample.encode_counter::<NoLabelSet, _, f64>(&value, None),
            (_, Value::Whole(value)) => sample.encode_gauge(&value),
            (_, Value::Fraction(value)) => sample.encode_gauge(&value),
        })
    }

    /// The samples of a histogram.
    pub fn durations(&mut self, labels: &[&str], durations: &Durations) -> fmt::Result {
        let buckets = durations.buckets();
        // Counted from the same numbers as the buckets: others may add meanwhile.
        let count = buckets.iter().map(|(_, count)| count).sum();
        let seconds = durations.seconds();
        self.with_labels(labels, |sample| sample.encode_histogram::<NoLabelSet>(seconds, count, &buckets, None))
    }

    /// The samples of a histogram of sizes.
    pub fn sizes(&mut self, labels: &[&str], sizes: &Sizes) -> fmt::Result {
        let buckets = sizes.buckets();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let bytes = sizes.bytes();
        self.with_labels(labels, |sample| sample.encode_histogram::<NoLabelSet>(bytes, count, &buckets, None))
    }

    fn with_labels(
        &mut self,
        labels: &[&str],
        write: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        match self.labels(labels) {
            // Without this it would have empty braces.
            labels if labels.is_empty() => write(&mut self.encoder),
            labels => write(&mut self.encoder.encode_family(&labels)?),
        }
    }

    fn labels<'l>(&self, values: &'l [&'l str]) -> Vec<(&'static str, &'l str)> {
        let labels = self.metric.labels;
        debug_assert_eq!(labels.len(), values.len(), "labels of {}", self.metric.name);
        let pairs = labels.iter().zip(values);
        pairs
            .map(|(label, value)| {
                debug_assert!(label.has(value), "{} has no {}={value}", self.metric.name, label.name);
                (label.name, *value)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Label;
    use expect_test::expect;
    use std::time::Duration;

    const STATE: Label = Label::one_of("state", &["up", "down"]);
    const ASKED: Metric = Metric::counter("test_asked_total", "Questions.");
    const SERVERS: Metric = Metric::gauge("test_servers", "Servers by state.").by(&[STATE, Label::open("at", "where")]);
    const TOOK: Metric = Metric::histogram("test_took_seconds", "Times.").by(&[STATE]);

    #[derive(Debug)]
    struct Sample;

    impl Export for Sample {
        fn export(&self, to: &mut Exposition<'_>) -> fmt::Result {
            to.value(&ASKED, 3_u64)?;
            let mut servers = to.family(&SERVERS)?;
            servers.sample(&["up", "a\"b\\c\nd"], 2_usize)?;
            servers.sample(&["down", ""], 0.5)?;
            let durations = Durations::default();
            durations.add(Duration::from_millis(1));
            durations.add(Duration::from_secs(60));
            to.family(&TOOK)?.durations(&["up"], &durations)
        }
    }

    fn without_long_parts(text: &str) -> String {
        let is_short =
            |line: &&str| !line.contains("_bucket") || line.contains("le=\"0.001\"") || line.contains("+Inf");
        let lines: Vec<&str> = text.lines().filter(is_short).filter(|line| !line.contains("namewall_build")).collect();
        lines.join("\n") + "\n"
    }

    #[test]
    fn both_formats_have_the_same_samples_under_the_heads_of_their_own() {
        let metrics = Metrics::new(vec![Box::new(Sample)]);
        let open = without_long_parts(&metrics.text(Format::OpenMetrics));
        expect![[r##"
            # HELP test_asked Questions.
            # TYPE test_asked counter
            test_asked_total 3
            # HELP test_servers Servers by state.
            # TYPE test_servers gauge
            test_servers{state="up",at="a\"b\\c\nd"} 2
            test_servers{state="down",at=""} 0.5
            # HELP test_took_seconds Times.
            # TYPE test_took_seconds histogram
            test_took_seconds_sum{state="up"} 60.001
            test_took_seconds_count{state="up"} 2
            test_took_seconds_bucket{le="0.001",state="up"} 1
            test_took_seconds_bucket{le="+Inf",state="up"} 2
            # EOF
        "##]]
        .assert_eq(&open);
        let expected = open.replace(" test_asked ", " test_asked_total ").replace("# EOF\n", "");
        assert_eq!(without_long_parts(&metrics.text(Format::Prometheus)), expected);
    }

    #[test]
    fn every_daemon_says_which_version_it_is() {
        let text = Metrics::new(Vec::new()).text(Format::Prometheus);
        assert!(
            text.contains(&format!("namewall_build_info{{version=\"{}\"}} 1\n", env!("CARGO_PKG_VERSION"))),
            "{text}"
        );
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "test_servers has no state=sideways")]
    fn a_value_that_a_label_does_not_have_is_a_mistake() {
        #[derive(Debug)]
        struct Wrong;
        impl Export for Wrong {
            fn export(&self, to: &mut Exposition<'_>) -> fmt::Result {
                to.family(&SERVERS)?.sample(&["sideways", ""], 1_u64)
            }
        }
        Metrics::new(vec![Box::new(Wrong)]).text(Format::OpenMetrics);
    }
}
