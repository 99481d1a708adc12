//! Zone transfers over TCP, on a thread that may wait.

use crate::random::random;
use crate::records::Decoded;
use namewall_dns::wire::{Header, Rcode};
use namewall_zones::{Incoming, PolicyBounds, PolicyZone, Transferred};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const CONNECT: Duration = Duration::from_secs(5);
/// How long a server may be silent within a transfer, and how long all of it may take.
const SILENCE: Duration = Duration::from_secs(15);
const WHOLE: Duration = Duration::from_secs(600);
const AXFR: u16 = 252;
const IXFR: u16 = 251;
const SOA: u16 = 6;
const IN: u16 = 1;

/// A zone that is to be fetched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'z> {
    /// The name of the zone on the wire.
    pub(super) origin: &'z [u8],
    /// The version that is there.
    pub(super) before: Option<&'z PolicyZone>,
    pub(super) bounds: PolicyBounds,
}

/// Fetches what is new of a zone; all of it, if the server cannot say what has changed. An older version than the one
/// that is there is an error.
pub(super) fn fetch(server: SocketAddr, wanted: Wanted<'_>) -> Result<Transferred, String> {
    if let Some(before) = wanted.before
        && let Ok(changes) = fetch_once(server, wanted, Some(before))
    {
        return Ok(changes);
    }
    fetch_once(server, wanted, None)
}

/// Fetches the changes since a version (IXFR), or all of a zone (AXFR).
fn fetch_once(server: SocketAddr, wanted: Wanted<'_>, since: Option<&PolicyZone>) -> Result<Transferred, String> {
    let until = Instant::now() + WHOLE;
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect_timeout(&server, CONNECT).map_err(failed)?;
    stream.set_write_timeout(Some(SILENCE)).map_err(failed)?;
    let id = random() as u16;
    let query = query(id, wanted.origin, since);
    let length = (query.len() as u16).to_be_bytes();
    stream.write_all(&[&length, &query[..]].concat()).map_err(failed)?;
    let mut incoming = Incoming::new(wanted.origin, wanted.before, wanted.bounds);
    let mut message = Vec::new();
    loop {
        let mut length = [0; 2];
        read_until(&mut stream, &mut length, until)?;
        message.resize(usize::from(u16::from_be_bytes(length)), 0);
        read_until(&mut stream, &mut message, until)?;
        if let Some(done) = take(&mut incoming, id, &message)? {
            return Ok(done);
        }
    }
}

/// Fills the buffer. The time is checked before every read, so that a server that sends byte by byte does not hold the
/// thread for longer.
fn read_until(stream: &mut TcpStream, buffer: &mut [u8], until: Instant) -> Result<(), String> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!("the transfer takes longer than {} s", WHOLE.as_secs()));
        }
        stream.set_read_timeout(Some(SILENCE.min(left))).map_err(|error| error.to_string())?;
        match stream.read(rest) {
            Ok(0) => return Err("the server closes the connection before the transfer ends".to_owned()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The time of the whole transfer is over, not that of a silent server.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) && left < SILENCE => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

/// Takes a message of a transfer.
fn take(incoming: &mut Incoming<'_>, id: u16, message: &[u8]) -> Result<Option<Transferred>, String> {
    let unreadable = "a message of the transfer cannot be read";
    let header = Header::read(message).map_err(|_| unreadable)?;
    let is_response = message.get(2).is_some_and(|flags| flags & 0x80 != 0);
    if header.id != id || !is_response {
        return Err("what comes is no answer to the transfer".to_owned());
    }
    if header.rcode != Rcode::NO_ERROR {
        return Err(format!("the server says {}", header.rcode));
    }
    incoming.take(Decoded::read(message).map_err(|_| unreadable)?.answer)
}

/// The question for a transfer, with the SOA of the version that is there (RFC 1995 §3) for its changes.
fn query(id: u16, origin: &[u8], since: Option<&PolicyZone>) -> Vec<u8> {
    let mut query = id.to_be_bytes().to_vec();
    query.extend([0, 0, 0, 1, 0, 0, 0, u8::from(since.is_some()), 0, 0]);
    query.extend(origin);
    let kind = if since.is_some() { IXFR } else { AXFR };
    [kind, IN].iter().for_each(|field| query.extend(field.to_be_bytes()));
    if let Some(since) = since {
        query.extend(origin);
        [SOA, IN].iter().for_each(|field| query.extend(field.to_be_bytes()));
        query.extend([0; 4]);
        query.extend((since.soa().data.len() as u16).to_be_bytes());
        query.extend(&since.soa().data);
    }
    query
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_server_that_sends_byte_by_byte_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            // Until the client has closed the connection.
            while client.write_all(&[0]).is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let until = Instant::now() + Duration::from_millis(200);
        let why = read_until(&mut stream, &mut [0; 65_535], until).unwrap_err();
        assert_eq!(why, "the transfer takes longer than 600 s");
        assert!(Instant::now() >= until);
        drop(stream);
        server.join().unwrap();
    }
}
