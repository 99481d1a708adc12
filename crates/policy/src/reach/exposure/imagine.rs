//! One pod of every part is added to the cluster, and the matrix says what
//! every workload could exchange with it.

use super::cube::Cube;
use super::space::{Example, Space};
use super::{ExposureRow, NamedTraffic, NewPods};
use crate::compile;
use crate::lease::{Instant, LeaseTable};
use crate::model::{Direction, Namespace, NodeId, Role, Workload, WorkloadId, WorkloadKind};
use crate::port::{Protocol, Traffic, usable_ports};
use crate::program::Program;
use crate::reach::matrix::Likeness;
use crate::reach::{CellConditions, CellId, Matrix, Reach};
use crate::snapshot::Snapshot;
use crate::unknown::{Condition, Party};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What every workload could exchange with every part.
pub(super) struct Outcomes {
    /// The workloads that exist, each with the number of those that fare like it.
    pub(super) workloads: Vec<(WorkloadId, usize)>,
    /// By the number, then by part: egress, ingress.
    rows: Vec<[Vec<u32>; 2]>,
    pool: OutcomePool,
}

#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct PartOutcome {
    traffic: Traffic,
    /// What is open or closed by what is not known, such as the address that the pod gets.
    depends: Traffic,
    depends_on: Vec<Condition<Party>>,
    named: Vec<NamedTraffic>,
}

impl PartOutcome {
    pub(super) fn is_nothing(&self) -> bool {
        self.traffic.is_none() && self.depends.is_none() && self.named.is_empty()
    }

    pub(super) fn row(&self, peer: NewPods) -> ExposureRow {
        let Self { traffic, depends, depends_on, named } = self.clone();
        ExposureRow { peer, traffic, depends, depends_on, named }
    }
}

impl Outcomes {
    pub(super) fn of(&self, alike: usize, direction: Direction) -> &[u32] {
        &self.rows[alike][direction as usize]
    }

    pub(super) fn outcome(&self, id: u32) -> &PartOutcome {
        &self.pool.all[id as usize]
    }
}

#[derive(Default)]
struct OutcomePool {
    all: Vec<PartOutcome>,
    ids: FxHashMap<PartOutcome, u32>,
}

impl OutcomePool {
    fn intern(&mut self, outcome: PartOutcome) -> u32 {
        let next = self.all.len() as u32;
        let id = *self.ids.entry(outcome.clone()).or_insert(next);
        if id == next {
            self.all.push(outcome);
        }
        id
    }
}

pub(super) fn outcomes(snapshot: &Snapshot, space: &Space<'_>, parts: &[Cube]) -> Outcomes {
    let (workloads, examples) = alike(snapshot);
    let blank = || vec![0; parts.len()];
    let mut found = Outcomes {
        workloads,
        rows: examples.iter().map(|_| [blank(), blank()]).collect(),
        pool: OutcomePool::default(),
    };
    for round in rounds(space, parts) {
        let mut imagined = snapshot.clone();
        let pods = round.iter().map(|(part, example)| (*part, add(&mut imagined, *part, example)));
        let pods: Vec<(usize, WorkloadId)> = pods.collect();
        let (program, _) = compile(&imagined);
        let ask = Ask { imagined: &imagined, program: &program, pods: &pods, examples: &examples };
        ask.numbers(&mut found);
        for (protocol, name) in named_ports(&program) {
            ask.name(protocol, &name, &mut found);
        }
    }
    found
}

/// Workloads that fare alike, and one of each kind. `hostNetwork` pods have no policies.
fn alike(snapshot: &Snapshot) -> (Vec<(WorkloadId, usize)>, Vec<WorkloadId>) {
    let (program, _) = compile(snapshot);
    let leases = LeaseTable::default();
    let matrix = Matrix::new(snapshot, Reach { program: &program, leases: &leases, now: Instant::default() });
    let mut numbers: FxHashMap<(Likeness, Option<NodeId>), usize> = FxHashMap::default();
    let (mut workloads, mut examples) = (Vec::new(), Vec::new());
    for id in snapshot.workload_ids() {
        let workload = snapshot.workload(id);
        if workload.host_network || workload.is_vacant() {
            continue;
        }
        let number = *numbers.entry((matrix.likeness(id), matrix.program().member(id).node)).or_insert_with(|| {
            examples.push(id);
            examples.len() - 1
        });
        workloads.push((id, number));
    }
    (workloads, examples)
}

/// A namespace has one set of labels at a time, so parts that want another for the same name wait for another round.
fn rounds(space: &Space<'_>, parts: &[Cube]) -> Vec<Vec<(usize, Example)>> {
    let mut rounds: Vec<Vec<(usize, Example)>> = Vec::new();
    let mut labels: Vec<FxHashMap<Arc<str>, crate::labels::Labels>> = Vec::new();
    for (part, cube) in parts.iter().enumerate() {
        let example = space.example(cube);
        let fits = |known: &FxHashMap<Arc<str>, crate::labels::Labels>| match &example.namespace {
            Some(name) => known.get(name).is_none_or(|labels| *labels == example.namespace_labels),
            None => true,
        };
        let round = labels.iter().position(fits).unwrap_or_else(|| {
            labels.push(FxHashMap::default());
            rounds.push(Vec::new());
            rounds.len() - 1
        });
        if let Some(name) = &example.namespace {
            labels[round].insert(name.clone(), example.namespace_labels.clone());
        }
        rounds[round].push((part, example));
    }
    rounds
}

/// Adds a pod of the part. Its address is not known: [`Met::new`] says what that means.
fn add(snapshot: &mut Snapshot, number: usize, example: &Example) -> WorkloadId {
    let name = example.namespace.clone().unwrap_or_else(|| format!("(new namespace {number})").into());
    let labels = example.namespace_labels.clone();
    let namespace = snapshot.add_namespace(Namespace { name, labels, default_deny_ingress: false, source: None });
    let role = Role { namespace, labels: example.labels.clone(), host_network: false };
    let pod = snapshot.new_pod(role, &format!("(new pod {number})"));
    snapshot.add_workload(Workload { kind: WorkloadKind::Deployment, ..pod })
}

/// The names of ports that rules speak of, by protocol.
fn named_ports(program: &Program) -> BTreeSet<(Protocol, Arc<str>)> {
    let named = program.port_specs.iter().flat_map(|spec| &spec.named);
    let each = named.flat_map(|(protocol, name)| {
        let protocols =
            Protocol::WITH_PORTS.into_iter().filter(move |one| protocol.is_none_or(|wanted| wanted == *one));
        protocols.map(|one| (one, name.clone()))
    });
    each.collect()
}

struct Ask<'a> {
    imagined: &'a Snapshot,
    program: &'a Program,
    /// The pods of this round, with their parts.
    pods: &'a [(usize, WorkloadId)],
    examples: &'a [WorkloadId],
}

impl Ask<'_> {
    /// What is open if no port of the new pods has a name.
    fn numbers(&self, found: &mut Outcomes) {
        let leases = LeaseTable::default();
        let matrix = self.matrix(self.program, &leases);
        let mut known: FxHashMap<Met, u32> = FxHashMap::default();
        for (alike, &workload) in self.examples.iter().enumerate() {
            for direction in [Direction::Egress, Direction::Ingress] {
                for &(part, pod) in self.pods {
                    let met = Met::new(&matrix, direction, workload, pod);
                    let outcome = *known.entry(met).or_insert_with(|| {
                        let cell = matrix.cell(met.open);
                        let (traffic, depends) = (cell.open.clone(), cell.depends());
                        let depends_on = met.depends_on(&matrix, &depends);
                        found.pool.intern(PartOutcome { traffic, depends, depends_on, named: Vec::new() })
                    });
                    found.rows[alike][direction as usize][part] = outcome;
                }
            }
        }
    }

    /// What is open to the new pods' ports of this name. Whether a rule matches a port depends on that port alone,
    /// so every port is given the name at once: a rule that speaks of the name then speaks of every number.
    fn name(&self, protocol: Protocol, name: &Arc<str>, found: &mut Outcomes) {
        let mut named = self.program.clone();
        for spec in Arc::make_mut(&mut named.port_specs) {
            let speaks = |(wanted, known): &(Option<Protocol>, Arc<str>)| {
                known == name && wanted.is_none_or(|wanted| wanted == protocol)
            };
            if spec.named.iter().any(speaks) {
                spec.numbered.insert(protocol, 1, u16::MAX);
            }
        }
        let leases = LeaseTable::default();
        let matrix = self.matrix(&named, &leases);
        let ports = |traffic: &Traffic| {
            traffic.ports(protocol).map(|ports| ports.intersect(&usable_ports())).unwrap_or_default()
        };
        let mut known: FxHashMap<(u32, Met), u32> = FxHashMap::default();
        for (alike, &workload) in self.examples.iter().enumerate() {
            for &(part, pod) in self.pods {
                let before = found.rows[alike][Direction::Egress as usize][part];
                let met = Met::new(&matrix, Direction::Egress, workload, pod);
                let outcome = *known.entry((before, met)).or_insert_with(|| {
                    let mut outcome = found.pool.all[before as usize].clone();
                    let cell = matrix.cell(met.open);
                    let (open, depends) = (ports(&cell.open), ports(&cell.depends()));
                    if (&open, &depends) != (&ports(&outcome.traffic), &ports(&outcome.depends)) {
                        let mut in_doubt = Traffic::none();
                        depends.ranges().iter().for_each(|&(low, high)| in_doubt.insert(protocol, low, high));
                        let depends_on = met.depends_on(&matrix, &in_doubt);
                        outcome.named.push(NamedTraffic {
                            name: name.clone(),
                            protocol,
                            ports: open,
                            depends,
                            depends_on,
                        });
                    }
                    found.pool.intern(outcome)
                });
                found.rows[alike][Direction::Egress as usize][part] = outcome;
            }
        }
    }

    fn matrix<'m>(&'m self, program: &'m Program, leases: &'m LeaseTable) -> Matrix<'m> {
        Matrix::new(self.imagined, Reach { program, leases, now: Instant::default() })
    }
}

/// What a workload and a new pod may exchange, and what that depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Met {
    open: CellId,
    conditions: CellConditions,
}

impl Met {
    /// The one place where the unknown address of a new pod matters: the matrix takes it as it takes every workload
    /// without an address.
    fn new(matrix: &Matrix<'_>, direction: Direction, workload: WorkloadId, pod: WorkloadId) -> Self {
        let (from, to) = match direction {
            Direction::Egress => (workload, pod),
            Direction::Ingress => (pod, workload),
        };
        Self { open: matrix.between(from, to), conditions: matrix.cell_conditions(from, to) }
    }

    fn depends_on(&self, matrix: &Matrix<'_>, in_doubt: &Traffic) -> Vec<Condition<Party>> {
        if in_doubt.is_none() { Vec::new() } else { self.conditions.list(matrix, in_doubt) }
    }
}
