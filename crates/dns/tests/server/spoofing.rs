//! Blind spoofing: someone makes the server ask a slow upstream, and sends forged replies before the genuine one
//! (S6.1). The forger sends from the upstream's address and port, to ports that the server asks from: it has to guess
//! the rest.

use crate::stub::{Client, Recorder, TEST_TIMEOUT, answer, eventually, query, read_message, serve, write_message};
use namewall_dns::{Server, Settings, Sockets};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

const EVIL: [u8; 4] = [203, 0, 113, 66];
const GOOD: [u8; 4] = [192, 0, 2, 1];
/// Rounds of the attack, unless `NAMEWALL_SPOOF_ROUNDS` says otherwise.
const ROUNDS: usize = 20;
/// Identical questions that the compromised client asks in a round.
const QUESTIONS: u16 = 2_000;
/// Ports that it asks from.
const PORTS: usize = 16;
/// Forged replies in a round.
const FORGED: usize = 4_096;
/// So many of them reach the server at least: then it asks over TCP.
const ARRIVED: u16 = 16;

/// An upstream that answers over UDP when it is told to, and over TCP at once.
struct SlowUpstream {
    udp: UdpSocket,
    address: SocketAddr,
    /// Questions that were not answered yet, with the address that each came from.
    asked: Vec<(SocketAddr, Vec<u8>)>,
}

impl SlowUpstream {
    fn new() -> Self {
        let Sockets { udp, tcp, .. } = Sockets::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        udp.set_nonblocking(true).unwrap();
        let address = udp.local_addr().unwrap();
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = tcp.accept() {
                std::thread::spawn(move || {
                    while let Some(query) = read_message(&mut stream) {
                        if write_message(&mut stream, &answer(&query, &[GOOD], 30)).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { udp, address, asked: Vec::new() }
    }

    /// Takes the questions that have come.
    fn hear(&mut self) {
        let mut buffer = [0; 4_096];
        loop {
            match self.udp.recv_from(&mut buffer) {
                Ok((length, from)) => self.asked.push((from, buffer[..length].to_vec())),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // An ICMP error of an earlier reply.
                Err(_) => {}
            }
        }
    }

    fn answer_all(&mut self) {
        self.hear();
        for (from, query) in self.asked.drain(..) {
            let _ = self.udp.send_to(&answer(&query, &[GOOD], 30), from);
        }
    }
}

/// The attack. It has a server, a slow upstream and a client that asks whatever the forger wants.
struct Attack {
    upstream: SlowUpstream,
    recorder: Arc<Recorder>,
    server: Server<Recorder>,
    /// The same client at several ports, which lead to all loops.
    ports: Vec<Client>,
    sent: u64,
    seed: u64,
}

impl Attack {
    fn new(loops: usize) -> Self {
        let (upstream, recorder) = (SlowUpstream::new(), Arc::new(Recorder::default()));
        let settings = Settings {
            loops,
            listen: vec!["127.0.0.1:0".parse::<SocketAddr>().unwrap().into()],
            upstreams: vec![upstream.address],
            try_timeout: TEST_TIMEOUT,
            ..Settings::default()
        };
        let server = serve(settings, recorder.clone());
        let ports = (0..PORTS).map(|_| Client::of(&server)).collect();
        Self { upstream, recorder, server, ports, sent: 0, seed: 0x9e37_79b9_7f4a_7c15 }
    }

    /// A number for the forger, which need not be better than its guesses.
    fn guess(&mut self) -> u16 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 48) as u16
    }

    /// Asks the same question many times, each under an id of its own.
    fn ask(&mut self, name: &str, questions: u16) {
        for id in 0..questions {
            self.ports[usize::from(id) % PORTS].0.send(&query(id, name)).unwrap();
            self.sent += 1;
            // More at once would not fit the sockets of a busy machine.
            if id % 100 == 99 || id + 1 == questions {
                eventually(|| self.server.counters().queries == self.sent);
                self.upstream.hear();
            }
        }
    }

    /// Sends forged replies to all ports that the server has asked from. True if one was taken for the genuine one.
    fn forge(&mut self, name: &str, forged: usize) -> bool {
        let mut ports: Vec<SocketAddr> = self.upstream.asked.iter().map(|(from, _)| *from).collect();
        ports.sort_unstable();
        ports.dedup();
        for (number, port) in (0..forged).zip(ports.iter().cycle()) {
            let reply = answer(&query(self.guess(), name), &[EVIL], 2_000_000);
            let _ = self.upstream.udp.send_to(&reply, port);
            if number % 256 == 255 {
                std::thread::yield_now();
            }
        }
        // The question is open until enough of them have come: they were not sent in vain.
        eventually(|| {
            let counters = self.server.counters();
            counters.unasked + counters.recased >= u64::from(ARRIVED) && counters.distrusted == 1
        });
        self.upstream.answer_all();
        eventually(|| self.server.counters().under_way == 0);
        self.recorder.addresses().contains(&IpAddr::from(EVIL))
    }
}

fn play(loops: usize) {
    let rounds = std::env::var("NAMEWALL_SPOOF_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let mut won = 0;
    for round in 0..rounds {
        let (mut attack, name) = (Attack::new(loops), format!("r{round}.bank.example"));
        attack.ask(&name, QUESTIONS);
        assert_eq!(attack.upstream.asked.len(), 1, "the forger has one question to hit");
        won += usize::from(attack.forge(&name, FORGED));
    }
    println!("figure spoofing_rounds_won {won}");
    assert_eq!(won, 0, "of {rounds} rounds");
}

#[test]
fn s6_1_a_blind_forger_wins_no_round() {
    play(1);
}

#[test]
fn s6_1_a_blind_forger_wins_no_round_against_several_loops() {
    play(2);
}
