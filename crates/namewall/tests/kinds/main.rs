//! What lies outside of the code agrees with the table of kinds (`crates/cluster/src/kinds`): the roles and definitions
//! in `deploy`, and the tables in the documentation. A test that fails names the row that is missing.
//!
//! Files that are made from the table are written by `UPDATE_EXPECT=1 cargo test -p namewall --test kinds`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod files;
mod roles;

use files::{Made, read};
use namewall_cluster::kinds::{self, KINDS, Kind, ObjectScope};
use namewall_kubernetes::crds;

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

#[test]
fn the_readme_has_every_kind_that_is_read() {
    let policies: Vec<String> = by_group(|kind| kind.is_policy()).iter().map(|name| with_versions(name)).collect();
    let workloads: Vec<&str> = KINDS.iter().filter(|kind| kind.is_workload()).map(|kind| kind.name).collect();
    let (pod, templates) = workloads.split_first().unwrap();
    let is_other = |kind: &&&Kind| !kind.is_policy() && !kind.is_workload();
    let others: Vec<&str> = KINDS.iter().filter(is_other).map(|kind| kind.name).collect();
    let rows = [
        format!("| policies | {} |\n", policies.join("; ")),
        format!(
            "| workloads | {pod}; {}, whose templates stand for pods that do not exist yet |\n",
            templates.join(", ")
        ),
        format!("| the rest | {} |\n", others.join(", ")),
    ];
    Made::section("README.md", "in any mixture and order:\n\n| | |\n|---|---|\n", &rows.concat()).check();
}

/// The names of kinds: those that are part of Kubernetes first, then by group.
fn by_group(is_it: impl Fn(&Kind) -> bool) -> Vec<&'static str> {
    let mut kinds: Vec<&Kind> = KINDS.iter().copied().filter(|kind| is_it(kind)).collect();
    kinds.sort_by_key(|kind| (kind.definition.is_some(), kind.group, kind.name));
    let mut names: Vec<&str> = kinds.into_iter().map(|kind| kind.name).collect();
    names.dedup();
    names
}

/// A name with all groups and versions in which it is read.
fn with_versions(name: &str) -> String {
    let versions: Vec<String> =
        kinds::named(name).flat_map(Kind::served).map(|one| format!("`{}`", one.api_version())).collect();
    format!("{name} {}", versions.join(" and "))
}

#[test]
fn the_installation_guide_has_every_definition() {
    let (own, others): (Vec<&Kind>, Vec<&Kind>) = crds::kinds().into_iter().partition(|kind| kind.is_own());
    let names = |kinds: &[&Kind]| kinds.iter().map(|kind| kind.name).collect::<Vec<&str>>().join(", ");
    let line =
        format!("| definitions | of our own kinds: {}; in their published form: {} |\n", names(&own), names(&others));
    Made::line("docs/install.md", "| definitions |", &line).check();
}

#[test]
fn the_installation_guide_says_what_components_write() {
    let text = read("docs/install.md");
    let roles = text.lines().find(|line| line.starts_with("| a ServiceAccount and roles for each |")).unwrap();
    let is_missing = |kind: &&&Kind| {
        let is_written = !kind.is_policy() && kind.write_access().next().is_some();
        is_written && !roles.contains(kind.name)
    };
    let missing: Vec<&&Kind> = KINDS.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "docs/install.md does not say that components write {missing:?}");
}
