//! A server that serves a Corefile, its upstream and its clients.

use namewall_corefile::{self as corefile, NoFiles};
use namewall_dns::{LearnNothing, Listen, Server, Settings, Sockets};
use namewall_dns_firewall::{BuildError, Built, Endpoints, Strangers, Surroundings, Teller, build};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

/// Nothing here takes so long, on however slow a machine.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until it is so.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < TEST_TIMEOUT, "{what}");
        sleep(Duration::from_millis(5));
    }
}

/// A log that can be read.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    pub(crate) fn all(&self) -> Vec<String> {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap().lines().map(str::to_owned).collect()
    }
}

/// What outlives a Corefile.
pub(crate) struct Telling {
    pub(crate) lines: Lines,
    pub(crate) teller: Arc<Teller>,
}

impl Telling {
    pub(crate) fn new() -> Self {
        let lines = Lines::default();
        let teller = Arc::new(Teller::start(lines.clone()).unwrap());
        Self { lines, teller }
    }

    pub(crate) fn build(&self, text: &str) -> Result<Built, Vec<BuildError>> {
        let read = corefile::read("Corefile", text, &NoFiles, &|_| None).unwrap_or_else(|errors| panic!("{errors}"));
        let addresses = vec![("lo".to_owned(), IpAddr::V4(Ipv4Addr::LOCALHOST))];
        let teller = self.teller.clone();
        build(&read, &Surroundings { teller, identities: Arc::new(Strangers), addresses, names: None, clusters: None })
    }
}

/// A server under way.
pub(crate) struct Serving {
    server: Server<LearnNothing>,
    pub(crate) at: SocketAddr,
    pub(crate) endpoints: Endpoints,
}

fn settings(built: &Built) -> Settings {
    let listen = built.listen.iter().copied().map(Listen::from).collect();
    Settings { listen, routes: built.routes.clone(), try_timeout: Duration::from_millis(100), ..Settings::default() }
}

/// Serves a Corefile in which `PORT` is the server's and `UPSTREAM` an upstream's.
pub(crate) fn serve(telling: &Telling, text: &str) -> Serving {
    let sockets = Sockets::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let at = sockets.udp.local_addr().unwrap();
    let text = text.replace("PORT", &at.port().to_string()).replace("UPSTREAM", &upstream().to_string());
    let built = telling.build(&text).unwrap_or_else(|errors| panic!("{errors:?}"));
    let mut endpoints = Endpoints::new(telling.teller.clone());
    endpoints.set(&built.endpoints).unwrap();
    let settings = settings(&built);
    let chain = Some(Arc::new(built.service) as Arc<dyn namewall_dns::Chain>);
    let server =
        Server::start_judged(settings, chain, vec![(sockets, Listen::from(at))], Arc::new(LearnNothing)).unwrap();
    endpoints.set_ready(true);
    Serving { server, at, endpoints }
}

impl Serving {
    /// Goes on with another Corefile.
    pub(crate) fn reload(&mut self, telling: &Telling, text: &str) {
        let built = telling.build(&text.replace("PORT", &self.at.port().to_string())).unwrap();
        self.endpoints.set(&built.endpoints).unwrap();
        self.server.set_with(settings(&built), Arc::new(built.service)).unwrap();
    }

    /// Asks for a record of a name, and gives the code of the answer.
    pub(crate) fn ask(&self, name: &str, kind: u16) -> Option<u8> {
        ask(self.at, name, kind)
    }

    /// What Prometheus would read.
    pub(crate) fn metrics(&self) -> String {
        let (status, body) = get(self.endpoints.addresses()[0], "/metrics");
        assert_eq!(status, "HTTP/1.1 200 OK");
        body
    }

    /// Ends it, as a process does.
    pub(crate) fn end(self, telling: &Telling) {
        self.server.retire(TEST_TIMEOUT);
        telling.teller.finish(TEST_TIMEOUT);
    }
}

pub(crate) fn query(name: &str, kind: u16) -> Vec<u8> {
    let mut query = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.').filter(|label| !label.is_empty()) {
        query.push(label.len() as u8);
        query.extend(label.as_bytes());
    }
    query.push(0);
    query.extend(kind.to_be_bytes());
    query.extend([0, 1]);
    query
}

/// The code of the answer; none is that none came for a while.
pub(crate) fn ask(at: SocketAddr, name: &str, kind: u16) -> Option<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    // Silence is waited for in full; nothing else should be.
    socket.set_read_timeout(Some(Duration::from_secs(if name.starts_with("silent") { 1 } else { 60 }))).unwrap();
    socket.send_to(&query(name, kind), at).unwrap();
    let mut answer = [0; 1_500];
    let length = socket.recv(&mut answer).ok()?;
    assert!(length >= 12 && answer[..2] == [0x12, 0x34]);
    Some(answer[3] & 15)
}

/// The same over TCP.
pub(crate) fn ask_by_tcp(at: SocketAddr, name: &str, kind: u16) -> u8 {
    let mut stream = TcpStream::connect(at).unwrap();
    let query = query(name, kind);
    stream.write_all(&(query.len() as u16).to_be_bytes()).unwrap();
    stream.write_all(&query).unwrap();
    let mut length = [0; 2];
    stream.read_exact(&mut length).unwrap();
    let mut answer = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut answer).unwrap();
    answer[3] & 15
}

/// An upstream over both: names that begin with `dead` get no answer, those with `nx` do not exist, all
/// others are at 192.0.2.1 for a minute.
fn upstream() -> SocketAddr {
    let Sockets { udp, tcp, .. } = Sockets::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let at = udp.local_addr().unwrap();
    spawn(move || {
        let mut query = [0; 1_500];
        while let Ok((length, from)) = udp.recv_from(&mut query) {
            if let Some(answer) = answer(&query[..length]) {
                let _ = udp.send_to(&answer, from);
            }
        }
    });
    spawn(move || {
        for stream in tcp.incoming() {
            let mut stream = stream.unwrap();
            spawn(move || {
                let mut length = [0; 2];
                while stream.read_exact(&mut length).is_ok() {
                    let mut query = vec![0; u16::from_be_bytes(length).into()];
                    stream.read_exact(&mut query).unwrap();
                    let answer = answer(&query).unwrap();
                    stream.write_all(&(answer.len() as u16).to_be_bytes()).unwrap();
                    stream.write_all(&answer).unwrap();
                }
            });
        }
    });
    at
}

fn answer(query: &[u8]) -> Option<Vec<u8>> {
    let mut answer = query.to_vec();
    answer[2] |= 0x80;
    answer[3] |= 0x80;
    // Questions come in any letter case.
    let name = query[13..].to_ascii_lowercase();
    if name.starts_with(b"dead") {
        return None;
    }
    if name.starts_with(b"nx") {
        answer[3] |= 3;
        answer[9] = 1;
        answer.extend([0, 0, 6, 0, 1, 0, 0, 0, 60, 0, 22, 0, 0]);
        answer.extend([0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 60]);
    } else {
        answer[7] = 1;
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
    }
    Some(answer)
}

/// The status line and the body of what is at a path.
pub(crate) fn get(at: SocketAddr, path: &str) -> (String, String) {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, at.port()));
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}
