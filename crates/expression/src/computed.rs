//! Values that expressions have.

use crate::Value;
use crate::token::read_number;
use namewall_policy::addr::{Cidr, parse_address};
use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

/// What an expression comes to. It borrows from the expression and from the facts.
#[derive(Clone, PartialEq, Debug)]
pub enum Computed<'a> {
    /// The empty text is also what is not set.
    Text(Cow<'a, str>),
    /// Never infinite, and always a number.
    Number(f64),
    Bool(bool),
    Address(IpAddr),
    Network(Cidr),
    Addresses(Cow<'a, [IpAddr]>),
    List(Vec<Computed<'a>>),
}

impl<'a> Computed<'a> {
    /// Whether it counts as true: nothing does that is empty, 0 or false, or text that spells one of these
    /// (S9.4). Facts that come as text are judged by what they spell, as the shipped plugins do.
    pub fn is_true(&self) -> bool {
        match self {
            Self::Text(text) => !(text.is_empty() || text == "0" || text.eq_ignore_ascii_case("false")),
            Self::Number(number) => *number != 0.0,
            Self::Bool(is) => *is,
            Self::Address(_) | Self::Network(_) => true,
            Self::Addresses(addresses) => !addresses.is_empty(),
            Self::List(items) => !items.is_empty(),
        }
    }

    /// Whether there is nothing in it. 0 and false are something.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Addresses(addresses) => addresses.is_empty(),
            Self::List(items) => items.is_empty(),
            _ => false,
        }
    }

    /// The same, that lives as long as this one is borrowed.
    pub(crate) fn borrowed(&self) -> Computed<'_> {
        match self {
            Self::Text(text) => Computed::Text(Cow::Borrowed(text)),
            Self::Number(number) => Computed::Number(*number),
            Self::Bool(is) => Computed::Bool(*is),
            Self::Address(address) => Computed::Address(*address),
            Self::Network(network) => Computed::Network(*network),
            Self::Addresses(addresses) => Computed::Addresses(Cow::Borrowed(addresses)),
            Self::List(items) => Computed::List(items.iter().map(Computed::borrowed).collect()),
        }
    }

    /// What it reads as. Only text is had without writing it out.
    pub(crate) fn into_text(self) -> Cow<'a, str> {
        match self {
            Self::Text(text) => text,
            other => Cow::Owned(other.to_string()),
        }
    }

    pub(crate) fn as_number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) => read_number(text),
            _ => None,
        }
    }

    pub(crate) fn as_address(&self) -> Option<IpAddr> {
        match self {
            Self::Address(address) => Some(*address),
            Self::Text(text) => parse_address(text),
            _ => None,
        }
    }
}

impl<'a> From<Value<'a>> for Computed<'a> {
    fn from(value: Value<'a>) -> Self {
        match value {
            Value::Text(text) => Self::Text(text),
            Value::Number(number) => Self::Number(number as f64),
            Value::Fraction(number) => Self::Number(number),
            Value::Bool(is) => Self::Bool(is),
            // An answer may have an IPv4 address in the clothes of IPv6; it must not pass for another.
            Value::Address(address) => Self::Address(address.to_canonical()),
            Value::Addresses(addresses) => Self::Addresses(addresses),
        }
    }
}

impl fmt::Display for Computed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let comma = |at: usize| if at > 0 { "," } else { "" };
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => write!(f, "{number}"),
            Self::Bool(is) => write!(f, "{is}"),
            Self::Address(address) => write!(f, "{address}"),
            Self::Network(network) => write!(f, "{network}"),
            Self::Addresses(addresses) => {
                addresses.iter().enumerate().try_for_each(|(at, address)| write!(f, "{}{address}", comma(at)))
            }
            Self::List(items) => items.iter().enumerate().try_for_each(|(at, item)| write!(f, "{}{item}", comma(at))),
        }
    }
}
