//! Any bytes as a DNS message: what can be read is written so that it reads the
//! same, and a server that is asked with them answers with messages.

use namewall_scenario::Scenario;
use namewall_scenario::zones::{Message, ReadsAnswers, Transport, Witness};
use std::net::IpAddr;
use std::path::Path;

const ZONES: &str = "
topology:
  dns:
    servers: {203.0.113.53: {spoof: [id, question, port, source]}}
    zones: {a.example: {CNAME: b.example}, b.example: {A: [198.51.100.0/30], rotate: 2}, '*.c.example': {TXT: hello}}
probes: ['10.0.0.1 -> 10.0.0.2/ICMP: allow']
";

pub fn messages(bytes: &[u8]) {
    if let Ok(read) = Message::read(bytes) {
        let again = Message::read(&read.write()).expect("what is written can be read");
        // Written out, names that pointed into each other may be too long for a message.
        if again.truncated == read.truncated {
            assert_eq!(again, read);
        }
        if let Some(leasable) = Witness.leasable(bytes, bytes) {
            assert!(read.is_response() && leasable.addresses.len() <= read.answer.len());
        }
    }
    let Ok(Scenario { mut zones, .. }) = Scenario::parse(ZONES, "zones.yaml", Path::new("/nonexistent")) else {
        return;
    };
    for transport in [Transport::Udp, Transport::Tcp] {
        for reply in zones.respond(IpAddr::from([203, 0, 113, 53]), bytes, transport) {
            assert!(Message::read(&reply.bytes).is_ok(), "what is written can be read");
        }
    }
}
