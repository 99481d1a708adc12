//! Questions, and answers that can be compared.

use namewall_dns::wire::{Header, Name, RecordType, Section, records};
use std::fmt;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

/// How long an answer is waited for, and how often it is asked for.
const PATIENCE: Duration = Duration::from_secs(10);
const TRIES: usize = 6;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Question {
    pub(crate) name: String,
    pub(crate) kind: RecordType2,
    pub(crate) class: u16,
    /// With an OPT record of this payload.
    pub(crate) payload: Option<u16>,
    /// The options in it, by code.
    pub(crate) options: Vec<(u16, Vec<u8>)>,
    /// The address that asks.
    pub(crate) from: Ipv4Addr,
}

/// A type, in an order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct RecordType2(pub(crate) u16);

impl Question {
    /// `TYPE NAME`, perhaps with `CH`, `edns=SIZE`, `option=CODE:HEX` or `from=ADDRESS` behind it.
    pub(crate) fn new(text: &str) -> Self {
        let mut words = text.split_whitespace();
        let kind = words.next().and_then(RecordType::named).unwrap_or_else(|| panic!("{text}")).0;
        let name = words.next().unwrap_or_else(|| panic!("{text}")).to_owned();
        let mut question = Self {
            name,
            kind: RecordType2(kind),
            class: 1,
            payload: None,
            options: Vec::new(),
            from: Ipv4Addr::LOCALHOST,
        };
        for word in words {
            match word.split_once('=') {
                Some(("edns", size)) => question.payload = Some(size.parse().unwrap()),
                Some(("from", address)) => question.from = address.parse().unwrap(),
                Some(("option", option)) => {
                    let (code, data) = option.split_once(':').unwrap();
                    question.options.push((code.parse().unwrap(), from_hex(data)));
                    question.payload = question.payload.or(Some(1_232));
                }
                None if word == "CH" => question.class = 3,
                _ => panic!("{text}"),
            }
        }
        question
    }

    fn message(&self, id: u16) -> Vec<u8> {
        let mut message = id.to_be_bytes().to_vec();
        message.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(self.payload.is_some())]);
        for label in self.name.split('.').filter(|label| !label.is_empty()) {
            message.push(label.len() as u8);
            message.extend(label.as_bytes());
        }
        message.push(0);
        message.extend(self.kind.0.to_be_bytes());
        message.extend(self.class.to_be_bytes());
        if let Some(payload) = self.payload {
            message.extend([0, 0, 41]);
            message.extend(payload.to_be_bytes());
            message.extend([0; 4]);
            let length: usize = self.options.iter().map(|(_, data)| 4 + data.len()).sum();
            message.extend((length as u16).to_be_bytes());
            for (code, data) in &self.options {
                message.extend(code.to_be_bytes());
                message.extend((data.len() as u16).to_be_bytes());
                message.extend(data);
            }
        }
        message
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", RecordType(self.kind.0), self.name)?;
        if self.class == 3 {
            write!(f, " CH")?;
        }
        for (code, data) in &self.options {
            write!(f, " {code}={data:02x?}")?;
        }
        if self.from == Ipv4Addr::LOCALHOST { Ok(()) } else { write!(f, " from {}", self.from) }
    }
}

fn from_hex(text: &str) -> Vec<u8> {
    let pair = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(pair).collect()
}

/// What a server said, as far as it is compared: records in any order, without the serial of an SOA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub(crate) rcode: String,
    pub(crate) is_authoritative: bool,
    pub(crate) is_truncated: bool,
    pub(crate) answer: Vec<String>,
    pub(crate) authority: Vec<String>,
    pub(crate) additional: Vec<String>,
}

impl Answer {
    fn read(message: &[u8]) -> Self {
        let header = Header::read(message).unwrap();
        let flags = message[2];
        let mut answer = Self {
            rcode: header.rcode.to_string(),
            is_authoritative: flags & 0x04 != 0,
            is_truncated: flags & 0x02 != 0,
            answer: Vec::new(),
            authority: Vec::new(),
            additional: Vec::new(),
        };
        for record in records(message).unwrap() {
            if record.kind == RecordType(41) {
                continue;
            }
            let (owner, _) = Name::read(message, record.owner).unwrap();
            // `whoami` says from which port it was asked, which is another for each question.
            if owner.labels().next() == Some(b"_udp".as_slice()) {
                continue;
            }
            let data = shown_data(message, record.kind.0, record.ttl_at + 6, record.data);
            let line = format!("{owner} {} {} {} {data}", record.ttl, record.class, record.kind);
            match record.section {
                Section::Answer => answer.answer.push(line),
                Section::Authority => answer.authority.push(line),
                Section::Additional => answer.additional.push(line),
            }
        }
        for section in [&mut answer.answer, &mut answer.authority, &mut answer.additional] {
            section.sort();
        }
        answer
    }

    /// The same, but for TTLs that have run in a cache since then.
    pub(crate) fn is_aged(&self, other: &Self, since: Duration) -> bool {
        let without = |answer: &Self| {
            let [a, b, c] = [&answer.answer, &answer.authority, &answer.additional].map(|records| {
                let mut records = timeless(records);
                records.sort();
                records
            });
            Self { answer: a, authority: b, additional: c, ..answer.clone() }
        };
        let ttls = |answer: &Self| -> Vec<(String, u64)> {
            let all = [&answer.answer, &answer.authority, &answer.additional].into_iter().flatten();
            let ttl = |record: &String| record.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or_default();
            let mut ttls: Vec<_> =
                all.map(|record| (timeless(std::slice::from_ref(record)).concat(), ttl(record))).collect();
            ttls.sort();
            ttls
        };
        let near = |((_, one), (_, two)): (&(String, u64), &(String, u64))| one.abs_diff(*two) <= since.as_secs() + 1;
        without(self) == without(other) && ttls(self).iter().zip(&ttls(other)).all(near)
    }

    /// Without records, as NODATA and NXDOMAIN are.
    pub(crate) fn is_empty(&self) -> bool {
        self.answer.is_empty()
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.rcode, if self.is_authoritative { " aa" } else { "" })?;
        write!(f, "{}", if self.is_truncated { " tc" } else { "" })?;
        for (name, records) in
            [("answer", &self.answer), ("authority", &self.authority), ("additional", &self.additional)]
        {
            for record in records {
                write!(f, "\n      {name}: {record}")?;
            }
        }
        Ok(())
    }
}

/// Records without their TTLs.
pub(crate) fn timeless(records: &[String]) -> Vec<String> {
    let without = |record: &String| {
        let words: Vec<&str> = record.split(' ').collect();
        [&words[..1], &words[2..]].concat().join(" ")
    };
    records.iter().map(without).collect()
}

/// The data of a record, with whole names.
fn shown_data(message: &[u8], kind: u16, at: usize, data: &[u8]) -> String {
    let name = |at: usize| Name::read(message, at).unwrap();
    match kind {
        1 => data.iter().map(ToString::to_string).collect::<Vec<_>>().join("."),
        2 | 5 | 12 => name(at).0.to_string(),
        6 => {
            let (server, after) = name(at);
            let (mailbox, after) = name(after);
            // Behind the serial.
            format!("{server} {mailbox} {:02x?}", &message[after + 4..at + data.len()])
        }
        15 => format!("{:02x?} {}", &data[..2], name(at + 2).0),
        33 => format!("{:02x?} {}", &data[..6], name(at + 6).0),
        _ => format!("{data:02x?}"),
    }
}

/// Asks the server at a port of this machine.
pub(crate) fn ask(port: u16, question: &Question) -> Answer {
    try_to_ask(port, question).unwrap_or_else(|| panic!("nobody answers {question} at port {port}"))
}

pub(crate) fn try_to_ask(port: u16, question: &Question) -> Option<Answer> {
    let socket = UdpSocket::bind((question.from, 0)).unwrap();
    socket.connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    let mut buffer = vec![0; 65_536];
    for id in 0..TRIES as u16 {
        let _ = socket.send(&question.message(id));
        let until = Instant::now() + PATIENCE;
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            socket.set_read_timeout(Some(left)).unwrap();
            match socket.recv(&mut buffer) {
                Ok(length) if length >= 12 && buffer[..2] == id.to_be_bytes() => {
                    return Some(Answer::read(&buffer[..length]));
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }
    None
}
