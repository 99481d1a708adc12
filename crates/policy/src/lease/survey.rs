//! A revision of many leases, worked out in parts: leases are granted between two
//! of them. What is granted meanwhile is looked at in another round, and what is
//! granted after the last round when the revision is made.

use super::revise::{Carried, Revision, Suspects};
use super::table::Walk;
use super::{Lease, LeaseTable};

/// So many names are looked at in one part.
const NAMES_AT_ONCE: usize = 1_000;
/// A table with fewer leases is revised at once.
const FEW: usize = 1_000;
/// What a round carries over is looked at in the next one, which finds nothing else to do unless answers keep coming.
const MOST_ROUNDS: u8 = 4;

/// How far a revision is worked out.
#[derive(Debug)]
pub struct Survey {
    pub(super) suspects: Suspects,
    /// Leases that are never leased from now on.
    pub(super) refused: Vec<Lease>,
    round: Option<Round>,
    rounds: u8,
    /// Every lease that was granted until then has been looked at.
    looked_at: Option<u64>,
}

/// A walk over all names that have changed since the round before.
#[derive(Debug)]
struct Round {
    at: Walk,
    /// The last grant of the round before.
    since: Option<u64>,
    /// The last grant before this round.
    until: u64,
    /// How many leases it carries over.
    carried: usize,
}

impl Survey {
    /// Nothing was looked at.
    pub(super) fn none(revision: &Revision<'_>) -> Self {
        Self { suspects: revision.suspects(), refused: Vec::new(), round: None, rounds: 0, looked_at: None }
    }

    /// Begins to look at the leases, if there are many and all of them matter.
    pub(super) fn begin(revision: &Revision<'_>, table: &LeaseTable, carried: Option<&Carried>) -> Self {
        let mut survey = Self::none(revision);
        let checks = matches!(survey.suspects, Suspects::All);
        if table.len() <= FEW || !(checks || revision.has_new_rules()) {
            return survey;
        }
        let carried = carried.filter(|carried| !checks && carried.is_for(revision.next.program));
        let (since, until) = (carried.map(Carried::grants), table.grants());
        survey.round = Some(Round { at: Walk::default(), since, until, carried: 0 });
        survey
    }

    /// The last grant that it has looked at.
    pub(super) fn looked_at(&self) -> Option<u64> {
        self.looked_at
    }

    /// True if there is more to look at.
    pub fn is_under_way(&self) -> bool {
        self.round.is_some()
    }

    /// Looks at some more names. Gives leases that are to be carried over before the next part.
    pub(super) fn look_on(&mut self, revision: &Revision<'_>, table: &LeaseTable) -> Vec<Lease> {
        let Some(round) = &mut self.round else { return Vec::new() };
        let checks = matches!(self.suspects, Suspects::All);
        let patterns = &revision.next.program.patterns;
        let (names, next) = table.walk_since(round.at, NAMES_AT_ONCE, round.since);
        let mut found = Vec::new();
        for named in names {
            if checks {
                let refused = table.leases_of(named).filter_map(|lease| revision.refused(lease.to_lease()));
                self.refused.extend(refused.map(|(lease, _)| lease));
            }
            if revision.has_new_rules() {
                found.extend(table.not_carried(named, patterns));
            }
        }
        found.retain(|lease| revision.refused(lease.clone()).is_none());
        round.carried += found.len();
        match next {
            Some(next) => round.at = next,
            None => {
                self.rounds += 1;
                self.looked_at = Some(round.until);
                let is_last = round.carried == 0 || self.rounds == MOST_ROUNDS;
                let (since, until) = (Some(round.until), table.grants());
                self.round = (!is_last).then_some(Round { at: Walk::default(), since, until, carried: 0 });
            }
        }
        found
    }
}
