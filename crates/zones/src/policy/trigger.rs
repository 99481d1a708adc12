//! What a policy is about, as the owner of its records says it.

use crate::name::shown;
use std::net::IpAddr;

/// What a policy looks at. The order is the order in which policies of one zone count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TriggerKind {
    ClientIp,
    /// The name of the question, or one that an alias leads to.
    Name,
    ResponseIp,
}

/// What an owner is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trigger {
    Name,
    Address(TriggerKind, Network),
    /// About servers of a zone (`rpz-nsdname`, `rpz-nsip`), which a forwarder never sees.
    OfServers,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Network {
    pub(super) address: IpAddr,
    pub(super) length: u8,
}

impl Trigger {
    /// Reads an owner, which is in lower case and without the name of the zone.
    pub(super) fn read(owner: &[u8]) -> Result<Self, String> {
        let labels: Vec<&[u8]> = labels(owner).collect();
        let Some((last, before)) = labels.split_last() else { return Ok(Self::Name) };
        let kind = match *last {
            b"rpz-client-ip" => TriggerKind::ClientIp,
            b"rpz-ip" => TriggerKind::ResponseIp,
            b"rpz-nsdname" | b"rpz-nsip" => return Ok(Self::OfServers),
            other if other.starts_with(b"rpz-") => {
                return Err(format!("{}: no trigger is called so", shown(owner)));
            }
            _ => return Ok(Self::Name),
        };
        let wrong = || {
            let form = "write 24.0.2.0.192 for 192.0.2.0/24, or 32.zz.db8.2001 for 2001:db8::/32";
            format!("{} has no network before its trigger; {form}", shown(owner))
        };
        let network = network(before).ok_or_else(wrong)?;
        if masked(network) != network.address {
            return Err(format!("{}: the address has bits behind its prefix", shown(owner)));
        }
        Ok(Self::Address(kind, network))
    }
}

fn labels(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = name;
    std::iter::from_fn(move || {
        let (&length, after) = rest.split_first()?;
        let (label, after) = after.split_at_checked(usize::from(length)).filter(|_| length > 0)?;
        rest = after;
        Some(label)
    })
}

/// The length of the prefix, and then the address from its end: octets, or words of 16 bits with `zz` for `::`.
fn network(labels: &[&[u8]]) -> Option<Network> {
    let texts: Vec<&str> = labels.iter().map(|label| std::str::from_utf8(label)).collect::<Result<_, _>>().ok()?;
    let (length, words) = texts.split_first()?;
    let length: u8 = length.parse().ok().filter(|number: &u8| number.to_string() == *length)?;
    let address = match words {
        [d, c, b, a] if !words.contains(&"zz") => {
            let octet = |text: &str| text.parse::<u8>().ok();
            IpAddr::from([octet(a)?, octet(b)?, octet(c)?, octet(d)?])
        }
        _ => {
            let text: Vec<&str> = words.iter().rev().map(|word| if *word == "zz" { "" } else { *word }).collect();
            let mut text = text.join(":");
            // At either end, `::` has one colon of its own.
            if words.first() == Some(&"zz") {
                text.push(':');
            }
            if words.last() == Some(&"zz") {
                text.insert(0, ':');
            }
            IpAddr::V6(text.parse().ok()?)
        }
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    (1..=most).contains(&length).then_some(Network { address, length })
}

/// The address without what is behind the prefix.
pub(super) fn masked(network: Network) -> IpAddr {
    let Network { address, length } = network;
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Trigger, String> {
        Trigger::read(&crate::name::wire(text, &[0]).expect("it is a name"))
    }

    #[test]
    fn networks_are_written_from_their_end() {
        for (owner, network) in [
            ("24.0.2.0.192.rpz-ip", "192.0.2.0/24"),
            ("32.7.2.0.192.rpz-ip", "192.0.2.7/32"),
            ("32.zz.db8.2001.rpz-ip", "2001:db8::/32"),
            ("128.1.zz.db8.2001.rpz-ip", "2001:db8::1/128"),
            ("128.1.zz.rpz-ip", "::1/128"),
            ("128.8.7.6.5.4.3.2.2001.rpz-ip", "2001:2:3:4:5:6:7:8/128"),
        ] {
            let Ok(Trigger::Address(TriggerKind::ResponseIp, read)) = read(owner) else { panic!("{owner}") };
            assert_eq!(format!("{}/{}", read.address, read.length), network);
        }
        for owner in [
            "24.2.0.192.rpz-ip",
            "33.0.2.0.192.rpz-ip",
            "0.0.0.0.0.rpz-ip",
            "x.rpz-ip",
            "rpz-ip",
            "024.0.2.0.192.rpz-ip",
            "64.zz.1.zz.2001.rpz-ip",
        ] {
            assert!(read(owner).is_err(), "{owner}");
        }
        assert!(read("24.1.2.0.192.rpz-ip").is_err_and(|why| why.contains("bits behind its prefix")));
    }

    #[test]
    fn the_last_label_says_what_it_is_about() {
        assert_eq!(read("www.example.com"), Ok(Trigger::Name));
        assert_eq!(read("*.example.com"), Ok(Trigger::Name));
        assert_eq!(read("ns.example.rpz-nsdname"), Ok(Trigger::OfServers));
        assert!(matches!(read("8.0.0.0.10.rpz-client-ip"), Ok(Trigger::Address(TriggerKind::ClientIp, _))));
        assert!(read("a.rpz-else").is_err());
    }
}
