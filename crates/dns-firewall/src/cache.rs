//! Answers that are given again. Rules are asked before and after: who may not
//! ask gets nothing from here, and who may not have an answer does not get it.

use crate::message::is_under;
use crate::metrics::CacheMeter;
use namewall_corefile::{self as corefile, Prefetch, Zone};
use namewall_dns::wire::{Edns, HEADER, Header, Name, Question, Rcode, Record, RecordType, Section, records};
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The option that makes answers differ by who asks (RFC 7871).
const CLIENT_SUBNET: u16 = 8;
const SOA: RecordType = RecordType(6);
const OPT: RecordType = RecordType(41);
/// How long upstreams have to answer what is asked for again, before that is asked once more.
const RENEWAL: Duration = Duration::from_secs(5);

/// A query as it came, and the question in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query<'q> {
    pub(crate) message: &'q [u8],
    pub(crate) question: &'q Question,
}

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
    /// It says only that the upstream failed.
    is_failure: bool,
    /// How often it was given without a pause, and when last.
    uses: u32,
    last_used: Option<Instant>,
    /// Since when it is being asked for again.
    renewed_since: Option<Instant>,
}

impl Entry {
    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    fn is_over(&self, now: Instant) -> bool {
        self.age(now) >= self.lasts
    }
}

type Shelf = FxHashMap<Key, Entry>;

/// Answers, and that there is none: a question's is on one shelf or the other.
#[derive(Debug, Default)]
struct Shelves {
    success: Shelf,
    denial: Shelf,
}

impl Shelves {
    fn get(&mut self, key: &Key) -> Option<&mut Entry> {
        self.success.get_mut(key).or_else(|| self.denial.get_mut(key))
    }
}

#[derive(Debug)]
pub(crate) struct Cache {
    settings: corefile::Cache,
    shelves: Mutex<Shelves>,
    /// Where it is counted what becomes of answers, if it is.
    meter: OnceLock<Arc<CacheMeter>>,
}

impl Cache {
    pub(crate) fn new(settings: corefile::Cache) -> Self {
        Self { settings, shelves: Mutex::default(), meter: OnceLock::new() }
    }

    /// Has it counted what becomes of answers.
    pub(crate) fn count_to(&self, meter: Arc<CacheMeter>) {
        let _ = self.meter.set(meter);
    }

    fn count(&self, what: impl FnOnce(&CacheMeter)) {
        if let Some(meter) = self.meter.get() {
            what(meter);
        }
    }

    fn shelves(&self) -> MutexGuard<'_, Shelves> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many answers there are, and how many that there is nothing.
    pub(crate) fn entries(&self) -> [usize; 2] {
        let shelves = self.shelves();
        [shelves.success.len(), shelves.denial.len()]
    }

    pub(crate) fn is_for(&self, name: &Name) -> bool {
        self.settings.zones.is_empty() || self.settings.zones.iter().any(|zone| is_under(name, zone))
    }

    /// An answer to the query, with what is left of its TTLs; one that is over too, if such are given at once.
    pub(crate) fn get(&self, query: Query<'_>, now: Instant) -> Option<Vec<u8>> {
        let at_once = self.settings.serve_stale.is_some_and(|stale| !stale.verify);
        self.find(query, now, |entry| !entry.is_over(now) || at_once && self.may_be_given(entry, now))
    }

    /// An answer that is over, where upstreams have none.
    pub(crate) fn stale(&self, query: Query<'_>, now: Instant) -> Option<Vec<u8>> {
        let stale = self.find(query, now, |entry| !entry.is_failure && self.may_be_given(entry, now))?;
        self.count(CacheMeter::gave_stale);
        Some(stale)
    }

    /// Whether an answer is not over, or not for too long.
    fn may_be_given(&self, entry: &Entry, now: Instant) -> bool {
        let longer =
            self.settings.serve_stale.filter(|_| !entry.is_failure).map_or(Duration::ZERO, |stale| stale.up_to);
        entry.age(now) < entry.lasts.saturating_add(longer)
    }

    fn find(&self, query: Query<'_>, now: Instant, is_good: impl Fn(&Entry) -> bool) -> Option<Vec<u8>> {
        if !self.is_for(&query.question.name) {
            return None;
        }
        let key = Key::new(query)?;
        let mut shelves = self.shelves();
        let entry = shelves.get(&key).filter(|entry| is_good(entry))?;
        let mut message = entry.message.clone();
        Header::set_id(&mut message, u16::from_be_bytes([query.message[0], query.message[1]]));
        // The name as it was asked, letter by letter (RFC 1035 §2.3.3, and who checks it).
        let end = Question::end(query.message).ok()?;
        message.get_mut(HEADER..end)?.copy_from_slice(&query.message[HEADER..end]);
        if !self.settings.keep_ttl || entry.is_over(now) {
            for &(at, ttl) in &entry.ttls {
                let left = ttl.min(entry.lasts.as_secs() as u32).saturating_sub(entry.age(now).as_secs() as u32);
                let left = if entry.is_over(now) { 0 } else { left };
                message[at..at + 4].copy_from_slice(&left.to_be_bytes());
            }
        }
        Some(message)
    }

    /// An answer was given to somebody. Whether it is time to ask for it again: it is over, or it soon will be and
    /// many want it. One asks for all.
    pub(crate) fn use_once(&self, query: Query<'_>, now: Instant) -> bool {
        let Some(key) = Key::new(query) else { return false };
        let mut shelves = self.shelves();
        let Some(entry) = shelves.get(&key) else { return false };
        let is_over = entry.is_over(now);
        let mut is_due = is_over;
        if is_over {
            self.count(CacheMeter::gave_stale);
        }
        if let Some(Prefetch { amount, within, percentage }) = self.settings.prefetch.filter(|one| one.amount > 0) {
            if entry.last_used.is_none_or(|last| now.saturating_duration_since(last) >= within) {
                entry.uses = 0;
            }
            entry.uses = entry.uses.saturating_add(1);
            entry.last_used = Some(now);
            let left = entry.lasts.saturating_sub(entry.age(now));
            // A second before its end, unless that is most of its time.
            let soon = (entry.lasts * percentage / 100).max(Duration::from_secs(1).min(entry.lasts / 2));
            is_due |= entry.uses >= amount && left <= soon && !entry.is_failure;
        }
        let is_asked = entry.renewed_since.is_some_and(|since| now.saturating_duration_since(since) < RENEWAL);
        if is_due && !is_asked {
            entry.renewed_since = Some(now);
            if !is_over {
                self.count(CacheMeter::prefetched);
            }
        }
        is_due && !is_asked
    }

    /// Keeps an answer that came from an upstream, if it may be kept. Returns the answer as it is given to who comes
    /// next, if a TTL is longer than it is kept: a client must not keep it longer than others do.
    pub(crate) fn put(&self, query: Query<'_>, answer: &[u8], now: Instant) -> Option<Vec<u8>> {
        let header = Header::read(answer).ok()?;
        let whole = !header.is_truncated && header.is_answer && header.questions == 1;
        if !whole || !self.is_for(&query.question.name) {
            return None;
        }
        if !Question::is_repeated(query.message, answer) {
            self.count(CacheMeter::dropped);
            return None;
        }
        // Cookies and the like are for one client.
        if Edns::read(answer).is_some_and(|edns| edns.options().next().is_some()) {
            return None;
        }
        let all = records(answer).ok()?;
        let has_answer = all.iter().any(|record| record.section == Section::Answer);
        let is_soa = |record: &&Record<'_>| record.section == Section::Authority && record.kind == SOA;
        let is_off = |zones: &[Zone]| zones.iter().any(|zone| is_under(&query.question.name, zone));
        let is_failure = header.rcode == Rcode::SERV_FAIL;
        let (is_success, share, zones) = match header.rcode {
            Rcode::NO_ERROR if has_answer => (true, self.settings.success, &self.settings.no_success),
            Rcode::NO_ERROR | Rcode::NX_DOMAIN if all.iter().any(|record| is_soa(&record)) => {
                (false, self.settings.denial, &self.settings.no_denial)
            }
            Rcode::SERV_FAIL => (false, self.settings.denial, &self.settings.no_denial),
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
        let lasts = if is_failure {
            self.settings.servfail
        } else {
            let least = ttls.iter().map(|(_, ttl)| *ttl).chain(of_soa).min()?;
            Duration::from_secs(least.into()).clamp(share.min_ttl.min(share.ttl), share.ttl)
        };
        if lasts.is_zero() {
            return None;
        }
        let key = Key::new(query)?;
        let capped = self.capped(answer, &ttls, lasts);
        let mut shelves = self.shelves();
        let known = shelves.get(&key);
        if is_failure && known.as_ref().is_some_and(|known| !known.is_failure && self.may_be_given(known, now)) {
            // An upstream that fails takes nothing away.
            return None;
        }
        let (uses, last_used) = known.map_or((0, None), |known| (known.uses, known.last_used));
        let (message, renewed_since) = (answer.to_vec(), None);
        let entry = Entry { message, ttls, since: now, lasts, is_failure, uses, last_used, renewed_since };
        let Shelves { success, denial } = &mut *shelves;
        let (shelf, other) = if is_success { (success, denial) } else { (denial, success) };
        other.remove(&key);
        if shelf.len() >= share.capacity as usize && !shelf.contains_key(&key) {
            // Any one goes: the table's own order is as good as a die.
            let gone = shelf.keys().next().cloned();
            gone.and_then(|key| shelf.remove(&key));
            self.count(|meter| meter.evicted(is_success));
        }
        shelf.insert(key, entry);
        capped
    }

    /// An answer whose TTLs are no longer than it is kept. None if that changes nothing.
    fn capped(&self, answer: &[u8], ttls: &[(usize, u32)], lasts: Duration) -> Option<Vec<u8>> {
        let most = lasts.as_secs() as u32;
        let longer = ttls.iter().filter(|(_, ttl)| *ttl > most).map(|(at, _)| *at);
        let mut longer = longer.filter(|_| !self.settings.keep_ttl).peekable();
        longer.peek()?;
        let mut message = answer.to_vec();
        for at in longer {
            message.get_mut(at..at + 4)?.copy_from_slice(&most.to_be_bytes());
        }
        Some(message)
    }
}

/// A TTL with the highest bit set is none (RFC 2181 §8).
fn lasting(ttl: u32) -> u32 {
    if ttl > i32::MAX as u32 { 0 } else { ttl }
}

impl Key {
    /// None for what is answered to nobody else.
    fn new(Query { message, question }: Query<'_>) -> Option<Self> {
        let edns = Edns::read(message);
        if edns.is_some_and(|edns| edns.options().any(|(code, _)| code == CLIENT_SUBNET)) {
            return None;
        }
        let (high, low) = (*message.get(2)?, *message.get(3)?);
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
