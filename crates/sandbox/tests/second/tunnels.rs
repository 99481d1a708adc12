//! A pod puts packets into a tunnel of its node by a second interface, where the
//! node's hooks cannot tell that the sender is a pod.

use crate::common::{self, run_in};
use crate::frame::{Ends, frame, kind_of, udp, vxlan};
use crate::world::{ATTACKER, Ear, Network, PORT, VICTIM, World};
use crate::{AGAIN, DEADLINE, SILENCE};
use namewall_testbed::program;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;
use std::thread::sleep;
use std::time::Instant;

const OVERLAY: u16 = 4789;
/// The node in the second network: its addresses, and the broadcast address.
const NODE: [&str; 3] = ["172.16.0.1", "fd00:16::1", "172.16.0.255"];
/// Where the pod sends to.
const WAYS: [&str; 5] = ["172.16.0.1", "fd00:16::1", "172.16.0.255", "224.0.0.1", "ff02::1"];

/// Those of the ways that lead to the victim. Where all should, they are tried until they do.
fn play(world: &World, all_should: bool, first: u64) -> BTreeSet<&'static str> {
    let [to, _] = VICTIM.own();
    let to: IpAddr = to.parse().expect("an address");
    let payload = |nonce: u64| {
        let inside = udp(SocketAddr::new([10, 244, 9, 9].into(), 7), SocketAddr::new(to, PORT), &nonce.to_be_bytes());
        vxlan(1, &frame(Ends { from: [2, 0, 0, 0, 0, 3], to: [2, 0, 0, 0, 0, 2] }, &[], kind_of(to), &inside))
    };
    let index = world.second_index(ATTACKER);
    let (mut open, began) = (BTreeSet::new(), Instant::now());
    loop {
        let send = || {
            let sockets = ["0.0.0.0:0", "[::]:0"].map(|any| UdpSocket::bind(any).expect("a socket"));
            sockets[0].set_broadcast(true).expect("broadcast");
            for (nonce, way) in (first..).zip(WAYS) {
                let mut to = SocketAddr::new(way.parse().expect("an address"), OVERLAY);
                if let SocketAddr::V6(to) = &mut to {
                    to.set_scope_id(index);
                }
                // The kernel tells a sender of what is dropped on its way out.
                let _ = sockets[usize::from(to.is_ipv6())].send_to(&payload(nonce), to);
            }
        };
        world.namespace(ATTACKER).enter(send).expect("in its namespace");
        sleep(if all_should { AGAIN } else { SILENCE });
        let heard = world.hear(Ear::Victim);
        open.extend((first..).zip(WAYS).filter(|(nonce, _)| heard.contains(nonce)).map(|(_, way)| way));
        if !all_should || open.len() == WAYS.len() || began.elapsed() > DEADLINE {
            return open;
        }
    }
}

#[test]
fn s1_9_no_pod_puts_packets_into_the_tunnels_of_nodes_by_a_second_interface() {
    if !common::has_rights() {
        return;
    }
    let mut world = World::with_namewall(Network::Bridge);
    world.learn(&[]);
    let ip = |namespace, text: &str| run_in(namespace, Command::new(program("ip")).args(text.split_whitespace()));
    ip(world.node(), "address add 172.16.0.1/24 broadcast + dev br1");
    ip(world.node(), "address add fd00:16::1/64 dev br1 nodad");
    ip(world.node(), "link add overlay address 02:00:00:00:00:02 type vxlan external dstport 4789");
    ip(world.node(), "link set overlay up");
    ip(world.namespace(ATTACKER), "address change 172.16.0.10/24 broadcast + dev net1");
    ip(world.namespace(ATTACKER), "route add 224.0.0.0/4 dev net1");
    assert_eq!(play(&world, true, 1 << 20), BTreeSet::from(WAYS), "no attack at all");
    let node: Vec<IpAddr> = NODE.map(|text| text.parse().expect("an address")).into();
    world.learn(&node);
    assert_eq!(play(&world, false, 1 << 21), BTreeSet::new(), "these come through");
}
