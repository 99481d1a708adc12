//! Two ends of a view, and what connections between them depend on (S10.5).

use super::{View, range_text};
use namewall_policy::domain::DomainPattern;
use namewall_policy::reach::{GroupId, GroupPair, OutsideRange, Reachable};
use namewall_policy::unknown::{Described, EndName, Party};
use namewall_policy::{Condition, Endpoint};

/// An end of a pair.
#[derive(Clone, Copy)]
pub(super) enum PairEnd<'e> {
    Workload(GroupId),
    Outside(&'e OutsideRange),
    Name(&'e DomainPattern, &'e Reachable),
}

#[derive(Clone, Copy)]
pub(super) struct Pair<'e> {
    pub(super) from: PairEnd<'e>,
    pub(super) to: PairEnd<'e>,
}

impl PairEnd<'_> {
    pub(super) fn name(self, view: &View<'_>) -> String {
        match self {
            Self::Workload(id) => view.name(id),
            Self::Outside(outside) => outside.range.to_string(),
            Self::Name(pattern, _) => pattern.to_string(),
        }
    }

    pub(super) fn kind<'v>(self, view: &'v View<'_>) -> &'v str {
        match self {
            Self::Workload(id) => &view.groups.get(id).kind,
            Self::Outside(_) => "Outside",
            Self::Name(..) => "Name",
        }
    }

    fn row(self) -> Option<GroupId> {
        match self {
            Self::Workload(id) => Some(id),
            Self::Outside(_) | Self::Name(..) => None,
        }
    }

    /// How a condition speaks of it by its own name.
    fn own_name(self, view: &View<'_>) -> EndName {
        match self {
            Self::Workload(id) => EndName::Workload(view.name(id)),
            Self::Outside(outside) => EndName::Host(range_text(outside.range)),
            Self::Name(pattern, _) => EndName::Name(pattern.to_string()),
        }
    }

    /// How a condition speaks of it without its name.
    fn relative_name(self, party: Party) -> EndName {
        match self {
            Self::Workload(_) => EndName::Workload(party.to_string()),
            Self::Outside(_) => EndName::Host(party.to_string()),
            Self::Name(..) => EndName::Name(party.to_string()),
        }
    }
}

impl<'e> Pair<'e> {
    fn end(self, party: Party) -> PairEnd<'e> {
        match party {
            Party::Source => self.from,
            Party::Target => self.to,
        }
    }

    /// What the connections that were asked for depend on; nothing where all is known.
    pub(super) fn depends_on(self, view: &View<'_>) -> Vec<Condition<Party>> {
        // An end that is no workload has no row.
        let is_target = |end: &Endpoint| end.workload.map(|id| view.groups.of(id)) == self.to.row();
        self.conditions(view).into_iter().map(|one| one.relative(is_target)).collect()
    }

    fn conditions(self, view: &View<'_>) -> Vec<Condition> {
        let (matrix, groups) = (&view.matrix, &view.groups);
        let in_doubt = |traffic: &Reachable| view.narrow(traffic).depends();
        let example = |row: GroupId| groups.get(row).example();
        match (self.from, self.to) {
            (PairEnd::Workload(from), PairEnd::Workload(to)) => {
                let open = view.open(groups.cell(matrix, from, to).open);
                groups.depends_on(matrix, GroupPair { from, to }, &open.depends())
            }
            (PairEnd::Workload(from), PairEnd::Outside(range)) => {
                matrix.outside_to_depends_on(example(from), range, &in_doubt(&range.traffic))
            }
            (PairEnd::Workload(from), PairEnd::Name(pattern, traffic)) => {
                matrix.name_depends_on(example(from), pattern, &in_doubt(traffic))
            }
            (PairEnd::Outside(range), PairEnd::Workload(to)) => {
                matrix.outside_from_depends_on(range, example(to), &in_doubt(&range.traffic))
            }
            _ => Vec::new(),
        }
    }

    /// The same by the names of the ends.
    pub(super) fn describe(self, view: &View<'_>) -> Vec<Described> {
        self.describe_as(view, &|party| self.end(*party).own_name(view))
    }

    /// The same without the names of the ends: equal for many pairs.
    pub(super) fn describe_relative(self, view: &View<'_>) -> Vec<Described> {
        self.describe_as(view, &|party| self.end(*party).relative_name(*party))
    }

    fn describe_as(self, view: &View<'_>, name_of: &dyn Fn(&Party) -> EndName) -> Vec<Described> {
        let (snapshot, program) = (&view.loaded.snapshot, &view.loaded.program);
        self.depends_on(view).iter().map(|one| one.describe_as(snapshot, program, name_of)).collect()
    }

    /// Whether something depends on where pods live.
    pub(super) fn depends_on_pod_network(self, view: &View<'_>) -> bool {
        use namewall_policy::Dependence::Address;
        let is_pod = |party| matches!(self.end(party), PairEnd::Workload(_));
        self.depends_on(view).iter().any(|one| matches!(one.on, Address { end, .. } if is_pod(end)))
    }
}
