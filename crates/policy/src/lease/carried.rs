//! IPv6 addresses that carry an IPv4 address: a packet to one of them may end at
//! the IPv4 address, by translation or by a tunnel.

use crate::addr::Cidr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where RFC 6052 puts the IPv4 address, by the length of the prefix. Byte 8 is always left out.
const PLACES: [(u8, [usize; 4]); 6] = [
    (32, [4, 5, 6, 7]),
    (40, [5, 6, 7, 9]),
    (48, [6, 7, 9, 10]),
    (56, [7, 9, 10, 11]),
    (64, [9, 10, 11, 12]),
    (96, LAST),
];
const LAST: [usize; 4] = [12, 13, 14, 15];

/// True if a translator can have a prefix of this length.
pub fn is_nat64_prefix(prefix: Cidr) -> bool {
    prefix.address().is_ipv6() && PLACES.iter().any(|(length, _)| *length == prefix.prefix())
}

/// The IPv4 addresses that an address may lead to: one in most cases, none if it is not such a form. `prefixes` are
/// those of translators in this network, besides the well-known ones.
pub(super) fn by(address: IpAddr, prefixes: &[Cidr]) -> Vec<Ipv4Addr> {
    let IpAddr::V6(v6) = address else { return Vec::new() };
    let mut carried = well_known(v6);
    for prefix in prefixes.iter().filter(|prefix| prefix.contains(address)) {
        let place = PLACES.iter().find(|(length, _)| *length == prefix.prefix());
        carried.extend(place.map(|(_, place)| at(v6, *place)));
    }
    carried
}

/// The IPv4 addresses that an address may lead to by a well-known form.
pub fn carried_ipv4(address: IpAddr) -> Vec<Ipv4Addr> {
    by(address, &[])
}

fn well_known(v6: Ipv6Addr) -> Vec<Ipv4Addr> {
    let last = || at(v6, LAST);
    match v6.segments() {
        // 6to4.
        [0x2002, ..] => vec![at(v6, [2, 3, 4, 5])],
        // Teredo: its server, and the client, which is written inverted.
        [0x2001, 0, ..] => vec![at(v6, [4, 5, 6, 7]), Ipv4Addr::from_bits(!last().to_bits())],
        // NAT64 for local use, of any length from 48 (RFC 8215). Where the address is not, there are zeros.
        [0x64, 0xff9b, 1, ..] => {
            let places = PLACES.iter().filter(|(length, _)| *length >= 48);
            let mut all: Vec<Ipv4Addr> = places.map(|(_, place)| at(v6, *place)).collect();
            if all.iter().any(|address| !address.is_unspecified()) {
                all.retain(|address| !address.is_unspecified());
            }
            all
        }
        // NAT64 (RFC 6052).
        [0x64, 0xff9b, 0, ..] => vec![last()],
        // Mapped, translated (RFC 2765), and compatible (RFC 4291); `::` and `::1` are their own.
        [0, 0, 0, 0, 0, 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => vec![last()],
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 || low > 1 => vec![last()],
        // ISATAP (RFC 5214).
        [.., 0 | 0x200, 0x5efe, _, _] => vec![last()],
        _ => Vec::new(),
    }
}

fn at(v6: Ipv6Addr, places: [usize; 4]) -> Ipv4Addr {
    let bytes = v6.octets();
    Ipv4Addr::from(places.map(|place| bytes[place]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(address: &str, prefixes: &[&str]) -> Vec<String> {
        let prefixes: Vec<Cidr> = prefixes.iter().map(|text| text.parse().unwrap()).collect();
        by(address.parse().unwrap(), &prefixes).iter().map(Ipv4Addr::to_string).collect()
    }

    /// The examples of RFC 6052, section 2.4.
    #[test]
    fn s6_8_the_prefix_says_where_the_address_is() {
        for (prefix, address) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
        ] {
            assert_eq!(carried(address, &[prefix]), ["192.0.2.33"], "{prefix}");
            assert_eq!(carried(address, &[]), [""; 0], "nobody knows that {prefix} is a translator's");
            assert!(is_nat64_prefix(prefix.parse().unwrap()));
        }
        for other in ["2001:db8::/33", "2001:db8::/128", "10.0.0.0/32"] {
            assert!(!is_nat64_prefix(other.parse().unwrap()), "{other}");
        }
    }

    #[test]
    fn s6_8_every_form_is_known() {
        for form in [
            "::ffff:192.0.2.33",
            "::ffff:0:192.0.2.33",
            "::192.0.2.33",
            "64:ff9b::192.0.2.33",
            "64:ff9b:1::192.0.2.33",
            "64:ff9b:1:c000:2:2100::",
            "64:ff9b:1:3c0:0:221::",
            "64:ff9b:1:344:c0:2:2100::",
            "2002:c000:221::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdde",
            "2001:0:c000:221::",
            "2001:db8::5efe:192.0.2.33",
            "2001:db8::200:5efe:192.0.2.33",
        ] {
            assert!(carried(form, &[]).contains(&"192.0.2.33".to_owned()), "{form}: {:?}", carried(form, &[]));
        }
        for other in ["::", "::1", "192.0.2.33", "2001:db8::c000:221", "fe80::1", "64:ff9b:2::192.0.2.33"] {
            assert_eq!(carried(other, &[]), [""; 0], "{other}");
        }
    }
}
