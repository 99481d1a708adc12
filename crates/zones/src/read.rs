//! From a file's text to a zone.

use crate::name::{is_within, lower, parent, shown, wire};
use crate::record::{CNAME, Defaults, Record, SOA, parse, ttl};
use crate::words::{Entry, entries};
use rustc_hash::FxHashMap;

/// As much as is read.
const MOST_RECORDS: usize = 1_000_000;

/// What is wrong with a zone file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ZoneError {
    pub line: u32,
    pub message: String,
}

/// All that a file says of names under one.
#[derive(Clone, Debug)]
pub struct Zone {
    pub(crate) origin: Box<[u8]>,
    pub(crate) soa: Record,
    /// By owner, in lower case. Names between the zone's and those that have records are there too.
    pub(crate) names: FxHashMap<Box<[u8]>, Vec<Record>>,
}

/// What is known when an entry is read.
pub(crate) struct Reader {
    origin: Vec<u8>,
    owner: Option<Vec<u8>>,
    ttl: Option<u32>,
    /// That of the record before: RFC 1035 §5.1, where there is no `$TTL`.
    last_ttl: Option<u32>,
}

impl Zone {
    /// Reads the zone of this name, which is whole (`example.org.`), from a file.
    pub fn read(name: &str, text: &str) -> Result<Self, ZoneError> {
        let at = |line| move |message: String| ZoneError { line, message };
        let origin = wire(name, &[0]).map_err(at(0))?;
        let zone = lower(&origin);
        let mut reader = Reader::new(origin);
        let (mut names, mut soa) = (FxHashMap::<Box<[u8]>, Vec<Record>>::default(), None);
        let mut count = 0;
        for entry in entries(text).map_err(|(line, message)| ZoneError { line, message })? {
            let Some(record) = reader.take(&entry).map_err(at(entry.line))? else { continue };
            let owner = lower(&record.owner);
            let wrong = |message: String| Err(ZoneError { line: entry.line, message });
            count += 1;
            if count > MOST_RECORDS {
                return wrong(format!("more than {MOST_RECORDS} records"));
            }
            if record.class != 1 {
                return wrong("records of other classes than IN are not served".to_owned());
            }
            if !is_within(&owner, &zone) {
                return wrong(format!("{} is not in {}", shown(&owner), shown(&zone)));
            }
            if record.kind == SOA {
                if owner != zone {
                    return wrong(format!("an SOA is of the zone itself, {}", shown(&zone)));
                }
                if soa.replace(record.clone()).is_some() {
                    return wrong("a zone has one SOA".to_owned());
                }
            }
            let known = names.entry(owner).or_default();
            let is_alias = |one: &Record| one.kind == CNAME;
            let is_same = |one: &Record| (one.kind, &one.data) == (record.kind, &record.data);
            if known.iter().any(|one| (is_alias(one) || is_alias(&record)) && !is_same(one)) {
                return wrong(format!("{} has an alias: there can be no other record of it", shown(&record.owner)));
            }
            if !known.iter().any(is_same) {
                known.push(record);
            }
        }
        let soa = soa.ok_or_else(|| at(1)(format!("there is no SOA of {}", shown(&zone))))?;
        let mut zone = Self { origin: zone, soa, names };
        zone.add_names_between();
        Ok(zone)
    }

    /// A name under which there is one exists, though it may have nothing (RFC 8020).
    fn add_names_between(&mut self) {
        let own: Vec<Box<[u8]>> = self.names.keys().cloned().collect();
        for name in own {
            let mut above = parent(&name);
            while let Some(one) = above.filter(|one| is_within(one, &self.origin)) {
                if self.names.contains_key(one) {
                    break;
                }
                self.names.insert(one.into(), Vec::new());
                above = parent(one);
            }
        }
    }
}

impl Reader {
    pub(crate) fn new(origin: Vec<u8>) -> Self {
        Self { origin, owner: None, ttl: None, last_ttl: None }
    }

    /// The record of an entry; none of one that says something of those behind it.
    pub(crate) fn take(&mut self, entry: &Entry) -> Result<Option<Record>, String> {
        let words = &entry.words;
        if let Some(directive) = words[0].text.strip_prefix('$').filter(|_| !entry.is_indented) {
            match (&*directive.to_ascii_uppercase(), &words[1..]) {
                ("TTL", [time]) => self.ttl = Some(ttl(&time.text)?),
                ("ORIGIN", [name]) => self.origin = wire(&name.text, &self.origin)?,
                ("TTL" | "ORIGIN", _) => return Err(format!("`${directive}` has one argument")),
                _ => return Err(format!("`${directive}` is not read; there are `$ORIGIN NAME` and `$TTL TIME`")),
            }
            return Ok(None);
        }
        let defaults = Defaults { origin: &self.origin, owner: self.owner.as_deref(), ttl: self.ttl.or(self.last_ttl) };
        // The TTL of an SOA without one is what it says of denials, as everybody has it.
        let is_soa = words.iter().any(|word| !word.is_quoted && word.text.eq_ignore_ascii_case("SOA"));
        let of_soa = words.last().filter(|_| is_soa && defaults.ttl.is_none()).and_then(|word| ttl(&word.text).ok());
        let record = parse(words, entry.is_indented, Defaults { ttl: defaults.ttl.or(of_soa), ..defaults })?;
        (self.owner, self.last_ttl) = (Some(record.owner.clone()), Some(record.ttl));
        Ok(Some(record))
    }
}
