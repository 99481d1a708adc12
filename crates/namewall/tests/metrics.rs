//! docs/metrics.md has every metric of the code, and no other. Its tables are made from the tables of the code, by
//! `UPDATE_EXPECT=1 cargo test -p namewall --test metrics`.

#[path = "kinds/files.rs"]
#[allow(clippy::unwrap_used, dead_code, reason = "shared with another test, which uses all of it")]
mod files;

use files::{Made, read};
use namewall_telemetry::{BUILD_INFO, Kind, Label, Metric, Values};
use std::collections::BTreeSet;

const DOCUMENT: &str = "docs/metrics.md";
const HEADER: &str = "| metric | type | labels | meaning |\n|---|---|---|---|\n";

/// A heading of the document, and the metrics below it.
struct Section {
    heading: &'static str,
    metrics: Vec<&'static Metric>,
}

fn sections() -> Vec<Section> {
    let section = |heading, tables: &[&[&'static Metric]]| Section { heading, metrics: tables.concat() };
    vec![
        section("## Every daemon", &[&[&BUILD_INFO]]),
        section("## `namewall agent` and `namewall run`", &[namewall_agent::METRICS]),
        section(
            "## The API server\'s side: `namewall agent` and `namewall controller`",
            &[namewall_kubernetes::WATCH_METRICS, namewall_kubernetes::SHARED_METRICS],
        ),
        section("## `namewall controller`", &[namewall_controller::METRICS]),
        section("## `namewall dns`", &[namewall_dns_firewall::METRICS]),
    ]
}

fn all() -> Vec<&'static Metric> {
    sections().into_iter().flat_map(|section| section.metrics).collect()
}

fn label(label: &Label) -> String {
    let values = match label.values {
        Values::OneOf(values) => values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", "),
        Values::Open(meaning) => meaning.to_owned(),
    };
    format!("`{}`: {values}", label.name)
}

fn row(metric: &Metric) -> String {
    let Metric { name, kind, help, .. } = metric;
    let labels: Vec<String> = metric.labels.iter().map(label).collect();
    format!("| `{name}` | {} | {} | {help} |\n", kind.word(), labels.join("; "))
}

#[test]
fn the_document_has_every_metric() {
    for Section { heading, metrics } in sections() {
        let rows: String = metrics.into_iter().map(row).collect();
        Made::section(DOCUMENT, &format!("{heading}\n\n{HEADER}"), &rows).check();
    }
}

#[test]
fn documents_name_no_metric_that_does_not_exist() {
    let names: BTreeSet<&str> = all().into_iter().map(|metric| metric.name).collect();
    for path in [DOCUMENT, "docs/corefile.md", "docs/cluster.md", "docs/run.md", "docs/install.md"] {
        let text = read(path);
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && !"_:".contains(letter));
        let is_metric = |word: &&str| {
            // Targets of the log have `::` in them.
            (word.starts_with("namewall_") || word.starts_with("coredns_")) && !word.contains(':')
        };
        let strays: Vec<&str> = words.filter(is_metric).filter(|word| !names.contains(word)).collect();
        assert!(strays.is_empty(), "{path} names metrics that no code exports: {strays:?}");
    }
}

#[test]
fn names_follow_the_conventions_of_prometheus() {
    let mut seen = BTreeSet::new();
    for metric in all() {
        let Metric { name, kind, labels, help } = metric;
        assert!(seen.insert(*name), "{name} is declared twice");
        let families = ["namewall_", "coredns_", "process_"];
        assert!(families.iter().any(|family| name.starts_with(family)), "{name}");
        assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}: a counter, and only it, ends in _total");
        let has_unit = name.ends_with("_seconds") || name.ends_with("_bytes");
        assert!(*kind != Kind::Histogram || has_unit, "{name}: histograms are of times or sizes");
        assert!(!["_bucket", "_sum", "_count"].iter().any(|end| name.ends_with(end)), "{name}");
        let is_plain =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || b"_0123456789".contains(&byte));
        assert!(is_plain(name) && labels.iter().all(|label| is_plain(label.name)), "{name}");
        assert!(!labels.iter().any(|label| label.name == "le"), "{name}");
        assert!(help.ends_with('.') && !help.contains(['"', '\\', '\n', '|']), "{name}: {help}");
    }
}
