//! Turns at a pace where many ask.

use super::super::{BUSY, Engine, PACE, Sockets, WINDOW};
use crate::learn::LearnNothing;
use crate::server::crew::Crew;
use crate::server::settings::{Listen, Settings};
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Instant;

/// An engine that waits for an upstream, which does not answer.
fn waiting() -> (Engine<LearnNothing>, UdpSocket) {
    let upstream = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let sockets = Sockets::bind(([127, 0, 0, 1], 0).into()).expect("sockets");
    let address = sockets.udp.local_addr().expect("an address");
    let listen = Listen::from(address);
    let upstreams = vec![upstream.local_addr().expect("an address")];
    let settings = Settings { listen: vec![listen], upstreams, ..Settings::default() };
    let shares = sockets.share(1).expect("one share").into_iter().flatten().map(|share| (share, listen)).collect();
    let crew = Crew::of(1).expect("a crew").remove(0);
    let mut engine = Engine::new(settings, shares, Arc::<LearnNothing>::default(), crew).expect("an engine");
    let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    client.send_to(b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01", address).expect("it is sent");
    let began = Instant::now();
    while engine.pending.len() == 0 {
        assert!(began.elapsed().as_secs() < 60, "the question does not come");
        engine.turn_at(Instant::now()).expect("a turn");
    }
    (engine, upstream)
}

#[test]
fn where_many_ask_a_turn_begins_no_sooner_than_its_pace() {
    let (mut engine, _upstream) = waiting();
    engine.is_busy = true;
    for _ in 0..50 {
        engine.now = Instant::now();
        engine.window = (engine.now, engine.counters.queries);
        engine.gather();
        assert!(engine.now.elapsed() >= PACE, "{:?}", engine.now.elapsed());
    }
}

#[test]
fn many_are_so_many_in_a_window() {
    let (mut engine, _upstream) = waiting();
    for (count, is_busy) in [(BUSY, true), (BUSY - 1, false), (0, false), (BUSY + 1, true)] {
        engine.window = (engine.now, engine.counters.queries);
        engine.counters.queries += count;
        engine.gather();
        engine.now += WINDOW;
        engine.gather();
        assert_eq!(engine.is_busy, is_busy, "{count}");
        assert_eq!(engine.window, (engine.now, engine.counters.queries), "the next window begins");
    }
}
