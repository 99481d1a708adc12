//! Sockets to upstreams come and go one by one, while no question waits for it.

use super::super::replaced::CLOSED_IN_A_SWEEP;
use super::super::{Engine, Sockets};
use crate::learn::LearnNothing;
use crate::server::crew::Crew;
use crate::server::settings::{Listen, Settings};
use nix::sys::epoll::EpollTimeout;
use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Asking {
    engine: Engine<LearnNothing>,
    upstream: UdpSocket,
    client: UdpSocket,
    asked: u16,
}

impl Asking {
    fn new() -> Self {
        let upstream = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        upstream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        let sockets = Sockets::bind(([127, 0, 0, 1], 0).into()).expect("sockets");
        let address = sockets.udp.local_addr().expect("an address");
        let listen = Listen::from(address);
        let upstreams = vec![upstream.local_addr().expect("an address")];
        let settings = Settings { listen: vec![listen], upstreams, ..Settings::default() };
        let shares = sockets.share(1).expect("one share").into_iter().flatten().map(|share| (share, listen)).collect();
        let crew = Crew::of(1).expect("a crew").remove(0);
        let engine = Engine::new(settings, shares, Arc::<LearnNothing>::default(), crew).expect("an engine");
        let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        client.connect(address).expect("it is connected");
        Self { engine, upstream, client, asked: 0 }
    }

    /// A client asks for a name that nobody has asked for, and the engine deals with that. Returns the port that the
    /// upstream is asked from.
    fn ask(&mut self) -> u16 {
        self.asked += 1;
        let [high, low] = self.asked.to_be_bytes();
        let mut query = vec![high, low, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        query.extend(format!("\x05{:05}\0\0\x01\0\x01", self.asked).as_bytes());
        self.client.send(&query).expect("it is sent");
        let before = self.engine.counters.queries;
        self.deal(|engine| engine.counters.queries > before);
        let (length, from) = self.upstream.recv_from(&mut query).expect("the upstream is asked");
        query.truncate(length);
        query[2] |= 0x80;
        self.upstream.send_to(&query, from).expect("it is answered");
        self.deal(|engine| engine.pending.len() == 0);
        from.port()
    }

    /// Turns without the part that opens and closes sockets, until something is so.
    fn deal(&mut self, is_so: impl Fn(&Engine<LearnNothing>) -> bool) {
        let began = Instant::now();
        while !is_so(&self.engine) {
            assert!(began.elapsed().as_secs() < 60, "it does not come");
            let count = self.engine.wait(EpollTimeout::ZERO).expect("events");
            self.engine.deal_with_events(count, Instant::now()).expect("a turn");
        }
    }

    fn sockets(&self) -> usize {
        self.engine.upstreams.iter().map(|upstream| upstream.ports.len()).sum()
    }
}

#[test]
fn no_question_but_the_first_waits_for_a_socket() {
    let mut asking = Asking::new();
    asking.ask();
    for _ in 0..20 {
        let before = asking.sockets();
        asking.ask();
        assert_eq!(asking.sockets(), before, "a socket was opened while a question waited");
    }
}

#[test]
fn turns_go_out_by_a_port_of_their_own_while_there_is_room_for_more() {
    let mut asking = Asking::new();
    let mut ports = BTreeSet::new();
    for _ in 0..100 {
        asking.engine.tend_ports();
        ports.insert(asking.ask());
    }
    assert_eq!(ports.len(), 100);
}

#[test]
fn sockets_of_one_moment_do_not_end_in_one_moment() {
    let mut asking = Asking::new();
    for _ in 0..200 {
        asking.engine.tend_ports();
        asking.ask();
    }
    let (now, all) = (Instant::now(), asking.sockets());
    assert!(all >= 200);
    // Between the shortest and the longest time of a port.
    let half = now + Duration::from_secs(45);
    asking.engine.next_sweep = half;
    asking.engine.turn_at(half).expect("a turn");
    let mut left = asking.sockets();
    let due = asking.engine.upstreams[0].ports.closing() + all - left;
    assert!((20..180).contains(&due), "{due} of {all} are over");
    // All of them are over.
    let end = now + Duration::from_secs(61);
    for turn in 0..asking.sockets() {
        if turn % 50 == 0 {
            asking.engine.next_sweep = end;
        }
        asking.engine.turn_at(end).expect("a turn");
        let most = if turn % 50 == 0 { CLOSED_IN_A_SWEEP + 1 } else { 1 };
        assert!(asking.sockets() + most >= left, "{left}, then {}", asking.sockets());
        left = asking.sockets();
    }
    asking.engine.turn_at(end).expect("a turn");
    assert_eq!((asking.sockets(), asking.engine.sockets.len()), (0, 0));
}
