//! Requests and responses as the bytes Themis' client and server exchange:
//! little endian, version 1. Reading is strict and bounded by the bytes there
//! are; whatever comes, it is a value or an error.

mod read;
#[cfg(test)]
mod tests;
mod write;

use super::name::NameError;
use super::value::Value;
use std::fmt;
use std::sync::Arc;

pub use read::{read_request, read_response};
pub use write::{write_request, write_response};

const VERSION: u16 = 1;

/// Types on the wire. Booleans and addresses of either kind have two.
mod tag {
    pub(super) const FALSE: u8 = 0;
    pub(super) const TRUE: u8 = 1;
    pub(super) const STRING: u8 = 2;
    pub(super) const INTEGER: u8 = 3;
    pub(super) const FLOAT: u8 = 4;
    pub(super) const ADDRESS_V4: u8 = 5;
    pub(super) const ADDRESS_V6: u8 = 6;
    pub(super) const NETWORK_V4: u8 = 7;
    pub(super) const NETWORK_V6: u8 = 8;
    pub(super) const DOMAIN: u8 = 9;
    pub(super) const SET_OF_STRINGS: u8 = 10;
    pub(super) const SET_OF_NETWORKS: u8 = 11;
    pub(super) const SET_OF_DOMAINS: u8 = 12;
    pub(super) const LIST_OF_STRINGS: u8 = 13;
    pub(super) const FLAGS: u8 = 14;
}

/// What is added to the prefix of an IPv4 network within a set, to tell the families apart.
const V4_IN_SET: u8 = 0xc0;

/// A value under a name: of a request, or an obligation of a response.
#[derive(Clone, PartialEq, Debug)]
pub struct Attribute {
    pub name: Arc<str>,
    pub value: Value,
}

impl Attribute {
    pub fn new(name: &str, value: Value) -> Self {
        Self { name: name.into(), value }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Response {
    pub effect: Effect,
    /// What went wrong, or nothing.
    pub status: String,
    pub obligations: Vec<Attribute>,
}

/// What is decided.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    Deny,
    Permit,
    NotApplicable,
    /// It could not be told.
    Indeterminate,
    /// It could not be told, but nothing else than a deny was possible.
    IndeterminateD,
    IndeterminateP,
    IndeterminateDP,
}

impl Effect {
    const ALL: [Self; 7] = [
        Self::Deny,
        Self::Permit,
        Self::NotApplicable,
        Self::Indeterminate,
        Self::IndeterminateD,
        Self::IndeterminateP,
        Self::IndeterminateDP,
    ];
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deny => "Deny",
            Self::Permit => "Permit",
            Self::NotApplicable => "NotApplicable",
            Self::Indeterminate => "Indeterminate",
            Self::IndeterminateD => "Indeterminate{D}",
            Self::IndeterminateP => "Indeterminate{P}",
            Self::IndeterminateDP => "Indeterminate{DP}",
        })
    }
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CodecError {
    #[error("it ends before it should")]
    Cut,
    #[error("{0} bytes too many")]
    Trailing(usize),
    #[error("of version {0}, not {VERSION}")]
    Version(u16),
    #[error("{0} is no effect")]
    Effect(u8),
    #[error("{0} is no type")]
    Type(u8),
    #[error("a text that is not UTF-8")]
    Text,
    #[error("`{0}` is no domain name: {1}")]
    Name(String, NameError),
    #[error("a prefix of {0} bits")]
    Prefix(u8),
    #[error("{0} flags; there can be 1 to 64")]
    Flags(u8),
    #[error("{0} attributes, where {1} are the limit")]
    TooMany(usize, usize),
    #[error("{0} is longer than the format allows")]
    TooLong(&'static str),
    #[error("{0} bytes, where {1} are the limit")]
    TooLarge(usize, usize),
}
