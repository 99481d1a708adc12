//! Netlink messages: a header, a fixed part, attributes that may nest.

/// Attributes and messages are padded to this.
const ALIGNMENT: usize = 4;
const HEADER: usize = 16;
const NESTED: u16 = 0x8000;
const TYPE_MASK: u16 = 0x3fff;

pub(crate) const REQUEST: u16 = 0x1;
pub const ACK: u16 = 0x4;
pub const ECHO: u16 = 0x8;
pub const DUMP: u16 = 0x300;
pub const EXCLUSIVE: u16 = 0x200;
pub const CREATE: u16 = 0x400;
pub const APPEND: u16 = 0x800;

pub(crate) const ERROR: u16 = 2;
pub(crate) const DONE: u16 = 3;
pub(crate) const DUMP_INTERRUPTED: u16 = 0x10;

/// Messages being written, one after another, into one buffer.
#[derive(Clone, Default, Debug)]
pub struct Messages {
    bytes: Vec<u8>,
    /// Where the message that is being written starts.
    start: usize,
    pub(crate) last_sequence: u32,
}

#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "these are our own bytes")]
impl Messages {
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with room for so many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ..Self::default() }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Messages that were written before.
    #[cfg(all(test, feature = "system"))]
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), ..Self::default() }
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Begins a message; `fixed` is the part before the attributes. It ends where the next begins.
    pub fn begin(&mut self, kind: u16, flags: u16, fixed: &[u8]) {
        self.last_sequence += 1;
        self.start = self.bytes.len();
        self.bytes.extend_from_slice(&0u32.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&(flags | REQUEST).to_ne_bytes());
        self.bytes.extend_from_slice(&self.last_sequence.to_ne_bytes());
        self.bytes.extend_from_slice(&0u32.to_ne_bytes());
        self.bytes.extend_from_slice(fixed);
        self.pad();
        self.close();
    }

    /// Asks for an acknowledgement of the message that was begun last.
    pub fn acknowledge(&mut self) {
        let at = self.start + 6;
        let flags = u16::from_ne_bytes([self.bytes[at], self.bytes[at + 1]]) | ACK;
        self.bytes[at..at + 2].copy_from_slice(&flags.to_ne_bytes());
    }

    pub fn bytes(&mut self, kind: u16, value: &[u8]) {
        self.written(kind, |bytes| bytes.extend_from_slice(value));
    }

    /// A text, with the zero byte the kernel wants.
    pub fn text(&mut self, kind: u16, value: &str) {
        self.written(kind, |bytes| {
            bytes.extend_from_slice(value.as_bytes());
            bytes.push(0);
        });
    }

    /// An attribute whose value is appended by `write`.
    pub(crate) fn written(&mut self, kind: u16, write: impl FnOnce(&mut Vec<u8>)) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        write(&mut self.bytes);
        let length = (self.bytes.len() - at) as u16;
        self.bytes[at..at + 2].copy_from_slice(&length.to_ne_bytes());
        self.pad();
        self.close();
    }

    pub fn flag(&mut self, kind: u16) {
        self.bytes(kind, &[]);
    }

    /// In the machine's order, as routing messages have it.
    pub fn native_u32(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_ne_bytes());
    }

    /// In the network's order, as netfilter messages have it.
    pub fn u32(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    pub fn u16(&mut self, kind: u16, value: u16) {
        self.bytes(kind, &value.to_be_bytes());
    }

    pub fn u64(&mut self, kind: u16, value: u64) {
        self.bytes(kind, &value.to_be_bytes());
    }

    /// An attribute of attributes. It must stay below 64 KiB.
    pub fn nested(&mut self, kind: u16, inside: impl FnOnce(&mut Self)) {
        self.group(kind | NESTED, &[], inside);
    }

    /// Like `nested`, with a fixed part before the attributes inside.
    pub fn group(&mut self, kind: u16, fixed: &[u8], inside: impl FnOnce(&mut Self)) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(fixed);
        self.pad();
        inside(self);
        let length = u16::try_from(self.bytes.len() - at).expect("a nested attribute is below 64 KiB");
        self.bytes[at..at + 2].copy_from_slice(&length.to_ne_bytes());
        self.close();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
    }

    fn close(&mut self) {
        let length = (self.bytes.len() - self.start) as u32;
        self.bytes[self.start..self.start + 4].copy_from_slice(&length.to_ne_bytes());
    }
}

/// A message that was received.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    pub kind: u16,
    pub flags: u16,
    pub sequence: u32,
    pub body: &'a [u8],
}

impl<'a> Received<'a> {
    /// The messages in a datagram; what is cut short is left out.
    pub fn all(mut datagram: &'a [u8]) -> impl Iterator<Item = Received<'a>> {
        std::iter::from_fn(move || {
            let header = datagram.get(..HEADER)?;
            let length = u32_at(header, 0)? as usize;
            let body = datagram.get(HEADER..length)?;
            let message =
                Received { kind: u16_at(header, 4)?, flags: u16_at(header, 6)?, sequence: u32_at(header, 8)?, body };
            datagram = after(datagram, length);
            Some(message)
        })
    }

    /// The code of an error message; 0 acknowledges.
    pub(crate) fn error_code(&self) -> Option<i32> {
        (self.kind == ERROR).then(|| u32_at(self.body, 0).unwrap_or(0) as i32)
    }

    /// The attributes after a fixed part of that length.
    pub fn attributes(&self, fixed: usize) -> Attributes<'a> {
        Attributes(self.body.get(fixed..).unwrap_or_default())
    }
}

/// Attributes in the order they stand in.
#[derive(Clone, Copy, Default, Debug)]
pub struct Attributes<'a>(pub &'a [u8]);

impl<'a> Attributes<'a> {
    pub fn get(self, kind: u16) -> Option<&'a [u8]> {
        self.into_iter().find(|(found, _)| *found == kind).map(|(_, value)| value)
    }

    pub fn nested(self, kind: u16) -> Attributes<'a> {
        Attributes(self.get(kind).unwrap_or_default())
    }

    pub fn text(self, kind: u16) -> Option<&'a str> {
        let bytes = self.get(kind)?;
        std::str::from_utf8(bytes.strip_suffix(&[0]).unwrap_or(bytes)).ok()
    }

    pub fn u32(self, kind: u16) -> Option<u32> {
        self.get(kind)?.try_into().ok().map(u32::from_be_bytes)
    }

    pub fn u64(self, kind: u16) -> Option<u64> {
        self.get(kind)?.try_into().ok().map(u64::from_be_bytes)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = u16_at(self.0, 0)? as usize;
        let kind = u16_at(self.0, 2)? & TYPE_MASK;
        let value = self.0.get(4..length)?;
        self.0 = after(self.0, length);
        Some((kind, value))
    }
}

/// What follows a message or an attribute of this length.
fn after(bytes: &[u8], length: usize) -> &[u8] {
    let padded = length.checked_next_multiple_of(ALIGNMENT);
    padded.and_then(|padded| bytes.get(padded..)).unwrap_or_default()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut messages = Messages::new();
        messages.begin(0x0a00, CREATE, &[1, 2, 3, 4]);
        messages.text(1, "namewall");
        messages.nested(2, |inside| inside.u32(1, 7));
        messages.begin(0x0a01, 0, &[]);
        messages.acknowledge();
        let read: Vec<_> = Received::all(messages.as_bytes()).collect();
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].kind, read[0].flags, read[0].sequence), (0x0a00, CREATE | REQUEST, 1));
        assert_eq!(read[0].attributes(4).text(1), Some("namewall"));
        assert_eq!(read[0].attributes(4).nested(2).u32(1), Some(7));
        assert_eq!((read[1].flags, read[1].sequence), (ACK | REQUEST, 2));
    }

    #[test]
    fn what_is_cut_short_is_not_read() {
        let mut messages = Messages::new();
        messages.begin(1, 0, &[]);
        messages.bytes(1, &[1, 2, 3, 4]);
        for end in 0..messages.len() {
            assert_eq!(Received::all(&messages.as_bytes()[..end]).count(), 0);
        }
        assert_eq!(Attributes(&[255, 255, 1, 0, 9]).count(), 0);
        assert_eq!(Attributes(&[0, 0, 1, 0]).count(), 0);
    }
}
