//! `rewrite edns0` and `geoip`: an upstream says which options of EDNS0 it was sent, and both servers must have sent the
//! same. Facts of `geoip` are compared as options that are made of them.

use crate::ask::{Question, ask};
use crate::peer::CoreDns;
use crate::ports::free_port;
use crate::process::{Folder, Serving};
use namewall_dns::wire::{Edns, Question as Asked};
use namewall_testbed::Mmdb;
use serde_json::json;
use std::fmt::Write;
use std::net::{Ipv4Addr, UdpSocket};

/// Answers every question with a TXT record of the options that came with it, until the test ends.
fn echo() -> u16 {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut buffer = [0; 4_096];
        while let Ok((length, client)) = socket.recv_from(&mut buffer) {
            let query = &buffer[..length];
            let Ok(end) = Asked::end(query) else { continue };
            let mut said = String::from("options");
            for (code, data) in Edns::read(query).iter().flat_map(Edns::options) {
                // Cookies are between two servers.
                if code != 10 {
                    write!(said, " {code}={data:02x?}").unwrap();
                }
            }
            let mut answer = query[..end].to_vec();
            answer[2..4].copy_from_slice(&[0x81, 0x80]);
            answer[6..12].copy_from_slice(&[0, 1, 0, 0, 0, 0]);
            answer.extend([0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 30]);
            let texts: Vec<&[u8]> = said.as_bytes().chunks(255).collect();
            answer.extend(((said.len() + texts.len()) as u16).to_be_bytes());
            for text in texts {
                answer.push(text.len() as u8);
                answer.extend(text);
            }
            let _ = socket.send_to(&answer, client);
        }
    });
    port
}

/// Serves blocks by both, and returns questions that were answered differently.
fn differences(blocks: &[&str], questions: &[String], files: &[(&str, Vec<u8>)]) -> Vec<String> {
    let above = echo();
    let ports = || -> Vec<u16> { blocks.iter().map(|_| free_port()).collect() };
    let folder = |ports: &[u16]| {
        let block = |(body, port): (&&str, &u16)| {
            format!(".:{port} {{\n bind 127.0.0.1\n {body}\n forward . 127.0.0.1:{above}\n}}\n")
        };
        let folder = Folder::new(&blocks.iter().zip(ports).map(block).collect::<String>());
        for (name, bytes) in files {
            std::fs::write(folder.path(name), bytes).unwrap();
        }
        folder
    };
    let (theirs, ours) = (ports(), ports());
    let _coredns = CoreDns::start(folder(&theirs), theirs[0]);
    let _serving = Serving::start_in(folder(&ours));
    let mut differing = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        for text in questions {
            let question = Question::new(text);
            let answers = [ask(theirs[at], &question), ask(ours[at], &question)];
            if answers[0] != answers[1] {
                differing.push(format!("{block}: {question}\n   CoreDNS: {}\n   ours: {}", answers[0], answers[1]));
            }
        }
    }
    differing
}

const REWRITES: [&str; 21] = [
    "rewrite edns0 local set 0xffee 0x0aff",
    "rewrite edns0 local set 65518 hello-world",
    "rewrite edns0 local append 0xffee text",
    "rewrite edns0 local replace 0xffee text",
    "rewrite edns0 local unset 0xffee",
    "rewrite edns0 local set 0xffee {qname}",
    "rewrite edns0 local set 0xffee {qtype}",
    "rewrite edns0 local set 0xffee {client_ip}",
    "rewrite edns0 local set 0xffee {server_ip}",
    "rewrite edns0 local append 0xffee {protocol}",
    "rewrite edns0 local replace 0xffee {client_ip} revert",
    "rewrite edns0 nsid set",
    "rewrite edns0 nsid append revert",
    "rewrite edns0 nsid unset",
    "rewrite edns0 subnet set 24 56",
    "rewrite edns0 subnet set 20 56 revert",
    "rewrite edns0 subnet append 0 0",
    "rewrite edns0 subnet replace 32 128",
    "rewrite edns0 subnet unset",
    // The first that does something ends the list.
    "rewrite edns0 local replace 0xffee first\n rewrite edns0 local set 0xffef second\n \
     rewrite edns0 local set 0xfff0 third",
    "rewrite continue edns0 local set 0xffee one\n rewrite continue name a.example.org b.example.org\n \
     rewrite continue edns0 subnet set 24 56\n rewrite edns0 local set 0xffef {qname}",
];

#[test]
fn options_of_edns0_are_rewritten_as_coredns_does() {
    let mut questions: Vec<String> = ["TXT a.example.org", "TXT A.Example.ORG", "A a.example.org"]
        .into_iter()
        .flat_map(|question| {
            ["", "edns=1232", "option=65518:0102", "option=65517:00 option=65518:0102", "from=127.9.8.7"]
                .map(|behind| format!("{question} {behind}"))
        })
        .collect();
    questions.extend(
        [
            "option=3:",
            "option=8:00011800c00002",
            "option=8:0002380020010db8000001 option=65518:ff",
            "option=65518:01 option=3:",
        ]
        .map(|behind| format!("TXT a.example.org {behind}")),
    );
    let differing = differences(&REWRITES, &questions, &[]);
    assert!(differing.is_empty(), "{} differ:\n{}", differing.len(), differing.join("\n"));
}

pub(crate) fn cities() -> Vec<u8> {
    let near = json!({
        "city": {"names": {"en": "Cambridge", "de": "Kämbritsch"}},
        "country": {"iso_code": "GB", "is_in_european_union": false, "names": {"en": "United Kingdom"}},
        "continent": {"code": "EU", "names": {"en": "Europe"}},
        "location": {"latitude": 52.2242, "longitude": -0.1315, "time_zone": "Europe/London"},
        "postal": {"code": "CB4"},
        "subdivisions": [{"iso_code": "ENG"}, {"iso_code": "CAM"}],
    });
    let country = json!({"country": {"iso_code": "DE", "is_in_european_union": true, "names": {"en": "Germany"}}});
    let empty = json!({"city": {"names": {"de": "Köln"}}, "subdivisions": [{}, {"iso_code": "NW"}]});
    Mmdb::new("GeoLite2-City")
        .with("127.1.0.0".parse().unwrap(), 16, &near)
        .with("127.2.0.0".parse().unwrap(), 16, &country)
        .with("127.3.0.0".parse().unwrap(), 16, &empty)
        // As in MaxMind's databases, IPv4 is also below ::ffff:0:0/96, where CoreDNS looks client subnets up.
        .with("::ffff:127.1.0.0".parse().unwrap(), 112, &near)
        .with("2001:db8:7::".parse().unwrap(), 48, &country)
        .bytes()
}

fn networks() -> Vec<u8> {
    let record = json!({"autonomous_system_number": 64_500, "autonomous_system_organization": "Example Net"});
    Mmdb::new("GeoLite2-ASN").with("127.1.0.0".parse().unwrap(), 17, &record).bytes()
}

#[test]
fn facts_of_geoip_are_those_of_coredns() {
    let of = |facts: &[&str]| -> String {
        let rule = |(at, fact): (usize, &&str)| {
            format!(" rewrite continue edns0 local set {} {{geoip/{fact}}}\n", 65_300 + at)
        };
        facts.iter().enumerate().map(rule).collect()
    };
    let of_cities = of(&[
        "city/name",
        "country/code",
        "country/name",
        "country/is_in_european_union",
        "continent/code",
        "continent/name",
        "subdivisions/code",
        "latitude",
        "longitude",
        "timezone",
        "postalcode",
    ]);
    let of_networks = of(&["asn/number", "asn/org"]);
    let blocks = [
        format!("metadata\n geoip city.mmdb\n{of_cities}"),
        format!("metadata\n geoip city.mmdb {{\n edns-subnet\n }}\n{of_cities}"),
        format!("metadata\n geoip asn.mmdb\n{of_networks}"),
    ];
    let blocks: Vec<&str> = blocks.iter().map(String::as_str).collect();
    let mut questions: Vec<String> = ["127.0.0.1", "127.1.2.3", "127.1.200.3", "127.2.2.3", "127.3.2.3"]
        .map(|from| format!("TXT a. from={from}"))
        .into();
    // 127.1.2.0/24, 2001:db8:7::/48, and a network that is in no database.
    questions.extend(
        ["000118007f0102", "0002300020010db80007", "00011800c00002"]
            .map(|subnet| format!("TXT a. from=127.2.2.3 option=8:{subnet}")),
    );
    let files = [("city.mmdb", cities()), ("asn.mmdb", networks())];
    let differing = differences(&blocks, &questions, &files);
    assert!(differing.is_empty(), "{} differ:\n{}", differing.len(), differing.join("\n"));
}
