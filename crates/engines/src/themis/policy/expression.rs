//! Expressions: what targets, conditions, mappers and obligations are made of.
//! Their types are known before anything is asked; evaluating borrows what is
//! there already.

use super::function::Function;
use super::selector::Selector;
use super::symbols::{Declared, Symbols};
use crate::themis::codec::Attribute;
use crate::themis::value::{Type, Value};
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

#[derive(Debug)]
pub(super) enum Expression {
    Value(Type, Value),
    Attribute(Declared),
    Selector(Box<Selector>),
    Call(Function, Box<[Expression]>),
}

pub(super) type Evaluated<'a> = Result<Cow<'a, Value>, Failure>;

impl Expression {
    pub(super) fn kind(&self) -> Type {
        match self {
            Self::Value(kind, _) => kind.clone(),
            Self::Attribute(declared) => declared.kind.clone(),
            Self::Selector(selector) => selector.kind.clone(),
            Self::Call(function, arguments) => function.result(arguments),
        }
    }

    pub(super) fn evaluate<'a>(&'a self, context: &'a Context<'a>) -> Evaluated<'a> {
        match self {
            Self::Value(_, value) => Ok(Cow::Borrowed(value)),
            Self::Attribute(declared) => match context.slots.get(declared.slot) {
                Some(Some(value)) => Ok(Cow::Borrowed(value)),
                _ => Err(Failure::NoAttribute(declared.name.clone())),
            },
            Self::Selector(selector) => selector.evaluate(context),
            Self::Call(function, arguments) => function.call(arguments, context),
        }
    }

    /// A value that has not to be computed, if there is one.
    pub(super) fn at_hand<'a>(&'a self, context: &Context<'a>) -> Option<&'a Value> {
        match self {
            Self::Value(_, value) => Some(value),
            Self::Attribute(declared) => *context.slots.get(declared.slot)?,
            _ => None,
        }
    }

    pub(super) fn is_true<'a>(&'a self, context: &'a Context<'a>) -> Result<bool, Failure> {
        if let Self::Call(function, arguments) = self
            && function.is_test()
        {
            return function.test(arguments, context);
        }
        match *self.evaluate(context)? {
            Value::Boolean(is) => Ok(is),
            _ => Err(Failure::Type),
        }
    }
}

/// Why there is no value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// A content has nothing there: selectors and mappers have defaults for that alone.
    NoValue,
    NoAttribute(Arc<str>),
    DivisionByZero,
    /// A number that is none, or beyond all.
    NotFinite,
    /// Types are checked when policies are read; it does not happen.
    Type,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoValue => f.write_str("the content has no value there"),
            Self::NoAttribute(name) => write!(f, "the attribute `{name}` is missing"),
            Self::DivisionByZero => f.write_str("a division by zero"),
            Self::NotFinite => f.write_str("a number without bounds"),
            Self::Type => f.write_str("a value of another type"),
        }
    }
}

/// What a request says of the attributes of a policy.
#[derive(Debug)]
pub(super) struct Context<'a> {
    slots: Vec<Option<&'a Value>>,
}

/// Up to how many attributes are compared one by one.
const FEW: usize = 16;

impl<'a> Context<'a> {
    /// Only the first of a name counts, and only if it has the type that is declared; a second one of
    /// the same type is an error. Flags of a request have no names, and so are of no declared type.
    pub(super) fn new(symbols: &Symbols, attributes: &'a [Attribute]) -> Result<Self, String> {
        let mut slots = vec![None; symbols.len()];
        let mut known = FxHashMap::default();
        for (at, Attribute { name, value }) in attributes.iter().enumerate() {
            let first = if attributes.len() <= FEW {
                attributes[..at].iter().find(|earlier| earlier.name == *name).map(|earlier| &earlier.value)
            } else {
                let first = *known.entry(name).or_insert(value);
                (!std::ptr::eq(first, value)).then_some(first)
            };
            match first {
                None => {}
                Some(first) if same_type(first, value) => {
                    return Err(format!("the attribute `{name}` is in the request twice"));
                }
                Some(_) => continue,
            }
            let declared = symbols.get(name).filter(|declared| value.kind().as_ref() == Some(&declared.kind));
            if let Some(declared) = declared {
                slots[declared.slot] = Some(value);
            }
        }
        Ok(Self { slots })
    }
}

fn same_type(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Flags(one), Value::Flags(other)) => one.count == other.count,
        _ => std::mem::discriminant(one) == std::mem::discriminant(other),
    }
}
