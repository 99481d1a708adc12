//! One row a pair: JSON, CSV and Markdown, written as they are found. What is
//! equal is rendered once and copied, so millions of pairs cost a copy each.

use super::View;
use super::pair::{Pair, PairEnd};
use crate::commands::explain::allowed_json;
use crate::conditions::{Notes, conditions_json};
use anyhow::Result;
use namewall_policy::port::{Protocol, Traffic, all_ports};
use namewall_policy::reach::{Cell, CellId, GroupId, Reachable};
use namewall_policy::unknown::Described;
use serde_json::{Value, json};
use std::io::Write;

/// Calls `row` for every pair with a port that is open or depends on something.
fn each(view: &View<'_>, mut row: impl FnMut(Pair<'_>, &Open<'_>) -> Result<()>) -> Result<()> {
    let mut open = Cache::new(view);
    for from in view.rows() {
        for to in view.rows().filter(|&to| view.shows(from, to)) {
            let cell = view.groups.cell(&view.matrix, from, to);
            if open.has_ports(cell.open) || cell.own_node {
                row(Pair { from: PairEnd::Workload(from), to: PairEnd::Workload(to) }, &Open::Known(&open, cell))?;
            }
        }
        if view.shows_outside_of(from) {
            for outside in view.outside_to(from).iter() {
                let traffic = view.narrow(&outside.traffic);
                if !traffic.possible.has_no_ports() {
                    row(Pair { from: PairEnd::Workload(from), to: PairEnd::Outside(outside) }, &Open::New(traffic))?;
                }
            }
            for (pattern, whole) in view.names_to(from).iter() {
                let traffic = view.narrow(whole);
                if !traffic.possible.has_no_ports() {
                    row(
                        Pair { from: PairEnd::Workload(from), to: PairEnd::Name(pattern, whole) },
                        &Open::New(traffic),
                    )?;
                }
            }
        }
    }
    for to in view.rows().filter(|&to| view.shows_outside_of(to)) {
        for outside in view.outside_from(to).iter() {
            let traffic = view.narrow(&outside.traffic);
            if !traffic.possible.has_no_ports() {
                row(Pair { from: PairEnd::Outside(outside), to: PairEnd::Workload(to) }, &Open::New(traffic))?;
            }
        }
    }
    Ok(())
}

/// The same for formats that speak of ports alone.
fn each_with_ports(view: &View<'_>, mut row: impl FnMut(Pair<'_>, &Reachable) -> Result<()>) -> Result<()> {
    each(view, |pair, open| {
        let traffic = open.traffic();
        if traffic.possible.has_no_ports() { Ok(()) } else { row(pair, &traffic) }
    })
}

/// The open connections of a row.
enum Open<'c> {
    Known(&'c Cache<'c>, Cell),
    New(Reachable),
}

impl Open<'_> {
    fn traffic(&self) -> Reachable {
        match self {
            Self::Known(cache, cell) => cache.view.open(cell.open),
            Self::New(traffic) => traffic.clone(),
        }
    }

    fn own_node(&self) -> bool {
        matches!(self, Self::Known(_, Cell { own_node: true, .. }))
    }

    fn json(&self) -> std::borrow::Cow<'_, [u8]> {
        match self {
            Self::Known(cache, cell) => match cache.json[cell.open.index()].as_deref() {
                Some(json) if !json.is_empty() => json.into(),
                _ => allowed(&Reachable::default()).into(),
            },
            Self::New(traffic) => allowed(traffic).into(),
        }
    }
}

/// JSON of the sets met so far.
struct Cache<'v> {
    view: &'v View<'v>,
    json: Vec<Option<Vec<u8>>>,
}

impl<'v> Cache<'v> {
    fn new(view: &'v View<'v>) -> Self {
        Self { view, json: Vec::new() }
    }

    /// Whether the set has a port of those asked for. Empty JSON stands for no.
    fn has_ports(&mut self, id: CellId) -> bool {
        if self.json.len() <= id.index() {
            self.json.resize(id.index() + 1, None);
        }
        let view = self.view;
        let json = self.json[id.index()].get_or_insert_with(|| {
            let traffic = view.open(id);
            if traffic.possible.has_no_ports() { Vec::new() } else { allowed(&traffic) }
        });
        !json.is_empty()
    }
}

/// `{…}` for what is open and, where something depends on what is not known, `{…},"depends":{…}`.
fn allowed(traffic: &Reachable) -> Vec<u8> {
    let json = |traffic: &Traffic| allowed_json(traffic).to_string();
    match traffic.is_certain() {
        true => json(&traffic.open).into_bytes(),
        false => format!("{},\"depends\":{}", json(&traffic.open), json(&traffic.depends())).into_bytes(),
    }
}

/// The stable list: `{"from", "to", "allowed", "kind"}`, one a line, and what was added later.
pub(super) fn print_json(out: &mut impl Write, view: &View<'_>) -> Result<()> {
    let texts: Vec<Texts> = view.rows().map(|id| Texts::new(view, id)).collect();
    let mut first = true;
    each(view, |pair, open| {
        let Pair { from, to } = pair;
        out.write_all(if first { b"[\n" } else { b",\n" })?;
        first = false;
        out.write_all(b"{\"from\":")?;
        write_end(out, &texts, from)?;
        out.write_all(b",\"to\":")?;
        write_end(out, &texts, to)?;
        out.write_all(b",\"allowed\":")?;
        out.write_all(&open.json())?;
        let ends = [from, to].map(|end| texts_of(&texts, end));
        write_both(out, "kind", ends.map(|end| end.map(|texts| &texts.kind[..])))?;
        let workloads = ends.map(|end| end.and_then(|texts| texts.workload.as_deref()));
        let pods = ends.map(|end| end.and_then(|texts| texts.pods.as_deref()));
        for (key, values) in [("workload", workloads), ("pods", pods)] {
            if values.iter().any(Option::is_some) {
                write_both(out, key, values)?;
            }
        }
        if let PairEnd::Name(pattern, _) = to {
            write!(out, ",\"name\":{}", super::name_json(pattern))?;
        }
        if open.own_node() {
            out.write_all(b",\"ownNode\":true")?;
        }
        if !open.traffic().is_certain() {
            write!(out, ",\"dependsOn\":{}", conditions_json(&pair.describe(view)))?;
        }
        out.write_all(b"}")?;
        Ok(())
    })?;
    out.write_all(if first { b"[]\n" } else { b"\n]\n" })?;
    Ok(())
}

/// A workload's JSON, made once.
struct Texts {
    name: Vec<u8>,
    kind: Vec<u8>,
    /// Of a pod: the workload that it is a replica of.
    workload: Option<Vec<u8>>,
    /// Of a workload: how many pods it has.
    pods: Option<Vec<u8>>,
}

impl Texts {
    fn new(view: &View<'_>, id: GroupId) -> Self {
        let json = |value: Value| value.to_string().into_bytes();
        let group = view.groups.get(id);
        let workload = view.loaded.snapshot.workload(group.example());
        let namespace = &view.loaded.snapshot.namespace(group.namespace).name;
        let owner = workload.owner.as_ref().filter(|_| group.owner.is_none());
        Self {
            name: json(view.name(id).into()),
            kind: json((&*group.kind).into()),
            workload: owner.map(|owner| json(format!("{namespace}/{}", owner.name).into())),
            pods: (workload.owner.is_some() && group.owner.is_some() || group.members.len() > 1)
                .then(|| json(group.members.len().into())),
        }
    }
}

/// `,"key":{"from":…,"to":…}`, with the ends that have a value.
fn write_both(out: &mut impl Write, key: &str, values: [Option<&[u8]>; 2]) -> Result<()> {
    write!(out, ",\"{key}\":{{")?;
    let [from, to] = values;
    if let Some(from) = from {
        out.write_all(b"\"from\":")?;
        out.write_all(from)?;
    }
    if from.is_some() && to.is_some() {
        out.write_all(b",")?;
    }
    if let Some(to) = to {
        out.write_all(b"\"to\":")?;
        out.write_all(to)?;
    }
    out.write_all(b"}")?;
    Ok(())
}

fn write_end(out: &mut impl Write, texts: &[Texts], end: PairEnd<'_>) -> Result<()> {
    match end {
        PairEnd::Workload(id) => out.write_all(&texts[id.index()].name)?,
        PairEnd::Outside(outside) => write!(out, "{}", json!(outside.range.to_string()))?,
        PairEnd::Name(pattern, _) => write!(out, "{}", json!(pattern.to_string()))?,
    }
    Ok(())
}

/// The texts of an end that is a workload.
fn texts_of<'t>(texts: &'t [Texts], end: PairEnd<'_>) -> Option<&'t Texts> {
    match end {
        PairEnd::Workload(id) => Some(&texts[id.index()]),
        PairEnd::Outside(_) | PairEnd::Name(..) => None,
    }
}

pub(super) fn print_csv(out: &mut impl Write, view: &View<'_>) -> Result<()> {
    writeln!(out, "from,from_kind,to,to_kind,tcp,udp,sctp,tcp_depends,udp_depends,sctp_depends,depends_on")?;
    each_with_ports(view, |pair, traffic| {
        let (Pair { from, to }, depends) = (pair, traffic.depends());
        let ports = [&traffic.open, &depends]
            .map(|one| Protocol::WITH_PORTS.map(|protocol| one.port_texts(protocol).join(" ")).join(","));
        let (from_name, to_name) = (quoted(&from.name(view)), quoted(&to.name(view)));
        let depends_on = match traffic.is_certain() {
            true => String::new(),
            false => quoted(&Described::join(&pair.describe(view))),
        };
        let (from_kind, to_kind, ports) = (from.kind(view), to.kind(view), ports.join(","));
        writeln!(out, "{from_name},{from_kind},{to_name},{to_kind},{ports},{depends_on}")?;
        Ok(())
    })
}

/// A name that would break the row is put in quotes.
fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// A table, and below it what its rows depend on. The column for that is there only if a row depends on something.
pub(super) fn print_markdown(out: &mut impl Write, view: &View<'_>) -> Result<()> {
    let (mut lines, mut notes): (Vec<(String, String)>, Notes) = Default::default();
    each_with_ports(view, |pair, traffic| {
        let (Pair { from, to }, depends) = (pair, traffic.depends());
        let texts = |traffic: &Traffic, protocol: Protocol| match traffic.ports(protocol) {
            Some(ports) if *ports == all_ports() => "all".to_owned(),
            _ => traffic.port_texts(protocol).join(", "),
        };
        let ports = |protocol: Protocol| match (texts(&traffic.open, protocol), texts(&depends, protocol)) {
            (open, depends) if depends.is_empty() => open,
            (open, depends) if open.is_empty() => format!("? {depends}"),
            (open, depends) => format!("{open}; ? {depends}"),
        };
        let (tcp, udp, sctp) = (ports(Protocol::Tcp), ports(Protocol::Udp), ports(Protocol::Sctp));
        let cell = |end: PairEnd<'_>| end.name(view).replace('|', "\\|").replace(['\n', '\r'], " ");
        let conditions = match traffic.is_certain() {
            true => Vec::new(),
            false => pair.describe_relative(view),
        };
        notes.pod_network |= !traffic.is_certain() && pair.depends_on_pod_network(view);
        let line = format!("| {} | {} | {tcp} | {udp} | {sctp} |", cell(from), cell(to));
        lines.push((line, notes.numbers(&conditions)));
        Ok(())
    })?;
    let (title, rule) = if notes.is_empty() { ("", "") } else { (" depends on |", "---|") };
    writeln!(out, "| from | to | TCP | UDP | SCTP |{title}\n|---|---|---|---|---|{rule}")?;
    for (line, numbers) in lines {
        let more = if notes.is_empty() { String::new() } else { format!(" {numbers} |") };
        writeln!(out, "{line}{more}")?;
    }
    notes.print_markdown(out, &view.loaded.snapshot)
}
