//! What one exchange costs in the DNS firewall: a question, and the answer of the upstream if one is asked, as the
//! DNS server hands them over. `figure NAME VALUE` lines follow divan's table, each the best of several tries.
//!
//! `NAMEWALL_COUNT=forwarded`, or the name of another case, runs only that case, once, in `counted_exchanges`, so that
//! valgrind can count its instructions.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use namewall_corefile::{NoFiles, read};
use namewall_dns::{Asked, Chain, Heard, Passing, Step, Transport};
use namewall_dns_firewall::{Service, Strangers, Surroundings, Teller, build};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

const EXCHANGES: usize = 1_000;

/// `A www.shop.example.com` with EDNS0, as most clients ask.
const QUERY: &[u8] = b"\0\x07\x01\0\0\x01\0\0\0\0\0\x01\x03www\x04shop\x07example\x03com\0\0\x01\0\x01\
    \0\0\x29\x04\xd0\0\0\0\0\0\0";
/// Two addresses.
const ANSWER: &[u8] = b"\0\x07\x81\x80\0\x01\0\x02\0\0\0\x01\x03www\x04shop\x07example\x03com\0\0\x01\0\x01\
    \xc0\x0c\0\x01\0\x01\0\0\x01\x2c\0\x04\xc0\0\x02\x01\xc0\x0c\0\x01\0\x01\0\0\x01\x2c\0\x04\xc0\0\x02\x02\
    \0\0\x29\x04\xd0\0\0\0\0\0\0";

const CASES: [(&str, &str); 5] = [
    ("forwarded", "forward . 192.0.2.53"),
    (
        "judged",
        "firewall query {
            refuse in-cidr(client_ip, 10.0.0.0/16) and type == 'A'
            refuse under(name, 'team.example')
            refuse name == 'host.example.com' or name == 'host.example.net'
            allow under(name, 'example.com')
            default block
        }
        firewall response {
            block in-cidr(response_ip, 10.0.0.0/8)
            default allow
        }
        forward . 192.0.2.53",
    ),
    (
        "reported",
        "firewall query {
            allow under(name, 'example.com')
            default block
        }
        log
        errors
        prometheus
        forward . 192.0.2.53",
    ),
    ("cached", "cache\nforward . 192.0.2.53"),
    (
        "denied",
        "firewall query {
            allow under(name, 'other.example')
            default block
        }
        forward . 192.0.2.53",
    ),
];

/// What serves a case.
fn service(name: &str) -> Service {
    let (_, lines) = CASES.iter().find(|(one, _)| *one == name).expect("it is a case");
    let text =
        format!(". {{\nbind 127.0.0.1\n{lines}\n}}\ncluster.local {{\nbind 127.0.0.1\nforward . 192.0.2.54\n}}\n");
    let corefile = read("Corefile", &text, &NoFiles, &|_| None).expect("it is a Corefile");
    let teller = Arc::new(Teller::start(std::io::sink()).expect("a thread can start"));
    let around =
        Surroundings { teller, identities: Arc::new(Strangers), addresses: Vec::new(), names: None, clusters: None };
    let service = build(&corefile, &around).expect("it can be served").service;
    // Patterns make room for themselves, and the cache is filled.
    exchange(&service);
    service
}

fn exchange(service: &Service) {
    let upstream = SocketAddr::from(([192, 0, 2, 53], 53));
    let asked = Asked {
        query: QUERY,
        client: ([172, 23, 4, 5], 40_000).into(),
        server: ([127, 0, 0, 1], 53).into(),
        transport: Transport::Udp,
    };
    let heard = Heard { upstream, since: Instant::now(), transport: Transport::Udp, answer: ANSWER };
    match service.query(black_box(&asked)) {
        Step::Forward(_, continuation) => {
            assert!(matches!(black_box(continuation.answer(black_box(&heard))), Passing::Pass));
        }
        step => drop(black_box(step)),
    }
}

fn exchanges(service: &Service) {
    for _ in 0..EXCHANGES {
        exchange(black_box(service));
    }
}

#[inline(never)]
fn counted_exchanges(service: &Service) {
    exchanges(service);
}

fn main() {
    if let Ok(name) = std::env::var("NAMEWALL_COUNT") {
        return counted_exchanges(&service(&name));
    }
    divan::main();
    // Who asks for a part, or for a list, wants no figures.
    if std::env::args().skip(1).all(|argument| argument == "--bench") {
        for (name, _) in CASES {
            let service = service(name);
            println!("figure exchange_{name}_us {:.3}", best(|| exchanges(&service)) * 1e6 / EXCHANGES as f64);
        }
    }
}

#[divan::bench(args = CASES.map(|(name, _)| name))]
fn exchanges_of(bencher: Bencher<'_, '_>, name: &str) {
    let service = service(name);
    bencher.counter(ItemsCount::new(EXCHANGES)).bench(|| exchanges(&service));
}

fn best(mut action: impl FnMut()) -> f64 {
    let mut seconds = || {
        let start = Instant::now();
        action();
        start.elapsed().as_secs_f64()
    };
    (0..20).map(|_| seconds()).fold(f64::INFINITY, f64::min)
}
