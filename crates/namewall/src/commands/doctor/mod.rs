//! `namewall doctor`: what is missing on a node or in a cluster, and what to do
//! about it. `node` looks at this machine, `cluster` asks the API server;
//! neither changes anything.

mod cluster;
mod health;
mod node;

use crate::cli::{ApiServer, Format};
use crate::output::{self, BAD, GOOD, SOFT, STRONG, WARN};
use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;

#[derive(Args, Debug)]
pub(crate) struct Doctor {
    #[command(flatten)]
    server: ApiServer,
    /// Look only at this machine, or only at the cluster
    #[arg(long, value_name = "WHERE")]
    only: Option<CheckScope>,
    /// How to print
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

#[derive(Clone, Copy, ValueEnum, Debug, PartialEq, Eq)]
enum CheckScope {
    Node,
    Cluster,
}

pub(crate) const HELP: &str = "\
Examples:
  namewall doctor
  namewall doctor --only cluster --context production
  namewall doctor --only node -o json

On a node it takes the rights of the agent: root, or the capability NET_ADMIN. Nothing is
changed; of what is tried in the kernel nothing stays.

Exit codes:
  0  nothing is missing (there may be hints)
  1  something is missing
  2  it could not look";

/// How much it matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Good,
    Hint,
    Missing,
}

/// What was looked at, and what came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Check {
    what: &'static str,
    state: State,
    found: String,
    /// What to do about it.
    advice: Option<String>,
}

impl Check {
    fn good(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, state: State::Good, found: found.into(), advice: None }
    }

    fn hint(what: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { what, state: State::Hint, found: found.into(), advice: Some(advice.into()) }
    }

    fn missing(what: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { what, state: State::Missing, found: found.into(), advice: Some(advice.into()) }
    }

    fn json(&self) -> Value {
        let state = match self.state {
            State::Good => "good",
            State::Hint => "hint",
            State::Missing => "missing",
        };
        json!({"what": self.what, "state": state, "found": self.found, "advice": self.advice})
    }
}

pub(crate) fn run(args: &Doctor) -> Result<ExitCode> {
    let mut places: Vec<(&str, Vec<Check>)> = Vec::new();
    if args.only != Some(CheckScope::Cluster) {
        places.push(("node", node::look()));
    }
    if args.only != Some(CheckScope::Node) {
        places.push(("cluster", cluster::look(&args.server, args.only == Some(CheckScope::Cluster))));
    }
    let mut out = output::stdout();
    let printed = match args.output {
        Format::Json => {
            let all: serde_json::Map<String, Value> = places
                .iter()
                .map(|(place, checks)| ((*place).to_owned(), checks.iter().map(Check::json).collect()))
                .collect();
            output::print_json(&mut out, &all.into())
        }
        Format::Text => print(&mut out, &places).and_then(|()| Ok(out.flush()?)),
    };
    output::unless_closed(printed)?;
    let mut all = places.iter().flat_map(|(_, checks)| checks);
    let is_missing = all.any(|check| check.state == State::Missing);
    Ok(if is_missing { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn print(out: &mut impl Write, places: &[(&str, Vec<Check>)]) -> Result<()> {
    for (place, checks) in places {
        writeln!(out, "{STRONG}{place}{STRONG:#}")?;
        for check in checks {
            let (mark, style) = match check.state {
                State::Good => ("✓", GOOD),
                State::Hint => ("·", WARN),
                State::Missing => ("✗", BAD),
            };
            writeln!(out, "  {style}{mark}{style:#} {:<12} {}", check.what, check.found)?;
            if let Some(advice) = &check.advice {
                writeln!(out, "    {:<12} {SOFT}{advice}{SOFT:#}", "")?;
            }
        }
    }
    Ok(())
}
