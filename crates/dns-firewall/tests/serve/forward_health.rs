//! Which upstreams are asked no longer, and when again.

use crate::stub::{Upstream, eventually};
use crate::support::{Live, answer, upstream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const GOOD: &str = "NOERROR; a.example. 30 A 192.0.2.1";
const NS: u8 = 2;

fn kind(query: &[u8]) -> u8 {
    query[query.len() - 3]
}

/// An upstream that answers only while it should, and remembers how it was checked.
struct Checked {
    upstream: Upstream,
    lives: Arc<AtomicBool>,
    checks: Arc<Mutex<Vec<Vec<u8>>>>,
    queries: Arc<AtomicUsize>,
}

impl Checked {
    fn new() -> Self {
        let (lives, checks) = (Arc::new(AtomicBool::new(true)), Arc::<Mutex<Vec<Vec<u8>>>>::default());
        let queries = Arc::new(AtomicUsize::new(0));
        let (alive, seen, count) = (lives.clone(), checks.clone(), queries.clone());
        let upstream = Upstream::new(move |query| {
            match kind(query) {
                NS => seen.lock().unwrap().push(query.to_vec()),
                _ => _ = count.fetch_add(1, Ordering::SeqCst),
            }
            if alive.load(Ordering::SeqCst) { vec![answer(query, &["@ 30 A 192.0.2.1"])] } else { Vec::new() }
        });
        Self { upstream, lives, checks, queries }
    }

    fn lives(&self, lives: bool) {
        self.lives.store(lives, Ordering::SeqCst);
    }

    fn checks(&self) -> usize {
        self.checks.lock().unwrap().len()
    }
}

fn serve(first: &Checked, then: &Upstream, options: &str) -> Live {
    let to = format!("{} {}", first.upstream.address, then.address);
    Live::start(&format!(".:PORT0 {{\n forward . {to} {{\n policy sequential\n {options}\n }}\n}}"))
}

fn is_up(live: &Live) -> bool {
    live.server.upstreams().first().is_none_or(|first| first.is_up)
}

#[test]
fn who_fails_its_checks_is_not_asked_until_it_passes_one() {
    let (first, second) = (Checked::new(), upstream(&["@ 30 A 192.0.2.1"]));
    let live = serve(&first, &second, "health_check 100ms no_rec domain check.example\n max_fails 2");
    assert_eq!(live.ask("A a.example"), GOOD);
    assert_eq!(first.checks(), 0, "nobody is checked without a reason");
    first.lives(false);
    assert_eq!(live.ask("A a.example"), GOOD, "the other is asked");
    eventually(|| !is_up(&live));
    let checks = first.checks.lock().unwrap().clone();
    assert!(checks.len() >= 2, "{checks:?}");
    assert_eq!(&checks[0][2..], b"\0\0\0\x01\0\0\0\0\0\0\x05check\x07example\0\0\x02\0\x01", "no recursion");
    let before = first.queries.load(Ordering::SeqCst);
    for _ in 0..3 {
        assert_eq!(live.ask("A a.example"), GOOD);
    }
    assert_eq!(first.queries.load(Ordering::SeqCst), before, "nobody waits for who is down");
    first.lives(true);
    eventually(|| is_up(&live));
    assert_eq!(live.ask("A a.example"), GOOD);
    assert_eq!(first.queries.load(Ordering::SeqCst), before + 1);
    let checks = first.checks();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(first.checks(), checks, "who is well is not checked");
}

#[test]
fn as_many_checks_fail_as_is_set() {
    let (first, second) = (Checked::new(), upstream(&["@ 30 A 192.0.2.1"]));
    let live = serve(&first, &second, "health_check 50ms\n max_fails 1000");
    first.lives(false);
    assert_eq!(live.ask("A a.example"), GOOD);
    eventually(|| first.checks() > 5);
    assert_eq!(
        first.checks.lock().unwrap()[0][2..],
        *b"\x01\0\0\x01\0\0\0\0\0\0\0\0\x02\0\x01",
        "the root's, with recursion"
    );
    let before = first.queries.load(Ordering::SeqCst);
    assert_eq!(live.ask("A a.example"), GOOD);
    assert_eq!(first.queries.load(Ordering::SeqCst), before + 1, "it still counts as up");
}

#[test]
fn nobody_is_checked_if_no_failure_counts() {
    let (first, second) = (Checked::new(), upstream(&["@ 30 A 192.0.2.1"]));
    let live = serve(&first, &second, "health_check 50ms\n max_fails 0");
    first.lives(false);
    for round in 1..6 {
        assert_eq!(live.ask("A a.example"), GOOD);
        assert_eq!(first.queries.load(Ordering::SeqCst), round);
    }
    assert_eq!(first.checks(), 0);
}

#[test]
fn if_all_are_down_one_is_asked_all_the_same_or_nobody() {
    for (options, is_asked) in [("", true), ("failfast_all_unhealthy_upstreams", false)] {
        let first = Checked::new();
        let live = Live::start(&format!(
            ".:PORT0 {{\n forward . {} {{\n health_check 50ms\n max_fails 1\n {options}\n }}\n}}",
            first.upstream.address
        ));
        first.lives(false);
        assert_eq!(live.ask("A a.example"), "SERVFAIL");
        eventually(|| !is_up(&live));
        let before = first.queries.load(Ordering::SeqCst);
        assert_eq!(live.ask("A a.example"), "SERVFAIL");
        assert_eq!(first.queries.load(Ordering::SeqCst) > before, is_asked, "{options}");
        first.lives(true);
        eventually(|| is_up(&live));
        assert_eq!(live.ask("A a.example"), GOOD);
    }
}
