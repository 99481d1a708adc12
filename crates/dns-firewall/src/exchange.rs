//! One question on its way through a server block, from the query to the reply.
//!
//! An [`Exchange`] is made when a question comes in: the question is parsed and its server block is found there, and
//! nowhere else. While an upstream is asked, the DNS server carries the exchange as a `Continuation`. `query` and
//! `answer` have what an exchange does with its question and with an answer.

use crate::cache::Query;
use crate::clients::Activity;
use crate::forward;
use crate::lane;
use crate::lookup::Prepared;
use crate::loops::LoopGuard;
use crate::message::text_of;
use crate::reply;
use crate::report::{Report, Ruling, Source};
use crate::service::{Block, Inside};
use namewall_corefile::{Edns0, Zone};
use namewall_dns::wire::{Edns, Question, WireError};
use namewall_dns::{Asked, Transport};
use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// A question, its server block, and what is known of both so far.
pub(crate) struct Exchange {
    pub(crate) inside: Arc<Inside>,
    query: Box<[u8]>,
    pub(crate) client: SocketAddr,
    /// The address the question was sent to.
    pub(crate) server: SocketAddr,
    /// How the question came.
    pub(crate) transport: Transport,
    pub(crate) question: Question,
    /// The name of the question as text, once it is needed.
    name: OnceCell<String>,
    at: BlockAt,
    pub(crate) begun: Instant,
    /// `begun` by the wall clock, if an observer reports it.
    pub(crate) asked_at: Option<SystemTime>,
    /// What engines have added to the decision of the query rules.
    pub(crate) labels: Vec<(String, String)>,
    /// What the query rules decided.
    pub(crate) ruling: Option<Ruling>,
    /// What a policy zone has decided, if no other policy is asked any more.
    pub(crate) ruled: Option<Ruling>,
    /// Where the answer comes from.
    pub(crate) source: Source,
    /// Which `forward` was asked, unless it was the first that is for the name.
    pub(crate) forward: Option<usize>,
    /// What engines have said that had to be waited for.
    pub(crate) heard: RefCell<Vec<lane::Heard>>,
    /// An answer of our own for which others had to be asked.
    pub(crate) prepared: Option<Prepared>,
    /// What the client has asked lately, if the block wants to know it.
    pub(crate) activity: Option<Activity>,
    /// Why it cannot be judged, if it cannot.
    pub(crate) unjudged: Option<String>,
}

/// A server block, and which of its keys is for the question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockAt {
    pub(crate) block: usize,
    pub(crate) key: usize,
}

/// Why there is no exchange for a question.
pub(crate) enum Unserved {
    /// It cannot be read.
    Unreadable,
    /// No server block is for it.
    NoBlock(Box<Question>),
}

impl Exchange {
    /// Parses the question and finds its server block.
    pub(crate) fn begin(inside: &Arc<Inside>, asked: &Asked<'_>) -> Result<Box<Self>, Unserved> {
        let begun = Instant::now();
        let question = parse(asked.query).map_err(|_| Unserved::Unreadable)?;
        Edns::check(asked.query).map_err(|_| Unserved::Unreadable)?;
        let Some((at, unjudged)) = inside.find(asked, &question) else {
            return Err(Unserved::NoBlock(Box::new(question)));
        };
        Ok(Box::new(Self {
            query: asked.query.into(),
            client: asked.client,
            server: asked.server,
            transport: asked.transport,
            question,
            name: OnceCell::new(),
            at,
            begun,
            asked_at: inside.blocks[at.block].observers.clock(begun),
            labels: Vec::new(),
            ruling: None,
            ruled: None,
            source: Source::Own,
            forward: None,
            heard: RefCell::default(),
            prepared: None,
            activity: None,
            unjudged: unjudged.or_else(|| ambiguous(&inside.blocks[at.block].fields, asked.query)),
            inside: inside.clone(),
        }))
    }

    /// The same client with another question to the same block, for a debug query that is about another name.
    pub(crate) fn about(&self, query: Vec<u8>) -> Result<Self, WireError> {
        Ok(Self {
            inside: self.inside.clone(),
            question: parse(&query)?,
            query: query.into(),
            client: self.client,
            server: self.server,
            transport: self.transport,
            name: OnceCell::new(),
            at: self.at,
            begun: self.begun,
            asked_at: self.asked_at,
            labels: Vec::new(),
            ruling: None,
            ruled: None,
            source: Source::Own,
            forward: None,
            heard: RefCell::default(),
            prepared: None,
            activity: self.activity,
            unjudged: None,
        })
    }

    /// Counts the question to its client, if the block wants to know what clients ask. Each is counted once.
    pub(crate) fn count_client(&mut self) {
        if self.activity.is_none() && self.block().counts_clients {
            let client = self.client.ip().to_canonical();
            self.activity = Some(self.inside.teller.clients().count(client, &self.question.name, self.begun));
        }
    }

    /// The question as it came in.
    pub(crate) fn asked(&self) -> Asked<'_> {
        Asked { query: &self.query, client: self.client, server: self.server, transport: self.transport }
    }

    /// True if the question came over a stream.
    pub(crate) fn over_tcp(&self) -> bool {
        self.transport.is_stream()
    }

    /// The bytes of the question.
    pub(crate) fn query(&self) -> &[u8] {
        &self.query
    }

    /// The question as the cache takes it.
    pub(crate) fn cache_query(&self) -> Query<'_> {
        Query { message: &self.query, question: &self.question }
    }

    /// The name of the question: lower case, with the dot at the end.
    pub(crate) fn name(&self) -> &str {
        self.name.get_or_init(|| text_of(&self.question.name))
    }

    /// The server block of the question.
    pub(crate) fn block(&self) -> &Block {
        &self.inside.blocks[self.at.block]
    }

    /// The zone of the block that the question is for.
    pub(crate) fn zone(&self) -> &Zone {
        &self.block().keys[self.at.key].0
    }

    /// What looks for loops of the forwards that the question would take.
    pub(crate) fn loop_guard(&self) -> Option<&Arc<LoopGuard>> {
        // Probes go to our own address over UDP, so they never come in where only TLS or HTTPS is served.
        self.block().loops.get(self.at.key).filter(|_| matches!(self.transport, Transport::Udp | Transport::Tcp))
    }

    /// A reply of our own: recursion is available only where questions are forwarded.
    pub(crate) fn own(&self, reply: Vec<u8>) -> Vec<u8> {
        match forward::first(&self.block().forwards, &self.question.name) {
            Some(_) => reply,
            None => reply::without_recursion(reply),
        }
    }

    /// What is known of the exchange, before the answer is judged.
    pub(crate) fn report(&self) -> Report<'_> {
        Report { exchange: self, labels: &self.labels, of_response: None, source: self.source, reply: None }
    }
}

/// Why a field of EDNS0 that rules look at is not known, if it is not: a query has its option twice, and servers behind us
/// might take the other.
fn ambiguous(fields: &[Edns0], query: &[u8]) -> Option<String> {
    let edns = Edns::read(query).filter(|_| !fields.is_empty())?;
    let is_twice = |field: &&Edns0| edns.options().filter(|(code, _)| *code == field.code).count() > 1;
    let Edns0 { label, code, .. } = fields.iter().find(is_twice)?;
    Some(format!("the query has the option {code:#x} of `{label}` more than once"))
}

/// Parses the question of a query. An exchange does it once.
fn parse(query: &[u8]) -> Result<Question, WireError> {
    #[cfg(test)]
    tests::PARSED.set(tests::PARSED.get() + 1);
    Question::of_query(query)
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("question", &self.question).field("at", &self.at).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::{Strangers, Surroundings, Teller, build};
    use namewall_corefile::{NoFiles, read};
    use namewall_dns::{Asked, Chain, Failure, Heard, Passing, Step, Transport};
    use std::cell::Cell;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Instant;

    thread_local! {
        /// How often a question was parsed on this thread.
        pub(crate) static PARSED: Cell<usize> = const { Cell::new(0) };
        /// How often a server block was looked for on this thread.
        pub(crate) static FOUND: Cell<usize> = const { Cell::new(0) };
    }

    /// `A www.example.com`
    const QUERY: &[u8] = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\x03com\0\0\x01\0\x01";
    const ASKED: Asked<'_> = Asked {
        query: QUERY,
        client: std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 40_000),
        server: std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 53),
        transport: Transport::Udp,
    };
    /// One address.
    const ANSWER: &[u8] = b"\0\x07\x81\x80\0\x01\0\x01\0\0\0\0\x03www\x07example\x03com\0\0\x01\0\x01\
        \xc0\x0c\0\x01\0\x01\0\0\x01\x2c\0\x04\xc0\0\x02\x01";

    /// A block with everything that looks at a question: rules, observers, a cache, two upstreams in turn.
    fn service() -> crate::Service {
        let text = ". {
            bind 127.0.0.1
            debug
            firewall query {
                debug_query_suffix debug.example
                log under(name, 'example.com')
                allow type == 'A'
                default block
            }
            firewall response {
                block in-cidr(response_ip, 10.0.0.0/8)
                default allow
            }
            log
            errors
            prometheus
            dnstap /nowhere/tap.sock full
            cache {
                serve_stale
            }
            forward . 192.0.2.1 {
                next NXDOMAIN
            }
            forward . 192.0.2.2
        }
        other.example {
            bind 127.0.0.1
            forward . 192.0.2.3
        }";
        let corefile = read("Corefile", text, &NoFiles, &|_| None).unwrap_or_else(|errors| panic!("{errors}"));
        let teller = Arc::new(Teller::start(std::io::sink()).unwrap());
        let around = Surroundings {
            teller,
            identities: Arc::new(Strangers),
            addresses: Vec::new(),
            names: None,
            clusters: None,
        };
        build(&corefile, &around).unwrap_or_else(|errors| panic!("{errors:?}")).service
    }

    /// How often a question is parsed and its block looked for.
    fn counts(exchange: impl FnOnce()) -> (usize, usize) {
        PARSED.set(0);
        FOUND.set(0);
        exchange();
        (PARSED.take(), FOUND.take())
    }

    fn heard(answer: &[u8]) -> Heard<'_> {
        Heard { upstream: ASKED.server, since: Instant::now(), transport: Transport::Udp, answer }
    }

    #[test]
    fn a_question_is_parsed_and_its_block_found_once() {
        let service = service();
        let nxdomain = {
            let mut answer = ANSWER[..QUERY.len()].to_vec();
            (answer[3], answer[7]) = (0x83, 0);
            answer
        };
        let forwarded = counts(|| {
            let Step::Forward(_, continuation) = service.query(&ASKED) else { panic!("it is forwarded") };
            let Passing::Forward(_, continuation) = continuation.answer(&heard(&nxdomain)) else {
                panic!("the second upstream is asked")
            };
            assert!(matches!(continuation.answer(&heard(ANSWER)), Passing::Pass));
        });
        assert_eq!(forwarded, (1, 1));
        let cached = counts(|| assert!(matches!(service.query(&ASKED), Step::Answer(_))));
        assert_eq!(cached, (1, 1));
        let failed = counts(|| {
            let query = [&QUERY[..13], b"xyz", &QUERY[16..]].concat();
            let Step::Forward(_, continuation) = service.query(&Asked { query: &query, ..ASKED }) else {
                panic!("it is forwarded")
            };
            assert!(matches!(continuation.failed(Failure::NoAnswer(None)), Passing::Instead(_)));
        });
        assert_eq!(failed, (1, 1));
        let denied = counts(|| {
            let query = [&QUERY[..QUERY.len() - 3], &[16, 0, 1][..]].concat();
            assert!(matches!(service.query(&Asked { query: &query, ..ASKED }), Step::Reply(_)));
        });
        assert_eq!(denied, (1, 1));
    }

    /// What is counted above is all there is.
    #[test]
    fn questions_are_parsed_in_one_place() {
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
        let mut places = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                let parses = text.matches(concat!("Question::", "of_query(")).count();
                places.extend((0..parses).map(|_| path.file_name().unwrap().to_owned()));
            }
        }
        assert_eq!(places, ["exchange.rs"]);
    }
}
