//! What an engine that hangs does to others: the 99th percentile of a server block with a healthy engine, alone and
//! beside a block whose engine never answers and has all its threads and its queue full. It prints `figure NAME VALUE`
//! lines, each the best of several tries.

use namewall_corefile::{NoFiles, read};
use namewall_dns::{LearnNothing, Listen, Server, Settings, Sockets};
use namewall_dns_firewall::{Built, Strangers, Surroundings, Teller, build_with};
use namewall_engines::{Engine, Judged};
use namewall_expression::{Facts, Outcome};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const QUESTIONS: usize = 2_000;
const TRIES: usize = 5;
/// More than an engine has threads and places in its queue.
const HANGING: usize = 1_400;
/// Longer than a measurement.
const PATIENCE: Duration = Duration::from_secs(600);

/// Answers at once, on its own threads.
#[derive(Debug)]
struct Healthy;

impl Engine for Healthy {
    fn judge_until(&self, _: &dyn Facts, _: Instant) -> Judged {
        Judged::Later(Box::new(|| Ok(Outcome::Refuse.into())))
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }
}

/// Answers when the measurement is over.
#[derive(Clone, Debug, Default)]
struct Hanging(Arc<(Mutex<bool>, Condvar)>);

impl Hanging {
    fn let_go(&self) {
        *self.0.0.lock().expect("nobody panics") = true;
        self.0.1.notify_all();
    }
}

impl Engine for Hanging {
    fn judge_until(&self, _: &dyn Facts, _: Instant) -> Judged {
        let gate = self.0.clone();
        Judged::Later(Box::new(move || {
            let is_over = gate.0.lock().expect("nobody panics");
            drop(gate.1.wait_while(is_over, |is_over| !*is_over));
            Ok(Outcome::Refuse.into())
        }))
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }
}

/// A server of two blocks at ports that the kernel chose.
struct Rig {
    _server: Server<LearnNothing>,
    healthy: SocketAddr,
    hanging: SocketAddr,
}

impl Rig {
    fn new(hanging: &Hanging) -> Self {
        let bind = || Sockets::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("loopback can be bound");
        let sockets = [bind(), bind()];
        let at: Vec<SocketAddr> = sockets.iter().map(|one| one.udp.local_addr().expect("it has an address")).collect();
        let block = |port: u16, engine: &str| {
            format!(
                ".:{port} {{\nbind 127.0.0.1\nopa {engine} {{\nendpoint http://127.0.0.1:1/\n}}\n\
                 firewall query {{\nopa {engine}\ndefault block\n}}\n}}\n"
            )
        };
        let text = block(at[0].port(), "healthy") + &block(at[1].port(), "hanging");
        let corefile = read("Corefile", &text, &NoFiles, &|_| None).expect("it is a Corefile");
        let teller = Arc::new(Teller::start(std::io::sink()).expect("a thread can start"));
        let around = Surroundings {
            teller,
            identities: Arc::new(Strangers),
            addresses: Vec::new(),
            names: None,
            clusters: None,
        };
        let own = |settings: &namewall_corefile::EngineSettings| -> Option<Arc<dyn Engine>> {
            Some(if &*settings.name == "healthy" { Arc::new(Healthy) } else { Arc::new(hanging.clone()) })
        };
        let Built { service, routes, .. } = build_with(&corefile, &around, &own).expect("it can be served");
        let sockets: Vec<(Sockets, Listen)> =
            sockets.into_iter().zip(&at).map(|(sockets, at)| (sockets, (*at).into())).collect();
        let settings =
            Settings { listen: sockets.iter().map(|(_, listen)| *listen).collect(), routes, ..Settings::default() };
        let server = Server::start_judged(settings, Some(Arc::new(service)), sockets, Arc::new(LearnNothing));
        Self { _server: server.expect("the server starts"), healthy: at[0], hanging: at[1] }
    }
}

/// `A a.example`
fn query(id: usize) -> Vec<u8> {
    let mut query = (id as u16).to_be_bytes().to_vec();
    query.extend(b"\x01\0\0\x01\0\0\0\0\0\0\x01a\x07example\0\0\x01\0\x01");
    query
}

/// The 99th percentile of questions one after the other, in microseconds.
fn p99(at: SocketAddr) -> f64 {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback can be bound");
    socket.connect(at).expect("loopback can be reached");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("it is a socket");
    let mut took: Vec<Duration> = Vec::with_capacity(QUESTIONS);
    for id in 0..QUESTIONS {
        let begun = Instant::now();
        socket.send(&query(id)).expect("it can be sent");
        socket.recv(&mut [0; 512]).expect("it is answered");
        took.push(begun.elapsed());
    }
    took.sort();
    took[QUESTIONS * 99 / 100].as_secs_f64() * 1e6
}

fn main() {
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    let hanging = Hanging::default();
    let rig = Rig::new(&hanging);
    let best = || (0..TRIES).map(|_| p99(rig.healthy)).fold(f64::INFINITY, f64::min);
    let alone = best();
    // Questions that hang are asked on, as their clients do.
    let is_over = Arc::new(AtomicBool::new(false));
    let asking = {
        let (is_over, at) = (is_over.clone(), rig.hanging);
        std::thread::spawn(move || {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback can be bound");
            for id in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let _ = socket.send_to(&query(id), at);
                // As fast as they are taken in, then a few hundred a second.
                std::thread::sleep(if id < HANGING { Duration::from_micros(50) } else { Duration::from_millis(3) });
            }
        })
    };
    std::thread::sleep(Duration::from_secs(1));
    let beside = best();
    is_over.store(true, Ordering::Relaxed);
    hanging.let_go();
    let _ = asking.join();
    println!("figure lanes_p99_alone_us {alone:.1}");
    println!("figure lanes_p99_beside_us {beside:.1}");
    println!("figure lanes_p99_shift_ms {:.3}", (beside - alone).max(0.0) / 1e3);
}
