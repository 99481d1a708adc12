//! `namewall check`.

use crate::cli::{Check, Format};
use crate::input::{Loaded, Origin};
use crate::output::{self, BAD, GOOD, SOFT, WARN};
use anyhow::Result;
use namewall_cluster::NO_KIND;
use namewall_policy::lint::lint;
use namewall_policy::{Finding, Severity};
use serde_json::json;
use std::io::Write;
use std::process::ExitCode;

pub(crate) fn run<I: Origin>(args: &Check<I>) -> Result<ExitCode> {
    let loaded = args.input.load()?;
    let mut findings = loaded.findings.clone();
    findings.extend(lint(&loaded.snapshot, &loaded.program));
    findings.sort_by(|a, b| (&a.source, &a.path, b.severity).cmp(&(&b.source, &b.path, a.severity)));
    output::unless_closed(print(&loaded, &findings, args.output))?;
    let errors = findings.iter().any(|finding| finding.severity == Severity::Error);
    Ok(if errors { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn print(loaded: &Loaded, findings: &[Finding], format: Format) -> Result<()> {
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let mut out = output::stdout();
    match format {
        Format::Text => {
            for finding in findings {
                output::print_finding(&mut out, finding)?;
            }
            print_summary(&mut out, loaded, findings)?;
        }
        Format::Json => {
            let value = json!({
                "findings": findings.iter().map(output::finding_json).collect::<Vec<_>>(),
                "errors": count(Severity::Error),
                "warnings": count(Severity::Warning),
                "hints": count(Severity::Hint),
                "read": { "policies": loaded.snapshot.policies.len(), "workloads": loaded.snapshot.workloads.len() },
                "passedOver": loaded.passed_over,
                "unread": loaded.unread.json(),
            });
            output::print_json(&mut out, &value)?;
        }
    }
    out.flush()?;
    Ok(())
}

fn print_summary(out: &mut impl Write, loaded: &Loaded, findings: &[Finding]) -> Result<()> {
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    let (policies, workloads) = (loaded.snapshot.policies.len(), loaded.snapshot.workloads.len());
    let policies = if policies == 1 { "1 policy".to_owned() } else { format!("{policies} policies") };
    write!(out, "{policies}, {}: ", plural(workloads, "workload"))?;
    let (errors, warnings, hints) = (count(Severity::Error), count(Severity::Warning), count(Severity::Hint));
    if findings.is_empty() {
        write!(out, "{GOOD}nothing to say{GOOD:#}")?;
    } else {
        let style = if errors > 0 {
            BAD
        } else if warnings > 0 {
            WARN
        } else {
            GOOD
        };
        let counts = [plural(errors, "error"), plural(warnings, "warning"), plural(hints, "hint")];
        write!(out, "{style}{}{style:#}", counts.join(", "))?;
    }
    writeln!(out)?;
    if !loaded.passed_over.is_empty() {
        let count = |(kind, n): (&String, &usize)| match kind.as_str() {
            NO_KIND => format!("{n} without a kind"),
            kind => format!("{n} {kind}"),
        };
        let kinds: Vec<String> = loaded.passed_over.iter().map(count).collect();
        writeln!(out, "{SOFT}passed over, since no policy looks at them: {}{SOFT:#}", kinds.join(", "))?;
    }
    Ok(())
}
