//! From a client to an upstream.

use super::Engine;
use crate::chain::Failure;
use crate::learn::Learn;
use crate::server::crew::Passed;
use crate::server::datagrams::Inbox;
use crate::server::pending::{Client, Link, Ticket};
use crate::server::ports::Register;
use crate::server::route::Route;
use crate::server::settings::{Health, UpstreamTransport, plain};
use crate::server::stream::Stream;
use crate::server::tcp::{Connection, ConnectionOwner, begin_connect};
use crate::wire::{HEADER, Header, Question, Rcode, WireError, reply};
use nix::sys::epoll::{Epoll, EpollFlags};
use rustc_hash::FxHashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

/// A query for the root's servers, which every resolver answers.
const PROBE: [u8; 17] = [0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1];

impl<L: Learn> Engine<L> {
    pub(super) fn take_queries(&mut self, listener: usize) -> io::Result<()> {
        let mut inbox = self.inbox.take().unwrap_or_else(Inbox::new);
        let count = self.listeners[listener].receive(&mut inbox);
        for at in 0..count {
            let datagram = inbox.message(at);
            if let (Some(from), true) = (datagram.from, datagram.is_whole) {
                if !self.is_welcome(listener, from) {
                    continue;
                }
                match self.crew.owner(datagram.bytes) {
                    None => {
                        self.take_query(Client::Udp { listener, from }, datagram.bytes)?;
                        self.send_unless_busy();
                    }
                    Some(other) => {
                        self.counters.passed += 1;
                        let at = self.listeners[listener].address;
                        self.crew.pass(other, &Passed { at, from, query: datagram.bytes, origin: None });
                    }
                }
            } else {
                self.counters.malformed += 1;
            }
        }
        self.inbox = Some(inbox);
        Ok(())
    }

    /// Takes the questions that other loops and encrypted connections have put into the mailbox.
    pub(super) fn take_mail(&mut self) -> io::Result<()> {
        let mut mail = std::mem::take(&mut self.mail);
        self.crew.take(&mut mail);
        let mut taken = Ok(());
        for Passed { at, from, query, origin } in mail.iter() {
            self.mailed += 1;
            if let Some(origin) = origin {
                let client = Client::Encrypted { origin, server: at, from };
                taken = taken.and_then(|()| self.take_query(client, query));
                continue;
            }
            let listener = self.listeners.iter().position(|one| one.address == at && one.can_send());
            // Questions of an earlier server were asked under its rules.
            if let Some(listener) = listener.filter(|&listener| self.is_welcome(listener, from)) {
                taken = taken.and_then(|()| self.take_query(Client::Udp { listener, from }, query));
            }
        }
        mail.clear();
        self.mail = mail;
        taken
    }

    /// Whether somebody may ask at a listener.
    pub(super) fn is_welcome(&mut self, listener: usize, from: SocketAddr) -> bool {
        let welcome = self.listeners[listener].is_open || self.learner.knows(plain(from));
        self.counters.strangers += u64::from(!welcome);
        welcome
    }

    /// A query came in: asks an upstream, or says at once why not.
    pub(super) fn take_query(&mut self, client: Client, query: &[u8]) -> io::Result<()> {
        self.counters.queries += 1;
        let refusal = match (Question::end(query), Header::read(query)) {
            // What is an answer, or no message at all, gets none: answers to answers never end.
            (Err(WireError::NotAQuery), _) | (_, Err(_)) => {
                self.counters.malformed += 1;
                self.leave(client);
                return Ok(());
            }
            (_, Ok(header)) if header.opcode != 0 => Some(Rcode::NOT_IMP),
            (Err(_), _) => Some(Rcode::FORM_ERR),
            (Ok(_), _) => None,
        };
        if let Some(rcode) = refusal {
            self.counters.malformed += 1;
            self.send(client, &reply::failure(query, rcode));
            self.leave(client);
            return Ok(());
        }
        if !self.make_room(client) {
            // Silence, as of a server that has too much to do: the client asks again later.
            self.counters.over_limit += 1;
            self.leave(client);
            return Ok(());
        }
        if let Some(listener) = client.listener() {
            self.listeners[listener].under_way += 1;
        }
        let ticket = self.pending.insert(client, query, self.now);
        if let Some(address) = client.address() {
            self.shares.enter(address, ticket.slot);
        }
        self.judge_query(ticket)
    }

    /// Asks the upstreams of a route.
    pub(super) fn ask_by(&mut self, ticket: Ticket, route: Arc<Route>) -> io::Result<()> {
        let random = self.random.number()?;
        // The question goes another way now. Clients that joined it, if any still wait, go on with the old way.
        self.pass_on(ticket);
        if let Some(pending) = self.pending.get(ticket) {
            // Whoever was asked before is asked no longer.
            pending.place = None;
            let Some(place) = route.enter() else {
                self.counters.over_limit += 1;
                self.fail(ticket, Failure::TooMany);
                return Ok(());
            };
            let (link, before) = (pending.link.take(), pending.upstream);
            pending.first = route.first(|| usize::from(random));
            (pending.route, pending.place) = (Some(route), Some(place));
            (pending.tries, pending.wants_tcp, pending.distrusts_udp) = (0, false, false);
            self.unlink(link, before);
        }
        if self.join(ticket) {
            return Ok(());
        }
        self.ask(ticket)
    }

    /// True if the client may have one more query under way. If there are too many in all, the client that has most
    /// gives way, unless it is this one.
    fn make_room(&mut self, client: Client) -> bool {
        let Some(address) = client.address() else { return true };
        let own = self.shares.count(address);
        if own >= self.settings.most_queries_of_client {
            return false;
        }
        if self.pending.len() < self.settings.most_queries {
            return true;
        }
        let Some((heaviest, _)) = self.shares.heaviest().filter(|(_, count)| *count > own + 1) else { return false };
        // The newest: what has waited longest is answered soonest.
        let Some(slot) = self.shares.places_of(heaviest).next() else { return false };
        self.counters.evicted += 1;
        self.forget(self.pending.ticket(slot));
        true
    }

    /// The query is over, one way or another.
    pub(super) fn forget(&mut self, ticket: Ticket) {
        self.pass_on(ticket);
        let Some(pending) = self.pending.get(ticket) else { return };
        let (client, link, upstream) = (pending.client, pending.link.take(), pending.upstream);
        self.pending.remove(ticket);
        self.unlink(link, upstream);
        if let Some(listener) = client.listener() {
            self.listeners[listener].under_way -= 1;
        }
        self.shares.leave(ticket.slot);
        self.leave(client);
    }

    /// The client waits for one answer less.
    fn leave(&mut self, client: Client) {
        match client {
            Client::Tcp { connection, .. } => self.settle(connection),
            Client::Encrypted { origin, .. } => self.crew.desk().close(origin.number),
            Client::Udp { .. } | Client::Probe | Client::Renewal { .. } => {}
        }
    }

    /// No answer is awaited under this id any more.
    pub(super) fn unlink(&mut self, link: Option<Link>, upstream: usize) {
        let Some(link) = link else { return };
        self.by_link.remove(&link);
        match link {
            Link::Udp { socket, id } => self.upstreams[upstream].ports.settle(socket, id),
            Link::Tcp { connection, .. } => {
                if let Some(connection) = self.connections.at(connection) {
                    connection.open = connection.open.saturating_sub(1);
                }
            }
            Link::Https { connection, .. } => self.upstreams[upstream].https.settle(connection),
        }
    }

    /// Asks the next upstream that is worth asking.
    pub(super) fn ask(&mut self, ticket: Ticket) -> io::Result<()> {
        let Some(pending) = self.pending.get(ticket) else { return Ok(()) };
        let (before, link, route) = (pending.upstream, pending.link.take(), pending.route.clone());
        let from = pending.first.wrapping_add(usize::from(pending.tries));
        let over_tcp = pending.distrusts_udp
            || match route.as_ref().map(|route| route.way) {
                None | Some(UpstreamTransport::AsAsked) => pending.client.is_by_tcp(),
                Some(UpstreamTransport::Tcp) => true,
                Some(UpstreamTransport::UdpFirst) => pending.wants_tcp,
            };
        // A probe has no route: it asks whom it is for.
        let Some(upstream) = route.map_or(Some(before), |route| self.pick(&route, from)) else {
            self.unlink(link, before);
            self.give_up(ticket);
            return Ok(());
        };
        if let Some(link) = link.filter(|_| upstream == before) {
            self.ask_once_more(ticket, link);
            return Ok(());
        }
        self.unlink(link, before);
        self.ask_of(ticket, upstream, over_tcp)
    }

    /// Asks the same upstream again over TCP, since no reply over UDP can be trusted.
    pub(super) fn ask_over_tcp(&mut self, ticket: Ticket) -> io::Result<()> {
        let Some(pending) = self.pending.get(ticket) else { return Ok(()) };
        let (link, upstream) = (pending.link.take(), pending.upstream);
        pending.distrusts_udp = true;
        // No try is lost by that.
        pending.tries = pending.tries.saturating_sub(1);
        self.counters.distrusted += 1;
        self.unlink(link, upstream);
        self.ask_of(ticket, upstream, true)
    }

    fn ask_of(&mut self, ticket: Ticket, upstream: usize, over_tcp: bool) -> io::Result<()> {
        let is_by_stream = over_tcp || self.upstreams[upstream].settings.tls.is_some();
        let asked = match (&self.upstreams[upstream].settings.http_path, is_by_stream) {
            (Some(_), _) => self.ask_by_https(ticket, upstream),
            (None, true) => self.ask_by_stream(ticket, upstream),
            (None, false) => self.ask_by_udp(ticket, upstream),
        };
        let (now, timeout) = (self.now, self.settings.try_timeout);
        let Some(pending) = self.pending.get(ticket) else { return Ok(()) };
        pending.tries += 1;
        pending.last_asked = now;
        (pending.upstream, pending.is_by_stream) = (upstream, is_by_stream);
        match asked {
            Ok(link) => {
                pending.link = Some(link);
                self.by_link.insert(link, ticket);
                self.tries.push_back((now + timeout, ticket));
                if let Link::Tcp { connection, .. } = link {
                    // Only now: if it breaks by that, this question is one of those that were under way.
                    self.write(connection);
                }
                Ok(())
            }
            // The way there is closed just now: as good as no answer.
            Err(_) => {
                self.count_failure(ticket);
                self.try_again(ticket)
            }
        }
    }

    /// The same upstream is asked again, under the same id: an answer to the first question is one to this.
    fn ask_once_more(&mut self, ticket: Ticket, link: Link) {
        let (now, timeout) = (self.now, self.settings.try_timeout);
        let Some(pending) = self.pending.get(ticket) else { return };
        // A stream loses nothing.
        if let Link::Udp { socket, id } = link
            && let Some(socket) = self.upstreams[pending.upstream].ports.get(socket)
        {
            let mut query = pending.query.clone();
            Header::set_id(&mut query, id);
            Question::spell(&mut query, &pending.sent);
            // What cannot be sent is asked again when its time is up.
            let _ = socket.send(&query);
        }
        pending.link = Some(link);
        pending.tries += 1;
        pending.last_asked = now;
        self.tries.push_back((now + timeout, ticket));
    }

    /// Those that are up in their order, one after the other; all in turn if none is, or nobody.
    fn pick(&self, route: &Route, from: usize) -> Option<usize> {
        let all = &route.upstreams;
        let up = || all.iter().copied().filter(|&at| self.upstreams[at].is_up());
        match up().count() {
            0 if route.fails_fast => None,
            0 => all.get(from % all.len().max(1)).copied(),
            count => up().nth(from % count),
        }
    }

    /// The upstream of a query that is not answered has failed.
    pub(super) fn count_failure(&mut self, ticket: Ticket) {
        let Some(pending) = self.pending.get(ticket) else { return };
        let upstream = &mut self.upstreams[pending.upstream];
        match pending.client {
            Client::Probe => upstream.has_failed_probe(),
            _ => upstream.has_failed(self.now),
        }
    }

    fn ask_by_udp(&mut self, ticket: Ticket, at: usize) -> io::Result<Link> {
        let most = self.sockets_of_each();
        let (now, upstream) = (self.now, &mut self.upstreams[at]);
        let (epoll, sockets, next) = (&self.epoll, &mut self.sockets, &mut self.next_socket);
        let register = registering(epoll, sockets, next, at);
        let socket = upstream.ports.choose(&mut self.random, most, register)?;
        upstream.ports.count(socket, now);
        let id = loop {
            let id = self.random.number()?;
            if !self.by_link.contains_key(&Link::Udp { socket, id }) {
                break id;
            }
        };
        if let Some(pending) = self.pending.get(ticket) {
            pending.upstream = at;
            pending.sent.clear();
            if pending.client != Client::Probe && self.upstreams[at].keeps_case(now) {
                pending.sent.extend_from_slice(pending.query.get(HEADER..pending.name_end).unwrap_or_default());
                self.random.spell(&mut pending.sent)?;
            }
            let message = self.upstreams[at].outbox.push(&pending.query, id, None);
            Question::spell(message, &pending.sent);
        }
        Ok(Link::Udp { socket, id })
    }

    /// Puts a query in line on the connection to an upstream.
    /// A client that came by TCP may want more than a datagram holds: its query goes by TCP too.
    fn ask_by_stream(&mut self, ticket: Ticket, at: usize) -> io::Result<Link> {
        let connection = match self.usable_connection(at) {
            Some(connection) => connection,
            None => {
                let tcp = begin_connect(self.upstreams[at].address)?;
                let stream = match &self.upstreams[at].settings.tls {
                    Some(tls) => Stream::within(tcp, tls)?,
                    None => Stream::plain(tcp),
                };
                let connection = Connection::new(stream, ConnectionOwner::Upstream(at), self.now)?;
                let connection = self.connections.insert(connection).slot;
                self.upstreams[at].connection = Some(connection);
                if let Err(error) = self.register(connection) {
                    self.end(connection);
                    return Err(error);
                }
                connection
            }
        };
        let id = loop {
            let id = self.random.number()?;
            if !self.by_link.contains_key(&Link::Tcp { connection, id }) {
                break id;
            }
        };
        if let (Some(pending), Some(link)) = (self.pending.get(ticket), self.connections.at(connection)) {
            pending.upstream = at;
            if !pending.distrusts_udp {
                pending.sent.clear();
            }
            // What was asked over UDP is asked as it was then: the reply shows whether the upstream keeps the case.
            Question::spell(link.push(&pending.query, id), &pending.sent);
            link.open += 1;
            link.last_used = self.now;
        }
        Ok(Link::Tcp { connection, id })
    }

    /// Asks again by another way, since no answer can come by this one; or gives up.
    pub(super) fn try_elsewhere(&mut self, ticket: Ticket) -> io::Result<()> {
        if let Some(pending) = self.pending.get(ticket) {
            let (link, upstream) = (pending.link.take(), pending.upstream);
            self.unlink(link, upstream);
        }
        self.try_again(ticket)
    }

    /// Asks again, or gives up.
    pub(super) fn try_again(&mut self, ticket: Ticket) -> io::Result<()> {
        let most = self.settings.tries;
        let Some(pending) = self.pending.get(ticket) else { return Ok(()) };
        if pending.client == Client::Probe {
            self.forget(ticket);
            return Ok(());
        }
        if pending.tries < most_tries(most, pending.route.as_deref()) {
            self.counters.retries += 1;
            return self.ask(ticket);
        }
        self.give_up(ticket);
        Ok(())
    }

    /// SERVFAIL.
    pub(super) fn serv_fail(&mut self, ticket: Ticket) {
        let Some(pending) = self.pending.get(ticket) else { return };
        let (client, failure) = (pending.client, reply::failure(&pending.query, Rcode::SERV_FAIL));
        self.send(client, &failure);
        self.forget(ticket);
    }

    /// Asks an upstream that is down whether it is back.
    pub(super) fn probe(&mut self) -> io::Result<()> {
        for at in 0..self.upstreams.len() {
            if !self.upstreams[at].is_replaced && self.upstreams[at].must_be_probed(self.now) {
                let query = match &self.upstreams[at].settings.health {
                    Health::ByChecks { query, .. } => &query[..],
                    Health::ByQueries | Health::Assumed => &PROBE,
                };
                let ticket = self.pending.insert(Client::Probe, query, self.now);
                if let Some(pending) = self.pending.get(ticket) {
                    pending.upstream = at;
                }
                self.ask(ticket)?;
            }
        }
        Ok(())
    }
}

/// Makes a socket to the upstream known: its replies are waited for, and it gets the next number.
pub(super) fn registering(
    epoll: &Epoll,
    sockets: &mut FxHashMap<u32, usize>,
    next: &mut u32,
    upstream: usize,
) -> impl Register {
    move |udp: &UdpSocket| {
        let number = *next;
        *next = next.wrapping_add(1);
        epoll.add(udp, super::event(EpollFlags::EPOLLIN, super::Token::Upstream(number)))?;
        sockets.insert(number, upstream);
        Ok(number)
    }
}

/// How often a query may be asked by a route.
pub(super) fn most_tries(most: u8, route: Option<&Route>) -> u8 {
    route.and_then(|route| route.tries).map_or(most, |own| own.min(most))
}
