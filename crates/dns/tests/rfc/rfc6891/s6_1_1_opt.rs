//! RFC 6891 §6.1.1: OPT passes both ways untouched, and an answer of our own to a query that has one has one.

use crate::stub::{Client, Upstream, answer, plain, query, serve, settings};
use namewall_dns::Settings;
use namewall_dns::wire::{Rcode, reply};

/// With the DO bit and two options: a cookie (RFC 7873) and a client's subnet (RFC 7871).
const OPT: &[u8] = b"\0\0\x29\x04\xd0\0\0\x80\0\0\x17\0\x0a\0\x08cookie!!\0\x08\0\x07\0\x01\x18\0\xc0\0\x02";

fn with_opt(mut message: Vec<u8>) -> Vec<u8> {
    message[11] = 1;
    message.extend_from_slice(OPT);
    message
}

/// OPT as we would write it: no options, version 0, DO as it was asked.
fn own(dnssec: bool) -> Vec<u8> {
    vec![0, 0, 0x29, 0x04, 0xd0, 0, 0, if dnssec { 0x80 } else { 0 }, 0, 0, 0]
}

#[test]
fn s6_12_opt_passes_untouched() {
    let upstream = Upstream::new(|asked| {
        assert!(asked.ends_with(OPT));
        let question = &asked[..asked.len() - OPT.len()];
        vec![with_opt(answer(question, &[[192, 0, 2, 1]], 30))]
    });
    let server = serve(settings(&[&upstream]), plain());
    let asked = query(7, "www.example");
    let reply = Client::of(&server).ask(&with_opt(asked.clone())).unwrap();
    assert_eq!(reply, with_opt(answer(&asked, &[[192, 0, 2, 1]], 30)));
}

#[test]
fn a_failure_has_opt_if_the_query_had() {
    let silent = Upstream::new(|_| Vec::new());
    let server = serve(Settings { tries: 1, ..settings(&[&silent]) }, plain());
    let client = Client::of(&server);
    let asked = query(7, "www.example");
    let bare = client.ask(&asked).unwrap();
    assert_eq!((bare.len(), bare[11]), (asked.len(), 0));
    let reply = client.ask(&with_opt(asked.clone())).unwrap();
    assert_eq!(reply[asked.len()..], own(true));
    assert_eq!((reply[3] & 0x0f, reply[11]), (2, 1));
}

#[test]
fn opt_is_found_behind_other_records_and_only_if_it_is_whole() {
    let asked = query(7, "www.example");
    let plain = reply::failure(&asked, Rcode::SERV_FAIL);
    let expected = [
        &{
            let mut plain = plain.clone();
            plain[11] = 1;
            plain
        }[..],
        &own(false),
    ]
    .concat();
    // A TSIG before it, and DO not set.
    let mut behind = asked.clone();
    behind[11] = 2;
    behind.extend_from_slice(b"\x03key\0\0\xfa\0\xff\0\0\0\0\0\x03abc");
    behind.extend_from_slice(b"\0\0\x29\xff\xff\0\0\0\0\0\0");
    assert_eq!(reply::failure(&behind, Rcode::SERV_FAIL), expected);
    for length in asked.len()..behind.len() {
        assert_eq!(reply::failure(&behind[..length], Rcode::SERV_FAIL), plain, "cut at {length}");
    }
    // Neither a record of another owner nor one in another section.
    let mut named = asked.clone();
    named[11] = 1;
    named.extend_from_slice(b"\x01a\0\0\x29\x04\xd0\0\0\0\0\0\0");
    assert_eq!(reply::failure(&named, Rcode::SERV_FAIL), plain);
    let mut section = with_opt(asked);
    (section[7], section[11]) = (1, 0);
    assert_eq!(reply::failure(&section, Rcode::SERV_FAIL), plain);
}

/// The upper bits of an rcode are in OPT; BADVERS is none of the rcodes the header alone can say.
#[test]
fn a_version_nobody_knows_is_the_upstreams_matter() {
    let upstream = Upstream::new(|asked| {
        let mut refused = asked.to_vec();
        refused[2] |= 0x80;
        let at = refused.len() - OPT.len() + 5;
        refused[at] = 1;
        vec![refused]
    });
    let server = serve(settings(&[&upstream]), plain());
    let mut asked = with_opt(query(7, "www.example"));
    let version = asked.len() - OPT.len() + 6;
    asked[version] = 1;
    let reply = Client::of(&server).ask(&asked).unwrap();
    assert_eq!((reply[version - 1], reply[version]), (1, 1));
}
