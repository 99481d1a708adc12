//! Rules, policies and sets of them, and how their decisions become one.

use super::expression::{Context, Expression, Failure};
use crate::themis::codec::Effect;
use crate::themis::value::{FlagsType, Value};
use rustc_hash::FxHashMap;
use std::fmt;
use std::sync::Arc;

/// What is decided, and with it the obligations, not evaluated yet.
#[derive(Debug)]
pub(super) struct Decision<'p> {
    pub(super) effect: Effect,
    pub(super) status: Option<String>,
    pub(super) obligations: Vec<&'p Obligation>,
}

impl Decision<'_> {
    fn of(effect: Effect) -> Self {
        Self { effect, status: None, obligations: Vec::new() }
    }

    fn failed(effect: Effect, status: String) -> Self {
        Self { effect, status: Some(status), obligations: Vec::new() }
    }

    fn within(mut self, what: impl fmt::Display) -> Self {
        self.status = self.status.map(|status| format!("{what}: {status}"));
        self
    }
}

#[derive(Debug)]
pub(super) struct Obligation {
    pub(super) name: Arc<str>,
    pub(super) value: Expression,
}

/// Each of the lists must have one in which all is true.
#[derive(Default, Debug)]
pub(super) struct Target(pub(super) Vec<Vec<Vec<Expression>>>);

impl Target {
    fn matches<'a>(&'a self, context: &'a Context<'a>) -> Result<bool, Failure> {
        for any in &self.0 {
            let mut found = false;
            for all in any {
                found = true;
                for test in all {
                    if !test.is_true(context)? {
                        found = false;
                        break;
                    }
                }
                if found {
                    break;
                }
            }
            if !found {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whoever is asked by an algorithm: a rule, a policy or a set of policies.
pub(super) trait PolicyPart {
    /// `None` if it is nameless, and so for mappers not there.
    fn id(&self) -> Option<&str>;
    fn decide<'a>(&'a self, context: &'a Context<'a>) -> Decision<'a>;
}

#[derive(Debug)]
pub(super) struct Rule {
    pub(super) id: Option<Box<str>>,
    pub(super) target: Target,
    pub(super) condition: Option<Expression>,
    pub(super) permits: bool,
    pub(super) obligations: Vec<Obligation>,
}

impl PolicyPart for Rule {
    fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    fn decide<'a>(&'a self, context: &'a Context<'a>) -> Decision<'a> {
        let applies = match self.target.matches(context) {
            Ok(true) => self.condition.as_ref().map_or(Ok(true), |condition| condition.is_true(context)),
            other => other,
        };
        match applies {
            Ok(true) => Decision {
                effect: if self.permits { Effect::Permit } else { Effect::Deny },
                status: None,
                obligations: self.obligations.iter().collect(),
            },
            Ok(false) => Decision::of(Effect::NotApplicable),
            Err(failure) => {
                let effect = if self.permits { Effect::IndeterminateP } else { Effect::IndeterminateD };
                Decision::failed(effect, format!("rule {}: {failure}", Id(self.id())))
            }
        }
    }
}

/// As in messages.
struct Id<'a>(Option<&'a str>);

impl fmt::Display for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(id) => write!(f, "`{id}`"),
            None => f.write_str("without an id"),
        }
    }
}

/// A policy is a group of rules, a set one of policies and sets.
#[derive(Debug)]
pub(super) struct Group<P> {
    pub(super) id: Option<Box<str>>,
    pub(super) target: Target,
    pub(super) parts: Vec<P>,
    pub(super) algorithm: Algorithm,
    pub(super) obligations: Vec<Obligation>,
}

#[derive(Debug)]
pub(super) enum Policy {
    Rules(Group<Rule>),
    Set(Group<Policy>),
}

impl<P: PolicyPart> PolicyPart for Group<P> {
    fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    fn decide<'a>(&'a self, context: &'a Context<'a>) -> Decision<'a> {
        let all = || self.algorithm.decide(Candidates { parts: &self.parts, picked: None }, context);
        let decision = match self.target.matches(context) {
            Ok(false) => return Decision::of(Effect::NotApplicable),
            Ok(true) => {
                let mut decision = all();
                if matches!(decision.effect, Effect::Permit | Effect::Deny) {
                    decision.obligations.extend(&self.obligations);
                }
                decision
            }
            // Whatever it would have said, it is not known whether it is asked.
            Err(failure) => {
                let decision = all();
                let effect = match decision.effect {
                    Effect::NotApplicable => Effect::NotApplicable,
                    Effect::Deny | Effect::IndeterminateD => Effect::IndeterminateD,
                    Effect::Permit | Effect::IndeterminateP => Effect::IndeterminateP,
                    _ => Effect::IndeterminateDP,
                };
                Decision::failed(effect, join([Some(format!("target: {failure}")), decision.status]))
            }
        };
        decision.within(format_args!("policy {}", Id(self.id())))
    }
}

impl PolicyPart for Policy {
    fn id(&self) -> Option<&str> {
        match self {
            Self::Rules(group) => group.id(),
            Self::Set(group) => group.id(),
        }
    }

    fn decide<'a>(&'a self, context: &'a Context<'a>) -> Decision<'a> {
        match self {
            Self::Rules(group) => group.decide(context),
            Self::Set(group) => group.decide(context),
        }
    }
}

/// Statuses as one; of many only some are told.
fn join(statuses: impl IntoIterator<Item = Option<String>>) -> String {
    const SOME: usize = 4;
    let mut statuses = statuses.into_iter().flatten();
    let mut joined = statuses.by_ref().take(SOME).collect::<Vec<_>>().join("; ");
    let more = statuses.count();
    if more > 0 {
        joined += &format!("; and {more} more");
    }
    joined
}

#[derive(Debug)]
pub(super) enum Algorithm {
    FirstApplicable,
    DenyOverrides,
    Mapper(Box<Mapper>),
}

#[derive(Debug)]
pub(super) struct Mapper {
    pub(super) argument: Expression,
    pub(super) choices: Choices,
    pub(super) default: Option<usize>,
    pub(super) error: Option<usize>,
    /// Parts are asked in their own order, not in that of the ids.
    pub(super) own_order: bool,
    /// Who combines several.
    pub(super) inner: Option<Algorithm>,
}

#[derive(Debug)]
pub(super) enum Choices {
    Named(FxHashMap<Box<str>, usize>),
    /// By bit.
    Flags(Vec<Option<usize>>),
    /// Of a mapper within a mapper: among those the outer one chose.
    Chosen,
}

impl Choices {
    /// If an id is there twice, the last one has it.
    pub(super) fn named<P: PolicyPart>(parts: &[P]) -> Self {
        Self::Named(parts.iter().enumerate().filter_map(|(at, part)| Some((part.id()?.into(), at))).collect())
    }

    pub(super) fn flags<P: PolicyPart>(parts: &[P], flags: &FlagsType) -> Self {
        let last = |flag: &str| parts.iter().rposition(|part| part.id() == Some(flag));
        Self::Flags(flags.flags.iter().map(|flag| last(flag)).collect())
    }
}

/// The parts that are asked.
struct Candidates<'a, 'p, P> {
    parts: &'a [P],
    /// Which of them; without it all.
    picked: Option<&'p [usize]>,
}

impl Algorithm {
    fn decide<'a, P: PolicyPart>(&'a self, asked: Candidates<'a, '_, P>, context: &'a Context<'a>) -> Decision<'a> {
        let Candidates { parts, picked } = asked;
        match self {
            Self::Mapper(mapper) => mapper.decide(asked, context),
            _ => match picked {
                None => self.combine(parts.iter(), context),
                Some(picked) => self.combine(picked.iter().map(|at| &parts[*at]), context),
            },
        }
    }

    fn combine<'a, P: PolicyPart + 'a>(
        &self,
        parts: impl Iterator<Item = &'a P>,
        context: &'a Context<'a>,
    ) -> Decision<'a> {
        let decisions = parts.map(|part| part.decide(context));
        match self {
            Self::DenyOverrides => deny_overrides(decisions),
            _ => {
                let mut decisions = decisions;
                let applicable = decisions.find(|decision| decision.effect != Effect::NotApplicable);
                applicable.unwrap_or_else(|| Decision::of(Effect::NotApplicable))
            }
        }
    }
}

fn deny_overrides<'a>(decisions: impl Iterator<Item = Decision<'a>>) -> Decision<'a> {
    let mut permit: Option<Decision<'a>> = None;
    let (mut d, mut p, mut dp) = (false, false, false);
    let mut statuses = Vec::new();
    for decision in decisions {
        match decision.effect {
            Effect::Deny => return decision,
            Effect::NotApplicable => continue,
            Effect::Permit => {
                permit.get_or_insert_with(|| Decision::of(Effect::Permit)).obligations.extend(decision.obligations);
                continue;
            }
            Effect::IndeterminateD => d = true,
            Effect::IndeterminateP => p = true,
            Effect::Indeterminate | Effect::IndeterminateDP => dp = true,
        }
        statuses.push(decision.status);
    }
    let effect = match permit {
        _ if dp || (d && (p || permit.is_some())) => Effect::IndeterminateDP,
        _ if d => Effect::IndeterminateD,
        Some(permit) => return permit,
        None if p => Effect::IndeterminateP,
        None => return Decision::of(Effect::NotApplicable),
    };
    Decision::failed(effect, join(statuses))
}

impl Mapper {
    fn decide<'a, P: PolicyPart>(&'a self, asked: Candidates<'a, '_, P>, context: &'a Context<'a>) -> Decision<'a> {
        let parts = asked.parts;
        let value = match self.argument.evaluate(context) {
            Ok(value) => value,
            Err(failure) => {
                let default = self.default.filter(|_| failure == Failure::NoValue);
                return match default.or(self.error) {
                    Some(at) => parts[at].decide(context),
                    None => Decision::failed(Effect::Indeterminate, format!("mapper: {failure}")),
                };
            }
        };
        let decision = match (&self.inner, &*value) {
            (None, Value::String(id)) => match asked.choose(&self.choices, id) {
                Some(at) => return parts[at].decide(context),
                None => Decision::of(Effect::NotApplicable),
            },
            (None, _) => Decision::failed(Effect::Indeterminate, format!("mapper: {}", Failure::Type)),
            (Some(inner), value) => {
                let mut chosen = asked.choose_all(&self.choices, value);
                if self.own_order {
                    chosen.sort_unstable();
                }
                inner.decide(Candidates { parts, picked: Some(&chosen) }, context)
            }
        };
        match self.default {
            Some(at) if decision.effect == Effect::NotApplicable => parts[at].decide(context),
            _ => decision,
        }
    }
}

impl<P: PolicyPart> Candidates<'_, '_, P> {
    fn choose(&self, choices: &Choices, id: &str) -> Option<usize> {
        match choices {
            Choices::Named(named) => named.get(id).copied(),
            Choices::Flags(_) => None,
            Choices::Chosen => self.picked?.iter().copied().find(|at| self.parts[*at].id() == Some(id)),
        }
    }

    fn choose_all(&self, choices: &Choices, value: &Value) -> Vec<usize> {
        match (value, choices) {
            (Value::ListOfStrings(ids), _) => ids.iter().filter_map(|id| self.choose(choices, id)).collect(),
            (Value::SetOfStrings(ids), _) => ids.iter().filter_map(|id| self.choose(choices, id)).collect(),
            (Value::Flags(flags), Choices::Flags(by_bit)) => {
                let set = by_bit.iter().enumerate().filter(|(bit, _)| flags.bits >> bit & 1 == 1);
                set.filter_map(|(_, part)| *part).collect()
            }
            _ => Vec::new(),
        }
    }
}
