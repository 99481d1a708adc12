//! For reading: per workload, to whom it may open what.

use super::{View, range_text};
use crate::output::{GOOD, SOFT, STRONG};
use anyhow::Result;
use namewall_policy::model::WorkloadId;
use namewall_policy::port::Traffic;
use namewall_policy::reach::OutsideRange;
use std::collections::BTreeMap;
use std::io::Write;

pub(super) fn print(out: &mut impl Write, view: &View<'_>) -> Result<()> {
    if view.loaded.snapshot.workloads.is_empty() {
        writeln!(out, "There is no workload in the input, so nobody to reach or be reached.")?;
    }
    for from in view.workloads() {
        let shown: Vec<WorkloadId> = view.workloads().filter(|&to| view.shows(from, to) && to != from).collect();
        if shown.is_empty() && !view.shows_outside_of(from) {
            continue;
        }
        let kind = view.loaded.snapshot.workload(from).kind;
        writeln!(out, "{STRONG}{}{STRONG:#} {SOFT}{kind}{SOFT:#}", view.name(from))?;
        print_workloads(out, view, from, &shown)?;
        if view.shows_outside_of(from) {
            for (pattern, traffic) in view.matrix.names_to(from).iter() {
                let traffic = view.narrow(&traffic.open);
                if !traffic.is_none() {
                    writeln!(out, "  → {GOOD}{}{GOOD:#}  name {}", traffic, pattern)?;
                }
            }
            print_outside(out, view, "→ {} outside", &view.matrix.outside_to(from))?;
            print_outside(out, view, "← {} from outside", &view.matrix.outside_from(from))?;
        }
        writeln!(out)?;
    }
    out.flush()?;
    Ok(())
}

/// Destinations with the same open connections share a line.
fn print_workloads(out: &mut impl Write, view: &View<'_>, from: WorkloadId, shown: &[WorkloadId]) -> Result<()> {
    let mut by_traffic: BTreeMap<u32, Vec<WorkloadId>> = BTreeMap::new();
    for &to in shown {
        by_traffic.entry(view.matrix.between(from, to).0).or_default().push(to);
    }
    let mut any = false;
    for (id, targets) in by_traffic {
        let traffic = view.open(namewall_policy::reach::CellId(id));
        if traffic.is_none() {
            continue;
        }
        any = true;
        let everyone = targets.len() == shown.len() && targets.len() > 2;
        let names = if everyone { "every workload".to_owned() } else { listed(view, &targets) };
        writeln!(out, "  → {GOOD}{traffic}{GOOD:#}  {names}")?;
    }
    if !any && !shown.is_empty() {
        writeln!(out, "  → nothing to any workload")?;
    }
    Ok(())
}

fn listed(view: &View<'_>, ids: &[WorkloadId]) -> String {
    const SHOWN: usize = 8;
    let names: Vec<String> = ids.iter().take(SHOWN).map(|&id| view.name(id)).collect();
    let more = ids.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", names.join(", "))
}

fn print_outside(out: &mut impl Write, view: &View<'_>, form: &str, ranges: &[OutsideRange]) -> Result<()> {
    let mut by_traffic: Vec<(Traffic, Vec<String>)> = Vec::new();
    for outside in ranges {
        let traffic = view.narrow(&outside.traffic.open);
        let text = range_text(outside.range);
        match by_traffic.iter_mut().find(|(known, _)| *known == traffic) {
            Some((_, texts)) => texts.push(text),
            None => by_traffic.push((traffic, vec![text])),
        }
    }
    let (mark, rest) = form.split_once("{}").unwrap_or((form, ""));
    if by_traffic.iter().all(|(traffic, _)| traffic.is_none()) {
        writeln!(out, "  {mark}nothing{rest}")?;
        return Ok(());
    }
    let uniform = by_traffic.len() == 1;
    for (traffic, texts) in by_traffic.iter().filter(|(traffic, _)| !traffic.is_none()) {
        let texts = if uniform { String::new() } else { format!(": {}", texts.join(", ")) };
        writeln!(out, "  {mark}{GOOD}{traffic}{GOOD:#} {rest}{texts}", rest = rest.trim_start())?;
    }
    Ok(())
}
