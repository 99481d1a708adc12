//! One row a pair: JSON, CSV and Markdown, written as they are found. What is
//! equal is rendered once and copied, so millions of pairs cost a copy each.

use super::View;
use anyhow::Result;
use namewall_policy::addr::AddrRange;
use namewall_policy::model::WorkloadId;
use namewall_policy::port::{Protocol, Traffic, all_ports};
use namewall_policy::reach::CellId;
use serde_json::{Value, json};
use std::io::Write;

/// An end of a row.
#[derive(Clone, Copy)]
enum End {
    Workload(WorkloadId),
    Outside(AddrRange),
}

/// Calls `row` for every pair with an open port.
fn each(view: &View<'_>, mut row: impl FnMut(End, End, &Open<'_>) -> Result<()>) -> Result<()> {
    let mut open = Cache::new(view);
    for from in view.workloads() {
        for to in view.workloads().filter(|&to| view.shows(from, to)) {
            let id = view.matrix.between(from, to);
            if open.has_ports(id) {
                row(End::Workload(from), End::Workload(to), &Open::Known(&open, id))?;
            }
        }
        if view.shows_outside_of(from) {
            for outside in view.matrix.outside_to(from).iter() {
                let traffic = view.narrow(&outside.traffic.open);
                if !traffic.has_no_ports() {
                    row(End::Workload(from), End::Outside(outside.range), &Open::New(traffic))?;
                }
            }
        }
    }
    for to in view.workloads().filter(|&to| view.shows_outside_of(to)) {
        for outside in view.matrix.outside_from(to).iter() {
            let traffic = view.narrow(&outside.traffic.open);
            if !traffic.has_no_ports() {
                row(End::Outside(outside.range), End::Workload(to), &Open::New(traffic))?;
            }
        }
    }
    Ok(())
}

/// The open connections of a row.
enum Open<'c> {
    Known(&'c Cache<'c>, CellId),
    New(Traffic),
}

impl Open<'_> {
    fn traffic(&self) -> Traffic {
        match self {
            Self::Known(cache, id) => cache.view.open(*id),
            Self::New(traffic) => traffic.clone(),
        }
    }

    fn json(&self) -> std::borrow::Cow<'_, [u8]> {
        match self {
            Self::Known(cache, id) => cache.json[id.index()].as_deref().unwrap_or_default().into(),
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
            if traffic.has_no_ports() { Vec::new() } else { allowed(&traffic) }
        });
        !json.is_empty()
    }
}

fn allowed(traffic: &Traffic) -> Vec<u8> {
    crate::commands::explain::allowed_json(traffic).to_string().into_bytes()
}

/// The stable list: `{"from", "to", "allowed", "kind"}`, one a line.
pub(super) fn print_json(out: &mut impl Write, view: &View<'_>) -> Result<()> {
    let texts: Vec<(Vec<u8>, Vec<u8>)> = view
        .workloads()
        .map(|id| {
            let kind = view.loaded.snapshot.workload(id).kind.name();
            (Value::from(view.name(id)).to_string().into_bytes(), Value::from(kind).to_string().into_bytes())
        })
        .collect();
    let mut first = true;
    each(view, |from, to, open| {
        out.write_all(if first { b"[\n" } else { b",\n" })?;
        first = false;
        out.write_all(b"{\"from\":")?;
        write_end(out, &texts, from)?;
        out.write_all(b",\"to\":")?;
        write_end(out, &texts, to)?;
        out.write_all(b",\"allowed\":")?;
        out.write_all(&open.json())?;
        out.write_all(b",\"kind\":{")?;
        if let End::Workload(id) = from {
            out.write_all(b"\"from\":")?;
            out.write_all(&texts[id.index()].1)?;
        }
        if let (End::Workload(_), End::Workload(_)) = (from, to) {
            out.write_all(b",")?;
        }
        if let End::Workload(id) = to {
            out.write_all(b"\"to\":")?;
            out.write_all(&texts[id.index()].1)?;
        }
        out.write_all(b"}}")?;
        Ok(())
    })?;
    out.write_all(if first { b"[]\n" } else { b"\n]\n" })?;
    Ok(())
}

fn write_end(out: &mut impl Write, texts: &[(Vec<u8>, Vec<u8>)], end: End) -> Result<()> {
    match end {
        End::Workload(id) => out.write_all(&texts[id.index()].0)?,
        End::Outside(range) => write!(out, "{}", json!(range.to_string()))?,
    }
    Ok(())
}

impl End {
    fn name(self, view: &View<'_>) -> String {
        match self {
            Self::Workload(id) => view.name(id),
            Self::Outside(range) => range.to_string(),
        }
    }

    fn kind(self, view: &View<'_>) -> &'static str {
        match self {
            Self::Workload(id) => view.loaded.snapshot.workload(id).kind.name(),
            Self::Outside(_) => "Outside",
        }
    }
}

pub(super) fn print_csv(out: &mut impl Write, view: &View<'_>) -> Result<()> {
    writeln!(out, "from,from_kind,to,to_kind,tcp,udp,sctp")?;
    each(view, |from, to, open| {
        let traffic = open.traffic();
        let ports = |protocol| traffic.port_texts(protocol).join(" ");
        let (tcp, udp, sctp) = (ports(Protocol::Tcp), ports(Protocol::Udp), ports(Protocol::Sctp));
        let (from_name, to_name) = (quoted(&from.name(view)), quoted(&to.name(view)));
        writeln!(out, "{from_name},{},{to_name},{},{tcp},{udp},{sctp}", from.kind(view), to.kind(view))?;
        Ok(())
    })
}

/// A name that would break the row is put in quotes.
fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

pub(super) fn print_markdown(out: &mut impl Write, view: &View<'_>) -> Result<()> {
    writeln!(out, "| from | to | TCP | UDP | SCTP |\n|---|---|---|---|---|")?;
    each(view, |from, to, open| {
        let traffic = open.traffic();
        let ports = |protocol: Protocol| match traffic.ports(protocol) {
            Some(ports) if *ports == all_ports() => "all".to_owned(),
            _ => traffic.port_texts(protocol).join(", "),
        };
        let (tcp, udp, sctp) = (ports(Protocol::Tcp), ports(Protocol::Udp), ports(Protocol::Sctp));
        let cell = |end: End| end.name(view).replace('|', "\\|").replace(['\n', '\r'], " ");
        writeln!(out, "| {} | {} | {tcp} | {udp} | {sctp} |", cell(from), cell(to))?;
        Ok(())
    })
}
