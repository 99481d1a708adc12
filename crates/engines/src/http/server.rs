//! A server for tests that does what it is told, be it HTTP or not.

use super::ServerUrl;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::Duration;

/// What it does about a request.
pub(crate) enum Reply {
    /// 200, with this body.
    Body(String),
    /// These bytes.
    Raw(Vec<u8>),
    /// These bytes, and the end of the connection.
    Last(Vec<u8>),
    /// Nothing, with the connection left open.
    Hang,
    /// These bytes, one every ten milliseconds.
    Drip(Vec<u8>),
    /// A body that does not end.
    Endless,
}

pub(crate) struct Server {
    at: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_over: AtomicBool,
    connections: AtomicUsize,
    requests: Mutex<Vec<String>>,
}

type Answer = dyn Fn(usize) -> Reply + Send + Sync;

impl Server {
    /// It asks for every request's reply, by the number of the request.
    pub(crate) fn start(answer: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let state = Arc::<State>::default();
        let (serving, answer) = (state.clone(), Arc::<Answer>::from(Box::new(answer) as Box<Answer>));
        spawn(move || {
            for stream in listener.incoming() {
                if serving.is_over.load(Ordering::SeqCst) {
                    return;
                }
                serving.connections.fetch_add(1, Ordering::SeqCst);
                let (state, answer) = (serving.clone(), answer.clone());
                spawn(move || serve(stream.unwrap(), &state, &*answer));
            }
        });
        Self { at, state }
    }

    pub(crate) fn url(&self, path: &str) -> ServerUrl {
        ServerUrl { is_tls: false, host_port: self.at.to_string(), path: path.into() }
    }

    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// As they came, header and body.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.state.requests.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
        // So that it sees it.
        let _ = TcpStream::connect(self.at);
    }
}

fn serve(mut stream: TcpStream, state: &State, answer: &Answer) -> Option<()> {
    while let Some(request) = read_request(&mut stream) {
        let number = {
            let mut requests = state.requests.lock().unwrap();
            requests.push(request);
            requests.len() - 1
        };
        match answer(number) {
            Reply::Body(body) => stream.write_all(&ok(&body)).ok()?,
            Reply::Raw(bytes) => stream.write_all(&bytes).ok()?,
            Reply::Last(bytes) => {
                stream.write_all(&bytes).ok()?;
                return None;
            }
            Reply::Hang => {
                while !state.is_over.load(Ordering::SeqCst) {
                    sleep(Duration::from_millis(10));
                }
            }
            Reply::Drip(bytes) => {
                for byte in bytes {
                    stream.write_all(&[byte]).ok()?;
                    sleep(Duration::from_millis(10));
                }
            }
            Reply::Endless => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").ok()?;
                loop {
                    stream.write_all(&[b' '; 4096]).ok()?;
                }
            }
        }
    }
    None
}

pub(crate) fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into()
}

fn read_request(stream: &mut TcpStream) -> Option<String> {
    let (mut text, mut byte) = (Vec::new(), [0]);
    while !text.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        text.push(byte[0]);
    }
    let header = String::from_utf8(text).unwrap();
    let length = |line: &str| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok();
    let mut body = vec![0; header.lines().find_map(length).unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    Some(header + &String::from_utf8(body).unwrap())
}
