//! A node with four pods, and one filter in the node's namespace.
//!
//! ```text
//!   client ── veth ── node ── veth ── server     once for TCP, once for UDP
//!                      │
//!                   the filter
//! ```
//! The kernel carries a packet over such links to its end in the context of
//! whoever sent it: one thread that plays both ends pays for all of it, and
//! its CPU time is the price.

use crate::tables::Filter;
use anyhow::{Context, Result};
use namewall_bench::crowd::{self, NODE, PORT, Pair};
use namewall_dataplane::SingleThreaded;
use namewall_dataplane::netlink::{Family, Messages, Socket};
use namewall_dataplane::nft::Nft;
use namewall_policy::Snapshot;
use namewall_policy::labels::Labels;
use namewall_policy::model::{Node, Role, Workload};
use namewall_sandbox::{Namespace, Sandbox};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, setsockopt, socket, sockopt};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Datagrams of a slice wait here until they are counted.
const RECEIVE_BUFFER: usize = 8 << 20;

#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) filter: Filter,
    /// Where TCP connections come from.
    pub(crate) client: Arc<Namespace>,
    pub(crate) listener: TcpListener,
    /// A connection that is open.
    pub(crate) near: TcpStream,
    pub(crate) far: TcpStream,
    /// What it sends has whatever source port it says.
    pub(crate) datagrams: OwnedFd,
    pub(crate) receiver: UdpSocket,
    connections: Socket,
    _table: Option<SingleThreaded<Nft>>,
    _sandbox: Sandbox,
}

impl Rig {
    pub(crate) fn build(filter: Filter) -> Result<Self> {
        let sandbox = Sandbox::build(&four_pods(), &[], &mut |_| {})?;
        let namespace = |address: Ipv4Addr| sandbox.place(address.into()).map(|place| place.namespace);
        let node = sandbox.node(NODE).context("the node was built")?.clone();
        let (table, connections) = node.enter(|| -> Result<_> {
            let table = filter.put(sandbox.interfaces(NODE))?;
            Ok((table, Socket::open(Family::NetlinkNetFilter)?))
        })??;

        let Pair { client, server } = crowd::TCP;
        let listener = namespace(server)?.enter(|| TcpListener::bind((server, PORT)))??;
        let client = namespace(client)?;
        let near = client.enter(|| TcpStream::connect((server, PORT)))??;
        let (far, _) = listener.accept()?;

        let Pair { client: sender, server } = crowd::UDP;
        let receiver = namespace(server)?.enter(|| UdpSocket::bind((server, PORT)))??;
        receiver.set_nonblocking(true)?;
        if setsockopt(&receiver, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
            setsockopt(&receiver, sockopt::RcvBuf, &RECEIVE_BUFFER)?;
        }
        let raw = || socket(AddressFamily::Inet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw);
        let datagrams = namespace(sender)?.enter(raw)??;
        for stream in [&near, &far] {
            stream.set_nodelay(true)?;
        }
        let rig = Self {
            filter,
            client,
            listener,
            near,
            far,
            datagrams,
            receiver,
            connections,
            _table: table,
            _sandbox: sandbox,
        };
        Ok(rig)
    }

    /// Forgets every connection but none that is open: it would be judged anew, and allowed.
    pub(crate) fn forget_connections(&mut self) -> Result<()> {
        const DELETE: u16 = 1 << 8 | 2;
        let mut request = Messages::new();
        request.begin(DELETE, 0, &[0; 4]);
        request.acknowledge();
        Ok(self.connections.commit(&request)?)
    }
}

/// Those that are measured; the others of the crowd are only spoken of.
fn four_pods() -> Snapshot {
    let mut snapshot = Snapshot::default();
    let addresses = vec![Ipv4Addr::new(172, 20, 0, 10).into()];
    let node = snapshot.add_node(Node { name: NODE.into(), labels: Labels::default(), addresses, source: None });
    let namespace = snapshot.ensure_namespace("team-0");
    for address in [crowd::TCP.client, crowd::TCP.server, crowd::UDP.client, crowd::UDP.server] {
        let role = Role { namespace, labels: Labels::default(), host_network: false };
        let pod = snapshot.new_pod(role, &address.to_string());
        snapshot.add_workload(Workload { addresses: [address.into()].into(), node: Some(node), ..pod });
    }
    snapshot
}
