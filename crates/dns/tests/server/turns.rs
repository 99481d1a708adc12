//! How often a loop is woken.

use crate::stub::{Client, Upstream, eventually, plain, query, serve, settings};
use namewall_dns::Settings;
use std::time::{Duration, Instant};

#[test]
fn nobody_is_woken_for_a_question_that_was_answered() {
    const QUESTIONS: u16 = 50;
    const TRY: Duration = Duration::from_secs(2);
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let server = serve(Settings { try_timeout: TRY, ..settings(&[&upstream]) }, plain());
    let client = Client::of(&server);
    for number in 0..QUESTIONS {
        client.ask(&query(number, &format!("n{number}.example.com"))).unwrap();
        // Each has a time of its own at which it would be tried again.
        std::thread::sleep(Duration::from_millis(20));
    }
    eventually(|| server.counters().answers == u64::from(QUESTIONS));
    let (turns, began) = (server.turns()[0], Instant::now());
    std::thread::sleep(TRY + TRY / 2);
    let woken = server.turns()[0] - turns;
    // It looks round every second, and the last answer may have been on its way out.
    let expected = began.elapsed().as_secs() + 6;
    assert!(woken <= expected, "woken {woken} times without a question");
}
