//! The functions Themis has, each for the types it takes.

use super::expression::{Context, Evaluated, Expression, Failure};
use crate::themis::value::{Type, Value};
use rustc_hash::FxHashSet;
use std::borrow::Cow;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Function {
    Not,
    And,
    Or,
    EqualStrings,
    EqualIntegers,
    EqualFloats,
    EqualLists,
    EqualSets,
    GreaterInteger,
    GreaterFloat,
    Integers(Arithmetic),
    Floats(Arithmetic),
    RangeOfIntegers,
    RangeOfFloats,
    StringContains,
    ListContains,
    NetworkContains,
    SetOfStringsContains,
    SetOfNetworksContains,
    SetOfDomainsContains,
    ListOfStrings,
    IntersectLists,
    IntersectSets,
    LengthOfList,
    LengthOfSet,
    Concat,
    Try,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
}

/// Whether there is a function of that name for other arguments.
pub(super) fn is_name(name: &str) -> bool {
    const NAMES: [&str; 16] = [
        "equal",
        "greater",
        "add",
        "subtract",
        "multiply",
        "divide",
        "contains",
        "not",
        "or",
        "and",
        "range",
        "list of strings",
        "intersect",
        "len",
        "concat",
        "try",
    ];
    NAMES.contains(&name)
}

impl Function {
    pub(super) fn named(name: &str, arguments: &[Type]) -> Option<Self> {
        let all = |kind: &Type| !arguments.is_empty() && arguments.iter().all(|argument| argument == kind);
        let are = |kind: &Type, count: usize| arguments.len() == count && all(kind);
        let numbers = |count: usize| {
            arguments.len() == count && arguments.iter().all(|kind| matches!(kind, Type::Integer | Type::Float))
        };
        let texts =
            |kind: &Type| matches!(kind, Type::String | Type::SetOfStrings | Type::ListOfStrings | Type::Flags(_));
        let arithmetic = |operation| {
            let floats = numbers(2).then_some(Self::Floats(operation));
            if are(&Type::Integer, 2) { Some(Self::Integers(operation)) } else { floats }
        };
        let found = match name {
            "not" if are(&Type::Boolean, 1) => Self::Not,
            "and" if all(&Type::Boolean) => Self::And,
            "or" if all(&Type::Boolean) => Self::Or,
            "equal" if are(&Type::String, 2) => Self::EqualStrings,
            "equal" if are(&Type::Integer, 2) => Self::EqualIntegers,
            "equal" if numbers(2) => Self::EqualFloats,
            "equal" if are(&Type::ListOfStrings, 2) => Self::EqualLists,
            "equal" if are(&Type::SetOfStrings, 2) => Self::EqualSets,
            "greater" if are(&Type::Integer, 2) => Self::GreaterInteger,
            "greater" if numbers(2) => Self::GreaterFloat,
            "add" => return arithmetic(Arithmetic::Add),
            "subtract" => return arithmetic(Arithmetic::Subtract),
            "multiply" => return arithmetic(Arithmetic::Multiply),
            "divide" => return arithmetic(Arithmetic::Divide),
            "range" if are(&Type::Integer, 3) => Self::RangeOfIntegers,
            "range" if numbers(3) => Self::RangeOfFloats,
            "contains" => match arguments {
                [Type::String, Type::String] => Self::StringContains,
                [Type::ListOfStrings, Type::String] => Self::ListContains,
                [Type::Network, Type::Address] => Self::NetworkContains,
                [Type::SetOfStrings, Type::String] => Self::SetOfStringsContains,
                [Type::SetOfNetworks, Type::Address] => Self::SetOfNetworksContains,
                [Type::SetOfDomains, Type::Domain] => Self::SetOfDomainsContains,
                _ => return None,
            },
            "list of strings" => match arguments {
                [Type::SetOfStrings | Type::ListOfStrings | Type::Flags(_)] => Self::ListOfStrings,
                _ => return None,
            },
            "intersect" if are(&Type::ListOfStrings, 2) => Self::IntersectLists,
            "intersect" if are(&Type::SetOfStrings, 2) => Self::IntersectSets,
            "len" if are(&Type::ListOfStrings, 1) => Self::LengthOfList,
            "len" if are(&Type::SetOfStrings, 1) => Self::LengthOfSet,
            "concat" if !arguments.is_empty() && arguments.iter().all(texts) => Self::Concat,
            "try" if arguments.first().is_some_and(all) => Self::Try,
            _ => return None,
        };
        Some(found)
    }

    /// As a target has it: of two arguments of exactly these types, in this order.
    pub(super) fn of_target(name: &str, first: &Type, second: &Type) -> Option<Self> {
        match (name, first, second) {
            // Written the wrong way round, and accepted: whoever reads it turns the arguments.
            ("contains", Type::Address, Type::Network) => Some(Self::NetworkContains),
            ("equal", Type::Float, Type::Float) => Some(Self::EqualFloats),
            ("greater", Type::Float, Type::Float) => Some(Self::GreaterFloat),
            ("equal" | "greater", Type::Float, _) | ("equal" | "greater", _, Type::Float) => None,
            ("equal" | "greater" | "contains", _, _) => Self::named(name, &[first.clone(), second.clone()]),
            _ => None,
        }
    }

    pub(super) fn result(self, arguments: &[Expression]) -> Type {
        match self {
            Self::Integers(_) | Self::LengthOfList | Self::LengthOfSet => Type::Integer,
            Self::Floats(_) => Type::Float,
            Self::RangeOfIntegers | Self::RangeOfFloats => Type::String,
            Self::ListOfStrings | Self::IntersectLists | Self::Concat => Type::ListOfStrings,
            Self::IntersectSets => Type::SetOfStrings,
            Self::Try => arguments.first().map_or(Type::Boolean, Expression::kind),
            _ => Type::Boolean,
        }
    }

    pub(super) fn call<'a>(self, arguments: &'a [Expression], context: &'a Context<'a>) -> Evaluated<'a> {
        let arguments = Arguments { all: arguments, context };
        let value = match self {
            Self::Try => return arguments.first_of_all(),
            Self::ListOfStrings => return arguments.list(),
            Self::Integers(operation) => {
                let [first, second] = arguments.integers()?;
                Value::Integer(match operation {
                    Arithmetic::Add => first.wrapping_add(second),
                    Arithmetic::Subtract => first.wrapping_sub(second),
                    Arithmetic::Multiply => first.wrapping_mul(second),
                    Arithmetic::Divide if second == 0 => return Err(Failure::DivisionByZero),
                    Arithmetic::Divide => first.wrapping_div(second),
                })
            }
            Self::Floats(operation) => {
                let [first, second] = arguments.floats()?;
                let result = match operation {
                    Arithmetic::Add => first + second,
                    Arithmetic::Subtract => first - second,
                    Arithmetic::Multiply => first * second,
                    Arithmetic::Divide if second == 0.0 => return Err(Failure::DivisionByZero),
                    Arithmetic::Divide => first / second,
                };
                if !result.is_finite() {
                    return Err(Failure::NotFinite);
                }
                Value::Float(result)
            }
            Self::RangeOfIntegers => {
                let [least, most, value] = arguments.integers()?;
                Value::string(where_in_range(&least, &most, &value))
            }
            Self::RangeOfFloats => {
                let [least, most, value] = arguments.floats()?;
                Value::string(where_in_range(&least, &most, &value))
            }
            Self::IntersectLists => arguments.both_lists()?,
            Self::IntersectSets => match arguments.two()? {
                [Value::SetOfStrings(first), Value::SetOfStrings(second)] => {
                    Value::SetOfStrings(Arc::new(first.intersect(&second)))
                }
                _ => return Err(Failure::Type),
            },
            Self::LengthOfList | Self::LengthOfSet => match &*arguments.get(0)? {
                Value::ListOfStrings(list) => Value::Integer(list.len() as i64),
                Value::SetOfStrings(set) => Value::Integer(set.len() as i64),
                _ => return Err(Failure::Type),
            },
            Self::Concat => arguments.concat()?,
            _ => Value::Boolean(self.test(arguments.all, context)?),
        };
        Ok(Cow::Owned(value))
    }

    /// Whether it is true or not, whatever its arguments are.
    pub(super) fn is_test(self) -> bool {
        self != Self::Try && self.result(&[]) == Type::Boolean
    }

    pub(super) fn test<'a>(self, arguments: &'a [Expression], context: &'a Context<'a>) -> Result<bool, Failure> {
        let arguments = Arguments { all: arguments, context };
        Ok(match self {
            Self::Not => !arguments.all[0].is_true(arguments.context)?,
            Self::And | Self::Or => {
                for argument in arguments.all {
                    if argument.is_true(arguments.context)? == (self == Self::Or) {
                        return Ok(self == Self::Or);
                    }
                }
                self == Self::And
            }
            Self::EqualIntegers => {
                let [first, second] = arguments.integers()?;
                first == second
            }
            Self::GreaterInteger => {
                let [first, second] = arguments.integers()?;
                first > second
            }
            Self::EqualFloats => {
                let [first, second] = arguments.floats()?;
                first == second
            }
            Self::GreaterFloat => {
                let [first, second] = arguments.floats()?;
                first > second
            }
            // Most tests are of an attribute and a value that stands there.
            _ => match arguments.all {
                [first, second] => match (first.at_hand(context), second.at_hand(context)) {
                    (Some(first), Some(second)) => self.compare(first, second)?,
                    _ => self.compare(&*arguments.get(0)?, &*arguments.get(1)?)?,
                },
                _ => return Err(Failure::Type),
            },
        })
    }

    fn compare(self, first: &Value, second: &Value) -> Result<bool, Failure> {
        Ok(match (self, first, second) {
            (Self::EqualStrings, Value::String(first), Value::String(second)) => first == second,
            (Self::EqualLists, Value::ListOfStrings(first), Value::ListOfStrings(second)) => first == second,
            (Self::EqualSets, Value::SetOfStrings(first), Value::SetOfStrings(second)) => first.is_same(second),
            (_, Value::String(text), Value::String(part)) => text.contains(&**part),
            (_, Value::ListOfStrings(list), Value::String(text)) => list.contains(text),
            (_, Value::Network(network), Value::Address(address)) => network.contains(*address),
            (_, Value::SetOfStrings(set), Value::String(text)) => set.contains(text),
            (_, Value::SetOfNetworks(set), Value::Address(address)) => set.contains(*address),
            (_, Value::SetOfDomains(set), Value::Domain(name)) => set.contains(name),
            _ => return Err(Failure::Type),
        })
    }
}

fn where_in_range<T: PartialOrd>(least: &T, most: &T, value: &T) -> &'static str {
    if value < least {
        "Below"
    } else if most < value {
        "Above"
    } else {
        "Within"
    }
}

struct Arguments<'a> {
    all: &'a [Expression],
    context: &'a Context<'a>,
}

impl<'a> Arguments<'a> {
    fn get(&self, at: usize) -> Evaluated<'a> {
        self.all.get(at).ok_or(Failure::Type)?.evaluate(self.context)
    }

    fn two(&self) -> Result<[Value; 2], Failure> {
        Ok([self.get(0)?.into_owned(), self.get(1)?.into_owned()])
    }

    fn integers<const N: usize>(&self) -> Result<[i64; N], Failure> {
        let mut numbers = [0; N];
        for (at, number) in numbers.iter_mut().enumerate() {
            *number = match *self.get(at)? {
                Value::Integer(number) => number,
                _ => return Err(Failure::Type),
            };
        }
        Ok(numbers)
    }

    fn floats<const N: usize>(&self) -> Result<[f64; N], Failure> {
        let mut numbers = [0.0; N];
        for (at, number) in numbers.iter_mut().enumerate() {
            *number = match *self.get(at)? {
                Value::Float(number) => number,
                Value::Integer(number) => number as f64,
                _ => return Err(Failure::Type),
            };
        }
        Ok(numbers)
    }

    /// The first argument that has a value; if none has, why the last has not.
    fn first_of_all(&self) -> Evaluated<'a> {
        let mut failure = Failure::Type;
        for argument in self.all {
            match argument.evaluate(self.context) {
                Ok(value) => return Ok(value),
                Err(why) => failure = why,
            }
        }
        Err(failure)
    }

    fn list(&self) -> Evaluated<'a> {
        let argument = self.all.first().ok_or(Failure::Type)?;
        let value = argument.evaluate(self.context)?;
        if let Value::ListOfStrings(_) = &*value {
            return Ok(value);
        }
        let mut texts = Vec::new();
        append(&mut texts, &value, argument)?;
        Ok(Cow::Owned(Value::ListOfStrings(texts.into())))
    }

    /// What is in both, in the second's order.
    fn both_lists(&self) -> Result<Value, Failure> {
        let [Value::ListOfStrings(first), Value::ListOfStrings(second)] = self.two()? else {
            return Err(Failure::Type);
        };
        let mut wanted: FxHashSet<&str> = first.iter().map(|text| &**text).collect();
        Ok(Value::ListOfStrings(second.iter().filter(|text| wanted.remove(&***text)).cloned().collect()))
    }

    /// What a content does not have is left out, unless nothing is left.
    fn concat(&self) -> Result<Value, Failure> {
        let mut texts = Vec::new();
        let mut missing = 0;
        for argument in self.all {
            match argument.evaluate(self.context) {
                Ok(value) => append(&mut texts, &value, argument)?,
                Err(Failure::NoValue) => missing += 1,
                Err(failure) => return Err(failure),
            }
        }
        if missing == self.all.len() { Err(Failure::NoValue) } else { Ok(Value::ListOfStrings(texts.into())) }
    }
}

fn append(texts: &mut Vec<Arc<str>>, value: &Value, of: &Expression) -> Result<(), Failure> {
    match (value, of.kind()) {
        (Value::String(text), _) => texts.push(text.clone()),
        (Value::SetOfStrings(set), _) => texts.extend(set.iter().cloned()),
        (Value::ListOfStrings(list), _) => texts.extend(list.iter().cloned()),
        (Value::Flags(flags), Type::Flags(declared)) => texts.extend(declared.names(flags.bits)),
        _ => return Err(Failure::Type),
    }
    Ok(())
}
