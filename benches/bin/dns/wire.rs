//! As much of DNS as a load needs: a question about a numbered name, the answer
//! that belongs to it, and whether an answer is that one.
//!
//! A name is `n00123456xxx.load.example`, and its address follows from its number:
//! every name has an address of its own, and a wrong answer cannot look right.
//! Names are of many lengths, as everybody's are: who sends messages of one
//! length together must not gain by ours.

use std::net::{Ipv4Addr, Ipv6Addr};

/// All names are below it.
pub(crate) const ZONE: [&str; 2] = ["load", "example"];
/// Longer messages are never made here.
pub(crate) const LONGEST: usize = 512;

const HEADER: usize = 12;
const OPT: u16 = 41;
const CNAME: u16 = 5;
const INTERNET: u16 = 1;
const UDP_SIZE: u16 = 1232;
/// In front of a name, one for each link of a chain of aliases that was followed.
const LINKS: [&[u8]; 2] = [b"a", b"b"];
const RESPONSE: u8 = 0x80;
const AUTHORITATIVE: u8 = 0x04;
const RECURSION_DESIRED: u8 = 0x01;
const RECURSION_AVAILABLE: u8 = 0x80;
const FORMAT_ERROR: u8 = 1;
const SERV_FAIL: u8 = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    A,
    Aaaa,
}

impl Kind {
    fn code(self) -> u16 {
        match self {
            Self::A => 1,
            Self::Aaaa => 28,
        }
    }

    fn address(self, number: u32) -> Vec<u8> {
        let first = Ipv4Addr::new(11, 0, 0, 0).to_bits();
        match self {
            Self::A => first.wrapping_add(number).to_be_bytes().to_vec(),
            Self::Aaaa => {
                Ipv6Addr::from_bits(Ipv6Addr::new(0x2600, 0, 0, 0, 0, 0, 0, 0).to_bits() + u128::from(number))
                    .octets()
                    .to_vec()
            }
        }
    }
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    pub(crate) number: u32,
    pub(crate) kind: Kind,
}

/// How the upstream answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answers {
    /// In seconds.
    pub(crate) ttl: u32,
    /// Through two aliases, each in the same message.
    pub(crate) aliased: bool,
}

impl Asked {
    /// Replaces what is in `out`. The question has EDNS, as a stub resolver's has.
    pub(crate) fn write(self, id: u16, out: &mut Vec<u8>) {
        out.clear();
        for half in [id, u16::from(RECURSION_DESIRED) << 8, 1, 0, 0, 1] {
            out.extend(half.to_be_bytes());
        }
        self.write_question(out);
        write_opt(out, 0);
    }

    fn write_question(self, out: &mut Vec<u8>) {
        let tail = "x".repeat(tail(self.number));
        write_label(out, format!("n{:08}{tail}", self.number).as_bytes());
        for label in ZONE {
            write_label(out, label.as_bytes());
        }
        out.push(0);
        out.extend(self.kind.code().to_be_bytes());
        out.extend(INTERNET.to_be_bytes());
    }

    /// Whether this is the answer, the whole of it. The sender has compared the id.
    pub(crate) fn is_answered_by(self, message: &[u8]) -> bool {
        self.last_address(message).is_some_and(|address| address == self.kind.address(self.number))
    }

    /// Whether this says that there is no answer: SERVFAIL for the same question. The sender has compared the id.
    pub(crate) fn is_failed_by(self, message: &[u8]) -> bool {
        let mut question = Vec::with_capacity(64);
        self.write_question(&mut question);
        let is_failure = message.get(2..4).is_some_and(|flags| flags[0] & RESPONSE != 0 && flags[1] & 0xf == SERV_FAIL);
        is_failure && message.get(HEADER..HEADER + question.len()) == Some(&question)
    }

    fn last_address(self, message: &[u8]) -> Option<&[u8]> {
        let mut question = Vec::with_capacity(64);
        self.write_question(&mut question);
        let end = HEADER + question.len();
        let flags = message.get(2..4)?;
        let is_good = flags[0] & RESPONSE != 0 && flags[1] & 0xf == 0 && u16_at(message, 4)? == 1;
        if !is_good || message.get(HEADER..end)? != question {
            return None;
        }
        let (mut at, mut last) = (end, None);
        for _ in 0..u16_at(message, 6)? {
            at = skip_name(message, at)?;
            let (kind, length) = (u16_at(message, at)?, usize::from(u16_at(message, at + 8)?));
            let data = message.get(at + 10..at + 10 + length)?;
            at += 10 + length;
            last = if kind == self.kind.code() { Some(data) } else { None };
        }
        last
    }
}

/// Answers a question: replaces what is in `out`. None for what is no question at all.
pub(crate) fn answer(query: &[u8], answers: Answers, out: &mut Vec<u8>) -> Option<()> {
    let header = query.get(..HEADER)?;
    if header[2] & RESPONSE != 0 {
        return None;
    }
    out.clear();
    out.extend(&header[..2]);
    out.extend([RESPONSE | AUTHORITATIVE | header[2] & RECURSION_DESIRED, RECURSION_AVAILABLE]);
    let Some(question) = Question::read(query) else {
        out[3] |= FORMAT_ERROR;
        out.extend([0; 8]);
        return Some(());
    };
    let records = question.kind.map_or(0, |_| 1 + if answers.aliased { question.links_left() } else { 0 });
    for half in [1, records as u16, 0, u16::from(question.opt_flags.is_some())] {
        out.extend(half.to_be_bytes());
    }
    out.extend(&query[HEADER..question.end]);
    write_records(out, &question, answers.ttl, records.saturating_sub(1));
    if let Some(flags) = question.opt_flags {
        write_opt(out, flags);
    }
    Some(())
}

fn write_records(out: &mut Vec<u8>, question: &Question, ttl: u32, aliases: usize) {
    let Some(kind) = question.kind else { return };
    // The owner of a record, as where it is already written.
    let mut owner = HEADER;
    for link in &LINKS[LINKS.len() - aliases.min(LINKS.len())..] {
        write_record(out, &RecordHead { owner, kind: CNAME, ttl, length: 2 + link.len() + 1 });
        owner = out.len();
        write_label(out, link);
        out.extend(pointer(question.bare_name));
    }
    let address = kind.address(question.number);
    write_record(out, &RecordHead { owner, kind: kind.code(), ttl, length: address.len() });
    out.extend(address);
}

/// A record up to its data.
struct RecordHead {
    /// Where its name is already written.
    owner: usize,
    kind: u16,
    ttl: u32,
    /// The length of the data.
    length: usize,
}

fn write_record(out: &mut Vec<u8>, head: &RecordHead) {
    out.extend(pointer(head.owner));
    out.extend(head.kind.to_be_bytes());
    out.extend(INTERNET.to_be_bytes());
    out.extend(head.ttl.to_be_bytes());
    out.extend((head.length as u16).to_be_bytes());
}

fn pointer(to: usize) -> [u8; 2] {
    (0xc000 | to as u16).to_be_bytes()
}

fn write_label(out: &mut Vec<u8>, label: &[u8]) {
    out.push(label.len() as u8);
    out.extend(label);
}

fn write_opt(out: &mut Vec<u8>, flags: u16) {
    out.push(0);
    for half in [OPT, UDP_SIZE, 0, flags, 0] {
        out.extend(half.to_be_bytes());
    }
}

/// A question as the upstream sees it.
#[derive(PartialEq, Eq, Debug)]
struct Question {
    /// None for kinds of records that no name has.
    kind: Option<Kind>,
    number: u32,
    /// How many links of a chain its name has in front.
    links: usize,
    /// Where the name without them is.
    bare_name: usize,
    end: usize,
    opt_flags: Option<u16>,
}

impl Question {
    fn read(query: &[u8]) -> Option<Self> {
        let end = skip_name(query, HEADER)? + 4;
        if u16_at(query, 4)? != 1 || end > query.len() {
            return None;
        }
        let kind = match u16_at(query, end - 4)? {
            1 => Some(Kind::A),
            28 => Some(Kind::Aaaa),
            _ => None,
        };
        let (mut bare_name, mut links) = (HEADER, 0);
        while let Some(link) = LINKS.iter().position(|link| label(query, bare_name) == Some(link)) {
            bare_name += 1 + LINKS[link].len();
            links = links.max(link + 1);
        }
        let number = label(query, bare_name).map_or(0, number_of);
        Some(Self { kind, number, links, bare_name, end, opt_flags: opt_flags(query, end) })
    }

    fn links_left(&self) -> usize {
        LINKS.len() - self.links
    }
}

/// Nothing but an OPT record is expected behind a question.
fn opt_flags(query: &[u8], end: usize) -> Option<u16> {
    let is_opt = u16_at(query, 10)? > 0 && *query.get(end)? == 0 && u16_at(query, end + 1)? == OPT;
    // Of the flags only "DNSSEC OK" is to be given back.
    if is_opt { Some(u16_at(query, end + 7)? & 0x8000) } else { None }
}

/// How much longer a name is than the shortest: any of 32 lengths, each as often.
fn tail(number: u32) -> usize {
    (number.wrapping_mul(0x9e37_79b1) >> 27) as usize
}

/// Other names, such as those of health checks, all have the same.
fn number_of(label: &[u8]) -> u32 {
    let text = std::str::from_utf8(label).unwrap_or_default().trim_end_matches(['x', 'X']);
    text.strip_prefix(['n', 'N']).and_then(|digits| digits.parse().ok()).unwrap_or(u32::MAX)
}

fn label(message: &[u8], at: usize) -> Option<&[u8]> {
    let length = usize::from(*message.get(at)?);
    message.get(at + 1..at + 1 + length)
}

/// Where a name ends; a pointer ends it.
fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            length if length & 0xc0 == 0xc0 => return Some(at + 2),
            length if length & 0xc0 == 0 => at += 1 + usize::from(length),
            _ => return None,
        }
    }
}

fn u16_at(message: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Answers = Answers { ttl: 30, aliased: false };
    const ALIASED: Answers = Answers { ttl: 30, aliased: true };
    const ASKED: Asked = Asked { number: 258, kind: Kind::A };

    fn query(asked: Asked) -> Vec<u8> {
        let mut query = Vec::new();
        asked.write(0x1234, &mut query);
        query
    }

    fn answered(query: &[u8], answers: Answers) -> Vec<u8> {
        let mut out = vec![0xff];
        answer(query, answers, &mut out).unwrap();
        out
    }

    #[test]
    fn an_answer_to_the_byte() {
        let question = b"\x17n00000258xxxxxxxxxxxxxx\x04load\x07example\x00\x00\x01\x00\x01";
        let opt = b"\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00";
        let asked = [b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01", &question[..], opt].concat();
        assert_eq!(query(ASKED), asked);
        let record = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x1e\x00\x04\x0b\x00\x01\x02";
        let expected = [b"\x12\x34\x85\x80\x00\x01\x00\x01\x00\x00\x00\x01", &question[..], record, opt].concat();
        assert_eq!(answered(&asked, PLAIN), expected);
    }

    #[test]
    fn a_question_without_edns_gets_an_answer_without() {
        let mut asked = query(ASKED);
        asked.truncate(asked.len() - 11);
        asked[11] = 0;
        let answer = answered(&asked, PLAIN);
        assert_eq!((answer[11], answer.len()), (0, asked.len() + 16));
        assert!(ASKED.is_answered_by(&answer));
    }

    #[test]
    fn every_kind_of_answer_is_known_as_the_right_one_and_as_no_other() {
        for kind in [Kind::A, Kind::Aaaa] {
            for answers in [PLAIN, ALIASED] {
                let asked = Asked { number: 7, kind };
                let answer = answered(&query(asked), answers);
                assert!(asked.is_answered_by(&answer), "{kind:?} {answers:?}");
                assert!(!Asked { number: 8, kind }.is_answered_by(&answer));
                for length in 0..answer.len() - 11 {
                    assert!(!asked.is_answered_by(&answer[..length]), "cut to {length}");
                }
            }
        }
    }

    #[test]
    fn a_failure_a_question_and_another_address_are_wrong() {
        let mut answer = answered(&query(ASKED), PLAIN);
        let address = answer.len() - 12;
        answer[address] ^= 1;
        assert!(!ASKED.is_answered_by(&answer) && !ASKED.is_failed_by(&answer));
        answer[address] ^= 1;
        answer[3] |= 2;
        assert!(!ASKED.is_answered_by(&answer) && ASKED.is_failed_by(&answer));
        assert!(!Asked { number: 8, ..ASKED }.is_failed_by(&answer));
        assert!(!ASKED.is_answered_by(&query(ASKED)));
    }

    #[test]
    fn a_chain_can_be_followed_link_by_link() {
        let mut asked = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01b\x02n5\x04load\x07example\x00".to_vec();
        asked.extend(b"\x00\x01\x00\x01");
        let answer = answered(&asked, ALIASED);
        assert_eq!(answer[6..8], [0, 1]);
        assert_eq!(answer[answer.len() - 4..], [11, 0, 0, 5]);
        asked[13] = b'a';
        let answer = answered(&asked, ALIASED);
        assert_eq!(answer[6..8], [0, 2]);
        // "b", and the name where it is without links.
        assert_eq!(answer[asked.len() + 12..asked.len() + 16], [1, b'b', 0xc0, 14]);
    }

    #[test]
    fn what_is_no_question_is_refused() {
        let mut out = Vec::new();
        assert_eq!(answer(&[0; 11], PLAIN, &mut out), None);
        assert_eq!(answer(&answered(&query(ASKED), PLAIN), PLAIN, &mut out), None);
        let cut = &query(ASKED)[..20];
        assert_eq!(answered(cut, PLAIN), b"\x12\x34\x85\x81\0\0\0\0\0\0\0\0");
    }

    #[test]
    fn other_kinds_of_records_are_not_there() {
        let mut asked = query(ASKED);
        let kind = asked.len() - 11 - 4;
        asked[kind..kind + 2].copy_from_slice(&15_u16.to_be_bytes());
        assert_eq!(answered(&asked, PLAIN)[3..8], [0x80, 0, 1, 0, 0]);
    }
}
