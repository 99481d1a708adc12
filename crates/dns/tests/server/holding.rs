//! Answers held until what they open is open (S6.6, S6.7).

use crate::stub::{
    Client, TEST_TIMEOUT, Upstream, answer, connect, eventually, id, on_schedule, query, read_message, serve, settings,
    write_message,
};
use namewall_dns::wire::{Header, Rcode};
use namewall_dns::{Answer, Learn, LearnError, OnLearnTimeout, Opens, Settings};
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Opens addresses of names that begin with `l`, in as much time as is set or not before it may; those of names with
/// `r` are open already, and are kept open longer.
#[derive(Default)]
pub(crate) struct Slow {
    takes: AtomicU64,
    waits: AtomicBool,
    fails: AtomicBool,
    /// Whether another thread of the process has what a commit needs.
    pub(crate) busy: AtomicBool,
    pub(crate) open: Mutex<HashSet<IpAddr>>,
    commits: AtomicUsize,
}

impl Learn for Slow {
    type Batch = Vec<IpAddr>;

    fn learn(&self, answer: &Answer<'_>, batch: &mut Vec<IpAddr>) -> Opens {
        let Ok(says) = answer.addresses() else { return Opens::Unreadable };
        let opens = match says.question.name.to_string().as_bytes()[0] {
            _ if says.addresses.is_empty() => return Opens::Nothing,
            b'l' => Opens::New,
            b'r' => Opens::Renewal,
            _ => return Opens::Nothing,
        };
        batch.extend(says.addresses.iter().map(|one| one.address));
        opens
    }

    fn commit(&self, batch: &mut Vec<IpAddr>) -> Result<(), LearnError> {
        std::thread::sleep(Duration::from_millis(self.takes.load(Ordering::SeqCst)));
        while self.waits.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.fails.load(Ordering::SeqCst) {
            return Err(LearnError("no".into()));
        }
        self.commits.fetch_add(1, Ordering::SeqCst);
        self.open.lock().unwrap().extend(batch.drain(..));
        Ok(())
    }

    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::SeqCst)
    }
}

/// Gives every name an address made of its id, so that each answer opens one of its own.
fn upstream() -> Upstream {
    let mut next = 0_u32;
    Upstream::new(move |query| {
        next += 1;
        vec![answer(query, &[(0xc633_0000 | next).to_be_bytes()], 30)]
    })
}

fn address(answer: &[u8]) -> IpAddr {
    IpAddr::from(*answer.last_chunk::<4>().unwrap())
}

#[test]
fn s6_6_an_answer_is_there_only_when_its_address_is_open() {
    let (upstream, slow) = (upstream(), Arc::new(Slow::default()));
    let server = serve(settings(&[&upstream]), slow.clone());
    let client = Client::of(&server);
    for number in 0..2_000 {
        let reply = client.ask(&query(number, "learned.example.com")).unwrap();
        assert!(slow.open.lock().unwrap().contains(&address(&reply)), "query {number}");
    }
}

#[test]
fn s6_6_what_is_only_kept_open_longer_holds_nobody_up() {
    let (upstream, slow) = (upstream(), Arc::new(Slow::default()));
    slow.waits.store(true, Ordering::SeqCst);
    let server = serve(settings(&[&upstream]), slow.clone());
    let client = Client::of(&server);
    let reply = client.ask(&query(1, "renewed.example.com")).unwrap();
    assert_eq!(Header::read(&reply).unwrap().rcode, Rcode::NO_ERROR);
    assert!(!slow.open.lock().unwrap().contains(&address(&reply)));
    slow.waits.store(false, Ordering::SeqCst);
    eventually(|| slow.open.lock().unwrap().contains(&address(&reply)));
}

#[test]
fn what_is_only_kept_open_longer_is_told_to_the_kernel_together() {
    // In so much time the oldest of them is due a hundred times at most.
    on_schedule(Duration::from_secs(2), || {
        let (upstream, slow) = (upstream(), Arc::new(Slow::default()));
        let server = serve(settings(&[&upstream]), slow.clone());
        let client = Client::of(&server);
        for number in 0..300 {
            assert!(client.ask(&query(number, "renewed.example.com")).is_some());
        }
        eventually(|| slow.open.lock().unwrap().len() == 300);
        let commits = slow.commits.load(Ordering::SeqCst);
        assert!(commits <= 150, "{commits} commits");
    });
}

#[test]
fn s6_7_answers_that_come_together_are_opened_together() {
    let (upstream, slow) = (upstream(), Arc::new(Slow::default()));
    slow.takes.store(1, Ordering::SeqCst);
    let server = serve(settings(&[&upstream]), slow.clone());
    let client = Client::of(&server);
    for burst in 0..5 {
        // More at once would not fit the sockets of a busy machine.
        for number in 0..200 {
            client.0.send(&query(burst * 200 + number, "learned.example.com")).unwrap();
        }
        for _ in 0..200 {
            let reply = client.receive().unwrap();
            assert!(slow.open.lock().unwrap().contains(&address(&reply)));
        }
    }
    assert!(slow.commits.load(Ordering::SeqCst) < 300, "{:?}", slow.commits);
}

#[test]
fn s6_6_beyond_the_hold_limit_the_client_gets_servfail_and_others_do_not_wait() {
    let (upstream, slow) = (upstream(), Arc::new(Slow::default()));
    let server = serve(settings(&[&upstream]), slow.clone());
    let (client, other) = (Client::of(&server), Client::of(&server));
    // A first one, so that the follower looks.
    client.ask(&query(1, "learned.example.com")).unwrap();
    slow.waits.store(true, Ordering::SeqCst);
    client.0.send(&query(2, "learned.example.com")).unwrap();
    // The kernel does nothing until all of these have their answers.
    for number in 0..50 {
        let reply = other.ask(&query(number, "any.example.com")).unwrap();
        assert_eq!(id(&reply), number);
    }
    client.0.send(&query(3, "learned.example.com")).unwrap();
    for expected in [2, 3] {
        let reply = client.receive().unwrap();
        assert_eq!((id(&reply), Header::read(&reply).unwrap().rcode), (expected, Rcode::SERV_FAIL));
    }
    eventually(|| server.counters().hold_failed == 2);
    // And all is well again when the kernel is.
    slow.waits.store(false, Ordering::SeqCst);
    eventually(|| {
        let reply = client.ask(&query(4, "learned.example.com")).unwrap();
        Header::read(&reply).unwrap().rcode == Rcode::NO_ERROR
    });
}

#[test]
fn s6_6_what_the_kernel_refuses_to_open_is_servfail_and_counted() {
    let (upstream, slow) = (upstream(), Arc::new(Slow::default()));
    slow.fails.store(true, Ordering::SeqCst);
    // The failure alone decides, not the hold limit.
    let server = serve(Settings { hold_limit: TEST_TIMEOUT * 2, ..settings(&[&upstream]) }, slow.clone());
    let client = Client::of(&server);
    let questions = [1, 2, 3].map(|number| query(number, &format!("l{number}.example.com")));
    questions.iter().for_each(|question| assert!(client.0.send(question).is_ok()));
    let mut failed = questions.each_ref().map(|_| client.receive().unwrap());
    failed.sort();
    for (reply, question) in failed.iter().zip(&questions) {
        let header = Header::read(reply).unwrap();
        assert_eq!((header.id, header.rcode, header.answers), (id(question), Rcode::SERV_FAIL, 0));
        assert_eq!(reply[12..], question[12..], "the question is repeated, and nothing of the answer");
    }
    let mut stream = connect(&server);
    write_message(&mut stream, &query(4, "l4.example.com")).unwrap();
    let reply = read_message(&mut stream).unwrap();
    assert_eq!((id(&reply), Header::read(&reply).unwrap().rcode), (4, Rcode::SERV_FAIL));
    let counted = || (server.counters().hold_failed, server.counters().hold_released);
    eventually(|| counted() == (4, 0));
    assert!(slow.open.lock().unwrap().is_empty());
    // What opens nothing is not concerned.
    let reply = client.ask(&query(5, "any.example.com")).unwrap();
    assert_eq!(Header::read(&reply).unwrap().rcode, Rcode::NO_ERROR);
    slow.fails.store(false, Ordering::SeqCst);
    let reply = client.ask(&query(6, "l6.example.com")).unwrap();
    assert_eq!(Header::read(&reply).unwrap().rcode, Rcode::NO_ERROR);
    eventually(|| server.counters().under_way == 0);
    assert_eq!(counted(), (4, 0));
}

#[test]
fn s6_6_with_release_the_answer_goes_out_though_nothing_is_open() {
    let (upstream, slow) = (upstream(), Arc::new(Slow::default()));
    slow.fails.store(true, Ordering::SeqCst);
    let server = serve(Settings { on_learn_timeout: OnLearnTimeout::Release, ..settings(&[&upstream]) }, slow.clone());
    let reply = Client::of(&server).ask(&query(2, "learned.example.com")).unwrap();
    assert_eq!(Header::read(&reply).unwrap().rcode, Rcode::NO_ERROR);
    eventually(|| server.counters().hold_released == 1);
}
