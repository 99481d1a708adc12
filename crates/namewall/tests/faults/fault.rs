//! What can go wrong, and how often. A seed says which faults a round has.

use crate::dns::Mood;
use namewall_testbed::Dice;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// A DNS pod is not ready, and returns an address that is no name's.
    NotReady,
    /// One of the two DNS pods answers in another way.
    Pod(usize, Mood),
    /// The two DNS pods know different addresses of a name.
    Disagreement,
    /// All DNS servers answer in this way.
    AllServers(Mood),
    ApiStalls,
    ApiRestarts,
    ApiLosesHistory,
    /// All requests are answered with 429.
    ApiThrottles,
    /// Statuses of names are refused.
    ApiRefuses(u16),
    /// The leader is stopped for longer than its time, and then goes on as if it still led.
    TwoLeaders,
    /// The time of day of a node is another, in seconds.
    ClockSkew(usize, i64),
    AgentKilled(usize),
    AgentCutOff(usize),
    /// So many names are added to policies.
    ManyNames(usize),
    /// A pod asks for so many names under the wildcard.
    Flood(usize),
}

impl Fault {
    /// The faults of a round: one, or two that can happen at the same time. Seed 0 has none.
    pub(crate) fn of_seed(seed: u64, many: usize) -> Vec<Self> {
        if seed == 0 {
            return Vec::new();
        }
        let mut dice = Dice::new(seed);
        let first = Self::random(&mut dice, many);
        if dice.chance(25) {
            return vec![first];
        }
        let second = std::iter::repeat_with(|| Self::random(&mut dice, many)).find(|other| first.goes_with(*other));
        let mut both: Vec<Self> = second.into_iter().chain([first]).collect();
        both.sort_by_key(Self::needs_no_server);
        both
    }

    fn random(dice: &mut Dice, many: usize) -> Self {
        let (pod, node) = (dice.within(0..2), dice.within(0..2));
        match dice.within(0..18) {
            0 => Self::NotReady,
            1 => Self::Pod(pod, Mood::Silent),
            2 => Self::Pod(pod, Mood::Slow(Duration::from_millis(1_200))),
            3 => Self::Pod(pod, Mood::Lying),
            4 => Self::Pod(pod, Mood::Failing),
            5 => Self::Disagreement,
            6 => Self::AllServers(dice.pick(&[Mood::Silent, Mood::Failing, Mood::Slow(Duration::from_millis(800))])),
            7 => Self::ApiStalls,
            8 => Self::ApiRestarts,
            9 => Self::ApiLosesHistory,
            10 => Self::ApiThrottles,
            11 => Self::ApiRefuses(dice.pick(&[413, 422, 500])),
            12 => Self::TwoLeaders,
            13 => Self::ClockSkew(node, dice.pick(&[-3_600, -90, 90, 3_600])),
            14 => Self::AgentKilled(node),
            15 => Self::AgentCutOff(node),
            16 => Self::ManyNames(many),
            _ => Self::Flood(300),
        }
    }

    /// What the fault is about: two faults of one thing exclude each other.
    fn subject(self) -> usize {
        match self {
            Self::NotReady | Self::Pod(..) | Self::Disagreement | Self::AllServers(_) => 0,
            Self::ApiStalls | Self::ApiRestarts | Self::ApiLosesHistory => 1,
            Self::ApiThrottles | Self::ApiRefuses(_) => 2,
            Self::TwoLeaders => 3,
            Self::ClockSkew(..) => 4,
            Self::AgentKilled(_) | Self::AgentCutOff(_) => 5,
            Self::ManyNames(_) | Self::Flood(_) => 6,
        }
    }

    fn goes_with(self, other: Self) -> bool {
        let subjects = [self.subject(), other.subject()];
        // An agent that starts and cannot list waits for 10 seconds before it goes on with what it has stored. That is
        // longer than the leases here last.
        let kills = [self, other].iter().any(|fault| matches!(fault, Self::AgentKilled(_)));
        let starts_alone = kills && (subjects.contains(&1) || subjects.contains(&2));
        subjects[0] != subjects[1] && !starts_alone
    }

    /// While such a fault lasts, lookups fail or wait: a name keeps its last addresses for longer than its TTL and grace.
    pub(crate) fn delays_lookups(&self) -> bool {
        matches!(self, Self::NotReady | Self::Pod(..) | Self::AllServers(_) | Self::ManyNames(_))
    }

    /// The same for some time after its end: thousands of lookups that wait are in the way.
    pub(crate) fn delays_lookups_for_long(&self) -> bool {
        matches!(self, Self::ManyNames(_))
    }

    /// These begin after others, and end before them: the others ask the API server.
    pub(crate) fn needs_no_server(&self) -> bool {
        matches!(self.subject(), 1 | 2)
    }
}
