//! Names of a file like `/etc/hosts`, and of the Corefile itself.

use crate::message::is_under;
use crate::reply::with_soa;
use namewall_corefile::{self as corefile, Zone};
use namewall_dns::wire::{Question, Rcode, RecordType, reply};
use namewall_policy::addr::parse_address;
use namewall_policy::domain::DomainName;
use rustc_hash::FxHashMap;
use std::io;
use std::net::IpAddr;

const PTR: RecordType = RecordType(12);
const IN: u16 = 1;

#[derive(Debug)]
pub(crate) struct Hosts {
    zones: Vec<Zone>,
    fallthrough: Vec<Zone>,
    ttl: u32,
    has_reverse: bool,
    addresses: FxHashMap<DomainName, Vec<IpAddr>>,
    names: FxHashMap<DomainName, Vec<DomainName>>,
    /// Lines of the file that cannot be read, with what is wrong.
    pub(crate) bad_lines: Vec<(usize, String)>,
}

impl Hosts {
    /// Lines that cannot be read are left out, and are findings. That there is no file is not an error where the
    /// Corefile has names of its own.
    pub(crate) fn read(settings: &corefile::Hosts) -> io::Result<Self> {
        let text = match std::fs::read_to_string(&settings.file) {
            Ok(text) => text,
            Err(_) if !settings.entries.is_empty() => String::new(),
            Err(error) => return Err(error),
        };
        let mut hosts = Self {
            zones: settings.zones.clone(),
            fallthrough: settings.fallthrough.clone(),
            ttl: settings.ttl.as_secs() as u32,
            has_reverse: settings.has_reverse,
            addresses: FxHashMap::default(),
            names: FxHashMap::default(),
            bad_lines: Vec::new(),
        };
        for entry in &settings.entries {
            entry.names.iter().for_each(|name| hosts.add(entry.address, name.clone()));
        }
        for (at, line) in text.lines().enumerate() {
            if let Err(problem) = hosts.read_line(line) {
                hosts.bad_lines.push((at + 1, problem));
            }
        }
        Ok(hosts)
    }

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
                Ok(name) => self.add(address, name),
                Err(_) => bad.push(format!("`{word}` is not a name")),
            }
        }
        if bad.is_empty() { Ok(()) } else { Err(bad.join(", ")) }
    }

    fn add(&mut self, address: IpAddr, name: DomainName) {
        let known = self.addresses.entry(name.clone()).or_default();
        if !known.contains(&address) {
            known.push(address);
        }
        if let Some(reverse) = reverse_name(address).parse().ok().filter(|_| self.has_reverse) {
            self.names.entry(reverse).or_default().push(name);
        }
    }

    /// The same for the zones of its server, if it has none of its own.
    pub(crate) fn for_zones(mut self, zones: impl FnOnce() -> Vec<Zone>) -> Self {
        if self.zones.is_empty() {
            self.zones = zones();
        }
        // Names of other zones are not read, as with CoreDNS: no name of an address leads to them either.
        let zones = &self.zones;
        let is_here = |name: &DomainName| zones.iter().any(|zone| zone.contains(name));
        self.addresses.retain(|name, _| is_here(name));
        self.names.values_mut().for_each(|names| names.retain(is_here));
        self.names.retain(|_, names| !names.is_empty());
        self
    }

    /// The answer, if it is to be found here.
    pub(crate) fn answer(&self, query: &[u8], question: &Question) -> Option<Vec<u8>> {
        if question.class != IN {
            return None;
        }
        // Names of addresses need no zone, and what is not known of them is anybody's, as with CoreDNS.
        if question.record_type != PTR && !self.zones.iter().any(|zone| is_under(&question.name, zone)) {
            return None;
        }
        let Some(name) = question.name.to_domain() else {
            return if question.record_type == PTR { None } else { self.unknown(query, question) };
        };
        let data: Vec<Vec<u8>> = match question.record_type {
            PTR => self.names.get(&name)?.iter().map(wire_name).collect(),
            kind => match self.addresses.get(&name) {
                Some(addresses) => {
                    addresses.iter().filter(|address| is_of(kind, **address)).map(|address| octets(*address)).collect()
                }
                None => return self.unknown(query, question),
            },
        };
        if data.is_empty() {
            return Some(with_soa(query, Rcode::NO_ERROR, &Zone::Name(name)));
        }
        let bare = reply::failure(query, Rcode::NO_ERROR);
        let mut message = bare[..Question::end(query).ok()?].to_vec();
        message[2] |= 0x04;
        message[6..8].copy_from_slice(&(data.len() as u16).to_be_bytes());
        message[8..12].fill(0);
        for data in data {
            for field in [0xc00c, question.record_type.0, 1] {
                message.extend(u16::to_be_bytes(field));
            }
            message.extend(self.ttl.to_be_bytes());
            message.extend((data.len() as u16).to_be_bytes());
            message.extend(data);
        }
        reply::push_opt(query, &mut message);
        Some(message)
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

/// The name under which an address's name is found.
fn reverse_name(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(v6) => {
            let digits = format!("{:032x}", v6.to_bits());
            let mut name: String = digits.chars().rev().flat_map(|digit| [digit, '.']).collect();
            name.push_str("ip6.arpa");
            name
        }
    }
}
