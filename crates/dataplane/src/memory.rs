//! A Dataplane without a kernel, for tests and simulations: it judges by the
//! Program itself.

use crate::{Applied, Cut, Dataplane};
use namewall_policy::{Decision, Flow, Instant, Lease, LeaseTable, Program, evaluate};
use std::convert::Infallible;

#[derive(Clone, Default, Debug)]
pub struct Memory {
    program: Program,
    leases: LeaseTable,
}

impl Memory {
    /// What the kernel would do with a connection.
    pub fn judge(&self, flow: &Flow, now: Instant) -> Decision {
        evaluate(&self.program, &self.leases, flow, now)
    }
}

impl Dataplane for Memory {
    type Error = Infallible;

    fn replace(&mut self, next: &Program, _now: Instant) -> Result<Applied, Infallible> {
        self.program = next.clone();
        Ok(Applied { operations: 1, narrows: true })
    }

    fn grant(&mut self, leases: &[Lease], _now: Instant) -> Result<(), Infallible> {
        for lease in leases {
            self.leases.grant(lease.clone());
        }
        Ok(())
    }

    /// It has no connections.
    fn cut(&mut self, _program: &Program, _now: Instant) -> Result<Cut, Infallible> {
        Ok(Cut::default())
    }
}
