//! Upstreams over HTTPS. A task of other threads has the connection (`encrypted::upstream`); the loop gives it queries,
//! is woken for what it heard, and decides when time is up, as with every other upstream.

use super::Engine;
use super::connections::Broken;
use crate::learn::Learn;
use crate::server::encrypted::upstream::{HeardBox, HttpsConnection, HttpsHeard, RequestError, Target};
use crate::server::lock;
use crate::server::pending::{Link, Ticket};
use std::io;
use std::time::{Duration, Instant};

/// The connection of an upstream over HTTPS, if there is one.
#[derive(Debug, Default)]
pub(in crate::server) struct HttpsLink {
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    connection: HttpsConnection,
    since: Instant,
    last_used: Instant,
    last_heard: Instant,
    /// Queries under way over it.
    open: u32,
}

impl HttpsLink {
    fn of(&mut self, number: u32) -> Option<&mut Current> {
        self.current.as_mut().filter(|current| current.connection.number == number)
    }

    /// A query over a connection is over.
    pub(in crate::server) fn settle(&mut self, number: u32) {
        if let Some(current) = self.of(number) {
            current.open = current.open.saturating_sub(1);
        }
    }

    /// Lets go of the connection. What was asked by it is still answered.
    pub(in crate::server) fn end(&mut self) {
        self.current = None;
    }

    /// Lets go of a connection that nobody has used for so long.
    pub(in crate::server) fn end_idle(&mut self, now: Instant, idle: Duration) {
        let is_idle = |one: &Current| one.open == 0 && now.saturating_duration_since(one.last_used) >= idle;
        if self.current.as_ref().is_some_and(is_idle) {
            self.end();
        }
    }

    /// The connection that queries go by, unless there is none, or it is time for another.
    fn usable(&mut self, now: Instant, most_age: Option<Duration>) -> Option<&mut Current> {
        let is_old = |one: &Current| most_age.is_some_and(|age| now.saturating_duration_since(one.since) >= age);
        if self.current.as_ref().is_some_and(|one| one.connection.is_over() || is_old(one)) {
            self.end();
        }
        self.current.as_mut()
    }
}

impl<L: Learn> Engine<L> {
    /// Gives a query to the connection of an upstream over HTTPS, which is begun if there is none.
    pub(super) fn ask_by_https(&mut self, ticket: Ticket, at: usize) -> io::Result<Link> {
        let (now, most_age) = (self.now, self.upstreams[at].settings.most_age);
        if self.upstreams[at].https.usable(now, most_age).is_none() {
            let connection = self.begin_https(at)?;
            let current = Current { connection, since: now, last_used: now, last_heard: now, open: 0 };
            self.upstreams[at].https.current = Some(current);
        }
        let closed = || io::Error::from(io::ErrorKind::NotConnected);
        let connection =
            self.upstreams[at].https.current.as_ref().map(|one| one.connection.number).ok_or_else(closed)?;
        let id = loop {
            let id = self.random.number()?;
            if !self.by_link.contains_key(&Link::Https { connection, id }) {
                break id;
            }
        };
        let (Some(pending), Some(current)) = (self.pending.get(ticket), self.upstreams[at].https.of(connection)) else {
            return Err(closed());
        };
        pending.upstream = at;
        // Nobody can forge what comes over TLS: the question goes out as the client spelled it.
        pending.sent.clear();
        if !current.connection.ask(&pending.query, id) {
            return Err(closed());
        }
        (current.open, current.last_used) = (current.open + 1, now);
        Ok(Link::Https { connection, id })
    }

    fn begin_https(&mut self, at: usize) -> io::Result<HttpsConnection> {
        let upstream = &self.upstreams[at];
        let (Some(tls), Some(path)) = (&upstream.settings.tls, &upstream.settings.http_path) else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let target = Target { address: upstream.address, tls: tls.clone(), path: path.clone() };
        let number = self.next_socket;
        self.next_socket = self.next_socket.wrapping_add(1);
        let heard = HeardBox { heard: self.heard_https.clone(), wake: self.wake.clone() };
        Ok(HttpsConnection::start(number, target, heard, &self.crew.threads().handle()?))
    }

    /// Goes on with what upstreams over HTTPS have answered.
    pub(super) fn take_heard_https(&mut self) -> io::Result<()> {
        let mut all = std::mem::take(&mut *lock(&self.heard_https));
        // Answers first: a failure of their connection has everything asked again that is still under way over it.
        all.sort_by_key(|heard| heard.answer.is_err());
        for HttpsHeard { number, id, answer, has_answered } in all {
            let link = Link::Https { connection: number, id };
            // Who asked has given up, or asked elsewhere.
            let Some(&ticket) = self.by_link.get(&link) else { continue };
            let Some(upstream) = self.pending.get(ticket).map(|pending| pending.upstream) else { continue };
            match answer {
                Ok(answer) => {
                    if let Some(current) = self.upstreams[upstream].https.of(number) {
                        current.last_heard = self.now;
                    }
                    self.take_answer(upstream, |id| Link::Https { connection: number, id }, &answer)?;
                }
                Err(error) => {
                    let address = self.upstreams[upstream].address;
                    self.upstreams[upstream].trouble = Some(format!("{address}: {error}"));
                    match error {
                        RequestError::Response(_) => self.lost(vec![ticket])?,
                        RequestError::Connection(_) => self.break_off_https(upstream, number, has_answered),
                    }
                }
            }
        }
        Ok(())
    }

    /// Lets go of a connection that has failed. All queries that are under way over it are asked again together, as
    /// with TCP (`mend`): the connection counts as one failure, or as none if it has answered before.
    fn break_off_https(&mut self, upstream: usize, number: u32, has_answered: bool) {
        if self.upstreams[upstream].https.of(number).is_some() {
            self.upstreams[upstream].https.end();
        }
        let tickets = self.tickets(|link| matches!(link, Link::Https { connection, .. } if *connection == number));
        for &ticket in &tickets {
            let link = self.pending.get(ticket).and_then(|pending| pending.link.take());
            self.unlink(link, upstream);
        }
        self.broken.push(Broken { tickets, has_answered });
    }

    /// Ends the connection of an upstream over HTTPS that has said nothing since a query was begun: what was asked by
    /// it is asked elsewhere, or by another. False if it is not dead.
    pub(super) fn end_dead_https(&mut self, upstream: usize, number: u32, begun: Instant) -> io::Result<bool> {
        match self.upstreams[upstream].https.of(number) {
            Some(current) if current.last_heard > begun => return Ok(false),
            Some(current) => {
                current.connection.abort();
                self.upstreams[upstream].https.end();
            }
            None => {}
        }
        let lost = self.tickets(|link| matches!(link, Link::Https { connection, .. } if *connection == number));
        self.lost(lost)?;
        Ok(true)
    }
}
