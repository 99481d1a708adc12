//! Upstreams over HTTPS: a server of ours asks another one.

use crate::pki::{Authority, Encrypted, NAME};
use crate::relay::Relay;
use crate::stub::{Client, TEST_TIMEOUT, Upstream, answer, eventually, on_schedule, plain, query, settings};
use namewall_dns::wire::{Header, Rcode, reply};
use namewall_dns::{
    Asked, Chain, Continuation, Failure, Heard, LearnNothing, Passing, Route, Server, Settings, Sockets, Step, Tls, To,
    Transport, UpstreamTransport, pass_on,
};
use rustls::pki_types::ServerName;
use std::cell::OnceCell;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Forwards everything by the first route, and remembers how it was asked and why there was no answer.
#[derive(Debug, Default)]
struct Forwards {
    heard: Arc<Mutex<Vec<Transport>>>,
    failures: Arc<Mutex<Vec<String>>>,
}

struct Waits {
    query: Vec<u8>,
    heard: Arc<Mutex<Vec<Transport>>>,
    failures: Arc<Mutex<Vec<String>>>,
}

impl Chain for Forwards {
    fn query(&self, asked: &Asked<'_>) -> Step {
        let (heard, failures) = (self.heard.clone(), self.failures.clone());
        Step::Forward(To::Route(0), Box::new(Waits { query: asked.query.to_vec(), heard, failures }))
    }
}

impl Continuation for Waits {
    fn answer(self: Box<Self>, heard: &Heard<'_>) -> Passing {
        self.heard.lock().unwrap().push(heard.transport);
        Passing::Pass
    }

    fn failed(self: Box<Self>, failure: Failure<'_>) -> Passing {
        self.failures.lock().unwrap().push(format!("{failure:?}"));
        Passing::Instead(reply::failure(&self.query, Rcode::SERV_FAIL))
    }
}

fn over_https(address: SocketAddr, trusted: &Authority, name: &'static str) -> namewall_dns::Upstream {
    let tls = Tls { config: trusted.client(&["h2"]), name: ServerName::try_from(name).unwrap(), digest: 0 };
    namewall_dns::Upstream { tls: Some(tls), http_path: Some("/dns-query".into()), ..address.into() }
}

fn asking(upstreams: Vec<namewall_dns::Upstream>) -> (Server<LearnNothing>, Arc<Forwards>) {
    asking_with(Duration::from_secs(5), upstreams)
}

fn asking_with(try_timeout: Duration, upstreams: Vec<namewall_dns::Upstream>) -> (Server<LearnNothing>, Arc<Forwards>) {
    let sockets = Sockets::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listen = sockets.udp.local_addr().unwrap().into();
    let routes = vec![Route { upstreams, ..Route::default() }];
    let settings = Settings { listen: vec![listen], routes, try_timeout, ..Settings::default() };
    let chain = Arc::new(Forwards::default());
    let server = Server::start_judged(settings, Some(chain.clone()), vec![(sockets, listen)], plain()).unwrap();
    (server, chain)
}

/// A socket at an address whose listener closes in the background.
fn bind_again(address: SocketAddr) -> TcpListener {
    let bound = OnceCell::new();
    eventually(|| TcpListener::bind(address).is_ok_and(|socket| bound.set(socket).is_ok()));
    bound.into_inner().unwrap()
}

fn rcode(reply: &[u8]) -> Rcode {
    Header::read(reply).unwrap().rcode
}

#[test]
fn one_connection_over_https_serves_all_questions() {
    let origin = Upstream::giving([192, 0, 2, 7]);
    let above = Encrypted::start(settings(&[&origin]));
    let (server, chain) = asking(vec![over_https(above.https, &above.authority, NAME)]);
    let client = Client::of(&server);
    for number in 0..20 {
        let asked = query(number, &format!("n{number}.Example"));
        assert_eq!(client.ask(&asked).unwrap(), answer(&asked, &[[192, 0, 2, 7]], 30));
    }
    assert_eq!(above.server.encrypted_counters().connections.get(), 1);
    assert_eq!(*chain.heard.lock().unwrap(), [Transport::Https; 20]);
    let state = server.upstreams();
    assert!(state.iter().all(|one| one.is_up));
}

#[test]
fn an_answer_of_our_own_can_be_asked_for_over_https() {
    let origin = Upstream::giving([192, 0, 2, 7]);
    let above = Encrypted::start(settings(&[&origin]));
    let upstream = over_https(above.https, &above.authority, NAME);
    let asked = query(77, "a.example");
    let told = pass_on(&upstream, &asked, TEST_TIMEOUT, UpstreamTransport::default()).unwrap();
    assert_eq!(told, answer(&asked, &[[192, 0, 2, 7]], 30));
}

#[test]
fn who_shows_a_wrong_certificate_is_told_nothing() {
    let origin = Upstream::giving([192, 0, 2, 7]);
    let above = Encrypted::start(settings(&[&origin]));
    for (trusted, name) in [(&Authority::new(), NAME), (&above.authority, "other.example")] {
        let (server, chain) = asking(vec![over_https(above.https, trusted, name)]);
        let reply = Client::of(&server).ask(&query(1, "a.example")).unwrap();
        assert_eq!(rcode(&reply), Rcode::SERV_FAIL);
        let why = chain.failures.lock().unwrap().join(" ");
        assert!(why.contains("certificate"), "{why}");
    }
    assert_eq!(origin.asked(), 0);
}

#[test]
fn another_upstream_is_asked_if_one_over_https_fails_and_it_is_asked_again_when_it_is_back() {
    let origin = Upstream::giving([192, 0, 2, 7]);
    let spare = Upstream::giving([192, 0, 2, 8]);
    let mut above = Encrypted::start(settings(&[&origin]));
    let (server, _) = asking(vec![over_https(above.https, &above.authority, NAME), spare.address.into()]);
    let client = Client::of(&server);
    let given = |number: u16| client.ask(&query(number, "a.example")).unwrap().last().copied();
    assert_eq!(given(1), Some(7));
    // It is gone, with its connections.
    let (address, listen) = (above.https, crate::pki::listen(&above.authority, above.tls, above.https));
    above.server = Server::start(settings(&[&origin]), plain()).unwrap();
    eventually(|| given(2) == Some(8));
    let sockets = vec![bind_again(above.tls), bind_again(address)];
    let sockets = above.server.prepare_encrypted(sockets).unwrap();
    above.server.serve_encrypted(listen, sockets);
    eventually(|| given(3) == Some(7));
}

/// Five queries are under way over one connection when it is cut. Returns how many queries the upstream has answered and
/// how many failures it has.
fn after_a_cut(has_answered: bool) -> (u64, u64) {
    // Names that begin with a label of nine letters are answered when the test says so.
    let (release, released) = std::sync::mpsc::channel::<()>();
    let origin = Upstream::new(move |query| {
        if query[12] == 9 {
            // It returns at once, with an error, when the other end is dropped.
            let _released = released.recv();
        }
        vec![answer(query, &[[192, 0, 2, 7]], 30)]
    });
    let above = Encrypted::start(Settings { try_timeout: TEST_TIMEOUT, ..settings(&[&origin]) });
    let relay = Relay::to(above.https);
    let (server, _) = asking_with(TEST_TIMEOUT, vec![over_https(relay.address, &above.authority, NAME)]);
    let client = Client::of(&server);
    if has_answered {
        client.ask(&query(9, "a.example")).unwrap();
    }
    for number in 0..5 {
        client.0.send(&query(number, &format!("unanswerd.n{number}.example"))).unwrap();
    }
    eventually(|| above.server.counters().under_way == 5);
    relay.cut();
    eventually(|| relay.accepted() == 2);
    drop(release);
    for _ in 0..5 {
        assert_eq!(rcode(&client.receive().unwrap()), Rcode::NO_ERROR);
    }
    let all = 5 + u64::from(has_answered);
    eventually(|| server.upstreams()[0].answered == all);
    let state = &server.upstreams()[0];
    assert!(state.is_up);
    (state.answered, state.failed)
}

#[test]
fn a_connection_over_https_that_has_answered_and_is_closed_is_no_failure() {
    // A request has ten seconds, a connection five to begin.
    on_schedule(Duration::from_secs(4), || assert_eq!(after_a_cut(true), (6, 0)));
}

#[test]
fn a_connection_over_https_that_is_lost_is_one_failure_for_all_queries() {
    on_schedule(Duration::from_secs(4), || assert_eq!(after_a_cut(false), (5, 1)));
}
