//! A graph for Graphviz: `namewall matrix -o dot … | dot -Tsvg > map.svg`.

use super::cell::Fill;
use super::layout::{Edge, Graph, Node, graph};
use super::{Cell, Chart, Row};
use anyhow::Result;
use std::io::Write;

/// With more edges dot takes minutes and nobody can follow them. Namespaces are
/// then drawn in place of workloads. If those have more, sfdp places them,
/// without labels; it knows no clusters, so it is of no use for workloads.
const MOST_EDGES: usize = 120;
/// With more workloads the edges are not even looked for.
const MOST_ROWS: usize = 150;

pub(crate) fn print_dot(out: &mut impl Write, chart: &Chart) -> Result<()> {
    let by_workload = (chart.rows.len() <= MOST_ROWS).then(|| graph(chart.clone()));
    let Graph { chart, edges } = match by_workload {
        Some(graph) if graph.edges.len() <= MOST_EDGES => graph,
        _ => graph(chart.by_namespace()),
    };
    let chart = &chart;
    let is_dense = edges.len() > MOST_EDGES;
    writeln!(out, "digraph namewall {{")?;
    let engine = match is_dense {
        false => "rankdir=LR; compound=true; ranksep=1.2; newrank=true;",
        true => "layout=sfdp; overlap=prism; splines=false; K=1.4;",
    };
    let what = if chart.by_namespace { " by namespace; -o html shows the workloads" } else { "" };
    let colours = "Red: everything, blue: some, dashed: depends.";
    // Labels on hundreds of edges cover each other and the nodes.
    let notes = (!is_dense).then(|| Notes::new(chart, &edges));
    let told = notes.as_ref().map(Notes::text).unwrap_or_default();
    let title = format!("Who may reach whom: {} workloads{what}. {colours}{told}", chart.workloads);
    writeln!(out, "  {engine}\n  label={}; labelloc=t; fontname=\"sans-serif\";", quoted(&title))?;
    writeln!(out, "  node [shape=box, style=\"rounded,filled\", fillcolor=white, fontname=\"sans-serif\"];")?;
    let arrows = if is_dense { ", arrowsize=0.6, penwidth=0.7" } else { "" };
    writeln!(out, "  edge [fontname=\"sans-serif\", fontsize=10{arrows}];")?;
    nodes(out, chart, &edges)?;
    for edge in &edges {
        print_edge(out, chart, edge, notes.as_ref())?;
    }
    writeln!(out, "}}")?;
    Ok(())
}

/// What edges depend on, told in the title: a picture has no tooltips once it is a bitmap.
struct Notes<'c>(Vec<&'c str>);

impl<'c> Notes<'c> {
    fn new(chart: &'c Chart, edges: &[Edge]) -> Self {
        let mut texts: Vec<&str> = Vec::new();
        for text in edges.iter().flat_map(|edge| &chart.cells[edge.cell as usize].conditions) {
            if !texts.contains(&text.as_str()) {
                texts.push(text);
            }
        }
        Self(texts)
    }

    /// Below the title, a line each.
    fn text(&self) -> String {
        const SHOWN: usize = 12;
        let shown = self.0.iter().take(SHOWN).enumerate();
        let mut text: String = shown.map(|(at, text)| format!("\n[{}] {text}", at + 1)).collect();
        let more = self.0.len().saturating_sub(SHOWN);
        if more > 0 {
            text += &format!("\nand {more} more, in the tooltips of their edges");
        }
        text
    }

    /// What follows the label of an edge: ` [1, 3]`, or nothing.
    fn mark(&self, cell: &Cell) -> String {
        let number = |text: &String| self.0.iter().position(|known| known == text).map(|at| (at + 1).to_string());
        let numbers: Vec<String> = cell.conditions.iter().filter_map(number).collect();
        if numbers.is_empty() { String::new() } else { format!(" [{}]", numbers.join(", ")) }
    }
}

fn nodes(out: &mut impl Write, chart: &Chart, edges: &[Edge]) -> Result<()> {
    for (number, span) in chart.namespaces.iter().enumerate() {
        let rows = span.first..span.first + span.count;
        if chart.by_namespace {
            for at in rows {
                writeln!(out, "  n{at} [label={}];", quoted(&node_label(&chart.rows[at])))?;
            }
            continue;
        }
        let label = quoted(&span.name);
        writeln!(out, "  subgraph cluster_{number} {{\n    label={label}; style=rounded; color=gray;")?;
        for at in rows {
            writeln!(out, "    n{at} [label={}];", quoted(&node_label(&chart.rows[at])))?;
        }
        if edges.iter().any(|edge| inner_space(chart, edge) == Some(number)) {
            let label = quoted(&format!("all of {}", span.name));
            writeln!(out, "    all{number} [label={label}, shape=ellipse, style=\"filled,dashed\"];")?;
        }
        writeln!(out, "  }}")?;
    }
    let is_used = |node: Node| edges.iter().any(|edge| edge.from == node || edge.to == node);
    for at in chart.outside()..chart.columns() {
        let shape = if at == chart.outside() { "ellipse" } else { "note" };
        if at == chart.outside() || is_used(Node::One(at)) {
            writeln!(out, "  n{at} [label={}, shape={shape}];", quoted(&chart.column_label(at)))?;
        }
    }
    let every = if chart.by_namespace { "every namespace" } else { "every workload" };
    for (id, is_used) in [
        ("every_from", edges.iter().any(|edge| edge.from == Node::Every)),
        ("every_to", edges.iter().any(|edge| edge.to == Node::Every)),
    ] {
        if is_used {
            writeln!(out, "  {id} [label={}, shape=ellipse, style=\"filled,dashed\"];", quoted(every))?;
        }
    }
    Ok(())
}

/// Without notes an edge has no label either.
fn print_edge(out: &mut impl Write, chart: &Chart, edge: &Edge, notes: Option<&Notes<'_>>) -> Result<()> {
    let cell = &chart.cells[edge.cell as usize];
    let (label, colour) = match cell.fill() {
        Fill::Everything => (String::new(), "#c0392b"),
        Fill::Depends => (format!("? {}", cell.maybe), "#b7791f"),
        Fill::Some | Fill::Nothing | Fill::Moot => (short_label(cell), "#2471a3"),
    };
    let label = notes.map_or_else(String::new, |notes| shortened(&label) + &notes.mark(cell));
    let inner = inner_space(chart, edge);
    let (from, tail) = end(chart, edge.from, inner, "from");
    let (to, head) = end(chart, edge.to, inner, "to");
    let mut more = String::new();
    if let Some(tail) = tail {
        more += &format!(", ltail={tail}");
    }
    if let Some(head) = head {
        more += &format!(", lhead={head}");
    }
    if cell.fill() == Fill::Depends {
        more += ", style=dashed";
    }
    let tooltip = [&[cell.to_string()], &cell.details[..]].concat().join("\n");
    let (label, tooltip) = (quoted(&label), quoted(&tooltip));
    writeln!(out, "  {from} -> {to} [label={label}, tooltip={tooltip}, color=\"{colour}\"{more}];")?;
    Ok(())
}

/// The ports alone. What they depend on is in the tooltip.
fn short_label(cell: &Cell) -> String {
    let star = if cell.own_node { "*" } else { "" };
    let some = if cell.maybe.is_none() { "" } else { " ?" };
    let part = if cell.in_part { ", in part" } else { "" };
    match cell.open.is_none() {
        true => star.to_owned(),
        false => format!("{}{part}{some}{star}", cell.open),
    }
}

/// The namespace that an edge begins or ends at without leaving it. Graphviz draws no edge between a cluster and its
/// own nodes: it would seem to come from one of them. A node stands for the namespace there.
fn inner_space(chart: &Chart, edge: &Edge) -> Option<usize> {
    let is_inside = |number: usize, node: Node| {
        let span = &chart.namespaces[number];
        match node {
            Node::One(at) => (span.first..span.first + span.count).contains(&at),
            Node::Space(other) => other == number,
            Node::Every => false,
        }
    };
    match (edge.from, edge.to) {
        (Node::Space(number), other) | (other, Node::Space(number)) if is_inside(number, other) => Some(number),
        _ => None,
    }
}

/// The node an edge is drawn at, and the cluster that it ends at.
fn end(chart: &Chart, node: Node, inner: Option<usize>, side: &str) -> (String, Option<String>) {
    match node {
        Node::One(at) => (format!("n{at}"), None),
        Node::Space(number) if inner == Some(number) => (format!("all{number}"), None),
        Node::Space(number) => {
            let span = &chart.namespaces[number];
            (format!("n{}", span.first + span.count / 2), Some(format!("cluster_{number}")))
        }
        Node::Every => (format!("every_{side}"), None),
    }
}

/// Long lists of ports make Graphviz draw nothing but labels.
fn shortened(label: &str) -> String {
    const MOST: usize = 48;
    if label.chars().count() <= MOST {
        return label.to_owned();
    }
    label.chars().take(MOST - 1).chain(['…']).collect()
}

fn node_label(row: &Row) -> String {
    let name = if row.name.is_empty() { &row.namespace } else { &row.name };
    format!("{name}\n{}", row.about())
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
