//! What happens to the node, one thing at a time. Which one is next follows from
//! the seed and from the model, so a run can be repeated.

use crate::model::{Model, PODS, SLOTS};
use crate::policy::{COLORS, NAMES, Policy};
use namewall_testbed::Dice;

/// How a file becomes one that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Damage {
    NotYaml,
    Emptied,
    /// Only the separator of documents is left.
    Truncated,
}

/// What is wrong with the upstream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UpstreamFault {
    Silent,
    Servfail,
    /// Before each true answer comes one with another id.
    WrongId,
    /// Answers come when the question has been given up.
    Late,
}

/// How the process ends or pauses, and goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Interruption {
    Terminated,
    Killed,
    /// Stopped for a while by SIGSTOP: for less time than the kernel believes that it lives, or for more.
    Paused {
        milliseconds: u64,
    },
    TakenOver,
    /// Killed, and started with so little memory that the kernel may kill the new process at any time of its start.
    Starved {
        megabytes: u64,
    },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    Apply {
        slot: usize,
        policy: Policy,
    },
    Delete {
        slot: usize,
    },
    Damage {
        slot: usize,
        damage: Damage,
    },
    Relabel {
        pod: usize,
        color: &'static str,
    },
    LookUp {
        pod: usize,
        name: usize,
    },
    Move {
        name: usize,
    },
    BreakUpstream(UpstreamFault),
    RestoreUpstream,
    Interrupt(Interruption),
    /// The disk with the stored state has no room.
    FillDisk,
    FreeDisk,
    /// The node's table of connections has no room.
    FillConnections,
    FreeConnections,
    /// Both clocks of the process go on or back by so many seconds.
    JumpClocks {
        monotonic: u64,
        wall: i64,
    },
}

/// Every kind of action. A run does each of them.
pub(crate) const KINDS: [&str; 23] = [
    "apply",
    "delete",
    "file that is no YAML",
    "file that is emptied",
    "file that is truncated",
    "relabel",
    "look-up",
    "move",
    "silent upstream",
    "SERVFAIL upstream",
    "wrong ids",
    "late answers",
    "upstream restored",
    "terminated",
    "killed",
    "paused",
    "taken over",
    "starved",
    "full disk",
    "disk freed",
    "full table of connections",
    "table of connections freed",
    "clocks jump",
];
/// So many random actions are looked through for one that is wanted.
const MOST_DRAWN: usize = 10_000;

impl Action {
    /// One of `KINDS`.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Apply { .. } => "apply",
            Self::Delete { .. } => "delete",
            Self::Damage { damage: Damage::NotYaml, .. } => "file that is no YAML",
            Self::Damage { damage: Damage::Emptied, .. } => "file that is emptied",
            Self::Damage { damage: Damage::Truncated, .. } => "file that is truncated",
            Self::Relabel { .. } => "relabel",
            Self::LookUp { .. } => "look-up",
            Self::Move { .. } => "move",
            Self::BreakUpstream(UpstreamFault::Silent) => "silent upstream",
            Self::BreakUpstream(UpstreamFault::Servfail) => "SERVFAIL upstream",
            Self::BreakUpstream(UpstreamFault::WrongId) => "wrong ids",
            Self::BreakUpstream(UpstreamFault::Late) => "late answers",
            Self::RestoreUpstream => "upstream restored",
            Self::Interrupt(Interruption::Terminated) => "terminated",
            Self::Interrupt(Interruption::Killed) => "killed",
            Self::Interrupt(Interruption::Paused { .. }) => "paused",
            Self::Interrupt(Interruption::TakenOver) => "taken over",
            Self::Interrupt(Interruption::Starved { .. }) => "starved",
            Self::FillDisk => "full disk",
            Self::FreeDisk => "disk freed",
            Self::FillConnections => "full table of connections",
            Self::FreeConnections => "table of connections freed",
            Self::JumpClocks { .. } => "clocks jump",
        }
    }

    /// One of the wanted kinds. If none of them is possible now, a random one leads to where they are.
    pub(crate) fn wanted(dice: &mut Dice, model: &Model, is_wanted: impl Fn(&str) -> bool) -> Self {
        let mut draw = || Self::random(dice, model);
        let last = draw();
        (1..MOST_DRAWN).map(|_| draw()).find(|action| is_wanted(action.kind())).unwrap_or(last)
    }

    pub(crate) fn random(dice: &mut Dice, model: &Model) -> Self {
        let (pod, slot, name) = (dice.within(0..PODS), dice.within(0..SLOTS), dice.within(0..NAMES.len()));
        // With a full table there is little to see.
        if model.is_table_full && dice.within(0..4) == 0 {
            return Self::FreeConnections;
        }
        match dice.within(0..100) {
            0..28 => Self::LookUp { pod, name },
            28..50 => {
                // One that equals what is there would be no change.
                let mut policy = Policy::random(dice);
                while model.slots[slot].as_ref() == Some(&policy) {
                    policy = Policy::random(dice);
                }
                Self::Apply { slot, policy }
            }
            50..56 if model.slots[slot].is_some() => Self::Delete { slot },
            // What is not stored does not outlive the process.
            56..63 if model.slots[slot].is_some() && !model.broken.contains(&slot) && !model.is_disk_full => {
                let damage = dice.pick(&[Damage::NotYaml, Damage::Emptied, Damage::Truncated]);
                Self::Damage { slot, damage }
            }
            63..69 => {
                let others: Vec<&str> = COLORS.into_iter().filter(|color| *color != model.colors[pod]).collect();
                Self::Relabel { pod, color: dice.pick(&others) }
            }
            69..73 => Self::Move { name },
            73..79 if model.upstream_fault.is_some() => Self::RestoreUpstream,
            76..79 => {
                use UpstreamFault::{Late, Servfail, Silent, WrongId};
                Self::BreakUpstream(dice.pick(&[Silent, Servfail, WrongId, Late]))
            }
            79..90 => {
                use Interruption::{Killed, Paused, Starved, TakenOver, Terminated};
                let starved = Starved { megabytes: dice.within(1..24) as u64 };
                let paused = Paused { milliseconds: dice.within(700..4_001) as u64 };
                Self::Interrupt(dice.pick(&[Terminated, Killed, paused, TakenOver, starved]))
            }
            90..94 if model.is_disk_full => Self::FreeDisk,
            92..94 => Self::FillDisk,
            94..96 if !model.is_table_full => Self::FillConnections,
            96..100 => {
                let wall = dice.pick(&[-86_400, -5, 5, 86_400]);
                Self::JumpClocks { monotonic: dice.pick(&[1, 60, 700, 5_000]), wall }
            }
            _ => Self::LookUp { pod, name },
        }
    }
}
