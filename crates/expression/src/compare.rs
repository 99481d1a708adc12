//! When two values are equal, and which is less.
//!
//! Text is compared with anything else by what it spells: the facts of a Corefile, and labels above all,
//! come as text. What is not set, and so the empty text, equals only empty text, and is neither less nor
//! more than anything but text.

use crate::computed::Computed;
use crate::names::Fold;
use namewall_policy::addr::{Cidr, parse_address};
use std::cmp::Ordering;
use std::net::IpAddr;

/// An address equals the networks it is in.
pub(crate) fn equal(a: &Computed<'_>, b: &Computed<'_>, fold: Fold) -> bool {
    use Computed::{Address, Bool, Network, Number, Text};
    match (a, b) {
        (Text(a), Text(b)) => fold.same(a, b),
        (Number(a), Number(b)) => a == b,
        (Bool(a), Bool(b)) => a == b,
        (Address(a), Address(b)) => a == b,
        (Network(a), Network(b)) => a == b,
        (Address(address), Network(network)) | (Network(network), Address(address)) => network.contains(*address),
        (Text(text), Network(network)) | (Network(network), Text(text)) => match parse_address(text) {
            Some(address) => network.contains(address),
            None => text.parse() == Ok(*network),
        },
        (Text(text), Number(number)) | (Number(number), Text(text)) => crate::token::read_number(text) == Some(*number),
        (Text(text), Bool(is)) | (Bool(is), Text(text)) => {
            text.eq_ignore_ascii_case(if *is { "true" } else { "false" })
        }
        (Text(text), Address(address)) | (Address(address), Text(text)) => match parse_address(text) {
            Some(one) => one == *address,
            None => text.parse().is_ok_and(|network: Cidr| network.contains(*address)),
        },
        (Computed::List(a), Computed::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b, fold)),
        (Computed::Addresses(a), Computed::Addresses(b)) => a == b,
        _ => false,
    }
}

/// Whether the value is the item, or in it if it is a list.
pub(crate) fn contains(item: &Computed<'_>, value: &Computed<'_>, fold: Fold) -> bool {
    match item {
        Computed::List(items) => items.iter().any(|item| contains(item, value, fold)),
        Computed::Addresses(addresses) => {
            addresses.iter().any(|one| equal(&Computed::Address(one.to_canonical()), value, fold))
        }
        item => equal(item, value, fold),
    }
}

/// Which is less; none if they are not on one line: what is not set and a number, or addresses of two
/// families. Text that should spell a number, or an address, and does not, is an error: whoever wrote it
/// into a label meant something.
pub(crate) fn order(a: &Computed<'_>, b: &Computed<'_>) -> Result<Option<Ordering>, String> {
    use Computed::{Address, Number, Text};
    match (a, b) {
        (Text(a), Text(b)) => Ok(Some(a.as_bytes().cmp(b.as_bytes()))),
        (Number(a), Number(b)) => Ok(a.partial_cmp(b)),
        (Address(a), Address(b)) => Ok(address_order(*a, *b)),
        (Text(text), Number(_) | Address(_)) | (Number(_) | Address(_), Text(text)) if text.is_empty() => Ok(None),
        (Text(_), Number(_)) | (Number(_), Text(_)) => Ok(number(a)?.partial_cmp(&number(b)?)),
        (Text(_), Address(_)) | (Address(_), Text(_)) => Ok(address_order(address(a)?, address(b)?)),
        _ => Err(format!("`{a}` and `{b}` have no order")),
    }
}

fn address_order(a: IpAddr, b: IpAddr) -> Option<Ordering> {
    (a.is_ipv4() == b.is_ipv4()).then(|| a.cmp(&b))
}

/// The number it is or spells.
pub(crate) fn number(value: &Computed<'_>) -> Result<f64, String> {
    value.as_number().ok_or_else(|| match value {
        Computed::Text(text) if text.is_empty() => "what is not set is not a number".to_owned(),
        value => format!("`{value}` is not a number"),
    })
}

/// The address it is or spells.
pub(crate) fn address(value: &Computed<'_>) -> Result<IpAddr, String> {
    value.as_address().ok_or_else(|| format!("`{value}` is not an address"))
}

/// Whether the address is in the network, or the address, or the list of these, that the value is or spells.
pub(crate) fn is_within(address: IpAddr, network: &Computed<'_>) -> Result<bool, String> {
    match network {
        Computed::Network(network) => Ok(network.contains(address)),
        Computed::Address(one) => Ok(*one == address),
        Computed::Text(text) if text.is_empty() => Ok(false),
        Computed::Text(text) => match parse_address(text) {
            Some(one) => Ok(one == address),
            None => text.parse().map(|network: Cidr| network.contains(address)).map_err(|error| error.to_string()),
        },
        Computed::Addresses(addresses) => Ok(addresses.iter().any(|one| one.to_canonical() == address)),
        Computed::List(items) => {
            for item in items {
                if is_within(address, item)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        other => Err(format!("`{other}` is not a network")),
    }
}
