//! `namewall test`.

use crate::cli::{Test, TestFormat};
use crate::output::{self, BAD, GOOD, SOFT, STRONG};
use crate::picture::escape_xml;
use anyhow::{Result, bail};
use namewall_policy::Severity;
use namewall_scenario::{Outcome, Scenario, run as play};
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;

/// A scenario and how it went.
struct Played {
    scenario: Scenario,
    outcome: Outcome,
    seconds: f64,
}

pub(crate) fn run(args: &Test) -> Result<ExitCode> {
    let mut files = Vec::new();
    for path in &args.scenarios {
        files.extend(Scenario::find(path)?);
    }
    let scenarios: Vec<Scenario> = files.iter().map(|file| Scenario::load(file)).collect::<Result<_, _>>()?;
    if scenarios.is_empty() {
        bail!("there is no scenario in {}", args.scenarios[0].display());
    }
    let played: Vec<Played> = scenarios
        .into_iter()
        .map(|scenario| {
            let start = std::time::Instant::now();
            let outcome = play(&scenario);
            Played { scenario, outcome, seconds: start.elapsed().as_secs_f64() }
        })
        .collect();
    let mut out = output::stdout();
    let printed = match args.output {
        TestFormat::Text => print(&mut out, &played),
        TestFormat::Json => output::print_json(&mut out, &played.iter().map(as_json).collect()),
        TestFormat::Junit => print_junit(&mut out, &played),
    };
    output::unless_closed(printed.and_then(|()| Ok(out.flush()?)))?;
    let passed = played.iter().all(|played| played.outcome.passed());
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn print(out: &mut impl Write, played: &[Played]) -> Result<()> {
    for Played { scenario, outcome, .. } in played {
        let total = outcome.probes.len();
        let failed = outcome.probes.iter().filter(|probe| !probe.passed).count();
        if outcome.passed() {
            let plural = if total == 1 { "" } else { "s" };
            writeln!(out, "{GOOD}ok{GOOD:#}    {} {SOFT}({total} probe{plural}){SOFT:#}", scenario.name)?;
            for finding in outcome.findings.iter().filter(|finding| finding.severity == Severity::Error) {
                writeln!(out, "      {SOFT}{finding}{SOFT:#}")?;
            }
            continue;
        }
        writeln!(out, "{BAD}FAIL{BAD:#}  {STRONG}{}{STRONG:#} {SOFT}{}{SOFT:#}", scenario.name, scenario.file)?;
        for probe in outcome.probes.iter().filter(|probe| !probe.passed) {
            writeln!(
                out,
                "      {}:{}  {STRONG}{}{STRONG:#}",
                probe.probe.source.file, probe.probe.source.line, probe.probe.text
            )?;
            writeln!(out, "          expected  {}", probe.probe.expect)?;
            writeln!(out, "          got       {}", probe.got)?;
        }
        if let Some(message) = &outcome.broken {
            writeln!(out, "      a step could not be taken: {message}")?;
        }
        for finding in &outcome.findings {
            writeln!(out, "      {SOFT}{finding}{SOFT:#}")?;
        }
        if failed > 0 {
            writeln!(out, "      {failed} of {total} probes failed")?;
        }
    }
    let count = |passed: bool| -> usize {
        played.iter().flat_map(|played| &played.outcome.probes).filter(|probe| probe.passed == passed).count()
    };
    let broken = played.iter().filter(|played| played.outcome.broken.is_some()).count();
    writeln!(out, "{} passed, {} failed", count(true), count(false) + broken)?;
    Ok(())
}

fn as_json(played: &Played) -> Value {
    let probes = played.outcome.probes.iter().map(|probe| {
        json!({
            "probe": probe.probe.text,
            "source": output::source_json(&probe.probe.source),
            "expected": probe.probe.expect.to_string(),
            "got": probe.got,
            "passed": probe.passed,
        })
    });
    json!({
        "name": played.scenario.name,
        "about": played.scenario.about,
        "file": &*played.scenario.file,
        "passed": played.outcome.passed(),
        "broken": played.outcome.broken,
        "probes": probes.collect::<Vec<_>>(),
        "findings": played.outcome.findings.iter().map(output::finding_json).collect::<Vec<_>>(),
    })
}

fn print_junit(out: &mut impl Write, played: &[Played]) -> Result<()> {
    writeln!(out, r#"<?xml version="1.0" encoding="UTF-8"?>"#)?;
    writeln!(out, "<testsuites>")?;
    for Played { scenario, outcome, seconds } in played {
        let failures = outcome.probes.iter().filter(|probe| !probe.passed).count();
        let errors = usize::from(outcome.broken.is_some());
        writeln!(
            out,
            r#"  <testsuite name="{}" file="{}" tests="{}" failures="{failures}" errors="{errors}" time="{seconds:.3}">"#,
            escape_xml(&scenario.name),
            escape_xml(&scenario.file),
            outcome.probes.len() + errors,
        )?;
        for probe in &outcome.probes {
            let (name, class) = (escape_xml(&probe.probe.text), escape_xml(&scenario.name));
            write!(out, r#"    <testcase name="{name}" classname="{class}" line="{}""#, probe.probe.source.line)?;
            if probe.passed {
                writeln!(out, "/>")?;
            } else {
                let expected = escape_xml(&probe.probe.expect.to_string());
                let got = escape_xml(&probe.got);
                writeln!(
                    out,
                    ">\n      <failure message=\"expected {expected}\">got {got}</failure>\n    </testcase>"
                )?;
            }
        }
        if let Some(message) = &outcome.broken {
            let message = escape_xml(message);
            writeln!(out, "    <testcase name=\"steps\"><error message=\"{message}\"/></testcase>")?;
        }
        writeln!(out, "  </testsuite>")?;
    }
    writeln!(out, "</testsuites>")?;
    Ok(())
}
