//! Bounds that clients share: in all, the client that holds most gives way to others.

use crate::stub::{
    Client, TEST_TIMEOUT, Upstream, answer, eventually, plain, query, read_message, serve, settings, write_message,
};
use namewall_dns::{LearnNothing, Server, Settings};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, socket};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;

/// Names that begin with a label of four letters are never answered.
fn upstream() -> Upstream {
    Upstream::new(|query| match query[12] {
        4 => Vec::new(),
        _ => vec![answer(query, &[[192, 0, 2, 1]], 30)],
    })
}

fn limited(upstream: &Upstream) -> Settings {
    let settings = settings(&[upstream]);
    Settings { most_queries: 1_000, most_queries_of_client: 1_000, try_timeout: TEST_TIMEOUT, ..settings }
}

/// A client with an address of its own: that is how clients are told apart.
fn client(server: &Server<LearnNothing>, number: u8) -> Client {
    let socket = UdpSocket::bind((format!("127.0.1.{number}"), 0)).unwrap();
    socket.connect(server.addresses()[0]).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    Client(socket)
}

/// Asks for so many names that are never answered, in bursts that fit the sockets of a busy machine.
fn flood(server: &Server<LearnNothing>, client: &Client, names: u16) {
    let before = server.counters().queries;
    for number in 0..names {
        client.0.send(&query(number, &format!("slow.n{number}.example"))).unwrap();
        if number % 100 == 99 {
            eventually(|| server.counters().queries == before + u64::from(number) + 1);
        }
    }
}

#[test]
fn a_flood_that_fills_all_places_gives_way_to_every_other_client() {
    let upstream = upstream();
    let server = serve(limited(&upstream), plain());
    let heavy = client(&server, 1);
    flood(&server, &heavy, 1_000);
    eventually(|| server.counters().under_way == 1_000);
    for number in 2..52 {
        let asked = query(number.into(), "example.com");
        assert_eq!(client(&server, number).ask(&asked).unwrap(), answer(&asked, &[[192, 0, 2, 1]], 30));
    }
    let counters = server.counters();
    assert!(counters.evicted >= 1, "the first of them found no place");
    assert_eq!(counters.over_limit, 0);
    // The heavy client itself gets no more than there is.
    eventually(|| server.counters().under_way == 1_000 - counters.evicted);
    for number in 0..200 {
        heavy.0.send(&query(number, &format!("slow.again{number}.example"))).unwrap();
    }
    eventually(|| server.counters().over_limit == 200 - counters.evicted);
}

#[test]
fn two_floods_share_what_there_is() {
    let upstream = upstream();
    let server = serve(limited(&upstream), plain());
    let (first, second) = (client(&server, 1), client(&server, 2));
    flood(&server, &first, 1_000);
    flood(&server, &second, 1_000);
    eventually(|| server.counters().queries == 2_000);
    // Each has half: the first has given way as long as it had more.
    let counters = server.counters();
    assert_eq!((counters.under_way, counters.evicted, counters.over_limit), (1_000, 500, 500));
}

/// A connection from an address of its own.
fn connection(to: SocketAddr, number: u8) -> TcpStream {
    let fd = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    let from: SocketAddr = format!("127.0.1.{number}:0").parse().unwrap();
    bind(fd.as_raw_fd(), &SockaddrStorage::from(from)).unwrap();
    connect(fd.as_raw_fd(), &SockaddrStorage::from(to)).unwrap();
    let stream = TcpStream::from(fd);
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream
}

fn answers(stream: &mut TcpStream) -> bool {
    write_message(stream, &query(1, "example.com")).is_ok() && read_message(stream).is_some()
}

#[test]
fn connections_of_one_client_give_way_to_those_of_others() {
    let upstream = upstream();
    // Our own connection to the upstream is one of them.
    let server = serve(Settings { most_connections: 41, ..limited(&upstream) }, plain());
    let at = server.addresses()[0];
    let mut heavy: Vec<TcpStream> = (0..40).map(|_| connection(at, 1)).collect();
    eventually(|| server.counters().connections == 40);
    // Used last, so it is the last to go.
    assert!(answers(&mut heavy[39]));
    let mut others: Vec<TcpStream> = (2..12).map(|number| connection(at, number)).collect();
    for stream in &mut others {
        assert!(answers(stream));
    }
    assert_eq!(server.counters().evicted, 10);
    assert!(answers(&mut heavy[39]));
    let left = heavy.iter_mut().filter_map(|stream| answers(stream).then_some(())).count();
    assert_eq!(left, 30);
}
