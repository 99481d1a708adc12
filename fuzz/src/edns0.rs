//! Any bytes as the options of a query, read as a Corefile's `request` says: every field has the value that
//! a second, plainer reading gives it. Then as a whole query, which is judged or refused, the same way twice.

use namewall_corefile::{NoFiles, read};
use namewall_dns::{Asked, Transport};
use namewall_dns_firewall::{Explanation, Service, Strangers, Surroundings, Teller, build};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock};

const COREFILE: &str = ". {
    bind 127.0.0.1
    request {
        edns0 0xffed whole hex
        edns0 0xffed exact hex 16 4 8
        edns0 0xffed head hex 0 0 4
        edns0 0xffed tail hex 0 2 0
        edns0 0xffed text bytes
        other edns0 8 ip
    }
    firewall query {
        log request/whole == '-'
        log request/exact == '-'
        log request/head == '-'
        log request/tail == '-'
        log request/text == '-'
        log request/other == '-'
        default allow
    }
}";

static SERVICE: LazyLock<Service> = LazyLock::new(|| {
    let corefile = read("Corefile", COREFILE, &NoFiles, &|_| None).expect("it is a Corefile");
    let teller = Arc::new(Teller::start(std::io::sink()).expect("a thread can start"));
    let around =
        Surroundings { teller, identities: Arc::new(Strangers), addresses: Vec::new(), names: None, clusters: None };
    build(&corefile, &around).expect("it can be served").service
});

fn explain(query: &[u8]) -> Explanation {
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    SERVICE.explain(&Asked { query, client: at(40_000), server: at(53), transport: Transport::Udp }, None)
}

pub fn edns0(bytes: &[u8]) {
    assert_eq!(explain(bytes), explain(bytes), "it is judged the same way twice");
    let bytes = &bytes[..bytes.len().min(usize::from(u16::MAX))];
    let mut query = b"\0\0\x01\0\0\x01\0\0\0\0\0\x01\x01a\0\0\x01\0\x01\0\0\x29\x04\xd0\0\0\0\0".to_vec();
    query.extend((bytes.len() as u16).to_be_bytes());
    query.extend(bytes);
    let explanation = explain(&query);
    let Some(all) = options(bytes) else {
        return assert_eq!((explanation.denial, explanation.query), (Some("FORMERR"), None), "an option is cut short");
    };
    let of = |wanted: u16| all.iter().filter(move |(code, _)| *code == wanted).map(|(_, data)| *data);
    if of(0xffed).count() > 1 || of(8).count() > 1 {
        return assert_eq!((explanation.denial, explanation.query), (Some("SERVFAIL"), None), "it is there twice");
    }
    let lists = &explanation.query.as_ref().expect("there is a list").lists;
    let facts: Vec<(&str, &str)> =
        lists[0].rules.iter().flat_map(|rule| &rule.facts).map(|(name, value)| (&**name, &**value)).collect();
    let (client, other) = (of(0xffed).next(), of(8).next());
    let expected = [
        ("whole", client.map(hex)),
        ("exact", client.filter(|data| data.len() == 16).map(|data| hex(&data[4..8]))),
        ("head", client.and_then(|data| data.get(..4)).map(hex)),
        ("tail", client.and_then(|data| data.get(2..)).map(hex)),
        ("text", client.map(|data| String::from_utf8_lossy(data).into_owned())),
        ("other", other.and_then(address).map(|address| address.to_string())),
    ];
    let expected: Vec<(&str, String)> = expected.map(|(name, value)| (name, value.unwrap_or_default())).to_vec();
    let read: Vec<(&str, String)> = facts.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
    assert_eq!(read, expected);
}

/// All options; none if one is cut short.
fn options(mut rest: &[u8]) -> Option<Vec<(u16, &[u8])>> {
    let mut all = Vec::new();
    while !rest.is_empty() {
        let [code_high, code_low, high, low, after @ ..] = rest else { return None };
        let (data, behind) = after.split_at_checked(usize::from(u16::from_be_bytes([*high, *low])))?;
        all.push((u16::from_be_bytes([*code_high, *code_low]), data));
        rest = behind;
    }
    Some(all)
}

fn hex(data: &[u8]) -> String {
    data.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn address(data: &[u8]) -> Option<IpAddr> {
    match data.len() {
        4 => <[u8; 4]>::try_from(data).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(data).ok().map(IpAddr::from),
        _ => None,
    }
}
