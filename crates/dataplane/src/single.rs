//! A data plane with its leases and its scope in one value, for callers with one
//! thread: benchmarks, and tests of a data plane itself. The agent has the same
//! parts behind locks.

use crate::render::Scope;
use crate::{Adoption, Applied, Connection, Cut, CutEstablished, Dataplane, Desired, Judge, ListConnections};
use namewall_policy::lease::{Bounds, Lifetimes, NeverLeased, Revision, Rules};
use namewall_policy::{Instant, Lease, LeaseStore, LeaseTable, Program};

#[derive(Debug)]
pub struct SingleThreaded<D> {
    pub dataplane: D,
    pub scope: Scope,
    leases: LeaseStore,
    never_leased: NeverLeased,
    /// What is in force.
    program: Option<Program>,
}

impl<D: Dataplane> SingleThreaded<D> {
    pub fn new(dataplane: D, scope: Scope) -> Self {
        let never_leased = NeverLeased::new("cluster.local".parse().expect("it is a name"));
        Self { dataplane, scope, leases: LeaseStore::default(), never_leased, program: None }
    }

    #[must_use]
    pub fn with_bounds(self, bounds: Bounds) -> Self {
        Self { leases: LeaseStore::new(LeaseTable::with_bounds(bounds)), ..self }
    }

    pub fn replace(&mut self, program: &Program, now: Instant) -> Result<Applied, D::Error> {
        let before = self.program.as_ref().map(|program| Rules { program, never_leased: &self.never_leased });
        let revision = Revision { before, next: Rules { program, never_leased: &self.never_leased } };
        let plan = self.leases.plan(&revision);
        let changed = &self.leases.revise(&revision, plan, &[]);
        let adoption = Adoption { never_leased: &self.never_leased, longest: Lifetimes::default().longest() };
        let leases = self.leases.table();
        let desired = Desired { program, scope: &self.scope, leases, changed, adoption, now };
        let replaced = self.dataplane.replace(&desired);
        match &replaced {
            Ok(applied) => {
                self.leases.acknowledge();
                if let Some(found) = &applied.adopted {
                    self.leases.adopt(found.clone());
                }
                self.program = Some(program.clone());
            }
            Err(_) => self.leases.take_back(),
        }
        replaced
    }

    pub fn grant(&mut self, leases: &[Lease], now: Instant) -> Result<(), D::Error> {
        let change = self.leases.grant(leases, now);
        let done = self.dataplane.open(&change, self.leases.table(), now);
        match &done {
            Ok(()) => self.leases.acknowledge(),
            Err(_) => self.leases.take_back(),
        }
        done
    }

    /// Cuts the connections that the Program forbids.
    pub fn cut(&mut self, program: &Program) -> Result<Cut, D::Error> {
        let connections = self.dataplane.connections()?.list()?;
        let judge = Judge::new(program, &self.leases, CutEstablished::default()).on(&self.scope);
        let forbidden: Vec<&Connection> = connections.iter().filter(|connection| judge.forbids(connection)).collect();
        self.dataplane.cut(&forbidden)
    }
}
