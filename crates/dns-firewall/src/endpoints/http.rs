//! A connection: a request that is read as far as its path, a reply, and its end. Nothing waits here.

use nix::poll::PollFlags;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// How long a request may take to come, and its reply to go.
const TIME_TO_ASK: Duration = Duration::from_secs(2);
const TIME_TO_TAKE: Duration = Duration::from_secs(5);
/// The longest head of a request.
const LONGEST_HEAD: usize = 8 << 10;

/// What is said to a request.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: &'static str,
    pub(super) content: &'static str,
    pub(super) body: String,
}

impl Reply {
    pub(super) fn plain(status: &'static str, body: impl Into<String>) -> Self {
        Self { status, content: "text/plain; charset=utf-8", body: body.into() }
    }

    fn bytes(&self, has_body: bool) -> Vec<u8> {
        let Self { status, content, body } = self;
        let length = body.len();
        let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\r\n"
        );
        if has_body { head + body } else { head }.into_bytes()
    }
}

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    stage: Stage,
    until: Instant,
}

#[derive(Debug)]
enum Stage {
    /// The head of the request, as far as it is there.
    Reads(Vec<u8>),
    /// The reply, and how much of it is gone.
    Writes(Vec<u8>, usize),
    /// All is said. To close at once would take back what the other side has not read yet.
    Parts,
    Over,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, now: Instant) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, stage: Stage::Reads(Vec::new()), until: now + TIME_TO_ASK })
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// What it waits for.
    pub(super) fn wants(&self) -> PollFlags {
        if let Stage::Writes(..) = self.stage { PollFlags::POLLOUT } else { PollFlags::POLLIN }
    }

    pub(super) fn until(&self) -> Instant {
        self.until
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        matches!(self.stage, Stage::Over) || now >= self.until
    }

    /// Does what can be done without waiting. It is told what there is at a path.
    pub(super) fn go_on(&mut self, now: Instant, at: impl Fn(&str) -> Reply) {
        let going = loop {
            let going = match &mut self.stage {
                Stage::Reads(head) => match read(&mut self.stream, head) {
                    Ok(()) => {
                        let reply = answer(head, &at);
                        self.until = now + TIME_TO_TAKE;
                        self.stage = Stage::Writes(reply, 0);
                        Ok(())
                    }
                    Err(error) => Err(error),
                },
                Stage::Writes(reply, gone) => match write(&mut self.stream, reply, gone) {
                    Ok(()) => {
                        self.stage = Stage::Parts;
                        self.stream.shutdown(Shutdown::Write)
                    }
                    Err(error) => Err(error),
                },
                Stage::Parts => drain(&mut self.stream),
                Stage::Over => return,
            };
            if going.is_err() {
                break going;
            }
        };
        if !going.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            self.stage = Stage::Over;
        }
    }
}

/// Reads until the head is whole, or longer than it may be.
fn read(stream: &mut TcpStream, head: &mut Vec<u8>) -> io::Result<()> {
    let mut bytes = [0; 1_024];
    while !is_whole(head) && head.len() <= LONGEST_HEAD {
        match stream.read(&mut bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => head.extend(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_whole(head: &[u8]) -> bool {
    head.windows(4).any(|four| four == b"\r\n\r\n") || head.windows(2).any(|two| two == b"\n\n")
}

fn write(stream: &mut TcpStream, reply: &[u8], gone: &mut usize) -> io::Result<()> {
    while *gone < reply.len() {
        match stream.write(&reply[*gone..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => *gone += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads what nobody wants until the other side is done; a little at a time, since others wait too.
fn drain(stream: &mut TcpStream) -> io::Result<()> {
    let mut bytes = [0; 1_024];
    match stream.read(&mut bytes) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => Err(io::ErrorKind::WouldBlock.into()),
        Err(error) => Err(error),
    }
}

fn answer(head: &[u8], at: impl Fn(&str) -> Reply) -> Vec<u8> {
    if !is_whole(head) {
        return Reply::plain("431 Request Header Fields Too Large", "the request is too long\n").bytes(true);
    }
    let line = head.split(|byte| *byte == b'\n').next().and_then(|line| std::str::from_utf8(line).ok());
    let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
    let [method, target, version] = words[..] else { return bad() };
    if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
        return bad();
    }
    let path = target.split('?').next().unwrap_or_default();
    match method {
        "GET" => at(path).bytes(true),
        "HEAD" => at(path).bytes(false),
        _ => Reply::plain("405 Method Not Allowed", "GET it\n").bytes(true),
    }
}

fn bad() -> Vec<u8> {
    Reply::plain("400 Bad Request", "this is not HTTP/1.1\n").bytes(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn said(head: &str) -> String {
        let reply = answer(head.as_bytes(), |path| match path {
            "/health" => Reply::plain("200 OK", "OK"),
            _ => Reply::plain("404 Not Found", "nothing is here\n"),
        });
        String::from_utf8(reply).unwrap()
    }

    #[test]
    fn a_request_gets_what_is_at_its_path() {
        let reply = said("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.ends_with("\r\n\r\nOK"), "{reply}");
        assert!(reply.contains("\r\nContent-Length: 2\r\n") && reply.contains("\r\nConnection: close\r\n"), "{reply}");
        assert_eq!(said("GET /health?verbose HTTP/1.0\r\n\r\n"), reply, "what is asked after ? is nothing here");
        let head = said("HEAD /health HTTP/1.1\r\n\r\n");
        assert!(head.contains("\r\nContent-Length: 2\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(said("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    }

    proptest! {
        #[test]
        fn whatever_is_said_there_is_a_reply(head: Vec<u8>, is_whole: bool) {
            let end: &[u8] = if is_whole { b"\r\n\r\n" } else { b"" };
            let reply = answer(&[&head, end].concat(), |_| Reply::plain("200 OK", ""));
            prop_assert!(reply.starts_with(b"HTTP/1.1 ") && reply.windows(4).any(|four| four == b"\r\n\r\n"));
        }
    }

    #[test]
    fn anything_else_is_told_what_is_wrong() {
        let long = format!("GET /health HTTP/1.1\r\nX: {}", "x".repeat(LONGEST_HEAD));
        for (head, status) in [
            ("POST /health HTTP/1.1\r\n\r\n", "405 "),
            ("GET /health HTTP/2\r\n\r\n", "400 "),
            ("GET http://x/health HTTP/1.1\r\n\r\n", "400 "),
            ("GET /health\r\n\r\n", "400 "),
            ("\r\n\r\n", "400 "),
            (&long, "431 "),
        ] {
            let reply = said(head);
            assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "{head:?}: {reply}");
        }
    }
}
