//! Where things are: the positions of a grid, and the edges of a graph with as
//! few of them as can be. No I/O, and no format.

use super::cell::Cell;
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

/// A chart as a graph with few edges.
#[derive(Debug)]
pub(crate) struct Graph {
    /// The chart without what edges from and to [`Node::Every`] say. Its cells are those of the edges.
    pub(crate) chart: Chart,
    pub(crate) edges: Vec<Edge>,
}

/// The open connections of a chart as edges. One edge stands for all of a
/// namespace where its rows fare exactly the same. What every row may open to
/// a target is one edge, and so is what a source may open to every row; only
/// pairs that have more open have edges of their own.
pub(crate) fn graph(mut chart: Chart) -> Graph {
    let mut edges = Vec::new();
    let outside: Vec<u32> = chart.lines.iter().map(|line| line.at(chart.outside())).collect();
    if chart.rows.len() > FEW {
        let closed = chart.cells.len() as u32;
        chart.cells.push(Cell::default());
        let (outside, count) = (chart.outside(), chart.rows.len());
        for to in 0..=outside {
            let pairs = (0..count).map(|row| (row, to));
            edges.extend(fold(&mut chart, closed, pairs).map(|cell| Edge {
                from: Node::Every,
                to: Node::One(to),
                cell,
            }));
        }
        for from in 0..=outside {
            let pairs = (0..count).map(|column| (from, column));
            edges.extend(fold(&mut chart, closed, pairs).map(|cell| Edge {
                from: Node::One(from),
                to: Node::Every,
                cell,
            }));
        }
    }
    edges.extend(pairs(&chart, &outside));
    Graph { chart, edges }
}

/// Finds what all of these pairs have open, and closes the pairs that have no more than that. Returns the cell that
/// says it, if there is something to say.
fn fold(chart: &mut Chart, closed: u32, pairs: impl Iterator<Item = (usize, usize)>) -> Option<u32> {
    let pairs: Vec<(usize, usize, u32)> =
        pairs.map(|(row, column)| (row, column, chart.lines[row].at(column))).collect();
    // One may be a pod with itself. More were not asked for, and nothing is known of them.
    if pairs.iter().filter(|&&(.., cell)| chart.cells[cell as usize].moot).count() > 1 {
        return None;
    }
    let mut kinds: Vec<u32> = pairs.iter().map(|&(.., cell)| cell).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds.retain(|&cell| !chart.cells[cell as usize].moot);
    let mut found = kinds.iter().map(|&cell| &chart.cells[cell as usize]);
    let first = found.next()?;
    let mut common = Cell { own_node: false, pairs: None, details: Vec::new(), ..first.clone() };
    for cell in found {
        let possible = common.open.union(&common.maybe).intersect(&cell.open.union(&cell.maybe));
        common.open = common.open.intersect(&cell.open);
        common.maybe = possible.subtract(&common.open);
        common.in_part |= cell.in_part;
        if common.conditions != cell.conditions {
            common.conditions.clear();
        }
    }
    if common.open.is_none() && common.maybe.is_none() {
        return None;
    }
    let is_covered = |cell: u32| {
        let cell = &chart.cells[cell as usize];
        !cell.moot && !cell.own_node && cell.open == common.open && cell.maybe == common.maybe
    };
    kinds.retain(|&cell| is_covered(cell));
    for (row, column, cell) in pairs {
        if kinds.binary_search(&cell).is_ok() {
            chart.lines[row].set(column, closed);
        }
    }
    chart.cells.push(common);
    Some(chart.cells.len() as u32 - 1)
}

/// Edges between workloads and namespaces, and with the outside and names. `outside` has the cell of each row with the
/// outside.
fn pairs(chart: &Chart, outside: &[u32]) -> Vec<Edge> {
    let mut found = Vec::new();
    let is_open = |cell: u32| !chart.cells[cell as usize].moot && !is_closed(chart, cell);
    for from in 0..chart.namespaces.len() {
        for to in 0..chart.namespaces.len() {
            block(chart, from, to, &mut found);
        }
    }
    for at in chart.outside()..chart.columns() {
        for (number, span) in chart.namespaces.iter().enumerate() {
            let rows = span.first..span.first + span.count;
            let says = |row: usize, cell: u32| {
                is_open(cell) && (at == chart.outside() || is_by_name(chart, outside[row], cell))
            };
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

/// The edges from one namespace to another: one, if all fare the same; else one
/// a row or one a column where that is possible, whichever are fewer.
fn block(chart: &Chart, a: usize, b: usize, found: &mut Vec<Edge>) {
    let (from, to) = (&chart.namespaces[a], &chart.namespaces[b]);
    let rows = || from.first..from.first + from.count;
    let columns = || to.first..to.first + to.count;
    if let Some(cell) = uniform(chart, rows(), columns()).filter(|_| from.count * to.count > 1) {
        if !is_closed(chart, cell) {
            let end =
                |number: usize, span: &Span| if span.count > 1 { Node::Space(number) } else { Node::One(span.first) };
            found.push(Edge { from: end(a, from), to: end(b, to), cell });
        }
        return;
    }
    let by_row = || {
        rows().flat_map(|row| {
            let whole = (to.count > 1).then(|| uniform(chart, row..row + 1, columns())).flatten();
            match whole {
                Some(cell) => vec![Edge { from: Node::One(row), to: Node::Space(b), cell }],
                None => columns().map(|column| single(chart, row, column)).collect(),
            }
        })
    };
    let by_column = || {
        columns().flat_map(|column| {
            let whole = (from.count > 1).then(|| uniform(chart, rows(), column..column + 1)).flatten();
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

/// Whether a rule opens this name to the row that has this cell with the outside. A name that is as open as the outside is said by the edge to that.
fn is_by_name(chart: &Chart, outside: u32, cell: u32) -> bool {
    let outside = &chart.cells[outside as usize];
    let cell = &chart.cells[cell as usize];
    cell.conditions.is_empty() && (outside.in_part || cell.open != outside.open)
}

fn single(chart: &Chart, row: usize, column: usize) -> Edge {
    Edge { from: Node::One(row), to: Node::One(column), cell: chart.lines[row].at(column) }
}

#[cfg(test)]
mod tests {
    use super::super::chart::{Cells, Line, Row, spans};
    use super::*;
    use namewall_policy::port::{Protocol, Traffic};

    fn open(ports: &[u16]) -> Cell {
        let mut traffic = Traffic::none();
        ports.iter().for_each(|&port| traffic.insert(Protocol::Tcp, port, port));
        Cell::of(traffic)
    }

    /// Rows of one namespace each, with these cells between them and nothing open outside.
    fn chart(count: usize, cell: impl Fn(usize, usize) -> Cell) -> Chart {
        let mut cells = Cells::default();
        let line = |row: usize, cells: &mut Cells| {
            let mut line = Line::default();
            (0..count).for_each(|column| line.push(cells.put(cell(row, column))));
            line.push(cells.put(Cell::default()));
            line
        };
        let lines = (0..=count).map(|row| line(row, &mut cells)).collect();
        let row = |at: usize| Row { namespace: format!("n{at}"), name: "a".into(), kind: "Pod".into(), pods: 1 };
        let rows: Vec<Row> = (0..count).map(row).collect();
        Chart {
            namespaces: spans(&rows),
            rows,
            names: Vec::new(),
            cells: cells.into_vec(),
            lines,
            workloads: count,
            by_namespace: false,
        }
    }

    fn told(graph: &Graph) -> Vec<(Node, Node, String)> {
        let text = |edge: &Edge| graph.chart.cells[edge.cell as usize].to_string();
        graph.edges.iter().map(|edge| (edge.from, edge.to, text(edge))).collect()
    }

    #[test]
    fn what_every_row_may_open_is_one_edge_and_more_than_that_another() {
        let graph = graph(chart(8, |row, column| match (row, column) {
            (row, column) if row == column => Cell::moot(),
            (8, _) => Cell::default(),
            (3, 0) => open(&[80, 443]),
            (_, 0) => open(&[443]),
            (5, 6) => open(&[22]),
            _ => Cell::default(),
        }));
        let expected = [
            (Node::Every, Node::One(0), "TCP 443".to_owned()),
            (Node::One(3), Node::One(0), "TCP 80,443".to_owned()),
            (Node::One(5), Node::One(6), "TCP 22".to_owned()),
        ];
        assert_eq!(told(&graph), expected);
    }

    #[test]
    fn pairs_that_were_not_asked_for_are_no_part_of_every() {
        let graph = graph(chart(8, |row, column| match (row, column) {
            (2, column) if column != 2 => open(&[443]),
            _ => Cell::moot(),
        }));
        let told = told(&graph);
        assert_eq!(told, [(Node::One(2), Node::Every, "TCP 443".to_owned())]);
    }
}
