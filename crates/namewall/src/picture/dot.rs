//! A graph for Graphviz: `namewall matrix -o dot … | dot -Tpng > map.png`.

use super::{Fill, Picture, Row};
use anyhow::Result;
use std::collections::BTreeMap;
use std::io::Write;

pub(crate) fn print_dot(out: &mut impl Write, picture: &Picture) -> Result<()> {
    writeln!(out, "digraph namewall {{")?;
    writeln!(
        out,
        "  rankdir=LR;\n  node [shape=box, style=\"rounded,filled\", fillcolor=white, fontname=\"sans-serif\"];"
    )?;
    writeln!(out, "  edge [fontname=\"sans-serif\", fontsize=10];")?;
    let mut by_namespace: BTreeMap<Option<&str>, Vec<usize>> = BTreeMap::new();
    for (at, row) in picture.rows.iter().enumerate() {
        by_namespace.entry(row.namespace.as_deref()).or_default().push(at);
    }
    for (number, (namespace, rows)) in by_namespace.iter().enumerate() {
        match namespace {
            Some(namespace) => {
                writeln!(
                    out,
                    "  subgraph cluster_{number} {{\n    label={}; style=rounded; color=gray;",
                    quoted(namespace)
                )?;
                for &at in rows {
                    writeln!(out, "    n{at} [label={}];", quoted(&node_label(&picture.rows[at])))?;
                }
                writeln!(out, "  }}")?;
            }
            None => {
                for &at in rows {
                    writeln!(out, "  n{at} [label={}, shape=ellipse];", quoted(&picture.rows[at].name))?;
                }
            }
        }
    }
    for (from, cells) in picture.cells.iter().enumerate() {
        for (to, cell) in cells.iter().enumerate() {
            // A pod reaches itself; drawing that says nothing.
            if cell.traffic.is_none() || (from == to && picture.rows[from].is_single_pod()) {
                continue;
            }
            let (label, colour) = match cell.fill() {
                Fill::Everything => (String::new(), "#c0392b"),
                _ => (cell.to_string(), "#2471a3"),
            };
            writeln!(out, "  n{from} -> n{to} [label={}, color=\"{colour}\"];", quoted(&label))?;
        }
    }
    writeln!(out, "}}")?;
    Ok(())
}

fn node_label(row: &Row) -> String {
    let more = if row.count > 1 { format!(" +{}", row.count - 1) } else { String::new() };
    format!("{}{more}\n{}", row.name, row.kind)
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
