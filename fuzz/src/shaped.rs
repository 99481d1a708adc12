//! Any bytes as the answer of an upstream to a server block whose directives write answers anew. What goes out instead can
//! be read, repeats the question, and has the answer's records and no others.

use namewall_corefile::{NoFiles, read};
use namewall_dns::wire::{Question, Section, records};
use namewall_dns::{Asked, Chain, Heard, Passing, Step, Transport};
use namewall_dns_firewall::{Service, Strangers, Surroundings, Teller, build};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

const COREFILE: &str = ". {
    bind 127.0.0.1
    minimal
    header {
        response set aa
    }
    nsid fuzz
    bufsize 1232
    forward . 192.0.2.1
}";

/// `A www.example.com` with an OPT record that asks for the server's name.
const QUERY: &[u8] = b"\0\x07\x01\0\0\x01\0\0\0\0\0\x01\x03www\x07example\x03com\0\0\x01\0\x01\
    \0\0\x29\x04\xd0\0\0\0\0\0\x04\0\x03\0\0";

static SERVICE: LazyLock<Service> = LazyLock::new(|| {
    let corefile = read("Corefile", COREFILE, &NoFiles, &|_| None).expect("it is a Corefile");
    let teller = Arc::new(Teller::start(std::io::sink()).expect("a thread can start"));
    let around =
        Surroundings { teller, identities: Arc::new(Strangers), addresses: Vec::new(), names: None, clusters: None };
    build(&corefile, &around).expect("it can be served").service
});

pub fn shaped(bytes: &[u8]) {
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let asked = Asked { query: QUERY, client: at(40_000), server: at(53), transport: Transport::Udp };
    let Step::Forward(_, continuation) = SERVICE.query(&asked) else { panic!("it is forwarded") };
    let heard = Heard { upstream: at(53), since: Instant::now(), transport: Transport::Udp, answer: bytes };
    let Passing::Answer(given) = continuation.answer(&heard) else { return };
    // Only flags are changed in what cannot be read.
    let Ok(before) = records(bytes) else { return };
    if Question::is_repeated(QUERY, bytes) {
        assert!(Question::is_repeated(QUERY, &given), "the question is repeated");
    }
    let after = records(&given).expect("what we write can be read");
    let is_answer = |section: Section| section == Section::Answer;
    let kinds = |all: &[namewall_dns::wire::Record<'_>]| -> Vec<(u16, u16, u32)> {
        let of_answer = all.iter().filter(|record| is_answer(record.section) && record.kind.0 != 41);
        of_answer.map(|record| (record.kind.0, record.class, record.ttl)).collect()
    };
    let is_truncated = given[2] & 0x02 != 0;
    assert!(is_truncated || kinds(&before) == kinds(&after), "it has the answer's records");
}
