//! A server that ends, and another that goes on at its sockets.

use crate::holding::Slow;
use crate::stub::{Client, TEST_TIMEOUT, Upstream, answer, eventually, id, plain, query, serve, settings};
use namewall_dns::wire::{Header, Rcode};
use namewall_dns::{Answer, Learn, LearnError, Left, Opens, Server, Settings, Unanswered};
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const GIVEN: [u8; 4] = [192, 0, 2, 1];
/// So short that what is under way stays so.
const NO_PATIENCE: Duration = Duration::ZERO;

fn patient(upstream: &Upstream, loops: usize) -> Settings {
    Settings { loops, try_timeout: TEST_TIMEOUT, ..settings(&[upstream]) }
}

/// The server that goes on.
fn next<L: Learn + 'static>(settings: Settings, left: Left, learner: Arc<L>) -> Server<L>
where
    L::Batch: 'static,
{
    let server = Server::start_with(settings, left.sockets, learner).unwrap();
    assert_eq!(server.take_over(&left.questions), 0);
    server
}

/// An upstream that answers nothing while the gate is closed.
fn gated() -> (Arc<Mutex<()>>, Upstream) {
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.clone();
    let upstream = Upstream::new(move |query| {
        drop(closed.lock().unwrap());
        vec![answer(query, &[GIVEN], 30)]
    });
    (gate, upstream)
}

#[test]
fn a_question_that_an_upstream_takes_its_time_for_is_answered_by_the_next_server() {
    let (gate, upstream) = gated();
    let held = gate.lock().unwrap();
    let server = serve(patient(&upstream, 2), plain());
    // Of both loops; some spelled in another way, some joined.
    let clients: Vec<(Client, Vec<u8>)> = (0..40_u16)
        .map(|number| (Client::of(&server), query(number, &format!("N{}.example.com", number % 30))))
        .collect();
    clients.iter().for_each(|(client, asked)| _ = client.0.send(asked).unwrap());
    eventually(|| server.counters().queries == 40);
    let left = server.retire(NO_PATIENCE);
    assert_eq!(left.questions.len(), 40);
    let server = next(patient(&upstream, 3), left, plain());
    drop(held);
    for (client, asked) in &clients {
        assert_eq!(client.receive().unwrap(), answer(asked, &[GIVEN], 30));
    }
    eventually(|| server.counters().answers == 40);
}

/// Another thread has the kernel until the first server has to end.
#[test]
fn s6_6_an_answer_that_is_held_is_asked_for_again_by_the_next_server() {
    let (upstream, slow) = (Upstream::giving(GIVEN), Arc::new(Slow::default()));
    let settings = |upstream: &Upstream| Settings { hold_limit: TEST_TIMEOUT, ..patient(upstream, 1) };
    let server = serve(settings(&upstream), slow.clone());
    let client = Client::of(&server);
    slow.busy.store(true, Ordering::SeqCst);
    client.0.send(&query(7, "learned.example.com")).unwrap();
    eventually(|| server.counters().held == 1);
    let left = server.retire(NO_PATIENCE);
    assert_eq!(left.questions.len(), 1);
    let quick = Arc::new(Slow::default());
    let _server = next(settings(&upstream), left, quick.clone());
    let reply = client.receive().unwrap();
    assert_eq!((id(&reply), Header::read(&reply).unwrap().rcode), (7, Rcode::NO_ERROR));
    assert!(quick.open.lock().unwrap().contains(&IpAddr::from(GIVEN)), "it is open by the second server");
}

/// A learner that knows no client: none may ask.
struct Stranger;

impl Learn for Stranger {
    type Batch = ();

    fn knows(&self, _: IpAddr) -> bool {
        false
    }

    fn learn(&self, _: &Answer<'_>, (): &mut ()) -> Opens {
        Opens::Nothing
    }

    fn commit(&self, (): &mut ()) -> Result<(), LearnError> {
        Ok(())
    }
}

#[test]
fn questions_that_are_left_are_taken_by_the_rules_of_the_next_server() {
    let (gate, upstream) = gated();
    let held = gate.lock().unwrap();
    let server = serve(patient(&upstream, 1), plain());
    let client = Client::of(&server);
    client.0.send(&query(1, "a.example.com")).unwrap();
    eventually(|| upstream.asked() == 1);
    let mut left = server.retire(NO_PATIENCE);
    left.sockets.iter_mut().for_each(|(_, listen)| listen.is_open = false);
    // What came in elsewhere has nobody to answer it.
    let at = "127.0.0.1:9".parse().unwrap();
    left.questions.push(Unanswered { at, from: client.0.local_addr().unwrap(), query: query(2, "b.example.com") });
    let server = next(patient(&upstream, 1), left, Arc::new(Stranger));
    eventually(|| server.counters().strangers == 1);
    assert_eq!((server.counters().queries, upstream.asked()), (0, 1));
    drop(held);
}
