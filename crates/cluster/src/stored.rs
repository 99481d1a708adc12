//! Objects as they are stored between two processes: the last good version of
//! what a source has (S10.3). Pure: bytes in, bytes out.
//!
//! ```text
//! namewall last-good 1
//! {"source":"files /etc/namewall","entries":1}
//! {"name":"/etc/namewall/shop.yaml","isGood":true,"bytes":123}
//! 123 bytes and a line feed
//! sha256 e3b0…
//! ```
//! The digest is of all bytes before its line. A reader takes all of it or
//! nothing: half a state would be a smaller set of policies.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// The largest state that is written or read, in bytes.
pub const MAX_STORED: usize = 512 << 20;

const MAGIC: &str = "namewall last-good ";
const VERSION: u32 = 1;
const DIGEST: &str = "sha256 ";

/// What a source has, as it is stored.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Stored {
    /// Which source it is of. The state of another source is not taken.
    pub source: String,
    pub entries: Vec<StoredEntry>,
}

/// A file, or an object of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredEntry {
    pub name: Arc<str>,
    pub text: Arc<str>,
    /// True if it is a version without an error, which counts for as long as a newer version has one. Others are
    /// enforced as far as they can be read.
    pub is_good: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoredError {
    #[error("it is larger than {} MB", MAX_STORED >> 20)]
    TooLarge,
    #[error("it is not a state of namewall")]
    NoState,
    #[error("it has format {0}; {VERSION} is read")]
    Version(u32),
    #[error("its checksum is wrong: it is damaged, or was cut off")]
    Checksum,
    #[error("it cannot be read at byte {0}")]
    Malformed(usize),
}

impl Stored {
    pub fn encode(&self) -> Result<Vec<u8>, StoredError> {
        let texts: usize = self.entries.iter().map(|entry| entry.text.len() + entry.name.len()).sum();
        if texts > MAX_STORED {
            return Err(StoredError::TooLarge);
        }
        let header = json!({"source": self.source, "entries": self.entries.len()});
        let mut bytes = format!("{MAGIC}{VERSION}\n{header}\n").into_bytes();
        for StoredEntry { name, text, is_good } in &self.entries {
            let header = json!({"name": &**name, "isGood": is_good, "bytes": text.len()});
            bytes.extend(format!("{header}\n").bytes());
            bytes.extend(text.as_bytes());
            bytes.push(b'\n');
        }
        let digest = digest(&bytes);
        bytes.extend(format!("{DIGEST}{digest}\n").bytes());
        if bytes.len() > MAX_STORED { Err(StoredError::TooLarge) } else { Ok(bytes) }
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, StoredError> {
        if bytes.len() > MAX_STORED {
            return Err(StoredError::TooLarge);
        }
        let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let version = std::str::from_utf8(first).ok().and_then(|line| line.strip_prefix(MAGIC)?.parse().ok());
        match version {
            None => return Err(StoredError::NoState),
            Some(VERSION) => {}
            Some(other) => return Err(StoredError::Version(other)),
        }
        let body = checked(bytes).ok_or(StoredError::Checksum)?;
        let mut reader = Reader { bytes: body, at: first.len() + 1 };
        reader.stored().ok_or(StoredError::Malformed(reader.at))
    }
}

/// The bytes before the line of the digest, if the digest is right.
fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let line = DIGEST.len() + 2 * <Sha256 as Digest>::output_size() + 1;
    let (body, last) = bytes.split_at_checked(bytes.len().checked_sub(line)?)?;
    let said = std::str::from_utf8(last).ok()?.strip_prefix(DIGEST)?.strip_suffix('\n')?;
    (digest(body) == said).then_some(body)
}

/// The SHA-256 of some bytes, in hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Reader<'b> {
    fn stored(&mut self) -> Option<Stored> {
        let header = self.json()?;
        let count = header["entries"].as_u64()?;
        let mut entries = Vec::new();
        for _ in 0..count {
            let header = self.json()?;
            let length = usize::try_from(header["bytes"].as_u64()?).ok()?;
            let text = std::str::from_utf8(self.take(length)?).ok()?;
            if self.take(1)? != b"\n" {
                return None;
            }
            let name = header["name"].as_str()?.into();
            entries.push(StoredEntry { name, text: text.into(), is_good: header["isGood"].as_bool()? });
        }
        let is_whole = self.at == self.bytes.len();
        is_whole.then_some(Stored { source: header["source"].as_str()?.to_owned(), entries })
    }

    fn json(&mut self) -> Option<Value> {
        let rest = self.bytes.get(self.at..)?;
        let length = rest.iter().position(|byte| *byte == b'\n')?;
        let line = self.take(length)?;
        self.take(1)?;
        serde_json::from_slice(line).ok()
    }

    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let end = self.at.checked_add(length)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stored() -> Stored {
        let entry = |name: &str, text: &str, is_good| StoredEntry { name: name.into(), text: text.into(), is_good };
        let entries = vec![
            entry("/etc/namewall/a \"quoted\".yaml", "kind: A\n---\nkind: B", true),
            entry("", "", false),
            entry("\u{1f9f1}", "sha256 0\n{}\n", true),
        ];
        Stored { source: "files /etc/namewall".to_owned(), entries }
    }

    #[test]
    fn s10_3_what_is_stored_is_read_as_it_was() {
        let bytes = stored().encode().expect("it is small");
        assert_eq!(Stored::decode(&bytes), Ok(stored()));
        assert_eq!(Stored::decode(&Stored::default().encode().expect("it is small")), Ok(Stored::default()));
    }

    #[test]
    fn s10_3_a_state_that_is_cut_off_anywhere_is_refused() {
        let bytes = stored().encode().expect("it is small");
        for length in 0..bytes.len() {
            assert!(Stored::decode(&bytes[..length]).is_err(), "{length} of {} bytes", bytes.len());
        }
        let longer = [&bytes[..], b"\n"].concat();
        assert_eq!(Stored::decode(&longer), Err(StoredError::Checksum));
    }

    #[test]
    fn s10_3_one_wrong_byte_anywhere_is_noticed() {
        let bytes = stored().encode().expect("it is small");
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1;
            assert!(Stored::decode(&wrong).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_newer_format_says_so() {
        assert_eq!(Stored::decode(b"namewall last-good 2\n"), Err(StoredError::Version(2)));
        assert_eq!(Stored::decode(b"#!/bin/sh\n"), Err(StoredError::NoState));
        assert_eq!(Stored::decode(b""), Err(StoredError::NoState));
    }

    /// A body with a right digest, but one that nobody has written.
    fn sealed(body: &str) -> Vec<u8> {
        let body = format!("{MAGIC}{VERSION}\n{body}");
        format!("{body}{DIGEST}{}\n", digest(body.as_bytes())).into_bytes()
    }

    #[test]
    fn a_right_checksum_does_not_make_a_state() {
        for body in [
            "",
            "{}\n",
            "{\"source\":\"x\",\"entries\":1}\n",
            "{\"source\":\"x\",\"entries\":18446744073709551615}\n",
            "{\"source\":\"x\",\"entries\":1}\n{\"name\":\"a\",\"isGood\":true,\"bytes\":18446744073709551615}\n\n",
            "{\"source\":\"x\",\"entries\":1}\n{\"name\":\"a\",\"isGood\":true,\"bytes\":1}\nab",
            "{\"source\":\"x\",\"entries\":0}\nmore\n",
        ] {
            assert!(matches!(Stored::decode(&sealed(body)), Err(StoredError::Malformed(_))), "{body}");
        }
    }

    proptest! {
        #[test]
        fn s10_3_any_state_survives_its_file(
            source in ".*",
            entries in prop::collection::vec((".*", "(?s).*", any::<bool>()), 0..5),
        ) {
            let entries = entries.into_iter();
            let entry = |(name, text, is_good): (String, String, bool)| {
                StoredEntry { name: name.into(), text: text.into(), is_good }
            };
            let stored = Stored { source, entries: entries.map(entry).collect() };
            prop_assert_eq!(Stored::decode(&stored.encode().expect("it is small")), Ok(stored));
        }

        #[test]
        fn any_bytes_are_a_state_or_an_error(body in "(?s).*") {
            let _ = Stored::decode(body.as_bytes());
            let _ = Stored::decode(&sealed(&body));
        }
    }
}
