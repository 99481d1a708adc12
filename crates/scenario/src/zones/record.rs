//! Records, and how they are written in scenario files: `OWNER TTL TYPE DATA`,
//! as in a zone file.

use super::name::Name;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A type of record, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RecordType(pub u16);

impl RecordType {
    pub const A: Self = Self(1);
    pub const NS: Self = Self(2);
    pub const CNAME: Self = Self(5);
    pub const SOA: Self = Self(6);
    pub const PTR: Self = Self(12);
    pub const MX: Self = Self(15);
    pub const TXT: Self = Self(16);
    pub const AAAA: Self = Self(28);
    pub const SRV: Self = Self(33);
    pub const OPT: Self = Self(41);
    pub const ANY: Self = Self(255);
}

const MNEMONICS: &[(&str, RecordType)] = &[
    ("A", RecordType::A),
    ("NS", RecordType::NS),
    ("CNAME", RecordType::CNAME),
    ("SOA", RecordType::SOA),
    ("PTR", RecordType::PTR),
    ("MX", RecordType::MX),
    ("TXT", RecordType::TXT),
    ("AAAA", RecordType::AAAA),
    ("SRV", RecordType::SRV),
    ("NAPTR", RecordType(35)),
    ("DNAME", RecordType(39)),
    ("DS", RecordType(43)),
    ("RRSIG", RecordType(46)),
    ("NSEC", RecordType(47)),
    ("DNSKEY", RecordType(48)),
    ("TLSA", RecordType(52)),
    ("SVCB", RecordType(64)),
    ("HTTPS", RecordType(65)),
    ("ANY", RecordType::ANY),
    ("CAA", RecordType(257)),
];

impl FromStr for RecordType {
    type Err = String;

    /// `A`, or as RFC 3597 has it `TYPE65`.
    fn from_str(text: &str) -> Result<Self, String> {
        let known = MNEMONICS.iter().find(|(mnemonic, _)| *mnemonic == text).map(|(_, kind)| *kind);
        let numbered = || text.strip_prefix("TYPE")?.parse().ok().map(Self);
        known
            .or_else(numbered)
            .ok_or_else(|| format!("`{text}` is no type of record; use A, AAAA, CNAME, TXT, TYPE65 …"))
    }
}

impl fmt::Display for RecordType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match MNEMONICS.iter().find(|(_, kind)| kind == self) {
            Some((mnemonic, _)) => f.write_str(mnemonic),
            None => write!(f, "TYPE{}", self.0),
        }
    }
}

/// How an answer went, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Rcode(pub u8);

impl Rcode {
    pub const NOERROR: Self = Self(0);
    pub const FORMERR: Self = Self(1);
    pub const SERVFAIL: Self = Self(2);
    pub const NXDOMAIN: Self = Self(3);
    pub const NOTIMP: Self = Self(4);
    pub const REFUSED: Self = Self(5);
}

const RCODES: [&str; 11] = [
    "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET", "NXRRSET", "NOTAUTH",
    "NOTZONE",
];

impl FromStr for Rcode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match RCODES.iter().position(|rcode| *rcode == text) {
            Some(at) => Ok(Self(at as u8)),
            None => Err(format!("`{text}` is no rcode; use one of {}", RCODES.join(", "))),
        }
    }
}

impl fmt::Display for Rcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match RCODES.get(usize::from(self.0)) {
            Some(rcode) => f.write_str(rcode),
            None => write!(f, "RCODE{}", self.0),
        }
    }
}

/// Names inside of data are compressed only in the types of old (RFC 3597,
/// section 4), so only those are told apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Data {
    A(Ipv4Addr),
    Aaaa(Ipv6Addr),
    /// NS, CNAME and PTR.
    Name(RecordType, Name),
    Mx(u16, Name),
    /// Its server, its keeper, and five numbers.
    Soa(Name, Name, [u32; 5]),
    Raw(RecordType, Vec<u8>),
}

impl Data {
    pub fn kind(&self) -> RecordType {
        match self {
            Self::A(_) => RecordType::A,
            Self::Aaaa(_) => RecordType::AAAA,
            Self::Name(kind, _) | Self::Raw(kind, _) => *kind,
            Self::Mx(..) => RecordType::MX,
            Self::Soa(..) => RecordType::SOA,
        }
    }

    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Self::A(address) => Some((*address).into()),
            Self::Aaaa(address) => Some((*address).into()),
            _ => None,
        }
    }

    /// What a CNAME leads to.
    pub fn alias(&self) -> Option<&Name> {
        match self {
            Self::Name(RecordType::CNAME, target) => Some(target),
            _ => None,
        }
    }

    /// Reads the data of a type, as a zone file has it; of any type `\# LENGTH HEX`.
    pub(crate) fn parse(kind: RecordType, text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        if let ["\\#", length, hex @ ..] = words.as_slice() {
            return Ok(Self::Raw(kind, raw(length, &hex.concat())?));
        }
        let name = |text: &str| text.parse::<Name>().map_err(|error| error.to_string());
        let number = |text: &str| text.parse::<u16>().map_err(|_| format!("`{text}` is no number of 16 bits"));
        match (kind, words.as_slice()) {
            (RecordType::A, [address]) => {
                address.parse().map(Self::A).map_err(|_| format!("`{address}` is not an IPv4 address"))
            }
            (RecordType::AAAA, [address]) => {
                address.parse().map(Self::Aaaa).map_err(|_| format!("`{address}` is not an IPv6 address"))
            }
            (RecordType::CNAME | RecordType::NS | RecordType::PTR, [target]) => Ok(Self::Name(kind, name(target)?)),
            (RecordType::MX, [preference, host]) => Ok(Self::Mx(number(preference)?, name(host)?)),
            (RecordType::SRV, [priority, weight, port, host]) => {
                let numbers = [number(priority)?, number(weight)?, number(port)?];
                let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
                for label in name(host)?.labels() {
                    bytes.push(label.len() as u8);
                    bytes.extend(label.iter());
                }
                bytes.push(0);
                Ok(Self::Raw(kind, bytes))
            }
            (RecordType::TXT, _) => {
                // Long texts are several strings of up to 255 bytes.
                let text = text.trim().trim_matches('"').as_bytes();
                let strings = text.chunks(255).flat_map(|part| std::iter::once(part.len() as u8).chain(part.to_vec()));
                let bytes: Vec<u8> = strings.collect();
                Ok(Self::Raw(kind, if bytes.is_empty() { vec![0] } else { bytes }))
            }
            _ => Err(format!("`{text}` cannot be read as {kind}; any type may be written as \\# LENGTH HEX")),
        }
    }
}

/// RFC 3597: `\# 4 01020304`.
fn raw(length: &str, hex: &str) -> Result<Vec<u8>, String> {
    let wrong = || format!("`\\# {length} {hex}`: a length and as many bytes in hexadecimal");
    let digits: Option<Vec<u8>> = hex.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0).ok_or_else(wrong)?;
    let bytes: Vec<u8> = digits.chunks(2).map(|pair| (pair[0] << 4) | pair[1]).collect();
    let length: u16 = length.parse().map_err(|_| wrong())?;
    if bytes.len() == usize::from(length) { Ok(bytes) } else { Err(wrong()) }
}

impl From<IpAddr> for Data {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::A(address),
            IpAddr::V6(address) => Self::Aaaa(address),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    pub owner: Name,
    pub ttl: u32,
    pub data: Data,
}

impl FromStr for Record {
    type Err = String;

    /// `OWNER TTL TYPE DATA`.
    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("`{text}`: write a record as OWNER TTL TYPE DATA, like `www.example 30 A 198.51.100.7`");
        let mut rest = text.trim_start();
        let mut word = || {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            rest = after.trim_start();
            (!word.is_empty()).then_some(word)
        };
        let (Some(owner), Some(ttl), Some(kind)) = (word(), word(), word()) else { return Err(form()) };
        let owner = owner.parse::<Name>().map_err(|error| error.to_string())?;
        let ttl = ttl.parse().map_err(|_| form())?;
        Ok(Self { owner, ttl, data: Data::parse(kind.parse()?, rest)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(text: &str) -> Data {
        text.parse::<Record>().unwrap_or_else(|error| panic!("{error}")).data
    }

    #[test]
    fn records_are_read_as_in_a_zone_file() {
        assert_eq!(data("a.example 30 A 198.51.100.7").address(), Some([198, 51, 100, 7].into()));
        assert_eq!(data("a.example  0  CNAME  B.example.").alias(), Some(&"b.example".parse().unwrap()));
        assert_eq!(data("a.example 30 MX 10 mail.example").kind(), RecordType::MX);
        assert_eq!(data("a.example 30 TXT \"two words\""), Data::Raw(RecordType::TXT, b"\x09two words".to_vec()));
        assert_eq!(data("a.example 30 HTTPS \\# 4 0102 0304"), Data::Raw(RecordType(65), vec![1, 2, 3, 4]));
        assert_eq!(data("a.example 30 TYPE65 \\# 0"), Data::Raw(RecordType(65), Vec::new()));
        assert_eq!(data("_s._tcp.example 5 SRV 0 1 443 b.example").kind(), RecordType::SRV);
    }

    #[test]
    fn slips_are_told() {
        for bad in [
            "",
            "a.example",
            "a.example 30",
            "a.example thirty A 198.51.100.7",
            "a.example 30 A 2001:db8::1",
            "a.example 30 AAAA 198.51.100.7",
            "a.example 30 NOPE x",
            "a.example 30 HTTPS 1 .",
            "a.example 30 TYPE65 \\# 3 0102",
            "a.example 30 TYPE65 \\# 1 0g",
            "a.example 30 CNAME a b",
            "a..example 30 A 198.51.100.7",
        ] {
            assert!(bad.parse::<Record>().is_err(), "{bad}");
        }
    }
}
