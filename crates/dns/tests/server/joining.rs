//! Identical questions under way are asked once (S6.1), and each client has its own reply (S6.7).

use crate::stub::{Client, Upstream, answer, eventually, plain, query, serve, settings};
use namewall_dns::{Answer, Learn, LearnError, Opens, Server, Settings};
use std::net::{IpAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// An upstream that answers nothing while the gate is locked.
fn gated() -> (Upstream, Arc<Mutex<()>>) {
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.clone();
    let upstream = Upstream::new(move |query| {
        drop(closed.lock().unwrap());
        vec![answer(query, &[[192, 0, 2, 1]], 30)]
    });
    (upstream, gate)
}

fn patient(upstream: &Upstream) -> Settings {
    Settings { try_timeout: Duration::from_secs(60), ..settings(&[upstream]) }
}

fn client_at<L: Learn + 'static>(server: &Server<L>, address: &str) -> Client
where
    L::Batch: 'static,
{
    let socket = UdpSocket::bind(address).unwrap();
    socket.connect(server.addresses()[0]).unwrap();
    socket.set_read_timeout(Some(crate::stub::TEST_TIMEOUT)).unwrap();
    Client(socket)
}

/// Sends queries one after the other, each by a client of its own, and waits until the server has all of them.
fn send_all<L: Learn + 'static>(server: &Server<L>, queries: &[Vec<u8>]) -> Vec<Client>
where
    L::Batch: 'static,
{
    let before = server.counters().queries;
    let send = |query: &Vec<u8>| {
        let client = Client::of(server);
        client.0.send(query).unwrap();
        client
    };
    let clients = queries.iter().map(send).collect();
    eventually(|| server.counters().queries == before + queries.len() as u64);
    clients
}

/// The same query with an OPT record.
fn with_edns(mut query: Vec<u8>, payload: u16, options: &[u8]) -> Vec<u8> {
    query[11] = 1;
    query.extend([0, 0, 41]);
    query.extend(payload.to_be_bytes());
    query.extend([0, 0, 0, 0]);
    query.extend((options.len() as u16).to_be_bytes());
    query.extend(options);
    query
}

fn held(gate: &Mutex<()>) -> MutexGuard<'_, ()> {
    gate.lock().unwrap()
}

#[test]
fn s6_1_identical_questions_are_asked_once_and_each_client_has_its_own_id_and_spelling() {
    let (upstream, gate) = gated();
    let server = serve(patient(&upstream), plain());
    let closed = held(&gate);
    let queries: Vec<Vec<u8>> =
        [(1, "www.example.com"), (1, "WWW.example.com"), (7, "wWw.eXaMpLe.CoM"), (9, "www.example.com")]
            .map(|(id, name)| query(id, name))
            .to_vec();
    let clients = send_all(&server, &queries);
    assert_eq!(server.counters().joined, 3);
    drop(closed);
    for (client, query) in clients.iter().zip(&queries) {
        assert_eq!(client.receive().unwrap(), answer(query, &[[192, 0, 2, 1]], 30));
    }
    assert_eq!(upstream.asked(), 1);
    eventually(|| server.counters().answers == 4);
    // Afterwards it is asked anew.
    assert!(clients[0].ask(&queries[0]).is_some());
    assert_eq!(upstream.asked(), 2);
}

#[test]
fn s6_1_questions_that_differ_in_any_other_byte_are_asked_each() {
    let (upstream, gate) = gated();
    let server = serve(patient(&upstream), plain());
    let closed = held(&gate);
    let name = || query(1, "www.example.com");
    let changed = |at: usize, to: u8| {
        let mut query = name();
        query[at] = to;
        query
    };
    let last = name().len() - 3;
    let queries = [
        name(),
        changed(2, 0),
        changed(3, 0x10),
        changed(last, 28),
        with_edns(name(), 1_232, &[]),
        with_edns(name(), 4_096, &[]),
        with_edns(name(), 1_232, &[0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8]),
        with_edns(name(), 1_232, &[0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 9]),
    ];
    let clients = send_all(&server, &queries);
    assert_eq!(server.counters().joined, 0);
    drop(closed);
    clients.iter().for_each(|client| assert!(client.receive().is_some()));
    assert_eq!(upstream.asked(), queries.len());
}

/// Opens something for every answer, and remembers for whom.
#[derive(Default)]
struct ByClient(Mutex<Vec<IpAddr>>);

impl Learn for ByClient {
    type Batch = Vec<IpAddr>;

    fn learn(&self, answer: &Answer<'_>, batch: &mut Vec<IpAddr>) -> Opens {
        batch.push(answer.client);
        Opens::New
    }

    fn commit(&self, batch: &mut Vec<IpAddr>) -> Result<(), LearnError> {
        self.0.lock().unwrap().append(batch);
        Ok(())
    }
}

#[test]
fn s6_7_an_answer_that_several_wait_for_is_learned_and_held_for_each_client() {
    let (upstream, gate) = gated();
    let learner = Arc::new(ByClient::default());
    let server = serve(patient(&upstream), learner.clone());
    let closed = held(&gate);
    let clients = ["127.0.0.1:0", "127.0.0.2:0", "127.0.0.3:0"].map(|address| client_at(&server, address));
    for client in &clients {
        client.0.send(&query(3, "www.example.com")).unwrap();
    }
    eventually(|| server.counters().joined == 2);
    drop(closed);
    for client in &clients {
        assert!(client.receive().is_some());
        let address = client.0.local_addr().unwrap().ip();
        assert!(learner.0.lock().unwrap().contains(&address), "its answer came before its addresses were open");
    }
    eventually(|| server.counters().held == 3);
    assert_eq!(upstream.asked(), 1);
}

/// The client that asked first gives way to another client. Those that wait for the same answer still get it.
#[test]
fn whoever_joined_a_question_gets_the_answer_though_the_first_client_gives_way() {
    let (upstream, gate) = gated();
    let server = serve(Settings { most_queries: 4, ..patient(&upstream) }, plain());
    let closed = held(&gate);
    let (heavy, joins, late) =
        (client_at(&server, "127.0.0.1:0"), client_at(&server, "127.0.0.2:0"), client_at(&server, "127.0.0.3:0"));
    let wait_for = |queries| eventually(|| server.counters().queries == queries);
    heavy.0.send(&query(1, "one.example")).unwrap();
    wait_for(1);
    joins.0.send(&query(2, "three.example")).unwrap();
    wait_for(2);
    heavy.0.send(&query(3, "two.example")).unwrap();
    wait_for(3);
    // The newest of the heaviest client, and the one that leads.
    heavy.0.send(&query(4, "four.example")).unwrap();
    wait_for(4);
    late.0.send(&query(5, "four.example")).unwrap();
    eventually(|| server.counters().evicted == 1);
    // Again: now the newest of the heaviest is `two.example`, which nobody has joined.
    drop(closed);
    assert_eq!(late.receive().unwrap(), answer(&query(5, "four.example"), &[[192, 0, 2, 1]], 30));
    assert_eq!(joins.receive().unwrap(), answer(&query(2, "three.example"), &[[192, 0, 2, 1]], 30));
    eventually(|| server.counters().under_way == 0);
}

#[test]
fn if_no_upstream_answers_all_that_wait_for_it_get_servfail() {
    let silent = Upstream::new(|_| Vec::new());
    let server = serve(Settings { tries: 1, ..settings(&[&silent]) }, plain());
    let queries: Vec<Vec<u8>> = (0..5).map(|id| query(id, "www.example.com")).collect();
    let before = server.counters().unanswered;
    let clients: Vec<Client> = queries
        .iter()
        .map(|query| {
            let client = Client::of(&server);
            client.0.send(query).unwrap();
            client
        })
        .collect();
    for (client, id) in clients.iter().zip(0..) {
        let reply = client.receive().unwrap();
        assert_eq!((crate::stub::id(&reply), reply[3] & 15), (id, 2));
    }
    eventually(|| server.counters().unanswered == before + 5);
}
