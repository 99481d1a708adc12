//! Asks a server for a name's addresses, for who has nobody to ask for it: one
//! question at a time, and the caller waits.

use crate::server::{HttpsTarget, Random, Tls, Upstream, UpstreamTransport, ask_over_https};
use crate::wire::{Address, HEADER, Header, Question, Rcode, RecordType, addresses};
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// How often it is asked again over UDP within the time there is.
const TRIES: u32 = 3;
/// As much of an answer as is asked for over UDP.
const PAYLOAD: u16 = 1232;
const LONGEST: usize = 65_535;
/// So many wrong replies may come over UDP. Then the question is asked over TCP.
const MOST_WRONG_REPLIES: u32 = 16;

#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("{0} is no name that can be asked for")]
    Name(String),
    #[error("{0} does not answer in time")]
    Silence(SocketAddr),
    #[error("cannot ask {0}: {1}")]
    Broken(SocketAddr, #[source] io::Error),
    #[error("{0} answers what cannot be read")]
    Unreadable(SocketAddr),
}

/// What a server said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LookupAnswer {
    pub rcode: Rcode,
    pub addresses: Vec<Address>,
}

/// Passes a query on to an upstream, and waits for its answer. The query goes out with a random id and in random letter
/// case, as every question of ours. The answer has the id and the spelling of the query again. Unless only TCP is used,
/// UDP is tried first.
pub fn pass_on(
    upstream: &Upstream,
    query: &[u8],
    patience: Duration,
    way: UpstreamTransport,
) -> Result<Vec<u8>, AskError> {
    let server = upstream.address;
    let broken = |error| AskError::Broken(server, error);
    let name_end = Question::end(query).map_err(|_| AskError::Unreadable(server))? - Question::AFTER_NAME;
    let mut random = Random::open().map_err(broken)?;
    let mut sent = query.to_vec();
    sent[..2].copy_from_slice(&random.number().map_err(broken)?.to_be_bytes());
    random.spell(&mut sent[HEADER..name_end]).map_err(broken)?;
    let until = Instant::now() + patience;
    let is_whole = |answer: &Vec<u8>| Header::read(answer).is_ok_and(|header| !header.is_truncated);
    let is_spelled = |answer: &Vec<u8>| answer.get(HEADER..name_end) == sent.get(HEADER..name_end);
    let heard = |error| silence(server, error);
    let mut answer = match &upstream.tls {
        Some(tls) if upstream.http_path.is_some() => over_https(upstream, tls, &sent, until).map_err(heard)?,
        Some(tls) => over_tls(server, tls, &sent, until).map_err(heard)?,
        None if way == UpstreamTransport::Tcp => over_tcp(server, &sent, until).map_err(heard)?,
        None => {
            match over_udp(server, &sent, until).map_err(heard)?.filter(|told| is_whole(told) && is_spelled(told)) {
                Some(answer) => answer,
                None => over_tcp(server, &sent, until).map_err(heard)?,
            }
        }
    };
    Header::set_id(&mut answer, u16::from_be_bytes([query[0], query[1]]));
    Question::spell(&mut answer, &query[HEADER..name_end]);
    Ok(answer)
}

/// Asks a server, over UDP and, if that does not hold the answer or cannot be trusted, over TCP. A reply over UDP must
/// have the id, the port, and the name in the random letter case that was sent; other replies are not heard.
pub fn ask(server: SocketAddr, name: &str, kind: RecordType, patience: Duration) -> Result<LookupAnswer, AskError> {
    let broken = |error| AskError::Broken(server, error);
    let mut random = Random::open().map_err(broken)?;
    let id = random.number().map_err(broken)?;
    let mut query = query(id, name, kind).ok_or_else(|| AskError::Name(name.to_owned()))?;
    let name_end = Question::end(&query).map_or(HEADER, |end| end - Question::AFTER_NAME);
    random.spell(&mut query[HEADER..name_end]).map_err(broken)?;
    let until = Instant::now() + patience;
    let mut answer = over_udp(server, &query, until).map_err(|error| silence(server, error))?;
    let is_whole = |answer: &Vec<u8>| Header::read(answer).is_ok_and(|header| !header.is_truncated);
    let is_spelled = |answer: &Vec<u8>| answer.get(HEADER..name_end) == query.get(HEADER..name_end);
    answer = answer.filter(|answer| is_whole(answer) && is_spelled(answer));
    let answer = match answer {
        Some(answer) => answer,
        None => over_tcp(server, &query, until).map_err(|error| silence(server, error))?,
    };
    let header = Header::read(&answer).map_err(|_| AskError::Unreadable(server))?;
    let says = addresses(&answer).map_err(|_| AskError::Unreadable(server))?;
    Ok(LookupAnswer { rcode: header.rcode, addresses: says.addresses })
}

fn silence(server: SocketAddr, error: io::Error) -> AskError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => AskError::Silence(server),
        _ => AskError::Broken(server, error),
    }
}

fn query(id: u16, name: &str, kind: RecordType) -> Option<Vec<u8>> {
    let mut query = id.to_be_bytes().to_vec();
    // Recursion is asked for; one question, and EDNS0.
    query.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
    for label in name.strip_suffix('.').unwrap_or(name).split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..=63).contains(length))?;
        query.push(length);
        query.extend(label.bytes());
    }
    query.push(0);
    query.extend(kind.0.to_be_bytes());
    query.extend([0, 1]);
    query.extend([0, 0, 41]);
    query.extend(PAYLOAD.to_be_bytes());
    query.extend([0; 6]);
    (Question::of_query(&query).is_ok()).then_some(query)
}

fn is_answer(query: &[u8], answer: &[u8]) -> bool {
    answer.get(..2) == query.get(..2) && Question::is_repeated(query, answer)
}

/// The reply to the question in whatever letter case, or none if too many wrong ones came.
fn over_udp(server: SocketAddr, query: &[u8], until: Instant) -> io::Result<Option<Vec<u8>>> {
    let any = if server.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(server)?;
    let try_lasts = until.saturating_duration_since(Instant::now()) / TRIES;
    let mut buffer = vec![0; LONGEST];
    let mut wrong = 0;
    for _ in 0..TRIES {
        socket.send(query)?;
        let try_until = Instant::now() + try_lasts;
        while let Some(left) = left_until(try_until) {
            socket.set_read_timeout(Some(left))?;
            match socket.recv(&mut buffer) {
                Ok(length) if is_answer(query, &buffer[..length]) => return Ok(Some(buffer[..length].to_vec())),
                Ok(_) if wrong >= MOST_WRONG_REPLIES => return Ok(None),
                // Somebody else's, or a guess.
                Ok(_) => wrong += 1,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => break,
                Err(error) => return Err(error),
            }
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

fn over_tcp(server: SocketAddr, query: &[u8], until: Instant) -> io::Result<Vec<u8>> {
    let mut stream = connect(server, until)?;
    over_stream(&mut stream, query)
}

fn over_tls(server: SocketAddr, tls: &Tls, query: &[u8], until: Instant) -> io::Result<Vec<u8>> {
    let connection = ClientConnection::new(tls.config.clone(), tls.name.clone()).map_err(io::Error::other)?;
    over_stream(&mut StreamOwned::new(connection, connect(server, until)?), query)
}

fn over_https(upstream: &Upstream, tls: &Tls, query: &[u8], until: Instant) -> io::Result<Vec<u8>> {
    let path = upstream.http_path.clone().unwrap_or_else(|| crate::doh::PATH.into());
    let target = HttpsTarget { address: upstream.address, tls: tls.clone(), path };
    let left = left_until(until).ok_or(io::ErrorKind::TimedOut)?;
    let mut answer = ask_over_https(target, query, left).map_err(io::Error::other)?;
    Header::set_id(&mut answer, u16::from_be_bytes([query[0], query[1]]));
    if is_answer(query, &answer) { Ok(answer) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// A connection on which nothing takes longer than there is time.
fn connect(server: SocketAddr, until: Instant) -> io::Result<TcpStream> {
    let left = || left_until(until).ok_or(io::ErrorKind::TimedOut);
    let stream = TcpStream::connect_timeout(&server, left()?)?;
    stream.set_write_timeout(Some(left()?))?;
    stream.set_read_timeout(Some(left()?))?;
    Ok(stream)
}

fn over_stream(stream: &mut (impl Read + Write), query: &[u8]) -> io::Result<Vec<u8>> {
    let length = u16::try_from(query.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    stream.write_all(&[&length.to_be_bytes(), query].concat())?;
    stream.flush()?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut answer)?;
    if is_answer(query, &answer) { Ok(answer) } else { Err(io::ErrorKind::InvalidData.into()) }
}

fn left_until(until: Instant) -> Option<Duration> {
    Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
}
