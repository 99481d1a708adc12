//! What workloads could exchange with pods that do not exist yet.
//!
//! A new pod may have any labels, be in any namespace, existing or new, and
//! give any of its ports any name. `space` divides all of them into parts that
//! no policy can tell apart, `imagine` adds one pod of each part to the cluster
//! and asks the matrix, and `cube` finds a short description of the parts that
//! fare the same. The policies that would select the new pod count as well.

mod cube;
mod imagine;
mod space;

pub use space::MOST_PARTS;

use crate::model::{Direction, PodSet, WorkloadId};
use crate::port::{PortSet, Protocol, Traffic};
use crate::snapshot::Snapshot;
use crate::unknown::{Condition, Party};
use cube::{Cube, describe};
use imagine::{Outcomes, outcomes};
use space::{Parts, Space};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What a workload could exchange with pods that do not exist yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exposure {
    pub workload: WorkloadId,
    /// Egress: the workload could reach the pods. Ingress: the pods could reach it.
    pub direction: Direction,
    pub peer: NewPods,
    /// What is open whatever the pods' ports are called.
    pub traffic: Traffic,
    /// What is open or closed by what the input does not say (S10.5).
    pub depends: Traffic,
    /// What `depends` depends on.
    pub depends_on: Vec<Condition<Party>>,
    /// The names of ports that make a difference.
    pub named: Vec<NamedTraffic>,
}

impl Exposure {
    /// What is open to a port of this name, if the name makes a difference.
    pub fn named(&self, protocol: Protocol, name: &str) -> Option<&NamedTraffic> {
        self.named.iter().find(|named| named.protocol == protocol && &*named.name == name)
    }

    /// Which end of the row's connections is the new pods.
    pub fn new_end(&self) -> Party {
        match self.direction {
            Direction::Egress => Party::Target,
            Direction::Ingress => Party::Source,
        }
    }
}

/// The numbers at which a port is open if it has this name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NamedTraffic {
    pub name: Arc<str>,
    pub protocol: Protocol,
    pub ports: PortSet,
    /// The numbers at which it is open or closed by what the input does not say.
    pub depends: PortSet,
    pub depends_on: Vec<Condition<Party>>,
}

/// Which pods that do not exist yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NewPods {
    /// Whatever their labels and namespace.
    All,
    /// Those in one of the sets.
    Selected(Vec<PodSet>),
    /// All that no other row of the workload and direction selects.
    Others,
}

impl fmt::Display for NewPods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all pods"),
            Self::Others => f.write_str("all other pods"),
            Self::Selected(sets) => {
                let texts: Vec<String> = sets.iter().map(ToString::to_string).collect();
                f.write_str(&texts.join("; or "))
            }
        }
    }
}

/// The rows of every workload, and the new pods that no row describes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Exposures {
    pub rows: Vec<Exposure>,
    /// Policies divide these pods into more than [`MOST_PARTS`] parts. No row speaks of them.
    pub unresolved: Vec<PodSet>,
}

/// One row for each set of new pods that fares alike. Rows of one workload and direction never overlap. A row
/// without traffic is there only where other pods have some.
pub fn exposure(snapshot: &Snapshot) -> Exposures {
    let space = Space::new(snapshot);
    let Parts { parts, unresolved } = space.parts();
    let found = outcomes(snapshot, &space, &parts);
    let neutral = parts.iter().position(|part| space.is_neutral(part));
    let view = View { space: &space, parts: &parts, found: &found, neutral, is_whole: unresolved.is_empty() };
    let mut known: BTreeMap<(usize, Direction), Vec<ExposureRow>> = BTreeMap::new();
    let mut rows = Vec::new();
    for (workload, alike) in &found.workloads {
        for direction in [Direction::Egress, Direction::Ingress] {
            let alike = known.entry((*alike, direction)).or_insert_with(|| view.rows(*alike, direction));
            rows.extend(alike.iter().map(|row| Exposure {
                workload: *workload,
                direction,
                peer: row.peer.clone(),
                traffic: row.traffic.clone(),
                depends: row.depends.clone(),
                depends_on: row.depends_on.clone(),
                named: row.named.clone(),
            }));
        }
    }
    Exposures { rows, unresolved }
}

struct ExposureRow {
    peer: NewPods,
    traffic: Traffic,
    depends: Traffic,
    depends_on: Vec<Condition<Party>>,
    named: Vec<NamedTraffic>,
}

struct View<'a> {
    space: &'a Space<'a>,
    parts: &'a [Cube],
    found: &'a Outcomes,
    /// The part with the pod that no policy speaks of.
    neutral: Option<usize>,
    /// Whether the parts are all pods that there can be.
    is_whole: bool,
}

impl View<'_> {
    fn rows(&self, alike: usize, direction: Direction) -> Vec<ExposureRow> {
        let of_parts = self.found.of(alike, direction);
        let mut groups: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (part, &outcome) in of_parts.iter().enumerate() {
            groups.entry(outcome).or_default().push(part);
        }
        let others = self.neutral.map(|part| of_parts[part]);
        let mut rows = Vec::new();
        if let Some(outcome) = others {
            let everyone = groups.len() == 1 && self.is_whole;
            let outcome = self.found.outcome(outcome);
            if !outcome.is_nothing() {
                rows.push(outcome.row(if everyone { NewPods::All } else { NewPods::Others }));
            }
        }
        let mut selected: Vec<(&usize, ExposureRow)> = Vec::new();
        for (outcome, parts) in groups.iter().filter(|(outcome, _)| Some(**outcome) != others) {
            let wanted = parts.iter().map(|&part| self.parts[part].clone()).collect();
            let apart = of_parts.iter().zip(self.parts).filter(|(other, _)| *other != outcome);
            let apart: Vec<&Cube> = apart.map(|(_, part)| part).collect();
            let cubes = describe(wanted, &apart, &self.space.sizes);
            let sets: Vec<PodSet> = cubes.iter().flat_map(|cube| self.space.pod_sets(cube)).collect();
            selected.push((&parts[0], self.found.outcome(*outcome).row(NewPods::Selected(sets))));
        }
        selected.sort_by_key(|(first, _)| **first);
        rows.extend(selected.into_iter().map(|(_, row)| row));
        rows
    }
}

#[cfg(test)]
mod tests;
