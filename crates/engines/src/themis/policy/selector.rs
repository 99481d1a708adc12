//! Selectors: a value of the local content, by a path.

use super::content::{Item, KeyKind, Level};
use super::expression::{Context, Evaluated, Expression, Failure};
use crate::themis::value::{Type, Value};
use rustc_hash::FxHashSet;
use std::borrow::Cow;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Selector {
    pub(super) item: Arc<Item>,
    pub(super) path: Box<[Expression]>,
    pub(super) kind: Type,
    /// Where the content has no value.
    pub(super) default: Option<Expression>,
    /// Where anything else is wrong, or no default is given.
    pub(super) error: Option<Expression>,
    pub(super) aggregation: Option<Aggregation>,
}

/// What becomes of several values: a list of texts, where a key is a text, stands for many keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Aggregation {
    First,
    Append,
    AppendUnique,
}

impl Selector {
    pub(super) fn evaluate<'a>(&'a self, context: &'a Context<'a>) -> Evaluated<'a> {
        let failure = match self.look_up(0, &self.item.root, context) {
            Ok(value) => return Ok(value),
            Err(failure) => failure,
        };
        match (&self.default, &self.error) {
            (Some(default), _) if failure == Failure::NoValue => default.evaluate(context),
            (_, Some(error)) => error.evaluate(context),
            _ => Err(failure),
        }
    }

    fn look_up<'a>(&'a self, at: usize, level: &'a Level, context: &'a Context<'a>) -> Evaluated<'a> {
        let Some(step) = self.path.get(at) else {
            return match level {
                Level::Value(value) => Ok(Cow::Borrowed(value)),
                _ => Err(Failure::Type),
            };
        };
        let key = step.evaluate(context)?;
        match (&*key, self.aggregation) {
            (Value::ListOfStrings(keys), Some(how)) if self.item.keys.get(at) == Some(&KeyKind::Text) => {
                let look_up = |key: &Arc<str>| {
                    let next = level.get_text(key).ok_or(Failure::NoValue)?;
                    self.look_up(at + 1, next, context)
                };
                gather(keys.iter().map(look_up), how)
            }
            _ => self.look_up(at + 1, level.get(&key).ok_or(Failure::NoValue)?, context),
        }
    }
}

/// Keys without a value are passed over, but for the last one: it decides whether there is one at
/// all. That is how Themis has it.
fn gather<'a>(values: impl Iterator<Item = Evaluated<'a>>, how: Aggregation) -> Evaluated<'a> {
    let mut gathered: Vec<Arc<str>> = Vec::new();
    let mut known = FxHashSet::default();
    let mut last = Err(Failure::NoValue);
    for value in values {
        match value {
            Err(Failure::NoValue) => last = Err(Failure::NoValue),
            Err(failure) => return Err(failure),
            Ok(value) if how == Aggregation::First => return Ok(value),
            Ok(value) => {
                let Value::ListOfStrings(texts) = &*value else { return Err(Failure::Type) };
                let is_new = |text: &&Arc<str>| how == Aggregation::Append || known.insert((*text).clone());
                gathered.extend(texts.iter().filter(is_new).cloned());
                last = Ok(());
            }
        }
    }
    last.map(|()| Cow::Owned(Value::ListOfStrings(gathered.into())))
}
