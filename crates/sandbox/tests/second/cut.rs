//! A change of policies cuts connections that exist over second interfaces
//! (S3.4), and denials there are logged.

use crate::SILENCE;
use crate::common;
use crate::world::{ATTACKER, FRIEND, Host, Network, OPEN, OUTSIDE, VICTIM, World, policies};
use namewall_dataplane::Denied;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_millis(100);

/// A connection that lives for the whole test.
enum Flow {
    Tcp { ends: [TcpStream; 2] },
    Udp { ends: [UdpSocket; 2] },
}

struct Named {
    name: String,
    flow: Flow,
}

fn any() -> SocketAddr {
    (Ipv6Addr::UNSPECIFIED, 0).into()
}

impl Named {
    fn tcp(world: &World, from: Host, to: Host, is_ipv4: bool) -> Self {
        let at: IpAddr = to.at(is_ipv4);
        let listener = world.namespace(to).enter(|| TcpListener::bind(any())).expect("in its namespace").expect("TCP");
        let port = listener.local_addr().expect("an address").port();
        let connect = || TcpStream::connect_timeout(&(at, port).into(), DEADLINE);
        let client = world.namespace(from).enter(connect).expect("in its namespace").expect("it is open");
        let (server, _) = listener.accept().expect("a connection");
        let ends = [client, server];
        ends.iter().for_each(|end| end.set_read_timeout(Some(DEADLINE)).expect("a timeout"));
        Self { name: format!("TCP {} -> {}", from.name, at), flow: Flow::Tcp { ends } }
    }

    fn udp(world: &World, from: Host, to: Host, is_ipv4: bool) -> Self {
        let at = to.at(is_ipv4);
        let bind = |host: Host| {
            let address = SocketAddr::new(host.at(is_ipv4), 0);
            world.namespace(host).enter(|| UdpSocket::bind(address)).expect("in its namespace").expect("UDP")
        };
        let ends = [bind(from), bind(to)];
        ends[0].connect(ends[1].local_addr().expect("an address")).expect("it is connected");
        ends[1].connect(ends[0].local_addr().expect("an address")).expect("it is connected");
        ends.iter().for_each(|end| end.set_read_timeout(Some(SOON)).expect("a timeout"));
        Self { name: format!("UDP {} -> {}", from.name, at), flow: Flow::Udp { ends } }
    }

    /// Sends both ways until both ends have heard something new.
    fn must_live(&self) {
        let name = &self.name;
        match &self.flow {
            Flow::Tcp { ends: [client, server] } => {
                for (mut from, mut to) in [(client, server), (server, client)] {
                    from.write_all(b"x").unwrap_or_else(|error| panic!("{name}: {error}"));
                    to.read_exact(&mut [0]).unwrap_or_else(|error| panic!("{name}: {error}"));
                }
            }
            Flow::Udp { ends: [client, server] } => {
                drain(client);
                drain(server);
                for (from, to) in [(client, server), (server, client)] {
                    let began = Instant::now();
                    loop {
                        let _ = from.send(b"x");
                        if to.recv(&mut [0]).is_ok() {
                            break;
                        }
                        assert!(began.elapsed() < DEADLINE, "{name} is lost");
                    }
                }
            }
        }
    }

    /// Both ends of TCP are told by a reset. A datagram of the end that opened the flow does not arrive, and nothing
    /// that the other end still sends is heard.
    fn must_be_dead(&self) {
        let name = &self.name;
        match &self.flow {
            Flow::Tcp { ends } => {
                for mut end in ends {
                    // The reset answers what is sent.
                    let sent = end.write_all(b"y").err();
                    let heard = sent.or_else(|| end.read_exact(&mut [0]).err());
                    let kind = heard.unwrap_or_else(|| panic!("{name} lives")).kind();
                    let is_reset = matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
                    assert!(is_reset, "{name} is not reset: {kind}");
                }
            }
            Flow::Udp { ends } => {
                let [client, server] = ends;
                drain(client);
                drain(server);
                for (from, to) in [(client, server), (server, client)] {
                    // The kernel tells a sender of what is dropped on its way out.
                    let _ = from.send(b"y");
                    to.set_read_timeout(Some(SILENCE)).expect("a timeout");
                    assert!(to.recv(&mut [0]).is_err(), "{name} lives");
                }
            }
        }
    }
}

fn drain(socket: &UdpSocket) {
    socket.set_nonblocking(true).expect("a socket");
    while socket.recv(&mut [0]).is_ok() {}
    socket.set_nonblocking(false).expect("a socket");
}

/// Flows that policies forbid, and flows that they allow.
fn flows(world: &World) -> [Vec<Named>; 2] {
    let mut all = [Vec::new(), Vec::new()];
    for is_ipv4 in [true, false] {
        for open in [Named::tcp, Named::udp] {
            for (from, to) in [(ATTACKER, OUTSIDE), (OUTSIDE, VICTIM), (ATTACKER, FRIEND), (OPEN, VICTIM)] {
                all[0].push(open(world, from, to, is_ipv4));
            }
            for (from, to) in [(OPEN, OUTSIDE), (OUTSIDE, OPEN), (OPEN, FRIEND)] {
                all[1].push(open(world, from, to, is_ipv4));
            }
        }
    }
    all
}

fn check(network: Network, restarts: bool) {
    if !common::has_rights() {
        return;
    }
    let mut world = World::with_namewall(network);
    world.change(Vec::new(), false);
    let [forbidden, allowed] = flows(&world);
    forbidden.iter().chain(&allowed).for_each(Named::must_live);
    world.change(policies(), restarts);
    allowed.iter().for_each(Named::must_live);
    forbidden.iter().for_each(Named::must_be_dead);
    // A cut TCP connection stays dead when policies allow it again.
    world.change(Vec::new(), restarts);
    allowed.iter().for_each(Named::must_live);
    for flow in forbidden.iter().filter(|flow| matches!(flow.flow, Flow::Tcp { .. })) {
        flow.must_be_dead();
    }
}

#[test]
fn s3_4_a_change_cuts_what_it_forbids_on_a_macvlan_and_nothing_else() {
    check(Network::Macvlan, false);
}

#[test]
fn s3_4_a_change_cuts_what_it_forbids_on_a_second_veth_and_nothing_else() {
    check(Network::Bridge, false);
}

/// What a policy forbids that came while no agent ran is cut by the next agent.
#[test]
fn s3_4_the_next_agent_cuts_on_second_interfaces_too() {
    check(Network::Bridge, true);
}

/// A host reports the groups that it listens to by itself. A switch may need that to let neighbours find each other.
#[test]
fn s1_10_reports_of_listeners_pass_on_second_interfaces_and_are_no_denials() {
    if !common::has_rights() {
        return;
    }
    let reports: IpAddr = "ff02::16".parse().expect("the group that reports go to");
    let group: Ipv6Addr = "ff02::beef".parse().expect("a group");
    let mut world = World::with_namewall(Network::Macvlan);
    let wire = world.wire_outside();
    let index = world.second_index(ATTACKER);
    let (mut is_reported, mut is_denied, began) = (false, false, Instant::now());
    // Something that policies deny shows that denials are heard.
    while !(is_reported && is_denied) {
        assert!(began.elapsed() < DEADLINE, "reported: {is_reported}; a denial is heard: {is_denied}");
        let join = || {
            let socket = UdpSocket::bind(any()).expect("a socket");
            socket.join_multicast_v6(&group, index).expect("it listens to the group");
            let _ = socket.send_to(b"x", (OUTSIDE.at(false), 9000));
        };
        world.namespace(ATTACKER).enter(join).expect("in its namespace");
        std::thread::sleep(SOON);
        is_reported |= world.has_heard(&wire, &group.octets());
        for pod in world.cluster().agent("n1").expect("an agent").take_denials_inside() {
            let to = |denied: &Denied| denied.destination;
            let noise: Vec<&Denied> = pod.told.denials.iter().filter(|denied| to(denied) == reports).collect();
            assert_eq!(noise, Vec::<&Denied>::new(), "of {}", pod.pod);
            is_denied |= pod.told.denials.iter().any(|denied| to(denied) == OUTSIDE.at(false));
        }
    }
}

/// A denial inside a pod is heard through a socket that was opened there.
#[test]
fn s3_4_denials_on_second_interfaces_are_logged_with_their_pod_and_rule() {
    if !common::has_rights() {
        return;
    }
    let mut world = World::with_namewall(Network::Macvlan);
    let incoming = world.denied().into_iter().find(|path| path.name == format!("open/open to {}", VICTIM.at(true)));
    let wanted = [
        ("shop/attacker", OUTSIDE.at(true), "isolated for egress by NetworkPolicy/shop/closed"),
        ("shop/victim", VICTIM.at(true), "isolated for ingress by NetworkPolicy/shop/closed"),
    ];
    let mut heard = Vec::new();
    let began = Instant::now();
    while !wanted.iter().all(|one| {
        heard.iter().any(|(pod, to, rule): &(String, IpAddr, String)| (pod.as_str(), *to, rule.as_str()) == *one)
    }) {
        assert!(began.elapsed() < DEADLINE, "{:?}", heard.last());
        let outgoing = UdpSocket::bind;
        let send = || outgoing("0.0.0.0:0").and_then(|socket| socket.send_to(b"x", (OUTSIDE.at(true), 9000)));
        let _ = world.namespace(ATTACKER).enter(send).expect("in its namespace");
        world.send(incoming.as_ref().expect("a path"), 1);
        let told = world.cluster().agent("n1").expect("an agent").take_denials_inside();
        for pod in told {
            let denials = pod.told.denials.into_iter().filter(|denied| denied.enforced);
            heard.extend(denials.map(|denied| (pod.pod.clone(), denied.destination, denied.rule)));
        }
    }
}
