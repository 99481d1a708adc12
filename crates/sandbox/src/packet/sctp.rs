//! The first two packets of an SCTP association (RFC 9260): INIT, and INIT ACK
//! or ABORT. Kernels without SCTP route and filter it like any other.

use super::crc32c::crc32c;

const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
const ABORT: u8 = 6;
const STATE_COOKIE: u16 = 7;

/// The ports and the tag, and the first chunk with the tag it offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Packet {
    pub from_port: u16,
    pub to_port: u16,
    /// The receiver's tag; 0 before it has told one.
    pub tag: u32,
    pub chunk: Chunk,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Chunk {
    /// Asks for an association; the tag is what answers must carry.
    Init(u32),
    InitAck(u32),
    Abort,
}

impl Packet {
    /// None for anything that is none of the three, or is damaged.
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
        match self.chunk {
            Chunk::Init(offered) => offer(&mut bytes, INIT, offered, &[]),
            // A cookie must be there; nobody comes back with it.
            Chunk::InitAck(offered) => offer(&mut bytes, INIT_ACK, offered, b"namewall"),
            Chunk::Abort => bytes.extend_from_slice(&[ABORT, 0, 0, 4]),
        }
        let sum = crc32c(&bytes);
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// What a host says to an INIT. None is for other packets.
    pub(crate) fn answer(&self, is_open: bool) -> Option<Self> {
        let Chunk::Init(tag) = self.chunk else { return None };
        let chunk = if is_open { Chunk::InitAck(tag ^ u32::MAX) } else { Chunk::Abort };
        Some(Self { from_port: self.to_port, to_port: self.from_port, tag, chunk })
    }
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
        assert_eq!(Packet::read(&init.write()), Some(init));
        let answer = init.answer(true).unwrap();
        assert_eq!(Packet::read(&answer.write()), Some(answer));
        assert_eq!((answer.from_port, answer.to_port, answer.tag), (80, 4000, 7));
        assert_eq!(init.answer(false).unwrap().chunk, Chunk::Abort);
        assert_eq!(answer.answer(true), None);
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
