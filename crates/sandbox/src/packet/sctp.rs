//! Packets of an SCTP association (RFC 9260): INIT, and INIT ACK or ABORT; COOKIE
//! ECHO and COOKIE ACK, after which it is established; HEARTBEAT and HEARTBEAT
//! ACK, which show that it lives. Kernels without SCTP route and filter it like
//! any other, and track it.

use super::crc32c::crc32c;

const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
const HEARTBEAT: u8 = 4;
const HEARTBEAT_ACK: u8 = 5;
const ABORT: u8 = 6;
const COOKIE_ECHO: u8 = 10;
const COOKIE_ACK: u8 = 11;
const HEARTBEAT_INFO: u16 = 1;
const STATE_COOKIE: u16 = 7;

/// There must be one; nobody looks at it.
const COOKIE: &[u8; 8] = b"namewall";

/// The ports and the tag, and the first chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Packet {
    pub from_port: u16,
    pub to_port: u16,
    /// The receiver's tag; 0 before it has told one.
    pub tag: u32,
    pub chunk: Chunk,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Chunk {
    /// Asks for an association; the tag is what answers must carry.
    Init(u32),
    InitAck(u32),
    Abort,
    CookieEcho,
    CookieAck,
    /// What the sender wants to have back.
    Heartbeat(Vec<u8>),
    HeartbeatAck(Vec<u8>),
}

impl Packet {
    /// None for anything that is none of these, or is damaged.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (header, chunk) = bytes.split_at_checked(12)?;
        let mut unsummed = bytes.to_vec();
        unsummed[8..12].fill(0);
        if header[8..] != crc32c(&unsummed).to_le_bytes() {
            return None;
        }
        let offered = || chunk.get(4..8)?.try_into().ok().map(u32::from_be_bytes);
        let chunk = match *chunk.first()? {
            INIT => Chunk::Init(offered()?),
            INIT_ACK => Chunk::InitAck(offered()?),
            ABORT => Chunk::Abort,
            COOKIE_ECHO => Chunk::CookieEcho,
            COOKIE_ACK => Chunk::CookieAck,
            HEARTBEAT => Chunk::Heartbeat(info(chunk)?),
            HEARTBEAT_ACK => Chunk::HeartbeatAck(info(chunk)?),
            _ => return None,
        };
        let (from_port, to_port) = Self::ports(header)?;
        let tag = u32::from_be_bytes(header[4..8].try_into().ok()?);
        Some(Self { from_port, to_port, tag, chunk })
    }

    /// Where it comes from and goes to, of whatever kind it is.
    pub(crate) fn ports(bytes: &[u8]) -> Option<(u16, u16)> {
        let [a, b, c, d] = *bytes.first_chunk()?;
        Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(48);
        bytes.extend_from_slice(&self.from_port.to_be_bytes());
        bytes.extend_from_slice(&self.to_port.to_be_bytes());
        bytes.extend_from_slice(&self.tag.to_be_bytes());
        bytes.extend_from_slice(&[0; 4]);
        match &self.chunk {
            Chunk::Init(offered) => offer(&mut bytes, INIT, *offered, &[]),
            Chunk::InitAck(offered) => offer(&mut bytes, INIT_ACK, *offered, COOKIE),
            Chunk::Abort => bytes.extend_from_slice(&[ABORT, 0, 0, 4]),
            Chunk::CookieEcho => {
                bytes.extend_from_slice(&[COOKIE_ECHO, 0, 0, 4 + COOKIE.len() as u8]);
                bytes.extend_from_slice(COOKIE);
            }
            Chunk::CookieAck => bytes.extend_from_slice(&[COOKIE_ACK, 0, 0, 4]),
            Chunk::Heartbeat(info) => beat(&mut bytes, HEARTBEAT, info),
            Chunk::HeartbeatAck(info) => beat(&mut bytes, HEARTBEAT_ACK, info),
        }
        let sum = crc32c(&bytes);
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// What a host says to a client. None is for packets that are not answered. The host's tag is made of the client's,
    /// so that it remembers nothing.
    pub(crate) fn answer(&self, is_open: bool) -> Option<Self> {
        let (tag, chunk) = match &self.chunk {
            Chunk::Init(tag) if is_open => (*tag, Chunk::InitAck(tag ^ u32::MAX)),
            Chunk::Init(tag) => (*tag, Chunk::Abort),
            Chunk::CookieEcho if is_open => (self.tag ^ u32::MAX, Chunk::CookieAck),
            Chunk::Heartbeat(info) if is_open => (self.tag ^ u32::MAX, Chunk::HeartbeatAck(info.clone())),
            _ => return None,
        };
        Some(Self { from_port: self.to_port, to_port: self.from_port, tag, chunk })
    }
}

/// What a heartbeat carries.
fn info(chunk: &[u8]) -> Option<Vec<u8>> {
    let length = u16::from_be_bytes(*chunk.get(6..8)?.first_chunk()?);
    chunk.get(8..4 + usize::from(length)).map(<[u8]>::to_vec)
}

fn beat(bytes: &mut Vec<u8>, kind: u8, info: &[u8]) {
    bytes.extend_from_slice(&[kind, 0]);
    bytes.extend_from_slice(&(8 + info.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&HEARTBEAT_INFO.to_be_bytes());
    bytes.extend_from_slice(&(4 + info.len() as u16).to_be_bytes());
    bytes.extend_from_slice(info);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

fn offer(bytes: &mut Vec<u8>, kind: u8, tag: u32, cookie: &[u8]) {
    let cookie_length = if cookie.is_empty() { 0 } else { cookie.len() + 4 };
    bytes.extend_from_slice(&[kind, 0]);
    bytes.extend_from_slice(&((20 + cookie_length) as u16).to_be_bytes());
    bytes.extend_from_slice(&tag.to_be_bytes());
    bytes.extend_from_slice(&65_536u32.to_be_bytes()); // the window
    bytes.extend_from_slice(&1u16.to_be_bytes()); // streams out
    bytes.extend_from_slice(&1u16.to_be_bytes()); // streams in
    bytes.extend_from_slice(&tag.to_be_bytes()); // the first sequence number
    if !cookie.is_empty() {
        bytes.extend_from_slice(&STATE_COOKIE.to_be_bytes());
        bytes.extend_from_slice(&(cookie_length as u16).to_be_bytes());
        bytes.extend_from_slice(cookie);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_init_is_answered_under_its_tag() {
        let init = Packet { from_port: 4000, to_port: 80, tag: 0, chunk: Chunk::Init(7) };
        assert_eq!(Packet::read(&init.write()), Some(init.clone()));
        let answer = init.answer(true).unwrap();
        assert_eq!(Packet::read(&answer.write()), Some(answer.clone()));
        assert_eq!((answer.from_port, answer.to_port, answer.tag), (80, 4000, 7));
        assert_eq!(init.answer(false).unwrap().chunk, Chunk::Abort);
        assert_eq!(answer.answer(true), None);
    }

    #[test]
    fn an_established_association_is_answered_under_the_clients_tag() {
        let said = |chunk| Packet { from_port: 4000, to_port: 80, tag: 7 ^ u32::MAX, chunk };
        let pairs = [
            (Chunk::CookieEcho, Chunk::CookieAck),
            (Chunk::Heartbeat(b"beat it".to_vec()), Chunk::HeartbeatAck(b"beat it".to_vec())),
        ];
        for (chunk, answer) in pairs {
            let asked = said(chunk);
            assert_eq!(Packet::read(&asked.write()), Some(asked.clone()));
            let answered = asked.answer(true).unwrap();
            assert_eq!(answered, Packet { from_port: 80, to_port: 4000, tag: 7, chunk: answer });
            assert_eq!(Packet::read(&answered.write()), Some(answered));
            assert_eq!(asked.answer(false), None);
        }
    }

    #[test]
    fn what_is_damaged_or_cut_short_is_not_read() {
        let bytes = Packet { from_port: 1, to_port: 2, tag: 3, chunk: Chunk::Abort }.write();
        for end in 0..bytes.len() {
            assert_eq!(Packet::read(&bytes[..end]), None);
        }
        let mut damaged = bytes.clone();
        damaged[1] ^= 1;
        assert_eq!(Packet::read(&damaged), None);
    }
}
