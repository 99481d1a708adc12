//! What a kernel rule tests, in words. The version of IP is left out: a rule of a
//! policy is written for both.

use crate::conntrack::protocol_of;
use crate::nft::expression::{Base, Expression, meta};
use crate::nft::read::{Live, LiveSet};
use crate::nft::rule::peer_group;
use crate::nft::set::{self, Field, Key, Twins, Version, read_address};
use crate::nft::wire;
use std::collections::BTreeMap;

/// The words of a rule without tests.
pub(super) const ANYTHING: &str = "anything";

/// What a rule may look up.
pub(super) struct Sets<'a> {
    live: &'a Live,
    /// How many addresses each group of peers has.
    groups: BTreeMap<u32, usize>,
}

/// What was loaded last, and is tested next.
#[derive(Clone, Copy)]
enum Loaded {
    Nothing,
    Family,
    Protocol,
    Port,
    Source,
    Destination,
}

impl<'a> Sets<'a> {
    pub(super) fn of(live: &'a Live) -> Self {
        let mut groups = BTreeMap::new();
        for set in Version::BOTH.into_iter().filter_map(|version| live.sets.get(set::PEERS[version])) {
            for element in set.elements.iter() {
                if let Some((number, _)) = element.key.as_bytes().split_first_chunk::<4>() {
                    *groups.entry(u32::from_ne_bytes(*number)).or_default() += 1;
                }
            }
        }
        Self { live, groups }
    }

    pub(super) fn words(&self, expressions: &[Expression]) -> String {
        let mut words: Vec<String> = Vec::new();
        let (mut loaded, mut family) = (Loaded::Nothing, None);
        for expression in expressions {
            match expression {
                Expression::Meta { key: meta::PROTOCOL, .. } => loaded = Loaded::Protocol,
                Expression::Meta { key: meta::FAMILY, .. } => loaded = Loaded::Family,
                Expression::Meta { .. } => loaded = Loaded::Nothing,
                Expression::Payload { base, offset, length, .. } => loaded = loaded_by(*base, *offset, *length),
                Expression::Compare { to, .. } if matches!(loaded, Loaded::Family) => family = to.first().copied(),
                Expression::Compare { equal, to, .. } => words.extend(compared(loaded, *equal, to)),
                Expression::Range { low, high, .. } => words.extend(between(loaded, low, high)),
                Expression::Lookup { set, .. } => words.push(self.looked_up(set, expressions)),
                _ => {}
            }
        }
        match family {
            // Whatever else is tested says the version too. A protocol and its port are one part.
            _ if !words.is_empty() => words.join("; ").replace("; port", " port"),
            Some(wire::IPV4) => "any IPv4 address".to_owned(),
            Some(_) => "any IPv6 address".to_owned(),
            None => ANYTHING.to_owned(),
        }
    }

    fn looked_up(&self, set: &str, expressions: &[Expression]) -> String {
        let is = |twins: Twins| set == twins.0 || set == twins.1;
        if is(set::PEERS) {
            let addresses =
                peer_group(expressions).and_then(|group| self.groups.get(&group)).copied().unwrap_or_default();
            return if addresses == 1 { "1 pod address".to_owned() } else { format!("{addresses} pod addresses") };
        }
        match set {
            _ if is(set::LEASE) => "names".to_owned(),
            _ if is(set::NAMED) => "ports by name".to_owned(),
            _ if is(set::POD_NETWORK) => "the pod network".to_owned(),
            _ if is(set::PODS) => "pods".to_owned(),
            _ => self.listed(set).unwrap_or_else(|| format!("@{set}")),
        }
    }

    /// The content of a set of ports, or how many networks a set of networks has.
    fn listed(&self, name: &str) -> Option<String> {
        let LiveSet { spec, elements } = self.live.sets.get(name)?;
        match spec.as_ref()?.key[..] {
            [Field::Protocol, Field::Port] => {
                let mut ports: Vec<(Key, Option<Box<Key>>)> =
                    elements.iter().map(|element| (element.key, element.key_end)).collect();
                ports.sort_unstable();
                let texts: Option<Vec<String>> = ports.iter().map(|(low, high)| ports_text(low, high)).collect();
                Some(texts?.join(", "))
            }
            [Field::Address(_)] => {
                let count = elements.iter().filter(|element| !element.ends_interval).count();
                Some(format!("{count} networks"))
            }
            _ => None,
        }
    }
}

/// `TCP port 80`, `UDP ports 1-9`: one element of a set of ports.
fn ports_text(low: &Key, high: &Option<Box<Key>>) -> Option<String> {
    let port = |key: &Key| Some(u16::from_be_bytes(key.as_bytes().get(4..6)?.try_into().ok()?));
    let protocol = protocol_of(*low.as_bytes().first()?);
    let (first, last) = (port(low)?, high.as_ref().map_or_else(|| port(low), |high| port(high))?);
    Some(if first == last { format!("{protocol} port {first}") } else { format!("{protocol} ports {first}-{last}") })
}

fn loaded_by(base: Base, offset: u32, length: u32) -> Loaded {
    match (base, offset, length) {
        (Base::Transport, 2, 2) => Loaded::Port,
        (Base::Network, 12, 4) | (Base::Network, 8, 16) => Loaded::Source,
        (Base::Network, 16, 4) | (Base::Network, 24, 16) => Loaded::Destination,
        _ => Loaded::Nothing,
    }
}

fn compared(loaded: Loaded, equal: bool, to: &[u8]) -> Option<String> {
    let not = if equal { "" } else { "not " };
    let value = match loaded {
        Loaded::Nothing | Loaded::Family => return None,
        Loaded::Protocol => protocol_of(*to.first()?).to_string(),
        Loaded::Port | Loaded::Source | Loaded::Destination => text(loaded, to)?,
    };
    Some(format!("{not}{value}"))
}

fn between(loaded: Loaded, low: &[u8], high: &[u8]) -> Option<String> {
    let last = match loaded {
        Loaded::Port => u16::from_be_bytes(high.try_into().ok()?).to_string(),
        _ => read_address(high)?.to_string(),
    };
    Some(format!("{}-{last}", text(loaded, low)?))
}

fn text(loaded: Loaded, value: &[u8]) -> Option<String> {
    Some(match loaded {
        Loaded::Port => format!("port {}", u16::from_be_bytes(value.try_into().ok()?)),
        Loaded::Source => format!("from {}", read_address(value)?),
        Loaded::Destination => format!("to {}", read_address(value)?),
        Loaded::Nothing | Loaded::Family | Loaded::Protocol => return None,
    })
}
