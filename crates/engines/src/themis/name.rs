//! Domain names as Themis reads them: any bytes in a label, with escapes; what
//! is compared are labels in lower case.

use std::fmt;
use std::sync::Arc;

const MOST_BYTES: usize = 255;
const MOST_LABELS: usize = MOST_BYTES / 2;
const MOST_IN_LABEL: usize = 63;

/// A name, with the text it was read from, which is what others are told.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Name {
    text: Arc<str>,
    /// Labels from the last to the first, each behind its length: whatever is above a name is the
    /// beginning of its key.
    key: Arc<[u8]>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    #[error("an empty label")]
    EmptyLabel,
    #[error("a label of more than {MOST_IN_LABEL} bytes")]
    LabelTooLong,
    #[error("more than {MOST_LABELS} labels")]
    TooManyLabels,
    #[error("more than {MOST_BYTES} bytes")]
    NameTooLong,
    #[error("a broken escape: `\\` goes before one character, or three digits up to 255")]
    Escape,
}

impl Name {
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let text: Arc<str> = text.into();
        if text.is_empty() || &*text == "." {
            return Ok(Self { text, key: Arc::default() });
        }
        let mut labels = [0; MOST_BYTES];
        let mut ends = [0; MOST_LABELS];
        let read = Labels::read(&text, &mut labels, &mut ends)?;
        let mut key = Vec::with_capacity(read.bytes + read.labels);
        for at in (0..read.labels).rev() {
            let start = if at == 0 { 0 } else { ends[at - 1] };
            key.push((ends[at] - start) as u8);
            key.extend_from_slice(&labels[start..ends[at]]);
        }
        if key.len() > MOST_BYTES {
            return Err(NameError::NameTooLong);
        }
        Ok(Self { text, key: key.into() })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

/// How much of the two buffers was filled.
struct Labels {
    bytes: usize,
    labels: usize,
}

impl Labels {
    fn read(text: &str, labels: &mut [u8; MOST_BYTES], ends: &mut [usize; MOST_LABELS]) -> Result<Self, NameError> {
        let mut read = Self { bytes: 0, labels: 0 };
        let mut start = 0;
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            let byte = match byte {
                b'.' => {
                    read.end(start, ends)?;
                    start = read.bytes;
                    continue;
                }
                b'\\' => escaped(&mut rest)?,
                byte => byte,
            };
            if read.bytes - start >= MOST_IN_LABEL {
                return Err(NameError::LabelTooLong);
            }
            *labels.get_mut(read.bytes).ok_or(NameError::NameTooLong)? = byte.to_ascii_lowercase();
            read.bytes += 1;
        }
        if read.bytes > start {
            read.end(start, ends)?;
        }
        Ok(read)
    }

    fn end(&mut self, start: usize, ends: &mut [usize; MOST_LABELS]) -> Result<(), NameError> {
        if self.bytes == start {
            return Err(NameError::EmptyLabel);
        }
        *ends.get_mut(self.labels).ok_or(NameError::TooManyLabels)? = self.bytes;
        self.labels += 1;
        Ok(())
    }
}

/// The byte that an escape stands for, its backslash being read.
fn escaped(rest: &mut std::str::Bytes<'_>) -> Result<u8, NameError> {
    let first = rest.next().ok_or(NameError::Escape)?;
    if !first.is_ascii_digit() {
        return Ok(first);
    }
    let mut code = u16::from(first - b'0');
    for _ in 0..2 {
        let digit = rest.next().filter(u8::is_ascii_digit).ok_or(NameError::Escape)?;
        code = code * 10 + u16::from(digit - b'0');
    }
    code.try_into().map_err(|_| NameError::Escape)
}

/// The name of a key, in lower case, with escapes where they are needed.
pub(super) fn text_of(key: &[u8]) -> String {
    let mut labels = Vec::new();
    let mut rest = key;
    while let [length, after @ ..] = rest {
        let (label, next) = after.split_at((*length).into());
        labels.push(label);
        rest = next;
    }
    let mut text = String::with_capacity(key.len());
    for label in labels.iter().rev() {
        if !text.is_empty() {
            text.push('.');
        }
        for byte in *label {
            match byte {
                b'.' | b'\\' => text.extend(['\\', char::from(*byte)]),
                b'!'..=b'~' => text.push(char::from(*byte)),
                _ => text.push_str(&format!("\\{byte:03}")),
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_compared_in_lower_case_and_the_text_is_kept() {
        let name = Name::parse("WWW.Example.com.").unwrap();
        assert_eq!(name.as_str(), "WWW.Example.com.");
        assert_eq!(name.key(), b"\x03com\x07example\x03www");
        assert_eq!(text_of(name.key()), "www.example.com");
        assert_eq!(Name::parse(".").unwrap().key(), b"");
        assert_eq!(Name::parse("").unwrap().key(), b"");
    }

    #[test]
    fn escapes_stand_for_bytes() {
        let name = Name::parse(r"a\.b.\065\032c").unwrap();
        assert_eq!(name.key(), b"\x03a c\x03a.b");
        assert_eq!(text_of(name.key()), r"a\.b.a\032c");
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let long = "a".repeat(64);
        let many = "a.".repeat(128);
        let whole = format!("{}.", "a".repeat(63)).repeat(4);
        for (text, error) in [
            (".a", NameError::EmptyLabel),
            ("a..b", NameError::EmptyLabel),
            (&*long, NameError::LabelTooLong),
            (&*many, NameError::TooManyLabels),
            (&*whole, NameError::NameTooLong),
            (r"a\", NameError::Escape),
            (r"a\25", NameError::Escape),
            (r"a\256", NameError::Escape),
            (r"a\2x5", NameError::Escape),
        ] {
            assert_eq!(Name::parse(text).unwrap_err(), error, "{text}");
        }
        assert!(Name::parse(&"a.".repeat(127)).is_ok());
    }
}
