//! A connection to be judged, and what is decided about it.

use crate::domain::DomainName;
use crate::model::{Direction, NodeId, ServiceId, WorkloadId};
use crate::port::Protocol;
use crate::program::{Holder, Program, RuleId};
use std::fmt;
use std::net::IpAddr;

/// One end of a connection: all that is known of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Endpoint {
    /// The pod, `hostNetwork` or not.
    pub workload: Option<WorkloadId>,
    /// The node, if the end is a node itself or a `hostNetwork` pod on it.
    pub node: Option<NodeId>,
    /// None for a template's pod, and for a name that is not resolved.
    pub address: Option<IpAddr>,
    /// The name, where the address behind it is not known.
    pub name: Option<DomainName>,
    /// Whether the address stands for others that the end may have just as well.
    pub assumed: bool,
}

/// A connection as it stands on its first packet, after DNAT (S1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flow {
    pub from: Endpoint,
    pub to: Endpoint,
    pub protocol: Protocol,
    /// The destination's port; 0 where the protocol has none.
    pub port: u16,
    /// The Service it was addressed to, if any.
    pub via: Option<ServiceId>,
    /// The node that passes it on, where it was not the source's own that translated it.
    pub hop: Option<Hop>,
    /// The node that translates it and may put its own address in the place of the source's, where that is not the hop.
    pub masker: Option<Masker>,
}

/// A node that translates a connection to an address by which clients outside come in: a node port of the source's own
/// node, an external or a load-balancer address. kube-proxy replaces the source's address there, so that answers come
/// back by the same node. The destination's node then sees the translating node as the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Masker {
    /// The source's own node.
    Node(NodeId),
    /// The source is outside, or its node is not known.
    AnyNode,
    /// The source is a load balancer outside, which may come in by any node, or reach a backend past all of them.
    LoadBalancer,
}

/// An address that another node than the source's translates: a node port of that node, or an address of a Service
/// that is an endpoint of the Service which was asked for, since a node translates a connection once. The connection
/// leaves its own node as one to that address. The source's own node may have put its address in the place of a pod's,
/// and the node that translates puts its own in the place of the client's, if it passes the connection on (S1.11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// The node of the node port. None for an address of a Service: routes decide which node gets the connection, and
    /// whether one does. No object tells.
    pub node: Option<NodeId>,
    pub address: IpAddr,
    pub port: u16,
}

impl Flow {
    /// True if what others do on the way may decide (S1.11): a node may put its own address in the place of the
    /// source's, and a load balancer may go past all nodes.
    pub fn may_be_masked(&self) -> bool {
        self.masker == Some(Masker::LoadBalancer)
            || self.hop.is_some_and(|hop| hop.node.is_none())
            || (self.hop.is_some() || self.masker.is_some()) && self.to.workload.is_some()
    }

    /// What the source's own node sees of it.
    pub fn before(&self, hop: Hop) -> Self {
        let to = Endpoint { node: hop.node, address: Some(hop.address), ..Endpoint::default() };
        Self {
            from: self.from.clone(),
            to,
            protocol: self.protocol,
            port: hop.port,
            via: None,
            hop: None,
            masker: None,
        }
    }
}

impl Endpoint {
    pub fn name(name: DomainName) -> Self {
        Self { name: Some(name), ..Self::default() }
    }
}

impl Program {
    /// Whoever has the address; an address nobody has is outside.
    pub fn endpoint_at(&self, address: IpAddr) -> Endpoint {
        let (workload, node) = match self.by_address.get(&address) {
            Some(&Holder::Pod(workload)) => (Some(workload), None),
            Some(&Holder::Node(node)) => (None, Some(node)),
            Some(Holder::SomeNode(_)) | None => (None, None),
        };
        Endpoint { workload, node, address: Some(address), ..Endpoint::default() }
    }

    /// The pod that has the address.
    pub fn pod_at(&self, address: IpAddr) -> Option<WorkloadId> {
        match self.by_address.get(&address)? {
            Holder::Pod(pod) => Some(*pod),
            Holder::Node(_) | Holder::SomeNode(_) => None,
        }
    }

    /// True if a node has the address, or several do.
    pub fn is_node_address(&self, address: IpAddr) -> bool {
        matches!(self.by_address.get(&address), Some(Holder::Node(_) | Holder::SomeNode(_)))
    }

    /// The workload, by one of its addresses where it has any.
    pub fn endpoint_of(&self, workload: WorkloadId, address: Option<IpAddr>) -> Endpoint {
        let member = self.member(workload);
        let node = member.node.filter(|_| member.host_network);
        Endpoint { workload: Some(workload), node, address, ..Endpoint::default() }
    }

    /// The node port, if a connection that is asked for there is passed on: where the source is outside, or on another
    /// node, as a pod or as the node itself.
    pub fn hop_at(&self, from: &Endpoint, address: IpAddr, port: u16) -> Option<Hop> {
        let Some(&Holder::Node(node)) = self.by_address.get(&address) else { return None };
        let own = match from.workload {
            None => from.node,
            Some(_) => Some(self.pod(from).map_or(from.node, |pod| pod.node)?),
        };
        (own != Some(node)).then_some(Hop { node: Some(node), address, port })
    }

    /// The node that may replace the source's address on the way to a Service's external address, or to a node port of
    /// the source's own node; None if the source is a node itself.
    pub fn masker_of(&self, from: &Endpoint) -> Option<Masker> {
        match (from.workload, from.node) {
            (None, Some(_)) => None,
            (None, None) => Some(Masker::AnyNode),
            (Some(_), _) => {
                let pod = self.pod(from)?;
                Some(pod.node.map_or(Masker::AnyNode, Masker::Node))
            }
        }
    }

    /// Whether both ends are one workload, by addresses that are surely its own.
    pub(crate) fn is_same_pod(&self, from: &Endpoint, to: &Endpoint) -> bool {
        let own = match (from.address, to.address) {
            (Some(from), Some(to)) => self.have_one_holder(from, to),
            _ => true,
        };
        from.workload.is_some() && from.workload == to.workload && own
    }

    /// The pod at this end, if policies can see it as one.
    pub(crate) fn pod(&self, end: &Endpoint) -> Option<&crate::program::Member> {
        end.workload.map(|id| self.member(id)).filter(|member| !member.host_network)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Verdict {
    Allow,
    Deny,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        })
    }
}

/// A verdict and the reason for it; and, where audited policies would have
/// denied, that reason too (S11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    pub verdict: Verdict,
    pub reason: Reason,
    pub would_deny: Option<Reason>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    Allowed { egress: Cause, ingress: Cause },
    Denied { stage: Stage, cause: Cause },
}

impl Reason {
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Allowed { .. } => Verdict::Allow,
            Self::Denied { .. } => Verdict::Deny,
        }
    }
}

/// What settled one direction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// A pod to its own address.
    OwnAddress,
    /// From the pod's own node: health probes.
    OwnNode,
    /// This end is no pod whose policies count.
    NoSubject,
    Rule(RuleId),
    /// Some policy isolates the pod and none allows this.
    Isolated,
    /// No policy has a say.
    Default,
}

/// A place in the walk of S1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// Before the backends of a Service that is asked from outside (S7.4).
    ServiceGate,
    ClusterGate,
    NamespaceGate,
    Admin(Direction),
    Network(Direction),
    Baseline(Direction),
}

impl Stage {
    pub fn direction(self) -> Direction {
        match self {
            Self::ServiceGate | Self::ClusterGate | Self::NamespaceGate => Direction::Egress,
            Self::Admin(direction) | Self::Network(direction) | Self::Baseline(direction) => direction,
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServiceGate => f.write_str("service gate"),
            Self::ClusterGate => f.write_str("cluster gate"),
            Self::NamespaceGate => f.write_str("namespace gate"),
            Self::Admin(direction) => write!(f, "{direction} admin tier"),
            Self::Network(direction) => write!(f, "{direction} NetworkPolicy tier"),
            Self::Baseline(direction) => write!(f, "{direction} baseline tier"),
        }
    }
}
