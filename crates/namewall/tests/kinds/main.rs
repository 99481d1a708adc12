//! What lies outside of the code agrees with the table of kinds (`crates/cluster/src/kinds`): the roles and definitions
//! in `deploy`, and the tables in the documentation. A test that fails names the row that is missing.
//!
//! Files that are made from the table are written by `UPDATE_EXPECT=1 cargo test -p namewall --test kinds`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod files;
mod roles;

use files::{Made, read};
use namewall_cluster::kinds::{KINDS, Kind, ObjectScope};
use namewall_kubernetes::crds;
use std::process::Command;

#[test]
fn the_definitions_of_the_chart_are_those_that_crds_prints() {
    let definitions = crds::to_yaml(&crds::definitions()).unwrap();
    let text = format!("# What `namewall crds` prints; kept so by crates/namewall/tests/kinds.\n{definitions}");
    Made { path: "deploy/chart/namewall/crds/crds.yaml", text }.check();
}

#[test]
fn the_table_of_definitions_has_every_kind() {
    let rows: String = crds::kinds().into_iter().map(definition_row).collect();
    let header = "| Kind | Group and version | Short | Scope | Whose |\n|---|---|---|---|---|\n";
    Made::section("docs/crds.md", header, &rows).check();
}

fn definition_row(kind: &'static Kind) -> String {
    let (first, others) = kind.versions.split_first().unwrap();
    let mut versions = format!("`{}/{first}`", kind.group);
    others.iter().for_each(|version| versions += &format!(", `{version}`"));
    let short: Vec<String> = kind.short_names.iter().map(|name| format!("`{name}` ")).collect();
    let scope = if kind.scope == ObjectScope::Cluster { "cluster" } else { "namespace" };
    let publisher = kind.definition.unwrap().publisher;
    format!("| {} | {versions} | {}| {scope} | {publisher} |\n", kind.name, short.concat())
}

/// Fails with the kinds that a text does not name.
fn names_kinds(place: &str, text: &str, kinds: &[&Kind]) {
    let words: Vec<&str> = words(text).collect();
    let is_missing = |kind: &&&Kind| !words.contains(&singular(kind.name));
    let missing: Vec<&str> = kinds.iter().filter(is_missing).map(|kind| kind.name).collect();
    assert!(missing.is_empty(), "{place} does not name {}", missing.join(", "));
}

/// Fails also with kinds that a text names and that are others, or in no row of the table.
fn names_only_kinds(place: &str, text: &str, kinds: &[&Kind]) {
    names_kinds(place, text, kinds);
    let is_name = |word: &&str| word.chars().filter(char::is_ascii_uppercase).count() > 1;
    let is_stale = |word: &&str| !kinds.iter().any(|kind| singular(kind.name) == *word);
    let stale: Vec<&str> = words(text).filter(is_name).filter(is_stale).collect();
    assert!(stale.is_empty(), "{place} names {}, which the table of kinds does not have there", stale.join(", "));
}

/// The words of a text. Kinds may be written in the plural, as in "statuses of DNSNameResolvers".
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric()).map(singular)
}

fn singular(word: &str) -> &str {
    word.strip_suffix('s').unwrap_or(word)
}

/// The row of a Markdown table that begins with this cell.
fn row(path: &str, cell: &str) -> String {
    let text = read(path);
    let found = text.lines().find(|line| line.starts_with(&format!("| {cell} |")));
    found.unwrap_or_else(|| panic!("{path} has no row `{cell}`")).to_owned()
}

#[test]
fn the_readme_names_every_kind_that_is_read() {
    let of =
        |is_it: &dyn Fn(&Kind) -> bool| -> Vec<&Kind> { KINDS.iter().copied().filter(|kind| is_it(kind)).collect() };
    let policies = row("README.md", "policies");
    names_only_kinds("README.md, policies,", &policies, &of(&|kind| kind.is_policy()));
    for version in KINDS.iter().filter(|kind| kind.is_policy()).flat_map(|kind| kind.served()) {
        let (name, written) = (version.kind.name, format!("`{}`", version.api_version()));
        assert!(policies.contains(&written), "README.md, policies, does not have {written} of {name}");
    }
    names_only_kinds("README.md, workloads,", &row("README.md", "workloads"), &of(&Kind::is_workload));
    let rest = of(&|kind| !kind.is_policy() && !kind.is_workload());
    names_only_kinds("README.md, the rest,", &row("README.md", "the rest"), &rest);
}

#[test]
fn the_installation_guide_names_every_definition_and_what_is_written() {
    names_only_kinds("docs/install.md, definitions,", &row("docs/install.md", "definitions"), &crds::kinds());
    let written: Vec<&Kind> =
        KINDS.iter().copied().filter(|kind| !kind.is_policy() && kind.write_access().next().is_some()).collect();
    let roles = row("docs/install.md", "a ServiceAccount and roles for each");
    names_kinds("docs/install.md, roles,", &roles, &written);
}

#[test]
fn the_help_of_crds_says_which_kinds_are_our_own() {
    let help = Command::new(env!("CARGO_BIN_EXE_namewall")).args(["crds", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let own: Vec<&str> = crds::kinds().iter().filter(|kind| kind.is_own()).map(|kind| kind.name).collect();
    let said = format!("{} are namewall's own", own.join(" and "));
    assert!(help.contains(&said), "`namewall crds --help` does not say: {said}");
}
