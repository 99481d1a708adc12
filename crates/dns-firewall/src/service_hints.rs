//! The addresses that a record gives: those of A and AAAA, and the hints of HTTPS and SVCB (RFC 9460), which clients
//! connect to without asking for the addresses of the target.

use namewall_dns::wire::{Name, Record, RecordType, WireError};
use std::net::IpAddr;

const SVCB: RecordType = RecordType(64);
const HTTPS: RecordType = RecordType(65);
/// Keys of parameters that are lists of addresses.
const IPV4_HINT: u16 = 4;
const IPV6_HINT: u16 = 6;

/// The addresses of a record. One that says that it has some, and cannot be read, is an error: it might have them for
/// somebody else.
pub(crate) fn addresses_of(record: &Record<'_>) -> Result<Vec<IpAddr>, WireError> {
    match record.kind {
        RecordType::A | RecordType::AAAA => record.address().map(|address| vec![address]).ok_or(WireError::Data),
        SVCB | HTTPS => hints(record.data),
        _ => Ok(Vec::new()),
    }
}

/// Priority, target, then parameters: a key, a length, a value.
fn hints(data: &[u8]) -> Result<Vec<IpAddr>, WireError> {
    const PRIORITY: usize = 2;
    let target = data.get(PRIORITY..).ok_or(WireError::Data)?;
    // It is never compressed (RFC 9460 §2.2): a pointer would lead out of these bytes.
    let (_, end) = Name::read(target, 0).map_err(|_| WireError::Data)?;
    let mut rest = target.get(end..).ok_or(WireError::Data)?;
    let mut addresses = Vec::new();
    while !rest.is_empty() {
        let ([key0, key1, length0, length1], after) = rest.split_first_chunk().ok_or(WireError::Data)?;
        let (key, length) = (u16::from_be_bytes([*key0, *key1]), u16::from_be_bytes([*length0, *length1]));
        let (value, after) = after.split_at_checked(length.into()).ok_or(WireError::Data)?;
        match key {
            IPV4_HINT => addresses.extend(list::<4>(value)?),
            IPV6_HINT => addresses.extend(list::<16>(value)?),
            _ => {}
        }
        rest = after;
    }
    Ok(addresses)
}

/// Addresses of so many bytes.
fn list<const N: usize>(value: &[u8]) -> Result<impl Iterator<Item = IpAddr>, WireError>
where
    IpAddr: From<[u8; N]>,
{
    let (addresses, rest) = value.as_chunks::<N>();
    if rest.is_empty() { Ok(addresses.iter().copied().map(IpAddr::from)) } else { Err(WireError::Data) }
}
