//! A Corefile that is served elsewhere after a change.

use crate::ports::free_port;
use crate::process::{Asker, Serving, TEST_TIMEOUT};
use crate::reload::{ask_by, wait_for_more};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// One that gives every question an address, at these ports.
fn giving(ports: &[u16], last: u8, bind: &str) -> String {
    let keys: Vec<String> = ports.iter().map(|port| format!(".:{port}")).collect();
    format!("{} {{\n bind {bind}\n hosts /no/such/file {{\n  192.0.2.{last} www.example\n }}\n}}\n", keys.join(" "))
}

fn at(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Whether an address can be had by somebody else, soon.
fn is_free(address: SocketAddr) -> bool {
    let began = Instant::now();
    while began.elapsed() < TEST_TIMEOUT {
        if UdpSocket::bind(address).is_ok() && std::net::TcpListener::bind(address).is_ok() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

#[test]
fn it_can_listen_elsewhere() {
    let (one, other) = (free_port(), free_port());
    let serving = Serving::start(&giving(&[one], 1, "127.0.0.1"));
    // One more, and of the other version.
    serving.reload(&giving(&[one, other], 2, "127.0.0.1 ::1"));
    for address in [at(one), at(other), (Ipv6Addr::LOCALHOST, one).into(), (Ipv6Addr::LOCALHOST, other).into()] {
        assert_eq!(Asker::of(address).ask(1, "www"), Some([192, 0, 2, 2]), "{address}\n{}", serving.told());
        assert_eq!(ask_by(&mut TcpStream::connect(address).unwrap(), 2), 2, "{address}");
    }
    assert!(serving.told().contains(&format!(" serving DNS address=[::1]:{other}")), "{}", serving.told());
    // And one less.
    serving.reload(&giving(&[other], 3, "127.0.0.1"));
    assert_eq!(Asker::of(at(other)).ask(3, "www"), Some([192, 0, 2, 3]));
    assert!(serving.told().contains(&format!("no longer serving DNS address=127.0.0.1:{one}")), "{}", serving.told());
    assert!(is_free(at(one)) && is_free((Ipv6Addr::LOCALHOST, other).into()), "what is left is left");
    // And back again.
    serving.reload(&giving(&[one], 4, "127.0.0.1"));
    assert_eq!(Asker::of(at(one)).ask(4, "www"), Some([192, 0, 2, 4]), "{}", serving.told());
}

#[test]
fn where_it_cannot_listen_nothing_changes() {
    let (one, other) = (free_port(), free_port());
    let taken = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let third = taken.local_addr().unwrap().port();
    let serving = Serving::start(&giving(&[one], 1, "127.0.0.1"));
    let mut stream = TcpStream::connect(at(one)).unwrap();
    assert_eq!(ask_by(&mut stream, 1), 1);
    serving.reload(&giving(&[other, third], 2, "127.0.0.1"));
    let told = serving.told();
    assert!(told.contains(&format!("cannot listen at 127.0.0.1:{third}")), "{told}");
    assert!(told.contains("it is served as it was before"), "{told}");
    assert_eq!(Asker::of(at(one)).ask(1, "www"), Some([192, 0, 2, 1]));
    assert_eq!(ask_by(&mut stream, 2), 1, "by the same connection");
    assert!(is_free(at(other)), "what could be had is given back");
}

#[test]
fn no_question_is_lost_at_addresses_that_stay() {
    let (one, other) = (free_port(), free_port());
    let serving = Serving::start(&giving(&[one], 0, "127.0.0.1"));
    let (is_over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let asker = Asker::of(at(one));
            while !is_over.load(Ordering::SeqCst) {
                let count = asked.fetch_add(1, Ordering::SeqCst) as u16;
                assert!(asker.ask(count, "www").is_some(), "each question is answered");
            }
        });
        scope.spawn(|| {
            let mut stream = TcpStream::connect(at(one)).unwrap();
            stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
            while !is_over.load(Ordering::SeqCst) {
                ask_by(&mut stream, 9);
            }
        });
        for round in 1..=20u8 {
            let both = [one, other];
            let ports = if round % 2 == 0 { &both[..1] } else { &both[..] };
            serving.reload(&giving(ports, round, "127.0.0.1"));
            assert_eq!(Asker::of(at(one)).ask(3, "www"), Some([192, 0, 2, round]), "{}", serving.told());
            wait_for_more(&asked);
        }
        is_over.store(true, Ordering::SeqCst);
    });
    assert!(!serving.told().contains("as it was before"), "{}", serving.told());
}
