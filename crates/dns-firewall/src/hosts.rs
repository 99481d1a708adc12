//! Names of a file like `/etc/hosts`, and of the Corefile itself.

use crate::host_table::{HostTable, HostTableBuilder};
use crate::message::is_under;
use crate::reply::{Sections, with_records, with_soa};
use namewall_corefile::{self as corefile, Zone};
use namewall_dns::wire::{Name, Question, Rcode, RecordType, reply};
use namewall_policy::addr::parse_address;
use namewall_policy::domain::DomainName;
use namewall_zones::Record;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::IpAddr;

const PTR: RecordType = RecordType(12);
const IN: u16 = 1;
/// Lines that cannot be read are told up to this number; the others are counted.
const MOST_BAD_LINES: usize = 100;

#[derive(Debug)]
pub(crate) struct Hosts {
    zones: Vec<Zone>,
    fallthrough: Vec<Zone>,
    ttl: u32,
    table: HostTable,
    pub(crate) bad_lines: BadLines,
}

/// Lines of a file that cannot be read, with what is wrong.
#[derive(Debug, Default)]
pub(crate) struct BadLines {
    pub(crate) first: Vec<(usize, String)>,
    /// How many more there are.
    pub(crate) more: usize,
}

impl Hosts {
    /// Reads the names that are in the zones of the settings or, if they have none, of the server. Lines that cannot be
    /// read are left out, and are findings. That there is no file is not an error where the Corefile has names of its
    /// own.
    pub(crate) fn read(settings: &corefile::Hosts, of_server: &[Zone]) -> io::Result<Self> {
        let zones = if settings.zones.is_empty() { of_server } else { &settings.zones };
        let file = match File::open(&settings.file) {
            Ok(file) => Some(file),
            Err(_) if !settings.entries.is_empty() => None,
            Err(error) => return Err(error),
        };
        let mut reader = Reader { zones, table: HostTableBuilder::default() };
        for entry in &settings.entries {
            for name in &entry.names {
                reader.add(entry.address, name).map_err(io::Error::other)?;
            }
        }
        let mut bad_lines = BadLines::default();
        if let Some(file) = file {
            let (mut lines, mut line, mut at) = (BufReader::new(file), String::new(), 0);
            while lines.read_line(&mut line)? > 0 {
                at += 1;
                if let Err(problem) = reader.read_line(&line) {
                    match bad_lines.first.len() < MOST_BAD_LINES {
                        true => bad_lines.first.push((at, problem)),
                        false => bad_lines.more += 1,
                    }
                }
                line.clear();
            }
        }
        Ok(Self {
            zones: zones.to_vec(),
            fallthrough: settings.fallthrough.clone(),
            ttl: settings.ttl.as_secs() as u32,
            table: reader.table.finish(settings.has_reverse),
            bad_lines,
        })
    }

    /// The answer, if it is to be found here.
    pub(crate) fn answer(&self, query: &[u8], question: &Question) -> Option<Vec<u8>> {
        if question.class != IN {
            return None;
        }
        let name = &question.name;
        // Names of addresses need no zone, and what is not known of them is anybody's, as with CoreDNS.
        if question.record_type != PTR && !self.zones.iter().any(|zone| is_under(name, zone)) {
            return None;
        }
        let data: Vec<Vec<u8>> = match question.record_type {
            PTR => names_for_a_message(self.table.names(reversed(name)?)),
            kind => match self.table.addresses(name.as_bytes()) {
                Some(addresses) => addresses.filter(|address| is_of(kind, *address)).map(octets).collect(),
                None => return self.unknown(query, question),
            },
        };
        if data.is_empty() {
            let zone = Zone::Name(name.to_domain().filter(|_| question.record_type != PTR)?);
            return Some(with_soa(query, Rcode::NO_ERROR, &zone));
        }
        let record = |data| Record {
            owner: name.as_bytes().to_vec(),
            kind: question.record_type,
            class: IN,
            ttl: self.ttl,
            data,
        };
        let answer: Vec<Record> = data.into_iter().map(record).collect();
        Some(with_records(query, Rcode::NO_ERROR, Sections { answer: &answer, ..Sections::default() }))
    }

    /// Others are asked for it, or nobody knows it: SERVFAIL, as with CoreDNS. A hosts file has no SOA that would let
    /// it say that there is no such name.
    fn unknown(&self, query: &[u8], question: &Question) -> Option<Vec<u8>> {
        let goes_on = self.fallthrough.iter().any(|zone| is_under(&question.name, zone));
        (!goes_on).then(|| reply::failure(query, Rcode::SERV_FAIL))
    }
}

fn is_of(kind: RecordType, address: IpAddr) -> bool {
    kind == if address.is_ipv4() { RecordType::A } else { RecordType::AAAA }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn wire_name(name: &DomainName) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.labels() {
        bytes.push(label.len() as u8);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

/// The address whose name is asked for.
fn reversed(name: &Name) -> Option<IpAddr> {
    let labels: Vec<&str> = name.labels().map(std::str::from_utf8).collect::<Result<_, _>>().ok()?;
    match &labels[..] {
        [d, c, b, a, "in-addr", "arpa"] => {
            // Written in another way it is another name.
            let octet = |text: &str| text.parse::<u8>().ok().filter(|octet| octet.to_string() == text);
            Some(IpAddr::from([octet(a)?, octet(b)?, octet(c)?, octet(d)?]))
        }
        [digits @ .., "ip6", "arpa"] if digits.len() == 32 => {
            let digit = |text: &str| match text.as_bytes() {
                [digit @ (b'0'..=b'9' | b'a'..=b'f')] => char::from(*digit).to_digit(16),
                _ => None,
            };
            let bits = digits.iter().rev().try_fold(0_u128, |bits, text| Some(bits << 4 | u128::from(digit(text)?)))?;
            Some(IpAddr::V6(bits.into()))
        }
        _ => None,
    }
}

/// As many names as a message can hold: a hosts file may have a million names of one address.
fn names_for_a_message<'n>(names: impl Iterator<Item = &'n [u8]>) -> Vec<Vec<u8>> {
    const MOST_BYTES: usize = 60_000;
    /// A pointer to the owner, the type, the class, the TTL and the length.
    const BEFORE_DATA: usize = 12;
    let mut bytes = 0;
    let fits = |name: &&[u8]| {
        bytes += BEFORE_DATA + name.len();
        bytes <= MOST_BYTES
    };
    names.take_while(fits).map(<[u8]>::to_vec).collect()
}

/// What is read of a file.
struct Reader<'z> {
    zones: &'z [Zone],
    table: HostTableBuilder,
}

impl Reader<'_> {
    /// `ADDRESS NAME…`. A name that cannot be read is left out, and the others are not.
    fn read_line(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace().peekable();
        let Some(word) = words.next() else { return Ok(()) };
        // A zone, like that of `fe80::1%lo0`, is of no use in an answer.
        let bare = word.split('%').next().unwrap_or(word);
        let address = parse_address(bare).ok_or_else(|| format!("`{word}` is not an address"))?;
        if words.peek().is_none() {
            return Err(format!("`{word}` has no name"));
        }
        let mut bad = Vec::new();
        for word in words {
            match word.parse() {
                Ok(name) => self.add(address, &name)?,
                Err(_) => bad.push(format!("`{word}` is not a name")),
            }
        }
        if bad.is_empty() { Ok(()) } else { Err(bad.join(", ")) }
    }

    /// Names of other zones are not read, as with CoreDNS: no name of an address leads to them either.
    fn add(&mut self, address: IpAddr, name: &DomainName) -> Result<(), String> {
        if !self.zones.iter().any(|zone| zone.contains(name)) {
            return Ok(());
        }
        self.table.add(address, &wire_name(name)).map_err(|full| full.to_string())
    }
}
