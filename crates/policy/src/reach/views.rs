//! Views: what the other side's policies can see of a workload. Two pods of one
//! Role whose addresses fall into the same networks share one.
//!
//! Policies of one Class name few peer sets, and most of those hold few views,
//! so a row of the matrix is asked once for all views that its peer sets cannot
//! tell apart.

use super::Reach;
use crate::model::{Direction, NamedPort, NodeId, PolicyId, RoleId, WorkloadId};
use crate::program::{Matcher, PeerSetId, Program};
use crate::snapshot::Snapshot;
use rustc_hash::FxHashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

/// Views that are asked for one by one: those of `hostNetwork` pods, which are
/// seen by their nodes, and of pods with several addresses.
pub(super) const APART: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Views {
    /// The view of each workload, and one workload of each view.
    of: Vec<u32>,
    example: Vec<WorkloadId>,
    /// The views in each peer set, by Role or by address.
    members: Vec<Vec<u32>>,
    /// The group of each view before any peer set is looked at.
    start: Vec<u32>,
    starts: u32,
    /// The group of each view under all peer sets; views that are apart have a number of their own.
    sights: Vec<u32>,
}

/// What policies of others can see of a workload.
#[derive(Clone, PartialEq, Eq, Hash)]
struct View {
    role: RoleId,
    host_node: Option<NodeId>,
    ports: Arc<[NamedPort]>,
    doubtful_ports: Arc<[NamedPort]>,
    /// For each address: its family, and which peer sets it is in.
    addresses: Vec<(bool, Rc<[u32]>)>,
}

impl View {
    /// Views that differ only in what peer sets see begin in one group. A lane
    /// has only addresses of its family, so families are kept apart.
    fn start(&self, host_network: bool) -> Option<Start> {
        let apart = host_network || self.addresses.len() > 1;
        (!apart).then(|| (self.ports.clone(), self.doubtful_ports.clone(), self.addresses.first().map(|(v4, _)| *v4)))
    }
}

type Start = (Arc<[NamedPort]>, Arc<[NamedPort]>, Option<bool>);

impl Views {
    pub(super) fn new(snapshot: &Snapshot, reach: &Reach<'_>) -> Self {
        let mut sights = Sights::new(reach.program);
        let mut ids: FxHashMap<View, u32> = FxHashMap::default();
        let mut start_ids: FxHashMap<Start, u32> = FxHashMap::default();
        let mut of_role: Vec<Vec<u32>> = vec![Vec::new(); reach.program.roles_bound];
        let mut views = Self {
            of: Vec::with_capacity(snapshot.workloads.len()),
            example: Vec::new(),
            members: vec![Vec::new(); reach.program.peer_sets.len()],
            start: Vec::new(),
            starts: 0,
            sights: Vec::new(),
        };
        for id in snapshot.workload_ids() {
            let (workload, member) = (snapshot.workload(id), reach.program.member(id));
            let view = View {
                role: member.role,
                host_node: workload.node.filter(|_| workload.host_network),
                ports: member.ports.clone(),
                doubtful_ports: member.doubtful_ports.clone(),
                addresses: workload.addresses.iter().map(|&a| (a.is_ipv4(), sights.of(reach, a))).collect(),
            };
            if let Some(&known) = ids.get(&view) {
                views.of.push(known);
                continue;
            }
            let next = views.example.len() as u32;
            views.of.push(next);
            views.example.push(id);
            of_role[view.role.index()].push(next);
            let starts = start_ids.len() as u32;
            let start = view.start(workload.host_network).map(|start| *start_ids.entry(start).or_insert(starts));
            views.start.push(start.unwrap_or(APART));
            if start.is_some() {
                for &set in view.addresses.iter().flat_map(|(_, sets)| sets.iter()) {
                    views.members[set as usize].push(next);
                }
            }
            ids.insert(view, next);
        }
        views.starts = start_ids.len() as u32;
        views.add_roles(reach.program, &of_role);
        views.sights = views.all_sights();
        views
    }

    fn all_sights(&self) -> Vec<u32> {
        let sets: Vec<PeerSetId> = (0..self.members.len() as u32).map(PeerSetId).collect();
        let mut sights = self.groups(&sets);
        let next = sights.iter().filter(|sight| **sight != APART).max().map_or(0, |most| most + 1);
        for (number, sight) in (next..).zip(sights.iter_mut().filter(|sight| **sight == APART)) {
            *sight = number;
        }
        sights
    }

    /// Workloads of one number are the same to every rule of every policy.
    pub(super) fn sight(&self, id: WorkloadId) -> u32 {
        self.sights[self.of(id) as usize]
    }

    fn add_roles(&mut self, program: &Program, of_role: &[Vec<u32>]) {
        for (members, set) in self.members.iter_mut().zip(program.peer_sets.iter()) {
            let by_role = set.roles.iter().flat_map(|role| &of_role[role]).copied();
            members.extend(by_role.filter(|&view| self.start[view as usize] != APART));
            members.sort_unstable();
            members.dedup();
        }
    }

    pub(super) fn of(&self, id: WorkloadId) -> u32 {
        self.of[id.index()]
    }

    pub(super) fn count(&self) -> usize {
        self.example.len()
    }

    pub(super) fn example(&self, view: u32) -> WorkloadId {
        self.example[view as usize]
    }

    pub(super) fn is_apart(&self, view: u32) -> bool {
        self.start[view as usize] == APART
    }

    /// The group of each view under these peer sets.
    pub(super) fn groups(&self, sets: &[PeerSetId]) -> Vec<u32> {
        let mut group = self.start.clone();
        let mut next = self.starts;
        let mut split: FxHashMap<u32, u32> = FxHashMap::default();
        for set in sets {
            split.clear();
            for &view in &self.members[set.index()] {
                let group = &mut group[view as usize];
                *group = *split.entry(*group).or_insert_with(|| {
                    next += 1;
                    next - 1
                });
            }
        }
        group
    }
}

/// The peer sets that rules of these policies look at.
pub(super) fn peer_sets<'p>(
    program: &Program,
    direction: Direction,
    policies: impl Iterator<Item = &'p PolicyId>,
) -> Vec<PeerSetId> {
    let rules = policies.flat_map(|&policy| program.policy(policy).rules(direction));
    let mut sets: Vec<PeerSetId> = rules
        .filter_map(|rule| match program.rule(rule).matcher {
            Matcher::Clauses { peers, .. } if !program.peer_set(peers).anyone => Some(peers),
            _ => None,
        })
        .collect();
    sets.sort_unstable();
    sets.dedup();
    sets
}

/// Which peer sets an address is in.
struct Sights<'a> {
    program: &'a Program,
    /// Peer sets that look at addresses at all.
    looking: Vec<u32>,
    known: FxHashMap<Vec<u32>, Rc<[u32]>>,
}

impl<'a> Sights<'a> {
    fn new(program: &'a Program) -> Self {
        let sets = program.peer_sets.iter().enumerate();
        let looking = sets.filter(|(_, set)| !set.addresses.is_empty() || !set.domains.is_empty());
        Self { program, looking: looking.map(|(at, _)| at as u32).collect(), known: FxHashMap::default() }
    }

    fn of(&mut self, reach: &Reach<'_>, address: IpAddr) -> Rc<[u32]> {
        let inside = |&&at: &&u32| {
            let set = &self.program.peer_sets[at as usize];
            set.addresses.contains(address) || reach.opening(set, address).is_some()
        };
        let seen: Vec<u32> = self.looking.iter().filter(inside).copied().collect();
        self.known.entry(seen.clone()).or_insert_with(|| seen.into()).clone()
    }
}
