//! What is done of a change before its switch and after it, in parts. The lock of
//! the data plane is free between two parts, so that answers open what they want to.

use super::{Enforcer, Next};
use namewall_dataplane::Dataplane;
use namewall_policy::Lease;
use namewall_policy::lease::{Revision, Survey};
use std::time::Duration;

/// Between two parts of a change, for answers that wait for the lock.
const TURN_OF_ANSWERS: Duration = Duration::from_micros(100);
/// So many leases are entered in one part. A change that opens fewer does so with its switch.
const LEASES_AT_ONCE: usize = 1_000;

/// What is left for the switch.
#[derive(Debug)]
pub(super) struct Staged {
    /// How far the leases were revised.
    pub(super) survey: Survey,
    /// Leases that the new rules open besides.
    pub(super) recalled: Vec<Lease>,
}

impl<D: Dataplane> Enforcer<D> {
    /// Writes what no rule asks for yet, and enters the leases that the next rules open.
    pub(super) fn stage(&self, next: &Next<'_>, plan: &mut D::Plan) -> Result<Staged, D::Error> {
        let survey = self.carry_over(&next.revision)?;
        let recalled = self.recall(next)?;
        loop {
            let mut dataplane = self.dataplane();
            let is_more = dataplane.stage(plan, self.leases().table(), self.now())?;
            drop(dataplane);
            if !is_more {
                return Ok(Staged { survey, recalled });
            }
            self.turn_of_answers();
        }
    }

    /// Carries leases over to patterns that the next rules have, if there are many leases. What a rule in force asks
    /// for opens at once; a lease says the same before and after the change.
    fn carry_over(&self, revision: &Revision<'_>) -> Result<Survey, D::Error> {
        let mut survey = self.leases().survey(revision);
        if !survey.is_under_way() {
            return Ok(survey);
        }
        while survey.is_under_way() {
            // Nothing else enters leases between the look and the entry.
            let dataplane = self.dataplane();
            let found = self.leases().look_on(&mut survey, revision);
            match found.len() {
                0 => drop(dataplane),
                1..=LEASES_AT_ONCE => {
                    let now = self.now();
                    self.open_with(dataplane, now, |store| store.carry(&found, now))?;
                }
                _ => {
                    drop(dataplane);
                    self.carry(&found)?;
                }
            }
            self.turn_of_answers();
        }
        let mut dataplane = self.dataplane();
        self.leases_mut(&mut dataplane).end_survey(&survey, revision);
        Ok(survey)
    }

    /// Opens leases that the next rules recall, if they are many. Gives those that are left: what the rules in force
    /// never lease does not open before the switch.
    fn recall(&self, next: &Next<'_>) -> Result<Vec<Lease>, D::Error> {
        let before = next.revision.before.filter(|_| next.recalled.len() > LEASES_AT_ONCE);
        let Some(before) = before else { return Ok(next.recalled.to_vec()) };
        let is_leased =
            |lease: &&Lease| before.never_leased.refusal_of_lease(before.program, lease.borrowed()).is_none();
        let (early, left): (Vec<&Lease>, Vec<&Lease>) = next.recalled.iter().partition(is_leased);
        self.carry(&early.into_iter().cloned().collect::<Vec<_>>())?;
        Ok(left.into_iter().cloned().collect())
    }

    fn carry(&self, leases: &[Lease]) -> Result<(), D::Error> {
        for some in leases.chunks(LEASES_AT_ONCE) {
            let now = self.now();
            self.open_with(self.dataplane(), now, |store| store.carry(some, now))?;
            self.turn_of_answers();
        }
        Ok(())
    }

    /// Lets answers have the lock. Nobody who holds it calls this.
    fn turn_of_answers(&self) {
        #[cfg(test)]
        if self.dataplane.try_lock().is_ok() {
            self.free_turns.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
        std::thread::sleep(TURN_OF_ANSWERS);
    }

    /// Removes what no rule asks for any more. What cannot be removed now decides nothing, and goes with the next change.
    pub(super) fn clear(&self) {
        loop {
            let mut dataplane = self.dataplane();
            let cleared = dataplane.clear(self.leases().table());
            drop(dataplane);
            if !matches!(cleared, Ok(true)) {
                return;
            }
            self.turn_of_answers();
        }
    }
}
