//! `dns64`: IPv6 addresses for names that have only IPv4 addresses (RFC 6147).

use crate::records::{Decoded, encoded};
use namewall_corefile::Dns64;
use namewall_dns::wire::{Header, Question, Rcode, RecordType};
use namewall_zones::Record;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const IN: u16 = 1;
const SOA: RecordType = RecordType(6);
/// How long a made-up address lasts if nobody says how long there is none.
const USUAL_TTL: u32 = 600;

/// True if the client of a question is to get made-up addresses where there are none.
pub(crate) fn is_for(dns64: &Dns64, client: IpAddr, question: &Question) -> bool {
    let is_meant = dns64.for_ipv4 || client.to_canonical().is_ipv6();
    is_meant && question.record_type == RecordType::AAAA && question.class == IN
}

/// True if an answer is to be replaced by one with made-up addresses.
pub(crate) fn replaces(dns64: &Dns64, answer: &[u8]) -> bool {
    let Ok(header) = Header::read(answer) else { return false };
    if header.rcode == Rcode::NX_DOMAIN {
        return false;
    }
    let has_address = || {
        let decoded = Decoded::read(answer).unwrap_or_default();
        decoded.answer.iter().any(|record| record.kind == RecordType::AAAA)
    };
    dns64.translates_all || !has_address()
}

/// The answer for IPv4 as one for IPv6.
pub(crate) fn synthesized(dns64: &Dns64, query: &[u8], answers: Answers<'_>) -> Option<Vec<u8>> {
    let mut decoded = Decoded::read(answers.of_a).ok()?;
    let denial = Decoded::read(answers.of_aaaa).unwrap_or_default();
    let soa = denial.authority.iter().rev().find(|record| record.kind == SOA);
    let most = soa.map_or(USUAL_TTL, |soa| soa.ttl);
    for record in decoded.answer.iter_mut().filter(|record| record.kind == RecordType::A) {
        let Ok(octets) = <[u8; 4]>::try_from(&record.data[..]) else { return None };
        let data = embedded(dns64, octets.into()).octets().to_vec();
        *record = Record { kind: RecordType::AAAA, ttl: record.ttl.min(most), data, ..record.clone() };
    }
    let mut message = encoded(query, answers.of_a, &decoded);
    // Nobody is an authority for made-up addresses, and nobody has signed them: AA and AD.
    for (at, bit) in [(2, 0x04), (3, 0x20)] {
        message[at] &= !bit;
    }
    Some(message)
}

/// The answers for either kind of address.
#[derive(Clone, Copy)]
pub(crate) struct Answers<'a> {
    pub(crate) of_aaaa: &'a [u8],
    pub(crate) of_a: &'a [u8],
}

/// An IPv4 address behind a prefix (RFC 6052 §2.2). The ninth byte is always zero.
fn embedded(dns64: &Dns64, address: Ipv4Addr) -> Ipv6Addr {
    let IpAddr::V6(prefix) = dns64.prefix.address() else { return address.to_ipv6_mapped() };
    let mut octets = prefix.octets();
    let mut at = usize::from(dns64.prefix.prefix() / 8);
    for octet in address.octets() {
        if at == 8 {
            octets[at] = 0;
            at += 1;
        }
        if let Some(place) = octets.get_mut(at) {
            *place = octet;
        }
        at += 1;
    }
    octets.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of RFC 6052 §2.4.
    #[test]
    fn addresses_are_embedded_as_rfc_6052_says() {
        for (prefix, expected) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
            ("64:ff9b::/96", "64:ff9b::192.0.2.33"),
        ] {
            let dns64 = Dns64 { prefix: prefix.parse().unwrap(), translates_all: false, for_ipv4: false };
            let expected: Ipv6Addr = expected.parse().unwrap();
            assert_eq!(embedded(&dns64, [192, 0, 2, 33].into()), expected, "{prefix}");
        }
    }
}
