//! What a picture of a matrix shows, before anybody draws it: rows, columns,
//! cells, and the namespaces they belong to. It does no I/O and knows no format.
//!
//! Rows are workloads in order of their namespaces, and the outside. Columns are
//! the same, and names. A line of cells is kept as runs of equal ones: neighbours
//! in a namespace mostly fare the same, so 5,000 workloads take a few megabytes.

use super::cell::{Cell, Pairs, Sign};
use rustc_hash::FxHashMap;

#[derive(Clone, Debug)]
pub(crate) struct Chart {
    /// In order of their namespaces.
    pub(crate) rows: Vec<Row>,
    pub(crate) namespaces: Vec<Span>,
    /// Patterns of names.
    pub(crate) names: Vec<String>,
    /// Every different cell, once.
    pub(crate) cells: Vec<Cell>,
    /// A line of cells a row, and one of the outside.
    pub(crate) lines: Vec<Line>,
    /// How many workloads there are, whatever a row is.
    pub(crate) workloads: usize,
    /// Rows are namespaces, not workloads.
    pub(crate) by_namespace: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) kind: String,
    /// How many pods it stands for.
    pub(crate) pods: usize,
}

/// The rows of a namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) first: usize,
    pub(crate) count: usize,
}

/// The cells of a row, as runs.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Line(Vec<Run>);

/// Equal cells beside each other, up to the column before `end`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Run {
    pub(crate) cell: u32,
    pub(crate) end: u32,
}

impl Line {
    pub(crate) fn push(&mut self, cell: u32) {
        match self.0.last_mut() {
            Some(run) if run.cell == cell => run.end += 1,
            last => {
                let end = last.map_or(0, |run| run.end) + 1;
                self.0.push(Run { cell, end });
            }
        }
    }

    pub(crate) fn runs(&self) -> &[Run] {
        &self.0
    }

    pub(crate) fn at(&self, column: usize) -> u32 {
        let run = self.0.partition_point(|run| run.end as usize <= column);
        self.0[run].cell
    }

    /// Puts another cell in a column.
    pub(crate) fn set(&mut self, column: usize, cell: u32) {
        let at = self.0.partition_point(|run| run.end as usize <= column);
        let (old, start) = (self.0[at], if at > 0 { self.0[at - 1].end } else { 0 });
        let column = column as u32;
        let before = (start < column).then_some(Run { cell: old.cell, end: column });
        let after = (column + 1 < old.end).then_some(Run { cell: old.cell, end: old.end });
        let new = [before, Some(Run { cell, end: column + 1 }), after];
        self.0.splice(at..=at, new.into_iter().flatten());
    }

    /// The cells of these columns, each with how many of them there are.
    pub(crate) fn within(&self, columns: std::ops::Range<usize>) -> impl Iterator<Item = (u32, usize)> {
        let first = self.0.partition_point(|run| run.end as usize <= columns.start);
        let mut at = columns.start;
        self.0[first..].iter().map_while(move |run| {
            let end = (run.end as usize).min(columns.end);
            let count = end.saturating_sub(at);
            at = end;
            (count > 0).then_some((run.cell, count))
        })
    }
}

/// Cells as they are made, each kept once.
#[derive(Default)]
pub(crate) struct Cells {
    all: Vec<Cell>,
    known: FxHashMap<Cell, u32>,
}

impl Cells {
    pub(crate) fn put(&mut self, cell: Cell) -> u32 {
        if let Some(&id) = self.known.get(&cell) {
            return id;
        }
        let id = self.all.len() as u32;
        self.all.push(cell.clone());
        self.known.insert(cell, id);
        id
    }

    pub(crate) fn into_vec(self) -> Vec<Cell> {
        self.all
    }
}

pub(crate) const OUTSIDE: &str = "outside";

impl Row {
    pub(crate) fn label(&self) -> String {
        if self.name.is_empty() { self.namespace.clone() } else { format!("{}/{}", self.namespace, self.name) }
    }

    /// `Deployment, 5 pods`.
    pub(crate) fn about(&self) -> String {
        if self.pods > 1 { format!("{}, {} pods", self.kind, self.pods) } else { self.kind.clone() }
    }
}

/// The runs of rows that have the same namespace.
pub(crate) fn spans(rows: &[Row]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        match spans.last_mut() {
            Some(span) if span.name == row.namespace => span.count += 1,
            _ => spans.push(Span { name: row.namespace.clone(), first: at, count: 1 }),
        }
    }
    spans
}

impl Chart {
    /// The column of the outside, and the row.
    pub(crate) fn outside(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn columns(&self) -> usize {
        self.rows.len() + 1 + self.names.len()
    }

    pub(crate) fn cell(&self, row: usize, column: usize) -> &Cell {
        &self.cells[self.lines[row].at(column) as usize]
    }

    pub(crate) fn row_label(&self, row: usize) -> String {
        self.rows.get(row).map_or_else(|| OUTSIDE.to_owned(), Row::label)
    }

    pub(crate) fn column_label(&self, column: usize) -> String {
        match column.checked_sub(self.rows.len() + 1) {
            Some(name) => self.names[name].clone(),
            None => self.row_label(column),
        }
    }

    /// What a row or a column is, for a tooltip.
    pub(crate) fn about(&self, column: usize) -> String {
        match self.rows.get(column) {
            Some(row) => row.about(),
            None if column == self.rows.len() => "every address that no workload has".to_owned(),
            None => "name".to_owned(),
        }
    }

    /// Whether both belong to one namespace, or to none.
    pub(crate) fn is_same_space(&self, one: usize, other: usize) -> bool {
        match (self.rows.get(one), self.rows.get(other)) {
            (Some(one), Some(other)) => one.namespace == other.namespace,
            (None, None) => (one == self.outside()) == (other == self.outside()),
            _ => false,
        }
    }

    /// The same with a row for each namespace.
    pub(crate) fn by_namespace(&self) -> Self {
        let mut cells = Cells::default();
        let mut lines = Vec::new();
        let ends = |line_of: &dyn Fn(&mut Sum, std::ops::Range<usize>), cells: &mut Cells| {
            let mut line = Line::default();
            let columns = self.namespaces.iter().map(|span| span.first..span.first + span.count);
            for columns in columns.chain((self.outside()..self.columns()).map(|at| at..at + 1)) {
                let mut sum = Sum::default();
                line_of(&mut sum, columns);
                line.push(cells.put(sum.cell(self)));
            }
            line
        };
        for span in &self.namespaces {
            let rows = &self.lines[span.first..span.first + span.count];
            let add = |sum: &mut Sum, columns: std::ops::Range<usize>| {
                rows.iter()
                    .flat_map(|line| line.within(columns.clone()))
                    .for_each(|(cell, count)| sum.add(cell, count));
            };
            lines.push(ends(&add, &mut cells));
        }
        let outside = &self.lines[self.outside()];
        let add = |sum: &mut Sum, columns| outside.within(columns).for_each(|(cell, count)| sum.add(cell, count));
        lines.push(ends(&add, &mut cells));
        let rows = self.namespaces.iter().map(|span| {
            let pods = self.rows[span.first..span.first + span.count].iter().map(|row| row.pods).sum();
            let kind = format!("namespace, {} workloads", span.count);
            Row { namespace: span.name.clone(), name: String::new(), kind, pods }
        });
        let rows: Vec<Row> = rows.collect();
        Self {
            namespaces: spans(&rows),
            rows,
            names: self.names.clone(),
            cells: cells.into_vec(),
            lines,
            workloads: self.workloads,
            by_namespace: true,
        }
    }
}

/// The cells of two namespaces, counted.
#[derive(Default)]
struct Sum(Vec<(u32, usize)>);

impl Sum {
    fn add(&mut self, cell: u32, count: usize) {
        match self.0.iter_mut().find(|(known, _)| *known == cell) {
            Some((_, sum)) => *sum += count,
            None => self.0.push((cell, count)),
        }
    }

    fn cell(&self, chart: &Chart) -> Cell {
        let counted = self.0.iter().map(|&(id, count)| (&chart.cells[id as usize], count));
        let counted: Vec<(&Cell, usize)> = counted.filter(|(cell, _)| !cell.moot).collect();
        let Some(((first, _), rest)) = counted.split_first() else { return Cell::moot() };
        let mut all = Cell { in_part: first.in_part || !rest.is_empty(), details: Vec::new(), ..(*first).clone() };
        for (cell, _) in rest {
            all.open = all.open.union(&cell.open);
            all.maybe = all.maybe.union(&cell.maybe);
            all.own_node |= cell.own_node;
            let new = cell.conditions.iter().filter(|text| !all.conditions.contains(text));
            all.conditions.extend(new.cloned().collect::<Vec<_>>());
        }
        let is = |sign| counted.iter().filter(|(cell, _)| cell.sign() == sign).map(|(_, count)| count).sum();
        let sum = counted.iter().map(|(_, count)| count).sum();
        all.pairs = Some(Pairs { open: is(Sign::Open), depends: is(Sign::Depends), all: sum });
        all.maybe = all.maybe.subtract(&all.open);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_gives_back_what_was_put_in() {
        let cells = [3, 3, 1, 1, 1, 0, 3];
        let mut line = Line::default();
        cells.iter().for_each(|&cell| line.push(cell));
        assert_eq!(line.runs().len(), 4);
        for (at, &cell) in cells.iter().enumerate() {
            assert_eq!(line.at(at), cell, "{at}");
        }
        let within: Vec<(u32, usize)> = line.within(1..6).collect();
        assert_eq!(within, [(3, 1), (1, 3), (0, 1)]);
        assert_eq!(line.within(2..2).count(), 0);
        assert_eq!(line.within(6..7).collect::<Vec<_>>(), [(3, 1)]);
        for at in [3, 0, 6, 2] {
            line.set(at, 9);
        }
        let all: Vec<u32> = (0..cells.len()).map(|at| line.at(at)).collect();
        assert_eq!(all, [9, 3, 9, 9, 1, 0, 9]);
    }
}
