//! Upstreams that were replaced by others.

use crate::stub::{Client, TEST_TIMEOUT, Upstream, answer, eventually, id, plain, query, serve, settings};
use namewall_dns::{LearnNothing, Server, Settings};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

fn addresses(server: &Server<LearnNothing>) -> Vec<SocketAddr> {
    server.upstreams().iter().map(|upstream| upstream.address).collect()
}

/// UDP sockets of this machine's that are connected to an address, as the kernel lists them.
fn sockets_to(address: SocketAddr) -> usize {
    let SocketAddr::V4(v4) = address else { panic!("{address}") };
    let remote = format!("{:08X}:{:04X}", u32::from_le_bytes(v4.ip().octets()), v4.port());
    let listed = std::fs::read_to_string("/proc/self/net/udp").unwrap();
    listed.lines().filter(|line| line.split_whitespace().nth(2) == Some(&remote)).count()
}

#[test]
fn a_replaced_upstream_has_no_sockets_no_probes_and_no_place_in_the_status() {
    let (silent, new) = (Upstream::new(|_| Vec::new()), Upstream::giving([192, 0, 2, 2]));
    let server = serve(Settings { tries: 1, ..settings(&[&silent]) }, plain());
    let client = Client::of(&server);
    // It is down, so it is probed every second.
    for number in 0..4 {
        assert_eq!(client.ask(&query(number, "example.com")).unwrap()[3] & 15, 2);
    }
    eventually(|| addresses(&server) == [silent.address]);
    assert!(sockets_to(silent.address) > 0);
    server.set(&settings(&[&new]));
    eventually(|| addresses(&server) == [new.address] && sockets_to(silent.address) == 0);
    let asked = silent.asked();
    let turns = server.turns()[0];
    let question = query(9, "example.com");
    // A turn takes a second at most: three of them are long enough for a probe.
    eventually(|| {
        assert_eq!(client.ask(&question).unwrap(), answer(&question, &[[192, 0, 2, 2]], 30));
        std::thread::sleep(std::time::Duration::from_millis(100));
        server.turns()[0] >= turns + 20
    });
    assert_eq!(silent.asked(), asked, "it was probed");
    // It can come back.
    server.set(&settings(&[&silent]));
    eventually(|| addresses(&server) == [silent.address]);
    client.0.send(&question).unwrap();
    eventually(|| silent.asked() > asked);
}

#[test]
fn what_was_asked_of_a_replaced_upstream_is_still_answered() {
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.clone();
    let old = Upstream::new(move |query| {
        drop(closed.lock().unwrap());
        vec![answer(query, &[[192, 0, 2, 1]], 30)]
    });
    let new = Upstream::giving([192, 0, 2, 2]);
    let patient = |upstream| Settings { try_timeout: TEST_TIMEOUT, ..settings(&[upstream]) };
    let server = serve(patient(&old), plain());
    let client = Client::of(&server);
    let held = gate.lock().unwrap();
    client.0.send(&query(1, "example.com")).unwrap();
    eventually(|| old.asked() == 1);
    server.set(&patient(&new));
    eventually(|| addresses(&server) == [new.address]);
    assert_eq!(Client::of(&server).ask(&query(2, "other.example")).unwrap().last(), Some(&2));
    assert_eq!(sockets_to(old.address), 1);
    drop(held);
    let reply = client.receive().unwrap();
    assert_eq!((id(&reply), reply.last()), (1, Some(&1)));
    eventually(|| sockets_to(old.address) == 0 && addresses(&server) == [new.address]);
}

/// Changes that come and go must not leave anything behind.
#[test]
fn a_hundred_changes_leave_one_upstream() {
    let upstreams = [Upstream::giving([192, 0, 2, 1]), Upstream::giving([192, 0, 2, 2])];
    let server = serve(settings(&[&upstreams[0]]), plain());
    let client = Client::of(&server);
    for round in 1..=100_u8 {
        let at = usize::from(round % 2);
        server.set(&settings(&[&upstreams[at]]));
        let expected = [1, 2][at];
        eventually(|| client.ask(&query(round.into(), "example.com")).unwrap().last() == Some(&expected));
    }
    eventually(|| addresses(&server) == [upstreams[0].address] && sockets_to(upstreams[1].address) == 0);
}
