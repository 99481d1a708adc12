//! For reading: what each row may open, and to whom.

use super::pair::{Pair, PairEnd};
use super::{View, range_text};
use crate::commands::explain::pod_network_hint;
use crate::output::{GOOD, SOFT, STRONG, WARN};
use anyhow::Result;
use namewall_policy::model::Direction;
use namewall_policy::reach::{CellId, GroupId, OutsideRange, Reachable};
use namewall_policy::unknown::Described;
use std::collections::{BTreeMap, HashSet};
use std::io::Write;

pub(super) fn print(out: &mut impl Write, view: &View<'_>) -> Result<()> {
    if view.groups.is_empty() {
        writeln!(out, "The input has no workload, so there is no connection to judge.")?;
    }
    let mut notes = Notes::default();
    for from in view.rows() {
        let is_shown = |&to: &GroupId| view.shows(from, to) && (to != from || !view.groups.get(from).is_lone_pod());
        let shown: Vec<GroupId> = view.rows().filter(is_shown).collect();
        if shown.is_empty() && !view.shows_outside_of(from) {
            continue;
        }
        writeln!(out, "{STRONG}{}{STRONG:#} {SOFT}{}{SOFT:#}", view.name(from), kind(view, from))?;
        let more = print_rows(out, view, from, &shown)?;
        notes.own_node |= more.own_node;
        notes.pod_network |= more.pod_network;
        if view.shows_outside_of(from) {
            for (pattern, whole) in view.names_to(from).iter() {
                let traffic = view.narrow(whole);
                if !traffic.is_none() {
                    let style = if traffic.is_certain() { GOOD } else { WARN };
                    writeln!(out, "  → {style}{traffic}{style:#}  name {pattern}")?;
                    let pair = Pair { from: PairEnd::Workload(from), to: PairEnd::Name(pattern, whole) };
                    print_conditions(out, pair.describe(view))?;
                }
            }
            print_outside(out, view, from, Direction::Egress)?;
            print_outside(out, view, from, Direction::Ingress)?;
        }
        writeln!(out)?;
    }
    if notes.own_node {
        writeln!(out, "* Pods on the network of a node open everything to the pods of that node.")?;
    }
    if notes.pod_network {
        writeln!(out, "{SOFT}hint: {}{SOFT:#}", pod_network_hint(&view.loaded.snapshot))?;
    }
    out.flush()?;
    Ok(())
}

/// What is said once, at the end.
#[derive(Default)]
struct Notes {
    /// Some lines have a star.
    own_node: bool,
    /// Some lines depend on where pods live.
    pod_network: bool,
}

/// `Deployment, 5 pods`.
fn kind(view: &View<'_>, id: GroupId) -> String {
    let group = view.groups.get(id);
    match group.members.len() {
        1 => group.kind.to_string(),
        count => format!("{}, {count} pods", group.kind),
    }
}

/// Destinations with the same open connections share a line.
fn print_rows(out: &mut impl Write, view: &View<'_>, from: GroupId, shown: &[GroupId]) -> Result<Notes> {
    let mut notes = Notes::default();
    let mut by_traffic: BTreeMap<(u32, bool), Vec<GroupId>> = BTreeMap::new();
    for &to in shown {
        let cell = view.groups.cell(&view.matrix, from, to);
        by_traffic.entry((cell.open.0, cell.own_node)).or_default().push(to);
    }
    let mut any = false;
    for ((id, own_node), targets) in by_traffic {
        let traffic = view.open(CellId(id));
        if traffic.is_none() && !own_node {
            continue;
        }
        any = true;
        notes.own_node |= own_node;
        let everyone = targets.len() == shown.len() && targets.len() > 2;
        let names = if everyone { "every workload".to_owned() } else { listed(view, &targets) };
        let star = if own_node { " *" } else { "" };
        let style = if traffic.is_certain() { GOOD } else { WARN };
        writeln!(out, "  → {style}{traffic}{style:#}{star}  {names}")?;
        if !traffic.is_certain() {
            let pairs = targets.iter().map(|&to| Pair { from: PairEnd::Workload(from), to: PairEnd::Workload(to) });
            notes.pod_network |= pairs.clone().any(|pair| pair.depends_on_pod_network(view));
            print_conditions(out, pairs.flat_map(|pair| pair.describe(view)))?;
        }
    }
    if !any && !shown.is_empty() {
        writeln!(out, "  → nothing to any workload")?;
    }
    Ok(notes)
}

/// What a line depends on, each thing once.
fn print_conditions(out: &mut impl Write, conditions: impl IntoIterator<Item = Described>) -> Result<()> {
    const SHOWN: usize = 4;
    let mut texts: Vec<String> = conditions.into_iter().map(|one| one.text).collect();
    let mut seen = HashSet::new();
    texts.retain(|text| seen.insert(text.clone()));
    let more = texts.len().saturating_sub(SHOWN);
    for text in texts.iter().take(SHOWN) {
        writeln!(out, "      {SOFT}{text}{SOFT:#}")?;
    }
    if more > 0 {
        writeln!(out, "      {SOFT}and {more} more{SOFT:#}")?;
    }
    Ok(())
}

fn listed(view: &View<'_>, ids: &[GroupId]) -> String {
    const SHOWN: usize = 8;
    let names: Vec<String> = ids.iter().take(SHOWN).map(|&id| view.name(id)).collect();
    let more = ids.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", names.join(", "))
}

/// What is open to the outside, or from there; ranges that fare alike share a line.
fn print_outside(out: &mut impl Write, view: &View<'_>, row: GroupId, direction: Direction) -> Result<()> {
    let (mark, rest, ranges) = match direction {
        Direction::Egress => ("→", "outside", view.outside_to(row)),
        Direction::Ingress => ("←", "from outside", view.outside_from(row)),
    };
    let mut by_traffic: Vec<(Reachable, Vec<&OutsideRange>)> = Vec::new();
    for outside in ranges.iter() {
        let traffic = view.narrow(&outside.traffic);
        match by_traffic.iter_mut().find(|(known, _)| *known == traffic) {
            Some((_, alike)) => alike.push(outside),
            None => by_traffic.push((traffic, vec![outside])),
        }
    }
    if by_traffic.iter().all(|(traffic, _)| traffic.is_none()) {
        writeln!(out, "  {mark} nothing {rest}")?;
        return Ok(());
    }
    let uniform = by_traffic.len() == 1;
    for (traffic, alike) in by_traffic.iter().filter(|(traffic, _)| !traffic.is_none()) {
        let texts: Vec<String> = alike.iter().map(|outside| range_text(outside.range)).collect();
        let texts = if uniform { String::new() } else { format!(": {}", texts.join(", ")) };
        let style = if traffic.is_certain() { GOOD } else { WARN };
        writeln!(out, "  {mark} {style}{traffic}{style:#} {rest}{texts}")?;
        if !traffic.is_certain() {
            let pair = |outside| match direction {
                Direction::Egress => Pair { from: PairEnd::Workload(row), to: PairEnd::Outside(outside) },
                Direction::Ingress => Pair { from: PairEnd::Outside(outside), to: PairEnd::Workload(row) },
            };
            print_conditions(out, alike.iter().flat_map(|outside| pair(outside).describe(view)))?;
        }
    }
    Ok(())
}
