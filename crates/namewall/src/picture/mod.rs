//! Pictures of a matrix: a graph for Graphviz, a grid as SVG, a page around it.
//!
//! Workloads of one namespace that fare the same on both ends share a row: a
//! picture shows what differs, not how many replicas there are.

mod dot;
mod html;
mod svg;

pub(crate) use dot::print_dot;
pub(crate) use html::print_html;
pub(crate) use svg::print_svg;

use crate::commands::matrix::View;
use anyhow::{Result, bail};
use namewall_policy::model::WorkloadId;
use namewall_policy::port::Traffic;
use namewall_policy::reach::OutsideRange;
use std::collections::HashMap;
use std::fmt;

/// What the pictures draw.
pub(crate) struct Picture {
    pub(crate) rows: Vec<Row>,
    /// By row and column.
    pub(crate) cells: Vec<Vec<Cell>>,
}

/// What a row may open to a column.
#[derive(Clone, Default)]
pub(crate) struct Cell {
    pub(crate) traffic: Traffic,
    /// Only at some of the addresses outside, or by some names.
    pub(crate) in_part: bool,
}

impl Cell {
    pub(crate) fn fill(&self) -> Fill {
        if self.traffic.is_none() {
            Fill::Nothing
        } else if self.traffic.is_all() && !self.in_part {
            Fill::Everything
        } else {
            Fill::Some
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.traffic, if self.in_part { ", in part" } else { "" })
    }
}

pub(crate) struct Row {
    /// None for the outside.
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) kind: String,
    /// How many workloads it stands for.
    pub(crate) count: usize,
}

impl Row {
    /// One pod alone: to itself it is always open, which says nothing.
    pub(crate) fn is_single_pod(&self) -> bool {
        self.count == 1 && (self.kind == "Pod" || self.namespace.is_none())
    }

    pub(crate) fn label(&self) -> String {
        let more = if self.count > 1 { format!(" +{}", self.count - 1) } else { String::new() };
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}{more}", self.name),
            None => self.name.clone(),
        }
    }
}

/// How full a cell is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
    Nothing,
    Some,
    Everything,
}

/// Beyond this nobody can read it, and it takes hundreds of megabytes.
const MOST_ROWS: usize = 500;

impl Picture {
    pub(crate) fn new(view: &View<'_>) -> Result<Self> {
        let mut groups: Vec<Vec<WorkloadId>> = Vec::new();
        let mut known = HashMap::new();
        for id in view.workloads().filter(|&id| shown(view, id)) {
            let namespace = view.loaded.snapshot.workload(id).namespace;
            let at = *known.entry((namespace, view.matrix.likeness(id))).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
            groups[at].push(id);
        }
        if groups.len() > MOST_ROWS {
            let rows = groups.len();
            bail!("the picture would have {rows} rows; {MOST_ROWS} is the most. Use --focus NS/WORKLOAD, or -o csv");
        }
        groups.sort_by_cached_key(|group| view.name(group[0]));
        let mut rows: Vec<Row> = groups.iter().map(|group| row(view, group)).collect();
        rows.push(Row {
            namespace: None,
            name: "outside".into(),
            kind: "every address no workload has".into(),
            count: 1,
        });

        let mut cells: Vec<Vec<Cell>> = Vec::new();
        for from in &groups {
            let mut cells_of: Vec<Cell> = groups.iter().map(|to| between(view, from, to)).collect();
            cells_of.push(if view.shows_outside_of(from[0]) { outside_to(view, from[0]) } else { Cell::default() });
            cells.push(cells_of);
        }
        let outside = groups.iter().map(|to| match view.shows_outside_of(to[0]) {
            true => any(view, &view.matrix.outside_from(to[0])),
            false => Cell::default(),
        });
        cells.push(outside.chain([Cell::default()]).collect());
        Ok(Self { rows, cells })
    }
}

/// With a focus, only those it has to do with.
fn shown(view: &View<'_>, id: WorkloadId) -> bool {
    view.shows_outside_of(id)
        || view.workloads().any(|other| {
            let either = view.shows(id, other) || view.shows(other, id);
            either
                && !(view.open(view.matrix.between(id, other)).is_none()
                    && view.open(view.matrix.between(other, id)).is_none())
        })
}

fn row(view: &View<'_>, group: &[WorkloadId]) -> Row {
    let workload = view.loaded.snapshot.workload(group[0]);
    Row {
        namespace: Some(view.loaded.snapshot.namespace(workload.namespace).name.to_string()),
        name: workload.name.to_string(),
        kind: workload.kind.name().to_owned(),
        count: group.len(),
    }
}

fn between(view: &View<'_>, from: &[WorkloadId], to: &[WorkloadId]) -> Cell {
    // Within a group, between two of its members where there are two.
    let target = if from[0] == to[0] { *to.get(1).unwrap_or(&to[0]) } else { to[0] };
    if !view.shows(from[0], target) {
        return Cell::default();
    }
    Cell { traffic: view.open(view.matrix.between(from[0], target)), in_part: false }
}

fn outside_to(view: &View<'_>, from: WorkloadId) -> Cell {
    let mut cell = any(view, &view.matrix.outside_to(from));
    for (_, traffic) in view.matrix.names_to(from).iter() {
        let traffic = view.narrow(&traffic.open);
        if !traffic.is_subset(&cell.traffic) {
            cell = Cell { traffic: cell.traffic.union(&traffic), in_part: true };
        }
    }
    cell
}

/// What is open to some address outside.
fn any(view: &View<'_>, ranges: &[OutsideRange]) -> Cell {
    let mut open = ranges.iter().map(|outside| view.narrow(&outside.traffic.open));
    let first = open.next().unwrap_or_default();
    open.fold(Cell { traffic: first, in_part: false }, |cell, more| Cell {
        in_part: cell.in_part || more != cell.traffic,
        traffic: cell.traffic.union(&more),
    })
}

/// Text for XML and HTML, in content and in attributes.
pub(crate) fn escape_xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML has no other control characters.
            c if c.is_control() && !matches!(c, '\n' | '\t') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
