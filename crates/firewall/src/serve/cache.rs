//! Answers that are given again. Rules are asked before and after: who may not
//! ask gets nothing from here, and who may not have an answer does not get it.

use super::message::is_under;
use crate::corefile::{self, Zone};
use namewall_dns::wire::{Edns, HEADER, Header, Name, Question, Rcode, Record, RecordType, Section, records};
use rustc_hash::FxHashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The option that makes answers differ by who asks (RFC 7871).
const CLIENT_SUBNET: u16 = 8;
const SOA: RecordType = RecordType(6);
const OPT: RecordType = RecordType(41);

/// What must be the same for an answer to be the same.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Key {
    name: Box<[u8]>,
    kind: u16,
    class: u16,
    has_edns: bool,
    is_dnssec_ok: bool,
    /// Checking disabled, and recursion desired.
    flags: (bool, bool),
}

#[derive(Debug)]
struct Entry {
    message: Vec<u8>,
    /// Where its TTLs stand.
    ttls: Vec<(usize, u32)>,
    since: Instant,
    lasts: Duration,
}

#[derive(Debug)]
pub(super) struct Cache {
    settings: corefile::Cache,
    success: Mutex<FxHashMap<Key, Entry>>,
    denial: Mutex<FxHashMap<Key, Entry>>,
}

impl Cache {
    pub(super) fn new(settings: corefile::Cache) -> Self {
        Self { settings, success: Mutex::default(), denial: Mutex::default() }
    }

    /// How many answers there are, and how many that there is nothing.
    pub(super) fn entries(&self) -> [usize; 2] {
        [&self.success, &self.denial].map(|shelf| shelf.lock().unwrap_or_else(PoisonError::into_inner).len())
    }

    pub(super) fn is_for(&self, name: &Name) -> bool {
        self.settings.zones.is_empty() || self.settings.zones.iter().any(|zone| is_under(name, zone))
    }

    /// An answer to the query, with what is left of its TTLs.
    pub(super) fn get(&self, query: &[u8], question: &Question, now: Instant) -> Option<Vec<u8>> {
        if !self.is_for(&question.name) {
            return None;
        }
        let key = Key::new(query, question)?;
        for shelf in [&self.success, &self.denial] {
            let shelf = shelf.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(entry) = shelf.get(&key) else { continue };
            let age = now.saturating_duration_since(entry.since);
            if age >= entry.lasts {
                continue;
            }
            let mut message = entry.message.clone();
            Header::set_id(&mut message, u16::from_be_bytes([query[0], query[1]]));
            // The name as it was asked, letter by letter (RFC 1035 §2.3.3, and who checks it).
            let end = Question::end(query).ok()?;
            message.get_mut(HEADER..end)?.copy_from_slice(&query[HEADER..end]);
            if !self.settings.keep_ttl {
                for &(at, ttl) in &entry.ttls {
                    let left = ttl.min(entry.lasts.as_secs() as u32).saturating_sub(age.as_secs() as u32);
                    message[at..at + 4].copy_from_slice(&left.to_be_bytes());
                }
            }
            return Some(message);
        }
        None
    }

    /// Keeps an answer that came from an upstream, if it may be kept.
    pub(super) fn put(&self, (query, question): (&[u8], &Question), answer: &[u8], now: Instant) {
        self.try_put((query, question), answer, now);
    }

    fn try_put(&self, (query, question): (&[u8], &Question), answer: &[u8], now: Instant) -> Option<()> {
        let header = Header::read(answer).ok()?;
        let whole = !header.is_truncated && header.is_answer && header.questions == 1;
        if !whole || !self.is_for(&question.name) || !Question::is_repeated(query, answer) {
            return None;
        }
        // Cookies and the like are for one client.
        if Edns::read(answer).is_some_and(|edns| edns.options().next().is_some()) {
            return None;
        }
        let all = records(answer).ok()?;
        let has_answer = all.iter().any(|record| record.section == Section::Answer);
        let is_soa = |record: &&Record<'_>| record.section == Section::Authority && record.kind == SOA;
        let is_off = |zones: &[Zone]| zones.iter().any(|zone| is_under(&question.name, zone));
        let (shelf, share, zones) = match header.rcode {
            Rcode::NO_ERROR if has_answer => (&self.success, self.settings.success, &self.settings.no_success),
            Rcode::NO_ERROR | Rcode::NX_DOMAIN if all.iter().any(|record| is_soa(&record)) => {
                (&self.denial, self.settings.denial, &self.settings.no_denial)
            }
            _ => return None,
        };
        if is_off(zones) || share.capacity == 0 {
            return None;
        }
        let timed = all.iter().filter(|record| record.kind != OPT);
        let ttls: Vec<(usize, u32)> = timed.clone().map(|record| (record.ttl_at, lasting(record.ttl))).collect();
        // Of a denial, what its SOA says (RFC 2308 §5), also behind an alias: an answer with what was asked for
        // has none.
        let minimum = |data: &[u8]| data.last_chunk().map(|last| lasting(u32::from_be_bytes(*last)));
        let of_soa = all.iter().filter(is_soa).filter_map(|record| minimum(record.data));
        let least = ttls.iter().map(|(_, ttl)| *ttl).chain(of_soa).min()?;
        let lasts = Duration::from_secs(least.into()).clamp(share.min_ttl.min(share.ttl), share.ttl);
        if lasts.is_zero() {
            return None;
        }
        let entry = Entry { message: answer.to_vec(), ttls, since: now, lasts };
        let mut shelf = shelf.lock().unwrap_or_else(PoisonError::into_inner);
        let key = Key::new(query, question)?;
        if shelf.len() >= share.capacity as usize && !shelf.contains_key(&key) {
            // Any one goes: the table's own order is as good as a die.
            let gone = shelf.keys().next().cloned();
            gone.and_then(|key| shelf.remove(&key));
        }
        shelf.insert(key, entry);
        Some(())
    }
}

/// A TTL with the highest bit set is none (RFC 2181 §8).
fn lasting(ttl: u32) -> u32 {
    if ttl > i32::MAX as u32 { 0 } else { ttl }
}

impl Key {
    /// None for what is answered to nobody else.
    fn new(query: &[u8], question: &Question) -> Option<Self> {
        let edns = Edns::read(query);
        if edns.is_some_and(|edns| edns.options().any(|(code, _)| code == CLIENT_SUBNET)) {
            return None;
        }
        let (high, low) = (*query.get(2)?, *query.get(3)?);
        Some(Self {
            name: question.name.as_bytes().into(),
            kind: question.record_type.0,
            class: question.class,
            has_edns: edns.is_some(),
            is_dnssec_ok: edns.is_some_and(|edns| edns.is_dnssec_ok()),
            flags: (low & 0x10 != 0, high & 0x01 != 0),
        })
    }
}
