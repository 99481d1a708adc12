//! Names on the wire: labels with their lengths, perhaps ending in a pointer.

use super::{HEADER, WireError, u16_at};
use namewall_policy::domain::DomainName;
use std::fmt;

/// The longest name, its last empty label included (RFC 1035 §3.1).
const LONGEST: usize = 255;
/// As many labels as such a name has at most: who sends more pointers to it means to keep us busy.
const MOST_POINTERS: u8 = 127;

/// A whole name in lower case, as labels with their lengths: two names are
/// the same if their bytes are.
#[derive(Clone)]
pub struct Name {
    bytes: [u8; LONGEST],
    length: u8,
}

impl Name {
    pub(super) const LONGEST: usize = LONGEST;

    fn empty() -> Self {
        Self { bytes: [0; LONGEST], length: 0 }
    }

    /// Reads the name at `at`; gives it and where the bytes after it begin.
    pub fn read(message: &[u8], at: usize) -> Result<(Self, usize), WireError> {
        Self::read_with_place(message, at).map(|(name, place)| (name, place.end))
    }

    /// The same, and all that is to be known of where it stands.
    pub(super) fn read_with_place(message: &[u8], at: usize) -> Result<(Self, NameSpan), WireError> {
        let mut name = Self::empty();
        let mut walk = LabelWalk::new(message, at);
        while let Some(label) = walk.next()? {
            name.push(label)?;
        }
        name.push(&[])?;
        // All at once: lengths are no letters, since 63 is before A.
        name.bytes.get_mut(..usize::from(name.length)).unwrap_or_default().make_ascii_lowercase();
        Ok((name, NameSpan { start: at, end: walk.end(), pointers: walk.pointers }))
    }

    /// Where the bytes after the name at `at` begin.
    pub(super) fn skip(message: &[u8], at: usize) -> Result<usize, WireError> {
        let mut at = at;
        loop {
            match *message.get(at).ok_or(WireError::Short)? {
                0 => return Ok(at.saturating_add(1)),
                length @ 1..64 => at = at.saturating_add(1).saturating_add(usize::from(length)),
                0xc0.. => {
                    u16_at(message, at)?;
                    return Ok(at.saturating_add(2));
                }
                _ => return Err(WireError::Label),
            }
        }
    }

    /// Whether the name at `at` is this one, which was read at `place`. Of another name only as much is
    /// read as tells them apart.
    pub(super) fn is_at(&self, message: &[u8], at: usize, place: NameSpan) -> Result<bool, WireError> {
        // Most owners are but a pointer to where the name stood first.
        let is_pointer = |field: u16| field >= 0xc000 && usize::from(field & 0x3fff) == place.start;
        if place.start < at && place.pointers < MOST_POINTERS && u16_at(message, at).is_ok_and(is_pointer) {
            return Ok(true);
        }
        let mut rest = self.as_bytes();
        let mut walk = LabelWalk::new(message, at);
        while let Some(label) = walk.next()? {
            let (&length, after) = rest.split_first().unwrap_or((&0, &[]));
            let own = after.split_at_checked(label.len()).filter(|_| usize::from(length) == label.len());
            let Some((_, after)) = own.filter(|(own, _)| own.eq_ignore_ascii_case(label)) else { return Ok(false) };
            rest = after;
        }
        Ok(rest == [0])
    }

    /// Adds a label as it is written.
    fn push(&mut self, label: &[u8]) -> Result<(), WireError> {
        let length = u8::try_from(label.len()).map_err(|_| WireError::Label)?;
        let end = self.length.checked_add(1).and_then(|end| end.checked_add(length)).ok_or(WireError::LongName)?;
        let free = self.bytes.get_mut(usize::from(self.length)..usize::from(end)).ok_or(WireError::LongName)?;
        let (first, rest) = free.split_first_mut().ok_or(WireError::LongName)?;
        *first = length;
        rest.copy_from_slice(label);
        self.length = end;
        Ok(())
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }

    pub fn labels(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.as_bytes();
        std::iter::from_fn(move || {
            let (&length, after) = rest.split_first()?;
            let (label, after) = after.split_at_checked(usize::from(length)).filter(|_| length > 0)?;
            rest = after;
            Some(label)
        })
    }

    /// The name as policies write it; none if no policy can: a label with a dot
    /// in it must never look like two.
    pub fn to_domain(&self) -> Option<DomainName> {
        DomainName::from_labels(self.labels())
    }
}

/// Where a name was read.
#[derive(Clone, Copy)]
pub(super) struct NameSpan {
    pub(super) start: usize,
    /// Where the bytes after it begin.
    pub(super) end: usize,
    /// How many it led over.
    pointers: u8,
}

/// Goes over the labels of a name.
struct LabelWalk<'a> {
    message: &'a [u8],
    at: usize,
    /// Where the last pointer led, or the name begins: the next must lead before it, so it ends.
    before: usize,
    /// Where the bytes after the name begin, once a pointer has been followed.
    end: Option<usize>,
    length: usize,
    pointers: u8,
}

impl<'a> LabelWalk<'a> {
    fn new(message: &'a [u8], at: usize) -> Self {
        Self { message, at, before: at, end: None, length: 1, pointers: 0 }
    }

    fn next(&mut self) -> Result<Option<&'a [u8]>, WireError> {
        loop {
            match *self.message.get(self.at).ok_or(WireError::Short)? {
                0 => return Ok(None),
                bytes @ 1..64 => {
                    let start = self.at.saturating_add(1);
                    let end = start.saturating_add(usize::from(bytes));
                    let label = self.message.get(start..end).ok_or(WireError::Short)?;
                    self.length = self.length.saturating_add(1).saturating_add(label.len());
                    if self.length > LONGEST {
                        return Err(WireError::LongName);
                    }
                    self.at = end;
                    return Ok(Some(label));
                }
                0xc0.. => {
                    let target = usize::from(u16_at(self.message, self.at)? & 0x3fff);
                    // No name begins in the header: the id in it is another for the client than it was for us.
                    if !(HEADER..self.before).contains(&target) || self.pointers == MOST_POINTERS {
                        return Err(WireError::Pointer);
                    }
                    self.pointers = self.pointers.saturating_add(1);
                    self.end = self.end.or(Some(self.at.saturating_add(2)));
                    (self.at, self.before) = (target, target);
                }
                _ => return Err(WireError::Label),
            }
        }
    }

    /// Where the bytes after the name begin, when it has been walked to its end.
    fn end(&self) -> usize {
        self.end.unwrap_or(self.at.saturating_add(1))
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Name {}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.length <= 1 {
            return f.write_str(".");
        }
        for (at, label) in self.labels().enumerate() {
            if at > 0 {
                f.write_str(".")?;
            }
            for &byte in label {
                match byte {
                    b'.' | b'\\' => write!(f, "\\{}", char::from(byte))?,
                    0x21..0x7f => write!(f, "{}", char::from(byte))?,
                    _ => write!(f, "\\{byte:03}")?,
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
