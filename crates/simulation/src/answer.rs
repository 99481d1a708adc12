//! DNS answers, as bytes.

use std::net::Ipv4Addr;

/// The answer to a question for the A records of a name, which has its last dot.
pub(crate) fn answer(name: &str, addresses: &[(Ipv4Addr, u32)]) -> Vec<u8> {
    const IN: u16 = 1;
    const A: u16 = 1;
    /// A pointer to the name of the question.
    const SAME_NAME: u16 = 0xc00c;
    let count = u16::try_from(addresses.len()).unwrap_or(u16::MAX);
    // The id, that it is a recursive answer without an error, and how many questions, answers and others it has.
    let mut bytes: Vec<u8> = [1, 0x8180, 1, count, 0, 0].iter().flat_map(|number: &u16| number.to_be_bytes()).collect();
    // The empty label at the end is the root.
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap_or(0));
        bytes.extend(label.bytes());
    }
    bytes.extend([A, IN].iter().flat_map(|number| number.to_be_bytes()));
    for (address, ttl) in addresses {
        bytes.extend([SAME_NAME, A, IN].iter().flat_map(|number| number.to_be_bytes()));
        bytes.extend(ttl.to_be_bytes());
        bytes.extend(4_u16.to_be_bytes());
        bytes.extend(address.octets());
    }
    bytes
}
