//! `namewall diff`.

use crate::cli::{Diff, DiffFormat};
use crate::commands::explain::allowed_json;
use crate::commands::matrix::{name_json, rows};
use crate::input::Loaded;
use crate::output::{self, BAD, GOOD, WARN};
use crate::unread::Unread;
use anyhow::{Result, bail};
use namewall_policy::diff::{Difference, DifferenceKind, End, Side, diff};
use namewall_policy::reach::Reachable;
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
    let differences = diff(
        Side { snapshot: &old.snapshot, matrix: &old_matrix, groups: &old_rows },
        Side { snapshot: &new.snapshot, matrix: &new_matrix, groups: &new_rows },
    );
    let mut out = output::stdout();
    let printed = match args.output {
        DiffFormat::Text => print(&mut out, &differences),
        DiffFormat::Json => print_json(&mut out, &differences),
        DiffFormat::Json2 => unread.wrap(&mut out, "differences", |out| print_json(out, &differences)),
        DiffFormat::Md => print_markdown(&mut out, &differences),
    };
    output::unless_closed(printed.and_then(|()| Ok(out.flush()?)))?;
    Ok(unread.exit(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) }))
}

fn print(out: &mut impl Write, differences: &[Difference]) -> Result<()> {
    for item in differences {
        let (from, to) = (&item.from, &item.to);
        match item.kind() {
            DifferenceKind::Added => writeln!(out, "{GOOD}+{GOOD:#} {from} -> {to}: {}", item.after)?,
            DifferenceKind::Removed => writeln!(out, "{BAD}-{BAD:#} {from} -> {to}: {}", item.before)?,
            DifferenceKind::Changed => {
                writeln!(out, "{WARN}~{WARN:#} {from} -> {to}: {}  (was {})", item.after, item.before)?;
            }
        }
    }
    writeln!(out, "{}", summary(differences))?;
    Ok(())
}

fn summary(differences: &[Difference]) -> String {
    if differences.is_empty() {
        return "The same connections are open before and after.".to_owned();
    }
    let count = |kind| differences.iter().filter(|item| item.kind() == kind).count();
    let (added, removed) = (count(DifferenceKind::Added), count(DifferenceKind::Removed));
    format!("{added} added, {removed} removed, {} changed", count(DifferenceKind::Changed))
}

/// One entry a line, written as it is made: there may be millions.
fn print_json(out: &mut impl Write, differences: &[Difference]) -> Result<()> {
    for (at, item) in differences.iter().enumerate() {
        write!(out, "{}{}", if at == 0 { "[\n" } else { ",\n" }, as_json(item))?;
    }
    writeln!(out, "{}", if differences.is_empty() { "[]" } else { "\n]" })?;
    Ok(())
}

fn as_json(item: &Difference) -> Value {
    let change = match item.kind() {
        DifferenceKind::Added => "added",
        DifferenceKind::Removed => "removed",
        DifferenceKind::Changed => "changed",
    };
    let mut json = json!({
        "change": change,
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
        json["depends"] = json!({ "before": depends(&item.before), "after": depends(&item.after) });
    }
    if let End::Name(pattern) = &item.to {
        json["name"] = name_json(pattern);
    }
    json
}

/// Ranges keep the form they have in `matrix -o json`.
fn end_json(end: &End) -> String {
    match end {
        End::Outside(range) => range.to_string(),
        other => other.to_string(),
    }
}

fn print_markdown(out: &mut impl Write, differences: &[Difference]) -> Result<()> {
    writeln!(out, "### Connections that change\n\n{}\n", summary(differences))?;
    if differences.is_empty() {
        return Ok(());
    }
    writeln!(out, "| | from | to | before | after |\n|---|---|---|---|---|")?;
    for item in differences {
        let mark = match item.kind() {
            DifferenceKind::Added => "added",
            DifferenceKind::Removed => "removed",
            DifferenceKind::Changed => "changed",
        };
        writeln!(out, "| {mark} | `{}` | `{}` | {} | {} |", item.from, item.to, item.before, item.after)?;
    }
    Ok(())
}
