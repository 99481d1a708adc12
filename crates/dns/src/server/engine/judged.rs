//! What a chain says of questions and answers.

use super::Engine;
use crate::caught::caught;
use crate::chain::{Asked, Chain, Heard, Passing, Step, To};
use crate::learn::Learn;
use crate::server::lock;
use crate::server::pending::{Client, Link, Ticket};
use crate::server::route::Route;
use crate::wire::reply;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Servers that rules name, at most.
const MOST_SERVERS: usize = 1_024;

/// What a thread that waited has come to.
pub(super) enum Judged {
    Step(Step),
    Passing(Passing),
    /// To nothing: it panicked.
    Failed,
}

/// A chain, and the routes it knows by their numbers: they change together.
#[derive(Debug)]
pub(in crate::server) struct Law {
    pub(super) chain: Arc<dyn Chain>,
    routes: Vec<Arc<Route>>,
}

impl<L: Learn> Engine<L> {
    /// Asks the chain what becomes of a query, or asks an upstream if there is none.
    pub(super) fn judge_query(&mut self, ticket: Ticket) -> io::Result<()> {
        let Some(pending) = self.pending.get(ticket) else { return Ok(()) };
        pending.law = self.law.clone();
        let listener = pending.client.listener().unwrap_or(0);
        let Some(law) = &self.law else {
            let route = self.routes[listener].clone();
            return self.ask_by(ticket, route);
        };
        let (chain, server) = (law.chain.clone(), self.listeners[listener].address);
        let step = caught(|| self.asked(ticket, server).map_or(Step::Silence, |asked| chain.query(&asked)));
        match step {
            Some(step) => self.take_step(ticket, step),
            None => {
                self.fail(ticket);
                Ok(())
            }
        }
    }

    /// The question as a chain sees it.
    fn asked(&mut self, ticket: Ticket, server: SocketAddr) -> Option<Asked<'_>> {
        let pending = self.pending.get(ticket)?;
        let (client, over_tcp) = match pending.client {
            Client::Udp { from, .. } => (from, false),
            Client::Tcp { from, .. } => (from, true),
            Client::Probe => return None,
        };
        Some(Asked { query: &pending.query, client, server, over_tcp })
    }

    fn take_step(&mut self, ticket: Ticket, step: Step) -> io::Result<()> {
        match step {
            Step::Forward(to, notes) => {
                let Some(pending) = self.pending.get(ticket) else { return Ok(()) };
                pending.notes = notes;
                let law = pending.law.clone();
                match self.route_to(to, law.as_deref()) {
                    Some(route) => self.ask_by(ticket, route),
                    None => {
                        self.fail(ticket);
                        Ok(())
                    }
                }
            }
            Step::Reply(reply) => {
                self.reply(ticket, reply);
                Ok(())
            }
            Step::Answer(answer) => {
                let Some(pending) = self.pending.get(ticket) else { return Ok(()) };
                let is_udp = matches!(pending.client, Client::Udp { .. });
                let answer = if is_udp { reply::fit(&pending.query, answer) } else { answer };
                self.give(ticket, &answer);
                Ok(())
            }
            Step::Silence => {
                self.forget(ticket);
                Ok(())
            }
            Step::Later(judge) => {
                self.submit(ticket, move || Judged::Step(judge()));
                Ok(())
            }
        }
    }

    fn route_to(&mut self, to: To, law: Option<&Law>) -> Option<Arc<Route>> {
        match to {
            To::Route(number) => law?.routes.get(number).cloned(),
            // A question that came back to us would be sent to us again.
            To::Server(server) if self.listeners.iter().any(|listener| listener.address == server) => None,
            To::Server(server) => {
                if let Some(route) = self.servers.get(&server) {
                    return Some(route.clone());
                }
                if self.servers.len() >= MOST_SERVERS {
                    return None;
                }
                let route = Arc::new(Route::to(self.upstreams_at(&[server])));
                self.servers.insert(server, route.clone());
                Some(route)
            }
        }
    }

    /// Whether an answer passes at once. What does not is dealt with, or will be.
    pub(super) fn passes(&mut self, ticket: Ticket, answer: &[u8]) -> bool {
        let Some(pending) = self.pending.get(ticket) else { return false };
        let Some(chain) = pending.law.as_ref().map(|law| law.chain.clone()) else { return true };
        let (client, notes) = (pending.client, pending.notes.take());
        let over_tcp = matches!(pending.link, Some(Link::Tcp { .. }));
        let (upstream, since) = (self.upstreams[pending.upstream].address, pending.last_asked);
        let server = self.listeners[client.listener().unwrap_or(0)].address;
        let passing = caught(|| {
            let Some(asked) = self.asked(ticket, server) else { return Passing::Silence };
            chain.heard(&asked, &Heard { upstream, since, over_tcp, answer });
            chain.answer(&asked, answer, notes)
        });
        let Some(passing) = passing else {
            self.fail(ticket);
            return false;
        };
        match passing {
            Passing::Pass => return true,
            Passing::Later(judge) => {
                if let Some(pending) = self.pending.get(ticket) {
                    pending.answer.clear();
                    pending.answer.extend_from_slice(answer);
                    let (link, upstream) = (pending.link.take(), pending.upstream);
                    self.unlink(link, upstream);
                }
                self.submit(ticket, move || Judged::Passing(judge()));
            }
            other => self.take_passing(ticket, other),
        }
        false
    }

    fn take_passing(&mut self, ticket: Ticket, passing: Passing) {
        match passing {
            Passing::Pass => {
                let Some(pending) = self.pending.get(ticket) else { return };
                let answer = std::mem::take(&mut pending.answer);
                self.give(ticket, &answer);
            }
            Passing::Instead(reply) => self.reply(ticket, reply),
            Passing::Silence => self.forget(ticket),
            Passing::Later(judge) => self.submit(ticket, move || Judged::Passing(judge())),
        }
    }

    /// Tells the chain that there is no answer: SERVFAIL.
    pub(super) fn fail(&mut self, ticket: Ticket) {
        if let Some(pending) = self.pending.get(ticket)
            && let Some(chain) = pending.law.as_ref().map(|law| law.chain.clone())
        {
            let (client, notes) = (pending.client, pending.notes.take());
            let server = self.listeners[client.listener().unwrap_or(0)].address;
            caught(|| self.asked(ticket, server).map(|asked| chain.failed(&asked, notes)));
        }
        self.serv_fail(ticket);
    }

    /// Sends what is nobody else's word.
    fn reply(&mut self, ticket: Ticket, reply: Vec<u8>) {
        let Some(pending) = self.pending.get(ticket) else { return };
        let (client, id) = (pending.client, pending.id);
        let is_udp = matches!(client, Client::Udp { .. });
        let reply = if is_udp { reply::fit(&pending.query, reply) } else { reply };
        self.send_as(client, &reply, id);
        self.forget(ticket);
    }

    fn submit(&mut self, ticket: Ticket, judge: impl FnOnce() -> Judged + Send + 'static) {
        let judged = self.judged.clone();
        let is_taken = self.workers.submit(self.wake.clone(), move || {
            let one = caught(judge).unwrap_or(Judged::Failed);
            lock(&judged).push((ticket, one));
        });
        if !is_taken {
            self.counters.over_limit += 1;
            self.fail(ticket);
        }
    }

    /// Goes on with what was judged meanwhile.
    pub(super) fn take_judged(&mut self) -> io::Result<()> {
        let judged = std::mem::take(&mut *lock(&self.judged));
        judged.into_iter().try_for_each(|(ticket, judged)| match judged {
            Judged::Step(step) => self.take_step(ticket, step),
            Judged::Passing(passing) => {
                self.take_passing(ticket, passing);
                Ok(())
            }
            Judged::Failed => {
                self.fail(ticket);
                Ok(())
            }
        })
    }

    /// Goes on by another chain; what is under way is judged by the one it met.
    pub(in crate::server) fn set_chain(&mut self, chain: Option<Arc<dyn Chain>>) {
        let routes = self.named_routes.clone();
        self.law = chain.map(|chain| Arc::new(Law { chain, routes }));
    }
}
