//! What a zone answers (RFC 1034 §4.3.2, RFC 4592 for wildcards, RFC 2308 for what is not there).

use crate::name::{is_within, parent};
use crate::read::Zone;
use crate::record::{CNAME, NS, Record, SOA};
use namewall_dns::wire::{Name, RecordType};
use std::borrow::Cow;

/// Aliases that are followed.
const MOST_ALIASES: usize = 16;
const DS: RecordType = RecordType(43);

/// How a question ends here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// With records, with an alias to elsewhere, or with nothing of the kind.
    Name,
    NoName,
    /// Others know: their servers are named.
    Elsewhere,
}

/// Records for the sections of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    pub found: Found,
    pub answer: Vec<Record>,
    pub authority: Vec<Record>,
    pub additional: Vec<Record>,
}

impl Zone {
    /// None if the name is not in the zone.
    pub fn answer(&self, name: &Name, kind: RecordType) -> Option<Answer> {
        if !is_within(name.as_bytes(), &self.origin) {
            return None;
        }
        let mut answer =
            Answer { found: Found::Name, answer: Vec::new(), authority: Vec::new(), additional: Vec::new() };
        let mut asked: Cow<'_, [u8]> = Cow::Borrowed(name.as_bytes());
        for _ in 0..MOST_ALIASES {
            if let Some(servers) = self.cut(&asked, kind) {
                answer.found = if answer.answer.is_empty() { Found::Elsewhere } else { Found::Name };
                answer.authority = servers;
                self.add_addresses(&answer.authority, &mut answer.additional);
                return Some(answer);
            }
            let Some(records) = self.records(&asked) else {
                answer.found = Found::NoName;
                answer.authority.push(self.denial());
                return Some(answer);
            };
            let of_name = |record: &Record| Record { owner: asked.to_vec(), ..record.clone() };
            let is_meant = |record: &&Record| record.kind == kind || kind == RecordType::ANY;
            let own: Vec<Record> = records.iter().filter(is_meant).map(of_name).collect();
            if !own.is_empty() {
                self.add_addresses(&own, &mut answer.additional);
                answer.answer.extend(own);
                return Some(answer);
            }
            let Some(alias) = records.iter().find(|record| record.kind == CNAME) else {
                answer.authority.push(self.denial());
                return Some(answer);
            };
            let is_new = !answer.answer.iter().any(|before| before.data == alias.data);
            answer.answer.push(of_name(alias));
            let next = alias.data.to_ascii_lowercase();
            if !is_new || !is_within(&next, &self.origin) {
                return Some(answer);
            }
            asked = Cow::Owned(next);
        }
        Some(answer)
    }

    /// The records of a name, or of the wildcard that stands for it; none if neither is there.
    fn records(&self, name: &[u8]) -> Option<&[Record]> {
        if let Some(own) = self.names.get(name) {
            return Some(own);
        }
        // The closest name there is; a wildcard further up does not reach below it.
        let closest =
            std::iter::successors(parent(name), |name| parent(name)).find(|above| self.names.contains_key(*above));
        let wildcard = [b"\x01*", closest?].concat();
        self.names.get(&wildcard[..]).map(Vec::as_slice)
    }

    /// The servers of the zone that a name is in, if that is one below this.
    fn cut(&self, name: &[u8], kind: RecordType) -> Option<Vec<Record>> {
        let above = std::iter::successors(Some(name), |name| parent(name));
        let between: Vec<&[u8]> = above.take_while(|above| **above != *self.origin).collect();
        for &one in between.iter().rev() {
            // What is said of a zone by the one above is asked here (RFC 4035 §3.1.4.1).
            if kind == DS && one == name {
                continue;
            }
            let servers = self.names.get(one).map(|records| records.iter().filter(|record| record.kind == NS).cloned());
            let servers: Vec<Record> = servers.into_iter().flatten().collect();
            if !servers.is_empty() {
                return Some(servers);
            }
        }
        None
    }

    /// The addresses of names that records lead to, as far as they are known here.
    fn add_addresses(&self, of: &[Record], to: &mut Vec<Record>) {
        for target in of.iter().filter(|record| record.kind != CNAME).filter_map(Record::target) {
            let target = target.to_ascii_lowercase();
            let known = self.names.get(&target[..]).into_iter().flatten();
            let addresses = known.filter(|record| matches!(record.kind, RecordType::A | RecordType::AAAA));
            for address in addresses {
                if !to.contains(address) {
                    to.push(address.clone());
                }
            }
        }
    }

    /// That there is nothing, and for how long that holds (RFC 2308 §3).
    fn denial(&self) -> Record {
        let minimum = self.soa.data.last_chunk().map_or(0, |last| u32::from_be_bytes(*last));
        debug_assert_eq!(self.soa.kind, SOA);
        Record { ttl: self.soa.ttl.min(minimum), ..self.soa.clone() }
    }
}
