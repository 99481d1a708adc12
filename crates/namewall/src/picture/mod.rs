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
use namewall_policy::model::WorkloadId;
use namewall_policy::port::Traffic;
use namewall_policy::reach::OutsideRange;
use std::collections::HashMap;

/// What the pictures draw.
pub(crate) struct Picture {
    pub(crate) rows: Vec<Row>,
    /// By row and column.
    pub(crate) cells: Vec<Vec<Traffic>>,
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

pub(crate) fn fill(traffic: &Traffic) -> Fill {
    let open = traffic.clone();
    if open.is_none() {
        Fill::Nothing
    } else if open.is_all() {
        Fill::Everything
    } else {
        Fill::Some
    }
}

impl Picture {
    pub(crate) fn new(view: &View<'_>) -> Self {
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
        groups.sort_by_cached_key(|group| view.name(group[0]));
        let mut rows: Vec<Row> = groups.iter().map(|group| row(view, group)).collect();
        rows.push(Row {
            namespace: None,
            name: "outside".into(),
            kind: "every address no workload has".into(),
            count: 1,
        });

        let mut cells: Vec<Vec<Traffic>> = Vec::new();
        for from in &groups {
            let mut cells_of: Vec<Traffic> = groups.iter().map(|to| between(view, from, to)).collect();
            let outside = view.shows_outside_of(from[0]);
            cells_of.push(if outside { any(view, &view.matrix.outside_to(from[0])) } else { Traffic::none() });
            cells.push(cells_of);
        }
        let outside = groups.iter().map(|to| match view.shows_outside_of(to[0]) {
            true => any(view, &view.matrix.outside_from(to[0])),
            false => Traffic::none(),
        });
        cells.push(outside.chain([Traffic::none()]).collect());
        Self { rows, cells }
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

fn between(view: &View<'_>, from: &[WorkloadId], to: &[WorkloadId]) -> Traffic {
    // Within a group, between two of its members where there are two.
    let target = if from[0] == to[0] { *to.get(1).unwrap_or(&to[0]) } else { to[0] };
    if !view.shows(from[0], target) {
        return Traffic::none();
    }
    view.open(view.matrix.between(from[0], target))
}

/// What is open to some address outside.
fn any(view: &View<'_>, ranges: &[OutsideRange]) -> Traffic {
    let open = ranges.iter().map(|outside| view.narrow(&outside.traffic));
    let mut joined = open.clone().fold(Traffic::none(), |all, more| all.union(&more));
    // Everything means to every address.
    if joined.is_all() && !open.clone().all(|traffic| traffic.is_all()) {
        joined.portless = false;
    }
    joined
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
