//! The server in the real-time class, where a thread gives its core up to no other of its priority unless it says so.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "support/stub.rs"]
mod stub;

use namewall_dns::wire::{Header, Rcode};
use namewall_dns::{Answer, Learn, LearnError, Listen, Opens, Server, Settings};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, gettid};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use stub::{Client, Upstream, query, settings};

/// A query that is no standard query: it is refused without an upstream.
const NOTIFY: [u8; 17] = [0, 7, 0x20, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 1];
/// Opens whatever comes. From the first commit on the loop always has something to do: each question that it takes has
/// another one sent. And another answer waits to be opened.
struct Endless {
    asks: UdpSocket,
    server: OnceLock<SocketAddr>,
    goes_on: AtomicBool,
    learned: AtomicUsize,
}

impl Endless {
    fn send(&self, query: &[u8]) {
        let _ = self.asks.send_to(query, self.server.get().unwrap());
    }
}

impl Learn for Endless {
    type Batch = ();

    fn knows(&self, _: IpAddr) -> bool {
        if self.goes_on.load(Ordering::SeqCst) {
            self.send(&NOTIFY);
        }
        true
    }

    fn learn(&self, _: &Answer<'_>, (): &mut ()) -> Opens {
        self.learned.fetch_add(1, Ordering::SeqCst);
        Opens::New
    }

    fn commit(&self, (): &mut ()) -> Result<(), LearnError> {
        if !self.goes_on.swap(true, Ordering::SeqCst) {
            self.send(&query(2, "waits.example.com"));
            // By then the other thread has the loop.
            while self.learned.load(Ordering::SeqCst) < 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }
}

/// Gives the calling thread this class and priority.
fn schedule(class: &str, priority: &str) {
    let thread = gettid().to_string();
    let done = Command::new("chrt").args([class, "--pid", priority, &thread]).status();
    assert!(done.expect("chrt is installed").success(), "only root may use the real-time class");
}

/// Starts a server whose threads share one core, in the real-time class.
fn start(settings: Settings, learner: Arc<Endless>) -> Server<Endless> {
    let this = Pid::from_raw(0);
    let all = sched_getaffinity(this).unwrap();
    let last = (0..CpuSet::count()).rfind(|&core| all.is_set(core) == Ok(true)).unwrap();
    let mut one = CpuSet::new();
    one.set(last).unwrap();
    schedule("--fifo", "1");
    sched_setaffinity(this, &one).unwrap();
    let server = Server::start(settings, learner);
    sched_setaffinity(this, &all).unwrap();
    schedule("--other", "0");
    server.unwrap()
}

#[test]
fn s6_6_a_loop_that_always_has_something_to_do_lets_a_commit_end() {
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let asks = UdpSocket::bind("127.0.0.1:0").unwrap();
    let learner = Arc::new(Endless {
        asks,
        server: OnceLock::new(),
        goes_on: AtomicBool::new(false),
        learned: AtomicUsize::new(0),
    });
    let listen = Listen { is_open: false, ..SocketAddr::from(([127, 0, 0, 1], 0)).into() };
    let hold_limit = Duration::from_secs(1);
    let server = start(Settings { listen: vec![listen], hold_limit, ..settings(&[&upstream]) }, learner.clone());
    learner.server.set(server.addresses()[0]).unwrap();
    let reply = Client::of(&server).ask(&query(1, "learned.example.com"));
    let turns = server.counters().malformed;
    learner.goes_on.store(false, Ordering::SeqCst);
    assert_eq!(Header::read(&reply.unwrap()).unwrap().rcode, Rcode::NO_ERROR);
    assert!(turns > 0, "it had something to do meanwhile");
}
