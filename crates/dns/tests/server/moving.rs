//! A server that goes on at other addresses.

use crate::judged::{Fake, forward, judged, to};
use crate::stub::{Client, Upstream, answer, connect, eventually, query, read_message, write_message};
use namewall_dns::{LearnNothing, Listen, Server, ServerError, Settings, Sockets};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn new_sockets() -> (Sockets, Listen) {
    let sockets = Sockets::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listen = Listen::from(sockets.udp.local_addr().unwrap());
    (sockets, listen)
}

/// Goes on at these addresses, with sockets for those that are new.
fn move_to(server: &mut Server<LearnNothing>, upstream: &Upstream, at: &[SocketAddr], new: Vec<(Sockets, Listen)>) {
    let settings = Settings { listen: at.iter().copied().map(Listen::from).collect(), ..to(upstream) };
    let new = server.prepare(new).unwrap();
    server.move_to(settings, Arc::new(Fake::new(|_| forward())), new).unwrap();
}

fn client(of: SocketAddr) -> Client {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(of).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    Client(socket)
}

fn is_free(address: SocketAddr) -> bool {
    Sockets::bind(address).is_ok()
}

#[test]
fn addresses_are_taken_up_and_left() {
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let mut server = judged(to(&upstream), Fake::new(|_| forward()));
    let first = server.addresses()[0];
    for _ in 0..5 {
        let (sockets, listen) = new_sockets();
        let second = listen.address;
        move_to(&mut server, &upstream, &[first, second], vec![(sockets, listen)]);
        assert_eq!(server.addresses(), [first, second]);
        for address in [first, second] {
            assert!(client(address).ask(&query(1, "a.example")).is_some(), "{address}");
            let mut stream = TcpStream::connect(address).unwrap();
            write_message(&mut stream, &query(2, "a.example")).unwrap();
            assert!(read_message(&mut stream).is_some());
        }
        move_to(&mut server, &upstream, &[first], Vec::new());
        eventually(|| is_free(second));
        assert!(client(first).ask(&query(3, "a.example")).is_some());
    }
}

#[test]
fn whoever_asked_where_it_was_gets_an_answer() {
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.clone();
    let upstream = Upstream::new(move |query| {
        drop(closed.lock().unwrap());
        vec![answer(query, &[[192, 0, 2, 1]], 30)]
    });
    let mut server = judged(to(&upstream), Fake::new(|_| forward()));
    let old = server.addresses()[0];
    let held = gate.lock().unwrap();
    let (client, mut stream) = (client(old), connect(&server));
    client.0.send(&query(1, "a.example")).unwrap();
    write_message(&mut stream, &query(2, "b.example")).unwrap();
    eventually(|| upstream.asked() == 2);
    let (sockets, listen) = new_sockets();
    move_to(&mut server, &upstream, &[listen.address], vec![(sockets, listen)]);
    assert!(!is_free(old), "an answer is still to go out");
    drop(held);
    assert!(client.receive().is_some());
    assert!(read_message(&mut stream).is_some());
    eventually(|| is_free(old));
}

#[test]
fn connections_at_an_address_that_stays_stay() {
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let mut server = judged(to(&upstream), Fake::new(|_| forward()));
    let first = server.addresses()[0];
    let mut stream = connect(&server);
    for round in 0..10 {
        let (sockets, listen) = new_sockets();
        move_to(&mut server, &upstream, &[first, listen.address], vec![(sockets, listen)]);
        write_message(&mut stream, &query(round, "a.example")).unwrap();
        assert!(read_message(&mut stream).is_some(), "{round}");
    }
}

#[test]
fn it_never_goes_where_it_would_ask_itself() {
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let mut server = judged(to(&upstream), Fake::new(|_| forward()));
    let own = server.addresses()[0];
    let mut settings = to(&upstream);
    settings.listen = vec![own.into()];
    settings.routes[0].upstreams = vec![own.into()];
    let chain = || Arc::new(Fake::new(|_| forward()));
    let why = server.set_with(settings.clone(), chain());
    assert!(matches!(why, Err(ServerError::AsksItself(at)) if at == own), "{why:?}");
    let none = server.prepare(Vec::new()).unwrap();
    let why = server.move_to(settings, chain(), none);
    assert!(matches!(why, Err(ServerError::AsksItself(at)) if at == own), "{why:?}");
    assert!(client(own).ask(&query(1, "a.example")).is_some(), "it goes on as before");
}
