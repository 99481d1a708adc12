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

/// How the process ends or pauses, and goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Interruption {
    Terminated,
    Killed,
    /// Stopped for a while by SIGSTOP.
    Paused,
    TakenOver,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    Apply { slot: usize, policy: Policy },
    Delete { slot: usize },
    Damage { slot: usize, damage: Damage },
    Relabel { pod: usize, color: &'static str },
    LookUp { pod: usize, name: usize },
    Move { name: usize },
    SilenceUpstream,
    RestoreUpstream,
    Interrupt(Interruption),
}

impl Action {
    pub(crate) fn random(dice: &mut Dice, model: &Model) -> Self {
        let (pod, slot, name) = (dice.within(0..PODS), dice.within(0..SLOTS), dice.within(0..NAMES.len()));
        match dice.within(0..100) {
            0..30 => Self::LookUp { pod, name },
            30..55 => {
                // One that equals what is there would be no change.
                let mut policy = Policy::random(dice);
                while model.slots[slot].as_ref() == Some(&policy) {
                    policy = Policy::random(dice);
                }
                Self::Apply { slot, policy }
            }
            55..62 if model.slots[slot].is_some() => Self::Delete { slot },
            62..70 if model.slots[slot].is_some() && !model.broken.contains(&slot) => {
                let damage = dice.pick(&[Damage::NotYaml, Damage::Emptied, Damage::Truncated]);
                Self::Damage { slot, damage }
            }
            70..77 => {
                let others: Vec<&str> = COLORS.into_iter().filter(|color| *color != model.colors[pod]).collect();
                Self::Relabel { pod, color: dice.pick(&others) }
            }
            77..83 => Self::Move { name },
            83..88 if model.is_upstream_silent => Self::RestoreUpstream,
            86..88 => Self::SilenceUpstream,
            88..100 => {
                use Interruption::{Killed, Paused, TakenOver, Terminated};
                Self::Interrupt(dice.pick(&[Terminated, Killed, Paused, TakenOver]))
            }
            _ => Self::LookUp { pod, name },
        }
    }
}
