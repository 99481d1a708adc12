//! Connections over TCP, clients' and our own to upstreams.

use super::{Engine, Token, event};
use crate::learn::Learn;
use crate::server::pending::{Client, Link, Ticket};
use crate::server::settings::plain;
use crate::server::stream::Stream;
use crate::server::tcp::{Connection, ConnectionOwner};
use nix::sys::epoll::EpollFlags;
use std::io;
use std::net::IpAddr;

/// A connection to an upstream that has ended.
#[derive(Debug)]
pub(super) struct Broken {
    /// What was under way over it.
    pub(super) tickets: Vec<Ticket>,
    /// It was good for something.
    pub(super) has_answered: bool,
}

/// Queries a client may have under way over one connection; more wait unread.
const MOST_PIPELINED: u32 = 128;

impl<L: Learn> Engine<L> {
    pub(super) fn accept(&mut self, listener: usize) {
        while let Some((stream, from)) = self.listeners[listener].accept() {
            if !self.is_welcome(listener, from) {
                continue;
            }
            if !self.make_room_for_connection(plain(from)) {
                self.counters.over_limit += 1;
                continue;
            }
            let end = ConnectionOwner::Client { listener, from };
            let Ok(connection) = Connection::new(Stream::plain(stream), end, self.now) else { continue };
            self.counters.connections += 1;
            let slot = self.connections.insert(connection).slot;
            self.connection_shares.enter(plain(from), slot);
            if self.register(slot).is_err() {
                self.end(slot);
            }
        }
    }

    /// True if the client may have one more connection. If there are too many in all, the client that has most gives
    /// way, unless it is this one: of its connections the one that was used least recently ends.
    fn make_room_for_connection(&mut self, client: IpAddr) -> bool {
        let own = self.connection_shares.count(client);
        if own >= self.settings.most_connections_of_client {
            return false;
        }
        if self.connections.len() < self.settings.most_connections {
            return true;
        }
        let heaviest = self.connection_shares.heaviest().filter(|(_, count)| *count > own + 1);
        let Some((heaviest, _)) = heaviest else { return false };
        let slots: Vec<u32> = self.connection_shares.places_of(heaviest).collect();
        let last_used = |slot: &u32| self.connections.at(*slot).map(|one| one.last_used);
        let Some(slot) = slots.into_iter().min_by_key(last_used) else { return false };
        self.counters.evicted += 1;
        self.end(slot);
        true
    }

    pub(super) fn register(&mut self, slot: u32) -> io::Result<()> {
        let Some(connection) = self.connections.at(slot) else { return Ok(()) };
        // To an upstream it is connected when it can be written to.
        connection.waits_to_write = matches!(connection.end, ConnectionOwner::Upstream(_));
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT;
        let flags = if connection.waits_to_write { flags } else { EpollFlags::EPOLLIN };
        Ok(self.epoll.add(&connection.stream.tcp, event(flags, Token::Connection(slot)))?)
    }

    /// Tells epoll what is waited for now.
    fn watch(&mut self, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        let mut flags = EpollFlags::empty();
        let may_read = !connection.is_half_closed && connection.open < MOST_PIPELINED;
        if may_read || matches!(connection.end, ConnectionOwner::Upstream(_)) {
            flags |= EpollFlags::EPOLLIN;
        }
        if connection.has_output() {
            flags |= EpollFlags::EPOLLOUT;
        }
        let _ = self.epoll.modify(&connection.stream.tcp, &mut event(flags, Token::Connection(slot)));
    }

    /// Writes what is to be written, as far as it goes.
    pub(super) fn write(&mut self, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        let is_over = |one: &Connection| one.is_half_closed && one.open == 0 && !one.has_output();
        match connection.write() {
            Err(error) => return self.break_off(slot, &error),
            Ok(()) if is_over(connection) => return self.end(slot),
            Ok(()) => {}
        }
        if connection.has_output() != connection.waits_to_write {
            connection.waits_to_write = connection.has_output();
            self.watch(slot);
        }
    }

    pub(super) fn serve(&mut self, slot: u32, flags: EpollFlags) -> io::Result<()> {
        if flags.contains(EpollFlags::EPOLLOUT) {
            self.write(slot);
        }
        let gone = EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
        if !flags.intersects(EpollFlags::EPOLLIN | gone) {
            return Ok(());
        }
        if flags.intersects(gone) && self.connections.at(slot).is_some_and(|one| one.is_half_closed) {
            // It is gone altogether. Its end has been read: reading would tell no more, and epoll tell it for ever.
            self.end(slot);
            return Ok(());
        }
        let mut buffer = std::mem::take(&mut self.scratch);
        buffer.resize(16 << 10, 0);
        let goes_on = match self.connections.at(slot) {
            Some(connection) => connection.read(&mut buffer, self.now),
            None => Ok(false),
        };
        self.take_messages(slot, &mut buffer)?;
        self.scratch = buffer;
        match goes_on {
            // A handshake answers what it reads.
            Ok(true) if self.connections.at(slot).is_some_and(|one| one.stream.must_flush()) => self.write(slot),
            Ok(true) => {}
            Ok(false) => self.half_close(slot),
            Err(error) => self.break_off(slot, &error),
        }
        Ok(())
    }

    /// Deals with the whole messages that were read.
    fn take_messages(&mut self, slot: u32, message: &mut Vec<u8>) -> io::Result<()> {
        let ticket = self.connections.ticket(slot);
        while let Some(connection) = self.connections.get(ticket) {
            let end = connection.end;
            let is_full = matches!(end, ConnectionOwner::Client { .. }) && connection.open >= MOST_PIPELINED;
            if is_full {
                connection.is_paused = true;
                self.watch(slot);
                break;
            }
            if !connection.next(message) {
                break;
            }
            connection.last_used = self.now;
            match end {
                ConnectionOwner::Client { listener, from } => {
                    connection.open += 1;
                    self.take_query(Client::Tcp { connection: ticket, listener, from }, message)?;
                }
                ConnectionOwner::Upstream(upstream) => {
                    connection.has_answered = true;
                    self.take_answer(upstream, |id| Link::Tcp { connection: slot, id }, message)?;
                }
            }
        }
        Ok(())
    }

    /// A client's query is over: there may be room for the next.
    pub(super) fn settle(&mut self, ticket: Ticket) {
        let Some(connection) = self.connections.get(ticket) else { return };
        connection.open = connection.open.saturating_sub(1);
        if connection.is_half_closed && connection.open == 0 && !connection.has_output() {
            self.end(ticket.slot);
        } else if connection.is_paused && connection.open < MOST_PIPELINED / 2 {
            connection.is_paused = false;
            self.resumed.push(ticket);
        }
    }

    /// Goes on with connections that had too much under way.
    pub(super) fn resume(&mut self) -> io::Result<()> {
        for ticket in std::mem::take(&mut self.resumed) {
            let mut message = std::mem::take(&mut self.scratch);
            self.take_messages(ticket.slot, &mut message)?;
            self.scratch = message;
            if self.connections.get(ticket).is_some() {
                self.watch(ticket.slot);
            }
        }
        Ok(())
    }

    /// The other end sends no more; a client may still want its answers.
    fn half_close(&mut self, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        if matches!(connection.end, ConnectionOwner::Client { .. }) && (connection.open > 0 || connection.has_output())
        {
            connection.is_half_closed = true;
            self.watch(slot);
        } else {
            self.end(slot);
        }
    }

    /// Ends a connection that something is wrong with.
    fn break_off(&mut self, slot: u32, error: &io::Error) {
        if let Some(&ConnectionOwner::Upstream(upstream)) = self.connections.at(slot).map(|one| &one.end) {
            self.upstreams[upstream].trouble = Some(format!("{}: {error}", self.upstreams[upstream].address));
        }
        self.end(slot);
    }

    /// Ends a connection to an upstream that does not say anything any more.
    pub(super) fn end_dead(&mut self, slot: u32) {
        if let Some(connection) = self.connections.at(slot) {
            // Whatever it was good for, it no longer is.
            connection.has_answered = false;
        }
        self.end(slot);
    }

    /// The connection that queries to an upstream go by, unless there is none, or it is time for another.
    pub(super) fn usable_connection(&mut self, upstream: usize) -> Option<u32> {
        let slot = self.upstreams[upstream].connection?;
        let settings = &self.upstreams[upstream].settings;
        let idle = settings.idle_timeout.unwrap_or(self.settings.idle_timeout);
        let (now, most_age) = (self.now, settings.most_age);
        let connection = self.connections.at(slot)?;
        let is_idle = connection.open == 0 && now.saturating_duration_since(connection.last_used) >= idle;
        let is_old = most_age.is_some_and(|age| now.saturating_duration_since(connection.since) >= age);
        if !is_idle && !is_old {
            return Some(slot);
        }
        if connection.open == 0 {
            self.end(slot);
        } else {
            // What was asked by it may still be answered; then it is idle, and ends.
            self.upstreams[upstream].connection = None;
        }
        None
    }

    pub(super) fn end(&mut self, slot: u32) {
        let Some(mut connection) = self.connections.remove(slot) else { return };
        let _ = self.epoll.delete(&connection.stream.tcp);
        connection.stream.close();
        match connection.end {
            ConnectionOwner::Client { .. } => self.connection_shares.leave(slot),
            ConnectionOwner::Upstream(upstream) => {
                if self.upstreams[upstream].connection == Some(slot) {
                    self.upstreams[upstream].connection = None;
                }
                // At once: the next connection may have its place before anybody is asked again.
                let tickets = self.tickets(|link| matches!(link, Link::Tcp { connection, .. } if *connection == slot));
                for &ticket in &tickets {
                    let link = self.pending.get(ticket).and_then(|pending| pending.link.take());
                    self.unlink(link, upstream);
                }
                self.broken.push(Broken { tickets, has_answered: connection.has_answered });
            }
        }
    }

    /// Asks again what was under way over connections to upstreams that have ended.
    pub(super) fn mend(&mut self) -> io::Result<()> {
        while let Some(Broken { tickets, has_answered }) = self.broken.pop() {
            if !has_answered {
                self.lost(tickets)?;
                continue;
            }
            // A server may close after a few answers, whatever it was asked besides: no try is lost by that.
            let (now, time) = (self.now, self.settings.try_timeout * u32::from(self.settings.tries));
            for ticket in tickets {
                if let Some(pending) = self.pending.get(ticket).filter(|one| now < one.begun + time) {
                    pending.tries = pending.tries.saturating_sub(1);
                }
                self.try_elsewhere(ticket)?;
            }
        }
        Ok(())
    }

    pub(super) fn end_idle(&mut self) {
        let (now, limit) = (self.now, self.settings.idle_timeout);
        let limit_of = |one: &Connection| match one.end {
            ConnectionOwner::Upstream(at) => self.upstreams[at].settings.idle_timeout.unwrap_or(limit),
            ConnectionOwner::Client { .. } => limit,
        };
        let is_idle = |one: &Connection| one.open == 0 && now.saturating_duration_since(one.last_used) >= limit_of(one);
        // One whose answers nobody reads is not idle, but stuck.
        let is_stuck = |one: &Connection| now.saturating_duration_since(one.last_used) >= limit * 6;
        let idle: Vec<u32> =
            self.connections.iter().filter(|(_, one)| is_idle(one) || is_stuck(one)).map(|(slot, _)| slot).collect();
        idle.into_iter().for_each(|slot| self.end(slot));
    }
}
