//! From an upstream to the client, perhaps after a while (S6.6).

use super::Engine;
use super::queries::most_tries;
use crate::chain::Failure;
use crate::learn::{Answer, Learn, LearnError, Opens};
use crate::server::datagrams::Inbox;
use crate::server::pending::{Client, Link, Ticket};
use crate::server::settings::{OnLearnTimeout, UpstreamTransport};
use crate::wire::{HEADER, Header, Question, Rcode, reply};
use std::io;

impl<L: Learn> Engine<L> {
    pub(super) fn take_answers(&mut self, number: u32) -> io::Result<()> {
        let Some(&upstream) = self.sockets.get(&number) else { return Ok(()) };
        let Some(socket) = self.upstreams[upstream].ports.get(number) else { return Ok(()) };
        let mut inbox = self.inbox.take().unwrap_or_else(Inbox::new);
        let is_lost = match inbox.receive(socket, self.upstreams[upstream].address.is_ipv4()) {
            Ok(count) => {
                for at in 0..count {
                    let datagram = inbox.message(at);
                    let link = |id| Link::Udp { socket: number, id };
                    if datagram.is_whole {
                        self.take_answer(upstream, link, datagram.bytes)?;
                        self.send_unless_busy();
                    } else if datagram.bytes.len() >= HEADER {
                        self.take_answer(upstream, link, &reply::truncated(datagram.bytes))?;
                    }
                }
                inbox.has_failed()
            }
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        };
        self.inbox = Some(inbox);
        if is_lost {
            // Nobody is there (an ICMP error came back): whoever waits need not wait longer.
            let lost = self.tickets(|link| matches!(link, Link::Udp { socket, .. } if *socket == number));
            self.lost(lost)?;
        }
        Ok(())
    }

    /// No answer will come to these, which were asked of one upstream by one way: it has failed once by that.
    pub(super) fn lost(&mut self, lost: Vec<Ticket>) -> io::Result<()> {
        let is_probe =
            |engine: &mut Self, one: Ticket| engine.pending.get(one).is_some_and(|one| one.client == Client::Probe);
        let (probes, queries): (Vec<_>, Vec<_>) = lost.iter().copied().partition(|&one| is_probe(self, one));
        probes.into_iter().chain(queries.into_iter().take(1)).for_each(|one| self.count_failure(one));
        lost.into_iter().try_for_each(|ticket| self.try_elsewhere(ticket))
    }

    pub(super) fn tickets(&self, is_meant: impl Fn(&Link) -> bool) -> Vec<Ticket> {
        self.by_link.iter().filter(|(link, _)| is_meant(link)).map(|(_, &one)| one).collect()
    }

    /// A reply came from an upstream, by the link its id says.
    pub(super) fn take_answer(&mut self, upstream: usize, link: impl Fn(u16) -> Link, answer: &[u8]) -> io::Result<()> {
        let header = Header::read(answer).ok();
        // We ask nothing but standard queries (opcode 0).
        let is_reply = |header: &Header| header.is_answer && header.opcode == 0;
        let asked = header.filter(is_reply).and_then(|header| {
            let ticket = *self.by_link.get(&link(header.id))?;
            Some((header, ticket))
        });
        let id = header.map(|header| header.id);
        let Some((header, ticket)) = asked else {
            return self.take_wrong_reply(upstream, link(id.unwrap_or_default()), id);
        };
        let Some(pending) = self.pending.get(ticket) else { return Ok(()) };
        let gave_up = matches!(header.rcode, Rcode::FORM_ERR | Rcode::SERV_FAIL | Rcode::NOT_IMP | Rcode::REFUSED);
        // Some servers that refuse a query do not repeat it: then there is nothing to pass on.
        let is_bare = header.questions == 0 && gave_up;
        if !is_bare && !Question::is_repeated(&pending.query, answer) {
            return self.take_wrong_reply(upstream, link(header.id), id);
        }
        let is_recased =
            !is_bare && !pending.sent.is_empty() && answer.get(HEADER..pending.name_end) != Some(&pending.sent);
        if is_recased {
            self.counters.recased += 1;
            if !pending.is_by_stream {
                // Forged, or the upstream does not keep the letter case: over TCP nobody can forge it.
                return self.ask_over_tcp(ticket);
            }
            self.counters.caseless += 1;
            self.upstreams[upstream].has_lost_case(self.now);
        }
        self.upstreams[upstream].has_answered();
        // `status` says of an upstream that it answers as soon as it does.
        self.has_news |= self.upstreams[upstream].answered == 1;
        let Some(pending) = self.pending.get(ticket) else { return Ok(()) };
        let (client, tries) = (pending.client, usize::from(pending.tries));
        let Some(route) = pending.route.clone().filter(|_| client != Client::Probe) else {
            self.forget(ticket);
            return Ok(());
        };
        if header.is_truncated
            && route.way == UpstreamTransport::UdpFirst
            && client.is_by_tcp()
            && !pending.is_by_stream
        {
            pending.wants_tcp = true;
            return self.try_elsewhere(ticket);
        }
        // Another may know better; the last one's word is passed on.
        let others = route.upstreams.len().min(most_tries(self.settings.tries, Some(&route)).into());
        let is_another = (gave_up || route.failover.contains(&header.rcode)) && tries < others;
        if is_another {
            return self.try_elsewhere(ticket);
        }
        if is_bare {
            self.give_up(ticket);
            return Ok(());
        }
        self.deliver(ticket, answer)
    }

    /// A reply came that is none to what was asked. Over UDP it may be a guess, and only a few are allowed: then what
    /// was asked by that port is asked over TCP.
    fn take_wrong_reply(&mut self, upstream: usize, link: Link, id: Option<u16>) -> io::Result<()> {
        self.counters.unasked += 1;
        let Link::Udp { socket: number, .. } = link else { return Ok(()) };
        if !self.upstreams[upstream].ports.count_wrong_reply(number, id) {
            return Ok(());
        }
        let open = self.tickets(|link| matches!(link, Link::Udp { socket, .. } if *socket == number));
        open.into_iter().try_for_each(|ticket| self.ask_over_tcp(ticket))
    }

    /// Learns from an answer that passes, and gives it to the client, at once or when what it opens is open.
    pub(super) fn give(&mut self, ticket: Ticket, answer: &[u8]) {
        let Some(pending) = self.pending.get(ticket) else { return };
        let (client, upstream) = (pending.client, pending.upstream);
        // What was asked by TCP may be more than a client's datagrams hold.
        let must_fit = pending.is_by_stream && matches!(client, Client::Udp { .. });
        let fitted = must_fit.then(|| reply::fit(&pending.query, answer.to_vec()));
        let answer = fitted.as_deref().unwrap_or(answer);
        if self.must_hold(client, upstream, answer) {
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
        self.counters.answer(answer);
        let id = self.pending.get(ticket).map_or(0, |pending| pending.id);
        self.send_as(client, answer, id);
        self.forget(ticket);
    }

    /// Nobody answers, or what they say is none.
    pub(super) fn give_up(&mut self, ticket: Ticket) {
        for one in self.part(ticket) {
            self.give_up(one);
        }
        self.counters.unanswered += 1;
        let Some(pending) = self.pending.get(ticket) else { return };
        let trouble = self.upstreams.get(pending.upstream).and_then(|upstream| upstream.trouble.clone());
        self.fail(ticket, Failure::NoAnswer(trouble.as_deref()));
    }

    /// True if the answer opens something that is not open yet.
    fn must_hold(&mut self, client: Client, upstream: usize, answer: &[u8]) -> bool {
        let Some(client) = client.address() else { return false };
        let upstream = self.upstreams.get(upstream).map(|upstream| upstream.address);
        let opens = self.learner.learn(&Answer { client, upstream, bytes: answer }, &mut self.batch);
        if opens == Opens::Renewal {
            self.extended = self.extended.saturating_add(1);
            self.extend_by.get_or_insert(self.now + super::EXTEND_WITHIN);
        }
        self.counters.unreadable += u64::from(opens == Opens::Unreadable);
        opens == Opens::New
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
        self.counters.answer(&answer);
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
            let (pending_upstream, begun) = (pending.upstream, pending.begun);
            if let Some(Link::Tcp { connection, .. }) = pending.link
                && now >= pending.begun + timeout * 2
                && self.connections.at(connection).is_some_and(|one| one.last_heard <= pending.begun)
            {
                // A stream loses nothing, but there may be nobody at its end: others are asked, or by another.
                self.end_dead(connection);
                continue;
            }
            if let Some(Link::Https { connection, .. }) = pending.link
                && now >= pending.begun + timeout * 2
                && self.end_dead_https(pending_upstream, connection, begun)?
            {
                continue;
            }
            self.count_failure(ticket);
            self.try_again(ticket)?;
        }
        while let Some(&(_, ticket)) = self.holds.front().filter(|(at, _)| *at <= self.now) {
            self.holds.pop_front();
            self.hold_failed(ticket);
        }
        if self.next_sweep <= self.now {
            self.next_sweep = self.now + super::SWEEP_EVERY;
            self.has_news = true;
            self.end_idle();
            self.sweep_upstreams();
        }
        self.probe()
    }

    /// Sends a reply under the id it has.
    pub(super) fn send(&mut self, client: Client, reply: &[u8]) {
        let id = reply.first_chunk().map_or(0, |id| u16::from_be_bytes(*id));
        self.send_as(client, reply, id);
    }

    /// Sends a reply under the client's own id.
    pub(super) fn send_as(&mut self, client: Client, reply: &[u8], id: u16) {
        match client {
            Client::Udp { listener, from } => _ = self.listeners[listener].outbox.push(reply, id, Some(from)),
            Client::Tcp { connection, .. } => {
                if let Some(open) = self.connections.get(connection) {
                    open.push(reply, id);
                    open.last_used = self.now;
                    self.write(connection.slot);
                }
            }
            Client::Encrypted { origin, .. } => self.crew.desk().answer(origin.number, reply, id),
            Client::Probe | Client::Renewal { .. } => {}
        }
    }
}
