//! Look-ups of our own: what others know of a name that an answer of ours leads to (`kubernetes`), of the addresses for
//! IPv4 of a name (`dns64`), and questions that are asked otherwise than the client asks them (`rewrite`, `header`). They
//! wait for upstreams, on a thread of the server's pool.
//!
//! A look-up of another name or type is a question of the client: the server block and the view that are for it are
//! chosen, and their rules, `acl` and `rewrite` decide. Of a question that is rewritten the rules see what the client
//! asks and gets.

use crate::acl::{self, Denied};
use crate::answer::refuse_redirect;
use crate::dns64::{self, Answers};
use crate::exchange::Exchange;
use crate::forward;
use crate::local::Alias;
use crate::message::Message;
use crate::records::{Decoded, encoded};
use crate::reply::{self, Sections};
use crate::report::Ruling;
use crate::rewrite::{self, Rewritten};
use crate::rpz::{Applied, Verdict};
use crate::rules::{Decision, Waiting, Walk};
use crate::shape::change_flags;
use namewall_corefile::{AclAction, Point};
use namewall_dns::wire::{HEADER, Header, Question, Rcode, RecordType, reply as plain};
use namewall_dns::{Asked, Upstream, UpstreamTransport, pass_on};
use namewall_expression::Outcome;
use namewall_zones::Record;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long an upstream is waited for, all upstreams of a question, and all questions that a look-up leads to.
const ONE: Duration = Duration::from_secs(2);
const ALL: Duration = Duration::from_secs(5);
const WHOLE: Duration = Duration::from_secs(10);
/// How many aliases of our own are followed.
const MOST_ALIASES: u8 = 10;

/// An answer of our own that is not whole yet.
pub(crate) enum Pending {
    /// It ends with an alias of a name.
    Alias { so_far: Vec<u8>, alias: Alias },
    /// There is none yet. A server is asked for it, if a rule redirects the question to one.
    All(Option<SocketAddr>),
    /// It has no address for IPv6.
    Dns64(Vec<u8>),
}

/// What has come of a look-up.
#[derive(Clone)]
pub(crate) enum Prepared {
    Answer(Vec<u8>),
    /// With the rule that denies it, unless `acl` does.
    Denied(Denied, Option<Ruling>),
}

/// Who does not let a look-up pass.
enum Stopped {
    Rules(Box<Decision>, Point),
    /// A policy zone, as it is reported.
    Policy(Box<Verdict>, Option<Ruling>),
    Acl(AclAction),
}

/// How a look-up goes on.
#[derive(Clone, Copy)]
struct Way {
    /// A rule redirects the question to this server.
    server: Option<SocketAddr>,
    left: Left,
}

/// How far a look-up may still go.
#[derive(Clone, Copy)]
struct Left {
    aliases: u8,
    until: Instant,
}

impl Left {
    fn all() -> Self {
        Self { aliases: MOST_ALIASES, until: Instant::now() + WHOLE }
    }
}

/// The question that is answered instead of the client's: `rewrite` and `header` have changed it.
pub(crate) struct Altered {
    pub(crate) inner: Exchange,
    pub(crate) rewritten: Option<Rewritten>,
}

impl Altered {
    /// The records of an answer up to an alias that leads elsewhere, and the name it leads to.
    fn led_elsewhere(&self, answer: &[u8]) -> Option<(Vec<Record>, Vec<u8>)> {
        self.rewritten.as_ref()?.led_elsewhere(answer)
    }
}

impl Exchange {
    /// Asks others, and makes the answer whole. Waits.
    pub(crate) fn look_up(&self, pending: &Pending) -> Prepared {
        let left = Left::all();
        let found = match pending {
            Pending::Alias { so_far, alias } => {
                self.complete(so_far, alias, left).map(|answer| self.dns64_of(answer, left))
            }
            Pending::All(server) => self.answered(Way { server: *server, left }),
            Pending::Dns64(answer) => Ok(self.with_dns64(answer.clone())),
        };
        match found {
            Ok(answer) => Prepared::Answer(answer),
            Err(Stopped::Acl(action)) => Prepared::Denied(acl::denial(action, self.query()), None),
            Err(Stopped::Policy(verdict, ruling)) => {
                let failed = || Denied::Reply(plain::failure(self.query(), Rcode::SERV_FAIL));
                Prepared::Denied(self.denial_of(&verdict).unwrap_or_else(failed), ruling)
            }
            Err(Stopped::Rules(decision, point)) => {
                let denied = reply::denied(self, &decision).map_or(Denied::Silence, Denied::Reply);
                Prepared::Denied(denied, Ruling::of(&decision, point))
            }
        }
    }

    /// The question as it is answered, if a directive changes it. An error is a name that is none.
    pub(crate) fn altered(&self) -> Option<Result<Altered, ()>> {
        let block = self.block();
        if block.rewrites.is_empty() && block.query_flags.is_empty() {
            return None;
        }
        let rewritten = match rewrite::rewritten(&block.rewrites, self).transpose() {
            Ok(rewritten) => rewritten,
            Err(()) => return Some(Err(())),
        };
        let mut query = rewritten.as_ref().map_or_else(|| self.query().to_vec(), |rewritten| rewritten.query.clone());
        change_flags(&mut query, &block.query_flags);
        if rewritten.is_none() && query == self.query() {
            return None;
        }
        Some(self.about(query).map(|inner| Altered { inner, rewritten }).map_err(drop))
    }

    /// What `acl` says of the question as it is answered, if it does not let it pass.
    pub(crate) fn denied_as(&self, altered: &Altered) -> Option<AclAction> {
        acl::denied(&self.block().acls, self.client.ip(), &altered.inner.question)
    }

    /// The answer to the question as it is answered, if nobody has to be waited for.
    pub(crate) fn known_as(&self, altered: &Altered) -> Option<Vec<u8>> {
        let inner = &altered.inner;
        let block = inner.block();
        let answer = match block.local.answer(&inner.asked(), &inner.question) {
            Some(local) if local.alias.is_some() => return None,
            Some(local) => local.message,
            None => match block.cache.as_ref().and_then(|cache| cache.get(inner.cache_query(), inner.begun)) {
                Some(answer) => answer,
                None if forward::first(&block.forwards, &inner.question.name).is_some() => return None,
                None => {
                    let who = block.local.who_asks(&inner.asked(), &inner.question);
                    who.unwrap_or_else(|| plain::failure(inner.query(), Rcode::REFUSED))
                }
            },
        };
        let answer = self.put_back(altered, answer)?;
        if altered.led_elsewhere(&answer).is_some() {
            return None;
        }
        (!self.wants_dns64(&answer)).then_some(answer)
    }

    /// An answer to the question as it is answered, as one to the client's.
    pub(crate) fn put_back(&self, altered: &Altered, answer: Vec<u8>) -> Option<Vec<u8>> {
        match &altered.rewritten {
            Some(rewritten) => rewritten.reverted(self.query(), &answer),
            None => Some(answer),
        }
    }

    /// The same, with aliases that `rewrite cname` leads elsewhere. Waits.
    fn put_back_and_follow(&self, altered: &Altered, answer: Vec<u8>, left: Left) -> Result<Option<Vec<u8>>, Stopped> {
        let Some(answer) = self.put_back(altered, answer) else { return Ok(None) };
        let Some((mut records, target)) = altered.led_elsewhere(&answer) else { return Ok(Some(answer)) };
        let (Some(aliases), Some(query)) = (left.aliases.checked_sub(1), self.asking_for(&target)) else {
            return Ok(Some(answer));
        };
        let told = self.resolve(&query, Left { aliases, ..left })?;
        let Ok(others) = Decoded::read(&told) else { return Ok(Some(answer)) };
        records.extend(others.answer);
        let Ok(own) = Decoded::read(&answer) else { return Ok(Some(answer)) };
        Ok(Some(encoded(self.query(), &answer, &Decoded { answer: records, ..own })))
    }

    /// True if the client is to get made-up addresses instead of this answer.
    pub(crate) fn wants_dns64(&self, answer: &[u8]) -> bool {
        let dns64 = self.block().dns64.as_ref();
        dns64.is_some_and(|dns64| {
            dns64::is_for(dns64, self.client.ip(), &self.question) && dns64::replaces(dns64, answer)
        })
    }

    /// The answer with made-up addresses, if the name has addresses for IPv4. Waits.
    pub(crate) fn with_dns64(&self, answer: Vec<u8>) -> Vec<u8> {
        self.made_up(&answer, Left::all()).unwrap_or(answer)
    }

    /// An answer as `dns64` wants it. Waits.
    fn dns64_of(&self, answer: Vec<u8>, left: Left) -> Vec<u8> {
        let made = if self.wants_dns64(&answer) { self.made_up(&answer, left) } else { None };
        made.unwrap_or(answer)
    }

    /// Addresses that are made up instead of an answer. None if the question for addresses for IPv4 is denied.
    fn made_up(&self, answer: &[u8], left: Left) -> Option<Vec<u8>> {
        let dns64 = self.block().dns64.as_ref()?;
        let mut query = self.query().to_vec();
        let end = Question::end(&query).ok()?;
        query.get_mut(end - 4..end - 2)?.copy_from_slice(&RecordType::A.0.to_be_bytes());
        let of_a = self.resolve(&query, left).ok()?;
        if Header::read(&of_a).ok()?.rcode == Rcode::REFUSED {
            return None;
        }
        dns64::synthesized(dns64, self.query(), Answers { of_aaaa: answer, of_a: &of_a })
    }

    /// Adds what is known of the target of an alias.
    fn complete(&self, so_far: &[u8], alias: &Alias, left: Left) -> Result<Vec<u8>, Stopped> {
        let alone = || alias.without.clone().unwrap_or_else(|| so_far.to_vec());
        let (Some(aliases), Some(query)) = (left.aliases.checked_sub(1), self.asking_for(&alias.target)) else {
            return Ok(alone());
        };
        let told = self.resolve(&query, Left { aliases, ..left })?;
        let (Ok(mut own), Ok(others)) = (Decoded::read(so_far), Decoded::read(&told)) else { return Ok(alone()) };
        if others.answer.is_empty() {
            return Ok(alone());
        }
        own.answer.extend(others.answer);
        let sections = Sections { answer: &own.answer, ..Sections::default() };
        Ok(reply::with_records(self.query(), Rcode::NO_ERROR, sections))
    }

    /// The query with another name.
    fn asking_for(&self, name: &[u8]) -> Option<Vec<u8>> {
        let query = self.query();
        let end = Question::end(query).ok()?;
        Some([query.get(..HEADER)?, name, query.get(end - 4..)?].concat())
    }

    /// The answer to another question of the same client, as if it had come in at the same address.
    fn resolve(&self, query: &[u8], left: Left) -> Result<Vec<u8>, Stopped> {
        let Ok(mut inner) = Self::begin(&self.inside, &Asked { query, ..self.asked() }) else {
            return Ok(plain::failure(query, Rcode::REFUSED));
        };
        inner.activity = self.activity;
        inner.count_client();
        let failed = || Ok(plain::failure(query, Rcode::SERV_FAIL));
        if let Some(why) = &inner.unjudged {
            inner.report().tell_error(why);
            return failed();
        }
        let block = inner.block();
        let mut message = Message::new(&inner);
        let mut walk = Walk { waiting: Waiting::Allowed, heard: &inner.heard, trace: None };
        let Ok(decision) = walk.decide(&block.lists, Point::Query, &mut message) else { return failed() };
        inner.report().tell_decision(&decision);
        let server = match decision.outcome {
            Ok(Outcome::Allow) => None,
            Ok(Outcome::Redirect(server)) => Some(server),
            _ => return Err(Stopped::Rules(Box::new(decision), Point::Query)),
        };
        let labels = message.labels;
        let of_question = inner.policy_of_question();
        let mut answer = match of_question.as_ref().and_then(|verdict| inner.applied(verdict, Point::Query, left)) {
            Some(applied) => applied?,
            None => inner.answered(Way { server, left })?,
        };
        if of_question.is_none() {
            let Ok(message) = Message::new(&inner).with_answer(&answer) else { return failed() };
            let of_answer = inner.policy_of_answer(&answer, message.addresses());
            if let Some(applied) = of_answer.and_then(|verdict| inner.applied(&verdict, Point::Response, left)) {
                answer = applied?;
            }
        }
        let Ok(mut message) = Message::new(&inner).with_answer(&answer) else { return failed() };
        message.labels = labels;
        let Ok(mut decision) = walk.decide(&block.lists, Point::Response, &mut message) else { return failed() };
        refuse_redirect(&mut decision);
        inner.report().tell_decision(&decision);
        if decision.outcome == Ok(Outcome::Allow) {
            Ok(answer)
        } else {
            Err(Stopped::Rules(Box::new(decision), Point::Response))
        }
    }

    /// The answer that a policy zone gives; none if the question or the answer passes. Waits.
    fn applied(&self, verdict: &Verdict, point: Point, left: Left) -> Option<Result<Vec<u8>, Stopped>> {
        Some(match self.apply(verdict)? {
            Applied::Deny(_) => Err(Stopped::Policy(Box::new(verdict.clone()), self.ruling_of(verdict, point))),
            Applied::Answer(answer) => Ok(answer),
            Applied::Alias(so_far, alias) => self.complete(&so_far, &alias, left),
        })
    }

    /// The answer to a question that the query rules let pass: `dns64`, `rewrite`, `acl`, and then all others. Waits.
    fn answered(&self, way: Way) -> Result<Vec<u8>, Stopped> {
        let failed = || plain::failure(self.query(), Rcode::SERV_FAIL);
        let found = match self.altered() {
            Some(Err(())) => Ok(failed()),
            Some(Ok(altered)) => match self.denied_as(&altered) {
                Some(action) => Err(action),
                None => {
                    let answer = altered.inner.find_out(way)?;
                    Ok(self.put_back_and_follow(&altered, answer, way.left)?.unwrap_or_else(failed))
                }
            },
            None => match acl::denied(&self.block().acls, self.client.ip(), &self.question) {
                Some(action) => Err(action),
                None => Ok(self.find_out(way)?),
            },
        };
        match found {
            Ok(answer) => Ok(self.dns64_of(answer, way.left)),
            Err(action) => match acl::denial(action, self.query()) {
                Denied::Reply(reply) if self.wants_dns64(&reply) => {
                    self.made_up(&reply, way.left).ok_or(Stopped::Acl(action))
                }
                _ => Err(Stopped::Acl(action)),
            },
        }
    }

    /// The answer of the server that a rule names, of the block itself, or of its upstreams.
    fn find_out(&self, way: Way) -> Result<Vec<u8>, Stopped> {
        if let Some(server) = way.server {
            return Ok(self.first_answer(&[server.into()], UpstreamTransport::default(), way.left));
        }
        if let Some(known) = self.known(way.left)? {
            return Ok(known);
        }
        let block = self.block();
        let Some(at) = forward::first(&block.forwards, &self.question.name) else {
            let who = block.local.who_asks(&self.asked(), &self.question);
            return Ok(who.unwrap_or_else(|| plain::failure(self.query(), Rcode::REFUSED)));
        };
        let forward = &block.forwards[at];
        let answer = self.first_answer(&forward.upstreams, forward.way, way.left);
        let capped = block.cache.as_ref().and_then(|cache| cache.put(self.cache_query(), &answer, Instant::now()));
        Ok(capped.unwrap_or(answer))
    }

    /// An answer of the block's own, or of its cache.
    fn known(&self, left: Left) -> Result<Option<Vec<u8>>, Stopped> {
        let block = self.block();
        if let Some(local) = block.local.answer(&self.asked(), &self.question) {
            return Ok(Some(match local.alias {
                Some(alias) => self.complete(&local.message, &alias, left)?,
                None => local.message,
            }));
        }
        Ok(block.cache.as_ref().and_then(|cache| cache.get(self.cache_query(), Instant::now())))
    }

    /// The answer of the first upstream that has one; of those that only say that they fail, the last.
    fn first_answer(&self, upstreams: &[Upstream], way: UpstreamTransport, left: Left) -> Vec<u8> {
        let until = left.until.min(Instant::now() + ALL);
        let (mut failure, mut trouble) = (None, None);
        for upstream in upstreams {
            let left = until.saturating_duration_since(Instant::now()).min(ONE);
            if left.is_zero() {
                break;
            }
            let answer = match pass_on(upstream, self.query(), left, way) {
                Ok(answer) => answer,
                Err(error) => {
                    trouble = Some(error);
                    continue;
                }
            };
            match Header::read(&answer).map(|header| header.rcode) {
                Ok(Rcode::NO_ERROR | Rcode::NX_DOMAIN) => return answer,
                _ => failure = Some(answer),
            }
        }
        failure.unwrap_or_else(|| {
            let why = trouble.map_or_else(|| "i/o timeout".to_owned(), |error| error.to_string());
            self.report().tell_error(&format!("no upstream answered: {why}"));
            plain::failure(self.query(), Rcode::SERV_FAIL)
        })
    }
}
