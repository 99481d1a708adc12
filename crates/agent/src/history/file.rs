//! The file with what is known of leases: a line with a format version and a
//! checksum, then a line for each lease.

use super::{LeaseRecord, MOST, Origin};
use crate::error::with_causes;
use crate::source::{StorageError, WriteHow, read_file, write_file};
use namewall_cluster::digest;
use serde::Serialize;
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use tracing::warn;

const FORMAT: &str = "namewall leases 1";
/// A file that is larger is not read.
const MOST_BYTES: usize = 64 << 20;

/// What an earlier process knew of its leases. None if there is no file, or it cannot be used.
pub(crate) fn load(path: &Path) -> Option<Vec<LeaseRecord>> {
    let read = read_file(path, MOST_BYTES).map_err(|error| with_causes(&error));
    let records = read.and_then(|bytes| bytes.map(|bytes| decode(&bytes)).transpose());
    records.unwrap_or_else(|why| {
        let path = path.display();
        warn!("cannot use {path}: {why}; connections of leases that have ended are judged without it");
        None
    })
}

pub(super) fn store(path: &Path, records: &[LeaseRecord]) -> Result<(), StorageError> {
    // What is not on the disk yet outlives the process, and a reboot ends all connections.
    write_file(path, &encode(records), WriteHow::Unsynced)
}

/// A lease as a line of the file.
#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    address: IpAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<AnswerLine<'a>>,
}

#[derive(Serialize)]
struct AnswerLine<'a> {
    upstream: Option<SocketAddr>,
    ttl: u32,
    owners: Vec<&'a str>,
}

impl<'a> Line<'a> {
    fn of(LeaseRecord { name, address, asked_by, origin }: &'a LeaseRecord) -> Self {
        let answer = origin.as_deref().map(|Origin { upstream, ttl, owners }| AnswerLine {
            upstream: *upstream,
            ttl: *ttl,
            owners: owners.iter().map(|owner| owner.as_str()).collect(),
        });
        Self { name: name.as_str(), address: *address, client: *asked_by, answer }
    }
}

pub(super) fn encode(records: &[LeaseRecord]) -> Vec<u8> {
    // The checksum stands before the lines. Its place is kept, so that megabytes of lines need not be moved.
    let mut text = format!("{FORMAT} {}\n", digest(b"")).into_bytes();
    let (sum_at, start) = (FORMAT.len() + 1, text.len());
    for record in records.iter().take(MOST) {
        // A line has texts and numbers only, and goes into memory: neither can fail.
        let _ = serde_json::to_writer(&mut text, &Line::of(record));
        text.push(b'\n');
    }
    let sum = digest(&text[start..]);
    text[sum_at..start - 1].copy_from_slice(sum.as_bytes());
    text
}

/// All of it or nothing: half a history would have connections cut that a lease opened.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<LeaseRecord>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text")?;
    let (head, lines) = text.split_once('\n').ok_or("it is cut off")?;
    match head.strip_prefix(FORMAT).and_then(|rest| rest.strip_prefix(' ')) {
        None => return Err("it has another format".to_owned()),
        Some(sum) if sum != digest(lines.as_bytes()) => return Err("it is damaged".to_owned()),
        Some(_) => {}
    }
    let read = |line: &str| {
        let value: Value = serde_json::from_str(line).ok()?;
        record(&value)
    };
    lines.lines().map(read).collect::<Option<_>>().ok_or_else(|| "a line of it cannot be read".to_owned())
}

fn record(value: &Value) -> Option<LeaseRecord> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let asked_by = match &value["client"] {
        Value::Null => None,
        client => Some(text(client)?.parse().ok()?),
    };
    Some(LeaseRecord {
        name: text(&value["name"])?.parse().ok()?,
        address: text(&value["address"])?.parse().ok()?,
        asked_by,
        origin: match &value["answer"] {
            Value::Null => None,
            answer => Some(Arc::new(origin(answer)?)),
        },
    })
}

fn origin(value: &Value) -> Option<Origin> {
    let upstream = match &value["upstream"] {
        Value::Null => None,
        upstream => Some(upstream.as_str()?.parse().ok()?),
    };
    let owners = value["owners"].as_array()?.iter().map(|owner| owner.as_str()?.parse().ok());
    Some(Origin { upstream, ttl: value["ttl"].as_u64()?.try_into().ok()?, owners: owners.collect::<Option<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<LeaseRecord> {
        let origin = Origin::new(
            Some("[2001:db8::53]:53".parse().expect("a server")),
            60,
            vec!["cdn.example.net".parse().expect("a name"), "edge.example.net".parse().expect("a name")],
        );
        let name = || "api.example.com".parse().expect("a name");
        vec![
            LeaseRecord {
                name: name(),
                address: [198, 51, 100, 7].into(),
                asked_by: Some([10, 0, 0, 1].into()),
                origin: Some(Arc::new(origin)),
            },
            LeaseRecord { name: name(), address: [198, 51, 100, 8].into(), asked_by: None, origin: None },
        ]
    }

    #[test]
    fn what_is_stored_is_read_again() {
        assert_eq!(decode(&encode(&records())), Ok(records()));
        assert_eq!(decode(&encode(&[])), Ok(Vec::new()));
    }

    /// A process of another version reads it.
    #[test]
    fn the_file_has_a_head_with_a_checksum_and_a_line_for_each_lease() {
        let lines = concat!(
            r#"{"name":"api.example.com","address":"198.51.100.7","client":"10.0.0.1","#,
            r#""answer":{"upstream":"[2001:db8::53]:53","ttl":60,"owners":["cdn.example.net","edge.example.net"]}}"#,
            "\n",
            r#"{"name":"api.example.com","address":"198.51.100.8"}"#,
            "\n",
        );
        let text = String::from_utf8(encode(&records())).expect("it is text");
        assert_eq!(text, format!("{FORMAT} {}\n{lines}", digest(lines.as_bytes())));
    }

    #[test]
    fn a_file_that_is_damaged_or_cut_off_is_not_used_at_all() {
        let whole = encode(&records());
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            assert!(decode(&bytes).is_err(), "byte {at} is another");
            assert!(decode(&whole[..at]).is_err(), "cut off at {at}");
        }
    }
}
