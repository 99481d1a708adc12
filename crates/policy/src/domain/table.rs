//! The patterns of all rules by name, and how those of a name are found.

use super::{DomainName, DomainPattern};
use crate::model::Action;
use rustc_hash::FxHashMap;
use std::fmt;

/// What a rule by name does with the addresses of its names.
///
/// Rules that allow and rules that deny have leases of their own. An answer must not open an address inside the
/// cluster (S6.8), but a denied name stays denied wherever it leads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Effect {
    Allow,
    Deny,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        })
    }
}

impl From<Action> for Effect {
    fn from(action: Action) -> Self {
        match action {
            // A Pass leaves the decision to others, so it must not match more than is sure.
            Action::Allow | Action::Pass => Self::Allow,
            Action::Deny => Self::Deny,
        }
    }
}

/// The pattern of a rule by name, with what the rule does.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RulePattern {
    /// Which names it speaks of.
    pub names: DomainPattern,
    pub effect: Effect,
}

impl RulePattern {
    pub fn allow(names: DomainPattern) -> Self {
        Self { names, effect: Effect::Allow }
    }

    pub fn deny(names: DomainPattern) -> Self {
        Self { names, effect: Effect::Deny }
    }

    pub fn denies(&self) -> bool {
        self.effect == Effect::Deny
    }

    /// True if every lease of `other` comes with one of this pattern. A pattern that allows has no leases inside the
    /// cluster, where one that denies has them.
    pub fn covers(&self, other: &Self) -> bool {
        self.names.covers(&other.names) && (self.denies() || !other.denies())
    }
}

impl fmt::Display for RulePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.names, f)
    }
}

impl fmt::Debug for RulePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.effect, self.names)
    }
}

/// A pattern in a [`PatternTable`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PatternId(pub u32);

/// All patterns of a Program, found by hashed label suffixes: a lookup costs
/// one probe a label, however many patterns there are.
#[derive(Clone, Default, Debug)]
pub struct PatternTable {
    patterns: Vec<RulePattern>,
    by_domain: FxHashMap<Box<str>, Slots>,
}

/// The patterns of one domain, each for rules that allow and for rules that deny.
#[derive(Clone, Copy, Default, Debug)]
struct Slots {
    exact: [Option<PatternId>; 2],
    subdomains: [Option<PatternId>; 2],
    one_label: [Option<PatternId>; 2],
}

impl PatternTable {
    /// The id of the pattern, which is added if it is new.
    pub fn intern(&mut self, pattern: &RulePattern) -> PatternId {
        let slots = self.by_domain.entry(pattern.names.domain().as_str().into()).or_default();
        let slots = match pattern.names {
            DomainPattern::Exact(_) => &mut slots.exact,
            DomainPattern::Subdomains(_) => &mut slots.subdomains,
            DomainPattern::OneLabel(_) => &mut slots.one_label,
        };
        let patterns = &mut self.patterns;
        *slots[pattern.effect as usize].get_or_insert_with(|| {
            patterns.push(pattern.clone());
            PatternId(patterns.len() as u32 - 1)
        })
    }

    pub fn get(&self, id: PatternId) -> &RulePattern {
        &self.patterns[id.0 as usize]
    }

    pub fn iter(&self) -> impl Iterator<Item = (PatternId, &RulePattern)> {
        self.patterns.iter().enumerate().map(|(at, pattern)| (PatternId(at as u32), pattern))
    }

    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Every pattern that matches the name.
    pub fn matching(&self, name: &DomainName) -> Vec<PatternId> {
        let mut found = Vec::new();
        for (depth, suffix) in name.suffixes().enumerate() {
            let Some(slots) = self.by_domain.get(suffix) else {
                continue;
            };
            let mut add = |slots: [Option<PatternId>; 2]| found.extend(slots.into_iter().flatten());
            match depth {
                0 => add(slots.exact),
                1 => {
                    add(slots.subdomains);
                    add(slots.one_label);
                }
                _ => add(slots.subdomains),
            }
        }
        found
    }
}
