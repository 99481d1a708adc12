//! What the server blocks of a Corefile make of questions and answers.

use crate::cache::Cache;
use crate::explain::ListTold;
use crate::forward::{self, Forwarding};
use crate::local::Local;
use crate::message::{Identities, Kept, Message, is_under};
use crate::names::{LookedUp, Names};
use crate::reply;
use crate::report::{Observers, Report, Ruling, Source};
use crate::rules::{Decision, List, MustWait, Waiting, Walk};
use crate::tell::Teller;
use namewall_corefile::{DnsNameResolver, Edns0, Point, Zone};
use namewall_dns::wire::{HEADER, Header, Question, Rcode, RecordType, reply as plain};
use namewall_dns::{Asked, Chain, Failure, Heard, Notes, Passing, Step, To};
use namewall_expression::Outcome;
use namewall_policy::domain::DomainName;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// What serves a Corefile. It is a [`Chain`] for the DNS server.
#[derive(Clone, Debug)]
pub struct Service(pub(crate) Arc<Inside>);

#[derive(Debug)]
pub(crate) struct Inside {
    pub(crate) blocks: Vec<Block>,
    pub(crate) teller: Arc<Teller>,
    pub(crate) identities: Arc<dyn Identities>,
}

/// A server block.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) keys: Vec<(Zone, u16)>,
    /// The addresses it is served at; all, if there are none.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) fields: Vec<Edns0>,
    pub(crate) lists: Vec<List>,
    pub(crate) debug_suffixes: Vec<DomainName>,
    pub(crate) local: Local,
    pub(crate) cache: Option<Arc<Cache>>,
    pub(crate) forwards: Vec<Forwarding>,
    pub(crate) observers: Observers,
    /// Who keeps what names were found at.
    pub(crate) names: Option<(DnsNameResolver, Arc<dyn Names>)>,
}

/// What is remembered of a question until its answer comes.
struct Carried {
    labels: Vec<(String, String)>,
    begun: Instant,
    /// The same by the clock, if anybody is told it.
    asked_at: Option<SystemTime>,
    /// What query rules said.
    ruling: Option<Ruling>,
    /// Where the answer comes from.
    source: Source,
    /// Which `forward` was asked, unless it was the first that is for the name.
    forward: Option<usize>,
}

impl Carried {
    /// Nothing, if nothing was left.
    fn of(notes: Option<Notes>) -> Self {
        let carried = notes.and_then(|notes| notes.downcast::<Self>().ok()).map(|carried| *carried);
        carried.unwrap_or_else(|| Self {
            labels: Vec::new(),
            begun: Instant::now(),
            asked_at: None,
            ruling: None,
            source: Source::Upstream,
            forward: None,
        })
    }
}

impl Chain for Service {
    fn query(&self, asked: &Asked<'_>) -> Step {
        let begun = Instant::now();
        match self.0.step(asked, (Waiting::Forbidden, begun)) {
            Ok(step) => step,
            Err(MustWait) => {
                let (inside, kept) = (self.0.clone(), Kept::new(asked, None));
                Step::Later(Box::new(move || {
                    inside.step(&kept.asked(), (Waiting::Allowed, begun)).unwrap_or(Step::Silence)
                }))
            }
        }
    }

    fn answer(&self, asked: &Asked<'_>, answer: &[u8], notes: Option<Notes>) -> Passing {
        let mut carried = Carried::of(notes);
        if carried.source != Source::Redirected {
            if let Some((forward, route)) = self.0.next(asked, answer, &carried) {
                carried.forward = Some(forward);
                return Passing::Forward(To::Route(route), Some(Box::new(carried)));
            }
            if let Some(stale) = self.0.better(asked, answer) {
                return self.give_stale(asked, stale, carried);
            }
            self.0.keep(asked, answer);
        }
        match self.0.passing((asked, answer), &carried, Waiting::Forbidden) {
            Ok(Passing::Pass) => match self.0.note(asked, answer) {
                Some(names) => Passing::Later(Box::new(move || {
                    names.finish();
                    Passing::Pass
                })),
                None => Passing::Pass,
            },
            Ok(passing) => passing,
            Err(MustWait) => {
                let (inside, kept) = (self.0.clone(), Kept::new(asked, Some(answer)));
                Passing::Later(Box::new(move || {
                    let answer = kept.answer().unwrap_or_default();
                    let passing = inside.passing((&kept.asked(), answer), &carried, Waiting::Allowed);
                    if let (Ok(Passing::Pass), Some(names)) = (&passing, inside.note(&kept.asked(), answer)) {
                        names.finish();
                    }
                    passing.unwrap_or(Passing::Silence)
                }))
            }
        }
    }

    fn heard(&self, asked: &Asked<'_>, heard: &Heard<'_>) {
        if self.0.blocks.iter().any(|block| !block.observers.are_none()) {
            self.0.tell_heard(asked, heard);
        }
    }

    fn failed(&self, asked: &Asked<'_>, failure: Failure<'_>, notes: Option<Notes>) -> Passing {
        let carried = Carried::of(notes);
        if carried.source != Source::Redirected
            && failure != Failure::NotJudged
            && let Some(stale) = self.0.stale(asked)
        {
            return self.give_stale(asked, stale, carried);
        }
        self.0.failed(asked, failure, &carried)
    }

    fn renewed(&self, asked: &Asked<'_>, answer: &[u8], notes: Option<Notes>) -> Option<(To, Option<Notes>)> {
        let mut carried = Carried::of(notes);
        match self.0.next(asked, answer, &carried) {
            Some((forward, route)) => {
                carried.forward = Some(forward);
                Some((To::Route(route), Some(Box::new(carried))))
            }
            None => {
                self.0.keep(asked, answer);
                None
            }
        }
    }
}

impl Service {
    /// Gives what was answered once, since there is nothing better, to whom the rules let have it.
    fn give_stale(&self, asked: &Asked<'_>, stale: Vec<u8>, carried: Carried) -> Passing {
        let given = |passing, stale| match passing {
            Passing::Pass => Passing::Answer(stale),
            other => other,
        };
        match self.0.passing((asked, &stale), &carried, Waiting::Forbidden) {
            Ok(passing) => given(passing, stale),
            Err(MustWait) => {
                let (inside, kept) = (self.0.clone(), Kept::new(asked, None));
                Passing::Later(Box::new(move || {
                    let passing = inside.passing((&kept.asked(), &stale), &carried, Waiting::Allowed);
                    given(passing.unwrap_or(Passing::Silence), stale)
                }))
            }
        }
    }
}

impl Inside {
    /// The block that is for a question: of those whose zones have its name, the one with the longest.
    pub(crate) fn block(&self, asked: &Asked<'_>, question: &Question) -> Option<(&Block, &Zone)> {
        let (port, address) = (asked.server.port(), asked.server.ip());
        let here = self.blocks.iter().filter(|one| one.addresses.is_empty() || one.addresses.contains(&address));
        let keys = here.flat_map(|block| block.keys.iter().map(move |(zone, at)| (block, zone, *at)));
        let fitting = keys.filter(|(_, zone, at)| *at == port && is_under(&question.name, zone));
        fitting.max_by_key(|(_, zone, _)| zone.depth()).map(|(block, zone, _)| (block, zone))
    }

    fn step(&self, asked: &Asked<'_>, (waiting, begun): (Waiting, Instant)) -> Result<Step, MustWait> {
        let failure = |rcode| plain::failure(asked.query, rcode);
        let Ok(question) = Question::of_query(asked.query) else { return Ok(Step::Reply(failure(Rcode::FORM_ERR))) };
        let Some((block, zone)) = self.block(asked, &question) else {
            return Ok(Step::Reply(failure(Rcode::REFUSED)));
        };
        let Ok(mut message) = Message::new(*asked, &block.fields, &*self.identities) else {
            return Ok(Step::Reply(failure(Rcode::FORM_ERR)));
        };
        if let Some(lines) = self.debugged(block, asked, waiting)? {
            return Ok(Step::Reply(reply::texts(asked.query, &lines)));
        }
        let decision = Walk { waiting, trace: None }.decide(&block.lists, Point::Query, &mut message)?;
        let ruling = Ruling::of(&decision, Point::Query);
        let labels = std::mem::take(&mut message.labels);
        let asked_at = block.observers.clock(begun);
        let mut carried = Carried { labels, begun, asked_at, ruling, source: Source::Own, forward: None };
        let report = carried.report((asked, &question), zone);
        let Ok(Outcome::Allow | Outcome::Redirect(_)) = decision.outcome else {
            self.tell(block, &decision, &report);
            self.tell_asked(block, &report);
            let denial = reply::denied(&message, &decision, zone);
            self.tell_ended(block, &Report { reply: denial.as_deref(), ..report });
            return Ok(denial.map_or(Step::Silence, Step::Reply));
        };
        let is_redirected = matches!(decision.outcome, Ok(Outcome::Redirect(_)));
        if !is_redirected && let Some((answer, source)) = self.local(block, asked, (&question, begun)) {
            carried.source = source;
            let passing = self.passing((asked, &answer), &carried, waiting)?;
            self.tell(block, &decision, &carried.report((asked, &question), zone));
            return Ok(match passing {
                Passing::Pass => self.given(block, answer, (asked, &question, &carried)),
                Passing::Instead(denial) => Step::Reply(denial),
                Passing::Answer(_) | Passing::Forward(..) | Passing::Silence | Passing::Later(_) => Step::Silence,
            });
        }
        self.tell(block, &decision, &report);
        self.tell_asked(block, &report);
        let Some(to) = self.to(block, &question, &decision) else {
            let refusal = failure(Rcode::REFUSED);
            self.tell_ended(block, &Report { reply: Some(&refusal), ..report });
            return Ok(Step::Reply(refusal));
        };
        if let (Some(meters), Some(cache)) = (&block.observers.meters, &block.cache)
            && cache.is_for(&question.name)
        {
            meters.missed(&report);
        }
        let carries = is_redirected || !carried.labels.is_empty() || !block.observers.are_none();
        carried.source = if is_redirected { Source::Redirected } else { Source::Upstream };
        Ok(Step::Forward(to, carries.then(|| Box::new(carried) as Notes)))
    }

    /// What can be answered without asking anybody.
    fn local(
        &self,
        block: &Block,
        asked: &Asked<'_>,
        (question, now): (&Question, Instant),
    ) -> Option<(Vec<u8>, Source)> {
        if let Some((answer, _)) = block.local.answer(asked, question) {
            return Some((answer, Source::Own));
        }
        if let Some(answer) = block.cache.as_ref().and_then(|cache| cache.get(asked.query, question, now)) {
            return Some((answer, Source::Cache));
        }
        // Where somebody can be asked, they are.
        let is_forwarded = forward::first(&block.forwards, &question.name).is_some();
        let answer = if is_forwarded { None } else { block.local.who_asks(asked, question) };
        answer.map(|answer| (answer, Source::Own))
    }

    /// Gives an answer of our own that passes; and if it is from the cache and it is time, has it asked for again.
    fn given(
        &self,
        block: &Block,
        answer: Vec<u8>,
        (asked, question, carried): (&Asked<'_>, &Question, &Carried),
    ) -> Step {
        let cache = block.cache.as_ref().filter(|_| carried.source == Source::Cache);
        let is_due = cache.is_some_and(|cache| cache.use_once(asked.query, question, carried.begun));
        match forward::first(&block.forwards, &question.name) {
            Some(at) if is_due => Step::Renew(answer, To::Route(block.forwards[at].route)),
            _ => Step::Answer(answer),
        }
    }

    pub(crate) fn to(&self, block: &Block, question: &Question, decision: &Decision) -> Option<To> {
        if let Ok(Outcome::Redirect(server)) = decision.outcome {
            return Some(To::Server(server));
        }
        let at = forward::first(&block.forwards, &question.name)?;
        Some(To::Route(block.forwards[at].route))
    }

    /// Who is asked next, if an upstream's answer is not the last word: the number of the `forward`, and its route's.
    fn next(&self, asked: &Asked<'_>, answer: &[u8], carried: &Carried) -> Option<(usize, usize)> {
        let question = Question::of_query(asked.query).ok()?;
        let forwards = &self.block(asked, &question)?.0.forwards;
        let at = carried.forward.or_else(|| forward::first(forwards, &question.name))?;
        let next = forward::next(forwards, (at, Header::read(answer).ok()?.rcode), &question.name)?;
        Some((next, forwards[next].route))
    }

    /// What was answered once, where an upstream's answer says only that it has none.
    fn better(&self, asked: &Asked<'_>, answer: &[u8]) -> Option<Vec<u8>> {
        let is_none = !matches!(Header::read(answer).ok()?.rcode, Rcode::NO_ERROR | Rcode::NX_DOMAIN);
        if is_none { self.stale(asked) } else { None }
    }

    /// What was answered once and may still be given though it is over.
    fn stale(&self, asked: &Asked<'_>) -> Option<Vec<u8>> {
        let question = Question::of_query(asked.query).ok()?;
        let cache = self.block(asked, &question)?.0.cache.as_ref()?;
        cache.stale(asked.query, &question, Instant::now())
    }

    /// Has it noted what an upstream's answer says of a name; who is to be waited for, if anybody is.
    fn note(&self, asked: &Asked<'_>, answer: &[u8]) -> Option<Arc<dyn Names>> {
        let question = Question::of_query(asked.query).ok()?;
        let (directive, names) = self.block(asked, &question)?.0.names.as_ref()?;
        let looked_up = LookedUp::read(directive, &question, answer)?;
        names.note(&looked_up).then(|| names.clone())
    }

    /// Remembers an upstream's answer.
    fn keep(&self, asked: &Asked<'_>, answer: &[u8]) {
        let Ok(question) = Question::of_query(asked.query) else { return };
        let cache = self.block(asked, &question).and_then(|(block, _)| block.cache.as_ref());
        if let Some(cache) = cache {
            cache.put((asked.query, &question), answer, Instant::now());
        }
    }

    fn passing(
        &self,
        (asked, answer): (&Asked<'_>, &[u8]),
        carried: &Carried,
        waiting: Waiting,
    ) -> Result<Passing, MustWait> {
        let broken = || Passing::Instead(plain::failure(asked.query, Rcode::SERV_FAIL));
        let Ok(question) = Question::of_query(asked.query) else { return Ok(broken()) };
        let Some((block, zone)) = self.block(asked, &question) else { return Ok(broken()) };
        let report = carried.report((asked, &question), zone);
        let ended = |reply: Option<&[u8]>, end: &Report<'_>| {
            // Of what is answered here, nothing has been told yet: to judge it may have to begin again.
            if !matches!(report.source, Source::Upstream | Source::Redirected) {
                self.tell_asked(block, &report);
            }
            self.tell_ended(block, &Report { reply, ..*end });
        };
        if !block.lists.iter().any(|list| list.point == Point::Response) {
            ended(Some(answer), &report);
            return Ok(Passing::Pass);
        }
        let message = Message::new(*asked, &block.fields, &*self.identities);
        let Ok(mut message) = message.and_then(|message| message.with_answer(answer)) else {
            // What cannot be read cannot be judged.
            let failure = plain::failure(asked.query, Rcode::SERV_FAIL);
            self.tell_error(block, "the answer cannot be read", &report);
            ended(Some(&failure), &report);
            return Ok(Passing::Instead(failure));
        };
        message.labels = carried.labels.clone();
        let mut decision = Walk { waiting, trace: None }.decide(&block.lists, Point::Response, &mut message)?;
        refuse_redirect(&mut decision);
        let ruling = Ruling::of(&decision, Point::Response);
        let end = Report { of_response: ruling.as_ref(), labels: &message.labels, ..report };
        self.tell(block, &decision, &end);
        if decision.outcome == Ok(Outcome::Allow) {
            ended(Some(answer), &end);
            return Ok(Passing::Pass);
        }
        let denial = reply::denied(&message, &decision, zone);
        ended(denial.as_deref(), &end);
        Ok(denial.map_or(Passing::Silence, Passing::Instead))
    }

    /// There is no answer: what the client gets.
    fn failed(&self, asked: &Asked<'_>, failure: Failure<'_>, carried: &Carried) -> Passing {
        let reply = plain::failure(asked.query, failure.rcode());
        let Ok(question) = Question::of_query(asked.query) else { return Passing::Instead(reply) };
        let Some((block, zone)) = self.block(asked, &question) else { return Passing::Instead(reply) };
        let report = Report { source: Source::Own, ..carried.report((asked, &question), zone) };
        // Their ends as CoreDNS writes them, whose regular expressions look for that.
        let why = match failure {
            Failure::NoAnswer(Some(trouble)) => format!("no upstream answered: {trouble}"),
            Failure::NoAnswer(None) => "no upstream answered: i/o timeout".to_owned(),
            Failure::TooMany => "concurrent queries exceeded maximum".to_owned(),
            Failure::NotJudged => "the rules could not be asked".to_owned(),
        };
        self.tell_error(block, &why, &report);
        self.tell_ended(block, &Report { reply: Some(&reply), ..report });
        Passing::Instead(reply)
    }

    /// What a question under a debug suffix is told: how the rest of its name is judged.
    fn debugged(&self, block: &Block, asked: &Asked<'_>, waiting: Waiting) -> Result<Option<Vec<String>>, MustWait> {
        const CHAOS: u16 = 3;
        const TXT: RecordType = RecordType(16);
        let Ok(question) = Question::of_query(asked.query) else { return Ok(None) };
        let suffix = block.debug_suffixes.iter().find(|one| is_under(&question.name, &Zone::Name((*one).clone())));
        let Some(suffix) = suffix.filter(|_| question.class == CHAOS && question.record_type == TXT) else {
            return Ok(None);
        };
        let labels: Vec<&[u8]> = question.name.labels().collect();
        let rest = &labels[..labels.len() - suffix.labels().count()];
        let inner = a_question_for(rest, asked.query);
        let inner = Asked { query: &inner, ..*asked };
        let Ok(mut message) = Message::new(inner, &block.fields, &*self.identities) else { return Ok(None) };
        let mut told = Vec::new();
        let mut walk = Walk { waiting, trace: Some(&mut told) };
        let decision = walk.decide(&block.lists, Point::Query, &mut message)?;
        let result = match &decision.outcome {
            Ok(outcome) => outcome.to_string(),
            Err(error) => format!("error: {error}"),
        };
        let place = decision.place.map_or_else(String::new, |place| format!(" by {place}"));
        let mut lines = vec![format!("{}: {result}{place}", message.name)];
        lines.extend(told.iter().flat_map(ListTold::lines));
        Ok(Some(lines))
    }

    fn tell(&self, block: &Block, decision: &Decision, report: &Report<'_>) {
        decision.log.iter().for_each(|line| self.teller.tell(line.clone()));
        match &decision.failure {
            Some(failure) if block.observers.errors.is_some() => self.tell_error(block, failure, report),
            // A rule that fails is always told of (S9.4).
            Some(failure) => self.teller.tell(format!("[ERROR] {failure}")),
            None => {}
        }
    }
}

impl Carried {
    /// What is known of a question before its answer is judged.
    fn report<'r>(&'r self, (asked, question): (&'r Asked<'r>, &'r Question), zone: &'r Zone) -> Report<'r> {
        let Self { labels, begun, asked_at, ruling, source, .. } = self;
        Report {
            asked,
            question,
            zone,
            begun: *begun,
            asked_at: *asked_at,
            labels,
            of_query: ruling.as_ref(),
            of_response: None,
            source: *source,
            reply: None,
        }
    }
}

/// An answer is there already: there is nobody to send it to.
pub(crate) fn refuse_redirect(decision: &mut Decision) {
    if let Ok(Outcome::Redirect(to)) = decision.outcome {
        let error = format!("an answer cannot be redirected to {to}");
        decision.failure = decision.place.as_ref().map(|place| format!("{place}: {error}"));
        decision.outcome = Err(error);
    }
}

/// A question for the addresses of a name, with what follows the question of another: its EDNS0.
fn a_question_for(labels: &[&[u8]], like: &[u8]) -> Vec<u8> {
    let mut query = vec![0, 0, 1, 0, 0, 1];
    query.extend(like.get(6..HEADER).unwrap_or(&[0; 6]));
    for label in labels {
        query.push(label.len() as u8);
        query.extend(*label);
    }
    query.extend([0, 0, 1, 0, 1]);
    query.extend(Question::end(like).ok().and_then(|end| like.get(end..)).unwrap_or_default());
    query
}
