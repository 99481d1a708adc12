//! Addresses that are not reached over the internet. An answer of somebody else's zone that has one leads a client to its
//! own network (DNS rebinding).

use namewall_policy::lease::carried_ipv4;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is of the own machine, link or network, or of nobody: by the registries of special-purpose addresses
/// (RFC 6890), without the networks for documentation. An IPv6 address that leads to such an IPv4 address is one, too.
pub(crate) fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_private_v4(v4),
        IpAddr::V6(v6) => is_private_v6(v6) || carried_ipv4(address).into_iter().any(is_private_v4),
    }
}

fn is_private_v4(v4: Ipv4Addr) -> bool {
    match v4.octets() {
        // This network, and private use.
        [0 | 10 | 127, ..] | [192, 168, ..] | [172, 16..=31, ..] => true,
        // Shared by carriers, link-local, protocol assignments, benchmarks.
        [100, 64..=127, ..] | [169, 254, ..] | [192, 0, 0, _] | [198, 18..=19, ..] => true,
        // Groups, and reserved.
        [224..=255, ..] => true,
        _ => false,
    }
}

fn is_private_v6(v6: Ipv6Addr) -> bool {
    let first = v6.segments()[0];
    let is_local = v6.is_unspecified() || v6.is_loopback();
    // Unique local, link-local and (deprecated) site-local, groups, discard-only, NAT64 of the own network.
    is_local
        || first & 0xfe00 == 0xfc00
        || first & 0xff80 == 0xfe80
        || first & 0xff00 == 0xff00
        || v6.segments()[..4] == [0x100, 0, 0, 0]
        || v6.segments()[..3] == [0x64, 0xff9b, 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_own_network_are_private_in_every_form() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "fc00::1",
            "fdff::1",
            "ff02::1",
            "64:ff9b::10.1.2.3",
            "64:ff9b:1::1",
            "2002:0a00:0001::",
            "100::1",
            "2001:0:c000:201::f5ff:fffe",
        ] {
            assert!(is_private(address.parse().unwrap()), "{address}");
        }
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.0.1",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "192.0.2.1",
            "192.167.0.1",
            "198.17.0.1",
            "198.20.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "223.255.255.255",
            "2001:db8::1",
            "2606:4700::1111",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2002:101:101::",
            "fb00::1",
            "101::1",
        ] {
            assert!(!is_private(address.parse().unwrap()), "{address}");
        }
    }
}
