//! The two text formats, and which of them a scraper asks for.
//!
//! `prometheus-client` writes OpenMetrics. Prometheus' own text format differs in the heads of counters, whose name
//! has its `_total` there too, and has no `# EOF`.

/// A format of metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// OpenMetrics 1.0.0
    OpenMetrics,
    /// Prometheus' text format, version 0.0.4
    Prometheus,
}

impl Format {
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// The format that an `Accept` header prefers. Without a preference it is Prometheus' own, which every scraper
    /// reads.
    pub fn accepted(header: &str) -> Self {
        let weight = |media_type: &str| {
            let ranges = header.split(',').map(|range| range.split(';').map(str::trim));
            let same = ranges.filter_map(|mut parts| {
                let is_same = parts.next()?.eq_ignore_ascii_case(media_type);
                let weight = parts.find_map(|part| part.strip_prefix("q=")).map_or(Some(1.0), |q| q.parse().ok());
                weight.filter(|_| is_same)
            });
            same.fold(0.0_f32, f32::max)
        };
        let (open, text) = (weight("application/openmetrics-text"), weight("text/plain"));
        if open > text { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// OpenMetrics in this format.
    pub(crate) fn of(self, open_metrics: String) -> String {
        if self == Self::OpenMetrics {
            return open_metrics;
        }
        let mut text = String::with_capacity(open_metrics.len());
        let mut help = None;
        for line in open_metrics.lines() {
            match line.strip_prefix("# ").and_then(|head| head.split_once(' ')) {
                // Written with the type, which says what the name is.
                Some(("HELP", rest)) => help = rest.split_once(' '),
                Some(("TYPE", rest)) => {
                    let (name, kind) = rest.split_once(' ').unwrap_or((rest, "untyped"));
                    let end = if kind == "counter" { "_total" } else { "" };
                    if let Some((_, help)) = help.take() {
                        text += &format!("# HELP {name}{end} {help}\n");
                    }
                    text += &format!("# TYPE {name}{end} {kind}\n");
                }
                _ if line == "# EOF" => {}
                _ => {
                    text += line;
                    text.push('\n');
                }
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scraper_gets_the_format_that_it_prefers() {
        // What Prometheus 3 sends by default, and with text preferred.
        let usual = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                     application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
                     text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let text_first = "text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.2";
        for (header, format) in [
            (usual, Format::OpenMetrics),
            (text_first, Format::Prometheus),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("Application/OpenMetrics-Text; version=1.0.0; q=0.1", Format::OpenMetrics),
            ("application/openmetrics-text;q=0", Format::Prometheus),
            ("application/openmetrics-text;q=x", Format::Prometheus),
            ("application/vnd.google.protobuf", Format::Prometheus),
            ("text/html, */*", Format::Prometheus),
            ("", Format::Prometheus),
        ] {
            assert_eq!(Format::accepted(header), format, "{header}");
        }
    }
}
