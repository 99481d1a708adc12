//! The API server over plain HTTP, which refuses requests as a test says. kubectl's
//! proxy stands behind it, with the certificates and the rights of the
//! administrator.
//!
//! A client sends its next request when it has the whole answer to the last one,
//! so a request that is refused meets no answer on its way.

use crate::{ControlPlane, Process, free_port};
use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::spawn;
use std::time::{Duration, Instant};

const START_TIMEOUT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LONGEST_HEAD: usize = 64 << 10;

/// Which requests are refused, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    pub code: u16,
    /// None: all methods.
    pub method: Option<&'static str>,
    /// A part of the path.
    pub path: &'static str,
}

/// The server.
#[derive(Debug)]
pub struct Front {
    port: u16,
    state: Arc<FrontState>,
    _behind: Process,
}

#[derive(Debug, Default)]
struct FrontState {
    refusal: Mutex<Option<Refusal>>,
    refused: AtomicU64,
}

impl Front {
    pub fn start(plane: &ControlPlane) -> Result<Self> {
        let behind = free_port()?;
        let mut proxy = Command::new(plane.kubectl_program());
        proxy.arg(format!("--kubeconfig={}", plane.kubeconfig().display()));
        proxy.args(["proxy", "--address=127.0.0.1", &format!("--port={behind}")]);
        let process = Process::start(proxy, &plane.folder().join("proxy.log"))?;
        let began = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, behind)).is_err() {
            ensure!(began.elapsed() < START_TIMEOUT, "kubectl's proxy does not listen");
            std::thread::sleep(LOOK_EVERY);
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (port, state) = (listener.local_addr()?.port(), Arc::new(FrontState::default()));
        let accepting = state.clone();
        spawn(move || {
            for client in listener.incoming().flatten() {
                let state = accepting.clone();
                // A connection that breaks is the client's to make again.
                spawn(move || _ = state.serve(client, behind));
            }
        });
        Ok(Self { port, state, _behind: process })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on these requests are refused, and no others.
    pub fn refuse(&self, refusal: Option<Refusal>) {
        *self.state.refusal.lock().unwrap_or_else(PoisonError::into_inner) = refusal;
    }

    /// How many requests were refused so far.
    pub fn refused(&self) -> u64 {
        self.state.refused.load(Ordering::Relaxed)
    }

    /// For clients that reach this server at a port of their loopback.
    pub fn kubeconfig(&self, plane: &ControlPlane, port: u16) -> Result<PathBuf> {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: testbed\n\
             clusters: [{{name: testbed, cluster: {{server: \"http://127.0.0.1:{port}\"}}}}]\n\
             users: [{{name: testbed, user: {{}}}}]\n\
             contexts: [{{name: testbed, context: {{cluster: testbed, user: testbed}}}}]\n"
        );
        let file = plane.folder().join(format!("kubeconfig-front-{port}"));
        std::fs::write(&file, text)?;
        Ok(file)
    }
}

/// A request as far as its body.
struct Head {
    bytes: Vec<u8>,
    method: String,
    path: String,
    body: usize,
}

impl FrontState {
    fn serve(&self, mut client: TcpStream, behind: u16) -> Result<()> {
        let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, behind))?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (mut from, mut to) = (server.try_clone()?, client.try_clone()?);
        spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
        while let Some(head) = read_head(&mut client)? {
            let mut body = vec![0; head.body];
            client.read_exact(&mut body)?;
            match self.refusal(&head) {
                Some(refusal) => client.write_all(refusal.answer().as_bytes())?,
                None => server.write_all(&[head.bytes, body].concat())?,
            }
        }
        Ok(server.shutdown(Shutdown::Write)?)
    }

    fn refusal(&self, head: &Head) -> Option<Refusal> {
        let refusal = *self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        let refusal = refusal.filter(|refusal| refusal.is_about(head))?;
        self.refused.fetch_add(1, Ordering::Relaxed);
        Some(refusal)
    }
}

impl Refusal {
    fn is_about(&self, head: &Head) -> bool {
        self.method.is_none_or(|method| head.method == method) && head.path.contains(self.path)
    }

    fn answer(&self) -> String {
        let code = self.code;
        let body = format!(
            r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","message":"refused by the test","code":{code}}}"#
        );
        let length = body.len();
        format!(
            "HTTP/1.1 {code} Refused\r\nContent-Type: application/json\r\nRetry-After: 1\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        )
    }
}

/// The next request. None if the client has ended.
fn read_head(client: &mut TcpStream) -> Result<Option<Head>> {
    let (mut bytes, mut byte) = (Vec::new(), [0]);
    while !bytes.ends_with(b"\r\n\r\n") {
        ensure!(bytes.len() < LONGEST_HEAD, "the head of a request has no end");
        if client.read(&mut byte)? == 0 {
            return Ok(None);
        }
        bytes.extend(byte);
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let mut words = text.split(' ').map(str::to_owned);
    let (method, path) = words.next().zip(words.next()).context("a request has a method and a path")?;
    let header = |name: &str| {
        let is_it = |(key, _): &(&str, &str)| key.eq_ignore_ascii_case(name);
        text.lines().filter_map(|line| line.split_once(':')).find(is_it).map(|(_, value)| value.trim())
    };
    ensure!(header("transfer-encoding").is_none(), "a request without a length is not passed on");
    let body = header("content-length").map_or(Ok(0), str::parse)?;
    Ok(Some(Head { bytes, method, path, body }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(stream: &mut TcpStream, request: &str) -> String {
        stream.write_all(request.as_bytes()).unwrap();
        let mut buffer = [0; 1024];
        let length = stream.read(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn only_requests_that_are_meant_are_refused() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let behind = server.local_addr().unwrap().port();
        spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            while let Ok(Some(head)) = read_head(&mut stream) {
                stream.read_exact(&mut vec![0; head.body]).unwrap();
                stream.write_all(format!("passed {}", head.method).as_bytes()).unwrap();
            }
        });
        let front = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = TcpStream::connect(front.local_addr().unwrap()).unwrap();
        let (inside, state) = (front.accept().unwrap().0, Arc::new(FrontState::default()));
        let serving = state.clone();
        spawn(move || serving.serve(inside, behind));
        let write = "PUT /things/one/status HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody";
        assert_eq!(exchange(&mut client, write), "passed PUT");
        *state.refusal.lock().unwrap() = Some(Refusal { code: 413, method: Some("PUT"), path: "/status" });
        let refused = exchange(&mut client, write);
        assert!(refused.starts_with("HTTP/1.1 413 ") && refused.contains(r#""code":413"#), "{refused}");
        assert_eq!(exchange(&mut client, "GET /things/one/status HTTP/1.1\r\n\r\n"), "passed GET");
        assert_eq!(state.refused.load(Ordering::Relaxed), 1);
    }
}
