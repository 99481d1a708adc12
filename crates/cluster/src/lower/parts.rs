//! The parts policies are made of: selectors, blocks, ports, names. Each gives
//! `None`, with a Finding, for what cannot be taken as written.

use super::scope::Scope;
use crate::kinds::meta::LabelSelector;
use namewall_policy::addr::{Cidr, parse_address};
use namewall_policy::domain::{DomainPattern, Wildcard};
use namewall_policy::labels::{Requirement, Selector};
use namewall_policy::model::{Action, PortMatch};
use namewall_policy::port::Protocol;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// All of them, or none: one bad item spoils the whole.
pub(crate) fn all<T, U>(items: &[T], mut read: impl FnMut(usize, &T) -> Option<U>) -> Option<Vec<U>> {
    // Every item is read even after a bad one, so that every fault is reported.
    let read: Vec<Option<U>> = items.iter().enumerate().map(|(at, item)| read(at, item)).collect();
    read.into_iter().collect()
}

pub(crate) fn selector(scope: &mut Scope<'_>, selector: &LabelSelector, path: &str) -> Option<Selector> {
    let mut requirements: Vec<Requirement> = Vec::new();
    for (key, value) in &selector.match_labels {
        check_label_key(scope, key, &format!("{path}.matchLabels"))?;
        check_label_value(scope, value, &format!("{path}.matchLabels"))?;
        requirements.push(Requirement::In { key: key.as_str().into(), values: vec![value.as_str().into()] });
    }
    let expressions = all(&selector.match_expressions, |at, expression| {
        let path = format!("{path}.matchExpressions[{at}]");
        let key: Arc<str> = expression.key.as_str().into();
        let values: Vec<Arc<str>> = expression.values.iter().map(|value| value.as_str().into()).collect();
        check_label_key(scope, &key, &format!("{path}.key"))?;
        let wants_values = matches!(expression.operator.as_str(), "In" | "NotIn");
        if wants_values == values.is_empty()
            && matches!(expression.operator.as_str(), "In" | "NotIn" | "Exists" | "DoesNotExist")
        {
            let rule = if wants_values { "needs at least one value" } else { "takes no values" };
            scope.error("bad-selector", &format!("{path}.values"), format!("{} {rule}", expression.operator));
            return None;
        }
        for value in &expression.values {
            check_label_value(scope, value, &format!("{path}.values"))?;
        }
        match expression.operator.as_str() {
            "In" => Some(Requirement::In { key, values }),
            "NotIn" => Some(Requirement::NotIn { key, values }),
            "Exists" => Some(Requirement::Exists { key }),
            "DoesNotExist" => Some(Requirement::DoesNotExist { key }),
            other => {
                let message = format!("`{other}` is no operator; use In, NotIn, Exists or DoesNotExist");
                scope.error("bad-selector", &format!("{path}.operator"), message);
                None
            }
        }
    })?;
    requirements.extend(expressions);
    Some(Selector { requirements })
}

const KEY_FORM: &str = "write name or prefix/name, like app or example.com/app";
const VALUE_FORM: &str = "at most 63 letters, digits, `-`, `_`, `.`, with a letter or digit at both ends";

/// No object can carry another, so a selector by it cannot mean what it says.
fn check_label_key(scope: &mut Scope<'_>, key: &str, path: &str) -> Option<()> {
    if is_label_key(key) {
        return Some(());
    }
    scope.error("bad-selector", path, format!("`{key}` cannot be a label's key; {KEY_FORM}"));
    None
}

/// `[prefix/]name`. A prefix looks like a domain and is none: it may look like an address too.
fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let part = |part: &str| part.bytes().all(inner) && edge(part.as_bytes().first()) && edge(part.as_bytes().last());
    let good_prefix = prefix.is_none_or(|prefix| prefix.len() <= 253 && prefix.split('.').all(part));
    !name.is_empty() && is_label_text(name) && good_prefix
}

fn is_label_text(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    let inner = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    text.len() <= 63 && inner && edge(text.chars().next()) && edge(text.chars().next_back())
}

/// A label of an object. The API server refuses others, so that the object would not be there.
pub(crate) fn check_label(scope: &mut Scope<'_>, key: &str, value: &str, path: &str) -> bool {
    let (has_good_key, has_good_value) = (is_label_key(key), is_label_text(value));
    if !has_good_key {
        scope.error("bad-label", path, format!("`{key}` cannot be a label's key; {KEY_FORM}"));
    }
    if !has_good_value {
        scope.error(
            "bad-label",
            &format!("{path}.{key}"),
            format!("`{value}` cannot be a label's value: {VALUE_FORM}"),
        );
    }
    has_good_key && has_good_value
}

/// No object can carry such a label, so the selector can never mean anything.
fn check_label_value(scope: &mut Scope<'_>, value: &str, path: &str) -> Option<()> {
    if is_label_text(value) {
        return Some(());
    }
    scope.error("bad-selector", path, format!("`{value}` cannot be a label's value: {VALUE_FORM}"));
    None
}

pub(crate) fn address(scope: &mut Scope<'_>, text: &str, path: &str) -> Option<IpAddr> {
    let address = parse_address(text);
    if address.is_none() {
        scope.error("bad-address", path, format!("`{text}` is not an IP address"));
    }
    address
}

pub(crate) fn cidr(scope: &mut Scope<'_>, text: &str, path: &str) -> Option<Cidr> {
    match text.parse::<Cidr>() {
        Ok(cidr) => {
            if cidr.had_host_bits() {
                scope.warning("host-bits", path, format!("`{text}` has bits beyond its prefix; it is read as {cidr}"));
            }
            Some(cidr)
        }
        Err(error) => {
            scope.error("bad-network", path, error.to_string());
            None
        }
    }
}

pub(crate) fn domain_pattern(
    scope: &mut Scope<'_>,
    text: &str,
    wildcard: Wildcard,
    path: &str,
) -> Option<DomainPattern> {
    match DomainPattern::parse(text, wildcard) {
        Ok(pattern) => Some(pattern),
        Err(error) => {
            scope.error("bad-name", path, error.to_string());
            None
        }
    }
}

pub(crate) fn protocol(scope: &mut Scope<'_>, text: Option<&str>, path: &str) -> Option<Protocol> {
    match text.unwrap_or("TCP") {
        "TCP" => Some(Protocol::Tcp),
        "UDP" => Some(Protocol::Udp),
        "SCTP" => Some(Protocol::Sctp),
        other => {
            scope.error("bad-protocol", path, format!("`{other}` is not accepted; use TCP, UDP or SCTP"));
            None
        }
    }
}

pub(crate) fn port_number(scope: &mut Scope<'_>, number: i64, path: &str) -> Option<u16> {
    match u16::try_from(number) {
        Ok(port @ 1..) => Some(port),
        _ => {
            scope.error("bad-port", path, format!("{number} is no port; use 1 to 65535"));
            None
        }
    }
}

pub(crate) fn port_range(
    scope: &mut Scope<'_>,
    protocol: Protocol,
    ports: RangeInclusive<i64>,
    path: &str,
) -> Option<PortMatch> {
    let low = port_number(scope, *ports.start(), path)?;
    let high = port_number(scope, *ports.end(), path)?;
    if low > high {
        scope.error("bad-port", path, format!("the range {low}-{high} ends before it starts"));
        return None;
    }
    Some(PortMatch::Range { protocol, low, high })
}

pub(crate) fn port_name(scope: &mut Scope<'_>, name: &str, path: &str) -> Option<Arc<str>> {
    let charset = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let letter = name.bytes().any(|b| b.is_ascii_lowercase());
    let hyphens = name.starts_with('-') || name.ends_with('-') || name.contains("--");
    if (1..=15).contains(&name.len()) && charset && letter && !hyphens {
        return Some(name.into());
    }
    let message = format!(
        "`{name}` cannot be a port's name: at most 15 lower-case letters, digits and single `-`, with one letter"
    );
    scope.error("bad-port", path, message);
    None
}

/// The action of a rule, by the words its kind uses for Allow, Deny and Pass.
pub(crate) fn action(scope: &mut Scope<'_>, text: &str, words: &[(&str, Action)], path: &str) -> Option<Action> {
    let found = words.iter().find(|(word, _)| *word == text).map(|(_, action)| *action);
    if found.is_none() {
        let accepted: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        scope.error("bad-action", path, format!("`{text}` is not accepted; use {}", accepted.join(" or ")));
    }
    found
}

/// Between 1 and `most` items, as the published schemas ask.
pub(crate) fn count(scope: &mut Scope<'_>, items: usize, most: usize, path: &str) -> Option<()> {
    if (1..=most).contains(&items) {
        return Some(());
    }
    scope.error("bad-count", path, format!("{items} entries; 1 to {most} are accepted"));
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_labels_key_is_what_the_api_server_lets_objects_carry() {
        for good in ["app", "A.b_c-d", "example.com/app", "10.0.0.1/app", "a/b", &format!("{}/x", "a".repeat(253))] {
            assert!(is_label_key(good), "{good}");
        }
        let long = ["a".repeat(64), format!("{}/x", "a".repeat(254))];
        let bad = ["", "/", "a/", "/a", "a/b/c", "-a", "a b", "Example.com/app", "a_b/c", "a..b/c", "-a/b", "a./b"];
        for bad in bad.into_iter().chain(long.iter().map(String::as_str)) {
            assert!(!is_label_key(bad), "{bad}");
        }
    }
}
