//! `namewall test`.

use crate::cli::{Test, TestFormat};
use crate::conditions::conditions_json;
use crate::output::{self, BAD, GOOD, SOFT, STRONG};
use crate::unread::Unread;
use anyhow::{Context, Result, bail};
use namewall_policy::{Finding, Severity};
use namewall_sandbox::{Packets, ensure_rights};
use namewall_scenario::{Outcome, Scenario, run, run_in};
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

mod junit;

const AT_ONCE: usize = 4;
/// What takes longer than this is told of.
const PROGRESS_AFTER: Duration = Duration::from_secs(1);

/// A scenario and how it went.
struct Played {
    scenario: Scenario,
    outcome: Outcome,
    seconds: f64,
}

impl Played {
    /// What could not be read, unless that is what the scenario is about.
    fn unread(&self) -> &[Finding] {
        if self.scenario.lenient { &[] } else { &self.outcome.unread }
    }
}

pub(crate) fn execute(args: &Test) -> Result<ExitCode> {
    let mut files = Vec::new();
    for path in &args.scenarios {
        files.extend(Scenario::find(path)?);
    }
    let scenarios = load(&files)?;
    if scenarios.is_empty() {
        bail!("there is no scenario in {}", args.scenarios[0].display());
    }
    let played =
        if args.real { play_real(scenarios)? } else { scenarios.into_iter().map(|one| timed(one, run)).collect() };
    let unread = played.iter().flat_map(Played::unread);
    let unread = Unread::of(unread).with(args.lenient);
    unread.report();
    let mut out = output::stdout();
    let printed = match args.output {
        TestFormat::Text if args.tell => tell(&mut out, &played).and_then(|()| print(&mut out, &played)),
        TestFormat::Text => print(&mut out, &played),
        TestFormat::Json => output::print_json(&mut out, &played.iter().map(as_json).collect()),
        TestFormat::Json2 => {
            unread.wrap(&mut out, "scenarios", |out| output::print_json(out, &played.iter().map(as_json).collect()))
        }
        TestFormat::Junit => junit::print(&mut out, &played),
    };
    output::unless_closed(printed.and_then(|()| Ok(out.flush()?)))?;
    let passed = played.iter().all(|played| played.outcome.passed());
    Ok(unread.exit(if passed { ExitCode::SUCCESS } else { ExitCode::from(1) }))
}

/// All of them, or every reason why not: a scenario that is left out would be taken for one that passes.
fn load(files: &[PathBuf]) -> Result<Vec<Scenario>> {
    let (mut scenarios, mut reasons) = (Vec::new(), Vec::new());
    for file in files {
        match Scenario::load(file) {
            Ok(scenario) => scenarios.push(scenario),
            Err(error) => reasons.push(format!("{:#}", anyhow::Error::from(error))),
        }
    }
    match reasons.is_empty() {
        true => Ok(scenarios),
        false => bail!("{}", reasons.join("\n")),
    }
}

fn timed(scenario: Scenario, play: impl FnOnce(&Scenario) -> Outcome) -> Played {
    let start = Instant::now();
    let outcome = play(&scenario);
    Played { scenario, outcome, seconds: start.elapsed().as_secs_f64() }
}

/// With packets most of the time is waiting for answers that do not come, so several are played at once.
fn play_real(scenarios: Vec<Scenario>) -> Result<Vec<Played>> {
    ensure_rights().context("--real needs network namespaces")?;
    let (start, total) = (Instant::now(), scenarios.len());
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let played: Vec<Mutex<Option<Played>>> = scenarios.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(total) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(scenario) = scenarios.get(at) else { break };
                    let result = timed(scenario.clone(), |one| run_in(&mut Packets::for_scenario(one), one));
                    *played[at].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    if start.elapsed() > PROGRESS_AFTER && std::io::stderr().is_terminal() {
                        let end = if done == total { "\r\x1b[K" } else { "" };
                        eprint!("\r{done} of {total} scenarios{end}");
                    }
                }
            });
        }
    });
    Ok(played.into_iter().filter_map(|one| one.into_inner().unwrap_or_else(PoisonError::into_inner)).collect())
}

/// Each step, in the order of the file.
fn tell(out: &mut impl Write, played: &[Played]) -> Result<()> {
    for Played { scenario, outcome, .. } in played {
        writeln!(out, "{STRONG}{}{STRONG:#}", scenario.name)?;
        let mut told: Vec<(u32, String)> = Vec::new();
        for (source, text) in &outcome.said {
            told.push((source.line, format!("\n{STRONG}{text}{STRONG:#}")));
        }
        let mark = |passed: bool| if passed { format!("{GOOD}✓{GOOD:#}") } else { format!("{BAD}✗{BAD:#}") };
        let line = |passed, text: &str, got: &str| format!("  {} {text}\n      {SOFT}{got}{SOFT:#}", mark(passed));
        for one in &outcome.lookups {
            told.push((one.source.line, line(one.passed, &one.text, &one.got)));
        }
        for one in &outcome.probes {
            told.push((one.probe.source.line, line(one.passed, &one.probe.text, &one.got)));
        }
        for one in &outcome.connections {
            told.push((one.source.line, line(one.passed, &format!("connection {}", one.name), &one.got)));
        }
        told.sort_by_key(|(line, _)| *line);
        told.iter().try_for_each(|(_, text)| writeln!(out, "{text}"))?;
        writeln!(out)?;
    }
    Ok(())
}

fn print(out: &mut impl Write, played: &[Played]) -> Result<()> {
    for one in played {
        let Played { scenario, outcome, .. } = one;
        let (total, failed) = counts(outcome);
        if outcome.passed() {
            let plural = if total == 1 { "" } else { "s" };
            let not_tried = match outcome.probes.iter().filter(|probe| probe.not_tried).count() {
                0 => String::new(),
                some => format!(", {some} not tried with packets: their ends have no addresses"),
            };
            let (style, word) = if one.unread().is_empty() { (GOOD, "ok  ") } else { (BAD, "unread") };
            writeln!(
                out,
                "{style}{word}{style:#}  {} {SOFT}({total} probe{plural}{not_tried}){SOFT:#}",
                scenario.name
            )?;
            for probe in outcome.probes.iter().filter(|probe| !probe.depends_on.is_empty()) {
                let (source, text) = (&probe.probe.source, &probe.probe.text);
                writeln!(out, "      {SOFT}{}:{}  {text}: {}{SOFT:#}", source.file, source.line, probe.got)?;
            }
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
        for connection in outcome.connections.iter().filter(|connection| !connection.passed) {
            let (source, name) = (&connection.source, &connection.name);
            writeln!(out, "      {}:{}  {STRONG}connection {name}{STRONG:#}", source.file, source.line)?;
            writeln!(out, "          expected  {}", connection.expect)?;
            writeln!(out, "          got       {}", connection.got)?;
        }
        for lookup in outcome.lookups.iter().filter(|lookup| !lookup.passed) {
            let (source, text) = (&lookup.source, &lookup.text);
            writeln!(out, "      {}:{}  {STRONG}{text}{STRONG:#}", source.file, source.line)?;
            writeln!(out, "          expected  {}", lookup.expected)?;
            writeln!(out, "          got       {}", lookup.got)?;
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
    let (mut total, mut failed) = (0, 0);
    for (more, of_them) in played.iter().map(|played| counts(&played.outcome)) {
        (total, failed) = (total + more, failed + of_them);
    }
    let broken = played.iter().filter(|played| played.outcome.broken.is_some()).count();
    let unread = match played.iter().filter(|played| !played.unread().is_empty()).count() {
        0 => String::new(),
        1 => ", 1 scenario with input that cannot be read".to_owned(),
        some => format!(", {some} scenarios with input that cannot be read"),
    };
    writeln!(out, "{} passed, {} failed{unread}", total - failed, failed + broken)?;
    Ok(())
}

/// How many probes, those of open connections and of lookups among them; and how many of them failed.
fn counts(outcome: &Outcome) -> (usize, usize) {
    let probes = outcome.probes.iter().map(|probe| probe.passed);
    let connections = outcome.connections.iter().map(|connection| connection.passed);
    let lookups = outcome.lookups.iter().map(|lookup| lookup.passed);
    let passed: Vec<bool> = probes.chain(connections).chain(lookups).collect();
    (passed.len(), passed.iter().filter(|passed| !**passed).count())
}

fn as_json(played: &Played) -> Value {
    let probes = played.outcome.probes.iter().map(|probe| {
        let mut value = json!({
            "probe": probe.probe.text,
            "source": output::source_json(&probe.probe.source),
            "expected": probe.probe.expect.to_string(),
            "got": probe.got,
            "passed": probe.passed,
            "notTried": probe.not_tried,
        });
        if !probe.depends_on.is_empty() {
            value["dependsOn"] = conditions_json(&probe.depends_on);
        }
        value
    });
    let connections = played.outcome.connections.iter().map(|connection| {
        json!({
            "connection": connection.name,
            "source": output::source_json(&connection.source),
            "expected": connection.expect.to_string(),
            "got": connection.got,
            "passed": connection.passed,
        })
    });
    let lookups = played.outcome.lookups.iter().map(|lookup| {
        json!({
            "lookup": lookup.text,
            "source": output::source_json(&lookup.source),
            "expected": lookup.expected,
            "got": lookup.got,
            "passed": lookup.passed,
        })
    });
    json!({
        "name": played.scenario.name,
        "about": played.scenario.about,
        "file": &*played.scenario.file,
        "passed": played.outcome.passed(),
        "broken": played.outcome.broken,
        "probes": probes.collect::<Vec<_>>(),
        "connections": connections.collect::<Vec<_>>(),
        "lookups": lookups.collect::<Vec<_>>(),
        "findings": played.outcome.findings.iter().map(output::finding_json).collect::<Vec<_>>(),
        "unread": played.outcome.unread.iter().map(output::finding_json).collect::<Vec<_>>(),
    })
}
