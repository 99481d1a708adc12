//! What a chain says of questions and answers.

use super::Engine;
use crate::caught::caught;
use crate::chain::{Asked, Chain, Continuation, Failure, Heard, Passing, Step, To};
use crate::learn::Learn;
use crate::server::lock;
use crate::server::pending::{Client, Ticket};
use crate::server::route::Route;
use crate::server::workers::WorkerSlot;
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
pub(in crate::server) struct ChainVersion {
    pub(super) chain: Arc<dyn Chain>,
    pub(super) routes: Vec<Arc<Route>>,
}

impl<L: Learn> Engine<L> {
    /// Asks the chain what becomes of a query, or asks an upstream if there is none.
    pub(super) fn judge_query(&mut self, ticket: Ticket) -> io::Result<()> {
        let Some(pending) = self.pending.get(ticket) else { return Ok(()) };
        pending.chain_version = self.chain_version.clone();
        let listener = pending.client.listener().unwrap_or(0);
        let Some(chain_version) = &self.chain_version else {
            let Some(route) = self.routes.get(listener).cloned() else {
                self.serv_fail(ticket);
                return Ok(());
            };
            return self.ask_by(ticket, route);
        };
        let chain = chain_version.chain.clone();
        let step = caught(|| self.asked(ticket).map_or(Step::Silence, |asked| chain.query(&asked)));
        match step {
            Some(step) => self.take_step(ticket, step),
            None => {
                self.fail(ticket, Failure::NotJudged);
                Ok(())
            }
        }
    }

    /// The question as a chain sees it.
    fn asked(&mut self, ticket: Ticket) -> Option<Asked<'_>> {
        let server =
            self.pending.get(ticket).map(|pending| pending.client).and_then(|client| self.server_of(client))?;
        let pending = self.pending.get(ticket)?;
        let transport = pending.client.transport();
        let client = match pending.client {
            Client::Udp { from, .. }
            | Client::Tcp { from, .. }
            | Client::Encrypted { from, .. }
            | Client::Renewal { from, .. } => from,
            Client::Probe => return None,
        };
        Some(Asked { query: &pending.query, client, server, transport })
    }

    /// Where a question came in, if it came in at all.
    fn server_of(&self, client: Client) -> Option<SocketAddr> {
        match client {
            Client::Renewal { server, .. } | Client::Encrypted { server, .. } => Some(server),
            Client::Udp { listener, .. } | Client::Tcp { listener, .. } => {
                self.listeners.get(listener).map(|listener| listener.address)
            }
            Client::Probe => None,
        }
    }

    fn take_step(&mut self, ticket: Ticket, step: Step) -> io::Result<()> {
        match step {
            Step::Forward(to, continuation) => {
                if let Some(pending) = self.pending.get(ticket) {
                    pending.continuation = Some(continuation);
                }
                self.forward(ticket, to)
            }
            Step::Reply(reply) => {
                self.reply(ticket, reply);
                Ok(())
            }
            Step::Answer(answer) => {
                self.give_own(ticket, answer);
                Ok(())
            }
            Step::Renew(answer, to, continuation) => {
                let renewal = self.begin_renewal(ticket, continuation);
                self.give_own(ticket, answer);
                renewal.map_or(Ok(()), |renewal| self.forward(renewal, to))
            }
            Step::Silence => {
                self.forget(ticket);
                Ok(())
            }
            Step::Later(judge) => {
                self.submit(ticket, None, move || Judged::Step(judge()));
                Ok(())
            }
            Step::LaterOn(slot, judge) => {
                self.submit(ticket, Some(slot), move || Judged::Step(judge()));
                Ok(())
            }
        }
    }

    /// Asks whom the chain says.
    fn forward(&mut self, ticket: Ticket, to: To) -> io::Result<()> {
        let Some(pending) = self.pending.get(ticket) else { return Ok(()) };
        let chain_version = pending.chain_version.clone();
        match self.route_to(to, chain_version.as_deref()) {
            Some(route) => self.ask_by(ticket, route),
            None => {
                self.fail(ticket, Failure::NoAnswer(None));
                Ok(())
            }
        }
    }

    /// The same question once more, which nobody waits for; unless there is too much to do already.
    fn begin_renewal(&mut self, ticket: Ticket, continuation: Box<dyn Continuation>) -> Option<Ticket> {
        if self.pending.len() >= self.settings.most_queries {
            return None;
        }
        let client = self.pending.get(ticket)?.client;
        let server = self.server_of(client)?;
        let pending = self.pending.get(ticket)?;
        let (Client::Udp { from, .. } | Client::Tcp { from, .. } | Client::Encrypted { from, .. }) = client else {
            return None;
        };
        let renewal = Client::Renewal { server, from, over_tcp: client.is_by_tcp() };
        let (query, chain_version) = (pending.query.clone(), pending.chain_version.clone());
        let renewal = self.pending.insert(renewal, &query, self.now);
        let pending = self.pending.get(renewal)?;
        (pending.chain_version, pending.continuation) = (chain_version, Some(continuation));
        Some(renewal)
    }

    /// The answer to a question that nobody waits for.
    pub(super) fn renewed(&mut self, ticket: Ticket, answer: &[u8]) -> io::Result<()> {
        let Some(pending) = self.pending.get(ticket) else { return Ok(()) };
        let Some(continuation) = pending.continuation.take() else {
            self.forget(ticket);
            return Ok(());
        };
        let transport = self.upstreams[pending.upstream].transport(pending.is_by_stream);
        let (upstream, since) = (self.upstreams[pending.upstream].address, pending.last_asked);
        let next = caught(|| continuation.renewed(&Heard { upstream, since, transport, answer }));
        match next.flatten() {
            Some((to, continuation)) => {
                if let Some(pending) = self.pending.get(ticket) {
                    pending.continuation = Some(continuation);
                }
                self.forward(ticket, to)
            }
            None => {
                self.forget(ticket);
                Ok(())
            }
        }
    }

    /// Gives an answer that came from no upstream just now.
    fn give_own(&mut self, ticket: Ticket, answer: Vec<u8>) {
        let Some(pending) = self.pending.get(ticket) else { return };
        let is_udp = matches!(pending.client, Client::Udp { .. });
        let answer = if is_udp { reply::fit(&pending.query, answer) } else { answer };
        self.give(ticket, &answer);
    }

    fn route_to(&mut self, to: To, chain_version: Option<&ChainVersion>) -> Option<Arc<Route>> {
        match to {
            To::Route(number) => chain_version?.routes.get(number).cloned(),
            // A question that came back to us would be sent to us again.
            To::Server(server) if self.listeners.iter().any(|listener| listener.address == server) => None,
            To::Server(server) => {
                if let Some(route) = self.servers.get(&server) {
                    return Some(route.clone());
                }
                if self.servers.len() >= MOST_SERVERS {
                    return None;
                }
                let route = Arc::new(Route::to(self.upstreams_at(&[server.into()])));
                self.servers.insert(server, route.clone());
                Some(route)
            }
        }
    }

    /// Whether an answer passes at once. What does not is dealt with, or will be.
    pub(super) fn passes(&mut self, ticket: Ticket, answer: &[u8]) -> io::Result<bool> {
        let Some(pending) = self.pending.get(ticket) else { return Ok(false) };
        if pending.chain_version.is_none() {
            return Ok(true);
        }
        let continuation = pending.continuation.take();
        let transport = self.upstreams[pending.upstream].transport(pending.is_by_stream);
        let (upstream, since) = (self.upstreams[pending.upstream].address, pending.last_asked);
        let heard = Heard { upstream, since, transport, answer };
        // An answer that no chain has decided about does not pass.
        let passing = continuation.and_then(|continuation| caught(|| continuation.answer(&heard)));
        let Some(passing) = passing else {
            self.fail(ticket, Failure::NotJudged);
            return Ok(false);
        };
        match passing {
            Passing::Pass => return Ok(true),
            later @ (Passing::Later(_) | Passing::LaterOn(..)) => {
                if let Some(pending) = self.pending.get(ticket) {
                    pending.answer.clear();
                    pending.answer.extend_from_slice(answer);
                    let (link, upstream) = (pending.link.take(), pending.upstream);
                    self.unlink(link, upstream);
                }
                self.take_passing(ticket, later)?;
            }
            other => self.take_passing(ticket, other)?,
        }
        Ok(false)
    }

    fn take_passing(&mut self, ticket: Ticket, passing: Passing) -> io::Result<()> {
        match passing {
            Passing::Pass => {
                let Some(pending) = self.pending.get(ticket) else { return Ok(()) };
                let answer = std::mem::take(&mut pending.answer);
                // Without an upstream's answer there is none to pass.
                if answer.is_empty() {
                    self.serv_fail(ticket);
                } else {
                    self.give(ticket, &answer);
                }
            }
            Passing::Instead(reply) => self.reply(ticket, reply),
            Passing::Answer(answer) => self.give_own(ticket, answer),
            Passing::Forward(to, continuation) => {
                if let Some(pending) = self.pending.get(ticket) {
                    pending.continuation = Some(continuation);
                    pending.answer.clear();
                }
                return self.forward(ticket, to);
            }
            Passing::Silence => self.forget(ticket),
            Passing::Later(judge) => self.submit(ticket, None, move || Judged::Passing(judge())),
            Passing::LaterOn(slot, judge) => self.submit(ticket, Some(slot), move || Judged::Passing(judge())),
        }
        Ok(())
    }

    /// There is no answer: the chain says what its client gets.
    pub(super) fn fail(&mut self, ticket: Ticket, failure: Failure<'_>) {
        let Some(pending) = self.pending.get(ticket) else { return };
        let (client, continuation) = (pending.client, pending.continuation.take());
        // No answer is under way any more; what is said later must not be taken for one that passes.
        pending.answer.clear();
        let (link, upstream) = (pending.link.take(), pending.upstream);
        let chain = pending.chain_version.as_ref().map(|chain_version| chain_version.chain.clone());
        pending.place = None;
        self.unlink(link, upstream);
        if !client.waits() {
            self.forget(ticket);
            return;
        }
        let said = match continuation {
            Some(continuation) => caught(|| continuation.failed(failure)),
            None => chain
                .and_then(|chain| caught(|| self.asked(ticket).map(|asked| chain.failed(&asked, failure))).flatten()),
        };
        match said {
            Some(Passing::Instead(reply)) => self.reply(ticket, reply),
            Some(Passing::Answer(answer)) => self.give_own(ticket, answer),
            Some(Passing::Silence) => self.forget(ticket),
            Some(Passing::Later(judge)) if failure != Failure::NotJudged => {
                self.submit(ticket, None, move || Judged::Passing(judge()));
            }
            Some(Passing::LaterOn(slot, judge)) if failure != Failure::NotJudged => {
                self.submit(ticket, Some(slot), move || Judged::Passing(judge()));
            }
            Some(Passing::Pass | Passing::Forward(..) | Passing::Later(_) | Passing::LaterOn(..)) | None => {
                self.serv_fail(ticket);
            }
        }
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

    /// Has a thread decide, one of the chain's own pool if there is a slot of it.
    fn submit(&mut self, ticket: Ticket, slot: Option<WorkerSlot>, judge: impl FnOnce() -> Judged + Send + 'static) {
        let client = self.pending.get(ticket).and_then(|pending| pending.client.address());
        let judged = self.judged.clone();
        let job = move || {
            let one = caught(judge).unwrap_or(Judged::Failed);
            lock(&judged).push((ticket, one));
        };
        let slot = slot.or_else(|| self.crew.workers().reserve(client));
        if !slot.is_some_and(|slot| slot.submit(self.wake.clone(), job)) {
            self.counters.over_limit += 1;
            self.fail(ticket, Failure::NotJudged);
        }
    }

    /// Goes on with what was judged meanwhile.
    pub(super) fn take_judged(&mut self) -> io::Result<()> {
        let judged = std::mem::take(&mut *lock(&self.judged));
        judged.into_iter().try_for_each(|(ticket, judged)| match judged {
            Judged::Step(step) => self.take_step(ticket, step),
            Judged::Passing(passing) => self.take_passing(ticket, passing),
            Judged::Failed => {
                self.fail(ticket, Failure::NotJudged);
                Ok(())
            }
        })
    }

    /// Goes on by another chain; what is under way is judged by the one it met.
    pub(in crate::server) fn set_chain(&mut self, chain: Option<Arc<dyn Chain>>) {
        let routes = self.named_routes.clone();
        self.chain_version = chain.map(|chain| Arc::new(ChainVersion { chain, routes }));
    }
}
