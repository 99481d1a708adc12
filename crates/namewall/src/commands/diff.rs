//! `namewall diff`.

use crate::cli::{Diff, DiffFormat};
use crate::commands::explain::allowed_json;
use crate::commands::matrix::{name_json, rows};
use crate::conditions::{Notes, conditions_json};
use crate::input::Loaded;
use crate::output::{self, BAD, GOOD, WARN};
use crate::unread::Unread;
use anyhow::{Result, bail};
use namewall_policy::diff::{DiffEnd, Difference, DifferenceKind, Side, diff};
use namewall_policy::reach::Reachable;
use namewall_policy::unknown::{Described, EndName, Party};
use namewall_policy::{Condition, Dependence};
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;

pub(crate) fn run(args: &Diff) -> Result<ExitCode> {
    if args.old.as_os_str() == "-" && args.new.as_os_str() == "-" {
        bail!("standard input can be OLD or NEW, not both");
    }
    let old = Loaded::from_paths(&[&args.old], &args.settings)?;
    let new = Loaded::from_paths(&[&args.new], &args.settings)?;
    old.report_errors();
    new.report_errors();
    let unread = Unread::default().with(args.lenient).and(&old.unread).and(&new.unread);
    let (old_matrix, new_matrix) = (old.matrix(), new.matrix());
    let (old_rows, new_rows) = (rows(args.by, &old_matrix), rows(args.by, &new_matrix));
    let sides = [
        Side { snapshot: &old.snapshot, matrix: &old_matrix, groups: &old_rows },
        Side { snapshot: &new.snapshot, matrix: &new_matrix, groups: &new_rows },
    ];
    let differences = Differences { loaded: [&old, &new], sides, all: diff(sides[0], sides[1]) };
    let mut out = output::stdout();
    let printed = match args.output {
        DiffFormat::Text => differences.print(&mut out),
        DiffFormat::Json => differences.print_json(&mut out),
        DiffFormat::Json2 => unread.wrap(&mut out, "differences", |out| differences.print_json(out)),
        DiffFormat::Md => differences.print_markdown(&mut out),
    };
    output::unless_closed(printed.and_then(|()| Ok(out.flush()?)))?;
    Ok(unread.exit(if differences.all.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) }))
}

/// What differs between two clusters.
struct Differences<'a> {
    /// Before and after.
    loaded: [&'a Loaded; 2],
    sides: [Side<'a>; 2],
    all: Vec<Difference>,
}

impl Differences<'_> {
    fn print(&self, out: &mut impl Write) -> Result<()> {
        let mut notes = Notes::default();
        for item in &self.all {
            let (from, to) = (&item.from, &item.to);
            let [before, after] = self.marked(item, &mut notes);
            match item.kind() {
                DifferenceKind::Added => writeln!(out, "{GOOD}+{GOOD:#} {from} -> {to}: {after}")?,
                DifferenceKind::Removed => writeln!(out, "{BAD}-{BAD:#} {from} -> {to}: {before}")?,
                DifferenceKind::Changed => {
                    writeln!(out, "{WARN}~{WARN:#} {from} -> {to}: {after}  (was {before})")?;
                }
            }
        }
        notes.print(out, &self.loaded[1].snapshot)?;
        writeln!(out, "{}", self.summary())?;
        Ok(())
    }

    fn print_markdown(&self, out: &mut impl Write) -> Result<()> {
        writeln!(out, "### Connections that change\n\n{}\n", self.summary())?;
        if self.all.is_empty() {
            return Ok(());
        }
        let mut notes = Notes::default();
        writeln!(out, "| | from | to | before | after |\n|---|---|---|---|---|")?;
        for item in &self.all {
            let [before, after] = self.marked(item, &mut notes);
            writeln!(out, "| {} | `{}` | `{}` | {before} | {after} |", change(item), item.from, item.to)?;
        }
        notes.print_markdown(out, &self.loaded[1].snapshot)
    }

    /// What is open before and after, with the numbers of the notes that say what it depends on.
    fn marked(&self, item: &Difference, notes: &mut Notes) -> [String; 2] {
        let conditions = item.depends_on(self.sides[0], self.sides[1]);
        let is_of_pod = |condition: &Condition<Party>| match &condition.on {
            Dependence::Address { end, .. } => matches!(end_of(item, *end), DiffEnd::Workload { .. }),
            _ => false,
        };
        notes.pod_network |= conditions.iter().flatten().any(is_of_pod);
        let [before, after] = self.describe(&conditions, |party| named(end_of(item, party), party.to_string()));
        let mut mark = |open: &Reachable, conditions: &[Described]| format!("{open}{}", notes.mark(conditions));
        [mark(&item.before, &before), mark(&item.after, &after)]
    }

    /// Conditions before and after, with a name for each end.
    fn describe(
        &self,
        conditions: &[Vec<Condition<Party>>; 2],
        name_of: impl Fn(Party) -> EndName,
    ) -> [Vec<Described>; 2] {
        [0, 1].map(|at| {
            let Loaded { snapshot, program, .. } = self.loaded[at];
            let words = |one: &Condition<Party>| one.describe_as(snapshot, program, &|party| name_of(*party));
            conditions[at].iter().map(words).collect()
        })
    }

    fn summary(&self) -> String {
        if self.all.is_empty() {
            return "The same connections are open before and after.".to_owned();
        }
        let count = |kind| self.all.iter().filter(|item| item.kind() == kind).count();
        let (added, removed) = (count(DifferenceKind::Added), count(DifferenceKind::Removed));
        format!("{added} added, {removed} removed, {} changed", count(DifferenceKind::Changed))
    }

    /// One entry a line, written as it is made: there may be millions.
    fn print_json(&self, out: &mut impl Write) -> Result<()> {
        for (at, item) in self.all.iter().enumerate() {
            write!(out, "{}{}", if at == 0 { "[\n" } else { ",\n" }, self.as_json(item))?;
        }
        writeln!(out, "{}", if self.all.is_empty() { "[]" } else { "\n]" })?;
        Ok(())
    }

    fn as_json(&self, item: &Difference) -> Value {
        let mut json = json!({
            "change": change(item),
            "from": end_json(&item.from),
            "to": end_json(&item.to),
            "before": allowed_json(&item.before.open),
            "after": allowed_json(&item.after.open),
            // ICMP and the other protocols without ports, which the form of the matrix has no place for.
            "other": { "before": item.before.open.portless, "after": item.after.open.portless },
            "kind": { "from": item.from.kind(), "to": item.to.kind() },
        });
        if !item.before.is_certain() || !item.after.is_certain() {
            let depends = |side: &Reachable| allowed_json(&side.depends());
            let other = |side: &Reachable| side.depends().portless;
            json["depends"] = json!({
                "before": depends(&item.before),
                "after": depends(&item.after),
                "other": { "before": other(&item.before), "after": other(&item.after) },
            });
            let conditions = item.depends_on(self.sides[0], self.sides[1]);
            let [before, after] = self.describe(&conditions, |party| {
                let end = end_of(item, party);
                named(end, end.to_string())
            });
            json["dependsOn"] = json!({ "before": conditions_json(&before), "after": conditions_json(&after) });
        }
        if let DiffEnd::Name(pattern) = &item.to {
            json["name"] = name_json(pattern);
        }
        json
    }
}

fn change(item: &Difference) -> &'static str {
    match item.kind() {
        DifferenceKind::Added => "added",
        DifferenceKind::Removed => "removed",
        DifferenceKind::Changed => "changed",
    }
}

fn end_of(item: &Difference, party: Party) -> &DiffEnd {
    match party {
        Party::Source => &item.from,
        Party::Target => &item.to,
    }
}

/// How a condition speaks of an end by this name.
fn named(end: &DiffEnd, name: String) -> EndName {
    match end {
        DiffEnd::Workload { .. } => EndName::Workload(name),
        DiffEnd::Outside(_) => EndName::Host(name),
        DiffEnd::Name(_) => EndName::Name(name),
    }
}

/// Ranges keep the form they have in `matrix -o json`.
fn end_json(end: &DiffEnd) -> String {
    match end {
        DiffEnd::Outside(range) => range.to_string(),
        other => other.to_string(),
    }
}
