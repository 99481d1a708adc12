//! Messages as text: a question as it would be typed, an answer as lines of a zone, a reply as one line.

use namewall_dns::wire::{Edns, Header, Name, Section, records};
use namewall_dns::{Asked, Transport};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const TYPES: [(&str, u16); 15] = [
    ("A", 1),
    ("NS", 2),
    ("CNAME", 5),
    ("SOA", 6),
    ("PTR", 12),
    ("MX", 15),
    ("TXT", 16),
    ("AAAA", 28),
    ("SRV", 33),
    ("OPT", 41),
    ("RRSIG", 46),
    ("SVCB", 64),
    ("HTTPS", 65),
    ("AXFR", 252),
    ("ANY", 255),
];

fn type_of(word: &str) -> u16 {
    let known = TYPES.iter().find(|(name, _)| *name == word).map(|(_, number)| *number);
    known.or_else(|| word.strip_prefix("TYPE")?.parse().ok()).unwrap_or_else(|| panic!("what type is {word}?"))
}

fn type_name(number: u16) -> String {
    let known = TYPES.iter().find(|(_, known)| *known == number);
    known.map_or_else(|| format!("TYPE{number}"), |(name, _)| (*name).to_owned())
}

/// A name on the wire: `a\.b` is one label, `\000` a byte.
pub(crate) fn name(text: &str) -> Vec<u8> {
    let mut labels = vec![Vec::new()];
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'.' => labels.push(Vec::new()),
            b'\\' => {
                let next = bytes.next().unwrap();
                let letter = match next {
                    b'0'..=b'9' => {
                        let digits = [next, bytes.next().unwrap(), bytes.next().unwrap()];
                        digits.iter().fold(0, |number, digit| number * 10 + (digit - b'0'))
                    }
                    other => other,
                };
                labels.last_mut().unwrap().push(letter);
            }
            other => labels.last_mut().unwrap().push(other),
        }
    }
    labels.retain(|label| !label.is_empty());
    let mut wire = Vec::new();
    for label in labels {
        wire.push(label.len() as u8);
        wire.extend(label);
    }
    wire.push(0);
    wire
}

/// A question, and who asks it.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) query: Vec<u8>,
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    pub(crate) over_tcp: bool,
}

/// `A www.example.com from 10.1.2.3 at 127.0.0.1:53 tcp 0xffed=abc do size 4096 cd CH id 7`: all but the type
/// and the name may be left away, and what is in an option may be `x:0aff`.
impl From<&str> for Ask {
    fn from(text: &str) -> Self {
        let mut words = text.split_whitespace();
        let (kind, asked) = (type_of(words.next().unwrap()), name(words.next().unwrap()));
        let mut ask = Self {
            query: Vec::new(),
            client: SocketAddr::from(([127, 0, 0, 1], 40_000)),
            server: SocketAddr::from(([127, 0, 0, 1], 53)),
            over_tcp: false,
        };
        let (mut id, mut class, mut checks) = (0x1234u16, 1u16, 0u8);
        let (mut size, mut flags, mut options) = (None, 0u16, Vec::new());
        while let Some(word) = words.next() {
            match word {
                "from" => {
                    let word = words.next().unwrap();
                    let whole = word.parse().ok();
                    ask.client = whole.unwrap_or_else(|| SocketAddr::new(word.parse().unwrap(), 40_000));
                }
                "at" => ask.server = words.next().unwrap().parse().unwrap(),
                "tcp" => ask.over_tcp = true,
                "id" => id = words.next().unwrap().parse().unwrap(),
                "size" => size = Some(words.next().unwrap().parse().unwrap()),
                "edns" => size = size.or(Some(1_232)),
                "do" => flags = 0x8000,
                "cd" => checks = 0x10,
                "CH" => class = 3,
                "ANYCLASS" => class = 255,
                option => {
                    let (code, value) = option.split_once('=').unwrap_or_else(|| panic!("what is {option}?"));
                    let code = u16::from_str_radix(code.strip_prefix("0x").unwrap(), 16).unwrap();
                    let data = value.strip_prefix("x:").map_or_else(|| value.as_bytes().to_vec(), hex);
                    options.extend(code.to_be_bytes());
                    options.extend((data.len() as u16).to_be_bytes());
                    options.extend(data);
                }
            }
        }
        let query = &mut ask.query;
        query.extend(id.to_be_bytes());
        query.extend([1, checks, 0, 1, 0, 0, 0, 0, 0, 0]);
        query.extend(asked);
        query.extend(kind.to_be_bytes());
        query.extend(class.to_be_bytes());
        if size.is_some() || flags != 0 || !options.is_empty() {
            query[11] = 1;
            query.extend([0, 0, 41]);
            query.extend(size.unwrap_or(1_232u16).to_be_bytes());
            query.extend([0, 0]);
            query.extend(flags.to_be_bytes());
            query.extend((options.len() as u16).to_be_bytes());
            query.extend(options);
        }
        ask
    }
}

impl Ask {
    pub(crate) fn asked(&self) -> Asked<'_> {
        let transport = if self.over_tcp { Transport::Tcp } else { Transport::Udp };
        Asked { query: &self.query, client: self.client, server: self.server, transport }
    }
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[at * 2..at * 2 + 2], 16).unwrap()).collect()
}

/// An upstream's answer to a query: `OWNER TTL TYPE DATA` a line, after `authority` or `additional` if it is not
/// of the answer; and words for the header, like `NXDOMAIN`, `tc`, `edns`.
pub(crate) fn answer(query: &[u8], lines: &[&str]) -> Vec<u8> {
    let end = namewall_dns::wire::Question::end(query).unwrap();
    let mut message = query[..end].to_vec();
    message[2] |= 0x80;
    message[3] |= 0x80;
    message[6..12].fill(0);
    for section in ["answer", "authority", "additional"] {
        for line in lines {
            let (of, line) = match line.split_once(' ') {
                Some((of @ ("authority" | "additional"), line)) => (of, line),
                _ => ("answer", *line),
            };
            match line {
                "NXDOMAIN" => message[3] = message[3] & 0xf0 | 3,
                "SERVFAIL" => message[3] = message[3] & 0xf0 | 2,
                "REFUSED" => message[3] = message[3] & 0xf0 | 5,
                "tc" => message[2] |= 0x02,
                "edns" if section == "additional" => {
                    message[11] += 1;
                    message.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
                }
                // A cookie of eight bytes.
                "cookie" if section == "additional" => {
                    message[11] += 1;
                    message.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 12, 0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8]);
                }
                "edns" | "cookie" => {}
                record if of == section => {
                    let count = match section {
                        "answer" => 6,
                        "authority" => 8,
                        _ => 10,
                    };
                    let more = u16::from_be_bytes([message[count], message[count + 1]]) + 1;
                    message[count..count + 2].copy_from_slice(&more.to_be_bytes());
                    push(&mut message, record);
                }
                _ => {}
            }
        }
    }
    message
}

fn push(message: &mut Vec<u8>, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [owner, ttl, kind, rest @ ..] = &words[..] else { panic!("what is `{line}`?") };
    let kind = type_of(kind);
    // `@` is the question's name, by a pointer to it.
    if *owner == "@" {
        message.extend([0xc0, 12])
    } else {
        message.extend(name(owner))
    }
    message.extend(kind.to_be_bytes());
    message.extend([0, 1]);
    message.extend(ttl.parse::<u32>().unwrap().to_be_bytes());
    let data = match (kind, rest) {
        (_, ["\\#", bytes]) => hex(bytes),
        (1, [address]) => address.parse::<Ipv4Addr>().unwrap().octets().to_vec(),
        (28, [address]) => address.parse::<Ipv6Addr>().unwrap().octets().to_vec(),
        (2 | 5 | 12, [target]) => name(target),
        // What is said of an SOA is how long denials last.
        (6, [minimum]) => {
            let mut data = [name("ns.invalid"), name("admin.invalid")].concat();
            for number in [1, 2, 3, 4, minimum.parse::<u32>().unwrap()] {
                data.extend(number.to_be_bytes());
            }
            data
        }
        (_, [text]) => [&[text.len() as u8], text.as_bytes()].concat(),
        _ => panic!("what is `{line}`?"),
    };
    message.extend((data.len() as u16).to_be_bytes());
    message.extend(data);
}

/// A reply in one line: `NXDOMAIN; authority . 60 SOA 60; edns ede 15`.
pub(crate) fn shown(message: &[u8]) -> String {
    let header = Header::read(message).unwrap();
    assert!(header.is_answer, "a reply is one");
    let mut text = header.rcode.to_string();
    for (bit, flag) in [(0x04, " aa"), (0x02, " tc")] {
        if message[2] & bit != 0 {
            text.push_str(flag);
        }
    }
    for record in records(message).unwrap_or_else(|error| panic!("a reply can be read: {error}")) {
        let section = match record.section {
            Section::Answer => "",
            Section::Authority => "authority ",
            Section::Additional => "additional ",
        };
        if record.kind.0 == 41 {
            continue;
        }
        let (owner, _) = Name::read(message, record.owner).unwrap();
        let owner = owner.to_string();
        let dot = if owner == "." { "" } else { "." };
        let kind = type_name(record.kind.0);
        text.push_str(&format!(
            "; {section}{owner}{dot} {} {kind} {}",
            record.ttl,
            data(message, record.data, record.kind.0)
        ));
    }
    if let Some(edns) = Edns::read(message) {
        text.push_str(if edns.is_dnssec_ok() { "; edns do" } else { "; edns" });
        for (code, data) in edns.options() {
            match (code, data) {
                (15, [high, low, ..]) => text.push_str(&format!(" ede {}", u16::from_be_bytes([*high, *low]))),
                (code, data) => text.push_str(&format!(" option {code} of {} bytes", data.len())),
            }
        }
    }
    text
}

fn data(message: &[u8], data: &[u8], kind: u16) -> String {
    let at = data.as_ptr() as usize - message.as_ptr() as usize;
    match kind {
        1 => IpAddr::from(<[u8; 4]>::try_from(data).unwrap()).to_string(),
        28 => IpAddr::from(<[u8; 16]>::try_from(data).unwrap()).to_string(),
        2 | 5 | 12 => format!("{}.", Name::read(message, at).unwrap().0),
        15 => format!("{} {}.", u16::from_be_bytes([data[0], data[1]]), Name::read(message, at + 2).unwrap().0),
        33 => {
            let numbers: Vec<String> =
                data[..6].chunks(2).map(|two| u16::from_be_bytes([two[0], two[1]]).to_string()).collect();
            let (target, end) = Name::read(message, at + 6).unwrap();
            assert_eq!(end, at + data.len(), "nothing is behind it");
            format!("{} {target}", numbers.join(" "))
        }
        // Both of its names can be read, and five numbers follow: the last is how long denials last.
        6 => {
            let (_, second) = Name::read(message, at).unwrap();
            let (_, end) = Name::read(message, second).unwrap();
            assert_eq!(at + data.len() - end, 20, "an SOA has two names and five numbers");
            u32::from_be_bytes(*data.last_chunk().unwrap()).to_string()
        }
        16 => {
            let (mut text, mut rest) = (String::new(), data);
            while let Some((&length, after)) = rest.split_first() {
                let (piece, after) = after.split_at(length.into());
                text.push_str(&String::from_utf8_lossy(piece));
                rest = after;
            }
            text
        }
        _ => format!("of {} bytes", data.len()),
    }
}
