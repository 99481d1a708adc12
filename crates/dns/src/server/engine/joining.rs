//! Identical questions under way are asked once. Otherwise a spoofer who gets a client to ask the same many times
//! would have as many ids to hit, one of which is enough (the birthday attack).
//!
//! ```text
//!   client A ── question ──► leads ──► upstream ──► reply ──┬─► A: judged, learned, held, A's id and spelling
//!   client B ── question ──► joins A's ·····················└─► B: judged, learned, held, B's id and spelling
//! ```
//!
//! Only the way to the upstream is shared. The rules and the hold (S6.7) are each client's own. If the leader goes
//! before there is a reply, the next one of those that joined leads.

use super::Engine;
use crate::learn::Learn;
use crate::server::pending::{Pending, Ticket};
use crate::wire::{HEADER, Question};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::sync::Arc;

/// The longest name, as bytes of a message.
const LONGEST_NAME: usize = 255;

/// The hash of a question by a secret key, without its id and letter case, and of the way it goes.
fn key(secret: &RandomState, pending: &Pending) -> u64 {
    let mut hasher = secret.build_hasher();
    hasher.write_usize(pending.route.as_ref().map_or(0, |route| Arc::as_ptr(route).addr()));
    hasher.write_u8(pending.client.is_by_tcp().into());
    hasher.write(pending.query.get(2..HEADER).unwrap_or_default());
    let mut lower = [0; LONGEST_NAME];
    if let Some(lower) = lower.get_mut(..pending.name().len()) {
        lower.copy_from_slice(pending.name());
        lower.make_ascii_lowercase();
        hasher.write(lower);
    }
    hasher.write(pending.query.get(pending.name_end..).unwrap_or_default());
    hasher.finish()
}

impl<L: Learn> Engine<L> {
    /// Joins a query that is under way with the same question by the same route. False if there is none: then this
    /// query leads those that come after it.
    pub(super) fn join(&mut self, ticket: Ticket) -> bool {
        let Some(pending) = self.pending.get(ticket) else { return false };
        let key = key(&self.join_secret, pending);
        let Some(&leader) = self.leaders.get(&key) else {
            pending.join_key = Some(key);
            self.leaders.insert(key, ticket);
            return false;
        };
        let is_same = self.pending.both(ticket, leader).is_some_and(|(own, other)| {
            let is_same_route = |route| own.route.as_ref().is_some_and(|own| Arc::ptr_eq(own, route));
            other.route.as_ref().is_some_and(is_same_route) && own.asks_the_same(other)
        });
        if !is_same {
            return false;
        }
        let mut joined = self.pending.get(leader).map(|leader| std::mem::take(&mut leader.joined)).unwrap_or_default();
        if joined.len() == joined.capacity() {
            // Those that are over go before the list grows.
            joined.retain(|&one| self.pending.has(one));
        }
        joined.push(ticket);
        if let Some(leader) = self.pending.get(leader) {
            leader.joined = joined;
        }
        self.counters.joined += 1;
        true
    }

    /// Ends the time in which others may join. Gives those that have.
    pub(super) fn part(&mut self, ticket: Ticket) -> Vec<Ticket> {
        let Some(pending) = self.pending.get(ticket) else { return Vec::new() };
        if let Some(key) = pending.join_key.take() {
            self.leaders.remove(&key);
        }
        let (upstream, last_asked, is_by_stream) = (pending.upstream, pending.last_asked, pending.is_by_stream);
        let joined = std::mem::take(&mut pending.joined);
        for &one in &joined {
            if let Some(one) = self.pending.get(one) {
                (one.upstream, one.last_asked, one.is_by_stream) = (upstream, last_asked, is_by_stream);
            }
        }
        joined
    }

    /// The leader goes without a reply: the first of those that joined has its place.
    pub(super) fn pass_on(&mut self, ticket: Ticket) {
        let Some(pending) = self.pending.get(ticket) else { return };
        let (key, link, sent) = (pending.join_key, pending.link, std::mem::take(&mut pending.sent));
        let (tries, first, wants_tcp) = (pending.tries, pending.first, pending.wants_tcp);
        let distrusts_udp = pending.distrusts_udp;
        let mut joined = self.part(ticket);
        joined.retain(|&one| self.pending.has(one));
        if joined.is_empty() {
            return;
        }
        let next = joined.remove(0);
        let Some(pending) = self.pending.get(next) else { return };
        (pending.join_key, pending.link, pending.sent, pending.joined) = (key, link, sent, joined);
        (pending.tries, pending.first, pending.wants_tcp) = (tries, first, wants_tcp);
        pending.distrusts_udp = distrusts_udp;
        if let Some(key) = key {
            self.leaders.insert(key, next);
        }
        if let Some(old) = self.pending.get(ticket) {
            old.link = None;
        }
        if let Some(link) = link {
            self.by_link.insert(link, next);
        }
        self.tries.push_back((self.now + self.settings.try_timeout, next));
    }

    /// A reply to a query came: it goes to all that wait for it, each by its own rules.
    pub(super) fn deliver(&mut self, ticket: Ticket, answer: &[u8]) -> io::Result<()> {
        let joined = self.part(ticket);
        let mut own = std::mem::take(&mut self.reply);
        let mut delivered = Ok(());
        for one in std::iter::once(ticket).chain(joined) {
            let Some(pending) = self.pending.get(one) else { continue };
            pending.place = None;
            own.clear();
            own.extend_from_slice(answer);
            Question::spell(&mut own, pending.name());
            delivered = delivered.and(self.take_reply(one, &own));
        }
        self.reply = own;
        delivered
    }

    fn take_reply(&mut self, ticket: Ticket, answer: &[u8]) -> io::Result<()> {
        let waits = self.pending.get(ticket).is_some_and(|pending| pending.client.waits());
        if !waits {
            return self.renewed(ticket, answer);
        }
        if self.passes(ticket, answer)? {
            self.give(ticket, answer);
        }
        Ok(())
    }
}
