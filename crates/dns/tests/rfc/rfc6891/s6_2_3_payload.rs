//! RFC 6891 §6.2.3: how much a requestor takes is between it and the upstream, up to what we take ourselves.

use crate::stub::{Client, Recorder, Upstream, answer, query, serve, settings};
use namewall_dns::wire::Header;
use std::sync::Arc;

fn asked(payload: u16) -> Vec<u8> {
    let mut asked = query(7, "www.example");
    asked[11] = 1;
    asked.extend_from_slice(b"\0\0\x29");
    asked.extend_from_slice(&payload.to_be_bytes());
    asked.extend_from_slice(&[0; 6]);
    asked
}

/// As many addresses as fit so many bytes, each 16, without OPT.
fn filling(bytes: usize) -> Vec<[u8; 4]> {
    let room = bytes - query(7, "www.example").len();
    (0..room as u32 / 16).map(|n| (n | 0xc633_0000).to_be_bytes()).collect()
}

#[test]
fn s6_12_answers_as_large_as_was_asked_for_pass_in_one_datagram() {
    let recorder = Arc::new(Recorder::default());
    let upstream = Upstream::new(|asked| {
        let end = asked.len() - 11;
        let payload = usize::from(u16::from_be_bytes([asked[end + 3], asked[end + 4]]));
        let mut question = asked[..end].to_vec();
        question[11] = 0;
        vec![answer(&question, &filling(payload), 30)]
    });
    let server = serve(settings(&[&upstream]), recorder.clone());
    let client = Client::of(&server);
    for payload in [512, 1_232, 1_400, 4_096] {
        let before = recorder.addresses().len();
        let reply = client.ask(&asked(payload)).unwrap();
        let header = Header::read(&reply).unwrap();
        assert!(!header.is_truncated && reply.len() + 16 > payload.into(), "{} of {payload}", reply.len());
        assert_eq!(recorder.addresses().len() - before, usize::from(header.answers));
    }
    // We take 4,096: what is more is asked for again over TCP.
    assert!(Header::read(&client.ask(&asked(8_192)).unwrap()).unwrap().is_truncated);
}
