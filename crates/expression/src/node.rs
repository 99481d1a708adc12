//! An expression ready to be evaluated: its kinds are checked, its literals converted, its patterns
//! compiled. Evaluating allocates only where text is put together, or a list is made of facts.

use crate::calculate::calculate;
use crate::call::Call;
use crate::compare::{contains, equal, is_within, number, order};
use crate::computed::Computed;
use crate::error::{Fault, Span};
use crate::list::InList;
use crate::names::{Fold, Words, without_dot};
use crate::tree::{Calculation, OrderComparison};
use crate::{Fact, Facts, Kind, Value};
use namewall_policy::addr::{AddrSet, Cidr};
use regex::Regex;
use std::borrow::Cow;
use std::cmp::Ordering;

#[derive(Debug)]
pub(crate) enum Node {
    Constant(Computed<'static>),
    Fact(Fact, Kind),
    List(Box<[Node]>),
    All(Box<[Node]>),
    Any(Box<[Node]>),
    Not(Box<Node>),
    Choice(Box<[Node; 3]>),
    Otherwise(Box<[Node; 2]>),
    Equal(Box<Equal>),
    Order(Box<Ordered>),
    In(Box<Membership>),
    Matches(Box<Matches>),
    /// `in-cidr` with networks that are known.
    Within(Box<Within>),
    /// `under` with domains that are known.
    Under(Box<(Node, Words)>),
    InList(Box<InList>),
    Plus(Box<[Node; 2]>, Span),
    Calculate(Calculation, Box<[Node; 2]>, Span),
    Negative(Box<Node>, Span),
    Flipped(Box<Node>, Span),
    Call(Box<Call>),
}

#[derive(Debug)]
pub(crate) struct Equal {
    pub(crate) sides: [Node; 2],
    pub(crate) fold: Fold,
    pub(crate) negated: bool,
}

#[derive(Debug)]
pub(crate) struct Ordered {
    pub(crate) sides: [Node; 2],
    pub(crate) order: OrderComparison,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) of: Node,
    pub(crate) among: Among,
    pub(crate) fold: Fold,
    pub(crate) negated: bool,
}

#[derive(Debug)]
pub(crate) enum Among {
    /// Texts for text.
    Words(Words),
    /// Addresses and networks for an address.
    Addresses(AddrSet),
    Items(Box<[Node]>),
}

#[derive(Debug)]
pub(crate) struct Matches {
    pub(crate) of: Node,
    pub(crate) patterns: Box<[Regex]>,
    /// Whether a name is also tried without the dot at its end, which a `$` would stumble over.
    pub(crate) bare: bool,
    pub(crate) negated: bool,
}

#[derive(Debug)]
pub(crate) struct Within {
    pub(crate) of: Node,
    pub(crate) networks: Networks,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) enum Networks {
    One(Cidr),
    Many(AddrSet),
}

pub(crate) type Evaluated<T> = Result<T, Box<Fault>>;

impl Node {
    pub(crate) fn value<'a>(&'a self, facts: &'a dyn Facts) -> Evaluated<Computed<'a>> {
        Ok(match self {
            Self::Constant(value) => value.borrowed(),
            Self::Fact(fact, kind) => read(facts.get(fact), *kind),
            Self::List(items) => Computed::List(items.iter().map(|item| item.value(facts)).collect::<Result<_, _>>()?),
            Self::Choice(choice) => {
                let [condition, then, otherwise] = &**choice;
                return if condition.holds(facts)? { then.value(facts) } else { otherwise.value(facts) };
            }
            Self::Otherwise(pair) => {
                let value = pair[0].value(facts)?;
                return if value.is_empty() { pair[1].value(facts) } else { Ok(value) };
            }
            Self::Plus(sides, span) => plus(sides[0].value(facts)?, sides[1].value(facts)?, *span)?,
            Self::Calculate(calculation, sides, span) => {
                let (a, b) = (sides[0].value(facts)?, sides[1].value(facts)?);
                let fault = |message| Fault::new(*span, message);
                let (a, b) = (number(&a).map_err(fault)?, number(&b).map_err(fault)?);
                Computed::Number(calculate(*calculation, a, b).map_err(fault)?)
            }
            Self::Negative(inner, span) => {
                Computed::Number(0.0 - number(&inner.value(facts)?).map_err(|message| Fault::new(*span, message))?)
            }
            Self::Flipped(inner, span) => {
                let number = number(&inner.value(facts)?).map_err(|message| Fault::new(*span, message))?;
                Computed::Number(!(number as i64) as f64)
            }
            Self::Call(call) => return call.value(facts),
            _ => Computed::Bool(self.holds(facts)?),
        })
    }

    /// The value as it is known, if it is a fact. Most tests look at one, and judge the usual kind at once;
    /// whatever else it is goes the long way.
    pub(crate) fn fact<'a>(&self, facts: &'a dyn Facts) -> Option<Value<'a>> {
        match self {
            Self::Fact(fact, _) => Some(facts.get(fact)),
            _ => None,
        }
    }

    /// Whether its value counts as true. What can only be true or false never becomes a value in between.
    pub(crate) fn holds(&self, facts: &dyn Facts) -> Evaluated<bool> {
        match self {
            Self::All(items) => {
                for item in items {
                    if !item.holds(facts)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Any(items) => {
                for item in items {
                    if item.holds(facts)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Self::Not(inner) => Ok(!inner.holds(facts)?),
            Self::Equal(test) => Ok(test.holds(facts)? != test.negated),
            Self::Order(test) => test.holds(facts),
            Self::In(test) => Ok(test.holds(facts)? != test.negated),
            Self::Matches(test) => Ok(test.holds(facts)? != test.negated),
            Self::Within(test) => test.holds(facts),
            Self::InList(test) => test.holds(facts),
            Self::Under(test) => match test.0.fact(facts) {
                Some(Value::Text(name)) => Ok(test.1.is_over(&name)),
                _ => Ok(test.1.is_over(&test.0.value(facts)?.into_text())),
            },
            _ => Ok(self.value(facts)?.is_true()),
        }
    }
}

/// Facts of a kind may come as the text that spells it.
fn read(value: Value<'_>, kind: Kind) -> Computed<'_> {
    let value = Computed::from(value);
    let Computed::Text(text) = &value else { return value };
    let spelled = match kind {
        Kind::Text | Kind::Word | Kind::Name | Kind::Network | Kind::List => None,
        _ if text.is_empty() => None,
        Kind::Number => value.as_number().map(Computed::Number),
        Kind::Address => value.as_address().map(Computed::Address),
        Kind::Bool => match &**text {
            "true" => Some(Computed::Bool(true)),
            "false" => Some(Computed::Bool(false)),
            _ => None,
        },
    };
    spelled.unwrap_or(value)
}

/// A sum, or both as text if one is text.
fn plus<'a>(a: Computed<'a>, b: Computed<'a>, span: Span) -> Evaluated<Computed<'a>> {
    use Computed::{Addresses, List, Number, Text};
    match (&a, &b) {
        (Number(a), Number(b)) if (a + b).is_finite() => Ok(Number(a + b)),
        (Number(_), Number(_)) => Err(Fault::new(span, "the sum is too large")),
        (List(_) | Addresses(_), _) | (_, List(_) | Addresses(_)) => Err(Fault::new(span, "a list cannot be added")),
        (Text(_), _) | (_, Text(_)) => Ok(Text(Cow::Owned(format!("{a}{b}")))),
        _ => Err(Fault::new(span, format!("`{a}` and `{b}` have no sum"))),
    }
}

impl OrderComparison {
    fn is(self, order: Ordering) -> bool {
        match self {
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

impl Equal {
    fn holds(&self, facts: &dyn Facts) -> Evaluated<bool> {
        let [left, right] = &self.sides;
        if let Self { sides: [_, Node::Constant(Computed::Text(right))], .. } = self
            && let Some(Value::Text(left)) = left.fact(facts)
        {
            return Ok(self.fold.same(&left, right));
        }
        Ok(equal(&left.value(facts)?, &right.value(facts)?, self.fold))
    }
}

impl Ordered {
    fn holds(&self, facts: &dyn Facts) -> Evaluated<bool> {
        let (a, b) = (self.sides[0].value(facts)?, self.sides[1].value(facts)?);
        let order = order(&a, &b).map_err(|message| Fault::new(self.span, message))?;
        Ok(order.is_some_and(|order| self.order.is(order)))
    }
}

impl Membership {
    fn holds(&self, facts: &dyn Facts) -> Evaluated<bool> {
        match (&self.among, self.of.fact(facts)) {
            (Among::Words(words), Some(Value::Text(text))) => Ok(words.contains(&text)),
            (Among::Addresses(set), Some(Value::Address(address))) => Ok(set.contains(address.to_canonical())),
            _ => self.long_way(facts),
        }
    }

    fn long_way(&self, facts: &dyn Facts) -> Evaluated<bool> {
        let value = self.of.value(facts)?;
        match (&self.among, &value) {
            (Among::Words(words), Computed::Text(text)) => Ok(words.contains(text)),
            // A label that a plugin set to something else than text.
            (Among::Words(words), _) => {
                Ok(words.iter().any(|word| equal(&Computed::Text(word.into()), &value, self.fold)))
            }
            (Among::Addresses(set), _) => Ok(value.as_address().is_some_and(|address| set.contains(address))),
            (Among::Items(items), _) => {
                for item in items {
                    if contains(&item.value(facts)?, &value, self.fold) {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }
}

impl Matches {
    fn holds(&self, facts: &dyn Facts) -> Evaluated<bool> {
        let text = self.of.value(facts)?.into_text();
        let bare = if self.bare { without_dot(&text) } else { &text };
        let is_tried_twice = bare.len() < text.len();
        Ok(self.patterns.iter().any(|regex| regex.is_match(&text) || is_tried_twice && regex.is_match(bare)))
    }
}

impl Within {
    fn holds(&self, facts: &dyn Facts) -> Evaluated<bool> {
        let address = match self.of.fact(facts) {
            Some(Value::Address(address)) => address.to_canonical(),
            _ => match looked_up(&self.of.value(facts)?, self.span)? {
                Some(address) => address,
                None => return Ok(false),
            },
        };
        Ok(match &self.networks {
            Networks::One(network) => network.contains(address),
            Networks::Many(set) => set.contains(address),
        })
    }
}

/// The address that `in-cidr` is asked about; none if it is not set.
pub(crate) fn looked_up(value: &Computed<'_>, span: Span) -> Evaluated<Option<std::net::IpAddr>> {
    match value {
        Computed::Address(address) => Ok(Some(*address)),
        Computed::Text(text) if text.is_empty() => Ok(None),
        value => crate::compare::address(value).map(Some).map_err(|message| Fault::new(span, message)),
    }
}

/// Whether the address is in one of the networks, which are only known now.
pub(crate) fn is_in_any(
    address: std::net::IpAddr,
    networks: &[Node],
    facts: &dyn Facts,
    span: Span,
) -> Evaluated<bool> {
    for network in networks {
        let network = network.value(facts)?;
        if is_within(address, &network).map_err(|message| Fault::new(span, message))? {
            return Ok(true);
        }
    }
    Ok(false)
}
