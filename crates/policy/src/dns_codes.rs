//! The numbers of DNS messages and their names, as IANA registers them ("Domain Name System (DNS) Parameters"). It
//! is the only table of them: rules, engines, templates, logs and `--explain` all read and write names by it.

/// Types of records and questions.
pub static TYPES: Registry = Registry { prefix: "TYPE", most: u16::MAX, names: TYPE_NAMES, aliases: &[("*", 255)] };
/// Classes.
pub static CLASSES: Registry = Registry {
    prefix: "CLASS",
    most: u16::MAX,
    names: &[("IN", 1), ("CH", 3), ("HS", 4), ("NONE", 254), ("ANY", 255)],
    aliases: &[("INTERNET", 1), ("CHAOS", 3), ("HESIOD", 4), ("*", 255)],
};
/// What a message asks for.
pub static OPCODES: Registry = Registry {
    prefix: "OPCODE",
    most: 15,
    names: &[("QUERY", 0), ("IQUERY", 1), ("STATUS", 2), ("NOTIFY", 4), ("UPDATE", 5), ("DSO", 6)],
    aliases: &[],
};
/// Response codes, with the bits that EDNS0 adds.
pub static RCODES: Registry = Registry {
    prefix: "RCODE",
    most: 4095,
    names: &[
        ("NOERROR", 0),
        ("FORMERR", 1),
        ("SERVFAIL", 2),
        ("NXDOMAIN", 3),
        ("NOTIMP", 4),
        ("REFUSED", 5),
        ("YXDOMAIN", 6),
        ("YXRRSET", 7),
        ("NXRRSET", 8),
        ("NOTAUTH", 9),
        ("NOTZONE", 10),
        ("DSOTYPENI", 11),
        ("BADVERS", 16),
        ("BADKEY", 17),
        ("BADTIME", 18),
        ("BADMODE", 19),
        ("BADNAME", 20),
        ("BADALG", 21),
        ("BADTRUNC", 22),
        ("BADCOOKIE", 23),
    ],
    // 16 is BADSIG in TSIG records, and CoreDNS calls it so everywhere.
    aliases: &[("BADSIG", 16), ("NOTIMPL", 4), ("SUCCESS", 0)],
};

/// Names for numbers. A number without a name is written as a prefix and the number, like `TYPE65280` (RFC 3597 §5).
#[derive(Debug)]
pub struct Registry {
    prefix: &'static str,
    /// The largest number that a message can have.
    most: u16,
    /// By number.
    names: &'static [(&'static str, u16)],
    /// Other names that are read, and never written.
    aliases: &'static [(&'static str, u16)],
}

impl Registry {
    /// The name of a number, if IANA has given it one.
    pub fn name(&self, number: u16) -> Option<&'static str> {
        let at = self.names.binary_search_by_key(&number, |(_, own)| *own).ok()?;
        self.names.get(at).map(|(name, _)| *name)
    }

    /// The number of a name in any case, or of the prefix with a number that a message can have.
    pub fn number(&self, name: &str) -> Option<u16> {
        let mut known = self.names.iter().chain(self.aliases);
        if let Some((_, number)) = known.find(|(own, _)| own.eq_ignore_ascii_case(name)) {
            return Some(*number);
        }
        let (prefix, digits) = name.split_at_checked(self.prefix.len())?;
        let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        let number = digits.parse().ok().filter(|number| is_number && *number <= self.most);
        number.filter(|_| prefix.eq_ignore_ascii_case(self.prefix))
    }

    /// The number as it is written: by its name, or with the prefix.
    pub fn text(&self, number: u16) -> std::borrow::Cow<'static, str> {
        match self.name(number) {
            Some(name) => name.into(),
            None => format!("{}{number}", self.prefix).into(),
        }
    }

    /// All names that are written.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.names.iter().map(|(name, _)| *name)
    }

    /// True if a message can have a text that a test accepts. The test is asked of every number, names first.
    pub fn has_any(&self, is_accepted: impl Fn(&str) -> bool) -> bool {
        self.names().any(&is_accepted) || (0..=self.most).any(|number| is_accepted(&self.text(number)))
    }

    /// What stands before a number without a name.
    pub fn prefix(&self) -> &'static str {
        self.prefix
    }
}

const TYPE_NAMES: &[(&str, u16)] = &[
    ("A", 1),
    ("NS", 2),
    ("MD", 3),
    ("MF", 4),
    ("CNAME", 5),
    ("SOA", 6),
    ("MB", 7),
    ("MG", 8),
    ("MR", 9),
    ("NULL", 10),
    ("WKS", 11),
    ("PTR", 12),
    ("HINFO", 13),
    ("MINFO", 14),
    ("MX", 15),
    ("TXT", 16),
    ("RP", 17),
    ("AFSDB", 18),
    ("X25", 19),
    ("ISDN", 20),
    ("RT", 21),
    ("NSAP", 22),
    ("NSAP-PTR", 23),
    ("SIG", 24),
    ("KEY", 25),
    ("PX", 26),
    ("GPOS", 27),
    ("AAAA", 28),
    ("LOC", 29),
    ("NXT", 30),
    ("EID", 31),
    ("NIMLOC", 32),
    ("SRV", 33),
    ("ATMA", 34),
    ("NAPTR", 35),
    ("KX", 36),
    ("CERT", 37),
    ("A6", 38),
    ("DNAME", 39),
    ("SINK", 40),
    ("OPT", 41),
    ("APL", 42),
    ("DS", 43),
    ("SSHFP", 44),
    ("IPSECKEY", 45),
    ("RRSIG", 46),
    ("NSEC", 47),
    ("DNSKEY", 48),
    ("DHCID", 49),
    ("NSEC3", 50),
    ("NSEC3PARAM", 51),
    ("TLSA", 52),
    ("SMIMEA", 53),
    ("HIP", 55),
    ("NINFO", 56),
    ("RKEY", 57),
    ("TALINK", 58),
    ("CDS", 59),
    ("CDNSKEY", 60),
    ("OPENPGPKEY", 61),
    ("CSYNC", 62),
    ("ZONEMD", 63),
    ("SVCB", 64),
    ("HTTPS", 65),
    ("DSYNC", 66),
    ("HHIT", 67),
    ("BRID", 68),
    ("SPF", 99),
    ("UINFO", 100),
    ("UID", 101),
    ("GID", 102),
    ("UNSPEC", 103),
    ("NID", 104),
    ("L32", 105),
    ("L64", 106),
    ("LP", 107),
    ("EUI48", 108),
    ("EUI64", 109),
    ("NXNAME", 128),
    ("TKEY", 249),
    ("TSIG", 250),
    ("IXFR", 251),
    ("AXFR", 252),
    ("MAILB", 253),
    ("MAILA", 254),
    ("ANY", 255),
    ("URI", 256),
    ("CAA", 257),
    ("AVC", 258),
    ("DOA", 259),
    ("AMTRELAY", 260),
    ("RESINFO", 261),
    ("WALLET", 262),
    ("CLA", 263),
    ("IPN", 264),
    ("TA", 32768),
    ("DLV", 32769),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_back_as_its_number() {
        for registry in [&TYPES, &CLASSES, &OPCODES, &RCODES] {
            assert!(registry.names.is_sorted_by(|a, b| a.1 < b.1), "{} is searched by number", registry.prefix);
            for number in 0..=registry.most {
                let text = registry.text(number);
                assert_eq!(registry.number(&text), Some(number), "{text}");
                assert_eq!(registry.number(&text.to_lowercase()), Some(number), "{text}");
                assert_eq!(registry.number(&format!("{}{number}", registry.prefix)), Some(number));
            }
        }
    }

    #[test]
    fn what_no_message_can_have_has_no_number() {
        for name in ["", "BOGUS", "TYPE", "TYPE65536", "TYPE-1", "TYPE+1", "type 1", "1", "CLASS1", "ÄÄÄÄ1"] {
            assert_eq!(TYPES.number(name), None, "{name}");
        }
        assert_eq!(RCODES.number("RCODE4096"), None);
        assert_eq!(OPCODES.number("OPCODE16"), None);
        assert_eq!(TYPES.number("*"), Some(255));
    }
}
