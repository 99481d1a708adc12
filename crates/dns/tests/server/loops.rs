//! Several loops behind one address: they share the questions, and nobody outside can tell.

use crate::stub::{
    Client, Recorder, TEST_TIMEOUT, Upstream, answer, connect, eventually, plain, query, read_message, serve, settings,
    write_message,
};
use namewall_dns::{Counters, Learn, Listen, Server, Settings, Sockets};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket, sockopt};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const GIVEN: [u8; 4] = [192, 0, 2, 1];
/// What is under way is always over by then.
const RETIREMENT: Duration = TEST_TIMEOUT;

fn two(upstream: &Upstream) -> Settings {
    Settings { loops: 2, try_timeout: TEST_TIMEOUT, ..settings(&[upstream]) }
}

/// Whether both loops have done something of this kind.
fn both<L: Learn + 'static>(server: &Server<L>, count: impl Fn(&Counters) -> u64) -> bool
where
    L::Batch: 'static,
{
    let counters = server.counters_by_loop();
    counters.len() == 2 && counters.iter().all(|one| count(one) > 0)
}

fn name(number: u16) -> String {
    format!("n{number}.example.com")
}

#[test]
fn questions_of_many_ports_reach_both_loops_and_answers_are_the_same_to_the_byte() {
    let upstream = Upstream::giving(GIVEN);
    let server = serve(two(&upstream), plain());
    for number in 0..200 {
        let asked = query(number, &name(number));
        // A port of its own each time: the kernel chooses the socket by it.
        assert_eq!(Client::of(&server).ask(&asked).unwrap(), answer(&asked, &[GIVEN], 30));
    }
    eventually(|| server.counters().answers == 200);
    assert_eq!((upstream.asked(), server.counters().queries), (200, 200));
    assert!(both(&server, |one| one.queries), "{:?}", server.counters_by_loop());
    assert!(both(&server, |one| one.passed), "the kernel gave both loops questions of the other");
}

#[test]
fn a_connection_may_ask_for_names_of_every_loop() {
    let upstream = Upstream::giving(GIVEN);
    let server = serve(two(&upstream), plain());
    let mut stream = connect(&server);
    for number in 0..50 {
        let asked = query(number, &name(number));
        write_message(&mut stream, &asked).unwrap();
        assert_eq!(read_message(&mut stream).unwrap(), answer(&asked, &[GIVEN], 30));
    }
}

/// Whatever loop they come to, and however they are spelled.
#[test]
fn s6_1_identical_questions_of_all_loops_are_asked_once() {
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.clone();
    let upstream = Upstream::new(move |query| {
        drop(closed.lock().unwrap());
        vec![answer(query, &[GIVEN], 30)]
    });
    let server = serve(two(&upstream), plain());
    // Names of both loops.
    let names = ["one.example", "two.example", "three.example", "four.example", "five.example", "six.example"];
    let held = gate.lock().unwrap();
    let mut clients = Vec::new();
    for id in 0..300_u16 {
        let name = names[usize::from(id) % names.len()];
        let spelled = if id % 4 == 1 { name.to_uppercase() } else { name.to_owned() };
        let (client, asked) = (Client::of(&server), query(id, &spelled));
        client.0.send(&asked).unwrap();
        clients.push((client, asked));
    }
    eventually(|| server.counters().queries == 300);
    assert_eq!(server.counters().joined, 300 - names.len() as u64);
    drop(held);
    for (client, asked) in &clients {
        assert_eq!(client.receive().unwrap(), answer(asked, &[GIVEN], 30));
    }
    assert_eq!(upstream.asked(), names.len());
    assert!(server.counters().passed > 0, "all came to the right loop by chance");
}

#[test]
fn s6_6_answers_of_both_loops_are_held_until_what_they_open_is_open() {
    let upstream = Upstream::giving(GIVEN);
    let recorder = Arc::new(Recorder::default());
    let server = serve(two(&upstream), recorder.clone());
    for number in 0..100 {
        assert!(Client::of(&server).ask(&query(number, &name(number))).is_some());
        assert_eq!(recorder.addresses().len(), usize::from(number) + 1, "an answer came before its address was open");
    }
    eventually(|| server.counters().held == 100);
    assert!(both(&server, |one| one.held));
}

/// A client with an address of its own.
fn client<L: Learn + 'static>(server: &Server<L>, number: u8) -> Client
where
    L::Batch: 'static,
{
    let socket = UdpSocket::bind((format!("127.0.1.{number}"), 0)).unwrap();
    socket.connect(server.addresses()[0]).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    Client(socket)
}

/// The bounds hold for both loops together, and a flood that fills both gives way in both.
#[test]
fn a_flood_that_fills_all_loops_gives_way_to_every_other_client() {
    let upstream = Upstream::new(|query| match query[12] {
        4 => Vec::new(),
        _ => vec![answer(query, &[GIVEN], 30)],
    });
    let settings = Settings { most_queries: 1_000, most_queries_of_client: 1_000, ..two(&upstream) };
    let server = serve(settings, plain());
    let heavy = client(&server, 1);
    // Far more than both have room for, so that each is full.
    for number in 0..2_000 {
        heavy.0.send(&query(number, &format!("slow.n{number}.example"))).unwrap();
        if number % 100 == 99 {
            eventually(|| server.counters().queries == u64::from(number) + 1);
        }
    }
    eventually(|| server.counters().under_way == 1_000);
    assert!(server.counters_by_loop().iter().all(|one| one.under_way == 500));
    for number in 2..52 {
        let asked = query(number.into(), &name(number.into()));
        assert_eq!(client(&server, number).ask(&asked).unwrap(), answer(&asked, &[GIVEN], 30));
    }
    assert!(both(&server, |one| one.evicted), "{:?}", server.counters_by_loop());
    assert!(server.counters().under_way <= 1_000);
}

#[test]
fn other_upstreams_are_asked_by_all_loops() {
    let (old, new) = (Upstream::giving([192, 0, 2, 7]), Upstream::giving(GIVEN));
    let server = serve(two(&old), plain());
    assert!(Client::of(&server).ask(&query(1, "before.example")).is_some());
    server.set(&two(&new));
    eventually(|| server.upstreams().iter().all(|one| one.address == new.address));
    for number in 0..50 {
        let asked = query(number, &name(number));
        assert_eq!(Client::of(&server).ask(&asked).unwrap(), answer(&asked, &[GIVEN], 30));
    }
    assert_eq!((old.asked(), new.asked()), (1, 50));
    eventually(|| server.upstreams().iter().map(|one| one.answered).sum::<u64>() == 50);
}

fn bound() -> (Sockets, Listen) {
    let sockets = Sockets::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let at = sockets.udp.local_addr().unwrap();
    (sockets, Listen::from(at))
}

/// Servers with one, two and three loops take over from each other, while questions come without a pause.
#[test]
fn questions_are_lost_by_no_take_over_whatever_the_number_of_loops() {
    let upstream = Upstream::giving(GIVEN);
    let (sockets, listen) = bound();
    let settings = |loops| Settings { loops, ..two(&upstream) };
    let mut server = Server::start_with(settings(2), vec![(sockets, listen)], plain()).unwrap();
    for round in 0..8_usize {
        let clients: Vec<(Client, Vec<u8>)> = (0..40_u16)
            .map(|id| {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                socket.connect(listen.address).unwrap();
                socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
                (Client(socket), query(id, &format!("r{round}.{}", name(id))))
            })
            .collect();
        let (before, after) = clients.split_at(20);
        before.iter().for_each(|(client, asked)| _ = client.0.send(asked).unwrap());
        let left = server.retire(RETIREMENT);
        assert_eq!((left.sockets.len(), left.questions.len()), (1, 0), "one address");
        // These wait in the sockets, of which there are as many as there ever were loops.
        after.iter().for_each(|(client, asked)| _ = client.0.send(asked).unwrap());
        server = Server::start_with(settings([1, 3, 2][round % 3]), left.sockets, plain()).unwrap();
        for (client, asked) in &clients {
            assert_eq!(client.receive().unwrap(), answer(asked, &[GIVEN], 30), "round {round}");
        }
    }
}

/// Another server at the same address is noticed, though our own loops share it.
#[test]
fn a_second_server_cannot_join_the_loops_of_the_first() {
    let upstream = Upstream::giving(GIVEN);
    let server = serve(two(&upstream), plain());
    let address: SocketAddr = server.addresses()[0];
    assert!(Client::of(&server).ask(&query(1, "example.com")).is_some());
    let again = Settings { listen: vec![address.into()], ..two(&upstream) };
    assert!(Server::start(again, plain()).is_err(), "it would take half of the questions");
}

/// A socket that others at the same port do not mind, if they are alike.
fn beside_others(at: SocketAddr) -> UdpSocket {
    let fd = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).unwrap();
    setsockopt(&fd, sockopt::ReuseAddr, &true).unwrap();
    bind(fd.as_raw_fd(), &SockaddrStorage::from(at)).unwrap();
    UdpSocket::from(fd)
}

/// Somebody else has the port at all addresses, so that no second socket of ours can be bound.
#[test]
fn where_one_socket_is_all_there_is_one_loop_listens_and_all_answer() {
    let upstream = Upstream::giving(GIVEN);
    let udp = beside_others("127.0.0.1:0".parse().unwrap());
    // The kernel looks at the newest first.
    let other = beside_others(([0, 0, 0, 0], udp.local_addr().unwrap().port()).into());
    let (listen, tcp) = (Listen::from(udp.local_addr().unwrap()), TcpListener::bind("127.0.0.1:0").unwrap());
    let sockets = Sockets { udp, tcp, others: Vec::new() };
    let server = Server::start_with(two(&upstream), vec![(sockets, listen)], plain()).unwrap();
    for number in 0..100 {
        let asked = query(number, &name(number));
        assert_eq!(Client::of(&server).ask(&asked).unwrap(), answer(&asked, &[GIVEN], 30));
    }
    eventually(|| server.counters().answers == 100);
    assert!(both(&server, |one| one.answers), "{:?}", server.counters_by_loop());
    assert_eq!(server.counters_by_loop()[1].passed, 0, "the second listens nowhere");
    let left = server.retire(RETIREMENT).sockets;
    assert_eq!((left.len(), left[0].0.others.len()), (1, 0), "a copy is no socket of its own");
    drop(other);
}
