//! A rule of the kernel's table: tests that must all hold, then what happens.
//! `encode` writes it as kernel expressions, `text` as `nft list` shows it.

mod encode;
mod frame;
mod text;

use super::expression::Expression;
use super::set::{self, Version};
use std::net::IpAddr;

pub use frame::{EtherType, FrameAt, FrameTest, Hardware};

pub(crate) use encode::{gate_number, lease_group, peer_group};

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rule {
    pub tests: Vec<Test>,
    pub actions: Vec<Action>,
    /// What it is there for: the policy's rule.
    pub comment: Option<String>,
}

/// Which end of the packet an address is at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum End {
    Source,
    Destination,
}

/// Which chains packets are sent to by an address: each walk has its own verdict maps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Walk {
    Egress,
    Ingress,
    /// The same for policies that are only audited.
    AuditEgress,
    AuditIngress,
}

impl Walk {
    /// The maps from an address to a chain.
    pub fn maps(self) -> set::Twins {
        match self {
            Self::Egress => set::EGRESS,
            Self::Ingress => set::INGRESS,
            Self::AuditEgress => set::AUDIT_EGRESS,
            Self::AuditIngress => set::AUDIT_INGRESS,
        }
    }
}

/// Which of a packet's interfaces is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketInterface {
    Input,
    Output,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Test {
    /// The packet belongs to a connection that was let through.
    Established,
    /// It is about one, or belongs to one that a helper expects.
    Related,
    /// The first packet of a connection.
    New,
    /// TCP that opens nothing: a connection begins with a bare SYN.
    MidStream,
    /// A TCP reset.
    IsReset,
    /// It belongs to a TCP connection that was cut.
    WasCut(Version),
    /// The destination was changed: it came through a Service.
    Translated,
    /// IPv6 cannot do without these.
    NeighbourDiscovery,
    Version(Version),
    Protocol(u8),
    NotProtocol(u8),
    /// The destination's port; needs a test of the protocol before it.
    Port {
        low: u16,
        high: u16,
    },
    /// Protocol and destination port are in a set.
    PortsIn(String),
    /// The address is one of a range.
    Between {
        end: End,
        low: IpAddr,
        high: IpAddr,
    },
    /// The address is in a set of networks.
    Within {
        end: End,
        version: Version,
        set: String,
    },
    /// The address is that of a pod in a group of peers.
    Peer {
        end: End,
        version: Version,
        group: u32,
    },
    /// The address leads to the counter of a rule that allows it, by a look-up which several rules share. Counts there.
    Joined {
        end: End,
        version: Version,
        number: u32,
    },
    /// The source is a pod of another node that has the cluster gates of this number.
    Gate {
        version: Version,
        number: u32,
    },
    /// A name the group knows leads to the destination, for now.
    Leased {
        version: Version,
        group: u64,
    },
    /// The destination pod calls this port by a name the group knows.
    NamedPort {
        version: Version,
        group: u32,
    },
    /// The pod at one end is the pod at the other.
    OwnAddress(Version),
    /// A question to a DNS server, while ours lives.
    AsksDns,
    /// The destination, or what was asked for before it was changed, is a Service that answers DNS.
    Resolver {
        version: Version,
        asked: bool,
    },
    /// The pod may ask the Service that the packet goes to, or that it asked for.
    Asker {
        version: Version,
        asked: bool,
    },
    /// The source is a pod that is judged here.
    Local(Version),
    /// The port that was asked for, before it was changed. For nft's sake it needs a test of the protocol before it.
    AskedPort(u16),
    /// The last change had this number.
    Generation(u16),
    /// One in so many, in turn.
    EveryNth(u32),
    /// Of a frame, in tables that see frames.
    Frame(FrameTest),
    /// The packet goes out by an interface of a set.
    GoesOutBy(String),
    /// The packet comes in or goes out by this interface, or by another one.
    Interface {
        which: PacketInterface,
        index: u32,
        is_it: bool,
    },
    /// No more often than this; the rest goes on to the next rule.
    AtMost {
        a_second: u64,
        burst: u32,
    },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    Count,
    Log {
        group: u16,
        prefix: String,
    },
    Accept,
    Drop,
    /// Answers TCP with a reset, and drops the packet.
    Reset,
    Return,
    Jump(String),
    Goto(String),
    /// To the chain of the pod at this end, if it has one.
    Dispatch {
        end: End,
        version: Version,
        walk: Walk,
    },
    /// Sends the connection to another address and port.
    TranslateTo {
        address: IpAddr,
        port: u16,
    },
    /// Makes the node the source.
    Masquerade,
    /// To the chain of the Service the connection was addressed to. Needs a test of the version before it, and for nft's
    /// sake one of the protocol.
    DispatchService {
        version: Version,
        map: String,
    },
}

impl Rule {
    pub fn new(tests: impl Into<Vec<Test>>, action: Action) -> Self {
        Self { tests: tests.into(), actions: vec![action], comment: None }
    }

    pub fn about(mut self, comment: impl Into<String>) -> Self {
        self.comment = Some(comment.into());
        self
    }

    pub(crate) fn expressions(&self) -> Vec<Expression> {
        let mut out = Vec::new();
        for test in &self.tests {
            test.write(&mut out);
        }
        for action in &self.actions {
            action.write(&mut out);
        }
        out
    }
}

#[cfg(test)]
mod tests;
