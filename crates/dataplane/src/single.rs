//! A data plane with its leases and its scope in one value, for callers with one
//! thread: benchmarks, and tests of a data plane itself. The agent has the same
//! parts behind locks.

use crate::render::Scope;
use crate::{Applied, Connection, Cut, CutEstablished, Dataplane, Desired, Judge, ListConnections};
use namewall_policy::lease::Bounds;
use namewall_policy::{Instant, Lease, LeaseStore, LeaseTable, Program};

#[derive(Debug)]
pub struct SingleThreaded<D> {
    pub dataplane: D,
    pub scope: Scope,
    leases: LeaseStore,
}

impl<D: Dataplane> SingleThreaded<D> {
    pub fn new(dataplane: D, scope: Scope) -> Self {
        Self { dataplane, scope, leases: LeaseStore::default() }
    }

    #[must_use]
    pub fn with_bounds(self, bounds: Bounds) -> Self {
        Self { leases: LeaseStore::new(LeaseTable::with_bounds(bounds)), ..self }
    }

    pub fn replace(&mut self, program: &Program, now: Instant) -> Result<Applied, D::Error> {
        let desired = Desired { program, scope: &self.scope, leases: self.leases.table(), now };
        let applied = self.dataplane.replace(&desired)?;
        if let Some(found) = &applied.adopted {
            self.leases.adopt(found.clone());
        }
        Ok(applied)
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
