//! The reachability of every pair of workloads, and of the outside.
//!
//! The work is done per Class on one side and per *view* on the other: what
//! the other side's policies can see of a workload. Two pods of one Role whose
//! addresses fall into the same networks share a view. Results are interned,
//! so a pair costs two table look-ups.

use super::conditions::{self, CellConditions, ConditionPool, ConditionsId, Listed};
use super::outside::{self, OutsideRange};
use super::views::{APART, Views, peer_sets};
use super::{Reach, Reachable};
use crate::domain::DomainPattern;
use crate::flow::Endpoint;
use crate::model::{Direction, NamedPort, NodeId, WorkloadId};
use crate::port::Traffic;
use crate::program::{ClassId, Matcher, Member, PeerSetId, Plan, Program};
use crate::snapshot::Snapshot;
use crate::unknown::{Condition, Conditions, Family, judging, speaks};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

crate::model::id! {
    /// An interned [`Reachable`].
    CellId,
}

#[derive(Debug)]
pub struct Matrix<'a> {
    snapshot: &'a Snapshot,
    reach: Reach<'a>,
    views: Views,
    /// Whether each workload has or may have an IPv4 address, and an IPv6 one.
    families: Vec<(bool, bool)>,
    /// What a workload's ingress depends on: its Class and its named ports.
    door_of: Vec<u32>,
    doors: usize,
    /// Filled on first use, a table a lane.
    egress: RefCell<[Table; 3]>,
    ingress: RefCell<[Table; 3]>,
    pool: RefCell<CellPool>,
    outside_to: RefCell<FxHashMap<ClassId, Ranges>>,
    names_to: RefCell<FxHashMap<ClassId, Names>>,
    outside_from: RefCell<FxHashMap<(Door, Option<NodeId>), Ranges>>,
    outside_across: RefCell<FxHashMap<Door, Ranges>>,
}

type Ranges = Rc<[OutsideRange]>;
type Names = Rc<[(DomainPattern, Reachable)]>;

/// What ingress of a workload depends on.
type Door = (ClassId, Arc<[NamedPort]>, Arc<[NamedPort]>);

fn door(member: &Member) -> Door {
    (member.class, member.ports.clone(), member.doubtful_ports.clone())
}

/// What decides how a workload fares: its own policies on either side, and what
/// the policies of others can see of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Likeness {
    class: ClassId,
    door: u32,
    sight: u32,
}

/// Over which addresses two workloads speak. Within one family a connection's
/// egress depends on the destination's address alone and its ingress on the
/// source's, so sets may be joined over addresses first and met after; over
/// two families they may not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lane {
    V4,
    V6,
    /// No family in common.
    Any,
}

impl Lane {
    fn family(self) -> Option<Family> {
        match self {
            Self::V4 => Some(Family::V4),
            Self::V6 => Some(Family::V6),
            Self::Any => None,
        }
    }

    fn has(self, address: IpAddr) -> bool {
        match self {
            Self::V4 => address.is_ipv4(),
            Self::V6 => address.is_ipv6(),
            Self::Any => true,
        }
    }
}

#[derive(Default, Debug)]
struct CellPool {
    all: Vec<Rc<Reachable>>,
    ids: FxHashMap<Rc<Reachable>, CellId>,
    meets: FxHashMap<(CellId, CellId), CellId>,
    sides: Vec<SideCell>,
    /// The sides that depend on nothing, by what they let pass.
    certain: FxHashMap<CellId, u32>,
    conditions: ConditionPool,
}

/// What one side lets pass between a row and a group of views.
#[derive(Clone, Copy, Debug)]
struct SideCell {
    open: CellId,
    /// A row and a view to ask what it depends on. None where it depends on nothing.
    asked: Option<(SideRow, u32)>,
    /// The answer, once it was asked for.
    conditions: Option<ConditionsId>,
}

/// One side's answers to every view.
#[derive(Clone, Copy, Debug)]
struct SideRow {
    direction: Direction,
    lane: Lane,
    /// A workload the answers are for; others of the same row share them.
    owner: WorkloadId,
    number: usize,
}

/// The numbers of sides in the pool, by row and view.
type Table = Vec<u32>;

const UNKNOWN: u32 = u32::MAX;

impl<'a> Matrix<'a> {
    pub fn new(snapshot: &'a Snapshot, reach: Reach<'a>) -> Self {
        let mut door_ids: FxHashMap<Door, u32> = FxHashMap::default();
        let door_of = reach.program.workloads.iter().map(|member| {
            let next = door_ids.len() as u32;
            *door_ids.entry(door(member)).or_insert(next)
        });
        let door_of = door_of.collect();
        let families = snapshot.workload_ids().map(|id| {
            let ends = reach.program.endpoints(snapshot, id);
            let any = |family| ends.iter().any(|end| speaks(reach.program, end, family));
            (any(Family::V4), any(Family::V6))
        });
        let families = families.collect();
        let mut pool = CellPool::default();
        pool.intern(Reachable::all());
        Self {
            snapshot,
            reach,
            views: Views::new(snapshot, &reach),
            families,
            door_of,
            doors: door_ids.len(),
            egress: RefCell::default(),
            ingress: RefCell::default(),
            pool: RefCell::new(pool),
            outside_to: RefCell::default(),
            names_to: RefCell::default(),
            outside_from: RefCell::default(),
            outside_across: RefCell::default(),
        }
    }

    /// Every connection that `from` may open to `to`.
    pub fn between(&self, from: WorkloadId, to: WorkloadId) -> CellId {
        let source = self.reach.program.member(from);
        let is_itself = from == to && !source.template && !source.host_network;
        if is_itself || self.is_own_node(from, to) {
            return ALL;
        }
        if self.may_share_node(from, to) {
            // Rows of the table know nothing about that.
            let open = self.pairwise(from, to);
            return self.pool.borrow_mut().intern(open);
        }
        self.across(from, to)
    }

    /// Whether `from` uses the network of the node that `to` runs on: it may open everything there (S1).
    pub fn is_own_node(&self, from: WorkloadId, to: WorkloadId) -> bool {
        let (source, target) = (self.reach.program.member(from), self.reach.program.member(to));
        source.host_network && !target.host_network && source.node.is_some() && source.node == target.node
    }

    /// Whether that is possible, since one of the nodes is not known.
    pub fn may_share_node(&self, from: WorkloadId, to: WorkloadId) -> bool {
        let (source, target) = (self.reach.program.member(from), self.reach.program.member(to));
        let unknown = source.node.is_none() || target.node.is_none();
        source.host_network && !target.host_network && unknown
    }

    /// Every connection that a pod like `from` may open to a pod like `to` that
    /// is another pod and on another node. Policies alone decide this.
    pub fn across(&self, from: WorkloadId, to: WorkloadId) -> CellId {
        let mut lanes = self.lanes(from, to);
        let Some(first) = lanes.next() else { return ALL };
        let mut open = self.over(first, from, to);
        for lane in lanes {
            let more = self.over(lane, from, to);
            open = self.pool.borrow_mut().join(open, more);
        }
        open
    }

    /// What these connections of [`between`](Self::between) depend on (S10.5).
    pub fn depends_on(&self, from: WorkloadId, to: WorkloadId, asked: &Traffic) -> Vec<Condition> {
        self.conditions(from, to, Conditions::of(asked))
    }

    /// What these connections of [`across`](Self::across) depend on.
    pub fn depends_on_across(&self, from: WorkloadId, to: WorkloadId, asked: &Traffic) -> Vec<Condition> {
        self.conditions(from, to, Conditions::across(asked))
    }

    fn conditions(&self, from: WorkloadId, to: WorkloadId, mut conditions: Conditions<'_>) -> Vec<Condition> {
        let program = self.reach.program;
        let (from, to) = (program.endpoints(self.snapshot, from), program.endpoints(self.snapshot, to));
        for (from, to) in program.address_pairs(&from, &to) {
            self.reach.find_conditions(&from, &to, &mut conditions);
        }
        conditions.list()
    }

    /// What these connections from a workload to a range of [`outside_to`](Self::outside_to) depend on.
    pub fn outside_to_depends_on(&self, from: WorkloadId, to: &OutsideRange, asked: &Traffic) -> Vec<Condition> {
        let own = &self.ends(from, Lane::Any)[0];
        let outside = to.end(&self.reach, |end| self.reach.egress(own, end));
        self.reach.depends_on(own, &outside, asked)
    }

    /// What these connections from a range of [`outside_from`](Self::outside_from) to a workload depend on.
    pub fn outside_from_depends_on(&self, from: &OutsideRange, to: WorkloadId, asked: &Traffic) -> Vec<Condition> {
        let own = &self.ends(to, Lane::Any)[0];
        let outside = from.end(&self.reach, |end| self.reach.ingress(end, own));
        self.reach.depends_on(&outside, own, asked)
    }

    /// What these connections of a workload to a pattern of names depend on.
    pub fn name_depends_on(&self, from: WorkloadId, pattern: &DomainPattern, asked: &Traffic) -> Vec<Condition> {
        let source = &self.ends(from, Lane::Any)[0];
        self.reach.depends_on(source, &Endpoint::name(pattern.example()), asked)
    }

    fn pairwise(&self, from: WorkloadId, to: WorkloadId) -> Reachable {
        let program = self.reach.program;
        let (from, to) = (program.endpoints(self.snapshot, from), program.endpoints(self.snapshot, to));
        let pairs = program.address_pairs(&from, &to).into_iter();
        join(pairs.map(|(from, to)| self.reach.between(&from, &to)))
    }

    fn lanes(&self, from: WorkloadId, to: WorkloadId) -> impl Iterator<Item = Lane> + use<> {
        let (from, to) = (self.families[from.index()], self.families[to.index()]);
        let (v4, v6) = (from.0 && to.0, from.1 && to.1);
        let lanes = [v4.then_some(Lane::V4), v6.then_some(Lane::V6), (!v4 && !v6).then_some(Lane::Any)];
        lanes.into_iter().flatten()
    }

    fn over(&self, lane: Lane, from: WorkloadId, to: WorkloadId) -> CellId {
        let (out, inward) = self.sides(lane, from, to);
        let mut pool = self.pool.borrow_mut();
        let (out, inward) = (pool.sides[out as usize].open, pool.sides[inward as usize].open);
        pool.meet(out, inward)
    }

    /// What the cell of `between` depends on, without the names of its ends.
    pub(super) fn cell_conditions(&self, from: WorkloadId, to: WorkloadId) -> CellConditions {
        let (across, same_node) = (self.conditions_across(from, to), self.may_share_node(from, to));
        CellConditions { across, same_node }
    }

    fn conditions_across(&self, from: WorkloadId, to: WorkloadId) -> ConditionsId {
        let mut all = ConditionsId::NONE;
        for lane in self.lanes(from, to) {
            let (out, inward) = self.sides(lane, from, to);
            for side in [out, inward] {
                let more = self.conditions_of(side);
                all = self.pool.borrow_mut().conditions.join(all, more);
            }
        }
        all
    }

    fn conditions_of(&self, side: u32) -> ConditionsId {
        let known = self.pool.borrow().sides[side as usize];
        let Some((row, view)) = known.asked else { return ConditionsId::NONE };
        if let Some(conditions) = known.conditions {
            return conditions;
        }
        let found = self.side_depends_on(&row, view);
        let mut pool = self.pool.borrow_mut();
        let conditions = pool.conditions.intern(found);
        pool.sides[side as usize].conditions = Some(conditions);
        conditions
    }

    fn side_depends_on(&self, row: &SideRow, view: u32) -> Vec<Listed> {
        let owner = &self.ends(row.owner, Lane::Any)[0];
        let family = row.lane.family();
        let peers = self.ends(self.views.example(view), row.lane);
        let found = peers.iter().flat_map(|peer| match row.direction {
            Direction::Egress => self.reach.egress_depends_on(owner, peer, family),
            Direction::Ingress => self.reach.ingress_depends_on(peer, owner, family),
        });
        found.map(|(on, part)| (conditions::relative(row.direction, on), part)).collect()
    }

    pub(super) fn conditions_listed(&self, id: ConditionsId) -> Rc<[Listed]> {
        self.pool.borrow().conditions.get(id)
    }

    pub(super) fn program(&self) -> &'a Program {
        self.reach.program
    }

    /// The two sides of a cell: what is let out, and what is let in.
    fn sides(&self, lane: Lane, from: WorkloadId, to: WorkloadId) -> (u32, u32) {
        let program = self.reach.program;
        let sender =
            SideRow { direction: Direction::Egress, lane, owner: from, number: program.member(from).class.index() };
        let receiver =
            SideRow { direction: Direction::Ingress, lane, owner: to, number: self.door_of[to.index()] as usize };
        (self.entry(&sender, self.views.of(to)), self.entry(&receiver, self.views.of(from)))
    }

    fn entry(&self, row: &SideRow, view: u32) -> u32 {
        let (tables, rows) = match row.direction {
            Direction::Egress => (&self.egress, self.reach.program.classes.len()),
            Direction::Ingress => (&self.ingress, self.doors),
        };
        let width = self.views.count();
        let first = row.number * width;
        {
            let table = &mut tables.borrow_mut()[row.lane as usize];
            if table.is_empty() {
                table.resize(rows * width, UNKNOWN);
            }
            let known = table[first + view as usize];
            if known != UNKNOWN {
                return known;
            }
        }
        if self.views.is_apart(view) {
            let side = self.side(row, view);
            tables.borrow_mut()[row.lane as usize][first + view as usize] = side;
            return side;
        }
        let groups = self.views.groups(&self.peer_sets(row));
        let mut by_group: FxHashMap<u32, u32> = FxHashMap::default();
        for (at, group) in groups.iter().enumerate().filter(|(_, group)| **group != APART) {
            let side = *by_group.entry(*group).or_insert_with(|| self.side(row, at as u32));
            tables.borrow_mut()[row.lane as usize][first + at] = side;
        }
        by_group[&groups[view as usize]]
    }

    fn side(&self, row: &SideRow, view: u32) -> u32 {
        let answer = self.ask(row, view);
        self.pool.borrow_mut().side(answer, *row, view)
    }

    /// What the row's owner lets out to, or in from, the view.
    fn ask(&self, row: &SideRow, view: u32) -> Reachable {
        let owner = &self.ends(row.owner, Lane::Any)[0];
        let peers = self.ends(self.views.example(view), row.lane);
        let family = row.lane.family();
        join(peers.iter().map(|peer| match row.direction {
            Direction::Egress => self.reach.egress_over(owner, peer, family),
            Direction::Ingress => self.reach.ingress_across(peer, owner, family),
        }))
    }

    fn peer_sets(&self, row: &SideRow) -> Vec<PeerSetId> {
        let program = self.reach.program;
        let plan = &program.class(program.member(row.owner).class).enforced;
        peer_sets(program, row.direction, judging(plan, row.direction))
    }

    /// The workload by its addresses of that lane; once without, if it has none.
    fn ends(&self, id: WorkloadId, lane: Lane) -> Vec<Endpoint> {
        let mut ends = self.reach.program.endpoints(self.snapshot, id);
        ends.retain(|end| end.address.is_none_or(|address| lane.has(address)));
        ends
    }

    pub fn cell(&self, id: CellId) -> Rc<Reachable> {
        self.pool.borrow().all[id.index()].clone()
    }

    /// What the workload may open outside. Ranges speak of addresses that no workload has.
    pub fn outside_to(&self, from: WorkloadId) -> Rc<[OutsideRange]> {
        let class = self.reach.program.member(from).class;
        if let Some(known) = self.outside_to.borrow().get(&class) {
            return known.clone();
        }
        let source = self.ends(from, Lane::Any)[0].clone();
        let plan = &self.reach.program.class(class).enforced;
        let found: Rc<[_]> =
            outside::ranges(&self.reach, plan, &self.node_addresses(), |end| self.reach.egress(&source, end)).into();
        self.outside_to.borrow_mut().insert(class, found.clone());
        found
    }

    /// What may be opened to the workload from outside.
    pub fn outside_from(&self, to: WorkloadId) -> Rc<[OutsideRange]> {
        let member = self.reach.program.member(to);
        let key = (door(member), member.node);
        if let Some(known) = self.outside_from.borrow().get(&key) {
            return known.clone();
        }
        let target = self.ends(to, Lane::Any)[0].clone();
        let plan = &self.reach.program.class(member.class).enforced;
        // The pod's own node may always reach it; where that is not known it may be any of them.
        let own_nodes = match member.node {
            Some(node) => self.reach.program.whereabouts.nodes[node.index()].clone(),
            None => self.node_addresses(),
        };
        let found: Rc<[_]> =
            outside::ranges(&self.reach, plan, &own_nodes, |end| self.reach.ingress(end, &target)).into();
        self.outside_from.borrow_mut().insert(key, found.clone());
        found
    }

    /// What may be opened to the workload from outside, without what its own node may open besides.
    pub fn outside_across(&self, to: WorkloadId) -> Rc<[OutsideRange]> {
        let member = self.reach.program.member(to);
        let key = door(member);
        if let Some(known) = self.outside_across.borrow().get(&key) {
            return known.clone();
        }
        let target = self.ends(to, Lane::Any)[0].clone();
        let plan = &self.reach.program.class(member.class).enforced;
        let found: Rc<[_]> =
            outside::ranges(&self.reach, plan, &[], |end| self.reach.ingress_across(end, &target, None)).into();
        self.outside_across.borrow_mut().insert(key, found.clone());
        found
    }

    /// What the workload may open to names of a pattern once they are resolved. A name that none of its rules speaks of
    /// is as open as the address it may have.
    pub fn name_to(&self, from: WorkloadId, pattern: &DomainPattern) -> Reachable {
        self.reach.egress(&self.ends(from, Lane::Any)[0], &Endpoint::name(pattern.example()))
    }

    /// The names the workload's rules speak of, and what may be opened to each
    /// once it is resolved.
    pub fn names_to(&self, from: WorkloadId) -> Rc<[(DomainPattern, Reachable)]> {
        let class = self.reach.program.member(from).class;
        if let Some(known) = self.names_to.borrow().get(&class) {
            return known.clone();
        }
        let found: Rc<[_]> = self.find_names(from).into();
        self.names_to.borrow_mut().insert(class, found.clone());
        found
    }

    fn find_names(&self, from: WorkloadId) -> Vec<(DomainPattern, Reachable)> {
        let program = self.reach.program;
        let source = self.ends(from, Lane::Any)[0].clone();
        let Some(member) = program.pod(&source) else { return Vec::new() };
        let plan = &program.class(member.class).enforced;
        let stages = |plan: &'a Plan| [&plan.cluster_gate, &plan.namespace_gate, &plan.egress.admin];
        let rules = plan.each().flat_map(stages).flatten().flat_map(|&id| program.policy(id).rules(Direction::Egress));
        // Rules that allow and rules that deny may speak of the same names.
        let mut seen: FxHashSet<&DomainPattern> = FxHashSet::default();
        let mut patterns: Vec<&DomainPattern> = Vec::new();
        for rule in rules {
            if let Matcher::Clauses { peers, .. } = program.rule(rule).matcher {
                let names = program.peer_set(peers).domains.iter().map(|id| &program.patterns.get(*id).names);
                patterns.extend(names.filter(|names| seen.insert(*names)));
            }
        }
        let mut found = Vec::new();
        for pattern in patterns {
            let traffic = self.name_to(from, pattern);
            if !traffic.is_none() {
                found.push((pattern.clone(), traffic));
            }
        }
        found
    }

    /// Workloads with the same value fare the same on either end, but for
    /// themselves and their own node.
    pub(super) fn likeness(&self, id: WorkloadId) -> Likeness {
        let door = self.door_of[id.index()];
        Likeness { class: self.reach.program.member(id).class, door, sight: self.views.sight(id) }
    }

    pub(super) fn snapshot(&self) -> &'a Snapshot {
        self.snapshot
    }

    /// Nodes are outside, but the namespace gate and node peers see them apart from their surroundings.
    fn node_addresses(&self) -> Vec<IpAddr> {
        self.reach.program.node_addresses.iter().map(|(address, _)| *address).collect()
    }
}

fn join(sets: impl Iterator<Item = Reachable>) -> Reachable {
    sets.reduce(|all, more| all.union(&more)).unwrap_or_default()
}

/// Every connection: the first set in the pool.
pub(super) const ALL: CellId = CellId(0);

impl Program {
    /// The workload by each of its addresses; once without, if it has none.
    pub fn endpoints(&self, snapshot: &Snapshot, id: WorkloadId) -> Vec<Endpoint> {
        let addresses = &snapshot.workload(id).addresses;
        if addresses.is_empty() {
            return vec![self.endpoint_of(id, None)];
        }
        addresses.iter().map(|&address| self.endpoint_of(id, Some(address))).collect()
    }

    /// The pairs of ends that have, or may have, a family in common; all of them if none has.
    pub fn address_pairs(&self, from: &[Endpoint], to: &[Endpoint]) -> Vec<(Endpoint, Endpoint)> {
        let pairs = || from.iter().flat_map(|from| to.iter().map(move |to| (from.clone(), to.clone())));
        let common = |from: &Endpoint, to: &Endpoint| {
            let both = |family| speaks(self, from, family) && speaks(self, to, family);
            both(Family::V4) || both(Family::V6)
        };
        let speaking: Vec<_> = pairs().filter(|(from, to)| common(from, to)).collect();
        if speaking.is_empty() { pairs().collect() } else { speaking }
    }
}

impl CellPool {
    fn intern(&mut self, cell: Reachable) -> CellId {
        if let Some(&id) = self.ids.get(&cell) {
            return id;
        }
        let id = CellId(self.all.len() as u32);
        let cell = Rc::new(cell);
        self.all.push(cell.clone());
        self.ids.insert(cell, id);
        id
    }

    /// The number of a side. All that depend on nothing and let the same pass share one.
    fn side(&mut self, answer: Reachable, row: SideRow, view: u32) -> u32 {
        let is_certain = answer.is_certain();
        let open = self.intern(answer);
        let next = self.sides.len() as u32;
        if is_certain {
            let number = *self.certain.entry(open).or_insert(next);
            if number != next {
                return number;
            }
        }
        self.sides.push(SideCell { open, asked: (!is_certain).then_some((row, view)), conditions: None });
        next
    }

    fn meet(&mut self, a: CellId, b: CellId) -> CellId {
        if a == ALL || a == b {
            return b;
        }
        if b == ALL {
            return a;
        }
        let key = (a.min(b), a.max(b));
        if let Some(&id) = self.meets.get(&key) {
            return id;
        }
        let both = self.all[a.index()].intersect(&self.all[b.index()]);
        let id = self.intern(both);
        self.meets.insert(key, id);
        id
    }

    fn join(&mut self, a: CellId, b: CellId) -> CellId {
        if a == b || a == ALL {
            return a;
        }
        let either = self.all[a.index()].union(&self.all[b.index()]);
        self.intern(either)
    }
}
