//! From an upstream to the client, perhaps after a while (S6.6).

use super::Engine;
use crate::learn::{Answer, Learn, LearnError, Noted};
use crate::server::datagrams::Inbox;
use crate::server::pending::{Client, Link, Ticket};
use crate::server::settings::{OnLearnTimeout, Way};
use crate::wire::{Header, Question, Rcode, addresses, reply};
use std::io;

impl<L: Learn> Engine<L> {
    pub(super) fn take_answers(&mut self, number: u32) -> io::Result<()> {
        let Some(&upstream) = self.sockets.get(&number) else { return Ok(()) };
        let sockets = &self.upstreams[upstream].sockets;
        let Some(socket) = sockets.iter().find(|socket| socket.number == number) else { return Ok(()) };
        let mut inbox = self.inbox.take().unwrap_or_else(Inbox::new);
        match inbox.receive(&socket.udp, self.upstreams[upstream].address.is_ipv4()) {
            Ok(count) => {
                for at in 0..count {
                    let datagram = inbox.message(at);
                    let link = |id| Link::Udp { socket: number, id };
                    if datagram.is_whole {
                        self.take_answer(upstream, link, datagram.bytes)?;
                    } else if datagram.bytes.len() >= crate::wire::HEADER {
                        self.take_answer(upstream, link, &reply::truncated(datagram.bytes))?;
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Nobody is there (an ICMP error came back): whoever waits need not wait longer.
            Err(_) => self.lost(upstream, |link| matches!(link, Link::Udp { socket, .. } if *socket == number))?,
        }
        self.inbox = Some(inbox);
        Ok(())
    }

    /// No answer will come by these links.
    pub(super) fn lost(&mut self, upstream: usize, is_lost: impl Fn(&Link) -> bool) -> io::Result<()> {
        let lost = self.tickets(is_lost);
        if !lost.is_empty() {
            self.upstreams[upstream].has_failed(self.now);
        }
        lost.into_iter().try_for_each(|ticket| self.try_elsewhere(ticket))
    }

    pub(super) fn tickets(&self, is_meant: impl Fn(&Link) -> bool) -> Vec<Ticket> {
        self.by_link.iter().filter(|(link, _)| is_meant(link)).map(|(_, &one)| one).collect()
    }

    /// A reply came from an upstream, by the link its id says.
    pub(super) fn take_answer(&mut self, upstream: usize, link: impl Fn(u16) -> Link, answer: &[u8]) -> io::Result<()> {
        let asked = Header::read(answer).ok().and_then(|header| {
            let ticket = *self.by_link.get(&link(header.id))?;
            Some((header, ticket))
        });
        let Some((header, ticket)) = asked else {
            self.counters.unasked += 1;
            return Ok(());
        };
        let Some(pending) = self.pending.get(ticket) else { return Ok(()) };
        let gave_up = matches!(header.rcode, Rcode::FORM_ERR | Rcode::SERV_FAIL | Rcode::NOT_IMP | Rcode::REFUSED);
        // Some servers that refuse a query do not repeat it: then there is nothing to pass on.
        let is_bare = header.is_answer && header.questions == 0 && gave_up;
        if !is_bare && !Question::is_repeated(&pending.query, answer) {
            self.counters.unasked += 1;
            return Ok(());
        }
        self.upstreams[upstream].has_answered();
        let (client, tries) = (pending.client, usize::from(pending.tries));
        let Some(route) = pending.route.clone().filter(|_| client != Client::Probe) else {
            self.forget(ticket);
            return Ok(());
        };
        let came_by_tcp = matches!(client, Client::Tcp { .. });
        if header.is_truncated && route.way == Way::UdpFirst && came_by_tcp && !pending.wants_tcp {
            pending.wants_tcp = true;
            return self.try_elsewhere(ticket);
        }
        // Another may know better; the last one's word is passed on.
        let others = route.upstreams.len();
        if gave_up && (is_bare || tries < others) {
            return if tries < others { self.try_elsewhere(ticket) } else { self.give_up(ticket) };
        }
        if self.passes(ticket, answer) {
            self.give(ticket, answer);
        }
        Ok(())
    }

    /// Learns from an answer that passes, and gives it to the client, at once or when what it opens is open.
    pub(super) fn give(&mut self, ticket: Ticket, answer: &[u8]) {
        let Some(pending) = self.pending.get(ticket) else { return };
        let client = pending.client;
        // What was asked by TCP may be more than a client's datagrams hold.
        let is_by_tcp = pending.route.as_ref().is_some_and(|route| route.way == Way::Tcp);
        let fitted =
            (is_by_tcp && matches!(client, Client::Udp { .. })).then(|| reply::fit(&pending.query, answer.to_vec()));
        let answer = fitted.as_deref().unwrap_or(answer);
        if self.must_hold(client, answer) {
            let Some(pending) = self.pending.get(ticket) else { return };
            pending.answer.clear();
            pending.answer.extend_from_slice(answer);
            let (link, upstream) = (pending.link.take(), pending.upstream);
            self.unlink(link, upstream);
            self.noted.push(ticket);
            self.holds.push_back((self.now + self.settings.hold_limit, ticket));
            self.counters.held += 1;
            return;
        }
        self.counters.answers += 1;
        let id = self.pending.get(ticket).map_or(0, |pending| pending.id);
        self.send_as(client, answer, id);
        self.forget(ticket);
    }

    fn give_up(&mut self, ticket: Ticket) -> io::Result<()> {
        self.counters.unanswered += 1;
        self.fail(ticket);
        Ok(())
    }

    /// Whether the answer opens something that is not open yet, as far as can be told at once.
    fn must_hold(&mut self, client: Client, answer: &[u8]) -> bool {
        let Some(client) = client.address().filter(|&client| self.learner.cares_about(client)) else { return false };
        if self.learner.is_known(client, answer) {
            return false;
        }
        match addresses(answer) {
            Ok(says) => {
                let answer = Answer { client, says: &says, bytes: answer };
                if says.addresses.is_empty() {
                    return false;
                }
                let noted = self.learner.note(&answer, &mut self.batch);
                self.has_more |= noted == Noted::Soon;
                noted == Noted::First
            }
            Err(_) => {
                self.counters.unreadable += 1;
                false
            }
        }
    }

    /// What these answers open is open, or will not be.
    pub(in crate::server) fn release(&mut self, tickets: &[Ticket], done: &Result<(), LearnError>) {
        for &ticket in tickets {
            match done {
                Ok(()) => self.let_go(ticket),
                Err(_) => self.hold_failed(ticket),
            }
        }
    }

    fn let_go(&mut self, ticket: Ticket) {
        let Some(pending) = self.pending.get(ticket) else { return };
        let (client, id, answer) = (pending.client, pending.id, std::mem::take(&mut pending.answer));
        self.counters.answers += 1;
        self.send_as(client, &answer, id);
        if let Some(pending) = self.pending.get(ticket) {
            // The buffer serves the next query in this place.
            pending.answer = answer;
        }
        self.forget(ticket);
    }

    fn hold_failed(&mut self, ticket: Ticket) {
        if self.pending.get(ticket).is_none() {
            return;
        }
        match self.settings.on_learn_timeout {
            OnLearnTimeout::Fail => {
                self.counters.hold_failed += 1;
                // The chain has let it pass: it is told nothing more.
                self.serv_fail(ticket);
            }
            OnLearnTimeout::Release => {
                self.counters.hold_released += 1;
                self.let_go(ticket);
            }
        }
    }

    /// Deals with what has waited long enough.
    pub(super) fn out_of_time(&mut self) -> io::Result<()> {
        while let Some(&(_, ticket)) = self.tries.front().filter(|(at, _)| *at <= self.now) {
            self.tries.pop_front();
            let (now, timeout) = (self.now, self.settings.try_timeout);
            let Some(pending) = self.pending.get(ticket) else { continue };
            // It was asked again since, or is answered and held.
            let Some(_) = pending.link.filter(|_| pending.last_asked + timeout <= now) else { continue };
            let upstream = pending.upstream;
            self.upstreams[upstream].has_failed(now);
            self.try_again(ticket)?;
        }
        while let Some(&(_, ticket)) = self.holds.front().filter(|(at, _)| *at <= self.now) {
            self.holds.pop_front();
            self.hold_failed(ticket);
        }
        if self.next_sweep <= self.now {
            self.next_sweep = self.now + super::SWEEP_EVERY;
            self.has_swept = true;
            self.probe()?;
            self.end_idle();
        }
        Ok(())
    }

    /// Sends a reply under the id it has.
    pub(super) fn send(&mut self, client: Client, reply: &[u8]) {
        let id = reply.first_chunk().map_or(0, |id| u16::from_be_bytes(*id));
        self.send_as(client, reply, id);
    }

    /// Sends a reply under the client's own id.
    pub(super) fn send_as(&mut self, client: Client, reply: &[u8], id: u16) {
        match client {
            Client::Udp { listener, from } => self.listeners[listener].outbox.push(reply, id, Some(from)),
            Client::Tcp { connection, .. } => {
                if let Some(open) = self.connections.get(connection) {
                    open.push(reply, id);
                    open.last_used = self.now;
                    self.write(connection.slot);
                }
            }
            Client::Probe => {}
        }
    }
}
