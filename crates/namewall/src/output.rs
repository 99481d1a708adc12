//! How things look: colours (only on a terminal), findings, JSON pieces.

use anstyle::{AnsiColor, Style};
use namewall_policy::{Finding, Prediction, Severity, Source};
use serde_json::{Value, json};
use std::io::{self, Write};

pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default().bold();
pub(crate) const SOFT: Style = Style::new().dimmed();
pub(crate) const STRONG: Style = Style::new().bold();

/// Standard output: buffered, coloured only on a terminal.
pub(crate) fn stdout() -> io::BufWriter<anstream::Stdout> {
    io::BufWriter::with_capacity(1 << 16, anstream::stdout())
}

/// Whoever reads our output may stop reading; the exit code stays what it is.
pub(crate) fn unless_closed(printed: anyhow::Result<()>) -> anyhow::Result<()> {
    match printed {
        Err(error) if is_closed_pipe(&error) => Ok(()),
        printed => printed,
    }
}

pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let closed = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    error.chain().any(closed)
}

/// A word on standard error. Where nobody can hear it, it is not said.
pub(crate) fn note(text: &str) {
    writeln!(anstream::stderr(), "{SOFT}note:{SOFT:#} {text}").ok();
}

pub(crate) fn style_of(prediction: Prediction) -> Style {
    match prediction {
        Prediction::Allow => GOOD,
        Prediction::Deny => BAD,
        Prediction::Depends => WARN,
    }
}

pub(crate) fn print_finding(out: &mut impl Write, finding: &Finding) -> io::Result<()> {
    let style = match finding.severity {
        Severity::Error => BAD,
        Severity::Warning => WARN,
        Severity::Hint => SOFT,
    };
    if let Some(source) = &finding.source {
        write!(out, "{}:{}:{}: ", source.file, source.line, source.column)?;
    }
    write!(out, "{style}{}{style:#} {SOFT}[{}]{SOFT:#}", finding.severity, finding.code)?;
    if !finding.object.is_empty() {
        write!(out, " {STRONG}{}{STRONG:#}", finding.object)?;
    }
    if !finding.path.is_empty() {
        write!(out, " {}", finding.path)?;
    }
    writeln!(out, "\n    {}", finding.message)
}

pub(crate) fn finding_json(finding: &Finding) -> Value {
    json!({
        "severity": finding.severity.to_string(),
        "code": finding.code,
        "object": finding.object,
        "path": finding.path,
        "source": finding.source.as_ref().map(source_json),
        "message": finding.message,
    })
}

pub(crate) fn source_json(source: &Source) -> Value {
    json!({ "file": &*source.file, "line": source.line, "column": source.column })
}

pub(crate) fn print_json(out: &mut impl Write, value: &Value) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}
