//! What a policy says, whatever kind it was written as.

use super::cluster::{Namespace, Role, id};
use crate::addr::Cidr;
use crate::domain::DomainPattern;
use crate::finding::Source;
use crate::labels::Selector;
use crate::port::Protocol;
use std::fmt;
use std::sync::Arc;

id! { PolicyId }

/// In the order in which equal priorities are settled (S1.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum PolicyKind {
    AdminNetworkPolicy,
    ClusterNetworkPolicy,
    BaselineAdminNetworkPolicy,
    ClusterEgressFirewall,
    EgressFirewall,
    NetworkPolicy,
    /// `extensions/v1beta1`, whose empty lists mean the reverse (S3).
    NetworkPolicyV1Beta1,
}

impl PolicyKind {
    /// The kind as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::AdminNetworkPolicy => "AdminNetworkPolicy",
            Self::ClusterNetworkPolicy => "ClusterNetworkPolicy",
            Self::BaselineAdminNetworkPolicy => "BaselineAdminNetworkPolicy",
            Self::ClusterEgressFirewall => "ClusterEgressFirewall",
            Self::EgressFirewall => "EgressFirewall",
            Self::NetworkPolicy | Self::NetworkPolicyV1Beta1 => "NetworkPolicy",
        }
    }
}

/// Which object: kind, namespace where it has one, name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PolicyRef {
    pub kind: PolicyKind,
    pub namespace: Option<Arc<str>>,
    pub name: Arc<str>,
}

impl fmt::Display for PolicyRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{}/{namespace}/{}", self.kind.name(), self.name),
            None => write!(f, "{}/{}", self.kind.name(), self.name),
        }
    }
}

/// Where the policy stands in the walk of S1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Placement {
    ClusterGate {
        priority: i32,
    },
    NamespaceGate,
    Admin {
        priority: i32,
    },
    Network {
        isolates_ingress: bool,
        isolates_egress: bool,
    },
    /// `None`: after all that have a priority.
    Baseline {
        priority: Option<i32>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Enforcement {
    Enforce,
    /// Evaluated and reported, not enforced (S11).
    Audit,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Direction {
    Egress,
    Ingress,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Egress => "egress",
            Self::Ingress => "ingress",
        })
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    pub id: PolicyRef,
    pub placement: Placement,
    pub enforcement: Enforcement,
    pub subject: Subject,
    pub egress: Vec<Rule>,
    pub ingress: Vec<Rule>,
    pub source: Option<Source>,
}

impl Policy {
    pub fn rules(&self, direction: Direction) -> &[Rule] {
        match direction {
            Direction::Egress => &self.egress,
            Direction::Ingress => &self.ingress,
        }
    }
}

/// Pods by namespace and labels.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PodSet {
    pub namespaces: NamespaceScope,
    pub pods: Selector,
}

impl PodSet {
    /// Whether pods of this Role, in this namespace, are in the set; `hostNetwork` ones never are (S1).
    pub fn selects(&self, role: &Role, namespace: &Namespace) -> bool {
        let in_scope = match &self.namespaces {
            NamespaceScope::Named(name) => *name == namespace.name,
            NamespaceScope::Matching(selector) => selector.matches(&namespace.labels),
        };
        !role.host_network && in_scope && self.pods.matches(&role.labels)
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum NamespaceScope {
    /// One namespace, by name.
    Named(Arc<str>),
    Matching(Selector),
}

impl PodSet {
    pub fn all() -> Self {
        Self { namespaces: NamespaceScope::Matching(Selector::everything()), pods: Selector::everything() }
    }
}

impl fmt::Display for PodSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.namespaces, self.pods.is_everything()) {
            (NamespaceScope::Named(name), true) => write!(f, "all pods in {name}"),
            (NamespaceScope::Named(name), false) => write!(f, "pods {} in {name}", self.pods),
            (NamespaceScope::Matching(s), true) if s.is_everything() => f.write_str("all pods"),
            (NamespaceScope::Matching(s), false) if s.is_everything() => {
                write!(f, "pods {} in all namespaces", self.pods)
            }
            (NamespaceScope::Matching(s), true) => write!(f, "all pods in namespaces {s}"),
            (NamespaceScope::Matching(s), false) => {
                write!(f, "pods {} in namespaces {s}", self.pods)
            }
        }
    }
}

/// Whom a policy is for: pods, on certain nodes where it says so (S7.1).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Subject {
    pub pods: PodSet,
    pub nodes: Option<Selector>,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pods)?;
        if let Some(nodes) = &self.nodes {
            write!(f, " on nodes {nodes}")?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    Allow,
    Deny,
    /// Leave this tier.
    Pass,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Pass => "pass",
        })
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    pub name: Option<Arc<str>>,
    pub action: Action,
    pub clauses: Clauses,
    pub source: Option<Source>,
}

/// What a rule matches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Clauses {
    /// Both must match.
    Match { peers: Peers, ports: Ports },
    /// The rule could not be read in full; it fails closed (S4.2, S10.1).
    Unreadable,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Peers {
    Anyone,
    /// Any of these; an empty list matches nobody.
    Listed(Vec<Peer>),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Peer {
    Pods(PodSet),
    /// A block with holes: another peer or rule may allow what is in a hole.
    Network {
        cidr: Cidr,
        except: Vec<Cidr>,
    },
    /// Every address of the matching nodes, and `hostNetwork` pods there.
    Nodes(Selector),
    ApiServer,
    Domain(DomainPattern),
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pods(pods) => write!(f, "{pods}"),
            Self::Network { cidr, except } if except.is_empty() => write!(f, "network {cidr}"),
            Self::Network { cidr, except } => {
                let holes: Vec<String> = except.iter().map(ToString::to_string).collect();
                write!(f, "network {cidr} except {}", holes.join(", "))
            }
            Self::Nodes(selector) => write!(f, "nodes {selector}"),
            Self::ApiServer => f.write_str("the API server"),
            Self::Domain(pattern) => write!(f, "name {pattern}"),
        }
    }
}

impl fmt::Display for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anyone => f.write_str("anyone"),
            Self::Listed(peers) if peers.is_empty() => f.write_str("nobody (the list is empty)"),
            Self::Listed(peers) => {
                let texts: Vec<String> = peers.iter().map(ToString::to_string).collect();
                f.write_str(&texts.join(" or "))
            }
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ports {
    /// Every protocol and port.
    Any,
    /// Any of these; an empty list matches nothing.
    Listed(Vec<PortMatch>),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum PortMatch {
    /// A range of numbers, both ends included.
    Range { protocol: Protocol, low: u16, high: u16 },
    /// A container port of the destination pod; without a protocol, of any.
    Named { protocol: Option<Protocol>, name: Arc<str> },
}

impl PortMatch {
    /// Every port of a protocol.
    pub fn every(protocol: Protocol) -> Self {
        Self::Range { protocol, low: 0, high: u16::MAX }
    }
}

impl fmt::Display for PortMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range { protocol, low: 0, high: u16::MAX } => write!(f, "{protocol}"),
            Self::Range { protocol, low, high } if low == high => write!(f, "{protocol} {low}"),
            Self::Range { protocol, low, high } => write!(f, "{protocol} {low}-{high}"),
            Self::Named { protocol: Some(protocol), name } => write!(f, "{protocol} port named {name}"),
            Self::Named { protocol: None, name } => write!(f, "port named {name}"),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("every port"),
            Self::Listed(ports) if ports.is_empty() => f.write_str("no port (the list is empty)"),
            Self::Listed(ports) => {
                let texts: Vec<String> = ports.iter().map(ToString::to_string).collect();
                f.write_str(&texts.join(", "))
            }
        }
    }
}
