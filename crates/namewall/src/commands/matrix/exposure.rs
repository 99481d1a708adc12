//! `namewall matrix --exposure`.

use crate::cli::{Matrix as Args, MatrixFormat};
use crate::commands::explain::allowed_json;
use crate::input::{Loaded, Origin};
use crate::output::{self, GOOD, STRONG};
use anyhow::{Result, bail};
use namewall_policy::model::{Direction, WorkloadId};
use namewall_policy::reach::{Exposure, exposure};
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;

pub(super) fn run<I: Origin>(args: &Args<I>, loaded: &Loaded) -> Result<ExitCode> {
    let focus = args.focus.iter().map(|host| loaded.world().workload(host)).collect::<Result<Vec<_>, _>>()?;
    let mut found = exposure(&loaded.snapshot);
    found.retain(|item| focus.is_empty() || focus.contains(&item.workload));
    if let Some(filter) = args.port {
        found.retain(|item| item.traffic.contains(filter.protocol, filter.port));
    }
    let mut out = output::stdout();
    match args.output {
        MatrixFormat::Text => print(&mut out, loaded, &found)?,
        MatrixFormat::Json => print_json(&mut out, loaded, &found)?,
        MatrixFormat::Json2 => loaded.unread.wrap(&mut out, "exposure", |out| print_json(out, loaded, &found))?,
        _ => bail!("--exposure is printed as text, json or json2"),
    }
    out.flush()?;
    Ok(loaded.unread.exit(ExitCode::SUCCESS))
}

fn print_json(out: &mut impl Write, loaded: &Loaded, found: &[Exposure]) -> Result<()> {
    output::print_json(out, &found.iter().map(|item| as_json(loaded, item)).collect())
}

fn print(out: &mut impl Write, loaded: &Loaded, found: &[Exposure]) -> Result<()> {
    let mut last: Option<WorkloadId> = None;
    for item in found {
        if last != Some(item.workload) {
            writeln!(out, "{STRONG}{}{STRONG:#}", loaded.snapshot.workload_name(item.workload))?;
            last = Some(item.workload);
        }
        let arrow = match item.direction {
            Direction::Egress => "→",
            Direction::Ingress => "←",
        };
        writeln!(out, "  {arrow} {GOOD}{}{GOOD:#}  new: {}", item.traffic, item.peer)?;
    }
    if found.is_empty() {
        writeln!(out, "No workload could reach, or be reached by, one that does not exist yet.")?;
    }
    Ok(())
}

/// As the matrix, with the imagined end told in words.
fn as_json(loaded: &Loaded, item: &Exposure) -> Value {
    let workload = loaded.snapshot.workload_name(item.workload);
    let kind = loaded.snapshot.workload(item.workload).kind.name();
    let (from, to) = match item.direction {
        Direction::Egress => (workload.as_str(), item.peer.as_str()),
        Direction::Ingress => (item.peer.as_str(), workload.as_str()),
    };
    let end = if item.direction == Direction::Egress { "from" } else { "to" };
    json!({ "from": from, "to": to, "allowed": allowed_json(&item.traffic), "kind": { end: kind } })
}
