//! Whatever a server does, there is an answer or an error within the time-out.

use crate::fake::{Reply, grpc, raw, says, swallow};
use bytes::Bytes;
use namewall_engines::themis::remote::{Balance, Client, RemoteError, RemoteSettings};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_millis(400);
/// What a busy machine may add.
const GRACE: Duration = Duration::from_secs(60);

fn settings(endpoints: &[&str]) -> RemoteSettings {
    let mut settings = RemoteSettings::of(endpoints.iter().copied());
    (settings.connection_timeout, settings.request_timeout) = (TIMEOUT / 2, TIMEOUT);
    settings
}

/// For servers that do answer, on a machine that has other things to do.
fn patient(endpoints: &[&str]) -> RemoteSettings {
    let patience = Duration::from_secs(6);
    RemoteSettings { connection_timeout: patience, request_timeout: patience, ..settings(endpoints) }
}

fn ask(client: &Client) -> Result<Bytes, RemoteError> {
    let start = Instant::now();
    let answer = client.ask(b"asked".to_vec());
    assert!(start.elapsed() < TIMEOUT + GRACE, "{:?}: {answer:?}", start.elapsed());
    answer
}

/// By streams and by calls.
#[track_caller]
fn fails(endpoint: &str, words: &str) {
    for streams in [1, 0] {
        let client = Client::start(RemoteSettings { streams, ..settings(&[endpoint]) }).unwrap();
        for _ in 0..2 {
            let error = ask(&client).expect_err("it has no answer to give").to_string();
            assert!(words.split('|').any(|words| error.contains(words)), "{streams} streams: {error}");
        }
    }
}

const ANY: &str = "within|no server|error|broken|reset|closed|hung|end|frame|ping|protocol|pipe";

#[test]
fn a_server_that_hangs() {
    fails(&raw(|stream| swallow(&stream)), "within");
    fails(&grpc(|_| Reply::Hang), "within");
}

#[test]
fn a_server_that_does_not_read() {
    fails(
        &raw(|stream| {
            thread::sleep(TIMEOUT * 10);
            drop(stream);
        }),
        "within",
    );
}

#[test]
fn a_server_that_is_not_there() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    fails(&closed, "no server");
    let at_once = RemoteSettings { connection_timeout: Duration::ZERO, ..settings(&[&closed]) };
    assert_eq!(ask(&Client::start(at_once).unwrap()), Err(RemoteError::NoServer));
}

#[test]
fn a_server_that_closes() {
    fails(&raw(drop), ANY);
    fails(&grpc(|_| Reply::Close), ANY);
}

#[test]
fn a_server_that_speaks_something_else() {
    fails(&says(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"), ANY);
    fails(&says(&[0xff; 100]), ANY);
    fails(&says(b"\0\0\x04\x08\0\0\0\0\0\0\0\0\0"), ANY);
    // Settings, then a frame of 16 MB.
    fails(&says(b"\0\0\0\x04\0\0\0\0\0\xff\xff\xff\0\0\0\0\0\x01"), ANY);
}

#[test]
fn a_server_that_goes_away_at_once() {
    fails(&says(b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0"), ANY);
}

#[test]
fn a_server_that_lies() {
    let frames = |frames: &'static [&'static [u8]]| {
        grpc(move |_| Reply::Frames(frames.iter().map(|frame| frame.to_vec()).collect()))
    };
    // Longer than anything that is read.
    fails(&frames(&[b"\0\xff\xff\xff\xff"]), "4294967295 bytes");
    // Compressed, though nobody asked for it.
    fails(&frames(&[b"\x01\0\0\0\x02\x0a\0"]), "no answer");
    // Half an answer, and no more.
    fails(&frames(&[b"\0\0\0\0\x09\x0a\x07ha"]), "within|ends without");
    // Two answers to one request.
    fails(&frames(&[b"\0\0\0\0\x03\x0a\x01a\0\0\0\0\x03\x0a\x01b"]), "no answer");
    // Another message altogether.
    fails(&frames(&[b"\0\0\0\0\x03\x12\x01a"]), "no answer");
    fails(&grpc(|_| Reply::Status("12")), "12 no%20way");
    fails(&grpc(|_| Reply::Http(404)), "404");
}

#[test]
fn answers_in_pieces_are_answers() {
    let pieces = || Reply::Frames([&b"\0\0"[..], b"\0\0\x05", b"\x0a", b"\x03yes"].map(<[u8]>::to_vec).to_vec());
    for streams in [1, 0] {
        let server = grpc(move |asked| if asked == b"asked" { pieces() } else { Reply::Hang });
        let client = Client::start(RemoteSettings { streams, ..patient(&[&server]) }).unwrap();
        for _ in 0..5 {
            assert_eq!(client.ask(b"asked".to_vec()).unwrap(), "yes");
        }
    }
}

#[test]
fn another_server_answers_where_one_hangs() {
    for balance in [Balance::RoundRobin, Balance::HotSpot] {
        let hangs = raw(|stream| swallow(&stream));
        let lies = says(&[0xff; 100]);
        let good = grpc(|_| Reply::body(b"good"));
        let client = Client::start(RemoteSettings { balance, ..patient(&[&hangs, &lies, &good]) }).unwrap();
        for _ in 0..20 {
            assert_eq!(client.ask(b"asked".to_vec()).unwrap(), "good", "{balance:?}");
        }
    }
}

#[test]
fn each_server_has_its_turn() {
    let servers: Vec<(Arc<AtomicUsize>, String)> = (0..3)
        .map(|_| {
            let asked = Arc::new(AtomicUsize::new(0));
            let counted = asked.clone();
            let server = grpc(move |_| {
                counted.fetch_add(1, Ordering::Relaxed);
                Reply::body(b"good")
            });
            (asked, server)
        })
        .collect();
    let endpoints: Vec<&str> = servers.iter().map(|(_, server)| &**server).collect();
    let count = |balance| {
        let client = Client::start(RemoteSettings { balance, ..patient(&endpoints) }).unwrap();
        // In turn all are asked as soon as all are connected.
        let start = Instant::now();
        let is_idle = |(asked, _): &(Arc<AtomicUsize>, String)| asked.load(Ordering::Relaxed) == 0;
        while balance == Balance::RoundRobin && servers.iter().any(is_idle) {
            client.ask(b"asked".to_vec()).unwrap();
            assert!(start.elapsed() < GRACE);
        }
        servers.iter().for_each(|(asked, _)| asked.store(0, Ordering::Relaxed));
        for _ in 0..30 {
            client.ask(b"asked".to_vec()).unwrap();
        }
        servers.iter().map(|(asked, _)| asked.load(Ordering::Relaxed)).collect::<Vec<_>>()
    };
    assert_eq!(count(Balance::RoundRobin), [10, 10, 10]);
    let mut hot = count(Balance::HotSpot);
    hot.sort_unstable();
    assert_eq!(hot, [0, 0, 30]);
}

#[test]
fn beyond_the_queue_the_error_comes_at_once() {
    let server = grpc(|_| Reply::Hang);
    let client = Client::start(RemoteSettings { streams: 2, queue: 4, ..patient(&[&server]) }).unwrap();
    let barrier = Barrier::new(12);
    let busy = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                barrier.wait();
                match client.ask(b"asked".to_vec()) {
                    Err(RemoteError::Busy(4)) => _ = busy.fetch_add(1, Ordering::Relaxed),
                    Err(RemoteError::TimedOut(_)) => {}
                    other => panic!("{other:?}"),
                }
            });
        }
    });
    assert_eq!(busy.into_inner(), 8);
    // And places are given back.
    let start = Instant::now();
    while matches!(client.ask(b"asked".to_vec()), Err(RemoteError::Busy(_))) {
        assert!(start.elapsed() < GRACE);
    }
}

#[test]
fn a_server_that_comes_back_is_asked_again() {
    let broken = Arc::new(AtomicBool::new(false));
    let told = broken.clone();
    let server = grpc(move |_| if told.load(Ordering::Relaxed) { Reply::Close } else { Reply::body(b"good") });
    let client = Client::start(patient(&[&server])).unwrap();
    assert_eq!(client.ask(b"asked".to_vec()).unwrap(), "good");
    broken.store(true, Ordering::Relaxed);
    assert!(client.ask(b"asked".to_vec()).is_err());
    broken.store(false, Ordering::Relaxed);
    assert_eq!(client.ask(b"asked".to_vec()).unwrap(), "good");
}

#[test]
fn a_server_that_goes_away_after_each_answer_is_connected_to_again() {
    for streams in [1, 0] {
        let server = grpc(|_| {
            let Reply::Frames(frames) = Reply::body(b"good") else { return Reply::Hang };
            Reply::GoAway(frames)
        });
        let client = Client::start(RemoteSettings { streams, ..patient(&[&server]) }).unwrap();
        for _ in 0..6 {
            assert_eq!(client.ask(b"asked".to_vec()).unwrap(), "good", "{streams} streams");
        }
    }
}

#[test]
fn many_threads_share_few_streams() {
    let server = grpc(Reply::body);
    let client = Client::start(RemoteSettings { streams: 2, ..patient(&[&server]) }).unwrap();
    thread::scope(|scope| {
        for number in 0..16_u8 {
            let client = &client;
            scope.spawn(move || {
                for turn in 0..40_u8 {
                    // Each has its own answer, and nobody else's.
                    assert_eq!(client.ask(vec![number, turn]).unwrap(), vec![number, turn]);
                }
            });
        }
    });
}
