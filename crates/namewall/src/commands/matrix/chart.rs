//! A view of a matrix → the chart that pictures draw.

use super::pair::{Pair, PairEnd};
use super::{View, range_text};
use crate::picture::{Cell, Cells, Chart, Line, Row, spans};
use namewall_policy::domain::DomainPattern;
use namewall_policy::model::Direction;
use namewall_policy::reach::{self, CellConditions, GroupId, Reachable};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// How many lines are made together. What the sources of neighbouring rows see of one target is side by side in memory.
/// Line by line, 5,000 workloads took 1.2 to 3.8 times the CPU time, in runs that alternated on a busy machine.
const TILE: usize = 16;

pub(super) fn chart(view: &View<'_>) -> Chart {
    let mut ids: Vec<GroupId> = view.rows().filter(|&id| is_shown(view, id)).collect();
    let namespace = |id| view.loaded.snapshot.namespace(view.groups.get(id).namespace).name.clone();
    ids.sort_by_cached_key(|&id| (namespace(id), view.groups.get(id).name.clone()));
    let rows: Vec<Row> = ids.iter().map(|&id| row(view, id)).collect();
    let opened = ids.iter().filter(|&&id| view.shows_outside_of(id)).map(|&id| view.names_to(id));
    let names: BTreeSet<DomainPattern> =
        opened.flat_map(|names| names.iter().map(|(pattern, _)| pattern.clone()).collect::<Vec<_>>()).collect();

    let mut maker = Maker::new(view, names.into_iter().collect());
    let mut lines: Vec<Line> = ids.chunks(TILE).flat_map(|tile| maker.lines(tile, &ids)).collect();
    lines.push(maker.outside_line(&ids));
    Chart {
        workloads: rows.len(),
        namespaces: spans(&rows),
        rows,
        names: maker.names.iter().map(ToString::to_string).collect(),
        cells: maker.cells.into_vec(),
        lines,
        by_namespace: false,
    }
}

/// With a focus, only the rows that it has to do with.
fn is_shown(view: &View<'_>, id: GroupId) -> bool {
    let has_ports = |from, to| {
        let cell = view.groups.cell(&view.matrix, from, to);
        view.shows(from, to) && (cell.own_node || !view.open(cell.open).is_none())
    };
    view.shows_outside_of(id) || view.focus.iter().any(|&other| has_ports(id, other) || has_ports(other, id))
}

fn row(view: &View<'_>, id: GroupId) -> Row {
    let group = view.groups.get(id);
    Row {
        namespace: view.loaded.snapshot.namespace(group.namespace).name.to_string(),
        name: group.name.to_string(),
        kind: group.kind.to_string(),
        pods: group.members.len(),
    }
}

struct Maker<'v> {
    view: &'v View<'v>,
    names: Vec<DomainPattern>,
    cells: Cells,
    moot: u32,
    /// Cells between workloads that were made before. None for those that depend on something.
    certain: FxHashMap<reach::Cell, Option<u32>>,
    depending: FxHashMap<(reach::Cell, CellConditions), u32>,
}

impl<'v> Maker<'v> {
    fn new(view: &'v View<'v>, names: Vec<DomainPattern>) -> Self {
        let mut cells = Cells::default();
        let moot = cells.put(Cell::moot());
        Self { view, names, cells, moot, certain: FxHashMap::default(), depending: FxHashMap::default() }
    }

    fn lines(&mut self, rows: &[GroupId], columns: &[GroupId]) -> Vec<Line> {
        let mut lines = vec![Line::default(); rows.len()];
        for &to in columns {
            lines.iter_mut().zip(rows).for_each(|(line, &from)| line.push(self.between(from, to)));
        }
        lines.iter_mut().zip(rows).for_each(|(line, &from)| self.add_world(line, from));
        lines
    }

    /// The outside and names.
    fn add_world(&mut self, line: &mut Line, from: GroupId) {
        if !self.view.shows_outside_of(from) {
            (0..=self.names.len()).for_each(|_| line.push(self.moot));
            return;
        }
        let outside = outside(self.view, from, Direction::Egress);
        line.push(self.cells.put(outside.clone()));
        let by_address = self.cells.put(by_address(&outside));
        let own = self.view.names_to(from);
        let own: FxHashMap<&DomainPattern, &Reachable> = own.iter().map(|(pattern, open)| (pattern, open)).collect();
        for at in 0..self.names.len() {
            let cell = match own.get_key_value(&self.names[at]) {
                Some((pattern, traffic)) => {
                    let pair = Pair { from: PairEnd::Workload(from), to: PairEnd::Name(pattern, traffic) };
                    let conditions = pair.describe_relative(self.view).into_iter().map(|one| one.text).collect();
                    self.cells.put(Cell { conditions, ..cell(self.view.narrow(traffic)) })
                }
                None => by_address,
            };
            line.push(cell);
        }
    }

    fn outside_line(&mut self, columns: &[GroupId]) -> Line {
        let mut line = Line::default();
        for &to in columns {
            let cell = match self.view.shows_outside_of(to) {
                true => outside(self.view, to, Direction::Ingress),
                false => Cell::moot(),
            };
            line.push(self.cells.put(cell));
        }
        (0..=self.names.len()).for_each(|_| line.push(self.moot));
        line
    }

    fn between(&mut self, from: GroupId, to: GroupId) -> u32 {
        let view = self.view;
        if !view.shows(from, to) || (from == to && view.groups.get(from).is_lone_pod()) {
            return self.moot;
        }
        let cell = view.groups.cell(&view.matrix, from, to);
        let certain = *self.certain.entry(cell).or_insert_with(|| {
            let traffic = view.open(cell.open);
            traffic.is_certain().then(|| self.cells.put(Cell { own_node: cell.own_node, ..self::cell(traffic) }))
        });
        certain.unwrap_or_else(|| {
            let conditions = view.groups.conditions(&view.matrix, from, to);
            *self.depending.entry((cell, conditions)).or_insert_with(|| {
                let traffic = view.open(cell.open);
                let conditions = conditions.describe(&view.matrix, &traffic.depends());
                self.cells.put(Cell { own_node: cell.own_node, conditions, ..self::cell(traffic) })
            })
        })
    }
}

fn cell(traffic: Reachable) -> Cell {
    Cell { maybe: traffic.depends(), ..Cell::of(traffic.open) }
}

/// What is open to some address outside, and to which.
fn outside(view: &View<'_>, row: GroupId, direction: Direction) -> Cell {
    const SHOWN: usize = 12;
    let ranges = match direction {
        Direction::Egress => view.outside_to(row),
        Direction::Ingress => view.outside_from(row),
    };
    let mut by_traffic: Vec<(Reachable, Vec<String>)> = Vec::new();
    let mut conditions: Vec<String> = Vec::new();
    for outside in ranges.iter() {
        let traffic = view.narrow(&outside.traffic);
        if !traffic.is_certain() {
            let (own, other) = (PairEnd::Workload(row), PairEnd::Outside(outside));
            let pair = match direction {
                Direction::Egress => Pair { from: own, to: other },
                Direction::Ingress => Pair { from: other, to: own },
            };
            let found = pair.describe_relative(view).into_iter().map(|one| one.text);
            conditions.extend(found.filter(|text| !conditions.contains(text)).collect::<Vec<_>>());
        }
        let text = range_text(outside.range);
        match by_traffic.iter_mut().find(|(known, _)| *known == traffic) {
            Some((_, texts)) => texts.push(text),
            None => by_traffic.push((traffic, vec![text])),
        }
    }
    let open = by_traffic.iter().fold(Reachable::default(), |all, (traffic, _)| all.union(traffic));
    if by_traffic.len() <= 1 {
        return Cell { conditions, ..cell(open) };
    }
    let details = by_traffic.iter().map(|(traffic, texts)| {
        let more = texts.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!(" and {more} ranges more") } else { String::new() };
        format!("{traffic}: {}{more}", texts[..texts.len().min(SHOWN)].join(", "))
    });
    Cell { in_part: true, details: details.collect(), conditions, ..cell(open) }
}

/// A name that no rule of the row speaks of is as open as the address that it has.
fn by_address(outside: &Cell) -> Cell {
    if !outside.in_part {
        return outside.clone();
    }
    Cell { maybe: outside.open.clone(), conditions: vec!["on the address of the name".to_owned()], ..Cell::default() }
}
