//! The upstream of these tests: a resolver that knows `shop.example`, answers
//! with EDNS0 to who speaks it, and cuts what a datagram cannot hold.

use crate::message::{Data, Labels, Packing, Record, Writer};
use crate::stub::{Over, Upstream};

/// Addresses of `large.shop.example`: more than a datagram of any client holds.
pub(crate) const MANY: u32 = 300;
const SOA: &str = "shop.example 60 SOA \\# 24 016e0000000000010000000100000001000000010000003c";
const OPT: u16 = 41;

pub(crate) fn upstream() -> Upstream {
    Upstream::with(|query, over| vec![answer(query, over)])
}

fn answer(query: &[u8], over: Over) -> Vec<u8> {
    let (name, end) = asked(query);
    let kind = u16::from_be_bytes([query[end - 4], query[end - 3]]);
    // Of this zone every name is asked for in any case.
    let text = name.iter().map(|label| String::from_utf8_lossy(label).to_lowercase()).collect::<Vec<_>>().join(".");
    let payload = payload(query, end);
    let whole = Answer { name: &name, query, opt: payload.is_some() };
    let (records, exists) = records(&text, kind);
    let message = whole.with(&records, exists);
    let room = if over == Over::Tcp { 65_535 } else { payload.unwrap_or(512).max(512) };
    if message.len() <= usize::from(room) {
        return message;
    }
    // As many as fit, and a sign that there are more.
    let fitting = (usize::from(room) - 60) / 16;
    let mut cut = whole.with(&records[..fitting], exists);
    cut[2] |= 0x02;
    cut
}

fn asked(query: &[u8]) -> (Labels, usize) {
    let (mut labels, mut at) = (Labels::new(), 12);
    while query[at] != 0 {
        let length = usize::from(query[at]);
        labels.push(query[at + 1..at + 1 + length].to_vec());
        at += 1 + length;
    }
    (labels, at + 5)
}

/// What the query's OPT says it takes. Nothing stands before OPT in a client's query.
fn payload(query: &[u8], end: usize) -> Option<u16> {
    let opt = query.get(end..end + 11).filter(|opt| opt[..3] == [0, 0, OPT as u8])?;
    Some(u16::from_be_bytes([opt[3], opt[4]]))
}

/// The records for a question, and whether its name exists.
fn records(name: &str, kind: u16) -> (Vec<Record>, bool) {
    let of = |lines: &[&str]| lines.iter().map(|&line| line.into()).collect::<Vec<Record>>();
    let www = |kind| match kind {
        1 => of(&["www.shop.example 60 A 192.0.2.1", "www.shop.example 60 A 192.0.2.2"]),
        28 => of(&["www.shop.example 60 AAAA 2001:db8::1"]),
        _ => Vec::new(),
    };
    match name {
        "www.shop.example" => (www(kind), true),
        "alias.shop.example" => {
            let mut records = of(&["alias.shop.example 300 CNAME www.shop.example"]);
            records.extend(www(kind));
            (records, true)
        }
        "large.shop.example" if kind == 1 => {
            let addresses = (0..MANY).map(|n| (0xc633_0000 | n).to_be_bytes());
            let record = |octets: [u8; 4]| Record { data: Data::Bytes(octets.into()), ..record("large.shop.example") };
            (addresses.map(record).collect(), true)
        }
        "large.shop.example" => (Vec::new(), true),
        _ => (Vec::new(), false),
    }
}

fn record(owner: &str) -> Record {
    format!("{owner} 60 A 192.0.2.1").as_str().into()
}

struct Answer<'a> {
    name: &'a Labels,
    query: &'a [u8],
    opt: bool,
}

impl Answer<'_> {
    fn with(&self, records: &[Record], exists: bool) -> Vec<u8> {
        let (_, end) = asked(self.query);
        let field = |at: usize| u16::from_be_bytes([self.query[at], self.query[at + 1]]);
        let mut writer = Writer::asked(self.name, field(end - 4), field(end - 2), Packing::Compressed);
        for record in records {
            // A server gives the question's name back as it was written.
            let is_own = record.owner.iter().zip(self.name).all(|(a, b)| a.eq_ignore_ascii_case(b));
            let owner = if is_own { self.name.clone() } else { record.owner.clone() };
            writer.record(&Record { owner, ..record.clone() });
        }
        let count = writer.bytes[7];
        let high = writer.bytes[6];
        if records.is_empty() {
            writer.record(&SOA.into());
            writer.bytes[9] = 1;
        }
        (writer.bytes[6], writer.bytes[7]) = (high, count);
        let mut message = writer.bytes;
        message[..2].copy_from_slice(&self.query[..2]);
        message[2] = 0x80 | self.query[2] & 0x01;
        message[3] = 0x80 | if exists { 0 } else { 3 };
        if self.opt {
            message[11] = 1;
            message.extend_from_slice(&[0, 0, OPT as u8, 0x10, 0, 0, 0, self.query[end + 7] & 0x80, 0, 0, 0]);
        }
        message
    }
}
