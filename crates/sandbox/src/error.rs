//! What can go wrong; the variant names the step.

use crate::listen::Listen;
use namewall_agent::NodeError;
use namewall_dataplane::netlink;
use namewall_dns::LearnError;
use namewall_policy::port::Protocol;
use nix::errno::Errno;
use std::io;
use std::net::{IpAddr, SocketAddr};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot open sockets in a pod's network namespace")]
    PodSockets(#[source] netlink::Error),
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    #[error(
        "cannot make a network namespace: {0}{hint}",
        hint = if *.0 == Errno::EPERM { "; it takes root, or a user namespace entered first" } else { "" }
    )]
    MakeNamespace(#[source] Errno),
    #[error("cannot open the namespace just made: {0}")]
    OpenNamespace(#[source] io::Error),
    #[error("cannot enter a network namespace: {0}")]
    EnterNamespace(#[source] Errno),
    #[error("cannot write {value} to {path}: {source} (in a container, /proc/sys must be writable)")]
    Sysctl { path: String, value: &'static str, source: io::Error },
    #[error("cannot wire {what}: {source}")]
    Wire { what: String, source: netlink::Error },
    #[error("the link of {what} did not come up")]
    LinkDown { what: String },
    #[error("{what} does not take packets for its address {address}")]
    AddressUnused { what: String, address: IpAddr },
    #[error("cannot watch sockets: {0}")]
    Watch(#[source] Errno),
    #[error("nobody in the sandbox has the address {0}")]
    NoSuchAddress(IpAddr),
    #[error("cannot listen on {listen}: {source}")]
    Listen { listen: Listen, source: Errno },
    #[error("cannot open a socket from {from} to {to}: {source}")]
    Open { from: IpAddr, to: SocketAddr, source: Errno },
    #[error("namewall failed on node {node}")]
    Agent { node: String, source: NodeError },
    #[error("cannot keep names")]
    Names(#[source] LearnError),
    #[error("cannot hear of denials")]
    DenialLog(#[source] netlink::Error),
    #[error("{0} cannot be probed; TCP, UDP, SCTP and ICMP can")]
    NotProbed(Protocol),
    #[error("{0} has no connections that stay open; TCP and UDP have")]
    NotKept(Protocol),
}
