//! The messages of CRI's RuntimeService, as far as they are needed. Protocol
//! Buffers: a message is a list of fields, each a number and a value.

use serde_json::Value as Json;
use std::net::IpAddr;
use std::path::PathBuf;

/// Kinds of values on the wire.
const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const BYTES: u64 = 2;
const FIXED_32: u64 = 5;

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the container runtime's answer cannot be read; is it a version of CRI other than v1?")]
pub struct MalformedMessage;

/// A pod that runs, as the runtime knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodSandbox {
    pub id: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// When it was made, in nanoseconds since 1970.
    pub created: i64,
    /// The addresses that the network plugin has given it.
    pub addresses: Vec<IpAddr>,
    /// Its network namespace. None for a pod on the node's own network.
    pub netns: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Result<u64, MalformedMessage> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or(MalformedMessage)?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(MalformedMessage)
    }

    fn bytes(&mut self, length: u64) -> Result<&'a [u8], MalformedMessage> {
        let length = usize::try_from(length).map_err(|_| MalformedMessage)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(MalformedMessage)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn field(&mut self) -> Result<(u64, Value<'a>), MalformedMessage> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            VARINT => Value::Number(self.varint()?),
            FIXED_64 => Value::Bytes(self.bytes(8)?),
            BYTES => {
                let length = self.varint()?;
                Value::Bytes(self.bytes(length)?)
            }
            FIXED_32 => Value::Bytes(self.bytes(4)?),
            _ => return Err(MalformedMessage),
        };
        Ok((tag >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), MalformedMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// All values of a field that has texts or messages, in order.
fn all(message: &[u8], number: u64) -> Result<Vec<&[u8]>, MalformedMessage> {
    let mut found = Vec::new();
    for field in Fields(message) {
        match field? {
            (at, Value::Bytes(bytes)) if at == number => found.push(bytes),
            _ => {}
        }
    }
    Ok(found)
}

/// The last value of a field, which counts. Empty if there is none, as for every field of CRI that is left out.
fn one(message: &[u8], number: u64) -> Result<&[u8], MalformedMessage> {
    Ok(all(message, number)?.last().copied().unwrap_or_default())
}

fn number(message: &[u8], wanted: u64) -> Result<u64, MalformedMessage> {
    let mut found = 0;
    for field in Fields(message) {
        match field? {
            (at, Value::Number(value)) if at == wanted => found = value,
            _ => {}
        }
    }
    Ok(found)
}

fn text(bytes: &[u8]) -> Result<String, MalformedMessage> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| MalformedMessage)
}

/// Appends a field with a text or a message.
pub(super) fn put(message: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    message.push(number << 3 | BYTES as u8);
    let mut length = bytes.len();
    while length >= 0x80 {
        message.push(length as u8 | 0x80);
        length >>= 7;
    }
    message.push(length as u8);
    message.extend(bytes);
}

/// `ListPodSandboxRequest` for those that are ready.
pub(super) fn list_ready() -> Vec<u8> {
    // SANDBOX_READY is 0, which is not written.
    let (mut filter, mut request) = (Vec::new(), Vec::new());
    put(&mut filter, 2, &[]);
    put(&mut request, 1, &filter);
    request
}

/// The ids in a `ListPodSandboxResponse`.
pub fn ids(response: &[u8]) -> Result<Vec<String>, MalformedMessage> {
    all(response, 1)?.into_iter().map(|item| text(one(item, 1)?)).collect()
}

/// `PodSandboxStatusRequest` with all that the runtime knows.
pub(super) fn status_of(id: &str) -> Vec<u8> {
    let mut request = Vec::new();
    put(&mut request, 1, id.as_bytes());
    request.extend([2 << 3, 1]);
    request
}

/// The sandbox in a `PodSandboxStatusResponse`. None if it is not ready any more.
pub fn sandbox(response: &[u8]) -> Result<Option<PodSandbox>, MalformedMessage> {
    let status = one(response, 1)?;
    if number(status, 3)? != 0 {
        return Ok(None);
    }
    let (metadata, network) = (one(status, 2)?, one(status, 5)?);
    let mut addresses = vec![text(one(network, 1)?)?];
    for more in all(network, 2)? {
        addresses.push(text(one(more, 1)?)?);
    }
    let addresses = addresses.iter().filter(|text| !text.is_empty()).map(|text| text.parse());
    Ok(Some(PodSandbox {
        id: text(one(status, 1)?)?,
        name: text(one(metadata, 1)?)?,
        uid: text(one(metadata, 2)?)?,
        namespace: text(one(metadata, 3)?)?,
        created: number(status, 4)?.cast_signed(),
        addresses: addresses.collect::<Result<_, _>>().map_err(|_| MalformedMessage)?,
        netns: network_namespace(response)?,
    }))
}

/// The path of the network namespace, from the specification that the runtime starts the sandbox by: a text of JSON.
fn network_namespace(response: &[u8]) -> Result<Option<PathBuf>, MalformedMessage> {
    for entry in all(response, 2)? {
        if one(entry, 1)? != b"info" {
            continue;
        }
        let info: Json = serde_json::from_slice(one(entry, 2)?).map_err(|_| MalformedMessage)?;
        let namespaces = info["runtimeSpec"]["linux"]["namespaces"].as_array();
        let network = namespaces.into_iter().flatten().find(|namespace| namespace["type"] == "network");
        return Ok(network.and_then(|network| network["path"].as_str()).map(PathBuf::from));
    }
    Ok(None)
}
