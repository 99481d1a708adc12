//! `namewall dns` as a process, seen from beside DNS: healthy, ready, and how it ends.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "dns/ports.rs"]
mod ports;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ports::free_port;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

const TEST_TIMEOUT: Duration = Duration::from_secs(60);

struct Process {
    child: Child,
    conf: PathBuf,
    notes: Receiver<String>,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.conf);
    }
}

fn free<const N: usize>() -> [u16; N] {
    [(); N].map(|()| free_port())
}

fn start(name: &str, corefile: &str) -> Process {
    let conf = std::env::temp_dir().join(format!("namewall-{}-{name}.Corefile", std::process::id()));
    std::fs::write(&conf, corefile).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_namewall"))
        .args(["dns", "--conf"])
        .arg(&conf)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (send, notes) = channel();
    let output = BufReader::new(child.stderr.take().unwrap());
    spawn(move || output.lines().map_while(Result::ok).for_each(|line| _ = send.send(line)));
    Process { child, conf, notes }
}

impl Process {
    /// Waits until it has said this.
    fn says(&self, words: &str) -> String {
        let mut said = Vec::new();
        loop {
            match self.notes.recv_timeout(TEST_TIMEOUT) {
                Ok(line) if line.contains(words) => return line,
                Ok(line) => said.push(line),
                Err(_) => panic!("it does not say {words:?}, but {said:?}"),
            }
        }
    }

    fn signal(&self, signal: &str) {
        // Not with kill of procps, which not every machine has.
        let signal: Signal = format!("SIG{}", signal.trim_start_matches('-')).parse().unwrap();
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }
}

/// The number of the status; none is that nobody listens there.
fn get(port: u16, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).ok()?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    reply.split(' ').nth(1)?.parse().ok()
}

/// The code of an answer.
fn ask(port: u16) -> Option<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    socket.send_to(b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07example\0\0\x01\0\x01", (Ipv4Addr::LOCALHOST, port)).ok()?;
    let mut answer = [0; 512];
    socket.recv(&mut answer).ok()?;
    Some(answer[3] & 15)
}

fn corefile(dns: u16, lines: &str) -> String {
    format!(".:{dns} {{\n   bind 127.0.0.1\n   firewall query {{ refuse true }}\n   {lines}\n}}\n")
}

#[test]
fn it_serves_on_as_a_lame_duck_and_then_ends() {
    let [dns, health, ready] = free();
    let lines = format!("health 127.0.0.1:{health} {{ lameduck 3s }}\n   ready 127.0.0.1:{ready}");
    let mut process = start("lameduck", &corefile(dns, &lines));
    process.says("serving DNS address=127.0.0.1");
    let begun = Instant::now();
    while get(ready, "/ready") != Some(200) {
        assert!(begun.elapsed() < TEST_TIMEOUT, "it is ready");
        sleep(Duration::from_millis(5));
    }
    assert_eq!(get(health, "/health"), Some(200));
    let begun = Instant::now();
    process.signal("-TERM");
    while get(ready, "/ready") == Some(200) {
        assert!(begun.elapsed() < TEST_TIMEOUT, "it is not ready any more");
        sleep(Duration::from_millis(5));
    }
    assert_eq!((get(ready, "/ready"), get(health, "/health"), ask(dns)), (Some(503), Some(200), Some(5)));
    let status = process.child.wait().unwrap();
    assert!(status.success());
    assert!(begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
    assert_eq!((get(health, "/health"), get(ready, "/ready")), (None, None));
}

#[test]
fn to_be_told_twice_to_end_is_to_end() {
    let [dns, health, ready] = free();
    let lines = format!("health 127.0.0.1:{health} {{ lameduck 1h }}\n   ready 127.0.0.1:{ready}");
    let mut process = start("twice", &corefile(dns, &lines));
    process.says("serving DNS address=127.0.0.1");
    let wait_for = |code: u16| {
        let begun = Instant::now();
        while get(ready, "/ready") != Some(code) {
            assert!(begun.elapsed() < TEST_TIMEOUT, "/ready answers {code}");
            sleep(Duration::from_millis(5));
        }
    };
    // It also answers 503 before it is ready, so that must be over first.
    wait_for(200);
    process.signal("-TERM");
    // Two signals that come before the first is taken are one.
    wait_for(503);
    assert_eq!(ask(dns), Some(5));
    process.signal("-TERM");
    assert!(process.child.wait().unwrap().success());
}

#[test]
fn endpoints_follow_the_file_and_stay_where_it_cannot_be_served() {
    let [dns, first, second] = free();
    let process = start("reload", &corefile(dns, &format!("health 127.0.0.1:{first}")));
    process.says("serving DNS address=127.0.0.1");
    std::fs::write(&process.conf, corefile(dns, &format!("ready 127.0.0.1:{second}"))).unwrap();
    process.signal("-HUP");
    process.says("was read again");
    let begun = Instant::now();
    while get(first, "/health").is_some() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "it has gone");
        sleep(Duration::from_millis(5));
    }
    assert_eq!(get(second, "/ready"), Some(200));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    std::fs::write(&process.conf, corefile(dns, &format!("prometheus 127.0.0.1:{port}"))).unwrap();
    process.signal("-HUP");
    let error = process.says("cannot listen");
    assert!(error.contains(&format!(":1:1: error: prometheus: cannot listen at 127.0.0.1:{port}")), "{error}");
    assert_eq!((get(second, "/ready"), ask(dns)), (Some(200), Some(5)));
}

#[test]
fn a_port_that_is_taken_ends_it_at_the_start() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let [dns] = free();
    let port = taken.local_addr().unwrap().port();
    let mut process = start("taken", &corefile(dns, &format!("health 127.0.0.1:{port}")));
    process.says(&format!(":1:1: error: health: cannot listen at 127.0.0.1:{port}: Address already in use"));
    assert!(!process.child.wait().unwrap().success());
}
