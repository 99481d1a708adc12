//! What several kinds are made of: metadata, label selectors, numbers that may be names, conditions.

use super::formats::{ConditionStatus, LabelKey, LabelValue, Operator};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};
use std::collections::BTreeMap;
use std::fmt;

/// Read piece by piece, not through serde: see `Scope::metadata`.
#[derive(Default, Debug, Clone)]
pub struct ObjectMeta {
    pub name: String,
    pub namespace: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// True if labels are missing here that could not be read.
    pub labels_are_in_doubt: bool,
    pub annotations: BTreeMap<String, String>,
    pub owner_references: Vec<OwnerReference>,
}

#[derive(Deserialize, Debug, Clone)]
pub struct OwnerReference {
    pub kind: String,
    pub name: String,
    pub controller: Option<bool>,
}

/// Selects by labels. An empty selector selects everything.
#[derive(Deserialize, JsonSchema, Default, Debug, Clone)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct LabelSelector {
    /// Labels that must be there with these values.
    #[serde(default)]
    #[schemars(with = "Option<BTreeMap<String, LabelValue>>", !default)]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements; all must hold.
    #[serde(default)]
    #[schemars(
        with = "Option<Vec<LabelSelectorRequirement>>",
        !default,
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// A requirement: a key, and what must be true of its value.
#[derive(Deserialize, JsonSchema, Debug, Clone)]
// Not by CEL: selectors have no bounds, and a rule's cost is reckoned for the longest list there could be.
#[schemars(extend("anyOf" = [
    {"required": ["values"], "properties": {"operator": {"enum": ["In", "NotIn"]}, "values": {"minItems": 1}}},
    {"properties": {"operator": {"enum": ["Exists", "DoesNotExist"]}, "values": {"maxItems": 0}}},
]))]
pub struct LabelSelectorRequirement {
    /// The label's key.
    #[schemars(with = "LabelKey")]
    pub key: String,
    /// In, NotIn, Exists or DoesNotExist.
    #[schemars(with = "Operator")]
    pub operator: String,
    /// At least one with In and NotIn, none with Exists and DoesNotExist.
    #[serde(default)]
    #[schemars(with = "Option<Vec<LabelValue>>", !default, extend("x-kubernetes-list-type" = "atomic"))]
    pub values: Vec<String>,
}

/// What became of a policy.
#[derive(Serialize, Deserialize, JsonSchema, Clone, PartialEq, Debug)]
pub struct PolicyStatus {
    /// What is true of it now.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// One thing that is true of an object, or not, and since when.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What may be true, in CamelCase.
    #[serde(rename = "type")]
    #[schemars(
        length(max = 316),
        regex(
            pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
        )
    )]
    pub kind: String,
    /// Whether it is.
    #[schemars(with = "ConditionStatus")]
    pub status: String,
    /// The generation of the object of which this is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// Since when, in RFC 3339.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub last_transition_time: Timestamp,
    /// Why, in one CamelCase word.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"))]
    pub reason: String,
    /// Why, for people.
    #[schemars(length(max = 32768))]
    pub message: String,
}

/// A port by number or by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IntOrString {
    Int(i64),
    String(String),
}

impl fmt::Display for IntOrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => write!(f, "{number}"),
            Self::String(text) => f.write_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for IntOrString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = IntOrString;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port's number or name")
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<IntOrString, E> {
                Ok(IntOrString::Int(value))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<IntOrString, E> {
                i64::try_from(value).map(IntOrString::Int).map_err(E::custom)
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<IntOrString, E> {
                Ok(IntOrString::String(value.to_owned()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
