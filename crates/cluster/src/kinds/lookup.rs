//! Finds kinds in the table.

use super::{Component, KINDS, Kind, ObjectScope};
use strsim::osa_distance;

/// The kinds of policies, in the order in which they are lowered.
pub fn policies() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().copied().filter(|kind| kind.is_policy())
}

/// The kinds that a component watches.
pub fn watched(by: Component) -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().copied().filter(move |kind| kind.watched_by.contains(&by))
}

/// The kinds of a name. One name may be a kind of several groups.
pub fn named(name: &str) -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().copied().filter(move |kind| kind.name == name)
}

/// How an object of a manifest is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Recognised {
    Read(&'static Kind),
    /// The kind is known and this version of it is not.
    OtherVersion(&'static Kind),
    No,
}

pub(crate) fn recognise(api_version: &str, name: &str) -> Recognised {
    let version = api_version.split_once('/').map_or(api_version, |(_, version)| version);
    match named(name).find(|kind| is_of(kind, api_version)) {
        Some(kind) if kind.any_version || kind.versions.contains(&version) => Recognised::Read(kind),
        Some(kind) => Recognised::OtherVersion(kind),
        None => Recognised::No,
    }
}

/// A slip of the pen changes at most so many letters of a kind's name.
const SLIP: usize = 2;

/// The policy kind that a user means who writes this: with the plural, with other capitals, with a slip of the pen or,
/// in the group of the kind, cut off. None if there is none.
pub(crate) fn meant_policy(api_version: &str, written: &str) -> Option<&'static Kind> {
    let is_exact = |kind: &&Kind| written.eq_ignore_ascii_case(kind.name) || written.eq_ignore_ascii_case(kind.plural);
    let apart = |kind: &'static Kind| (osa_distance(kind.name, written), kind);
    let nearest = || policies().map(apart).filter(|(apart, _)| *apart <= SLIP).min_by_key(|(apart, _)| *apart);
    let is_begun = |kind: &&Kind| !written.is_empty() && kind.name.starts_with(written) && is_of(kind, api_version);
    policies().find(is_exact).or_else(|| nearest().map(|(_, kind)| kind)).or_else(|| policies().find(is_begun))
}

/// True if the kind belongs to the group of an `apiVersion`, whatever the version.
pub(crate) fn is_of(kind: &Kind, api_version: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    kind.group == group || kind.former_groups.contains(&group)
}

/// All groups and versions in which kinds of this name are read.
pub(crate) fn api_versions(name: &str) -> String {
    let versions: Vec<String> = named(name).flat_map(Kind::served).map(|one| one.api_version()).collect();
    versions.join(" or ")
}

/// True if objects of kinds with this name have no namespace.
pub(crate) fn is_cluster_wide(name: &str) -> bool {
    named(name).any(|kind| kind.scope == ObjectScope::Cluster)
}

/// True for the names of kinds whose loss would widen access.
pub(crate) fn is_policy(name: &str) -> bool {
    named(name).any(Kind::is_policy)
}
