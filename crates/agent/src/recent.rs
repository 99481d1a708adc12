//! Answers that opened nothing since no rule of the client spoke of the name. A
//! rule that comes later opens them, as if it had been there (S6.3).
//!
//! Most pods have no rule by name, so answers are kept as bytes and read only
//! when a rule comes. Of answers to one question only the last is kept. Clients
//! are spread over several locks, so that loops that answer at once seldom meet.

use namewall_policy::Instant;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Questions that are kept a client.
const QUESTIONS: usize = 256;
/// Answers that are longer are not kept.
const LONGEST: usize = 4_096;
/// Bytes that are kept in all. The client with the most makes room.
const BYTES: usize = 8 << 20;
/// Where the question begins in a message.
const HEADER: usize = 12;

/// Clients are spread over so many locks.
const SHARDS: usize = 16;

#[derive(Default, Debug)]
pub(crate) struct Recent {
    shards: [Mutex<Answers>; SHARDS],
    /// Of all of them.
    bytes: AtomicUsize,
    /// How many have come. It is changed with the shard locked that the answer goes to: who has read it, and locks
    /// that shard, finds the answer.
    noted: AtomicU64,
    /// How many were given up for others.
    forgotten: AtomicU64,
}

#[derive(Default, Debug)]
struct Answers {
    clients: FxHashMap<IpAddr, OfClient>,
}

/// The answers of a client, by question.
#[derive(Default, Debug)]
struct OfClient {
    answers: FxHashMap<u64, Noted>,
    bytes: usize,
}

#[derive(Debug)]
struct Noted {
    at: Instant,
    /// Which it was of all that have come.
    number: u64,
    message: Vec<u8>,
}

/// An answer that a client got.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Recalled {
    pub(crate) client: IpAddr,
    pub(crate) at: Instant,
    pub(crate) message: Vec<u8>,
}

/// Which answers are recalled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recall {
    /// Those that came after so many.
    pub(crate) since: u64,
    /// Older ones have ended.
    pub(crate) oldest: Instant,
}

impl Recent {
    /// Keeps an answer, if it is one with addresses.
    pub(crate) fn note(&self, client: IpAddr, message: &[u8], now: Instant) {
        let Some(question) = question(message) else { return };
        let mut shard = lock(self.shard(client));
        let number = self.noted.fetch_add(1, Ordering::SeqCst) + 1;
        let own = shard.clients.entry(client).or_default();
        let noted = own.answers.entry(question).or_insert_with(|| Noted { at: now, number, message: Vec::new() });
        let before = noted.message.len();
        noted.message.clear();
        noted.message.extend_from_slice(message);
        (noted.at, noted.number) = (now, number);
        own.bytes = own.bytes - before + message.len();
        let freed = if own.answers.len() > QUESTIONS { own.forget_half() } else { Freed::default() };
        drop(shard);
        self.bytes.fetch_add(message.len(), Ordering::SeqCst);
        let bytes = self.bytes.fetch_sub(before + freed.bytes, Ordering::SeqCst) - before - freed.bytes;
        self.forgotten.fetch_add(freed.answers, Ordering::Relaxed);
        if bytes > BYTES {
            self.make_room();
        }
    }

    /// How many have come.
    pub(crate) fn noted(&self) -> u64 {
        self.noted.load(Ordering::SeqCst)
    }

    /// How many were given up for others.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Relaxed)
    }

    /// The answers of clients that are `wanted`. Those of other clients are kept if they are `known`.
    pub(crate) fn recall(
        &self,
        recall: Recall,
        known: impl Fn(IpAddr) -> bool,
        wanted: impl Fn(IpAddr) -> bool,
    ) -> Vec<Recalled> {
        let mut recalled = Vec::new();
        for shard in &self.shards {
            lock(shard).clients.retain(|client, own| {
                let before = own.bytes;
                let is_known = known(*client);
                own.answers.retain(|_, noted| is_known && noted.at >= recall.oldest);
                own.bytes = own.answers.values().map(|noted| noted.message.len()).sum();
                self.bytes.fetch_sub(before - own.bytes, Ordering::SeqCst);
                if is_known && wanted(*client) {
                    let new = own.answers.values().filter(|noted| noted.number > recall.since);
                    let recall =
                        |noted: &Noted| Recalled { client: *client, at: noted.at, message: noted.message.clone() };
                    recalled.extend(new.map(recall));
                }
                !own.answers.is_empty()
            });
        }
        recalled
    }

    fn shard(&self, client: IpAddr) -> &Mutex<Answers> {
        &self.shards[FxBuildHasher.hash_one(client) as usize % SHARDS]
    }

    /// The client with the most gives up the older half.
    fn make_room(&self) {
        let heaviest = |shard: &Mutex<Answers>| -> Option<(usize, IpAddr)> {
            lock(shard).clients.iter().map(|(client, own)| (own.bytes, *client)).max()
        };
        let Some((_, client)) = self.shards.iter().filter_map(heaviest).max() else { return };
        if let Some(own) = lock(self.shard(client)).clients.get_mut(&client) {
            let freed = own.forget_half();
            self.bytes.fetch_sub(freed.bytes, Ordering::SeqCst);
            self.forgotten.fetch_add(freed.answers, Ordering::Relaxed);
        }
    }
}

fn lock(shard: &Mutex<Answers>) -> MutexGuard<'_, Answers> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was given up.
#[derive(Clone, Copy, Default, Debug)]
struct Freed {
    bytes: usize,
    answers: u64,
}

impl OfClient {
    /// Forgets the older half.
    fn forget_half(&mut self) -> Freed {
        let mut numbers: Vec<u64> = self.answers.values().map(|noted| noted.number).collect();
        let middle = numbers.len() / 2;
        let (_, middle, _) = numbers.select_nth_unstable(middle);
        let (middle, answers) = (*middle, self.answers.len());
        self.answers.retain(|_, noted| noted.number >= middle);
        let before = self.bytes;
        self.bytes = self.answers.values().map(|noted| noted.message.len()).sum();
        Freed { bytes: before - self.bytes, answers: (answers - self.answers.len()) as u64 }
    }
}

/// A number for the question of an answer that may have addresses: A or AAAA, NOERROR, and not too long. Spelling
/// makes no difference. Two questions of a client may have one number: then one is forgotten.
fn question(message: &[u8]) -> Option<u64> {
    let [_, _, _, flags, _, _, answers @ ..] = message else { return None };
    let has_answers = answers.first_chunk().is_some_and(|count| *count != [0, 0]);
    if flags & 0x0f != 0 || !has_answers || message.len() > LONGEST {
        return None;
    }
    let mut at = HEADER;
    let mut number: u64 = 0;
    loop {
        let length = usize::from(*message.get(at)?);
        // A compressed name is none that was asked for.
        if length >= 64 {
            return None;
        }
        let label = message.get(at..=at + length)?;
        for byte in label {
            number = (number.rotate_left(5) ^ u64::from(byte | 0x20)).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
        at += length + 1;
        if length == 0 {
            break;
        }
    }
    match message.get(at..at + 2)? {
        [0, kind @ (1 | 28)] => Some(number ^ u64::from(*kind)),
        _ => None,
    }
}

/// How long an answer may have been kept when it is still good.
pub(crate) fn oldest(now: Instant, longest: Duration) -> Instant {
    Instant(now.0.saturating_sub(longest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{answer, ip};
    use std::net::Ipv4Addr;

    const ALL: Recall = Recall { since: 0, oldest: Instant(Duration::ZERO) };

    fn at(seconds: u64) -> Instant {
        Instant(Duration::from_secs(seconds))
    }

    fn message(name: &str) -> Vec<u8> {
        answer(name, &[Ipv4Addr::new(192, 0, 2, 1)], 60)
    }

    fn kept(recent: &Recent, recall: Recall) -> usize {
        recent.recall(recall, |_| true, |_| true).len()
    }

    #[test]
    fn s6_3_of_one_question_the_last_answer_is_kept() {
        let recent = Recent::default();
        let client = ip("10.0.0.1");
        recent.note(client, &message("api.example.com"), at(1));
        recent.note(client, &message("API.Example.com"), at(2));
        recent.note(ip("10.0.0.2"), &message("api.example.com"), at(3));
        recent.note(client, &message("b.example.com"), at(4));
        assert_eq!(kept(&recent, ALL), 3);
        assert_eq!(kept(&recent, Recall { since: 3, ..ALL }), 1);
        assert_eq!(recent.recall(ALL, |_| true, |one| one == ip("10.0.0.2")).len(), 1);
        assert_eq!(kept(&recent, Recall { oldest: at(3), ..ALL }), 2, "the oldest has ended");
        assert_eq!(recent.recall(ALL, |one| one == client, |_| true).len(), 1, "the other is no client any more");
        assert_eq!(kept(&recent, ALL), 1);
    }

    #[test]
    fn s6_3_what_has_no_addresses_is_not_kept() {
        let recent = Recent::default();
        let whole = message("api.example.com");
        for at in 0..whole.len().min(30) {
            recent.note(ip("10.0.0.1"), &whole[..at], Instant::default());
        }
        let changed = |at: usize, byte: u8| {
            let mut changed = whole.clone();
            changed[at] = byte;
            changed
        };
        let question_type = HEADER + "api.example.com".len() + 3;
        for other in [changed(3, 0x83), changed(7, 0), changed(question_type, 16), vec![0; LONGEST + 1]] {
            recent.note(ip("10.0.0.1"), &other, Instant::default());
        }
        assert_eq!(kept(&recent, ALL), 0);
    }

    #[test]
    fn s6_5_a_flood_of_questions_forgets_its_own() {
        let recent = Recent::default();
        recent.note(ip("10.0.0.1"), &message("api.example.com"), at(1));
        for client in 0..200_u32 {
            let client: IpAddr = Ipv4Addr::from(0x0a01_0000 + client).into();
            for number in 0..1_000 {
                let addresses = [Ipv4Addr::new(192, 0, 2, 1); 20];
                recent.note(client, &answer(&format!("x{number}.example.com"), &addresses, 60), at(2));
            }
        }
        let bytes = recent.bytes.load(Ordering::SeqCst);
        let (mut of_clients, mut of_answers, mut kept) = (0, 0, 0);
        for shard in &recent.shards {
            for own in lock(shard).clients.values() {
                assert!(own.answers.len() <= QUESTIONS);
                of_clients += own.bytes;
                kept += own.answers.len();
                of_answers += own.answers.values().map(|noted| noted.message.len()).sum::<usize>();
            }
        }
        assert!(bytes <= BYTES, "{bytes}");
        assert_eq!((of_clients, of_answers), (bytes, bytes));
        assert_eq!(lock(recent.shard(ip("10.0.0.1"))).clients[&ip("10.0.0.1")].answers.len(), 1);
        assert_eq!(recent.forgotten(), 1 + 200 * 1_000 - kept as u64, "every one that is gone is counted");
    }
}
