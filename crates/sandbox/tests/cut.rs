//! What a cut leaves behind in the kernel (S3.4), beyond what scenarios show.

mod common;

use common::{PORT, address, has_rights, isolating, run_in};
use namewall_dataplane::CutEstablished;
use namewall_policy::model::Direction;
use namewall_policy::port::Protocol;
use namewall_policy::{Snapshot, compile};
use namewall_sandbox::{Cluster, Listen, Namespace, Wanted};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;

const CLIENT: &str = "10.0.1.2:40000";

fn snapshot() -> Snapshot {
    let cluster = common::Cluster::default().node("n1", &["192.0.2.1"]).node("n2", &["192.0.2.2"]);
    cluster.pod("shop/web", "n1", &["10.0.1.2"]).pod("shop/db", "n2", &["10.0.2.2"]).0
}

fn connect_from_the_same_port(namespace: &Namespace) -> Result<OwnedFd, Errno> {
    let to = SocketAddr::new(address("10.0.2.2"), PORT);
    let open = || {
        let fd = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        setsockopt(&fd, sockopt::ReuseAddr, &true)?;
        setsockopt(&fd, sockopt::SendTimeout, &TimeVal::new(10, 0))?;
        setsockopt(&fd, sockopt::Linger, &nix::libc::linger { l_onoff: 1, l_linger: 0 })?;
        bind(fd.as_raw_fd(), &SockaddrStorage::from(CLIENT.parse::<SocketAddr>().expect("an address and a port")))?;
        connect(fd.as_raw_fd(), &SockaddrStorage::from(to)).map(|()| fd)
    };
    namespace.enter(open).expect("the namespace is entered")
}

#[test]
fn s3_4_a_new_connection_between_the_same_ports_is_judged_like_any_other() {
    if !has_rights() {
        return;
    }
    let (open, closed) = (snapshot(), isolating(snapshot(), Direction::Ingress));
    let (opened, isolating) = (compile(&open).0, compile(&closed).0);
    let (outside, cut) = (&[][..], CutEstablished::Always);
    let before = Wanted { snapshot: &open, program: &opened, outside, cut, dns: None };
    let after = Wanted { snapshot: &closed, program: &isolating, outside, cut, dns: None };
    let mut cluster = Cluster::build(&before, &mut |_| {}).expect("the sandbox is built");
    let listen = Listen { address: address("10.0.2.2"), protocol: Protocol::Tcp, port: PORT };
    cluster.sandbox.ensure_listening(&[listen]).expect("the server listens");
    let client = cluster.sandbox.place(address("10.0.1.2")).expect("the client is there").namespace;
    let first = connect_from_the_same_port(&client).expect("it is open");
    cluster.update(&after).expect("the policy comes");
    for node in ["n1", "n2"] {
        let namespace = cluster.sandbox.node(node).expect("the node is there");
        let listed = run_in(namespace, Command::new("nft").args(["list", "set", "inet", "namewall", "cut4"]));
        for tuple in ["10.0.1.2 . 10.0.2.2 . tcp . 40000 . 8080", "10.0.2.2 . 10.0.1.2 . tcp . 8080 . 40000"] {
            assert!(listed.contains(tuple), "{node}: {listed}");
        }
    }
    drop(first);
    cluster.restart(&before).expect("the policy goes, and with it the agent");
    let listed = run_in(
        cluster.sandbox.node("n1").expect("the node is there"),
        Command::new("nft").args(["list", "set", "inet", "namewall", "cut4"]),
    );
    assert!(listed.contains("40000"), "a new agent leaves them: {listed}");
    connect_from_the_same_port(&client).expect("a SYN begins a new connection");
}
