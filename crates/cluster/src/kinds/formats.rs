//! What the schemas accept where namewall reads plain text and numbers.
//!
//! No value is read into most of these types. A text that no schema accepts must become a Finding that says what is
//! wrong with it, and not a failure to decode; so objects are read into `String` and `i64`, and their fields name the
//! type of their schema with `#[schemars(with = …)]`.

#![allow(dead_code, reason = "most types are there for their schemas alone")]

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A label's value.
#[derive(JsonSchema)]
pub(super) struct LabelValue(
    #[schemars(length(max = 63), regex(pattern = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"))] String,
);

/// A label's key: name, or prefix/name.
#[derive(JsonSchema)]
pub(super) struct LabelKey(
    #[schemars(
        length(max = 317),
        regex(
            pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
        )
    )]
    String,
);

#[derive(JsonSchema)]
pub(super) enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// A block of IPv4 or IPv6 addresses, like 10.0.0.0/8 or fd00::/8.
#[derive(JsonSchema)]
pub(super) struct Cidr(
    // Not by CEL: a hundred rules to a hundred destinations of a hundred blocks would cost too much.
    #[schemars(length(max = 43), extend("format" = "cidr", "not" = {"pattern": "^[0:]*:[Ff]{4}:"}))] String,
);

/// A name like kubernetes.io, or *.kubernetes.io for all names under it, at any depth, and not itself.
#[derive(JsonSchema)]
pub(super) struct PublishedDomainName(
    #[schemars(
        length(max = 255),
        regex(
            pattern = r"^(\*\.)?([a-zA-Z0-9]([-a-zA-Z0-9_]{0,61}[a-zA-Z0-9])?\.)+[a-zA-Z0-9]([-a-zA-Z0-9_]{0,61}[a-zA-Z0-9])?\.?$"
        ),
        // An address is no name.
        extend("not" = {"pattern": r"^(\*\*?\.)?([0-9]+\.){3}[0-9]+\.?$"})
    )]
    String,
);

/// A name for the rule, shown in explanations and logs.
#[derive(Deserialize, JsonSchema, Debug, Clone)]
pub struct RuleName(#[schemars(length(max = 100))] pub(super) String);

impl From<RuleName> for String {
    fn from(RuleName(name): RuleName) -> Self {
        name
    }
}

/// Blocks of addresses, also of pods inside them.
#[derive(JsonSchema)]
#[schemars(extend("x-kubernetes-list-type" = "set"))]
pub(super) struct PublishedNetworks(#[schemars(length(min = 1, max = MOST_PUBLISHED))] Vec<Cidr>);

/// The most networks, and the most names, of a peer in the published kinds.
pub(super) const MOST_PUBLISHED: usize = 25;

/// A container port's name.
#[derive(JsonSchema)]
pub(super) struct PortName(
    #[schemars(
        length(min = 1, max = 15),
        regex(pattern = r"^[a-z0-9]+(-[a-z0-9]+)*$"),
        extend("allOf" = [{"pattern": "[a-z]"}])
    )]
    String,
);

#[derive(JsonSchema)]
#[schemars(rename_all = "UPPERCASE")]
pub(super) enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

// The action of a rule, in kinds without Pass.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    Allow,
    Deny,
}

#[derive(JsonSchema)]
pub(super) enum ConditionStatus {
    True,
    False,
    Unknown,
}
