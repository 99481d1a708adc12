//! Where things are: the positions of a grid, and the edges of a graph with as
//! few of them as can be. No I/O, and no format.

use super::chart::{Chart, Span};
use std::ops::Range;

/// A grid in pixels: rows down, columns across, labels to the left and above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Grid {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// The side of a cell.
    pub(crate) cell: usize,
    pub(crate) font: usize,
    pub(crate) left: usize,
    pub(crate) top: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// There is room for a sign in each cell, and for labels at an angle.
    pub(crate) is_roomy: bool,
}

pub(crate) const MARGIN: usize = 14;
/// What the legend needs in width.
const LEGEND: usize = 640;
/// Below the grid, for the legend.
const FOOT: usize = 76;

impl Grid {
    pub(crate) fn new(chart: &Chart) -> Self {
        let (rows, columns) = (chart.rows.len() + 1, chart.columns());
        let (cell, font) = match rows {
            0..=60 => (22, 12),
            61..=150 => (16, 11),
            _ => (13, 10),
        };
        let is_roomy = rows <= 60;
        // A letter is about 0.6 of the font wide.
        let width_of = |text: String| text.chars().count() * font * 6 / 10;
        let longest_row = (0..rows).map(|at| width_of(chart.row_label(at))).max().unwrap_or(0);
        let longest_column = (0..columns).map(|at| width_of(chart.column_label(at))).max().unwrap_or(0);
        // At 45 degrees a label is as high as it is wide, and leans over to the right.
        let (above, over) =
            if is_roomy { (longest_column * 71 / 100 + font, longest_column * 71 / 100) } else { (longest_column, 0) };
        let (left, top) = (MARGIN + longest_row + 12, MARGIN + 26 + above + 12);
        let width = (left + columns * cell + over + MARGIN).max(LEGEND);
        Self { rows, columns, cell, font, left, top, width, height: top + rows * cell + FOOT, is_roomy }
    }

    pub(crate) fn x(&self, column: usize) -> usize {
        self.left + column * self.cell
    }

    pub(crate) fn y(&self, row: usize) -> usize {
        self.top + row * self.cell
    }
}

/// An end of an edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Node {
    /// A row or a column.
    One(usize),
    /// All of a namespace, by its number.
    Space(usize),
    /// Every row but the other end.
    Every,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Edge {
    pub(crate) from: Node,
    pub(crate) to: Node,
    pub(crate) cell: u32,
}

/// The open connections of a chart as edges. One edge stands for all rows, or
/// for all of a namespace, where they fare exactly the same.
pub(crate) fn edges(chart: &Chart) -> Vec<Edge> {
    let count = chart.rows.len();
    let mut found = Vec::new();
    let is_open = |cell: u32| !chart.cells[cell as usize].moot && !is_closed(chart, cell);
    // A target that everybody reaches the same way, then a source that reaches everybody the same way.
    let mut done_columns = vec![false; count];
    let mut done_rows = vec![false; count];
    if count > FEW {
        let all = 0..count;
        for (to, done) in done_columns.iter_mut().enumerate() {
            if let Some(cell) = uniform(chart, all.clone(), to..to + 1).filter(|&cell| is_open(cell)) {
                *done = true;
                found.push(Edge { from: Node::Every, to: Node::One(to), cell });
            }
        }
        for (from, done) in done_rows.iter_mut().enumerate() {
            if let Some(cell) = uniform(chart, from..from + 1, all.clone()).filter(|&cell| is_open(cell)) {
                *done = true;
                found.push(Edge { from: Node::One(from), to: Node::Every, cell });
            }
        }
    }
    let done = Done { rows: done_rows, columns: done_columns };
    for (a, from) in chart.namespaces.iter().enumerate() {
        for (b, to) in chart.namespaces.iter().enumerate() {
            block(chart, &done, ((a, from), (b, to)), &mut found);
        }
    }
    for at in chart.outside()..chart.columns() {
        for (number, span) in chart.namespaces.iter().enumerate() {
            let rows = span.first..span.first + span.count;
            let says = |row: usize, cell: u32| is_open(cell) && (at == chart.outside() || is_by_name(chart, row, cell));
            match uniform(chart, rows.clone(), at..at + 1) {
                Some(cell) if span.count > 1 && rows.clone().all(|row| says(row, cell)) => {
                    found.push(Edge { from: Node::Space(number), to: Node::One(at), cell });
                }
                _ => found.extend(rows.map(|row| single(chart, row, at)).filter(|edge| match edge.from {
                    Node::One(row) => says(row, edge.cell),
                    Node::Space(_) | Node::Every => false,
                })),
            }
        }
    }
    let outside = chart.outside();
    for (number, span) in chart.namespaces.iter().enumerate() {
        let columns = span.first..span.first + span.count;
        match uniform(chart, outside..outside + 1, columns.clone()) {
            Some(cell) if span.count > 1 && is_open(cell) => {
                found.push(Edge { from: Node::One(outside), to: Node::Space(number), cell });
            }
            _ => found.extend(columns.map(|column| single(chart, outside, column)).filter(|edge| is_open(edge.cell))),
        }
    }
    found
}

/// Fewer rows than this are drawn one by one.
const FEW: usize = 6;

struct Done {
    rows: Vec<bool>,
    columns: Vec<bool>,
}

fn is_closed(chart: &Chart, cell: u32) -> bool {
    let cell = &chart.cells[cell as usize];
    cell.open.is_none() && cell.maybe.is_none() && !cell.own_node
}

/// The one cell that all of these have, but for what says nothing.
fn uniform(chart: &Chart, rows: Range<usize>, columns: Range<usize>) -> Option<u32> {
    let mut found = None;
    for row in rows {
        for (cell, _) in chart.lines[row].within(columns.clone()) {
            if chart.cells[cell as usize].moot || found == Some(cell) {
                continue;
            }
            if found.is_some() {
                return None;
            }
            found = Some(cell);
        }
    }
    found
}

type Numbered<'s> = (usize, &'s Span);

/// The edges from one namespace to another: one, if all fare the same; else one
/// a row or one a column where that is possible, whichever are fewer.
fn block(chart: &Chart, done: &Done, ((a, from), (b, to)): (Numbered<'_>, Numbered<'_>), found: &mut Vec<Edge>) {
    let rows = || (from.first..from.first + from.count).filter(|&row| !done.rows[row]);
    let columns = || (to.first..to.first + to.count).filter(|&column| !done.columns[column]);
    let untouched = rows().count() == from.count && columns().count() == to.count;
    let all = uniform(chart, from.first..from.first + from.count, to.first..to.first + to.count);
    if let Some(cell) = all.filter(|_| untouched && from.count * to.count > 1) {
        if !is_closed(chart, cell) {
            let end =
                |number: usize, span: &Span| if span.count > 1 { Node::Space(number) } else { Node::One(span.first) };
            found.push(Edge { from: end(a, from), to: end(b, to), cell });
        }
        return;
    }
    let by_row = || {
        rows().flat_map(|row| {
            let whole = (columns().count() == to.count && to.count > 1)
                .then(|| uniform(chart, row..row + 1, to.first..to.first + to.count))
                .flatten();
            match whole {
                Some(cell) => vec![Edge { from: Node::One(row), to: Node::Space(b), cell }],
                None => columns().map(|column| single(chart, row, column)).collect(),
            }
        })
    };
    let by_column = || {
        columns().flat_map(|column| {
            let whole = (rows().count() == from.count && from.count > 1)
                .then(|| uniform(chart, from.first..from.first + from.count, column..column + 1))
                .flatten();
            match whole {
                Some(cell) => vec![Edge { from: Node::Space(a), to: Node::One(column), cell }],
                None => rows().map(|row| single(chart, row, column)).collect(),
            }
        })
    };
    let keep = |edges: Vec<Edge>| -> Vec<Edge> {
        let says = |edge: &Edge| !chart.cells[edge.cell as usize].moot && !is_closed(chart, edge.cell);
        edges.into_iter().filter(says).collect()
    };
    let (across, down) = (keep(by_row().collect()), keep(by_column().collect()));
    found.extend(if down.len() < across.len() { down } else { across });
}

/// Whether a rule opens this name to the row. A name that is as open as the outside is said by the edge to that.
fn is_by_name(chart: &Chart, row: usize, cell: u32) -> bool {
    let outside = chart.cell(row, chart.outside());
    let cell = &chart.cells[cell as usize];
    cell.conditions.is_empty() && (outside.in_part || cell.open != outside.open)
}

fn single(chart: &Chart, row: usize, column: usize) -> Edge {
    Edge { from: Node::One(row), to: Node::One(column), cell: chart.lines[row].at(column) }
}
