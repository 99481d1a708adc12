//! `namewall matrix --exposure`.

use crate::cli::{Matrix as Args, MatrixFormat};
use crate::commands::explain::{allowed_json, pod_network_hint};
use crate::conditions::conditions_json;
use crate::input::{Loaded, Origin};
use crate::output::{self, GOOD, SOFT, STRONG, WARN};
use anyhow::{Result, bail};
use namewall_policy::model::{Direction, WorkloadId};
use namewall_policy::port::{PortSet, Protocol, Traffic, TransportPort, usable_ports};
use namewall_policy::reach::{Exposure, Exposures, MOST_PARTS, NamedTraffic, NewPods, exposure};
use namewall_policy::unknown::{Described, EndName, Party};
use namewall_policy::{Condition, Dependence};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::io::Write;
use std::process::ExitCode;

pub(super) fn run<I: Origin>(args: &Args<I>, loaded: &Loaded) -> Result<ExitCode> {
    let focus = args.focus.iter().map(|host| loaded.world().workload(host)).collect::<Result<Vec<_>, _>>()?;
    let mut found = exposure(&loaded.snapshot);
    found.rows.retain(|item| focus.is_empty() || focus.contains(&item.workload));
    if let Some(filter) = args.port {
        // What differs from all other pods stays where those are shown: without it they would seem to be more.
        let others = |item: &&Exposure| item.peer == NewPods::Others && opens(item, filter);
        let shown = found.rows.iter().filter(others).map(|item| (item.workload, item.direction));
        let shown: HashSet<(WorkloadId, Direction)> = shown.collect();
        found.rows.retain(|item| opens(item, filter) || shown.contains(&(item.workload, item.direction)));
    }
    let mut out = output::stdout();
    let printed = match args.output {
        MatrixFormat::Text => print(&mut out, loaded, &found),
        MatrixFormat::Json => print_json(&mut out, loaded, &found),
        MatrixFormat::Json2 => loaded.unread.wrap(&mut out, "exposure", |out| print_json(out, loaded, &found)),
        _ => bail!("--exposure is printed as text, json or json2"),
    };
    output::unless_closed(printed.and_then(|()| Ok(out.flush()?)))?;
    Ok(loaded.unread.exit(ExitCode::SUCCESS))
}

fn print_json(out: &mut impl Write, loaded: &Loaded, found: &Exposures) -> Result<()> {
    let unresolved = found.unresolved.iter().map(|set| json!({ "unresolved": set.to_string() }));
    let rows = found.rows.iter().map(|item| as_json(loaded, item));
    output::print_json(out, &rows.chain(unresolved).collect())
}

/// Whether the port is open, under some name if need be.
fn opens(item: &Exposure, filter: TransportPort) -> bool {
    let by_name = |named: &NamedTraffic| {
        named.protocol == filter.protocol && (named.ports.contains(filter.port) || named.depends.contains(filter.port))
    };
    item.traffic.contains(filter.protocol, filter.port)
        || item.depends.contains(filter.protocol, filter.port)
        || item.named.iter().any(by_name)
}

fn print(out: &mut impl Write, loaded: &Loaded, found: &Exposures) -> Result<()> {
    let (mut last, mut pod_network): (Option<WorkloadId>, bool) = Default::default();
    for item in &found.rows {
        if last != Some(item.workload) {
            writeln!(out, "{STRONG}{}{STRONG:#}", loaded.snapshot.workload_name(item.workload))?;
            last = Some(item.workload);
        }
        let arrow = match item.direction {
            Direction::Egress => "→",
            Direction::Ingress => "←",
        };
        let conditions: Vec<&Condition<Party>> = conditions(item).collect();
        let style = if conditions.is_empty() { GOOD } else { WARN };
        writeln!(out, "  {arrow} {style}{}{style:#}  new: {}", traffic_text(item), item.peer)?;
        let mut told: Vec<String> = Vec::new();
        for condition in conditions {
            pod_network |= matches!(condition.on, Dependence::Address { .. });
            let text = describe(loaded, item, condition).text;
            if !told.contains(&text) {
                writeln!(out, "      {SOFT}{text}{SOFT:#}")?;
                told.push(text);
            }
        }
    }
    if pod_network {
        writeln!(out, "{SOFT}hint: {}{SOFT:#}", pod_network_hint(&loaded.snapshot))?;
    }
    if found.rows.is_empty() && found.unresolved.is_empty() {
        writeln!(out, "No workload could reach, or be reached by, one that does not exist yet.")?;
    }
    for set in &found.unresolved {
        writeln!(out, "Not worked out: {set}. Policies divide these pods in more than {MOST_PARTS} ways.")?;
    }
    Ok(())
}

/// The traffic, and the names of ports that make a difference: `TCP 80; TCP port named http`.
fn traffic_text(item: &Exposure) -> String {
    let mut parts: Vec<String> = Vec::new();
    if !item.traffic.is_none() || (item.named.is_empty() && item.depends.is_none()) {
        parts.push(item.traffic.to_string());
    }
    if !item.depends.is_none() {
        parts.push(format!("depends: {}", item.depends));
    }
    for named in &item.named {
        let NamedTraffic { name, protocol, ports, depends, .. } = named;
        let text = |ports: &PortSet| match *ports == usable_ports() {
            true => format!("{protocol} port named {name}"),
            false => format!("{protocol} port named {name} if it is {}", port_texts(*protocol, ports).join(",")),
        };
        match (ports.is_empty(), depends.is_empty()) {
            (true, true) => parts.push(format!("not {protocol} port named {name}")),
            (is_closed, is_certain) => {
                parts.extend((!is_closed).then(|| text(ports)));
                parts.extend((!is_certain).then(|| format!("depends: {}", text(depends))));
            }
        }
    }
    parts.join("; ")
}

fn port_texts(protocol: Protocol, ports: &PortSet) -> Vec<String> {
    let mut traffic = Traffic::none();
    ports.ranges().iter().for_each(|&(low, high)| traffic.insert(protocol, low, high));
    traffic.port_texts(protocol)
}

/// What the row depends on, for ports with and without names.
fn conditions(item: &Exposure) -> impl Iterator<Item = &Condition<Party>> {
    item.depends_on.iter().chain(item.named.iter().flat_map(|named| &named.depends_on))
}

fn describe(loaded: &Loaded, item: &Exposure, condition: &Condition<Party>) -> Described {
    condition.describe_as(&loaded.snapshot, &loaded.program, &|party| match *party == item.new_end() {
        true => EndName::NewPods(item.peer.to_string()),
        false => EndName::Workload(loaded.snapshot.workload_name(item.workload)),
    })
}

/// As the matrix, with the new pods in words.
fn as_json(loaded: &Loaded, item: &Exposure) -> Value {
    let workload = loaded.snapshot.workload_name(item.workload);
    let kind = loaded.snapshot.workload(item.workload).kind.name();
    let peer = item.peer.to_string();
    let (from, to) = match item.direction {
        Direction::Egress => (&workload, &peer),
        Direction::Ingress => (&peer, &workload),
    };
    let end = if item.direction == Direction::Egress { "from" } else { "to" };
    let mut entry = json!({ "from": from, "to": to, "allowed": allowed_json(&item.traffic), "kind": { end: kind } });
    let depends_on = |conditions: &[Condition<Party>]| {
        conditions_json(&conditions.iter().map(|one| describe(loaded, item, one)).collect::<Vec<_>>())
    };
    if !item.depends.is_none() {
        entry["depends"] = allowed_json(&item.depends);
        entry["dependsOn"] = depends_on(&item.depends_on);
    }
    if !item.named.is_empty() {
        let named = item.named.iter().map(|named| {
            let NamedTraffic { name, protocol, ports, depends, .. } = named;
            let ports = port_texts(*protocol, ports);
            let mut value = json!({ "name": **name, "protocol": protocol.to_string(), "ports": ports });
            if !depends.is_empty() {
                value["depends"] = port_texts(*protocol, depends).into();
                value["dependsOn"] = depends_on(&named.depends_on);
            }
            value
        });
        entry["named"] = named.collect();
    }
    entry
}
