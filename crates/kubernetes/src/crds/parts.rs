//! What several kinds are made of.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Selects by labels. An empty selector selects everything.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", extend("x-kubernetes-map-type" = "atomic"))]
pub(super) struct LabelSelector {
    /// Labels that must be there with these values.
    match_labels: Option<BTreeMap<String, LabelValue>>,
    /// Further requirements; all must hold.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    match_expressions: Option<Vec<LabelSelectorRequirement>>,
}

/// A label's value.
#[derive(JsonSchema)]
struct LabelValue(
    #[schemars(length(max = 63), regex(pattern = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"))] String,
);

/// A requirement: a key, and what must be true of its value.
#[derive(JsonSchema)]
// Not by CEL: selectors have no bounds, and a rule's cost is reckoned for the longest list there could be.
#[schemars(extend("anyOf" = [
    {"required": ["values"], "properties": {"operator": {"enum": ["In", "NotIn"]}, "values": {"minItems": 1}}},
    {"properties": {"operator": {"enum": ["Exists", "DoesNotExist"]}, "values": {"maxItems": 0}}},
]))]
struct LabelSelectorRequirement {
    /// The label's key.
    key: LabelKey,
    /// In, NotIn, Exists or DoesNotExist.
    operator: Operator,
    /// At least one with In and NotIn, none with Exists and DoesNotExist.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    values: Option<Vec<LabelValue>>,
}

/// A label's key: name, or prefix/name.
#[derive(JsonSchema)]
struct LabelKey(
    #[schemars(
        length(max = 317),
        regex(
            pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
        )
    )]
    String,
);

#[derive(JsonSchema)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// Whom a policy is for. Exactly one of the fields is set.
#[derive(JsonSchema)]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub(super) struct Subject<P = NamespacedPod> {
    /// All pods of namespaces with these labels.
    namespaces: Option<LabelSelector>,
    /// Pods with these labels in namespaces with these labels.
    pods: Option<P>,
}

/// Pods by their labels and their namespaces'.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(super) struct NamespacedPod {
    /// The namespaces; without it, all.
    namespace_selector: Option<LabelSelector>,
    /// The pods; all of them if it is empty.
    pod_selector: LabelSelector,
}

/// Pods by their labels and their namespaces', as `v1alpha1` wants it: both are written.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(super) struct NamespacedPodV1Alpha1 {
    /// The namespaces; all of them if it is empty.
    namespace_selector: LabelSelector,
    /// The pods; all of them if it is empty.
    pod_selector: LabelSelector,
}

/// Where connections come from. Exactly one of the fields is set.
#[derive(JsonSchema)]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub(super) struct IngressPeer<P = NamespacedPod> {
    /// All pods of namespaces with these labels.
    namespaces: Option<LabelSelector>,
    /// Pods with these labels in namespaces with these labels.
    pods: Option<P>,
}

/// Where connections go. Exactly one of the fields is set.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", extend("minProperties" = 1, "maxProperties" = 1))]
pub(super) struct EgressPeer<P = NamespacedPod> {
    /// All pods of namespaces with these labels.
    namespaces: Option<LabelSelector>,
    /// Pods with these labels in namespaces with these labels.
    pods: Option<P>,
    /// Nodes with these labels, at every address they have.
    nodes: Option<LabelSelector>,
    /// Blocks of addresses, also of pods inside them.
    #[schemars(length(min = 1, max = 25), extend("x-kubernetes-list-type" = "set"))]
    networks: Option<Vec<Cidr>>,
    /// Names, only in rules that allow.
    #[schemars(length(min = 1, max = 25), extend("x-kubernetes-list-type" = "set"))]
    domain_names: Option<Vec<PublishedDomainName>>,
}

/// A block of IPv4 or IPv6 addresses, like 10.0.0.0/8 or fd00::/8.
#[derive(JsonSchema)]
pub(super) struct Cidr(
    // Not by CEL: a hundred rules to a hundred destinations of a hundred blocks would cost too much.
    #[schemars(length(max = 43), extend("format" = "cidr", "not" = {"pattern": "^[0:]*:[Ff]{4}:"}))] String,
);

/// A name like kubernetes.io, or *.kubernetes.io for all names under it, at any depth, and not itself.
#[derive(JsonSchema)]
struct PublishedDomainName(
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

/// What became of a policy.
#[derive(Serialize, Deserialize, JsonSchema, Clone, PartialEq, Debug)]
pub struct PolicyStatus {
    /// What is true of it now.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// One thing that is true of an object, or not, and since when.
#[derive(Serialize, Deserialize, JsonSchema, Clone, PartialEq, Debug)]
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
    pub status: ConditionStatus,
    /// The generation of the object of which this is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// Since when, in RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
    /// Why, in one CamelCase word.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"))]
    pub reason: String,
    /// Why, for people.
    #[schemars(length(max = 32768))]
    pub message: String,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}
