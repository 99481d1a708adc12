use super::*;
use crate::export::{Export, Exposition, Metrics};
use crate::health::Health;
use std::fmt;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

/// Nothing here takes so long, on however slow a machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn serve(pages: Vec<Page>) -> (Server, SocketAddr) {
    let mut server = Server::start().expect("a server");
    server.set(vec![Site { at: ANY_PORT, pages }]).expect("an address");
    let at = server.addresses()[0];
    (server, at)
}

fn health() -> Vec<Page> {
    let health = Health::new("not yet\n");
    vec![Page::Health(health.clone()), Page::Ready(health)]
}

fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).expect("a connection");
    stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
    stream
}

/// All that comes back after these bytes.
fn say(at: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = connect(at);
    stream.write_all(bytes).expect("it is written");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("it is read");
    reply
}

fn get(at: SocketAddr, path: &str) -> String {
    say(at, format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())
}

#[test]
fn pages_have_their_paths_and_nothing_else_is_there() {
    let (_server, at) = serve(health());
    for path in ["/health", "/healthz", "/health?verbose"] {
        let reply = get(at, path);
        assert!(reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.ends_with("\r\n\r\nOK"), "{path}: {reply}");
        assert!(reply.contains("connection: close\r\n") && reply.contains("content-length: 2\r\n"), "{reply}");
    }
    for path in ["/ready", "/readyz"] {
        let reply = get(at, path);
        assert!(reply.starts_with("HTTP/1.1 503 ") && reply.ends_with("\r\n\r\nnot yet\n"), "{path}: {reply}");
    }
    for path in ["/", "/metrics", "/health/", "//health"] {
        assert!(get(at, path).starts_with("HTTP/1.1 404 "), "{path}");
    }
    let head = say(at, b"HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(head.contains("content-length: 2\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(say(at, b"GET /health HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 200 "));
}

#[test]
fn anything_else_is_told_what_is_wrong() {
    let (_server, at) = serve(health());
    let long = format!("GET /health HTTP/1.1\r\nX: {}", "x".repeat(2 * connection::LONGEST_HEAD));
    let many = format!("GET /health HTTP/1.1\r\n{}\r\n", "X: x\r\n".repeat(100));
    for (bytes, status) in [
        (&b"POST /health HTTP/1.1\r\nHost: x\r\n\r\n"[..], "HTTP/1.1 405 "),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", "HTTP/1.1 400 "),
        (b"GET /health\r\n\r\n", "HTTP/1.1 400 "),
        (&[b'x'; 9_000], "HTTP/1.1 431 "),
        (long.as_bytes(), "HTTP/1.1 431 "),
        (many.as_bytes(), "HTTP/1.1 431 "),
    ] {
        let reply = say(at, bytes);
        assert!(reply.starts_with(status), "{}: {reply}", String::from_utf8_lossy(&bytes[..bytes.len().min(40)]));
    }
    let refused = say(at, b"DELETE /health HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(refused.contains("allow: GET, HEAD\r\n"), "{refused}");
}

#[test]
fn slow_clients_keep_nobody_waiting_and_are_sent_away() {
    let (_server, at) = serve(health());
    // More than are served at a time: silent ones, and such as say a byte now and then.
    let mut slow: Vec<TcpStream> = (0..200).map(|_| connect(at)).collect();
    for stream in slow.iter_mut().step_by(2) {
        let _ = stream.write_all(b"GET /health HTTP/1.1\r\nX: ");
    }
    assert!(get(at, "/health").starts_with("HTTP/1.1 200 "));
    let mut last = slow.pop().expect("a stream");
    let begun = Instant::now();
    // A byte now and then does not lengthen the time for a head.
    while begun.elapsed() < TEST_TIMEOUT {
        if last.write_all(b"x").is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("a slow client is still served");
}

/// Metrics that wait until they are let go.
#[derive(Debug)]
struct Gate {
    begun: Mutex<Sender<()>>,
    open: Mutex<Receiver<()>>,
}

impl Export for Gate {
    fn export(&self, _to: &mut Exposition<'_>) -> fmt::Result {
        self.begun.lock().map_err(|_| fmt::Error)?.send(()).map_err(|_| fmt::Error)?;
        self.open.lock().map_err(|_| fmt::Error)?.recv_timeout(TEST_TIMEOUT).map_err(|_| fmt::Error)
    }
}

#[test]
fn a_scrape_that_waits_delays_no_probe() {
    let ((begun, has_begun), (open, is_open)) = (channel(), channel());
    let gate = Gate { begun: Mutex::new(begun), open: Mutex::new(is_open) };
    let metrics = Page::Metrics(Arc::new(Metrics::new(vec![Box::new(gate)])));
    let (_server, at) = serve([health(), vec![metrics]].concat());
    let scrape = std::thread::spawn(move || get(at, "/metrics"));
    has_begun.recv_timeout(TEST_TIMEOUT).expect("the scrape has begun");
    assert!(get(at, "/health").starts_with("HTTP/1.1 200 "));
    open.send(()).expect("the scrape waits");
    assert!(scrape.join().expect("a reply").starts_with("HTTP/1.1 200 "));
}

#[test]
fn metrics_are_served_in_the_format_that_is_asked_for() {
    let (_server, at) = serve(vec![Page::Metrics(Arc::new(Metrics::new(Vec::new())))]);
    let text = get(at, "/metrics");
    assert!(text.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{text}");
    assert!(!text.contains("# EOF"), "{text}");
    let open = say(at, b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\n\r\n");
    assert!(open.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"), "{open}");
    assert!(open.ends_with("# EOF\n"), "{open}");
}

#[test]
fn an_address_keeps_its_socket_and_one_that_is_taken_changes_nothing() {
    let (mut server, at) = serve(health());
    let taken = StdListener::bind(ANY_PORT).expect("a socket");
    let other = taken.local_addr().expect("an address");
    let error = server.set(vec![Site { at: other, pages: health() }]).expect_err("it is taken");
    assert_eq!(error.at, other);
    assert_eq!(server.addresses(), [at]);
    // Any port was asked for, and it is the same as before: so is the socket.
    server.set(vec![Site { at: ANY_PORT, pages: Vec::new() }]).expect("the same address");
    assert_eq!(server.addresses(), [at]);
    assert!(get(at, "/health").starts_with("HTTP/1.1 404 "));
    drop(taken);
    server.set(Vec::new()).expect("nothing is served");
    let begun = Instant::now();
    while TcpStream::connect(at).is_ok() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "the address is left");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_server_that_is_dropped_leaves_its_addresses() {
    let (server, at) = serve(health());
    drop(server);
    assert!(TcpStream::connect(at).is_err());
}
