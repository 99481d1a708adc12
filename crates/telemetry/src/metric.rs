//! Descriptions of metrics.

/// The version that runs. Every daemon has it.
pub const BUILD_INFO: Metric =
    Metric::gauge("namewall_build_info", "Always 1; the label has the version that runs.").by(&[VERSION]);
const VERSION: Label = Label::open("version", "the version");

/// A family of samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    /// As in the samples: counters end in `_total`, times in `_seconds`.
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [Label],
    /// One sentence without quotes or backslashes.
    pub help: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label {
    pub name: &'static str,
    pub values: Values,
}

/// The values that a label can have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Values {
    OneOf(&'static [&'static str]),
    /// As many as the configuration has; what they are is said here. Never names or addresses of clients.
    Open(&'static str),
}

impl Label {
    pub const fn one_of(name: &'static str, values: &'static [&'static str]) -> Self {
        Self { name, values: Values::OneOf(values) }
    }

    pub const fn open(name: &'static str, meaning: &'static str) -> Self {
        Self { name, values: Values::Open(meaning) }
    }

    pub(crate) fn has(&self, value: &str) -> bool {
        match self.values {
            Values::OneOf(values) => values.contains(&value),
            Values::Open(_) => true,
        }
    }
}

impl Metric {
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Counter, labels: &[], help }
    }

    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Gauge, labels: &[], help }
    }

    pub const fn histogram(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Histogram, labels: &[], help }
    }

    /// With labels.
    pub const fn by(self, labels: &'static [Label]) -> Self {
        Self { labels, ..self }
    }

    /// The name of the family. OpenMetrics has the `_total` of counters in samples only.
    pub(crate) fn family(&self) -> &'static str {
        match self.kind {
            Kind::Counter => self.name.strip_suffix("_total").unwrap_or(self.name),
            Kind::Gauge | Kind::Histogram => self.name,
        }
    }
}
