//! The loops of a server. Each has an engine, sockets and threads of its own, and a question belongs to one of them, by
//! a hash of its name:
//!
//! ```text
//!   socket 1 ──► loop 1 ── its own questions ──► upstream
//!                   └───── others' ──► mailbox ──┐
//!   socket 2 ──► loop 2 ◄────────────────────────┘ ──► upstream ──► client, by socket 2
//! ```
//! The kernel chooses a socket by the ports and addresses of a packet. So the same question of two clients may come to
//! two loops, and it is asked once only if one loop has both: a client that asks the same many times gives a forger no
//! more questions to hit than with one loop. Every loop has a socket at every address, so the loop that
//! asks also answers.

use super::encrypted::{Desk, EncryptedThreads};
use super::lock;
use super::settings::plain;
use super::workers::Workers;
use crate::chain::Transport;
use crate::wire::{HEADER, Question};
use nix::sys::eventfd::{EfdFlags, EventFd};
use rustc_hash::FxHashMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Questions that may wait in a mailbox. With more there is silence, as where too much is under way.
const MOST_LETTERS: usize = 8_192;

/// While more wait, each client has a share: it may have as many as there are places left. So a flood by one client
/// leaves half of the places to others, and there is always one for a client that has none.
const SHARED_ABOVE: usize = MOST_LETTERS / 2;

/// Bytes of questions that may wait in a mailbox for one more of an encrypted connection, which may be long.
const MOST_BYTES: usize = 16 << 20;

/// The longest name, as bytes of a message.
const LONGEST_NAME: usize = 255;

/// One loop's place among the loops of a server.
#[derive(Debug)]
pub(super) struct Crew {
    own: usize,
    shared: Arc<Shared>,
    /// What goes to the mailbox of each loop at the end of the turn.
    outgoing: Vec<Mail>,
}

#[derive(Debug)]
struct Shared {
    mailboxes: Vec<Mailbox>,
    /// So that nobody can send one loop all the questions.
    secret: RandomState,
    workers: Workers,
    desk: Desk,
    threads: EncryptedThreads,
}

/// Where the other loops put a loop's questions.
#[derive(Debug)]
struct Mailbox {
    mail: Mutex<Mail>,
    wake: Arc<EventFd>,
    /// Questions that were ever put in, and those of them that were dealt with.
    put: AtomicU64,
    done: AtomicU64,
}

/// Questions that came to one loop and belong to another.
#[derive(Default, Debug)]
pub(super) struct Mail {
    bytes: Vec<u8>,
    letters: Vec<Letter>,
    /// How many are of each client, once that matters.
    counts: Option<FxHashMap<IpAddr, usize>>,
}

#[derive(Clone, Copy, Debug)]
struct Letter {
    /// Where it came in.
    at: SocketAddr,
    from: SocketAddr,
    /// Where it ends among the bytes.
    end: usize,
    origin: Option<Origin>,
}

/// The encrypted connection that a question came by, and who waits for its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Origin {
    /// As the desk has it.
    pub(super) number: u64,
    pub(super) transport: Transport,
}

/// A question of another loop's socket, or of an encrypted connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed<'a> {
    pub(super) at: SocketAddr,
    pub(super) from: SocketAddr,
    pub(super) query: &'a [u8],
    pub(super) origin: Option<Origin>,
}

impl Mail {
    pub(super) fn iter(&self) -> impl Iterator<Item = Passed<'_>> {
        let mut start = 0;
        self.letters.iter().filter_map(move |letter| {
            let query = self.bytes.get(start..letter.end);
            start = letter.end;
            Some(Passed { at: letter.at, from: letter.from, query: query?, origin: letter.origin })
        })
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.letters.clear();
        self.counts = None;
        // One burst must not keep its memory for ever.
        self.bytes.shrink_to(64 << 10);
    }

    /// Takes letters of another's, as far as there is room for them.
    fn append(&mut self, other: &Self) {
        let (before, count) = (self.bytes.len(), SHARED_ABOVE.saturating_sub(self.letters.len()));
        let some = other.letters.get(..count).unwrap_or(&other.letters);
        let bytes = some.last().map_or(0, |last| last.end);
        self.bytes.extend_from_slice(other.bytes.get(..bytes).unwrap_or_default());
        self.letters.extend(some.iter().map(|letter| Letter { end: before + letter.end, ..*letter }));
        for passed in other.iter().skip(some.len()) {
            if self.has_room_for(passed.from) {
                self.push(&passed);
            }
        }
    }

    fn push(&mut self, passed: &Passed<'_>) {
        self.bytes.extend_from_slice(passed.query);
        let Passed { at, from, origin, .. } = *passed;
        self.letters.push(Letter { at, from, end: self.bytes.len(), origin });
    }

    /// Takes a question of an encrypted connection, if there is room for it.
    fn take(&mut self, passed: &Passed<'_>) -> bool {
        let has_bytes = self.bytes.len() + passed.query.len() <= MOST_BYTES;
        let has_room = has_bytes && (self.letters.len() < SHARED_ABOVE || self.has_room_for(passed.from));
        if has_room {
            self.push(passed);
        }
        has_room
    }

    /// True if the client may have one more, which is counted.
    fn has_room_for(&mut self, from: SocketAddr) -> bool {
        let counts = self.counts.get_or_insert_with(|| {
            let mut counts = FxHashMap::default();
            self.letters.iter().for_each(|letter| *counts.entry(plain(letter.from)).or_default() += 1);
            counts
        });
        let count = counts.entry(plain(from)).or_default();
        let has_room = *count < MOST_LETTERS.saturating_sub(self.letters.len());
        *count += usize::from(has_room);
        has_room
    }
}

impl Crew {
    /// So many loops.
    pub(super) fn of(loops: usize) -> io::Result<Vec<Self>> {
        let mailbox = |_| -> io::Result<Mailbox> {
            let wake = EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
            let (put, done) = (AtomicU64::new(0), AtomicU64::new(0));
            Ok(Mailbox { mail: Mutex::default(), wake: Arc::new(wake), put, done })
        };
        let mailboxes = (0..loops).map(mailbox).collect::<io::Result<Vec<_>>>()?;
        let (secret, workers) = (RandomState::new(), Workers::new());
        let (desk, threads) = (Desk::default(), EncryptedThreads::default());
        let shared = Arc::new(Shared { mailboxes, secret, workers, desk, threads });
        let outgoing = || (0..loops).map(|_| Mail::default()).collect();
        Ok((0..loops).map(|own| Self { own, shared: shared.clone(), outgoing: outgoing() }).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.shared.mailboxes.len()
    }

    pub(super) fn waker(&self) -> Arc<EventFd> {
        self.shared.mailboxes[self.own].wake.clone()
    }

    pub(super) fn workers(&self) -> &Workers {
        &self.shared.workers
    }

    /// Where answers to questions of encrypted connections go.
    pub(super) fn desk(&self) -> &Desk {
        &self.shared.desk
    }

    pub(super) fn threads(&self) -> &EncryptedThreads {
        &self.shared.threads
    }

    /// The loop that a question belongs to, if it is another one.
    pub(super) fn owner(&self, query: &[u8]) -> Option<usize> {
        if self.len() == 1 {
            return None;
        }
        let name = query.get(HEADER..Question::end(query).ok()? - Question::AFTER_NAME)?;
        let mut lower = [0; LONGEST_NAME];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        let mut hasher = self.shared.secret.build_hasher();
        hasher.write(lower);
        let owner = hasher.finish() as usize % self.len();
        (owner != self.own).then_some(owner)
    }

    /// Puts a question aside for another loop.
    pub(super) fn pass(&mut self, to: usize, passed: &Passed<'_>) {
        self.outgoing[to].push(passed);
    }

    /// Puts a question of an encrypted connection into the mailbox of the loop that it belongs to. False if there is no
    /// room.
    pub(super) fn submit(&self, passed: &Passed<'_>) -> bool {
        let mailbox = &self.shared.mailboxes[self.owner(passed.query).unwrap_or(self.own)];
        let mut mail = lock(&mailbox.mail);
        let was_empty = mail.letters.is_empty();
        if !mail.take(passed) {
            return false;
        }
        mailbox.put.fetch_add(1, Ordering::SeqCst);
        drop(mail);
        if was_empty {
            let _ = mailbox.wake.write(1);
        }
        true
    }

    /// Puts what was passed into the mailboxes, and wakes their loops. Gives how many found no room.
    pub(super) fn post(&mut self) -> usize {
        let mut left_out = 0;
        for (mail, mailbox) in self.outgoing.iter_mut().zip(&self.shared.mailboxes) {
            if mail.letters.is_empty() {
                continue;
            }
            let mut box_of = lock(&mailbox.mail);
            let before = box_of.letters.len();
            box_of.append(mail);
            let count = box_of.letters.len() - before;
            mailbox.put.fetch_add(count as u64, Ordering::SeqCst);
            drop(box_of);
            left_out += mail.letters.len() - count;
            mail.clear();
            // If something was there before, its loop has been woken for it and has not looked yet.
            if before == 0 {
                let _ = mailbox.wake.write(1);
            }
        }
        left_out
    }

    /// Takes what others have put into the own mailbox, in exchange for an empty one.
    pub(super) fn take(&self, empty: &mut Mail) {
        std::mem::swap(&mut *lock(&self.shared.mailboxes[self.own].mail), empty);
    }

    /// So many questions of the mailbox are counted as the loop's own from now on.
    pub(super) fn dealt_with(&self, count: u64) {
        self.shared.mailboxes[self.own].done.fetch_add(count, Ordering::SeqCst);
    }

    /// Whether nothing is on its way from loop to loop. It is asked when no loop takes questions any more.
    pub(super) fn is_at_rest(&self) -> bool {
        let is_done = |one: &Mailbox| one.put.load(Ordering::SeqCst) == one.done.load(Ordering::SeqCst);
        self.shared.mailboxes.iter().all(is_done)
    }

    /// The same place for somebody who only looks.
    pub(super) fn observer(&self) -> Self {
        Self { own: self.own, shared: self.shared.clone(), outgoing: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &[u8]) -> Vec<u8> {
        let mut query = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        query.extend_from_slice(name);
        query.extend([0, 1, 0, 1]);
        query
    }

    fn owner(crew: &Crew, query: &[u8]) -> usize {
        crew.owner(query).unwrap_or(crew.own)
    }

    #[test]
    fn all_loops_agree_whose_a_question_is_whatever_its_spelling() {
        let crews = Crew::of(3).unwrap();
        let mut counts = [0; 3];
        for number in 0..300_u16 {
            let name = format!("\x05n{number:04}\x07example\0");
            let asked = query(name.as_bytes());
            let first = owner(&crews[0], &asked);
            counts[first] += 1;
            let upper = query(name.to_ascii_uppercase().as_bytes());
            assert!(crews.iter().all(|crew| owner(crew, &asked) == first && owner(crew, &upper) == first));
        }
        assert!(counts.iter().all(|&count| count > 50), "{counts:?}");
        assert_eq!(crews[1].owner(b"no question"), None);
        assert_eq!(Crew::of(1).unwrap()[0].owner(&query(b"\x01a\0")), None);
    }

    #[test]
    fn what_is_posted_comes_out_as_it_was_and_no_more_than_there_is_room_for() {
        let mut crews = Crew::of(2).unwrap();
        let (at, from) = (SocketAddr::from(([127, 0, 0, 1], 53)), SocketAddr::from(([10, 0, 0, 1], 4_000)));
        for query in [&b"one"[..], b"", b"three"] {
            crews[0].pass(1, &Passed { at, from, query, origin: None });
        }
        assert!(crews[0].is_at_rest());
        assert_eq!(crews[0].post(), 0);
        assert!(!crews[0].is_at_rest(), "questions are on their way");
        let mut mail = Mail::default();
        crews[1].take(&mut mail);
        let taken: Vec<_> = mail.iter().map(|one| (one.at, one.from, one.query.to_vec())).collect();
        assert_eq!(taken, [&b"one"[..], b"", b"three"].map(|query| (at, from, query.to_vec())));
        crews[1].dealt_with(3);
        assert!(crews[0].is_at_rest());
        for _ in 0..SHARED_ABOVE {
            crews[0].pass(1, &Passed { at, from, query: b"x", origin: None });
        }
        assert_eq!(crews[0].post(), 0);
    }

    #[test]
    fn a_flood_that_fills_a_mailbox_leaves_places_to_every_other_client() {
        let mut crews = Crew::of(2).unwrap();
        let at = SocketAddr::from(([127, 0, 0, 1], 53));
        let ask = |crew: &mut Crew, client: u8, count: usize| {
            let from = SocketAddr::from(([10, 0, 0, client], 4_000));
            (0..count).for_each(|_| crew.pass(1, &Passed { at, from, query: &[client; 20], origin: None }));
            count - crew.post()
        };
        assert_eq!(ask(&mut crews[0], 1, 100_000), SHARED_ABOVE, "half of it, and no more");
        assert_eq!(ask(&mut crews[0], 1, 1), 0);
        let second = ask(&mut crews[0], 2, 100_000);
        assert_eq!(second, SHARED_ABOVE / 2, "half of what is left");
        for client in 3..=200 {
            assert_eq!(ask(&mut crews[0], client, 5), 5, "client {client}");
        }
        let mut mail = Mail::default();
        crews[1].take(&mut mail);
        assert_eq!(mail.iter().count(), SHARED_ABOVE + second + 198 * 5);
        assert!(
            mail.iter().all(|one| one.query.len() == 20 && one.from.ip() == IpAddr::from([10, 0, 0, one.query[0]]))
        );
        mail.clear();
        crews[1].take(&mut mail);
        assert_eq!(ask(&mut crews[0], 1, 10), 10, "what was taken takes no room");
    }
}
