//! `namewall sandbox probe`: what packets can do, beside what the policies say.

use super::NOT_UP;
use super::client::Keeper;
use super::keeper::Kept;
use crate::cli::{Format, SandboxProbe};
use crate::conditions::conditions_json;
use crate::output::{self, BAD, GOOD, SOFT, STRONG, WARN};
use anyhow::{Context, Result};
use namewall_policy::Prediction;
use namewall_policy::ask::{Host, Route, Target};
use namewall_policy::model::{BackendTarget, ServicePort, WorkloadId};
use namewall_policy::port::{Protocol, TransportPort};
use namewall_sandbox::{Answer, Question};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::net::IpAddr;
use std::process::ExitCode;

/// A port that is tried where a pod names none.
const USUAL: TransportPort = TransportPort { protocol: Protocol::Tcp, port: 80 };

pub(crate) fn run(args: &SandboxProbe) -> Result<ExitCode> {
    let keeper = Keeper::find()?.context(NOT_UP)?;
    let ports: Vec<Value> =
        args.port.iter().map(|TransportPort { protocol, port }| json!([protocol.to_string(), port])).collect();
    let answer = keeper.ask(&json!({"probe": {"ports": ports}}))?;
    let cells: Vec<Cell> = answer["cells"].as_array().into_iter().flatten().filter_map(Cell::read).collect();
    let wrong = cells.iter().filter(|cell| !cell.agrees()).count();
    let mut out = output::stdout();
    match args.output {
        Format::Json => output::print_json(&mut out, &answer)?,
        Format::Text => print(&mut out, &cells)?,
    }
    out.flush()?;
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// One connection that was tried.
#[derive(Clone, Debug)]
struct Cell {
    from: String,
    to: String,
    /// `allow`, `deny` or `depends`.
    predicted: String,
    /// What it depends on, in a sentence.
    depends_on: Option<String>,
    /// True if source NAT decides, which the input does not describe.
    is_masked: bool,
    measured: String,
}

impl Cell {
    fn read(value: &Value) -> Option<Self> {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let conditions = value["dependsOn"].as_array().into_iter().flatten();
        let conditions: Vec<&str> = conditions.filter_map(|one| one["text"].as_str()).collect();
        Some(Self {
            from: text("from")?,
            to: text("to")?,
            predicted: text("predicted")?,
            depends_on: (!conditions.is_empty()).then(|| conditions.join("; ")),
            is_masked: value["sourceNatDecides"] == true,
            measured: text("measured")?,
        })
    }

    /// In the kernel, what depends on something unknown is closed, unless source NAT decides.
    fn agrees(&self) -> bool {
        let is_either = self.is_masked && ["open", "silent"].contains(&self.measured.as_str());
        is_either || self.measured == if self.is_open() { "open" } else { "silent" }
    }

    fn is_open(&self) -> bool {
        self.predicted == "allow"
    }
}

/// Two tables side by side: what is predicted, what was measured.
fn print(out: &mut impl Write, cells: &[Cell]) -> Result<()> {
    let mut froms: Vec<&str> = Vec::new();
    let mut tos: Vec<&str> = Vec::new();
    for cell in cells {
        if !froms.contains(&cell.from.as_str()) {
            froms.push(&cell.from);
        }
        if !tos.contains(&cell.to.as_str()) {
            tos.push(&cell.to);
        }
    }
    let width = froms.iter().map(|from| from.len()).max().unwrap_or(0).max(4);
    let header: String = (1..=tos.len()).map(|at| format!("{at:>3}")).collect();
    let wide = header.len();
    writeln!(out, "{STRONG}{:width$}  {:wide$}    measured{STRONG:#}", "from", "predicted")?;
    writeln!(out, "{SOFT}{:width$}  {header}    {header}{SOFT:#}", "")?;
    for from in &froms {
        write!(out, "{from:width$}  ")?;
        let cell = |to: &&str| cells.iter().find(|cell| cell.from == *from && cell.to == **to);
        for to in &tos {
            match cell(to) {
                Some(cell) if cell.is_open() => write!(out, "{GOOD}  +{GOOD:#}")?,
                Some(cell) if cell.depends_on.is_some() => write!(out, "{WARN}  ?{WARN:#}")?,
                Some(_) => write!(out, "{SOFT}  ·{SOFT:#}")?,
                None => write!(out, "   ")?,
            }
        }
        write!(out, "    ")?;
        for to in &tos {
            match cell(to) {
                Some(cell) if !cell.agrees() => write!(out, "{BAD}  !{BAD:#}")?,
                Some(cell) if cell.measured == "open" => write!(out, "{GOOD}  +{GOOD:#}")?,
                Some(_) => write!(out, "{SOFT}  ·{SOFT:#}")?,
                None => write!(out, "   ")?,
            }
        }
        writeln!(out)?;
    }
    writeln!(out, "\n{SOFT}to{SOFT:#}")?;
    for (at, to) in tos.iter().enumerate() {
        writeln!(out, "{SOFT}{:>3}{SOFT:#}  {to}", at + 1)?;
    }
    let wrong: Vec<&Cell> = cells.iter().filter(|cell| !cell.agrees()).collect();
    writeln!(out)?;
    for cell in cells {
        if let Some(conditions) = &cell.depends_on {
            writeln!(out, "{WARN}?{WARN:#} {} -> {}: {conditions}", cell.from, cell.to)?;
        }
    }
    for cell in &wrong {
        let Cell { from, to, predicted, measured, .. } = cell;
        writeln!(out, "{BAD}!{BAD:#} {from} -> {to}: predicted {predicted}, measured {measured}")?;
    }
    match wrong.len() {
        0 => writeln!(out, "{GOOD}{} connections tried, every one as predicted{GOOD:#}", cells.len())?,
        wrong => writeln!(out, "{BAD}{wrong} of {} connections are not as predicted{BAD:#}", cells.len())?,
    }
    Ok(())
}

/// Tries every pair: in the keeper's process.
pub(crate) fn measure(kept: &mut Kept, asked: &Value) -> Result<Value> {
    let port = |port: &Value| {
        let (protocol, port) = (port[0].as_str()?.parse().ok()?, u16::try_from(port[1].as_u64()?).ok()?);
        Some(TransportPort { protocol, port })
    };
    let more: Vec<TransportPort> = asked["ports"].as_array().into_iter().flatten().filter_map(port).collect();
    let (sources, targets) = (sources(kept), targets(kept, &more));
    let world = kept.loaded.world();
    let mut asked: Vec<(&Host, &Target, Vec<Route>)> = Vec::new();
    for (from, to) in sources.iter().flat_map(|from| targets.iter().map(move |to| (from, to))) {
        if let Ok(routes) = world.routes(from, to) {
            asked.push((from, to, routes));
        }
    }
    let questions: Vec<Question<'_>> =
        asked.iter().map(|(_, target, routes)| Question { target, routes, predicted: world.predict(routes) }).collect();
    let answers = kept.cluster.ask(&kept.loaded.snapshot, &questions)?;
    let mut cells = Vec::new();
    for (((from, to, routes), question), answer) in asked.iter().zip(&questions).zip(answers) {
        let measured = match answer {
            Answer::Open => "open".to_owned(),
            Answer::Silent => "silent".to_owned(),
            Answer::Odd { measured, .. } => measured.to_string(),
            // One speaks IPv4 only and the other IPv6 only.
            Answer::NoWay => continue,
        };
        let mut cell = json!({
            "from": from.to_string(),
            "to": target_text(to),
            "predicted": question.predicted.to_string(),
            "measured": measured,
        });
        if question.predicted == Prediction::Depends {
            let world = kept.loaded.world();
            cell["dependsOn"] = conditions_json(&world.describe(world.depends_on(routes)));
            cell["sourceNatDecides"] = question.may_be_masked().into();
        }
        cells.push(cell);
    }
    Ok(json!({"cells": cells}))
}

fn target_text(to: &Target) -> String {
    let host = match &to.host {
        Host::Address(address) if address.is_ipv6() => format!("[{address}]"),
        host => host.to_string(),
    };
    let port = to.port.map_or_else(String::new, |port| format!(":{port}"));
    format!("{host}{port}/{}", to.protocol)
}

/// Every pod and every host outside.
fn sources(kept: &Kept) -> Vec<Host> {
    let topology = kept.cluster.sandbox.topology();
    let pods = topology.pods.keys().filter_map(|name| name.parse().ok());
    pods.chain(outside(kept).map(Host::Address)).collect()
}

fn outside(kept: &Kept) -> impl Iterator<Item = IpAddr> {
    let topology = kept.cluster.sandbox.topology();
    kept.outside.iter().filter(|address| topology.outside.contains(address)).copied()
}

/// Every pod's ports, every node, every host outside, every Service, at its addresses and its node ports.
fn targets(kept: &Kept, more: &[TransportPort]) -> Vec<Target> {
    let snapshot = &kept.loaded.snapshot;
    let topology = kept.cluster.sandbox.topology();
    let mut targets: Vec<Target> = Vec::new();
    for id in snapshot.workload_ids() {
        let name = snapshot.workload_name(id);
        if topology.pods.contains_key(name.as_str())
            && let Ok(host) = name.parse::<Host>()
        {
            let ports = ports_of(kept, id, more).into_iter();
            targets.extend(ports.map(|TransportPort { protocol, port }| Target {
                host: host.clone(),
                protocol,
                port: Some(port),
            }));
        }
    }
    let usual = if more.is_empty() { vec![USUAL] } else { more.to_vec() };
    let nodes = topology.nodes.values().flat_map(|node| &node.addresses).copied();
    for address in nodes.chain(outside(kept)) {
        let at =
            |&TransportPort { protocol, port }: &_| Target { host: Host::Address(address), protocol, port: Some(port) };
        targets.extend(usual.iter().map(at));
    }
    let node_addresses: Vec<IpAddr> = topology.nodes.values().flat_map(|node| &node.addresses).copied().collect();
    for service in &snapshot.services {
        let node_ports = service.ports.iter().filter_map(|port| Some((port.protocol, port.node_port?)));
        for (protocol, port) in node_ports {
            let at = |&address: &IpAddr| Target { host: Host::Address(address), protocol, port: Some(port) };
            targets.extend(node_addresses.iter().map(at));
        }
        for &address in &service.addresses {
            let host = Host::Address(address);
            let at = |port: &ServicePort| Target { host: host.clone(), protocol: port.protocol, port: Some(port.port) };
            targets.extend(service.ports.iter().map(at));
        }
    }
    targets
}

/// The ports a pod names, those Services send to it, and those that were asked for.
fn ports_of(kept: &Kept, id: WorkloadId, more: &[TransportPort]) -> BTreeSet<TransportPort> {
    let snapshot = &kept.loaded.snapshot;
    let mut ports: BTreeSet<TransportPort> = more.iter().copied().collect();
    ports.extend(
        snapshot.workload(id).ports.iter().map(|port| TransportPort { protocol: port.protocol, port: port.port }),
    );
    for port in snapshot.services.iter().flat_map(|service| &service.ports) {
        let is_it = |target: BackendTarget| match target {
            BackendTarget::Workload(to) => to == id,
            BackendTarget::Address(address) => kept.loaded.program.pod_at(address) == Some(id),
        };
        let here = port.backends.iter().filter(|backend| is_it(backend.target));
        ports.extend(here.map(|backend| TransportPort { protocol: port.protocol, port: backend.port }));
    }
    if ports.is_empty() {
        ports.insert(USUAL);
    }
    ports
}
