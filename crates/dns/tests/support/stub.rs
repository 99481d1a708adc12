//! Upstreams, clients and learners for tests.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use namewall_dns::wire::{Addresses, Header};
use namewall_dns::{Answer, Learn, LearnError, Opens, Server, Settings, Sockets};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The way a query came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Over {
    Udp,
    Tcp,
}

/// What an upstream sends back for a query: any number of messages.
pub(crate) type Behaviour = dyn FnMut(&[u8], Over) -> Vec<Vec<u8>> + Send;

/// An upstream at a port of its own, over UDP and TCP.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    pub(crate) queries: Arc<AtomicUsize>,
    pub(crate) ports: Arc<Mutex<Vec<(u16, u16)>>>,
}

impl Upstream {
    /// One that answers alike over both.
    pub(crate) fn new(mut behaviour: impl FnMut(&[u8]) -> Vec<Vec<u8>> + Send + 'static) -> Self {
        Self::with(move |query, _| behaviour(query))
    }

    pub(crate) fn with(behaviour: impl FnMut(&[u8], Over) -> Vec<Vec<u8>> + Send + 'static) -> Self {
        Self::at("127.0.0.1:0", behaviour)
    }

    pub(crate) fn at(at: &str, behaviour: impl FnMut(&[u8], Over) -> Vec<Vec<u8>> + Send + 'static) -> Self {
        let Sockets { udp, tcp, .. } = Sockets::bind(at.parse().unwrap()).unwrap();
        let address = udp.local_addr().unwrap();
        let behaviour: Arc<Mutex<Box<Behaviour>>> = Arc::new(Mutex::new(Box::new(behaviour)));
        let (queries, ports) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (own, count, seen) = (behaviour.clone(), queries.clone(), ports.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 65_535];
            while let Ok((length, from)) = udp.recv_from(&mut buffer) {
                count.fetch_add(1, Ordering::SeqCst);
                seen.lock().unwrap().push((from.port(), id(&buffer)));
                for answer in own.lock().unwrap()(&buffer[..length], Over::Udp) {
                    udp.send_to(&answer, from).unwrap();
                }
            }
        });
        let count = queries.clone();
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = tcp.accept() {
                let (own, count) = (behaviour.clone(), count.clone());
                std::thread::spawn(move || {
                    while let Some(query) = read_message(&mut stream) {
                        count.fetch_add(1, Ordering::SeqCst);
                        for answer in own.lock().unwrap()(&query, Over::Tcp) {
                            if write_message(&mut stream, &answer).is_err() {
                                return;
                            }
                        }
                    }
                });
            }
        });
        Self { address, queries, ports }
    }

    /// One that gives every name the address.
    pub(crate) fn giving(address: [u8; 4]) -> Self {
        Self::new(move |query| vec![answer(query, &[address], 30)])
    }

    pub(crate) fn asked(&self) -> usize {
        self.queries.load(Ordering::SeqCst)
    }
}

pub(crate) fn id(message: &[u8]) -> u16 {
    Header::read(message).unwrap().id
}

pub(crate) fn query(id: u16, name: &str) -> Vec<u8> {
    let mut query = vec![0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    query[..2].copy_from_slice(&id.to_be_bytes());
    for label in name.split('.').filter(|label| !label.is_empty()) {
        query.push(label.len() as u8);
        query.extend_from_slice(label.as_bytes());
    }
    query.extend_from_slice(&[0, 0, 1, 0, 1]);
    query
}

/// An answer with A records, whatever the query's type.
pub(crate) fn answer(query: &[u8], addresses: &[[u8; 4]], ttl: u32) -> Vec<u8> {
    let mut answer = query.to_vec();
    answer[2] |= 0x80;
    answer[3] |= 0x80;
    answer[6..8].copy_from_slice(&(addresses.len() as u16).to_be_bytes());
    for address in addresses {
        answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1]);
        answer.extend_from_slice(&ttl.to_be_bytes());
        answer.extend_from_slice(&[0, 4]);
        answer.extend_from_slice(address);
    }
    answer
}

pub(crate) fn read_message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message).ok()?;
    Some(message)
}

pub(crate) fn write_message(stream: &mut TcpStream, message: &[u8]) -> std::io::Result<()> {
    let mut bytes = (message.len() as u16).to_be_bytes().to_vec();
    bytes.extend_from_slice(message);
    stream.write_all(&bytes)
}

pub(crate) fn settings(upstreams: &[&Upstream]) -> Settings {
    let listen: SocketAddr = "127.0.0.1:0".parse().unwrap();
    Settings {
        listen: vec![listen.into()],
        upstreams: upstreams.iter().map(|upstream| upstream.address).collect(),
        try_timeout: Duration::from_millis(150),
        ..Settings::default()
    }
}

pub(crate) fn serve<L: Learn + 'static>(settings: Settings, learner: Arc<L>) -> Server<L>
where
    L::Batch: 'static,
{
    Server::start(settings, learner).unwrap()
}

/// A client over UDP.
pub(crate) struct Client(pub(crate) UdpSocket);

impl Client {
    pub(crate) fn of<L: Learn + 'static>(server: &Server<L>) -> Self
    where
        L::Batch: 'static,
    {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(server.addresses()[0]).unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        Self(socket)
    }

    pub(crate) fn ask(&self, query: &[u8]) -> Option<Vec<u8>> {
        self.0.send(query).unwrap();
        self.receive()
    }

    pub(crate) fn receive(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 65_535];
        let length = self.0.recv(&mut buffer).ok()?;
        buffer.truncate(length);
        Some(buffer)
    }
}

/// Nobody to learn.
pub(crate) fn plain() -> Arc<namewall_dns::LearnNothing> {
    Arc::default()
}

/// Takes every answer, opens at once what it says, and remembers it.
#[derive(Default)]
pub(crate) struct Recorder(Mutex<Vec<Addresses>>);

impl Recorder {
    /// The addresses that were learned, in order.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        self.0.lock().unwrap().iter().flat_map(|says| says.addresses.iter().map(|one| one.address)).collect()
    }
}

impl Learn for Recorder {
    type Batch = Vec<Addresses>;

    fn learn(&self, answer: &Answer<'_>, batch: &mut Vec<Addresses>) -> Opens {
        match answer.addresses() {
            Ok(says) if says.addresses.is_empty() => Opens::Nothing,
            Ok(says) => {
                batch.push(says);
                Opens::New
            }
            Err(_) => Opens::Unreadable,
        }
    }

    fn commit(&self, batch: &mut Vec<Addresses>) -> Result<(), LearnError> {
        self.0.lock().unwrap().append(batch);
        Ok(())
    }
}

/// How long a busy machine may take for anything that comes in the end.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs a test of something that has its times by the clock. A busy machine may not keep to the schedule of the
/// test: a failure only counts if all of it took no longer than planned, and else the test is run again.
pub(crate) fn on_schedule(planned: Duration, test: impl Fn()) {
    const ATTEMPTS: usize = 100;
    for _ in 0..ATTEMPTS {
        let began = Instant::now();
        match catch_unwind(AssertUnwindSafe(&test)) {
            Ok(()) => return,
            Err(panic) if began.elapsed() <= planned => resume_unwind(panic),
            Err(_) => {}
        }
    }
    panic!("it has failed {ATTEMPTS} times, and each took longer than {planned:?}");
}

/// Waits until something counted is what it should be: an answer is there a moment before it is counted.
pub(crate) fn eventually(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < TEST_TIMEOUT, "it is not so");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A connection of a client. It gives up waiting rather than hang a test.
pub(crate) fn connect<L: Learn + 'static>(server: &Server<L>) -> TcpStream
where
    L::Batch: 'static,
{
    let stream = TcpStream::connect(server.addresses()[0]).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}
