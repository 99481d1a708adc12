//! A chain that judges, as far as the server is concerned: what is under way keeps its own, and no bug in one
//! takes the server along.

use crate::stub::{Client, Upstream, answer, connect, eventually, plain, query, read_message, settings, write_message};
use namewall_dns::wire::{Header, Rcode, reply};
use namewall_dns::{
    Asked, Chain, Continuation, Failure, Heard, Listen, Passing, Route, Server, Settings, Sockets, Step, To, Transport,
};
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Query = dyn Fn(&Asked<'_>) -> Step + Send + Sync;
type Judge = dyn Fn(&Asked<'_>, &[u8]) -> Passing + Send + Sync;

/// A chain of two functions.
pub(crate) struct Fake {
    query: Box<Query>,
    answer: Arc<Judge>,
}

impl Fake {
    pub(crate) fn new(query: impl Fn(&Asked<'_>) -> Step + Send + Sync + 'static) -> Self {
        Self { query: Box::new(query), answer: Arc::new(|_, _| Passing::Pass) }
    }

    fn answering(self, answer: impl Fn(&Asked<'_>, &[u8]) -> Passing + Send + Sync + 'static) -> Self {
        Self { answer: Arc::new(answer), ..self }
    }
}

impl Chain for Fake {
    fn query(&self, asked: &Asked<'_>) -> Step {
        let Asked { query, client, server, transport } = *asked;
        let waits = Waits { query: query.to_vec(), client, server, transport, answer: self.answer.clone() };
        waits.followed((self.query)(asked))
    }
}

impl fmt::Debug for Fake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fake")
    }
}

/// A question that waits for its answer.
struct Waits {
    query: Vec<u8>,
    client: SocketAddr,
    server: SocketAddr,
    transport: Transport,
    answer: Arc<Judge>,
}

impl Waits {
    /// The step, with this question as what goes on with the answer.
    fn followed(self, step: Step) -> Step {
        match step {
            Step::Forward(to, _) => Step::Forward(to, Box::new(self)),
            Step::Later(judge) => Step::Later(Box::new(move || self.followed(judge()))),
            other => other,
        }
    }
}

impl Continuation for Waits {
    fn answer(self: Box<Self>, heard: &Heard<'_>) -> Passing {
        let Self { query, client, server, transport, answer } = &*self;
        answer(&Asked { query, client: *client, server: *server, transport: *transport }, heard.answer)
    }

    fn failed(self: Box<Self>, failure: Failure<'_>) -> Passing {
        Passing::Instead(reply::failure(&self.query, failure.rcode()))
    }
}

/// Stands for the question, which is known by the chain only.
struct Unnamed;

impl Continuation for Unnamed {
    fn answer(self: Box<Self>, _: &Heard<'_>) -> Passing {
        Passing::Silence
    }

    fn failed(self: Box<Self>, _: Failure<'_>) -> Passing {
        Passing::Silence
    }
}

pub(crate) fn forward() -> Step {
    Step::Forward(To::Route(0), Box::new(Unnamed))
}

/// Settings with one route.
pub(crate) fn to(upstream: &Upstream) -> Settings {
    Settings { routes: vec![Route { upstreams: vec![upstream.address.into()], ..Route::default() }], ..settings(&[]) }
}

fn judged_at(count: usize, settings: Settings, chain: Fake) -> Server<namewall_dns::LearnNothing> {
    let sockets = (0..count).map(|_| {
        let sockets = Sockets::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listen = Listen::from(sockets.udp.local_addr().unwrap());
        (sockets, listen)
    });
    Server::start_judged(settings, Some(Arc::new(chain)), sockets.collect(), plain()).unwrap()
}

pub(crate) fn judged(settings: Settings, chain: Fake) -> Server<namewall_dns::LearnNothing> {
    judged_at(1, settings, chain)
}

fn rcode(message: &[u8]) -> Rcode {
    Header::read(message).unwrap().rcode
}

fn begins_with(asked: &Asked<'_>, label: &[u8]) -> bool {
    asked.query[13..].starts_with(label)
}

#[test]
fn a_chain_that_panics_is_servfail_and_the_server_goes_on() {
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let chain = Fake::new(|asked| {
        assert!(!begins_with(asked, b"query"), "a bug");
        if begins_with(asked, b"later") { Step::Later(Box::new(|| panic!("a bug"))) } else { forward() }
    })
    .answering(|asked, _| {
        assert!(!begins_with(asked, b"answer"), "a bug");
        if begins_with(asked, b"last") { Passing::Later(Box::new(|| panic!("a bug"))) } else { Passing::Pass }
    });
    let server = judged(to(&upstream), chain);
    let (client, mut stream) = (Client::of(&server), connect(&server));
    for round in 0..3 {
        for (name, code) in [
            ("query.example", Rcode::SERV_FAIL),
            ("later.example", Rcode::SERV_FAIL),
            ("answer.example", Rcode::SERV_FAIL),
            ("last.example", Rcode::SERV_FAIL),
            ("good.example", Rcode::NO_ERROR),
        ] {
            let reply = client.ask(&query(7, name)).unwrap_or_else(|| panic!("{name} {round}: nobody answers"));
            assert_eq!(rcode(&reply), code, "{name} {round}");
            write_message(&mut stream, &query(8, name)).unwrap();
            assert_eq!(rcode(&read_message(&mut stream).unwrap()), code, "{name} {round} by TCP");
        }
    }
    eventually(|| server.counters().under_way == 0);
}

#[test]
fn a_question_that_waits_goes_by_the_routes_it_met() {
    let (old, new) = (Upstream::giving([192, 0, 2, 1]), Upstream::giving([192, 0, 2, 2]));
    let (gate, waits) = (Arc::new(Mutex::new(())), Arc::new(AtomicBool::new(false)));
    let (closed, begun) = (gate.clone(), waits.clone());
    let chain = Fake::new(move |_| {
        let (closed, begun) = (closed.clone(), begun.clone());
        Step::Later(Box::new(move || {
            begun.store(true, Ordering::SeqCst);
            drop(closed.lock().unwrap());
            forward()
        }))
    });
    let server = judged(to(&old), chain);
    let held = gate.lock().unwrap();
    let client = Client::of(&server);
    client.0.send(&query(7, "waits.example")).unwrap();
    eventually(|| waits.load(Ordering::SeqCst));
    server.set_with(to(&new), Arc::new(Fake::new(|_| forward()))).unwrap();
    let other = Client::of(&server);
    assert!(other.ask(&query(8, "new.example")).unwrap().ends_with(&[192, 0, 2, 2]), "from now on the new ones count");
    let before = new.asked();
    drop(held);
    assert!(client.receive().unwrap().ends_with(&[192, 0, 2, 1]), "the old chain's first route is the old one");
    assert_eq!(new.asked(), before);
}

#[test]
fn an_answer_is_judged_by_the_chain_its_question_met() {
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.clone();
    let upstream = Upstream::new(move |query| {
        drop(closed.lock().unwrap());
        vec![answer(query, &[[192, 0, 2, 1]], 30)]
    });
    let says = |rcode: Rcode| {
        Fake::new(|_| forward()).answering(move |asked, _| Passing::Instead(reply::failure(asked.query, rcode)))
    };
    let server = judged(to(&upstream), says(Rcode::REFUSED));
    let held = gate.lock().unwrap();
    let client = Client::of(&server);
    client.0.send(&query(7, "a.example")).unwrap();
    eventually(|| upstream.asked() == 1);
    server.set_with(to(&upstream), Arc::new(says(Rcode::NX_DOMAIN))).unwrap();
    drop(held);
    assert_eq!(rcode(&client.receive().unwrap()), Rcode::REFUSED);
    assert_eq!(rcode(&client.ask(&query(8, "a.example")).unwrap()), Rcode::NX_DOMAIN);
}

#[test]
fn no_question_meets_a_chain_without_its_routes() {
    // Each chain knows the answers of its own upstream, and takes no other.
    let upstreams = [Upstream::giving([192, 0, 2, 1]), Upstream::giving([192, 0, 2, 2])];
    let wrong = Arc::new(AtomicUsize::new(0));
    let chain = |at: u8| {
        let wrong = wrong.clone();
        Fake::new(|_| forward()).answering(move |_, answer| {
            wrong.fetch_add(usize::from(!answer.ends_with(&[192, 0, 2, at + 1])), Ordering::SeqCst);
            Passing::Pass
        })
    };
    let server = judged(to(&upstreams[0]), chain(0));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let client = Client::of(&server);
                while !is_over.load(Ordering::SeqCst) {
                    assert!(client.ask(&query(7, "a.example")).is_some());
                }
            });
        }
        for round in 1..400u16 {
            let at = (round % 2) as u8;
            server.set_with(to(&upstreams[usize::from(at)]), Arc::new(chain(at))).unwrap();
            std::thread::sleep(Duration::from_micros(200));
        }
        is_over.store(true, Ordering::SeqCst);
    });
    assert_eq!(wrong.load(Ordering::SeqCst), 0);
}

#[test]
fn an_answer_for_a_client_that_is_gone_is_of_the_listener_it_came_by() {
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.clone();
    let upstream = Upstream::new(move |query| {
        // Questions come in any letter case.
        if query[13..].to_ascii_lowercase().starts_with(b"slow") {
            drop(closed.lock().unwrap());
        }
        vec![answer(query, &[[192, 0, 2, 1]], 30)]
    });
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = seen.clone();
    let chain = Fake::new(|_| forward()).answering(move |asked, _| {
        told.lock().unwrap().push(asked.server);
        Passing::Pass
    });
    let server = judged_at(2, to(&upstream), chain);
    let second = server.addresses()[1];
    let held = gate.lock().unwrap();
    let mut stream = std::net::TcpStream::connect(second).unwrap();
    write_message(&mut stream, &query(1, "quick.example")).unwrap();
    // Closed with something unread, a connection is reset, and its other end forgets it at once.
    stream.peek(&mut [0; 1]).unwrap();
    write_message(&mut stream, &query(2, "slow.example")).unwrap();
    eventually(|| upstream.asked() == 2);
    drop(stream);
    std::thread::sleep(Duration::from_millis(50));
    drop(held);
    eventually(|| server.counters().under_way == 0);
    assert_eq!(*seen.lock().unwrap(), [second, second]);
}

#[test]
fn a_chain_that_is_gone_is_not_kept() {
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let server = judged(to(&upstream), Fake::new(|_| forward()));
    let client = Client::of(&server);
    let old = Arc::new(Fake::new(|_| forward()));
    server.set_with(to(&upstream), old.clone()).unwrap();
    assert!(client.ask(&query(7, "a.example")).is_some());
    server.set_with(to(&upstream), Arc::new(Fake::new(|_| forward()))).unwrap();
    eventually(|| Arc::strong_count(&old) == 1);
}
