//! Zone transfers over TCP, on a thread that may wait.

use crate::random::random;
use crate::records::Decoded;
use namewall_dns::wire::{Header, Rcode};
use namewall_zones::{Incoming, PolicyBounds, PolicyZone, Transferred};
use std::io::{Read, Write};
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

/// Fetches what is new of a zone; all of it, if the server cannot say what has changed.
pub(super) fn fetch(server: SocketAddr, wanted: Wanted<'_>) -> Result<Transferred, String> {
    if wanted.before.is_some()
        && let Ok(changes) = fetch_once(server, wanted)
    {
        return Ok(changes);
    }
    fetch_once(server, Wanted { before: None, ..wanted })
}

fn fetch_once(server: SocketAddr, wanted: Wanted<'_>) -> Result<Transferred, String> {
    let until = Instant::now() + WHOLE;
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect_timeout(&server, CONNECT).map_err(failed)?;
    stream.set_read_timeout(Some(SILENCE)).map_err(failed)?;
    stream.set_write_timeout(Some(SILENCE)).map_err(failed)?;
    let id = random() as u16;
    let query = query(id, wanted);
    let length = (query.len() as u16).to_be_bytes();
    stream.write_all(&[&length, &query[..]].concat()).map_err(failed)?;
    let mut incoming = Incoming::new(wanted.origin, wanted.before, wanted.bounds);
    let mut message = Vec::new();
    loop {
        if Instant::now() >= until {
            return Err(format!("the transfer takes longer than {} s", WHOLE.as_secs()));
        }
        let mut length = [0; 2];
        stream.read_exact(&mut length).map_err(failed)?;
        message.resize(usize::from(u16::from_be_bytes(length)), 0);
        stream.read_exact(&mut message).map_err(failed)?;
        if let Some(done) = take(&mut incoming, id, &message)? {
            return Ok(done);
        }
    }
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

/// The question for a transfer, with the SOA of the version that is there (RFC 1995 §3).
fn query(id: u16, wanted: Wanted<'_>) -> Vec<u8> {
    let mut query = id.to_be_bytes().to_vec();
    query.extend([0, 0, 0, 1, 0, 0, 0, u8::from(wanted.before.is_some()), 0, 0]);
    query.extend(wanted.origin);
    let kind = if wanted.before.is_some() { IXFR } else { AXFR };
    [kind, IN].iter().for_each(|field| query.extend(field.to_be_bytes()));
    if let Some(before) = wanted.before {
        query.extend(wanted.origin);
        [SOA, IN].iter().for_each(|field| query.extend(field.to_be_bytes()));
        query.extend([0; 4]);
        query.extend((before.soa().data.len() as u16).to_be_bytes());
        query.extend(&before.soa().data);
    }
    query
}
