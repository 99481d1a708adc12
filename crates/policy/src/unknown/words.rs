//! What an answer depends on, in words and as data for output.

use super::dependence::{Condition, Dependence, Party};
use crate::addr::{AddrRange, AddrSet, Cidr};
use crate::explain::describe_end;
use crate::flow::Endpoint;
use crate::model::NodeId;
use crate::port::Traffic;
use crate::program::Program;
use crate::snapshot::Snapshot;
use std::fmt;
use std::net::IpAddr;

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "the source",
            Self::Target => "the target",
        })
    }
}

/// How a sentence names an end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EndName {
    /// A pod or a template.
    Workload(String),
    /// A DNS name.
    Name(String),
    /// A node, with its address.
    Node(String),
    /// An address that no workload has.
    Host(String),
    /// Pods that do not exist yet, with a description of them.
    NewPods(String),
}

impl EndName {
    /// The end by its own name.
    fn of(snapshot: &Snapshot, end: &Endpoint) -> Self {
        let name = describe_end(snapshot, end);
        match (&end.name, end.workload, end.node) {
            (Some(_), ..) => Self::Name(name),
            (None, Some(_), _) => Self::Workload(name),
            (None, None, Some(_)) => Self::Node(name),
            (None, None, None) => Self::Host(name),
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Workload(name) | Self::Name(name) | Self::Node(name) | Self::Host(name) => name,
            Self::NewPods(_) => "the new pods",
        }
    }

    fn has_address_in(&self) -> String {
        match self {
            Self::Name(name) => format!("{name} resolves to an address in"),
            Self::Workload(name) => format!("pods of {name} live in"),
            Self::Node(name) | Self::Host(name) => format!("{name} has an address in"),
            Self::NewPods(_) => "the new pods live in".to_owned(),
        }
    }

    /// Where it runs, if it runs on a node.
    fn node(&self) -> String {
        match self {
            Self::Node(name) => name.clone(),
            _ => format!("the node of {}", self.text()),
        }
    }

    fn runs(&self) -> &'static str {
        match self {
            Self::NewPods(_) => "run",
            _ => "runs",
        }
    }
}

/// A condition for output: the sentence, and the same as data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Described {
    /// `TCP 80: closed only if pods of shop/db live in 8.8.8.8/32`.
    pub text: String,
    /// The connections it is about; None for all that depend on something.
    pub part: Option<Traffic>,
    pub unknown: Unknown,
    /// The end whose address or node decides.
    pub of: String,
}

impl Described {
    /// The sentences in one.
    pub fn join(all: &[Self]) -> String {
        all.iter().map(|one| one.text.as_str()).collect::<Vec<_>>().join("; ")
    }
}

/// What of an end is not known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unknown {
    /// Its address: the connection is open if it is in one set and closed if it is in the other.
    Address { open: AddrSet, closed: AddrSet },
    /// The node it runs on.
    Node,
    /// Whether one of these nodes puts its own address in the place of that of a source (S1.11).
    SourceNat { nodes: Vec<String> },
    /// Whether a load balancer comes to it by a node.
    LoadBalancer,
    /// Whether another node translates it: it is an address of a Service.
    NextNode,
}

impl Condition {
    /// With the ends by their own names.
    pub fn describe(&self, snapshot: &Snapshot, program: &Program) -> Described {
        self.describe_as(snapshot, program, &|end| EndName::of(snapshot, end))
    }
}

impl<E> Condition<E> {
    /// With other names for the ends.
    pub fn describe_as(&self, snapshot: &Snapshot, program: &Program, name_of: &dyn Fn(&E) -> EndName) -> Described {
        let sentence = self.on.describe_as(snapshot, program, name_of);
        let text = match &self.part {
            Some(part) => format!("{part}: {sentence}"),
            None => sentence,
        };
        let (unknown, end) = match &self.on {
            Dependence::Address { end, open, closed } => {
                (Unknown::Address { open: open.clone(), closed: closed.clone() }, end)
            }
            Dependence::HostNode { end, .. } | Dependence::SourceNode { end, .. } => (Unknown::Node, end),
            Dependence::SameNode { to, .. } => (Unknown::Node, to),
            Dependence::PassedOn { from, nodes } => {
                let nodes = nodes.iter().map(|&node| snapshot.node(node).name.to_string()).collect();
                (Unknown::SourceNat { nodes }, from)
            }
            Dependence::PastNodes { to } => (Unknown::LoadBalancer, to),
            Dependence::NextNode { to } => (Unknown::NextNode, to),
        };
        let of = match name_of(end) {
            EndName::NewPods(pods) => pods,
            EndName::Workload(name) | EndName::Name(name) | EndName::Node(name) | EndName::Host(name) => name,
        };
        Described { text, part: self.part.clone(), unknown, of }
    }
}

impl<E> Dependence<E> {
    /// `closed only if pods of shop/db live in 8.8.8.8/32`.
    pub(crate) fn describe_as(
        &self,
        snapshot: &Snapshot,
        program: &Program,
        name_of: &dyn Fn(&E) -> EndName,
    ) -> String {
        match self {
            Self::Address { end, open, closed } => {
                let (state, addresses) = shorter(open, closed);
                format!("{state} only if {} {addresses}", name_of(end).has_address_in())
            }
            Self::HostNode { end, open, closed } => {
                let names = |nodes: &[NodeId]| {
                    let names: Vec<&str> = nodes.iter().map(|&node| &*snapshot.node(node).name).collect();
                    some_of(&names)
                };
                let (state, nodes) = if closed.len() <= open.len() { ("closed", closed) } else { ("open", open) };
                let end = name_of(end);
                format!("{state} only if {} {} on node {}", end.text(), end.runs(), names(nodes))
            }
            Self::SourceNode { end, policies } => {
                let names: Vec<String> = policies.iter().map(|&id| program.policy(id).id.to_string()).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let (end, policies) = (name_of(end), some_of(&names));
                let are = if names.len() == 1 { "is" } else { "are" };
                format!("the node that {} {} on decides: {policies} {are} for certain nodes", end.text(), end.runs())
            }
            Self::SameNode { from, to } => {
                let (from, to) = (name_of(from), name_of(to));
                let (node, target, runs) = (from.node(), to.text(), to.runs());
                format!("open only if {target} {runs} on {node}: a node may always reach its own pods")
            }
            Self::PassedOn { from, nodes } => {
                let names: Vec<&str> = nodes.iter().map(|&node| &*snapshot.node(node).name).collect();
                let (from, nodes) = (name_of(from), some_of(&names));
                let source = from.text();
                format!("source NAT decides: the address that {nodes} may put in the place of that of {source}")
            }
            Self::PastNodes { to } => {
                format!("the load balancer decides: it may reach {} without a node", name_of(to).text())
            }
            Self::NextNode { to } => {
                let service = name_of(to);
                format!("routes decide: open only if another node gets it and translates {}", service.text())
            }
        }
    }
}

/// The state that takes fewer words to say where it holds.
fn shorter(open: &AddrSet, closed: &AddrSet) -> (&'static str, String) {
    let cidrs = |set: &AddrSet| set.ranges().flat_map(|range: AddrRange| range.cidrs()).collect::<Vec<Cidr>>();
    let (open, closed) = (cidrs(open), cidrs(closed));
    let (state, list) = if closed.len() <= open.len() { ("closed", closed) } else { ("open", open) };
    let texts: Vec<String> = list.iter().map(ToString::to_string).collect();
    (state, some_of(&texts.iter().map(String::as_str).collect::<Vec<_>>()))
}

fn some_of(texts: &[&str]) -> String {
    const SHOWN: usize = 6;
    let more = texts.len().saturating_sub(SHOWN);
    let listed = texts[..texts.len() - more].join(", ");
    if more > 0 { format!("{listed} and {more} more") } else { listed }
}

/// The network that the pods with addresses seem to be in: a hint, never the base of an answer.
pub fn guessed_pod_network(snapshot: &Snapshot) -> Option<Cidr> {
    const PREFIX: u8 = 16;
    let pods = snapshot.workloads.iter().filter(|workload| !workload.host_network);
    let v4 = pods.flat_map(|workload| workload.addresses.iter()).filter(|address| address.is_ipv4());
    let mut networks = v4.map(|&address: &IpAddr| Cidr::new(Cidr::new(address, PREFIX).address(), PREFIX));
    let first = networks.next()?;
    networks.all(|other| other == first).then_some(first)
}
