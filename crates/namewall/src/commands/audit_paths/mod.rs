//! `namewall audit-paths`: every way to a destination, and what closes it.
//!
//! `destination` is what is asked about. `ways`, `own_node`, `outside`, `services` and `chains` find the ways and have
//! each judged by the Program. `path` puts those together that fare the same, `attack` tries each with packets, `trial`
//! says which it did not try. Nothing here decides.

mod attack;
mod chains;
mod destination;
mod outside;
mod own_node;
mod path;
mod services;
mod trial;
mod ways;

pub(crate) use destination::Destination;

use crate::cli::{AuditPaths, Format};
use crate::input::Origin;
use crate::output::{self, BAD, GOOD, SOFT, STRONG, WARN};
use anyhow::Result;
use attack::Tried;
use destination::Place;
use path::{Found, Outcome, Path};
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;
use trial::Coverage;
use ways::{Audit, Audited};

/// How many sources and addresses a line names.
const MOST_NAMED: usize = 8;

pub(crate) fn run<I: Origin>(args: &AuditPaths<I>) -> Result<ExitCode> {
    let (loaded, left_out) = match args.attack {
        true => attack::prepare(|| args.input.load())?,
        false => (args.input.load()?, Vec::new()),
    };
    loaded.report_errors();
    let place = Place::of(&args.destination, &loaded.snapshot)?;
    let Audited { paths, units, attempts } = Audit::new(&loaded, &place).run()?;
    let tried = args.attack.then(|| attack::run(&loaded, attempts)).transpose()?;
    let tried = tried.map(|tried| (Coverage::new(units, &tried), tried));
    let is_closed = !paths.iter().any(|path| matches!(path.found.outcome, Outcome::Open | Outcome::Depends));
    let mut out = output::stdout();
    let printed = match args.output {
        Format::Text => print(&mut out, &args.destination, &paths)
            .and_then(|()| {
                tried.as_ref().map_or(Ok(()), |(coverage, tried)| attack::print(&mut out, tried, coverage, &left_out))
            })
            .and_then(|()| Ok(out.flush()?)),
        Format::Json => {
            let list: Vec<Value> = paths.iter().map(Path::json).collect();
            let mut value = json!({
                "destination": args.destination.to_string(),
                "closed": is_closed,
                "paths": list,
                "unread": loaded.unread.json(),
            });
            if let Some((coverage, tried)) = &tried {
                value["ways"] = coverage.counts();
                value["notTried"] = coverage.json();
                value["attempts"] = tried.iter().map(Tried::json).collect();
                value["leftOut"] = json!(left_out);
            }
            output::print_json(&mut out, &value)
        }
    };
    output::unless_closed(printed)?;
    let is_good = is_closed && tried.as_ref().is_none_or(|(_, tried)| attack::agrees(tried));
    Ok(loaded.unread.exit(if is_good { ExitCode::SUCCESS } else { ExitCode::from(1) }))
}

fn print(out: &mut impl Write, destination: &Destination, paths: &[Path]) -> Result<()> {
    writeln!(out, "{STRONG}ways to {destination}{STRONG:#}")?;
    for Path { found, from, to } in paths {
        let Found { way, outcome, connections, by, .. } = found;
        let style = match outcome {
            Outcome::Open => BAD,
            Outcome::Depends => WARN,
            Outcome::Closed => GOOD,
            Outcome::AsDirect | Outcome::OutOfReach => SOFT,
        };
        writeln!(out, "\n{style}{}{style:#}  {}", outcome.text(), way.text())?;
        writeln!(out, "    from {}", listed(from))?;
        writeln!(out, "    to {}", listed(to))?;
        if let Some(connections) = connections.as_ref().filter(|connections| !connections.is_all()) {
            writeln!(out, "    {connections}")?;
        }
        writeln!(out, "    {SOFT}{by}{SOFT:#}")?;
    }
    let count = |wanted: Outcome| paths.iter().filter(|path| path.found.outcome == wanted).count();
    let outcomes = [Outcome::Open, Outcome::Depends, Outcome::Closed, Outcome::AsDirect, Outcome::OutOfReach];
    let counts = outcomes.into_iter().filter(|outcome| count(*outcome) > 0);
    let counts: Vec<String> = counts.map(|outcome| format!("{} {}", count(outcome), outcome.text())).collect();
    let counts = if counts.is_empty() { "there is none".to_owned() } else { counts.join(", ") };
    let ways = if paths.len() == 1 { "way" } else { "ways" };
    writeln!(out, "\n{} {ways}: {counts}", paths.len())?;
    Ok(())
}

fn listed(names: &[String]) -> String {
    let shown = names.len().min(MOST_NAMED);
    let list = names[..shown].join(", ");
    if names.len() > shown { format!("{list} and {} more", names.len() - shown) } else { list }
}
