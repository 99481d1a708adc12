//! Writes databases of addresses in MaxMind's format, for tests: a tree of bits, records, and what the file says of itself.

use serde_json::{Value, json};
use std::net::{IpAddr, Ipv6Addr};

/// What begins the part that a file says of itself.
const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";

/// A database that is being made.
#[derive(Debug)]
pub struct Mmdb {
    kind: &'static str,
    /// Each has what follows a 0 and a 1.
    nodes: Vec<[Branch; 2]>,
    data: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Branch {
    Nothing,
    Node(usize),
    /// Where a record is in the data.
    Record(usize),
}

impl Mmdb {
    /// One of a type like `GeoLite2-City`.
    pub fn new(kind: &'static str) -> Self {
        Self { kind, nodes: vec![[Branch::Nothing; 2]], data: Vec::new() }
    }

    /// Adds a record for a network. Whole numbers are of 32 bits, all others of 64.
    pub fn with(mut self, address: IpAddr, prefix: u8, record: &Value) -> Self {
        // IPv4 is at the beginning of IPv6, in 96 zeros.
        let (bits, prefix) = match address {
            IpAddr::V4(v4) => (u128::from(v4.to_bits()), u32::from(prefix) + 96),
            IpAddr::V6(v6) => (Ipv6Addr::to_bits(v6), u32::from(prefix)),
        };
        let offset = self.data.len();
        write(&mut self.data, record);
        let mut at = 0;
        for depth in 0..prefix {
            let side = (bits >> (127 - depth) & 1) as usize;
            if depth + 1 == prefix {
                self.nodes[at][side] = Branch::Record(offset);
                break;
            }
            at = match self.nodes[at][side] {
                Branch::Node(next) => next,
                _ => {
                    self.nodes.push([Branch::Nothing; 2]);
                    self.nodes[at][side] = Branch::Node(self.nodes.len() - 1);
                    self.nodes.len() - 1
                }
            };
        }
        self
    }

    /// The file.
    pub fn bytes(&self) -> Vec<u8> {
        let count = self.nodes.len();
        let mut file = Vec::new();
        for branch in self.nodes.iter().flatten() {
            let value = match branch {
                Branch::Nothing => count,
                Branch::Node(at) => *at,
                Branch::Record(offset) => count + 16 + offset,
            };
            file.extend((value as u32).to_be_bytes());
        }
        file.extend([0; 16]);
        file.extend(&self.data);
        file.extend(MARKER);
        // Times have 64 bits, and versions and sizes 16.
        control(&mut file, 7, 9);
        let short = |file: &mut Vec<u8>, key: &str, value: u16| {
            write(file, &json!(key));
            control(file, 5, 2);
            file.extend(value.to_be_bytes());
        };
        short(&mut file, "binary_format_major_version", 2);
        short(&mut file, "binary_format_minor_version", 0);
        short(&mut file, "ip_version", 6);
        short(&mut file, "record_size", 32);
        write(&mut file, &json!("build_epoch"));
        control(&mut file, 9, 8);
        file.extend(1_700_000_000_u64.to_be_bytes());
        let others = [
            ("node_count", json!(count)),
            ("database_type", json!(self.kind)),
            ("languages", json!(["en"])),
            ("description", json!({"en": "made by a test"})),
        ];
        for (key, value) in others {
            write(&mut file, &json!(key));
            write(&mut file, &value);
        }
        file
    }
}

/// The type of a value and its size.
fn control(to: &mut Vec<u8>, kind: u8, size: usize) {
    let (first, more): (u8, Vec<u8>) = match size {
        0..29 => (size as u8, Vec::new()),
        29..285 => (29, vec![(size - 29) as u8]),
        _ => (30, ((size - 285) as u16).to_be_bytes().to_vec()),
    };
    match kind {
        0..8 => to.push(kind << 5 | first),
        _ => to.extend([first, kind - 7]),
    }
    to.extend(more);
}

fn write(to: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => {}
        Value::Bool(is) => control(to, 14, usize::from(*is)),
        Value::Number(number) => match number.as_u64().and_then(|whole| u32::try_from(whole).ok()) {
            Some(whole) => {
                control(to, 6, 4);
                to.extend(whole.to_be_bytes());
            }
            None => {
                control(to, 3, 8);
                to.extend(number.as_f64().unwrap_or_default().to_be_bytes());
            }
        },
        Value::String(text) => {
            control(to, 2, text.len());
            to.extend(text.as_bytes());
        }
        Value::Array(items) => {
            control(to, 11, items.len());
            items.iter().for_each(|item| write(to, item));
        }
        Value::Object(fields) => {
            control(to, 7, fields.len());
            for (key, value) in fields {
                write(to, &json!(key));
                write(to, value);
            }
        }
    }
}
